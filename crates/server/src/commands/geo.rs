//! Positions on Earth, as the scores of sorted sets.

mod grid;
mod search;
mod sphere;

use smallvec::SmallVec;
use store::ZSetRef;
use wire::resp::{Args, ReplyWriter};

use super::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use super::context::{CommandContext, float, is_option};
use super::fail::Fail;
use super::zsets::{ADD_CH, ADD_NX, ADD_XX, add_all, check_add_options};
use grid::Cell;
use sphere::Position;

pub(crate) use search::{
    GEORADIUS, GEORADIUS_RO, GEORADIUSBYMEMBER, GEORADIUSBYMEMBER_RO, GEOSEARCH, GEOSEARCHSTORE,
};

/// Parses a position.
// Source: Redis 7.2 `geo.c`, `extractLongLatOrReply`
fn position(longitude: &[u8], latitude: &[u8]) -> Result<Position, Fail> {
    let (longitude, latitude) = (float(longitude)?, float(latitude)?);
    let position = Position { longitude, latitude };
    if position.is_on_map() {
        return Ok(position);
    }
    let text = format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}");
    Err(Fail::owned(text))
}

/// Parses a unit of length. Returns its meters.
fn unit_meters(text: &[u8]) -> Result<f64, Fail> {
    let known = [("M", 1.0), ("KM", 1000.0), ("FT", 0.3048), ("MI", 1609.34)];
    let found = known.into_iter().find(|(name, _)| is_option(text, name));
    found
        .map(|(_, meters)| meters)
        .ok_or(Fail::text("ERR unsupported unit provided. please use M, KM, FT, MI"))
}

/// Returns the position of a member.
fn member_position(zset: ZSetRef<'_>, member: &[u8]) -> Option<Position> {
    zset.score(member).map(|score| Cell::of_score(score).center())
}

fn reply_distance(reply: &mut ReplyWriter<'_>, distance: f64) {
    reply.bulk(format!("{distance:.4}").as_bytes());
}

fn reply_position(reply: &mut ReplyWriter<'_>, position: Position) {
    reply.array(2);
    reply.exact_double(position.longitude);
    reply.exact_double(position.latitude);
}

pub(crate) const GEOADD: Command = Command {
    name: "geoadd",
    syntax: "key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]",
    summary: "Adds members with their positions to a sorted set, or moves them.",
    since: "3.2.0",
    complexity: "O(log N) for each member",
    group: Group::Geo,
    arity: -5,
    flags: Flags::WRITE.and(Flags::DENYOOM),
    events: Events::Each(Group::SortedSet.event("zadd")),
    keys: &[KeySpec::one(KeyAccess::Update)],
    run: geoadd,
    ..Command::EMPTY
};

fn geoadd(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (mut options, mut first) = (0, 2);
    let known = [("NX", ADD_NX), ("XX", ADD_XX), ("CH", ADD_CH)];
    while let Some(text) = args.try_get(first)
        && let Some((_, bit)) = known.iter().find(|(name, _)| is_option(text, name))
    {
        options |= bit;
        first += 1;
    }
    let has_both = options & ADD_NX != 0 && options & ADD_XX != 0;
    if !(args.len() - first).is_multiple_of(3) || has_both {
        return Err(Fail::Syntax);
    }
    let mut rows: SmallVec<[(f64, &[u8]); 4]> = SmallVec::new();
    for at in (first..args.len()).step_by(3) {
        let position = position(args.get(at), args.get(at + 1))?;
        rows.push((Cell::of(position).score(), args.get(at + 2)));
    }
    check_add_options(options, 2 * rows.len())?;
    let key = cx.key(args.get(1));
    add_all(cx, key, &rows, options)
}

pub(crate) const GEODIST: Command = Command {
    name: "geodist",
    syntax: "key member1 member2 [M | KM | FT | MI]",
    summary: "Returns the distance between two members.",
    since: "3.2.0",
    complexity: "O(1)",
    group: Group::Geo,
    arity: -4,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyAccess::Read)],
    run: geodist,
    ..Command::EMPTY
};

fn geodist(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    if args.len() > 5 {
        return Err(Fail::Syntax);
    }
    let unit = args.try_get(4).map_or(Ok(1.0), unit_meters)?;
    let zset = cx.locked.zset(cx.db, cx.key(args.get(1)))?;
    let position = |at| zset.and_then(|zset| member_position(zset, args.get(at)));
    match (position(2), position(3)) {
        (Some(from), Some(to)) => reply_distance(&mut cx.reply, from.distance_to(to) / unit),
        _ => cx.reply.null(),
    }
    Ok(())
}

pub(crate) const GEOHASH: Command = Command {
    name: "geohash",
    syntax: "key [member [member ...]]",
    summary: "Returns the positions of members as geohashes of eleven characters.",
    since: "3.2.0",
    complexity: "O(1) for each member",
    group: Group::Geo,
    arity: -2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyAccess::Read)],
    run: geohash,
    ..Command::EMPTY
};

fn geohash(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let zset = cx.locked.zset(cx.db, cx.key(args.get(1)))?;
    cx.reply.array(args.len() - 2);
    for member in args.skip(2) {
        match zset.and_then(|zset| member_position(zset, member)) {
            Some(position) => cx.reply.bulk(&grid::geohash(position)),
            None => cx.reply.null(),
        }
    }
    Ok(())
}

pub(crate) const GEOPOS: Command = Command {
    name: "geopos",
    summary: "Returns the positions of members, longitude first.",
    run: geopos,
    ..GEOHASH
};

fn geopos(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let zset = cx.locked.zset(cx.db, cx.key(args.get(1)))?;
    cx.reply.array(args.len() - 2);
    for member in args.skip(2) {
        match zset.and_then(|zset| member_position(zset, member)) {
            Some(position) => reply_position(&mut cx.reply, position),
            None => cx.reply.null_array(),
        }
    }
    Ok(())
}
