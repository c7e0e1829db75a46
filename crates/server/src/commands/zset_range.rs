//! Sorted-set commands on ranges: by rank, by score, by member.

use std::ops::{Bound, Range};

use store::types::ZSet;
use store::{Change, Items, Kind, ZSetRef};
use wire::resp::{Args, parse_range_end};

use super::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use super::context::{CommandContext, SET_COST, ZSET_COST, integer, is_option, reply_has_room};
use super::fail::Fail;
use super::sets::{Copies, store_result};
use super::zsets::{Direction, RowShape};

/// Key of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// An end of a range of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LexBound<'a> {
    /// `-`: before all members.
    Lowest,
    /// `+`: after all members.
    Highest,
    Included(&'a [u8]),
    Excluded(&'a [u8]),
}

/// Both ends of a range, lower one first.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Bounds<'a> {
    /// First and last rank; negative ones count from the end.
    Ranks(i64, i64),
    Scores(Bound<f64>, Bound<f64>),
    Lex(LexBound<'a>, LexBound<'a>),
}

/// Parses `1.5`, `(1.5` for exclusive, `-inf`, `+inf`.
fn score_bound(text: &[u8]) -> Result<Bound<f64>, Fail> {
    let bound = match text.strip_prefix(b"(") {
        Some(text) => parse_range_end(text).map(Bound::Excluded),
        None => parse_range_end(text).map(Bound::Included),
    };
    bound.ok_or(Fail::text("ERR min or max is not a float"))
}

/// Parses `[member`, `(member` for exclusive, `-`, `+`.
fn lex_bound(text: &[u8]) -> Result<LexBound<'_>, Fail> {
    match text {
        b"-" => Ok(LexBound::Lowest),
        b"+" => Ok(LexBound::Highest),
        [b'[', member @ ..] => Ok(LexBound::Included(member)),
        [b'(', member @ ..] => Ok(LexBound::Excluded(member)),
        _ => Err(Fail::text("ERR min or max not valid string range item")),
    }
}

/// Returns the indexes below `len` from `first` to `last`; negative ones count from the end.
fn clamp_ranks(first: i64, last: i64, len: usize) -> Range<usize> {
    let from_start = |rank: i64| {
        let distance = usize::try_from(rank.unsigned_abs()).unwrap_or(usize::MAX);
        if rank < 0 { len.checked_sub(distance) } else { Some(distance) }
    };
    let start = from_start(first).unwrap_or(0).min(len);
    let end = from_start(last).map_or(0, |last| last.saturating_add(1).min(len));
    start..end.max(start)
}

impl<'a> Bounds<'a> {
    fn parse(by: By, min: &'a [u8], max: &'a [u8]) -> Result<Bounds<'a>, Fail> {
        Ok(match by {
            By::Rank => Bounds::Ranks(integer(min)?, integer(max)?),
            By::Score => Bounds::Scores(score_bound(min)?, score_bound(max)?),
            By::Lex => Bounds::Lex(lex_bound(min)?, lex_bound(max)?),
        })
    }

    /// The ranks, counted from the lowest score, of the members in the range.
    fn ranks(self, zset: ZSetRef<'_>) -> Range<usize> {
        let (start, end) = match self {
            Bounds::Ranks(first, last) => return clamp_ranks(first, last, zset.len()),
            Bounds::Scores(min, max) => (zset.lower_bound_score(min), zset.upper_bound_score(max)),
            Bounds::Lex(min, max) => (
                match min {
                    LexBound::Lowest => 0,
                    LexBound::Highest => zset.len(),
                    LexBound::Included(min) => zset.lower_bound_lex(Bound::Included(min)),
                    LexBound::Excluded(min) => zset.lower_bound_lex(Bound::Excluded(min)),
                },
                match max {
                    LexBound::Lowest => 0,
                    LexBound::Highest => zset.len(),
                    LexBound::Included(max) => zset.upper_bound_lex(Bound::Included(max)),
                    LexBound::Excluded(max) => zset.upper_bound_lex(Bound::Excluded(max)),
                },
            ),
        };
        start..end.max(start)
    }
}

/// LIMIT: number of members to skip, and number to return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limit {
    /// Negative: nothing is returned.
    offset: i64,
    /// Negative: all remaining members.
    count: i64,
}

impl Limit {
    const NONE: Limit = Limit { offset: 0, count: -1 };

    /// Returns the part of `ranks` that remains when members are counted in this direction.
    fn apply(self, ranks: Range<usize>, direction: Direction) -> Range<usize> {
        let Ok(offset) = usize::try_from(self.offset) else { return 0..0 };
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        let offset = offset.min(ranks.len());
        let count = count.min(ranks.len() - offset);
        match direction {
            Direction::Forward => ranks.start + offset..ranks.start + offset + count,
            Direction::Reverse => ranks.end - offset - count..ranks.end - offset,
        }
    }
}

/// Properties that the name of a ZRANGE command determines; `None` is determined by options.
#[derive(Debug, Clone, Copy)]
struct Form {
    by: Option<By>,
    direction: Option<Direction>,
    /// Whether WITHSCORES is an option.
    may_have_scores: bool,
}

impl Form {
    const ANY: Form = Form { by: None, direction: None, may_have_scores: true };
    const STORED: Form = Form { by: None, direction: None, may_have_scores: false };

    const fn fixed(by: By, direction: Direction) -> Form {
        Form { by: Some(by), direction: Some(direction), may_have_scores: true }
    }
}

/// A command of the ZRANGE family, without its key.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Query<'a> {
    bounds: Bounds<'a>,
    direction: Direction,
    limit: Limit,
    with_scores: bool,
}

impl<'a> Query<'a> {
    /// `args` starts with the bounds as given: the upper one first if the order is reversed.
    fn parse(args: Args<'a>, mut form: Form) -> Result<Query<'a>, Fail> {
        let (mut limit, mut with_scores) = (Limit::NONE, false);
        let mut options = args.skip(2);
        while let Some(option) = options.try_get(0) {
            let mut taken = 1;
            if form.may_have_scores && is_option(option, "WITHSCORES") {
                with_scores = true;
            } else if options.len() >= 3 && is_option(option, "LIMIT") {
                limit = Limit { offset: integer(options.get(1))?, count: integer(options.get(2))? };
                taken = 3;
            } else if form.direction.is_none() && is_option(option, "REV") {
                form.direction = Some(Direction::Reverse);
            } else if form.by.is_none() && is_option(option, "BYLEX") {
                form.by = Some(By::Lex);
            } else if form.by.is_none() && is_option(option, "BYSCORE") {
                form.by = Some(By::Score);
            } else {
                return Err(Fail::Syntax);
            }
            options = options.skip(taken);
        }
        let by = form.by.unwrap_or(By::Rank);
        let direction = form.direction.unwrap_or(Direction::Forward);
        if limit.count != -1 && by == By::Rank {
            return Err(Fail::text(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or \
                 BYLEX",
            ));
        }
        if with_scores && by == By::Lex {
            return Err(Fail::text(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        let is_swapped = direction == Direction::Reverse && by != By::Rank;
        let (min, max) = if is_swapped { (1, 0) } else { (0, 1) };
        let bounds = Bounds::parse(by, args.get(min), args.get(max))?;
        Ok(Query { bounds, direction, limit, with_scores })
    }

    /// The requested ranks, counted from the lowest score.
    fn ranks(&self, zset: ZSetRef<'_>) -> Range<usize> {
        let ranks = self.bounds.ranks(zset);
        match (self.bounds, self.direction) {
            (Bounds::Ranks(..), Direction::Forward) => ranks,
            (Bounds::Ranks(..), Direction::Reverse) => {
                zset.len() - ranks.end..zset.len() - ranks.start
            }
            _ => self.limit.apply(ranks, self.direction),
        }
    }
}

pub(crate) const ZRANGE: Command = Command {
    name: "zrange",
    syntax: "key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]",
    summary: "Returns the members of a sorted set in a range of ranks, scores or members.",
    since: "1.2.0",
    complexity: "O(log N + M) for M members returned",
    group: Group::SortedSet,
    arity: -4,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyAccess::Read)],
    run: |cx, args| range(cx, args, Form::ANY),
    ..Command::EMPTY
};

pub(crate) const ZREVRANGE: Command = Command {
    name: "zrevrange",
    syntax: "key start stop [WITHSCORES]",
    summary: "Returns the members in a range of ranks, highest score first.",
    run: |cx, args| range(cx, args, Form::fixed(By::Rank, Direction::Reverse)),
    ..ZRANGE
};

pub(crate) const ZRANGEBYSCORE: Command = Command {
    name: "zrangebyscore",
    syntax: "key min max [WITHSCORES] [LIMIT offset count]",
    summary: "Returns the members in a range of scores.",
    since: "1.0.5",
    run: |cx, args| range(cx, args, Form::fixed(By::Score, Direction::Forward)),
    ..ZRANGE
};

pub(crate) const ZREVRANGEBYSCORE: Command = Command {
    name: "zrevrangebyscore",
    syntax: "key max min [WITHSCORES] [LIMIT offset count]",
    summary: "Returns the members in a range of scores, highest score first.",
    since: "2.2.0",
    run: |cx, args| range(cx, args, Form::fixed(By::Score, Direction::Reverse)),
    ..ZRANGEBYSCORE
};

pub(crate) const ZRANGEBYLEX: Command = Command {
    name: "zrangebylex",
    syntax: "key min max [LIMIT offset count]",
    summary: "Returns the members between two members, if all scores are equal.",
    since: "2.8.9",
    run: |cx, args| range(cx, args, Form::fixed(By::Lex, Direction::Forward)),
    ..ZRANGE
};

pub(crate) const ZREVRANGEBYLEX: Command = Command {
    name: "zrevrangebylex",
    syntax: "key max min [LIMIT offset count]",
    summary: "Returns the members between two members, last one first.",
    run: |cx, args| range(cx, args, Form::fixed(By::Lex, Direction::Reverse)),
    ..ZRANGEBYLEX
};

fn range(cx: &mut CommandContext<'_>, args: Args<'_>, form: Form) -> Done {
    let query = Query::parse(args.skip(2), form)?;
    let key = cx.key(args.get(1));
    let Some(zset) = cx.locked.zset(cx.db, key)? else {
        cx.reply.array(0);
        return Ok(());
    };
    let shape = if query.with_scores {
        RowShape::with_scores(cx.reply.protocol)
    } else {
        RowShape::Members
    };
    let rows = zset.iter_range(query.ranks(zset));
    let parts = if query.with_scores { 2 } else { 1 };
    cx.spend(rows.len().saturating_mul(parts))?;
    shape.header(&mut cx.reply, rows.len());
    query.direction.each(rows, |(member, score)| {
        if reply_has_room(&cx.reply) {
            shape.row(&mut cx.reply, &member, score);
        }
    });
    Ok(())
}

pub(crate) const ZRANGESTORE: Command = Command {
    name: "zrangestore",
    syntax: "destination source min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]",
    summary: "Stores the members of a sorted set in a range of ranks, scores or members.",
    since: "6.2.0",
    complexity: "O(log N + M) for M members stored",
    group: Group::SortedSet,
    arity: -5,
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::COPIES),
    events: Events::Each(Group::SortedSet.event("zrangestore")),
    keys: &[
        KeySpec::range(1, 1, 1, KeyAccess::Overwrite),
        KeySpec::range(2, 2, 1, KeyAccess::Read),
    ],
    run: zrangestore,
    ..Command::EMPTY
};

fn zrangestore(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let query = Query::parse(args.skip(3), Form::STORED)?;
    let (destination, source) = (cx.key(args.get(1)), cx.key(args.get(2)));
    let mut result = ZSet::new();
    if let Some(zset) = cx.locked.zset(cx.db, source)? {
        let compact = &cx.locked.params().compact;
        let rows = zset.iter_range(query.ranks(zset));
        cx.spend(rows.len().saturating_mul(ZSET_COST))?;
        for (member, score) in rows {
            result.add(&member, score, compact);
        }
    }
    store_result(cx, destination, Kind::ZSet, result.len(), |out| result.encode(out))
}

pub(crate) const ZCOUNT: Command = Command {
    name: "zcount",
    syntax: "key min max",
    summary: "Returns how many members have a score in a range.",
    since: "2.0.0",
    complexity: "O(log N)",
    group: Group::SortedSet,
    arity: 4,
    flags: Flags::READONLY.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::Read)],
    run: |cx, args| count(cx, args, By::Score),
    ..Command::EMPTY
};

pub(crate) const ZLEXCOUNT: Command = Command {
    name: "zlexcount",
    summary: "Returns how many members are between two members, if all scores are equal.",
    since: "2.8.9",
    run: |cx, args| count(cx, args, By::Lex),
    ..ZCOUNT
};

fn count(cx: &mut CommandContext<'_>, args: Args<'_>, by: By) -> Done {
    let bounds = Bounds::parse(by, args.get(2), args.get(3))?;
    let key = cx.key(args.get(1));
    let count = cx.locked.zset(cx.db, key)?.map_or(0, |zset| bounds.ranks(zset).len());
    cx.reply.count(count);
    Ok(())
}

pub(crate) const ZREMRANGEBYRANK: Command = Command {
    name: "zremrangebyrank",
    syntax: "key start stop",
    summary: "Removes the members in a range of ranks.",
    since: "2.0.0",
    complexity: "O(log N + M*log N) for M members removed",
    group: Group::SortedSet,
    arity: 4,
    flags: Flags::WRITE.and(Flags::COPIES),
    events: Events::Each(Group::SortedSet.event("zremrangebyrank")),
    keys: &[KeySpec::one(KeyAccess::Delete)],
    run: |cx, args| remove_range(cx, args, By::Rank),
    ..Command::EMPTY
};

pub(crate) const ZREMRANGEBYSCORE: Command = Command {
    name: "zremrangebyscore",
    syntax: "key min max",
    summary: "Removes the members in a range of scores.",
    since: "1.2.0",
    events: Events::Each(Group::SortedSet.event("zremrangebyscore")),
    run: |cx, args| remove_range(cx, args, By::Score),
    ..ZREMRANGEBYRANK
};

pub(crate) const ZREMRANGEBYLEX: Command = Command {
    name: "zremrangebylex",
    syntax: "key min max",
    summary: "Removes the members between two members, if all scores are equal.",
    since: "2.8.9",
    events: Events::Each(Group::SortedSet.event("zremrangebylex")),
    run: |cx, args| remove_range(cx, args, By::Lex),
    ..ZREMRANGEBYRANK
};

fn remove_range(cx: &mut CommandContext<'_>, args: Args<'_>, by: By) -> Done {
    let bounds = Bounds::parse(by, args.get(2), args.get(3))?;
    let key = cx.key(args.get(1));
    let Some(zset) = cx.locked.zset(cx.db, key)? else {
        cx.reply.integer(0);
        return Ok(());
    };
    let ranks = bounds.ranks(zset);
    let removed = ranks.len();
    if removed == zset.len() {
        cx.change(key, Change::Delete)?;
    } else if removed > 0 {
        cx.spend(removed.saturating_mul(SET_COST))?;
        let mut copies = Copies::default();
        zset.iter_range(ranks).for_each(|(member, _)| copies.push(&member));
        cx.change(key, Change::ZSetRemove { members: Items::Slice(&copies.slices()) })?;
    }
    cx.reply.count(removed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use store::types::Compact;

    use super::*;

    fn zset(rows: &[(f64, &str)]) -> ZSet {
        let mut zset = ZSet::new();
        for (score, member) in rows {
            zset.add(member.as_bytes(), *score, &Compact::default());
        }
        zset
    }

    #[test]
    fn ranks_are_clamped() {
        for (first, last, len, expected) in [
            (0, -1, 4, 0..4),
            (1, 2, 4, 1..3),
            (-2, -1, 4, 2..4),
            (-100, 100, 4, 0..4),
            (2, 1, 4, 2..2),
            (10, 20, 4, 4..4),
            (0, -5, 4, 0..0),
            (0, -4, 4, 0..1),
            (0, -1, 0, 0..0),
            (i64::MIN, i64::MAX, 4, 0..4),
            (i64::MAX, i64::MIN, 4, 4..4),
        ] {
            assert_eq!(clamp_ranks(first, last, len), expected, "{first} {last} of {len}");
        }
    }

    #[test]
    fn a_limit_cuts_from_the_first_end() {
        for (offset, count, forward, reverse) in [
            (0, -1, 2..6, 2..6),
            (1, 2, 3..5, 3..5),
            (1, 1, 3..4, 4..5),
            (0, 0, 2..2, 6..6),
            (9, 1, 6..6, 2..2),
            (-1, 1, 0..0, 0..0),
            (1, i64::MAX, 3..6, 2..5),
            (i64::MAX, i64::MIN, 6..6, 2..2),
        ] {
            let limit = Limit { offset, count };
            assert_eq!(limit.apply(2..6, Direction::Forward), forward, "{limit:?}");
            assert_eq!(limit.apply(2..6, Direction::Reverse), reverse, "{limit:?}");
        }
    }

    #[test]
    fn bounds_of_scores_are_read() {
        for (text, expected) in [
            ("1.5", Some(Bound::Included(1.5))),
            ("(1.5", Some(Bound::Excluded(1.5))),
            ("-inf", Some(Bound::Included(f64::NEG_INFINITY))),
            ("(+inf", Some(Bound::Excluded(f64::INFINITY))),
            ("1e400", Some(Bound::Included(f64::INFINITY))),
            ("nan", None),
            ("((1", None),
            ("[1", None),
            ("1 ", None),
            ("(", Some(Bound::Excluded(0.0))),
            ("", Some(Bound::Included(0.0))),
        ] {
            assert_eq!(score_bound(text.as_bytes()).ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn bounds_of_members_are_read() {
        for (text, expected) in [
            (&b"-"[..], Some(LexBound::Lowest)),
            (b"+", Some(LexBound::Highest)),
            (b"[", Some(LexBound::Included(b""))),
            (b"[a", Some(LexBound::Included(b"a"))),
            (b"((", Some(LexBound::Excluded(b"("))),
            (b"a", None),
            (b"--", None),
            (b"", None),
        ] {
            assert_eq!(lex_bound(text).ok(), expected);
        }
    }

    #[test]
    fn bounds_become_ranks() {
        let scores = zset(&[(1.0, "a"), (2.0, "b"), (2.0, "c"), (3.0, "d")]);
        let members = zset(&[(0.0, "a"), (0.0, "b"), (0.0, "c"), (0.0, "d")]);
        for (by, min, max, expected) in [
            (By::Score, "-inf", "+inf", 0..4),
            (By::Score, "2", "2", 1..3),
            (By::Score, "(2", "3", 3..4),
            (By::Score, "1", "(2", 0..1),
            (By::Score, "3", "1", 3..3),
            (By::Rank, "-1", "-1", 3..4),
        ] {
            let bounds = Bounds::parse(by, min.as_bytes(), max.as_bytes()).unwrap();
            assert_eq!(bounds.ranks((&scores).into()), expected, "{min} {max}");
        }
        for (min, max, expected) in [
            ("-", "+", 0..4),
            ("[b", "[c", 1..3),
            ("(b", "(d", 2..3),
            ("-", "(b", 0..1),
            ("[bb", "+", 2..4),
        ] {
            let bounds = Bounds::parse(By::Lex, min.as_bytes(), max.as_bytes()).unwrap();
            assert_eq!(bounds.ranks((&members).into()), expected, "{min} {max}");
        }
        for (min, max) in [("+", "-"), ("+", "+"), ("-", "-"), ("[c", "[b")] {
            let bounds = Bounds::parse(By::Lex, min.as_bytes(), max.as_bytes()).unwrap();
            assert!(bounds.ranks((&members).into()).is_empty(), "{min} {max}");
        }
    }
}
