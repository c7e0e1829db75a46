//! The object that clients use concurrently: a counter, two lists and a sorted set, and every
//! operation on them with the reply of a sequential execution.

use std::collections::BTreeSet;

use rand::Rng;
use rand::rngs::StdRng;

use crate::resp::Value;

/// Timeout of blocking operations, in seconds: some end without a value.
const WAIT: &str = "0.02";
/// Moves an element and counts.
const SCRIPT: &str = "local value = redis.call('LPOP', KEYS[1]) \
    if value then redis.call('RPUSH', KEYS[2], value) end \
    return {redis.call('INCR', KEYS[3]), value}";

/// The keys of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) number: usize,
}

impl Keys {
    fn key(self, kind: &str) -> String {
        format!("object:{}:{kind}", self.number)
    }

    fn list(self, list: usize) -> String {
        self.key(["first", "second"][list])
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct State {
    counter: Option<i64>,
    lists: [Vec<i64>; 2],
    /// Members are their own scores.
    sorted: BTreeSet<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Get,
    Set(i64),
    Increment,
    Push(usize, i64),
    Pop(usize),
    /// From the first list that has an element.
    BlockingPop,
    Move,
    BlockingMove,
    Range(usize),
    Add(i64),
    PopMin,
    BlockingPopMin,
    Script,
    Transaction(Vec<Action>),
    /// EXEC of SET, if the counter still has the value that was read after WATCH.
    WatchedSet {
        seen: Option<i64>,
        value: i64,
    },
}

/// An action with its reply; none: it was in flight at the crash.
#[derive(Debug, Clone)]
pub(super) struct Deed {
    pub(super) action: Action,
    pub(super) reply: Option<Value>,
}

impl Deed {
    /// The possible states after it.
    pub(super) fn step(&self, state: &State) -> Vec<State> {
        let mut next = state.clone();
        if let Action::WatchedSet { seen, value } = self.action {
            return match &self.reply {
                // A change between WATCH and GET is enough for a refusal.
                Some(reply) if is_null(reply) => vec![next],
                reply => {
                    let done = Value::Array(Some(vec![Value::Simple(b"OK".to_vec())]));
                    let is_done = reply.as_ref().is_none_or(|reply| *reply == done);
                    next.counter = Some(value);
                    if is_done && state.counter == seen { vec![next] } else { vec![] }
                }
            };
        }
        let expected = self.action.apply(&mut next);
        match &self.reply {
            Some(reply) if !is_same(reply, &expected) => vec![],
            _ => vec![next],
        }
    }
}

impl Action {
    /// A random action; values are never used twice.
    pub(super) fn random(random: &mut StdRng, new_value: &mut impl FnMut() -> i64) -> Self {
        match random.random_range(0..20) {
            0..12 => Self::simple(random, new_value),
            12 | 13 => Self::BlockingPop,
            14 => Self::BlockingMove,
            15 => Self::BlockingPopMin,
            16 | 17 => Self::Script,
            _ => {
                let count = random.random_range(1..4);
                Self::Transaction((0..count).map(|_| Self::simple(random, new_value)).collect())
            }
        }
    }

    fn simple(random: &mut StdRng, new_value: &mut impl FnMut() -> i64) -> Self {
        match random.random_range(0..12) {
            0 => Self::Get,
            1 => Self::Set(new_value()),
            2 => Self::Increment,
            3..6 => Self::Push(random.random_range(0..2), new_value()),
            6 => Self::Pop(random.random_range(0..2)),
            7 => Self::Move,
            8 => Self::Range(random.random_range(0..2)),
            9 | 10 => Self::Add(new_value()),
            _ => Self::PopMin,
        }
    }

    /// Whether it is meaningless without a reply.
    pub(super) fn is_read(&self) -> bool {
        matches!(self, Self::Get | Self::Range(_))
    }

    /// Its requests. All but the last are answered by OK or QUEUED.
    pub(super) fn requests(&self, keys: Keys) -> Vec<Vec<String>> {
        match self {
            Self::Transaction(actions) => {
                let parts = actions.iter().flat_map(|action| action.requests(keys));
                let words = |word: &str| vec![word.to_owned()];
                [words("MULTI")].into_iter().chain(parts).chain([words("EXEC")]).collect()
            }
            Self::WatchedSet { value, .. } => {
                Self::Transaction(vec![Self::Set(*value)]).requests(keys)
            }
            _ => vec![self.request(keys)],
        }
    }

    fn request(&self, keys: Keys) -> Vec<String> {
        let [first, second] = [keys.list(0), keys.list(1)];
        let (counter, sorted) = (keys.key("counter"), keys.key("sorted"));
        let words: Vec<&str> = match self {
            Self::Get => vec!["GET", &counter],
            Self::Set(value) => return vec!["SET".into(), counter, value.to_string()],
            Self::Increment => vec!["INCR", &counter],
            Self::Push(list, value) => {
                return vec!["RPUSH".into(), keys.list(*list), value.to_string()];
            }
            Self::Pop(list) => return vec!["LPOP".into(), keys.list(*list)],
            Self::BlockingPop => vec!["BLPOP", &first, &second, WAIT],
            Self::Move => vec!["LMOVE", &first, &second, "LEFT", "RIGHT"],
            Self::BlockingMove => vec!["BLMOVE", &first, &second, "LEFT", "RIGHT", WAIT],
            Self::Range(list) => {
                return vec!["LRANGE".into(), keys.list(*list), "0".into(), "-1".into()];
            }
            Self::Add(value) => {
                return vec!["ZADD".into(), sorted, value.to_string(), value.to_string()];
            }
            Self::PopMin => vec!["ZPOPMIN", &sorted],
            Self::BlockingPopMin => vec!["BZPOPMIN", &sorted, WAIT],
            Self::Script => vec!["EVAL", SCRIPT, "3", &first, &second, &counter],
            Self::Transaction(_) | Self::WatchedSet { .. } => {
                unreachable!("it has several requests")
            }
        };
        words.into_iter().map(str::to_owned).collect()
    }

    /// The reply of a sequential execution. Names of keys are left out of the replies of blocking
    /// commands.
    fn apply(&self, state: &mut State) -> Value {
        match self {
            Self::Get => text(state.counter),
            Self::Set(value) => {
                state.counter = Some(*value);
                Value::Simple(b"OK".to_vec())
            }
            Self::Increment => number(state.increment()),
            Self::Push(list, value) => {
                state.lists[*list].push(*value);
                number(i64::try_from(state.lists[*list].len()).expect("few"))
            }
            Self::Pop(list) => text(state.pop(*list)),
            Self::BlockingPop => match state.pop(0).or_else(|| state.pop(1)) {
                Some(value) => Value::Array(Some(vec![Value::Null, text(Some(value))])),
                None => Value::Null,
            },
            Self::Move | Self::BlockingMove => text(state.shift()),
            Self::Range(list) => {
                let values = state.lists[*list].iter();
                Value::Array(Some(values.map(|value| text(Some(*value))).collect()))
            }
            Self::Add(value) => number(i64::from(state.sorted.insert(*value))),
            Self::PopMin => {
                let least = state.sorted.pop_first().map(|value| text(Some(value)));
                Value::Array(Some(least.map_or(Vec::new(), |least| vec![least.clone(), least])))
            }
            Self::BlockingPopMin => match state.sorted.pop_first().map(|value| text(Some(value))) {
                Some(least) => Value::Array(Some(vec![Value::Null, least.clone(), least])),
                None => Value::Null,
            },
            Self::Script => {
                let moved = state.shift();
                Value::Array(Some(vec![number(state.increment()), text(moved)]))
            }
            Self::Transaction(actions) => {
                Value::Array(Some(actions.iter().map(|action| action.apply(state)).collect()))
            }
            Self::WatchedSet { .. } => unreachable!("its reply depends on more than the state"),
        }
    }
}

impl State {
    fn increment(&mut self) -> i64 {
        let value = self.counter.unwrap_or(0) + 1;
        self.counter = Some(value);
        value
    }

    fn pop(&mut self, list: usize) -> Option<i64> {
        let list = &mut self.lists[list];
        (!list.is_empty()).then(|| list.remove(0))
    }

    fn shift(&mut self) -> Option<i64> {
        let value = self.pop(0)?;
        self.lists[1].push(value);
        Some(value)
    }
}

fn number(value: i64) -> Value {
    Value::Scalar(format!(":{value}"))
}

fn text(value: Option<i64>) -> Value {
    value.map_or(Value::Null, |value| Value::Bulk(Some(value.to_string().into_bytes())))
}

pub(super) fn is_null(value: &Value) -> bool {
    matches!(value, Value::Null | Value::Bulk(None) | Value::Array(None))
}

/// Null has several forms. Null stands for the name of a key: the element is unique.
fn is_same(reply: &Value, expected: &Value) -> bool {
    match (reply, expected) {
        (Value::Array(Some(reply)), Value::Array(Some(expected))) => {
            let is_name = |value: &Value| matches!(value, Value::Bulk(Some(name)) if name.starts_with(b"object:"));
            let mut both = reply.iter().zip(expected);
            reply.len() == expected.len()
                && both.all(|(one, other)| is_same(one, other) || is_name(one) && is_null(other))
        }
        _ => reply == expected || is_null(reply) && is_null(expected),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::{Operation, is_linearizable};

    fn done(action: Action, reply: Value) -> Deed {
        Deed { action, reply: Some(reply) }
    }

    /// Operations one after the other; without a reply: in flight at a crash that follows at once.
    fn check(deeds: &[Deed], expected: bool) {
        let operations: Vec<_> = deeds
            .iter()
            .enumerate()
            .map(|(at, deed)| Operation {
                is_certain: deed.reply.is_some(),
                what: deed.clone(),
                invoked: 2 * at,
                completed: 2 * at + 1,
            })
            .collect();
        let found = is_linearizable(&State::default(), &operations, |state, deed| deed.step(state));
        assert_eq!(found, expected, "{deeds:#?}");
    }

    #[test]
    fn an_element_is_popped_once() {
        let push = done(Action::Push(0, 7), number(1));
        let pop = done(Action::Pop(0), text(Some(7)));
        check(&[push.clone(), pop.clone()], true);
        check(&[push.clone(), pop.clone(), pop.clone()], false);
        // In flight at a crash, it may have been popped.
        let cut = Deed { action: Action::BlockingPop, reply: None };
        check(&[push.clone(), cut.clone(), pop], true);
        check(&[push.clone(), cut.clone(), done(Action::Pop(0), Value::Null)], true);
        check(&[push, done(Action::Pop(0), Value::Null)], false);
    }

    #[test]
    fn a_blocking_pop_ends_without_a_value_only_if_there_was_none() {
        check(&[done(Action::BlockingPop, Value::Array(None))], true);
        let push = done(Action::Push(1, 7), number(1));
        check(&[push.clone(), done(Action::BlockingPop, Value::Array(None))], false);
        let name = Value::Bulk(Some(b"object:0:second".to_vec()));
        let popped = Value::Array(Some(vec![name, text(Some(7))]));
        check(&[push, done(Action::BlockingPop, popped)], true);
    }

    #[test]
    fn a_script_is_one_step() {
        let push = done(Action::Push(0, 7), number(1));
        let moved = Value::Array(Some(vec![number(1), text(Some(7))]));
        let script = done(Action::Script, moved);
        let range = |values: &[i64]| {
            let values = values.iter().map(|value| text(Some(*value))).collect();
            Value::Array(Some(values))
        };
        check(&[push.clone(), script.clone(), done(Action::Range(1), range(&[7]))], true);
        check(&[push.clone(), script, done(Action::Range(1), range(&[]))], false);
        // A half of it survives a crash.
        let cut = Deed { action: Action::Script, reply: None };
        let after = [done(Action::Range(0), range(&[])), done(Action::Range(1), range(&[]))];
        check(&[&[push, cut][..], &after].concat(), false);
    }

    #[test]
    fn a_watched_set_loses_no_update() {
        let won = Value::Array(Some(vec![Value::Simple(b"OK".to_vec())]));
        let set =
            |value, reply: &Value| done(Action::WatchedSet { seen: Some(1), value }, reply.clone());
        let first = done(Action::Set(1), Value::Simple(b"OK".to_vec()));
        check(&[first.clone(), set(2, &won), set(3, &Value::Array(None))], true);
        check(&[first, set(2, &won), set(3, &won)], false);
    }

    #[test]
    fn an_acknowledged_change_is_not_lost_in_a_transaction() {
        let both = Action::Transaction(vec![Action::Increment, Action::Add(5)]);
        let reply = Value::Array(Some(vec![number(1), number(1)]));
        let pop = |reply| done(Action::PopMin, Value::Array(Some(reply)));
        let five = || text(Some(5));
        check(&[done(both.clone(), reply.clone()), pop(vec![five(), five()])], true);
        check(&[done(both, reply), pop(vec![])], false);
    }
}
