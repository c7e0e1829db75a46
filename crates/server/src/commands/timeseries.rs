//! Time series, the data type of YEDIS: values in the order of signed 64-bit timestamps.

// Source: the documentation of the YEDIS API of YugabyteDB; its `redis_parser.cc`

use base::time::UnixMs;
use smallvec::SmallVec;
use store::types::Point;
use store::{Change, Points, Timestamps};
use wire::resp::{Args, ReplyWriter};

use super::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use super::context::{CommandContext, POINT_COST, integer, is_option};
use super::fail::Fail;
use super::sets::at_least;
use super::strings::Moment;

/// Elements that a point in a reply counts as: its timestamp and its value.
const REPLY_COST: usize = 2;

pub(crate) const TSADD: Command = Command {
    name: "tsadd",
    syntax: "key timestamp value [timestamp value ...] [EXPIRE_IN seconds | \
             EXPIRE_AT unix-time-seconds]",
    summary: "Sets values at timestamps of a time series; creates the series if it does not exist.",
    since: "YEDIS",
    complexity: "O(N * log(M)) in the points given and those of the series",
    group: Group::TimeSeries,
    arity: -4,
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
    events: Events::Each(Group::TimeSeries.event("tsadd")),
    keys: &[KeySpec::one(KeyAccess::Insert)],
    run: tsadd,
    ..Command::EMPTY
};

fn tsadd(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let pairs = args.skip(2);
    if !pairs.len().is_multiple_of(2) {
        return Err(Fail::owned(format!(
            "ERR wrong number of arguments for '{}' command",
            TSADD.name
        )));
    }
    let (points, expiry) = parse_points(pairs, cx.unix())?;
    if expiry.is_some_and(|at| at <= cx.unix()) {
        return Err(Fail::owned(format!("ERR invalid expire time in '{}' command", TSADD.name)));
    }
    cx.spend(points.len().saturating_mul(POINT_COST))?;
    let key = cx.key(args.get(1));
    cx.locked.series(cx.db, key)?;
    cx.change(key, Change::SeriesAdd { points: Points::Slice(&points), expiry })?;
    cx.reply.ok();
    Ok(())
}

type PointList<'a> = SmallVec<[(i64, &'a [u8]); 8]>;

/// Returns the points, and the expiry that may follow them.
fn parse_points(pairs: Args<'_>, now: UnixMs) -> Result<(PointList<'_>, Option<UnixMs>), Fail> {
    let mut points = PointList::new();
    let mut expiry = None;
    for at in (0..pairs.len()).step_by(2) {
        let (name, value) = (pairs.get(at), pairs.get(at + 1));
        let moment = if is_option(name, "EXPIRE_IN") {
            Moment::InSeconds
        } else if is_option(name, "EXPIRE_AT") {
            Moment::AtSeconds
        } else {
            points.push((integer(name)?, value));
            continue;
        };
        if at + 2 != pairs.len() || points.is_empty() {
            return Err(Fail::Syntax);
        }
        expiry = Some(moment.parse(value, now, TSADD.name)?);
    }
    Ok((points, expiry))
}

pub(crate) const TSREM: Command = Command {
    name: "tsrem",
    syntax: "key timestamp [timestamp ...]",
    summary: "Removes values at timestamps of a time series; a series without points is deleted.",
    since: "YEDIS",
    complexity: "O(N * log(M)) in the timestamps given and the points of the series",
    group: Group::TimeSeries,
    arity: -3,
    flags: Flags::WRITE.and(Flags::FAST),
    events: Events::Each(Group::TimeSeries.event("tsrem")),
    keys: &[KeySpec::one(KeyAccess::Delete)],
    run: tsrem,
    ..Command::EMPTY
};

fn tsrem(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let mut timestamps: SmallVec<[i64; 8]> = SmallVec::new();
    for text in args.skip(2) {
        timestamps.push(integer(text)?);
    }
    cx.spend(timestamps.len().saturating_mul(POINT_COST))?;
    let key = cx.key(args.get(1));
    let series = cx.locked.series(cx.db, key)?;
    timestamps.retain(|at| series.is_some_and(|series| series.contains(*at)));
    if !timestamps.is_empty() {
        cx.change(key, Change::SeriesRemove { timestamps: Timestamps::Slice(&timestamps) })?;
    }
    cx.reply.ok();
    Ok(())
}

pub(crate) const TSGET: Command = Command {
    name: "tsget",
    syntax: "key timestamp",
    summary: "Returns the value at a timestamp of a time series.",
    since: "YEDIS",
    complexity: "O(log N) in the points of the series",
    group: Group::TimeSeries,
    arity: 3,
    flags: Flags::READONLY.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::Read)],
    run: tsget,
    ..Command::EMPTY
};

fn tsget(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let timestamp = integer(args.get(2))?;
    let series = cx.locked.series(cx.db, cx.key(args.get(1)))?;
    match series.and_then(|series| series.get(timestamp, cx.unix())) {
        Some(value) => cx.reply.bulk(value),
        None => cx.reply.null(),
    }
    Ok(())
}

pub(crate) const TSCARD: Command = Command {
    name: "tscard",
    syntax: "key",
    summary: "Returns the number of points of a time series.",
    since: "YEDIS",
    complexity: "O(1); O(N) in the points if some have expired a moment ago",
    group: Group::TimeSeries,
    arity: 2,
    flags: Flags::READONLY.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::Probe)],
    run: tscard,
    ..Command::EMPTY
};

fn tscard(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let series = cx.locked.series(cx.db, cx.key(args.get(1)))?;
    cx.spend(series.map_or(0, |series| series.counted_len(cx.unix())))?;
    let count = series.map_or(0, |series| series.live_len(cx.unix()));
    cx.reply.count(count);
    Ok(())
}

pub(crate) const TSLASTN: Command = Command {
    name: "tslastn",
    syntax: "key count",
    summary: "Returns the last points of a time series, the first of them first.",
    since: "YEDIS",
    complexity: "O(log N + M) in the points of the series and those returned",
    group: Group::TimeSeries,
    arity: 3,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyAccess::Read)],
    run: tslastn,
    ..Command::EMPTY
};

fn tslastn(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let count = limit(args.get(2))?;
    let Some(series) = cx.locked.series(cx.db, cx.key(args.get(1)))? else {
        cx.reply.array(0);
        return Ok(());
    };
    let mut last: Vec<Point<'_>> = Vec::new();
    for point in series.range_rev(i64::MIN, i64::MAX) {
        if last.len() == count {
            break;
        }
        cx.spend(REPLY_COST)?;
        if point.is_live(cx.unix()) {
            last.push(point);
        }
    }
    cx.reply.array(2 * last.len());
    for point in last.into_iter().rev() {
        reply_point(&mut cx.reply, point);
        cx.check_reply()?;
    }
    Ok(())
}

pub(crate) const TSRANGEBYTIME: Command = Command {
    name: "tsrangebytime",
    syntax: "key min max",
    summary: "Returns the points of a time series between two timestamps.",
    arity: 4,
    run: |cx, args| range(cx, args, Order::Forward),
    ..TSLASTN
};

pub(crate) const TSREVRANGEBYTIME: Command = Command {
    name: "tsrevrangebytime",
    syntax: "key min max [LIMIT count]",
    summary: "Returns the points of a time series between two timestamps, the last first.",
    arity: -4,
    run: |cx, args| range(cx, args, Order::Reverse),
    ..TSRANGEBYTIME
};

/// Parses the number of points of a reply.
fn limit(text: &[u8]) -> Result<usize, Fail> {
    at_least(text, 1, "ERR value is out of range, must be positive")
}

/// Which end of a range a bound is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    First,
    Last,
}

/// Parses `5`, `(5`, `-inf` or `+inf`. `None`: no timestamp is within this bound.
fn bound(text: &[u8], end: End) -> Result<Option<i64>, Fail> {
    let (text, is_exclusive) = match text {
        [b'(', rest @ ..] => (rest, true),
        _ => (text, false),
    };
    let infinite = [("-INF", i64::MIN), ("+INF", i64::MAX)];
    if let Some((_, at)) = infinite.iter().find(|(name, _)| is_option(text, name)) {
        return Ok(Some(*at));
    }
    let at = integer(text)
        .map_err(|_| Fail::text("ERR min or max is not an integer or out of range"))?;
    Ok(match end {
        _ if !is_exclusive => Some(at),
        End::First => at.checked_add(1),
        End::Last => at.checked_sub(1),
    })
}

/// Parses the bounds of a range. `None`: it is empty.
fn bounds(args: Args<'_>) -> Result<Option<(i64, i64)>, Fail> {
    let (first, last) = (bound(args.get(2), End::First)?, bound(args.get(3), End::Last)?);
    Ok(first.zip(last).filter(|(first, last)| first <= last))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Forward,
    Reverse,
}

fn range(cx: &mut CommandContext<'_>, args: Args<'_>, order: Order) -> Done {
    let bounds = bounds(args)?;
    let count_max = match args.len() {
        4 => usize::MAX,
        6 if is_option(args.get(4), "LIMIT") => limit(args.get(5))?,
        _ => return Err(Fail::Syntax),
    };
    let series = cx.locked.series(cx.db, cx.key(args.get(1)))?;
    let Some((series, (first, last))) = series.zip(bounds) else {
        cx.reply.array(0);
        return Ok(());
    };
    let (mut forward, mut reverse);
    let points: &mut dyn Iterator<Item = Point<'_>> = match order {
        Order::Forward => {
            forward = series.range(first, last);
            &mut forward
        }
        Order::Reverse => {
            reverse = series.range_rev(first, last);
            &mut reverse
        }
    };
    let counted = cx.reply.begin_counted();
    let mut written = 0;
    for point in points {
        cx.spend(REPLY_COST)?;
        if !point.is_live(cx.unix()) {
            continue;
        }
        reply_point(&mut cx.reply, point);
        cx.check_reply()?;
        written += 1;
        if written == count_max {
            break;
        }
    }
    cx.reply.end_counted(counted, 2 * written, |_| ());
    Ok(())
}

fn reply_point(reply: &mut ReplyWriter<'_>, point: Point<'_>) {
    reply.bulk(itoa::Buffer::new().format(point.timestamp).as_bytes());
    reply.bulk(point.value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_integers_or_infinite() {
        let parsed = |text: &str, end| bound(text.as_bytes(), end).ok();
        for end in [End::First, End::Last] {
            assert_eq!(parsed("-5", end), Some(Some(-5)));
            assert_eq!(parsed("-inf", end), Some(Some(i64::MIN)));
            assert_eq!(parsed("(+inf", end), Some(Some(i64::MAX)));
            for text in ["", "(", "((5", "5.0", "9223372036854775808", "inf"] {
                assert_eq!(parsed(text, end), None, "{text}");
            }
        }
        assert_eq!(parsed("(5", End::First), Some(Some(6)));
        assert_eq!(parsed("(5", End::Last), Some(Some(4)));
        assert_eq!(parsed("(9223372036854775807", End::First), Some(None));
        assert_eq!(parsed("(-9223372036854775808", End::Last), Some(None));
    }
}
