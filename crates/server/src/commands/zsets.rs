//! Sorted-set commands on members: adding, scores, ranks, popping, random choice.

mod adding;
mod blocking;

use std::ops::Range;

use store::types::Text;
use store::{Change, Items, Key, Kind, RowsRef, ZSetRef};
use wire::resp::{Args, Protocol, ReplyWriter, double_text};

use super::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use super::context::{CommandContext, SET_COST, ZSET_COST, is_option, reply_has_room};
use super::fail::Fail;
use super::scan::parse_cursor;
use super::sets::{
    Copies, Slices, at_least, choose, chosen_len, element_scan_options, pop_count, random_below,
    random_count, reply_scan,
};
use crate::config::KeyEvent;

pub(super) use adding::{CH as ADD_CH, NX as ADD_NX, XX as ADD_XX, add_all, check_add_options};
pub(crate) use adding::{ZADD, ZINCRBY};
pub(crate) use blocking::{BZMPOP, BZPOPMAX, BZPOPMIN};

/// End from which ranks are counted and members returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// Lowest score first.
    Forward,
    Reverse,
}

impl Direction {
    pub(super) fn each<'a>(self, rows: RowsRef<'a>, visit: impl FnMut((Text<'a>, f64))) {
        match self {
            Direction::Forward => rows.for_each(visit),
            Direction::Reverse => rows.rev().for_each(visit),
        }
    }
}

/// Form in which members and scores are replied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowShape {
    Members,
    /// Member, score, member, score ...
    Flat,
    /// One array of member and score for each member.
    Nested,
    /// Member and score as further elements of an array that the caller has begun.
    Appended,
}

impl RowShape {
    /// The shape of WITHSCORES.
    pub(super) fn with_scores(protocol: Protocol) -> RowShape {
        match protocol {
            Protocol::Resp2 => RowShape::Flat,
            Protocol::Resp3 => RowShape::Nested,
        }
    }

    pub(super) fn header(self, reply: &mut ReplyWriter<'_>, rows: usize) {
        match self {
            RowShape::Flat => reply.array(rows * 2),
            RowShape::Members | RowShape::Nested => reply.array(rows),
            RowShape::Appended => {}
        }
    }

    #[inline]
    pub(super) fn row(self, reply: &mut ReplyWriter<'_>, member: &[u8], score: f64) {
        if self == RowShape::Nested {
            reply.array(2);
        }
        reply.bulk(member);
        if self != RowShape::Members {
            reply.double(score);
        }
    }
}

fn cardinality(cx: &CommandContext<'_>, key: Key<'_>) -> Result<usize, Fail> {
    Ok(cx.locked.zset(cx.db, key)?.map_or(0, ZSetRef::len))
}

pub(crate) const ZREM: Command = Command {
    name: "zrem",
    syntax: "key member [member ...]",
    summary: "Removes members from a sorted set; a sorted set without members is deleted.",
    since: "1.2.0",
    complexity: "O(M*log N) for M members given",
    group: Group::SortedSet,
    arity: -3,
    flags: Flags::WRITE.and(Flags::FAST),
    events: Events::Each(Group::SortedSet.event("zrem")),
    keys: &[KeySpec::one(KeyAccess::Delete)],
    run: zrem,
    ..Command::EMPTY
};

fn zrem(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let zset = cx.locked.zset(cx.db, key)?;
    let before = zset.map_or(0, ZSetRef::len);
    let is_member = |member: &&[u8]| zset.is_some_and(|zset| zset.score(member).is_some());
    let present: Slices<'_> = args.skip(2).iter().filter(is_member).collect();
    if present.is_empty() {
        cx.reply.integer(0);
        return Ok(());
    }
    cx.change(key, Change::ZSetRemove { members: Items::Slice(&present) })?;
    // A member that is given twice is removed only once.
    let removed = if present.len() == 1 { 1 } else { before - cardinality(cx, key)? };
    cx.reply.count(removed);
    Ok(())
}

pub(crate) const ZCARD: Command = Command {
    name: "zcard",
    syntax: "key",
    summary: "Returns the number of members of a sorted set.",
    since: "1.2.0",
    complexity: "O(1)",
    group: Group::SortedSet,
    arity: 2,
    flags: Flags::READONLY.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::Probe)],
    run: zcard,
    ..Command::EMPTY
};

fn zcard(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let count = cardinality(cx, cx.key(args.get(1)))?;
    cx.reply.count(count);
    Ok(())
}

fn reply_score(reply: &mut ReplyWriter<'_>, score: Option<f64>) {
    match score {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
}

pub(crate) const ZSCORE: Command = Command {
    name: "zscore",
    syntax: "key member",
    summary: "Returns the score of a member.",
    since: "1.2.0",
    complexity: "O(1)",
    group: Group::SortedSet,
    arity: 3,
    flags: Flags::READONLY.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::Read)],
    run: zscore,
    ..Command::EMPTY
};

fn zscore(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let score = cx.locked.zset(cx.db, key)?.and_then(|zset| zset.score(args.get(2)));
    reply_score(&mut cx.reply, score);
    Ok(())
}

pub(crate) const ZMSCORE: Command = Command {
    name: "zmscore",
    syntax: "key member [member ...]",
    summary: "Returns the scores of several members.",
    since: "6.2.0",
    complexity: "O(N) in the members given",
    group: Group::SortedSet,
    arity: -3,
    flags: Flags::READONLY.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::Read)],
    run: zmscore,
    ..Command::EMPTY
};

fn zmscore(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let zset = cx.locked.zset(cx.db, key)?;
    let members = args.skip(2);
    cx.reply.array(members.len());
    for member in members {
        reply_score(&mut cx.reply, zset.and_then(|zset| zset.score(member)));
    }
    Ok(())
}

pub(crate) const ZRANK: Command = Command {
    name: "zrank",
    syntax: "key member [WITHSCORE]",
    summary: "Returns the rank of a member, counted from the lowest score.",
    since: "2.0.0",
    complexity: "O(log N)",
    group: Group::SortedSet,
    arity: -3,
    flags: Flags::READONLY.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::Read)],
    run: |cx, args| rank(cx, args, Direction::Forward),
    ..Command::EMPTY
};

pub(crate) const ZREVRANK: Command = Command {
    name: "zrevrank",
    summary: "Returns the rank of a member, counted from the highest score.",
    run: |cx, args| rank(cx, args, Direction::Reverse),
    ..ZRANK
};

fn rank(cx: &mut CommandContext<'_>, args: Args<'_>, direction: Direction) -> Done {
    if args.len() > 4 {
        return Err(Fail::arity(cx.command.name));
    }
    let option = args.try_get(3);
    if option.is_some_and(|option| !is_option(option, "WITHSCORE")) {
        return Err(Fail::Syntax);
    }
    let key = cx.key(args.get(1));
    let member = args.get(2);
    let found = cx.locked.zset(cx.db, key)?.and_then(|zset| {
        let rank = zset.rank(member)?;
        let rank = if direction == Direction::Forward { rank } else { zset.len() - 1 - rank };
        Some((rank, option.and_then(|_| zset.score(member))))
    });
    match found {
        Some((rank, Some(score))) => {
            cx.reply.array(2);
            cx.reply.count(rank);
            cx.reply.double(score);
        }
        Some((rank, None)) => cx.reply.count(rank),
        None if option.is_some() => cx.reply.null_array(),
        None => cx.reply.null(),
    }
    Ok(())
}

const fn popped(direction: Direction) -> KeyEvent {
    Group::SortedSet.event(match direction {
        Direction::Forward => "zpopmin",
        Direction::Reverse => "zpopmax",
    })
}

pub(crate) const ZPOPMIN: Command = Command {
    name: "zpopmin",
    syntax: "key [count]",
    summary: "Removes the members with the lowest scores and returns them.",
    since: "5.0.0",
    complexity: "O(M*log N) for M members removed",
    group: Group::SortedSet,
    arity: -2,
    flags: Flags::WRITE.and(Flags::FAST).and(Flags::COPIES),
    events: Events::Each(popped(Direction::Forward)),
    keys: &[KeySpec::one(KeyAccess::ReadDelete)],
    run: |cx, args| pop(cx, args, Direction::Forward),
    ..Command::EMPTY
};

pub(crate) const ZPOPMAX: Command = Command {
    name: "zpopmax",
    summary: "Removes the members with the highest scores and returns them.",
    events: Events::Each(popped(Direction::Reverse)),
    run: |cx, args| pop(cx, args, Direction::Reverse),
    ..ZPOPMIN
};

fn pop(cx: &mut CommandContext<'_>, args: Args<'_>, direction: Direction) -> Done {
    let (count, shape) = match args.len() {
        2 => (1, RowShape::Flat),
        3 => (pop_count(args.get(2))?, RowShape::with_scores(cx.reply.protocol)),
        _ => return Err(Fail::Syntax),
    };
    take(cx, cx.key(args.get(1)), direction, count, shape)
}

/// Replies with up to `count` members from one end, and removes them.
fn take(
    cx: &mut CommandContext<'_>,
    key: Key<'_>,
    direction: Direction,
    count: usize,
    shape: RowShape,
) -> Done {
    let Some(zset) = cx.locked.zset(cx.db, key)? else {
        cx.reply.array(0);
        return Ok(());
    };
    let len = zset.len();
    let count = count.min(len);
    cx.spend(count.saturating_mul(SET_COST))?;
    let ranks = match direction {
        Direction::Forward => 0..count,
        Direction::Reverse => len - count..len,
    };
    let mut copies = Copies::default();
    shape.header(&mut cx.reply, count);
    direction.each(zset.iter_range(ranks), |(member, score)| {
        if reply_has_room(&cx.reply) {
            shape.row(&mut cx.reply, &member, score);
            copies.push(&member);
        }
    });
    cx.check_reply()?; // before anything is removed
    if count == 0 {
        return Ok(());
    }
    let event = popped(direction);
    if count == len {
        return cx.change_as(event, key, Change::Delete);
    }
    cx.change_as(event, key, Change::ZSetRemove { members: Items::Slice(&copies.slices()) })
}

pub(crate) const ZMPOP: Command = Command {
    name: "zmpop",
    syntax: "numkeys key [key ...] <MIN | MAX> [COUNT count]",
    summary: "Removes and returns the first or last members of the first nonempty sorted set.",
    since: "7.0.0",
    complexity: "O(K) + O(M*log N) for K keys and M members removed",
    group: Group::SortedSet,
    arity: -4,
    flags: Flags::WRITE.and(Flags::MOVABLEKEYS).and(Flags::COPIES),
    events: Events::Chosen,
    keys: &[KeySpec::counted(1, KeyAccess::ReadDelete)],
    run: zmpop,
    ..Command::EMPTY
};

fn zmpop(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    if !pop_first(cx, args, &MultiPop::parse(args)?)? {
        cx.reply.null_array();
    }
    Ok(())
}

/// Options of ZMPOP.
struct MultiPop {
    /// Positions of the keys among the arguments.
    keys: Range<usize>,
    direction: Direction,
    count: usize,
}

impl MultiPop {
    fn parse(args: Args<'_>) -> Result<MultiPop, Fail> {
        let key_count = at_least(args.get(1), 1, "ERR numkeys should be greater than 0")?;
        let end_at = key_count.saturating_add(2);
        let direction = match args.try_get(end_at) {
            Some(text) if is_option(text, "MIN") => Direction::Forward,
            Some(text) if is_option(text, "MAX") => Direction::Reverse,
            _ => return Err(Fail::Syntax),
        };
        let options = args.skip(end_at + 1);
        let count = match options.len() {
            0 => 1,
            len if len >= 2 && is_option(options.get(0), "COUNT") => {
                let count = at_least(options.get(1), 1, "ERR count should be greater than 0")?;
                if len > 2 {
                    return Err(Fail::Syntax);
                }
                count
            }
            _ => return Err(Fail::Syntax),
        };
        Ok(MultiPop { keys: 2..end_at, direction, count })
    }
}

/// Pops from the first sorted set that exists, and replies. False if there is none, or if an older
/// client waits for it.
fn pop_first(
    cx: &mut CommandContext<'_>,
    args: Args<'_>,
    options: &MultiPop,
) -> Result<bool, Fail> {
    for name in args.range(options.keys.clone()) {
        let key = cx.key(name);
        if cx.locked.zset(cx.db, key)?.is_some() {
            if cx.is_reserved(key, Kind::ZSet) {
                return Ok(false);
            }
            cx.reply.array(2);
            cx.reply.bulk(name);
            take(cx, key, options.direction, options.count, RowShape::Nested)?;
            return Ok(true);
        }
    }
    Ok(false)
}

pub(crate) const ZRANDMEMBER: Command = Command {
    name: "zrandmember",
    syntax: "key [count [WITHSCORES]]",
    summary: "Returns random members of a sorted set, with repetition if the count is negative.",
    since: "6.2.0",
    complexity: "O(M*log N) for M members returned",
    group: Group::SortedSet,
    arity: -2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyAccess::Read)],
    tips: &["nondeterministic_output"],
    run: zrandmember,
    ..Command::EMPTY
};

fn zrandmember(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let Some(count) = args.try_get(2) else { return random_one(cx, key) };
    let count = random_count(count)?;
    let shape = match args.try_get(3) {
        None => RowShape::Members,
        Some(option) if args.len() == 4 && is_option(option, "WITHSCORES") => {
            // The number of elements in the reply must also be representable.
            if count.unsigned_abs() > i64::MAX.unsigned_abs() / 2 {
                return Err(Fail::text("ERR value is out of range"));
            }
            RowShape::with_scores(cx.reply.protocol)
        }
        Some(_) => return Err(Fail::Syntax),
    };
    random_many(cx, key, count, shape)
}

fn random_one(cx: &mut CommandContext<'_>, key: Key<'_>) -> Done {
    let Some(zset) = cx.locked.zset(cx.db, key)? else {
        cx.reply.null();
        return Ok(());
    };
    let row = zset.get_index(random_below(zset.len(), cx.reactor.random()));
    cx.reply.bulk(&row.expect("the rank is below the length").0);
    Ok(())
}

fn random_many(cx: &mut CommandContext<'_>, key: Key<'_>, count: i64, shape: RowShape) -> Done {
    let Some(zset) = cx.locked.zset(cx.db, key)? else {
        cx.reply.array(0);
        return Ok(());
    };
    let chosen = chosen_len(zset.len(), count)?;
    cx.spend(chosen.saturating_mul(ZSET_COST))?;
    shape.header(&mut cx.reply, chosen);
    choose(
        zset.len(),
        count,
        || cx.reactor.random(),
        |rank| {
            let (member, score) = zset.get_index(rank).expect("the rank is below the length");
            if reply_has_room(&cx.reply) {
                shape.row(&mut cx.reply, &member, score);
            }
        },
    );
    Ok(())
}

pub(crate) const ZSCAN: Command = Command {
    name: "zscan",
    syntax: "key cursor [MATCH pattern] [COUNT count]",
    summary: "Iterates over the members and scores of a sorted set, some with each call.",
    since: "2.8.0",
    complexity: "O(1) per call, O(N) for the whole sorted set",
    group: Group::SortedSet,
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyAccess::Read)],
    tips: &["nondeterministic_output"],
    run: zscan,
    ..Command::EMPTY
};

fn zscan(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let cursor = parse_cursor(args.get(2))?;
    let key = cx.key(args.get(1));
    let mut found = Copies::default();
    let mut next = 0;
    if let Some(zset) = cx.locked.zset(cx.db, key)? {
        let options = element_scan_options(args)?;
        let mut text = Vec::new();
        next = zset.scan(cursor, options.count, |member, score| {
            if found.has_room(&cx.reply) && options.accepts(member) {
                text.clear();
                double_text(score, &mut text);
                found.push(member);
                found.push(&text);
            }
        });
        options.steps.check()?;
    }
    reply_scan(&mut cx.reply, next, &found);
    Ok(())
}
