//! Unions, intersections and differences of sorted sets. The members of sets count with a score of
//! 1.

use smallvec::SmallVec;
use store::types::{Compact, Text, ZSet};
use store::{Kind, Locked, SetRef, Value, ZSetRef};
use wire::resp::Args;

use super::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use super::context::{CommandContext, ZSET_COST, integer, is_option};
use super::fail::Fail;
use super::sets::{at_least, store_result};
use super::zsets::RowShape;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// Use of the result, which determines the valid options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    Reply,
    Store,
    Count,
}

/// How the scores of a member in several inputs are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn parse(text: &[u8]) -> Result<Aggregate, Fail> {
        [("SUM", Aggregate::Sum), ("MIN", Aggregate::Min), ("MAX", Aggregate::Max)]
            .into_iter()
            .find_map(|(name, aggregate)| is_option(text, name).then_some(aggregate))
            .ok_or(Fail::Syntax)
    }

    /// Infinities that cancel each other out give 0. `score` may be NaN, `total` is not.
    fn apply(self, total: f64, score: f64) -> f64 {
        match self {
            Aggregate::Sum => number_or_zero(total + score),
            Aggregate::Min if score < total => score,
            Aggregate::Max if score > total => score,
            Aggregate::Min | Aggregate::Max => total,
        }
    }
}

fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// An input value.
#[derive(Debug, Clone, Copy)]
enum Source<'a> {
    Set(SetRef<'a>),
    ZSet(ZSetRef<'a>),
}

impl<'a> Source<'a> {
    fn of(value: Value<'a>) -> Result<Source<'a>, Fail> {
        match value {
            Value::Set(set) => Ok(Source::Set(set)),
            Value::ZSet(zset) => Ok(Source::ZSet(zset)),
            _ => Err(Fail::WrongType),
        }
    }

    fn len(self) -> usize {
        match self {
            Source::Set(set) => set.len(),
            Source::ZSet(zset) => zset.len(),
        }
    }

    fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            Source::Set(set) => set.contains(member).then_some(1.0),
            Source::ZSet(zset) => zset.score(member),
        }
    }

    fn rows(self) -> impl Iterator<Item = (Text<'a>, f64)> {
        let (set, zset) = match self {
            Source::Set(set) => (Some(set), None),
            Source::ZSet(zset) => (None, Some(zset)),
        };
        let members =
            set.into_iter().flat_map(SetRef::iter).map(|member| (Text::from(member), 1.0));
        members.chain(zset.into_iter().flat_map(ZSetRef::iter))
    }
}

#[derive(Debug, Clone, Copy)]
struct Input<'a> {
    source: Source<'a>,
    weight: f64,
}

/// Inputs, `None` for a missing key.
type Inputs<'a> = SmallVec<[Option<Input<'a>>; 4]>;

/// A command of this file, parsed.
#[derive(Debug)]
struct Query<'a> {
    inputs: Inputs<'a>,
    aggregate: Aggregate,
    with_scores: bool,
    /// Limit of ZINTERCARD.
    limit: usize,
}

impl<'a> Query<'a> {
    /// Parses the arguments from the number of keys on, and looks up the keys.
    fn parse(
        locked: &'a Locked<'_>,
        db: u8,
        args: Args<'_>,
        operation: Operation,
        goal: Goal,
        command: &Command,
    ) -> Result<Query<'a>, Fail> {
        let key_count = integer(args.get(0))?;
        if key_count < 1 {
            return Err(Fail::owned(format!(
                "ERR at least 1 input key is needed for '{}' command",
                command.name
            )));
        }
        let key_count = usize::try_from(key_count).unwrap_or(usize::MAX);
        if key_count > args.len() - 1 {
            return Err(Fail::Syntax);
        }
        let mut inputs = find_inputs(locked, db, args.range(1..1 + key_count))?;
        let has_weights = operation != Operation::Difference && goal != Goal::Count;
        let (mut aggregate, mut with_scores, mut limit) = (Aggregate::Sum, false, 0);
        let mut options = args.skip(1 + key_count);
        while let Some(option) = options.try_get(0) {
            let mut taken = 2;
            if has_weights && options.len() > key_count && is_option(option, "WEIGHTS") {
                set_weights(&mut inputs, options.range(1..1 + key_count))?;
                taken = 1 + key_count;
            } else if has_weights && options.len() >= 2 && is_option(option, "AGGREGATE") {
                aggregate = Aggregate::parse(options.get(1))?;
            } else if goal == Goal::Reply && is_option(option, "WITHSCORES") {
                with_scores = true;
                taken = 1;
            } else if goal == Goal::Count && options.len() >= 2 && is_option(option, "LIMIT") {
                limit = at_least(options.get(1), 0, "ERR LIMIT can't be negative")?;
            } else {
                return Err(Fail::Syntax);
            }
            options = options.skip(taken);
        }
        let limit = if limit == 0 { usize::MAX } else { limit };
        Ok(Query { inputs, aggregate, with_scores, limit })
    }

    /// Number of members that are compared or added.
    fn compared(&self, operation: Operation) -> usize {
        let lens = || self.inputs.iter().flatten().map(|input| input.source.len());
        let all: usize = lens().sum();
        match operation {
            Operation::Union => all,
            Operation::Intersection if self.inputs.iter().any(Option::is_none) => 0,
            Operation::Intersection => {
                lens().min().unwrap_or(0).saturating_mul(self.inputs.len()).min(all)
            }
            Operation::Difference => {
                let first = self.inputs[0].map_or(0, |input| input.source.len());
                first.saturating_mul(self.inputs.len()).min(if first == 0 { 0 } else { all })
            }
        }
    }

    fn result(self, operation: Operation, compact: &Compact) -> ZSet {
        match operation {
            Operation::Union => union(self.inputs, self.aggregate, compact),
            Operation::Intersection => match all_present(&self.inputs) {
                Some(inputs) => intersection(&inputs, self.aggregate, compact),
                None => ZSet::new(),
            },
            Operation::Difference => difference(&self.inputs, compact),
        }
    }
}

fn find_inputs<'a>(locked: &'a Locked<'_>, db: u8, keys: Args<'_>) -> Result<Inputs<'a>, Fail> {
    let input = |value| Ok(Input { source: Source::of(value)?, weight: 1.0 });
    keys.iter().map(|key| locked.get(db, locked.key(key)).map(input).transpose()).collect()
}

fn set_weights(inputs: &mut Inputs<'_>, weights: Args<'_>) -> Done {
    for (input, text) in inputs.iter_mut().zip(weights) {
        let weight = wire::resp::parse_f64(text);
        let weight = weight.ok_or(Fail::text("ERR weight value is not a float"))?;
        if let Some(input) = input {
            input.weight = weight;
        }
    }
    Ok(())
}

/// Returns all inputs, smallest first; `None` if one is missing, so that the intersection is empty.
fn all_present<'a>(inputs: &[Option<Input<'a>>]) -> Option<SmallVec<[Input<'a>; 4]>> {
    let mut inputs = inputs.iter().copied().collect::<Option<SmallVec<[Input<'_>; 4]>>>()?;
    inputs.sort_by_key(|input| input.source.len());
    Some(inputs)
}

/// Adds a member. -0 becomes 0, as in Redis's compact form.
fn add(result: &mut ZSet, member: &[u8], score: f64, compact: &Compact) {
    result.add(member, score + 0.0, compact);
}

/// Computes the union. Scores are added from the smallest input to the largest, as in Redis: the
/// order affects the last digits.
fn union(inputs: Inputs<'_>, aggregate: Aggregate, compact: &Compact) -> ZSet {
    let mut inputs: SmallVec<[Input<'_>; 4]> = inputs.into_iter().flatten().collect();
    inputs.sort_by_key(|input| input.source.len());
    let mut result = ZSet::new();
    for input in inputs {
        for (member, score) in input.source.rows() {
            let score = number_or_zero(score * input.weight);
            let total = result.score(&member);
            let score = total.map_or(score, |total| aggregate.apply(total, score));
            add(&mut result, &member, score, compact);
        }
    }
    result
}

/// Returns the score of a member in the intersection; `None` if it is not in all inputs.
fn common_score(
    member: &[u8],
    first: f64,
    others: &[Input<'_>],
    aggregate: Aggregate,
) -> Option<f64> {
    others.iter().try_fold(first, |total, other| {
        let score = other.source.score(member)?;
        Some(aggregate.apply(total, score * other.weight))
    })
}

fn intersection(inputs: &[Input<'_>], aggregate: Aggregate, compact: &Compact) -> ZSet {
    let (first, others) = inputs.split_first().expect("commands have at least one key");
    let mut result = ZSet::new();
    for (member, score) in first.source.rows() {
        let score = number_or_zero(score * first.weight);
        if let Some(score) = common_score(&member, score, others, aggregate) {
            add(&mut result, &member, score, compact);
        }
    }
    result
}

fn intersection_len(inputs: &[Input<'_>], limit: usize) -> usize {
    let (first, others) = inputs.split_first().expect("commands have at least one key");
    let is_common = |member: &[u8]| others.iter().all(|other| other.source.score(member).is_some());
    first.source.rows().filter(|(member, _)| is_common(member)).take(limit).count()
}

/// Returns the members of the first input that no other has.
///
/// O(min(members of the first times number of the others, members of all inputs)), times the
/// logarithm of the result's length.
fn difference(inputs: &[Option<Input<'_>>], compact: &Compact) -> ZSet {
    let (first, others) = inputs.split_first().expect("commands have at least one key");
    let mut result = ZSet::new();
    let Some(first) = first else { return result };
    let others: SmallVec<[Source<'_>; 4]> =
        others.iter().flatten().map(|input| input.source).collect();
    let others_len: usize = others.iter().map(|other| other.len()).sum();
    let removes = others_len < first.source.len() * others.len() / 2;
    for (member, score) in first.source.rows() {
        if removes || others.iter().all(|other| other.score(&member).is_none()) {
            add(&mut result, &member, score, compact);
        }
    }
    if removes {
        for (member, _) in others.iter().flat_map(|other| other.rows()) {
            result.remove(&member);
        }
    }
    result
}

fn result_bytes_max(cx: &CommandContext<'_>, operation: Operation, keys: Args<'_>) -> usize {
    let mut bytes = cx.values_bytes(keys);
    match operation {
        Operation::Union => bytes.sum(),
        Operation::Intersection => bytes.min().unwrap_or(0),
        Operation::Difference => bytes.next().unwrap_or(0),
    }
}

fn reply(cx: &mut CommandContext<'_>, args: Args<'_>, operation: Operation) -> Done {
    let (args, goal) = (args.skip(1), Goal::Reply);
    let query = Query::parse(&cx.locked, cx.db, args, operation, goal, cx.command)?;
    let shape = if query.with_scores {
        RowShape::with_scores(cx.reply.protocol)
    } else {
        RowShape::Members
    };
    cx.spend(query.compared(operation).saturating_mul(ZSET_COST))?;
    cx.check_more(result_bytes_max(cx, operation, args.range(1..1 + query.inputs.len())))?;
    let result = query.result(operation, &cx.locked.params().compact);
    shape.header(&mut cx.reply, result.len());
    for (member, score) in &result {
        shape.row(&mut cx.reply, member, score);
        cx.check_reply()?;
    }
    Ok(())
}

fn store(cx: &mut CommandContext<'_>, args: Args<'_>, operation: Operation) -> Done {
    let inputs = args.skip(2);
    let query = Query::parse(&cx.locked, cx.db, inputs, operation, Goal::Store, cx.command)?;
    cx.spend(query.compared(operation).saturating_mul(ZSET_COST))?;
    let result = query.result(operation, &cx.locked.params().compact);
    let destination = cx.key(args.get(1));
    store_result(cx, destination, Kind::ZSet, result.len(), |out| result.encode(out))
}

pub(crate) const ZUNION: Command = Command {
    name: "zunion",
    syntax: "numkeys key [key ...] [WEIGHTS weight [weight ...]] \
             [AGGREGATE SUM | MIN | MAX] [WITHSCORES]",
    summary: "Returns the members of the union of several sorted sets.",
    since: "6.2.0",
    complexity: "O(N*log N) in the members of all inputs",
    group: Group::SortedSet,
    arity: -3,
    flags: Flags::READONLY.and(Flags::MOVABLEKEYS),
    keys: &[KeySpec::counted(1, KeyAccess::Read)],
    run: |cx, args| reply(cx, args, Operation::Union),
    ..Command::EMPTY
};

pub(crate) const ZUNIONSTORE: Command = Command {
    name: "zunionstore",
    syntax: "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] \
             [AGGREGATE SUM | MIN | MAX]",
    summary: "Stores the members of the union of several sorted sets.",
    since: "2.0.0",
    complexity: "O(N*log N) in the members of all inputs",
    group: Group::SortedSet,
    arity: -4,
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::MOVABLEKEYS).and(Flags::COPIES),
    events: Events::Each(Group::SortedSet.event("zunionstore")),
    keys: &[KeySpec::range(1, 1, 1, KeyAccess::Overwrite), KeySpec::counted(2, KeyAccess::Read)],
    run: |cx, args| store(cx, args, Operation::Union),
    ..Command::EMPTY
};

pub(crate) const ZINTER: Command = Command {
    name: "zinter",
    summary: "Returns the members that several sorted sets have in common.",
    complexity: "O(N*K + M*log M) for the smallest of K inputs and M results",
    run: |cx, args| reply(cx, args, Operation::Intersection),
    ..ZUNION
};

pub(crate) const ZINTERSTORE: Command = Command {
    name: "zinterstore",
    summary: "Stores the members that several sorted sets have in common.",
    complexity: "O(N*K + M*log M) for the smallest of K inputs and M results",
    events: Events::Each(Group::SortedSet.event("zinterstore")),
    run: |cx, args| store(cx, args, Operation::Intersection),
    ..ZUNIONSTORE
};

pub(crate) const ZINTERCARD: Command = Command {
    name: "zintercard",
    syntax: "numkeys key [key ...] [LIMIT limit]",
    summary: "Returns how many members several sorted sets have in common, up to a limit.",
    since: "7.0.0",
    complexity: "O(N*K) for the smallest of K inputs",
    group: Group::SortedSet,
    arity: -3,
    flags: Flags::READONLY.and(Flags::MOVABLEKEYS),
    keys: &[KeySpec::counted(1, KeyAccess::Read)],
    run: zintercard,
    ..Command::EMPTY
};

fn zintercard(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (args, operation) = (args.skip(1), Operation::Intersection);
    let query = Query::parse(&cx.locked, cx.db, args, operation, Goal::Count, cx.command)?;
    cx.spend(query.compared(operation).saturating_mul(ZSET_COST))?;
    let inputs = all_present(&query.inputs);
    let count = inputs.map_or(0, |inputs| intersection_len(&inputs, query.limit));
    cx.reply.count(count);
    Ok(())
}

pub(crate) const ZDIFF: Command = Command {
    name: "zdiff",
    syntax: "numkeys key [key ...] [WITHSCORES]",
    summary: "Returns the members of the first sorted set that no other one has.",
    run: |cx, args| reply(cx, args, Operation::Difference),
    ..ZUNION
};

pub(crate) const ZDIFFSTORE: Command = Command {
    name: "zdiffstore",
    syntax: "destination numkeys key [key ...]",
    summary: "Stores the members of the first sorted set that no other one has.",
    since: "6.2.0",
    events: Events::Each(Group::SortedSet.event("zdiffstore")),
    run: |cx, args| store(cx, args, Operation::Difference),
    ..ZUNIONSTORE
};

#[cfg(test)]
mod tests {
    use super::*;

    const INF: f64 = f64::INFINITY;

    fn zset(rows: &[(&str, f64)]) -> ZSet {
        let mut zset = ZSet::new();
        for (member, score) in rows {
            zset.add(member.as_bytes(), *score, &Compact::default());
        }
        zset
    }

    fn input(zset: &ZSet, weight: f64) -> Input<'_> {
        Input { source: Source::ZSet(zset.into()), weight }
    }

    #[test]
    fn scores_aggregate() {
        for (aggregate, total, score, expected) in [
            (Aggregate::Sum, 1.0, 2.0, 3.0),
            (Aggregate::Sum, INF, -INF, 0.0),
            (Aggregate::Min, 1.0, 2.0, 1.0),
            (Aggregate::Min, 1.0, -INF, -INF),
            (Aggregate::Max, 1.0, 2.0, 2.0),
            (Aggregate::Max, 1.0, f64::NAN, 1.0),
        ] {
            let result = aggregate.apply(total, score);
            assert_eq!(result.to_bits(), expected.to_bits(), "{aggregate:?} {total} {score}");
        }
        assert_eq!(Aggregate::parse(b"max"), Ok(Aggregate::Max));
        assert_eq!(Aggregate::parse(b"avg"), Err(Fail::Syntax));
    }

    #[test]
    fn weights_and_aggregates_make_the_result() {
        let compact = Compact::default();
        let (a, b) = (zset(&[("x", 1.0), ("y", 2.0)]), zset(&[("y", 10.0), ("z", 20.0)]));
        let inputs = [Some(input(&a, 2.0)), None, Some(input(&b, 3.0))];
        let expected = zset(&[("x", 2.0), ("y", 34.0), ("z", 60.0)]);
        assert_eq!(union(inputs.into_iter().collect(), Aggregate::Sum, &compact), expected);
        assert!(all_present(&inputs).is_none());
        let present = all_present(&[inputs[0], inputs[2]]).unwrap();
        assert_eq!(intersection(&present, Aggregate::Max, &compact), zset(&[("y", 30.0)]));
        assert_eq!(intersection_len(&present, usize::MAX), 1);
    }

    #[test]
    fn a_weight_of_zero_gives_zero() {
        let compact = Compact::default();
        let infinite = zset(&[("x", INF), ("y", -1.0)]);
        let inputs: Inputs<'_> = [Some(input(&infinite, 0.0))].into_iter().collect();
        let result = union(inputs, Aggregate::Sum, &compact);
        assert!(result.iter().all(|(_, score)| score.to_bits() == 0));
    }

    #[test]
    fn sets_take_part_with_a_score_of_one() {
        let compact = Compact::default();
        let mut set = store::types::Set::new();
        set.add(b"1", &compact);
        let set = Some(Input { source: Source::Set((&set).into()), weight: 1.0 });
        let numbers = zset(&[("1", 5.0), ("2", 6.0)]);
        let inputs: Inputs<'_> = [set, Some(input(&numbers, 1.0))].into_iter().collect();
        assert_eq!(difference(&[inputs[1], set], &compact), zset(&[("2", 6.0)]));
        assert_eq!(union(inputs, Aggregate::Sum, &compact), zset(&[("1", 6.0), ("2", 6.0)]));
    }

    #[test]
    fn both_ways_to_subtract_give_the_same() {
        let compact = Compact::default();
        let names: Vec<String> = (0..50).map(|number| number.to_string()).collect();
        let rows: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 1.0)).collect();
        let (many, few) = (zset(&rows), zset(&[("1", 0.0), ("x", 7.0)]));
        let removed =
            difference(&[Some(input(&many, 1.0)), Some(input(&few, 1.0)), None], &compact);
        assert_eq!((removed.len(), removed.score(b"1")), (49, None));
        let rest = difference(&[Some(input(&few, 1.0)), Some(input(&many, 1.0))], &compact);
        assert_eq!(rest, zset(&[("x", 7.0)]));
        assert!(difference(&[None, Some(input(&many, 1.0))], &compact).is_empty());
    }
}
