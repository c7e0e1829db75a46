//! ZADD and ZINCRBY.

use std::cmp::Ordering;
use std::collections::HashMap;

use foldhash::fast::FixedState;
use smallvec::SmallVec;
use store::{Change, Key, Scored};
use wire::resp::Args;

use crate::commands::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use crate::commands::context::{CommandContext, float, is_option};
use crate::commands::fail::Fail;
use crate::config::KeyEvent;

const INCREMENTED: KeyEvent = Group::SortedSet.event("zincr");

// Options of ZADD.
pub(crate) const NX: u8 = 1;
pub(crate) const XX: u8 = 1 << 1;
const GT: u8 = 1 << 2;
const LT: u8 = 1 << 3;
pub(crate) const CH: u8 = 1 << 4;
const INCR: u8 = 1 << 5;

const ADD_OPTIONS: [(&str, u8); 6] =
    [("NX", NX), ("XX", XX), ("GT", GT), ("LT", LT), ("CH", CH), ("INCR", INCR)];

/// Effect of ZADD on one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Add,
    Update,
    /// The member already has this score.
    Same,
    /// The options exclude the change.
    Skip,
}

fn step(options: u8, old: Option<f64>, score: f64) -> Step {
    let Some(old) = old else {
        return if options & XX == 0 { Step::Add } else { Step::Skip };
    };
    let has = |bits| options & bits != 0;
    match score.partial_cmp(&old) {
        _ if has(NX) => Step::Skip,
        Some(Ordering::Less) if has(GT) => Step::Skip,
        Some(Ordering::Greater) if has(LT) => Step::Skip,
        Some(Ordering::Less | Ordering::Greater) => Step::Update,
        Some(Ordering::Equal) | None if has(GT | LT) => Step::Skip,
        Some(Ordering::Equal) | None => Step::Same,
    }
}

/// Rejects options that conflict. `rest` is the number of arguments after the options.
pub(crate) fn check_add_options(options: u8, rest: usize) -> Done {
    let has = |bits| options & bits == bits;
    if rest == 0 || !rest.is_multiple_of(2) {
        return Err(Fail::Syntax);
    }
    if has(NX | XX) {
        return Err(Fail::text("ERR XX and NX options at the same time are not compatible"));
    }
    if has(GT | NX) || has(LT | NX) || has(GT | LT) {
        return Err(Fail::text(
            "ERR GT, LT, and/or NX options at the same time are not compatible",
        ));
    }
    if has(INCR) && rest > 2 {
        return Err(Fail::text("ERR INCR option supports a single increment-element pair"));
    }
    Ok(())
}

/// The members that one ZADD will set, each once, with their final scores.
#[derive(Debug)]
struct Pending<'a> {
    rows: SmallVec<[(f64, &'a [u8]); 4]>,
    /// Positions of all rows, if there are more than [`Pending::SEARCHED_MAX`].
    places: HashMap<&'a [u8], usize, FixedState>,
}

impl<'a> Pending<'a> {
    /// Maximum rows for linear search.
    const SEARCHED_MAX: usize = 16;

    fn new(seed: u64) -> Pending<'a> {
        let places = HashMap::with_hasher(FixedState::with_seed(seed));
        Pending { rows: SmallVec::new(), places }
    }

    fn place(&self, member: &[u8]) -> Option<usize> {
        if self.places.is_empty() {
            return self.rows.iter().position(|(_, pending)| *pending == member);
        }
        self.places.get(member).copied()
    }

    fn score(&self, member: &[u8]) -> Option<f64> {
        self.place(member).map(|place| self.rows[place].0)
    }

    fn set(&mut self, member: &'a [u8], score: f64) {
        if let Some(place) = self.place(member) {
            self.rows[place].0 = score;
            return;
        }
        self.rows.push((score, member));
        if self.rows.len() > Self::SEARCHED_MAX {
            let known = self.places.len();
            let unknown = self.rows.iter().enumerate().skip(known);
            self.places.extend(unknown.map(|(place, (_, member))| (*member, place)));
        }
    }
}

/// Parses a score of ZADD. -0 becomes 0, as in Redis's compact form.
fn score_argument(text: &[u8]) -> Result<f64, Fail> {
    Ok(float(text)? + 0.0)
}

pub(crate) const ZADD: Command = Command {
    name: "zadd",
    syntax: "key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]",
    summary: "Adds members to a sorted set or updates their scores.",
    since: "1.2.0",
    complexity: "O(log N) for each member",
    group: Group::SortedSet,
    arity: -4,
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
    events: Events::Each(Group::SortedSet.event("zadd")),
    keys: &[KeySpec::one(KeyAccess::Update)],
    run: |cx, args| add(cx, args, 0),
    ..Command::EMPTY
};

pub(crate) const ZINCRBY: Command = Command {
    name: "zincrby",
    syntax: "key increment member",
    summary: "Increments the score of a member; a new member starts at 0.",
    since: "1.2.0",
    complexity: "O(log N)",
    group: Group::SortedSet,
    arity: 4,
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
    events: Events::Each(INCREMENTED),
    keys: &[KeySpec::one(KeyAccess::ReadUpdate)],
    run: |cx, args| add(cx, args, INCR),
    ..Command::EMPTY
};

fn add(cx: &mut CommandContext<'_>, args: Args<'_>, mut options: u8) -> Done {
    let mut first = 2;
    while let Some(text) = args.try_get(first)
        && let Some((_, bit)) = ADD_OPTIONS.iter().find(|(name, _)| is_option(text, name))
    {
        options |= bit;
        first += 1;
    }
    check_add_options(options, args.len() - first)?;
    let mut rows: SmallVec<[(f64, &[u8]); 4]> = SmallVec::new();
    for at in (first..args.len()).step_by(2) {
        rows.push((score_argument(args.get(at))?, args.get(at + 1)));
    }
    let key = cx.key(args.get(1));
    match rows.as_slice() {
        [(by, member)] if options & INCR != 0 => increment(cx, key, member, *by, options),
        _ => add_all(cx, key, &rows, options),
    }
}

/// Adds members with their scores, as ZADD does with these options, and replies.
pub(crate) fn add_all(
    cx: &mut CommandContext<'_>,
    key: Key<'_>,
    rows: &[(f64, &[u8])],
    options: u8,
) -> Done {
    let zset = cx.locked.zset(cx.db, key)?;
    let mut pending = Pending::new(cx.locked.params().compact.seed);
    let (mut added, mut updated) = (0, 0);
    for (score, member) in rows {
        let stored = || zset.and_then(|zset| zset.score(member));
        match step(options, pending.score(member).or_else(stored), *score) {
            Step::Skip | Step::Same => continue,
            Step::Add => added += 1,
            Step::Update => updated += 1,
        }
        pending.set(member, *score);
    }
    if !pending.rows.is_empty() {
        cx.change(key, Change::ZSetAdd { members: Scored::Slice(&pending.rows) })?;
    }
    cx.reply.count(if options & CH == 0 { added } else { added + updated });
    Ok(())
}

fn increment(
    cx: &mut CommandContext<'_>,
    key: Key<'_>,
    member: &[u8],
    by: f64,
    options: u8,
) -> Done {
    let old = cx.locked.zset(cx.db, key)?.and_then(|zset| zset.score(member));
    let score = match old {
        Some(old) if options & NX == 0 => old + by,
        _ => by,
    };
    if score.is_nan() {
        return Err(Fail::text("ERR resulting score is not a number (NaN)"));
    }
    match step(options, old, score) {
        Step::Skip => {
            cx.reply.null();
            return Ok(());
        }
        Step::Same => {}
        Step::Add | Step::Update => {
            let members = [(score, member)];
            let change = Change::ZSetAdd { members: Scored::Slice(&members) };
            cx.change_as(INCREMENTED, key, change)?;
        }
    }
    cx.reply.double(score);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_decide_about_each_member() {
        for (options, old, score, expected) in [
            (0, None, 1.0, Step::Add),
            (0, Some(1.0), 2.0, Step::Update),
            (0, Some(1.0), 1.0, Step::Same),
            (NX, None, 1.0, Step::Add),
            (NX, Some(1.0), 1.0, Step::Skip),
            (XX, None, 1.0, Step::Skip),
            (XX, Some(1.0), 2.0, Step::Update),
            (GT, None, -1.0, Step::Add),
            (GT, Some(1.0), 1.0, Step::Skip),
            (GT, Some(1.0), 2.0, Step::Update),
            (LT, Some(1.0), 2.0, Step::Skip),
            (LT | XX, Some(1.0), 0.0, Step::Update),
            (GT | XX, None, 5.0, Step::Skip),
        ] {
            assert_eq!(step(options, old, score), expected, "{options} {old:?} {score}");
        }
    }

    #[test]
    fn a_member_given_twice_is_pending_once() {
        let names: Vec<String> = (0..40).map(|number| format!("m{number}")).collect();
        let mut pending = Pending::new(7);
        for (score, name) in (0_i32..).zip(&names) {
            pending.set(name.as_bytes(), f64::from(score));
            pending.set(names[0].as_bytes(), -f64::from(score));
        }
        assert_eq!(pending.rows.len(), 40);
        assert_eq!(pending.score(b"m0"), Some(-39.0));
        assert_eq!(pending.score(b"m16"), Some(16.0));
        assert_eq!(pending.score(b"m39"), Some(39.0));
        assert_eq!(pending.score(b"m40"), None);
    }

    #[test]
    fn the_score_minus_zero_is_zero() {
        assert!(score_argument(b"-0").is_ok_and(f64::is_sign_positive));
        assert_eq!(score_argument(b"nan"), Err(Fail::NotFloat));
    }
}
