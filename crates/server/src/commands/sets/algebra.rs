//! Unions, intersections and differences of sets.

use smallvec::SmallVec;
use store::types::{Compact, Scalar, Set};
use store::{Kind, Locked, SetRef};
use wire::resp::Args;

use super::{at_least, store_result};
use crate::commands::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use crate::commands::context::{CommandContext, SET_COST, is_option};
use crate::commands::fail::Fail;

/// Returns the sets of the given keys, `None` for a missing key.
fn inputs<'a>(
    locked: &'a Locked<'_>,
    db: u8,
    keys: Args<'_>,
) -> Result<SmallVec<[Option<SetRef<'a>>; 8]>, Fail> {
    keys.iter().map(|key| Ok(locked.set(db, locked.key(key))?)).collect()
}

/// The existing sets, smallest first.
type Present<'a> = SmallVec<[SetRef<'a>; 8]>;

/// Returns all sets, smallest first; `None` if one is missing, so that the intersection is empty.
fn all_present<'a>(sets: &[Option<SetRef<'a>>]) -> Option<Present<'a>> {
    let mut sets = sets.iter().copied().collect::<Option<Present<'_>>>()?;
    sets.sort_by_key(|set| set.len());
    Some(sets)
}

/// Returns the members of the first set that all others also have.
fn common<'a>(sets: &[SetRef<'a>]) -> impl Iterator<Item = Scalar<'a>> {
    let (first, others) = sets.split_first().expect("commands have at least one key");
    first.iter().filter(|member| {
        member.with_bytes(|bytes| others.iter().all(|other| other.contains(bytes)))
    })
}

fn union(sets: &[Option<SetRef<'_>>], compact: &Compact) -> Set {
    let mut sets: Present<'_> = sets.iter().copied().flatten().collect();
    sets.sort_by_key(|set| set.len());
    let Some(largest) = sets.pop() else { return Set::new() };
    let mut union = largest.to_set(compact);
    for member in sets.into_iter().flat_map(SetRef::iter) {
        member.with_bytes(|bytes| union.add(bytes, compact));
    }
    union
}

/// Returns the members of `first` that no other set has.
///
/// O(min(members of `first` times number of the others, members of all sets)).
fn difference(first: SetRef<'_>, others: &[SetRef<'_>], compact: &Compact) -> Set {
    let others_len: usize = others.iter().map(|other| other.len()).sum();
    if others_len < first.len() * others.len() / 2 {
        let mut rest = first.to_set(compact);
        for member in others.iter().copied().flat_map(SetRef::iter) {
            member.with_bytes(|bytes| rest.remove(bytes));
        }
        return rest;
    }
    let mut rest = Set::new();
    for member in first.iter() {
        member.with_bytes(|bytes| {
            if !others.iter().any(|other| other.contains(bytes)) {
                rest.add(bytes, compact);
            }
        });
    }
    rest
}

/// Charges the cost of comparing the members of the smallest set with all others.
fn spend_on_common(cx: &CommandContext<'_>, sets: &[SetRef<'_>], limit: usize) -> Done {
    let compared = sets.first().map_or(0, |smallest| smallest.len());
    // Members that are not common do not count toward the limit, but are compared all the same.
    let compared = if sets.len() == 1 { compared.min(limit) } else { compared };
    cx.spend(compared.saturating_mul(sets.len()).saturating_mul(SET_COST))
}

fn intersection_of(cx: &CommandContext<'_>, keys: Args<'_>) -> Result<Set, Fail> {
    let sets = inputs(&cx.locked, cx.db, keys)?;
    let mut result = Set::new();
    if let Some(sets) = all_present(&sets) {
        spend_on_common(cx, &sets, usize::MAX)?;
        let compact = &cx.locked.params().compact;
        common(&sets).for_each(|member| {
            member.with_bytes(|bytes| result.add(bytes, compact));
        });
    }
    Ok(result)
}

fn union_of(cx: &CommandContext<'_>, keys: Args<'_>) -> Result<Set, Fail> {
    let sets = inputs(&cx.locked, cx.db, keys)?;
    let members: usize = sets.iter().flatten().map(|set| set.len()).sum();
    cx.spend(members.saturating_mul(SET_COST))?;
    Ok(union(&sets, &cx.locked.params().compact))
}

fn difference_of(cx: &CommandContext<'_>, keys: Args<'_>) -> Result<Set, Fail> {
    let sets = inputs(&cx.locked, cx.db, keys)?;
    let (first, others) = sets.split_first().expect("commands have at least one key");
    let Some(first) = first else { return Ok(Set::new()) };
    let others: Present<'_> = others.iter().copied().flatten().collect();
    let others_len: usize = others.iter().map(|other| other.len()).sum();
    let compared = first.len().saturating_mul(others.len()).min(first.len() + others_len);
    cx.spend(compared.max(first.len()).saturating_mul(SET_COST))?;
    Ok(difference(*first, &others, &cx.locked.params().compact))
}

fn reply_set(cx: &mut CommandContext<'_>, set: &Set) -> Done {
    cx.reply.set(set.len());
    for member in set.iter() {
        member.with_bytes(|bytes| cx.reply.bulk(bytes));
        cx.check_reply()?;
    }
    Ok(())
}

fn store_set(cx: &mut CommandContext<'_>, destination: &[u8], set: &Set) -> Done {
    store_result(cx, cx.key(destination), Kind::Set, set.len(), |out| set.encode(out))
}

pub(crate) const SINTER: Command = Command {
    name: "sinter",
    syntax: "key [key ...]",
    summary: "Returns the members that several sets have in common.",
    since: "1.0.0",
    complexity: "O(N*M) with N members of the smallest of M sets",
    group: Group::Set,
    arity: -2,
    flags: Flags::READONLY,
    keys: &[KeySpec::range(1, -1, 1, KeyAccess::Read)],
    tips: &["nondeterministic_output_order"],
    run: sinter,
    ..Command::EMPTY
};

fn sinter(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let sets = inputs(&cx.locked, cx.db, args.skip(1))?;
    let mut members: Vec<Scalar<'_>> = Vec::new();
    if let Some(sets) = all_present(&sets) {
        spend_on_common(cx, &sets, usize::MAX)?;
        members.extend(common(&sets));
    }
    cx.reply.set(members.len());
    for member in members {
        member.with_bytes(|bytes| cx.reply.bulk(bytes));
        cx.check_reply()?;
    }
    Ok(())
}

pub(crate) const SINTERSTORE: Command = Command {
    name: "sinterstore",
    syntax: "destination key [key ...]",
    summary: "Stores the members that several sets have in common.",
    since: "1.0.0",
    complexity: "O(N*M) with N members of the smallest of M sets",
    group: Group::Set,
    arity: -3,
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::COPIES),
    events: Events::Each(Group::Set.event("sinterstore")),
    keys: &[KeySpec::range(1, 1, 1, KeyAccess::Update), KeySpec::range(2, -1, 1, KeyAccess::Read)],
    run: sinterstore,
    ..Command::EMPTY
};

fn sinterstore(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let result = intersection_of(cx, args.skip(2))?;
    store_set(cx, args.get(1), &result)
}

pub(crate) const SINTERCARD: Command = Command {
    name: "sintercard",
    syntax: "numkeys key [key ...] [LIMIT limit]",
    summary: "Returns how many members several sets have in common, up to a limit.",
    since: "7.0.0",
    complexity: "O(N*M) with N members of the smallest of M sets",
    group: Group::Set,
    arity: -3,
    flags: Flags::READONLY.and(Flags::MOVABLEKEYS),
    keys: &[KeySpec::counted(1, KeyAccess::Read)],
    run: sintercard,
    ..Command::EMPTY
};

fn sintercard(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let count = at_least(args.get(1), 1, "ERR numkeys should be greater than 0")?;
    if count > args.len() - 2 {
        return Err(Fail::text("ERR Number of keys can't be greater than number of args"));
    }
    let mut limit = 0;
    let mut options = args.skip(2 + count);
    while !options.is_empty() {
        if options.len() < 2 || !is_option(options.get(0), "LIMIT") {
            return Err(Fail::Syntax);
        }
        limit = at_least(options.get(1), 0, "ERR LIMIT can't be negative")?;
        options = options.skip(2);
    }
    let sets = inputs(&cx.locked, cx.db, args.range(2..2 + count))?;
    let limit = if limit == 0 { usize::MAX } else { limit };
    let mut common_len = 0;
    if let Some(sets) = all_present(&sets) {
        spend_on_common(cx, &sets, limit)?;
        common_len = common(&sets).take(limit).count();
    }
    cx.reply.count(common_len);
    Ok(())
}

pub(crate) const SUNION: Command = Command {
    name: "sunion",
    summary: "Returns the members of the union of several sets.",
    complexity: "O(N) in the members of all sets",
    run: sunion,
    ..SINTER
};

fn sunion(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    cx.check_more(cx.values_bytes(args.skip(1)).sum())?;
    let result = union_of(cx, args.skip(1))?;
    reply_set(cx, &result)
}

pub(crate) const SUNIONSTORE: Command = Command {
    name: "sunionstore",
    summary: "Stores the members of the union of several sets.",
    complexity: "O(N) in the members of all sets",
    events: Events::Each(Group::Set.event("sunionstore")),
    keys: &[
        KeySpec::range(1, 1, 1, KeyAccess::Overwrite),
        KeySpec::range(2, -1, 1, KeyAccess::Read),
    ],
    run: sunionstore,
    ..SINTERSTORE
};

fn sunionstore(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let result = union_of(cx, args.skip(2))?;
    store_set(cx, args.get(1), &result)
}

pub(crate) const SDIFF: Command = Command {
    name: "sdiff",
    summary: "Returns the members of the first set that no other set has.",
    run: sdiff,
    ..SUNION
};

fn sdiff(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    cx.check_more(cx.values_bytes(args.range(1..2)).sum())?;
    let result = difference_of(cx, args.skip(1))?;
    reply_set(cx, &result)
}

pub(crate) const SDIFFSTORE: Command = Command {
    name: "sdiffstore",
    summary: "Stores the members of the first set that no other set has.",
    events: Events::Each(Group::Set.event("sdiffstore")),
    run: sdiffstore,
    ..SUNIONSTORE
};

fn sdiffstore(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let result = difference_of(cx, args.skip(2))?;
    store_set(cx, args.get(1), &result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(members: &[&str]) -> Set {
        let mut set = Set::new();
        for member in members {
            set.add(member.as_bytes(), &Compact::default());
        }
        set
    }

    #[test]
    fn algebra_agrees_across_forms() {
        let compact = Compact::default();
        let (numbers, words) = (set(&["1", "2", "3"]), set(&["2", "x"]));
        let common_of = |sets: &[SetRef<'_>]| {
            let mut result = Set::new();
            common(sets).for_each(|member| {
                member.with_bytes(|bytes| result.add(bytes, &compact));
            });
            result
        };
        assert_eq!(common_of(&[(&numbers).into(), (&words).into()]), set(&["2"]));
        assert_eq!(common_of(&[(&words).into(), (&numbers).into()]), set(&["2"]));
        assert_eq!(
            union(&[Some((&numbers).into()), None, Some((&words).into())], &compact),
            set(&["1", "2", "3", "x"])
        );
        assert_eq!(union(&[None], &compact), Set::new());
        assert_eq!(difference((&numbers).into(), &[(&words).into()], &compact), set(&["1", "3"]));
        assert_eq!(difference((&numbers).into(), &[], &compact), numbers);
    }

    #[test]
    fn both_ways_to_subtract_give_the_same() {
        let compact = Compact::default();
        let many: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        let many = set(&many.iter().map(String::as_str).collect::<Vec<_>>());
        let few = [set(&["1", "x"]), set(&["2"]), set(&["1"])];
        let few: Vec<SetRef<'_>> = few.iter().map(SetRef::from).collect();
        let many = SetRef::from(&many);
        let removed = difference(many, &few, &compact);
        assert_eq!(removed.len(), 98);
        assert!(!removed.contains(b"1") && !removed.contains(b"2") && removed.contains(b"3"));
        assert_eq!(difference(few[0], &[many, many], &compact), set(&["x"]));
    }
}
