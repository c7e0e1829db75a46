//! CLUSTER SLOT-STATS and CLUSTER FLUSHSLOT: the keys of slots. The keyspace is not in the order of
//! slots, so both visit all keys of the database.

use wire::resp::{Args, parse_i64_strict};

use super::slots::{SLOTS, slot_of};
use super::view::check_enabled;
use super::{ADMIN, MYID, SHOWS, number, parse_slot, visit_keys};
use crate::commands::command::{Command, Done, Events, Flags};
use crate::commands::context::{CommandContext, NOTED_ARGUMENT_COST, is_option};
use crate::commands::fail::Fail;

pub(super) const SLOT_STATS: Command = Command {
    name: "slot-stats",
    syntax: "<SLOTSRANGE start-slot end-slot | ORDERBY metric [LIMIT limit] [ASC | DESC]>",
    summary: "Returns the number of keys of some slots; other statistics are not kept.",
    since: "8.0.0",
    complexity: "O(N log N) in the keys of the database and the slots",
    arity: -4,
    flags: SHOWS.and(Flags::LOADING).and(Flags::ALL_KEYS),
    tips: &["nondeterministic_output", "request_policy:all_shards"],
    run: slot_stats,
    ..MYID
};

/// Slots that SLOT-STATS shows.
#[derive(Debug, PartialEq, Eq)]
enum Shown {
    Range { first: usize, last: usize },
    Order { limit: usize, is_ascending: bool },
}

impl Shown {
    // Source: Valkey 9.1 documentation, "CLUSTER SLOT-STATS"
    fn parse(options: Args<'_>) -> Result<Shown, Fail> {
        if is_option(options.get(0), "SLOTSRANGE") && options.len() == 3 {
            let (first, last) = (parse_slot(options.get(1))?, parse_slot(options.get(2))?);
            if first > last {
                return Err(Fail::owned(format!(
                    "ERR Start slot number {first} is greater than end slot number {last}"
                )));
            }
            return Ok(Shown::Range { first, last });
        }
        if !is_option(options.get(0), "ORDERBY") {
            return Err(Fail::Syntax);
        }
        if !is_option(options.get(1), "KEY-COUNT") {
            return Err(Fail::text("ERR Unrecognized sort metric for ORDERBY."));
        }
        Self::parse_order(options.skip(2))
    }

    fn parse_order(options: Args<'_>) -> Result<Shown, Fail> {
        let (mut limit, mut is_ascending) = (SLOTS, false);
        let mut words = options.iter();
        while let Some(word) = words.next() {
            if is_option(word, "ASC") || is_option(word, "DESC") {
                is_ascending = is_option(word, "ASC");
                continue;
            }
            let value = words.next().filter(|_| is_option(word, "LIMIT")).ok_or(Fail::Syntax)?;
            let number = parse_i64_strict(value).and_then(|number| usize::try_from(number).ok());
            limit = number.filter(|number| (1..=SLOTS).contains(number)).ok_or(Fail::text(
                "ERR Limit has to lie in between 1 and 16384 (maximum number of slots).",
            ))?;
        }
        Ok(Shown::Order { limit, is_ascending })
    }

    /// The slots to show, in order. `counts`: the keys of each slot.
    fn slots(&self, counts: &[u32]) -> Vec<usize> {
        match *self {
            Shown::Range { first, last } => (first..=last).collect(),
            Shown::Order { limit, is_ascending } => {
                let mut slots: Vec<usize> = (0..SLOTS).collect();
                // Equal ones stay in the order of their numbers.
                slots.sort_by_key(|slot| {
                    let count = i64::from(counts[*slot]);
                    if is_ascending { count } else { -count }
                });
                slots.truncate(limit);
                slots
            }
        }
    }
}

fn slot_stats(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    check_enabled(cx)?;
    let shown = Shown::parse(args.skip(2))?;
    let mut counts = vec![0u32; SLOTS];
    visit_keys(cx, |key| counts[slot_of(key)] += 1)?;
    let slots = shown.slots(&counts);
    cx.reply.array(slots.len());
    for slot in slots {
        cx.reply.array(2);
        cx.reply.integer(number(slot));
        cx.reply.map(1);
        cx.reply.bulk(b"key-count");
        cx.reply.integer(i64::from(counts[slot]));
    }
    Ok(())
}

pub(super) const FLUSHSLOT: Command = Command {
    name: "flushslot",
    syntax: "slot [ASYNC | SYNC]",
    summary: "Removes all keys of the database in a slot.",
    since: "9.0.0",
    complexity: "O(N) in the number of keys of the database",
    arity: -3,
    flags: Flags::WRITE.and(ADMIN).and(Flags::NO_ASYNC_LOADING).and(Flags::ALL_KEYS),
    events: Events::Chosen,
    more_categories: &["@keyspace"],
    tips: &[],
    run: flushslot,
    ..MYID
};

fn flushslot(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    /// Log bytes of a deletion beyond the key.
    const DELETION_BYTES: usize = 16;
    check_enabled(cx)?;
    let slot = parse_slot(args.get(2))?;
    let is_mode = |mode| is_option(mode, "ASYNC") || is_option(mode, "SYNC");
    if args.len() > 4 || args.try_get(3).is_some_and(|mode| !is_mode(mode)) {
        return Err(Fail::Syntax);
    }
    let mut keys = Vec::new();
    visit_keys(cx, |key| {
        if slot_of(key) == slot {
            keys.push(key.to_vec());
        }
    })?;
    cx.spend(keys.len().saturating_mul(NOTED_ARGUMENT_COST))?;
    let bytes = keys.iter().map(|key| key.len() + DELETION_BYTES).sum();
    cx.admit_record(cx.command, bytes)?;
    for key in &keys {
        cx.delete(cx.key(key))?;
    }
    cx.reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::resp::OwnedArgs;

    fn parse(line: &str) -> Result<Shown, Fail> {
        let args: OwnedArgs = line.split(' ').collect();
        Shown::parse(args.as_args())
    }

    #[test]
    fn ranges_and_orders() {
        assert_eq!(parse("slotsrange 0 16383"), Ok(Shown::Range { first: 0, last: 16_383 }));
        let order = |limit, is_ascending| Ok(Shown::Order { limit, is_ascending });
        assert_eq!(parse("ORDERBY key-count"), order(SLOTS, false));
        assert_eq!(parse("ORDERBY KEY-COUNT LIMIT 2 ASC"), order(2, true));
        assert_eq!(parse("ORDERBY KEY-COUNT desc limit 16384"), order(SLOTS, false));
        for line in [
            "SLOTSRANGE 5 1",
            "SLOTSRANGE 0 16384",
            "SLOTSRANGE x 1",
            "SLOTSRANGE 0 1 2",
            "ORDERBY cpu-usec",
            "ORDERBY KEY-COUNT LIMIT 0",
            "ORDERBY KEY-COUNT LIMIT",
            "ORDERBY KEY-COUNT UP",
            "NONSENSE KEY-COUNT",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
