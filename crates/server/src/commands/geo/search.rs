//! GEOSEARCH, GEORADIUS and their relatives.

use std::cmp::Ordering;
use std::ops::Bound;

use store::types::{Text, ZSet};
use store::{Kind, ZSetRef};
use wire::resp::{Args, ReplyWriter};

use super::grid::{Cell, covering};
use super::sphere::{Position, Shape};
use super::{member_position, position, reply_distance, reply_position, unit_meters};
use crate::commands::command::{
    Command, Done, Events, Flags, Group, KeyAccess, KeyPlaces, KeySpec,
};
use crate::commands::context::{CommandContext, check_room, float, integer, is_option};
use crate::commands::fail::Fail;
use crate::commands::sets::store_result;

/// Cost of a member whose distance is computed.
const POINT_COST: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Radius,
    RadiusByMember,
    Search,
    SearchStore,
}

/// A member that was found.
#[derive(Debug, Clone, Copy)]
struct Point<'a> {
    member: Text<'a>,
    score: f64,
    position: Position,
    meters: f64,
}

/// How scores are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoredScore {
    Position,
    Distance,
}

/// What a reply contains of a member besides its name.
#[derive(Debug, Default, Clone, Copy)]
struct Fields {
    distance: bool,
    hash: bool,
    position: bool,
}

impl Fields {
    fn count(self) -> usize {
        usize::from(self.distance) + usize::from(self.hash) + usize::from(self.position)
    }
}

#[derive(Debug, Default)]
struct Query<'a> {
    center: Option<Position>,
    shape: Option<Shape>,
    /// Meters of the unit of distances.
    unit: f64,
    fields: Fields,
    /// Whether any points will do if there are more than `count`.
    any: bool,
    order: Option<Ordering>,
    /// 0: no limit.
    count: usize,
    destination: Option<(&'a [u8], StoredScore)>,
}

/// Parses a length, with `error` if it is not a number.
fn length(text: &[u8], error: &'static str) -> Result<f64, Fail> {
    float(text).map_err(|_| Fail::text(error))
}

impl<'a> Query<'a> {
    /// Parses the arguments. `zset`: the source, if it exists.
    // Source: Redis 7.2 `geo.c`, `georadiusGeneric`
    fn parse(
        args: Args<'a>,
        form: Form,
        stores: bool,
        zset: Option<ZSetRef<'_>>,
    ) -> Result<Self, Fail> {
        let mut query = Query { unit: 1.0, ..Query::default() };
        let first = match form {
            Form::Radius => {
                query.center = Some(position(args.get(2), args.get(3))?);
                query.set_radius(args.get(4), args.get(5))?;
                6
            }
            Form::RadiusByMember => {
                if let Some(zset) = zset {
                    query.set_member(zset, args.get(2))?;
                    query.set_radius(args.get(3), args.get(4))?;
                }
                5
            }
            Form::Search => 2,
            Form::SearchStore => {
                query.destination = Some((args.get(1), StoredScore::Position));
                3
            }
        };
        query.parse_options(args.skip(first), form, stores, zset)?;
        query.check(args.get(0), form)?;
        Ok(query)
    }

    fn parse_options(
        &mut self,
        mut rest: Args<'a>,
        form: Form,
        stores: bool,
        zset: Option<ZSetRef<'_>>,
    ) -> Done {
        let searches = matches!(form, Form::Search | Form::SearchStore);
        // GEOSEARCHSTORE has its destination already.
        let stores = stores && !searches;
        let (mut has_member, mut has_position) = (false, false);
        let (mut has_radius, mut has_box) = (false, false);
        while !rest.is_empty() {
            let (name, values) = (rest.get(0), rest.len() - 1);
            let is = |option, count| values >= count && is_option(name, option);
            let mut used = 0;
            if is("WITHDIST", 0) {
                self.fields.distance = true;
            } else if is("WITHHASH", 0) {
                self.fields.hash = true;
            } else if is("WITHCOORD", 0) {
                self.fields.position = true;
            } else if is("ANY", 0) {
                self.any = true;
            } else if is("ASC", 0) {
                self.order = Some(Ordering::Less);
            } else if is("DESC", 0) {
                self.order = Some(Ordering::Greater);
            } else if is("COUNT", 1) {
                let count = usize::try_from(integer(rest.get(1))?).unwrap_or(0);
                if count == 0 {
                    return Err(Fail::text("ERR COUNT must be > 0"));
                }
                (self.count, used) = (count, 1);
            } else if stores && is("STORE", 1) {
                self.destination = Some((rest.get(1), StoredScore::Position));
                used = 1;
            } else if stores && is("STOREDIST", 1) {
                self.destination = Some((rest.get(1), StoredScore::Distance));
                used = 1;
            } else if form == Form::SearchStore && is("STOREDIST", 0) {
                let destination = self.destination.as_mut().expect("set by the form");
                destination.1 = StoredScore::Distance;
            } else if searches && !has_position && is("FROMMEMBER", 1) {
                if let Some(zset) = zset {
                    self.set_member(zset, rest.get(1))?;
                }
                (has_member, used) = (true, 1);
            } else if searches && !has_member && is("FROMLONLAT", 2) {
                self.center = Some(position(rest.get(1), rest.get(2))?);
                (has_position, used) = (true, 2);
            } else if searches && !has_box && is("BYRADIUS", 2) {
                self.set_radius(rest.get(1), rest.get(2))?;
                (has_radius, used) = (true, 2);
            } else if searches && !has_radius && is("BYBOX", 3) {
                self.set_box(rest.get(1), rest.get(2), rest.get(3))?;
                (has_box, used) = (true, 3);
            } else {
                return Err(Fail::Syntax);
            }
            rest = rest.skip(1 + used);
        }
        // Without the source a member has no position, and nothing is searched.
        if has_member && zset.is_none() {
            self.center = Some(Position { longitude: 0.0, latitude: 0.0 });
        }
        Ok(())
    }

    /// Rejects options that conflict or are missing.
    fn check(&self, name: &[u8], form: Form) -> Done {
        if self.destination.is_some() && self.fields.count() > 0 {
            return Err(Fail::text(match form {
                Form::SearchStore => {
                    "ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
                }
                _ => {
                    "ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
                }
            }));
        }
        if matches!(form, Form::Search | Form::SearchStore) {
            if self.center.is_none() {
                let before = "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for ";
                return Err(Fail::quoting(before, name, ""));
            }
            if self.shape.is_none() {
                let before = "ERR exactly one of BYRADIUS and BYBOX can be specified for ";
                return Err(Fail::quoting(before, name, ""));
            }
        }
        if self.any && self.count == 0 {
            return Err(Fail::text("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }

    fn set_member(&mut self, zset: ZSetRef<'_>, member: &[u8]) -> Done {
        let found = member_position(zset, member);
        let error = Fail::text("ERR could not decode requested zset member");
        self.center = Some(found.ok_or(error)?);
        Ok(())
    }

    fn set_radius(&mut self, radius: &[u8], unit: &[u8]) -> Done {
        let radius = length(radius, "ERR need numeric radius")?;
        if radius < 0.0 {
            return Err(Fail::text("ERR radius cannot be negative"));
        }
        self.unit = unit_meters(unit)?;
        self.shape = Some(Shape::Circle { radius: radius * self.unit });
        Ok(())
    }

    fn set_box(&mut self, width: &[u8], height: &[u8], unit: &[u8]) -> Done {
        let width = length(width, "ERR need numeric width")?;
        let height = length(height, "ERR need numeric height")?;
        if width < 0.0 || height < 0.0 {
            return Err(Fail::text("ERR height or width cannot be negative"));
        }
        self.unit = unit_meters(unit)?;
        self.shape = Some(Shape::Box { width: width * self.unit, height: height * self.unit });
        Ok(())
    }

    /// Returns the points in the shape, in the order of the reply.
    fn find<'z>(
        &self,
        zset: ZSetRef<'z>,
        spend: impl Fn(usize) -> Done,
    ) -> Result<Vec<Point<'z>>, Fail> {
        let mut points = self.points_within(zset, spend)?;
        let nearest_count = self.count > 0 && !self.any;
        match self.order.or(nearest_count.then_some(Ordering::Less)) {
            Some(Ordering::Greater) => points.sort_by(|a, b| b.meters.total_cmp(&a.meters)),
            Some(_) => points.sort_by(|a, b| a.meters.total_cmp(&b.meters)),
            None => {}
        }
        if self.count > 0 {
            points.truncate(self.count);
        }
        Ok(points)
    }

    /// Members within the shape, in the order of the cells. With `any`, the first `count` ones.
    fn points_within<'z>(
        &self,
        zset: ZSetRef<'z>,
        spend: impl Fn(usize) -> Done,
    ) -> Result<Vec<Point<'z>>, Fail> {
        let (Some(center), Some(shape)) = (self.center, self.shape) else { return Ok(Vec::new()) };
        let found_max = if self.any { self.count } else { usize::MAX };
        let mut points = Vec::new();
        for cell in covering(shape, center) {
            let (first, end) = cell.scores();
            let ranks = zset.lower_bound_score(Bound::Included(first))
                ..zset.lower_bound_score(Bound::Included(end));
            for (member, score) in zset.iter_range(ranks) {
                if points.len() >= found_max {
                    return Ok(points);
                }
                spend(POINT_COST)?;
                let position = Cell::of_score(score).center();
                if let Some(meters) = shape.distance_within(center, position) {
                    points.push(Point { member, score, position, meters });
                }
            }
        }
        Ok(points)
    }
}

/// GEORADIUS etc.: replies with the members within a distance of a position, or stores them.
fn search(cx: &mut CommandContext<'_>, args: Args<'_>, form: Form) -> Done {
    let stores = cx.command.flags.has(Flags::WRITE);
    let source = cx.key(args.get(if form == Form::SearchStore { 2 } else { 1 }));
    let zset = cx.locked.zset(cx.db, source)?;
    let query = Query::parse(args, form, stores, zset)?;
    let points = zset.map_or(Ok(Vec::new()), |zset| query.find(zset, |cost| cx.spend(cost)))?;
    let Some((destination, kind)) = query.destination else {
        return reply_points(&mut cx.reply, &query, &points);
    };
    admit_points(cx, destination, &points)?;
    let mut stored = ZSet::new();
    for point in &points {
        let score = match kind {
            StoredScore::Position => point.score,
            StoredScore::Distance => point.meters / query.unit,
        };
        stored.add(&point.member, score, &cx.locked.params().compact);
    }
    store_result(cx, cx.key(destination), Kind::ZSet, stored.len(), |out| stored.encode(out))
}

fn reply_points(reply: &mut ReplyWriter<'_>, query: &Query<'_>, points: &[Point<'_>]) -> Done {
    let fields = query.fields;
    reply.array(points.len());
    for point in points {
        if fields.count() > 0 {
            reply.array(1 + fields.count());
        }
        reply.bulk(&point.member);
        if fields.distance {
            reply_distance(reply, point.meters / query.unit);
        }
        if fields.hash {
            #[expect(clippy::cast_possible_truncation, reason = "as in Redis; it saturates")]
            reply.integer(point.score as i64);
        }
        if fields.position {
            reply_position(reply, point.position);
        }
        check_room(reply)?;
    }
    Ok(())
}

/// Rejects points that would need too much memory as a sorted set, before it is made.
fn admit_points(cx: &CommandContext<'_>, destination: &[u8], points: &[Point<'_>]) -> Done {
    /// Bytes of a member beyond its name, in the set and in the log.
    const MEMBER_BYTES: usize = 64;
    let members = points.iter().map(|point| point.member.len() + MEMBER_BYTES);
    cx.admit_record(cx.command, members.sum::<usize>().saturating_add(destination.len()))
}

const READS: &[KeySpec] = &[KeySpec::one(KeyAccess::Read)];

const fn stored_at(keyword: &'static str, first: usize) -> KeySpec {
    let options = &[("STORE", 1), ("STOREDIST", 1)];
    let places = KeyPlaces::Keyword { keyword, first, options, is_shown: true };
    KeySpec { places, access: KeyAccess::Overwrite, notes: None }
}

const COMPLEXITY: &str = "O(N+log(M)) with N members in the cells around the shape, M in the set";

pub(crate) const GEORADIUS: Command = Command {
    name: "georadius",
    syntax: "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] \
             [COUNT count [ANY]] [ASC | DESC] [STORE storekey | STOREDIST storedistkey]",
    summary: "Returns or stores the members within a distance of a position.",
    since: "3.2.0",
    complexity: COMPLEXITY,
    group: Group::Geo,
    arity: -6,
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::MOVABLEKEYS),
    events: Events::Each(Group::Geo.event("georadiusstore")),
    keys: &[KeySpec::one(KeyAccess::Read), stored_at("STORE", 6), stored_at("STOREDIST", 6)],
    run: |cx, args| search(cx, args, Form::Radius),
    ..Command::EMPTY
};

pub(crate) const GEORADIUS_RO: Command = Command {
    name: "georadius_ro",
    syntax: "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] \
             [COUNT count [ANY]] [ASC | DESC]",
    summary: "Returns the members within a distance of a position.",
    since: "3.2.10",
    flags: Flags::READONLY,
    events: Events::None,
    keys: READS,
    ..GEORADIUS
};

pub(crate) const GEORADIUSBYMEMBER: Command = Command {
    name: "georadiusbymember",
    syntax: "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] \
             [COUNT count [ANY]] [ASC | DESC] [STORE storekey | STOREDIST storedistkey]",
    summary: "Returns or stores the members within a distance of a member.",
    arity: -5,
    keys: &[KeySpec::one(KeyAccess::Read), stored_at("STORE", 5), stored_at("STOREDIST", 5)],
    run: |cx, args| search(cx, args, Form::RadiusByMember),
    ..GEORADIUS
};

pub(crate) const GEORADIUSBYMEMBER_RO: Command = Command {
    name: "georadiusbymember_ro",
    syntax: "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] \
             [COUNT count [ANY]] [ASC | DESC]",
    summary: "Returns the members within a distance of a member.",
    since: "3.2.10",
    flags: Flags::READONLY,
    events: Events::None,
    keys: READS,
    ..GEORADIUSBYMEMBER
};

pub(crate) const GEOSEARCH: Command = Command {
    name: "geosearch",
    syntax: "key <FROMMEMBER member | FROMLONLAT longitude latitude> \
             <BYRADIUS radius <M | KM | FT | MI> | BYBOX width height <M | KM | FT | MI>> \
             [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]",
    summary: "Returns the members within a circle or a box.",
    since: "6.2.0",
    complexity: COMPLEXITY,
    group: Group::Geo,
    arity: -7,
    flags: Flags::READONLY,
    keys: READS,
    run: |cx, args| search(cx, args, Form::Search),
    ..Command::EMPTY
};

pub(crate) const GEOSEARCHSTORE: Command = Command {
    name: "geosearchstore",
    syntax: "destination source <FROMMEMBER member | FROMLONLAT longitude latitude> \
             <BYRADIUS radius <M | KM | FT | MI> | BYBOX width height <M | KM | FT | MI>> \
             [ASC | DESC] [COUNT count [ANY]] [STOREDIST]",
    summary: "Stores the members within a circle or a box.",
    since: "6.2.0",
    complexity: COMPLEXITY,
    group: Group::Geo,
    arity: -8,
    flags: Flags::WRITE.and(Flags::DENYOOM),
    events: Events::Each(Group::Geo.event("geosearchstore")),
    keys: &[
        KeySpec::range(1, 1, 1, KeyAccess::Overwrite),
        KeySpec::range(2, 2, 1, KeyAccess::Read),
    ],
    run: |cx, args| search(cx, args, Form::SearchStore),
    ..Command::EMPTY
};
