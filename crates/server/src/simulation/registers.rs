//! Operations of both protocols on single values, and their possible results.

use rand::Rng;
use rand::rngs::SmallRng;

use super::chaos::pick;
use super::cql_client::hex;

/// A value that operations read and write, and how it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Register {
    /// A row of a CQL table.
    Row(u8),
    /// A Redis string, which may have a TTL.
    Text(u8),
    /// A field of a hash.
    Field(u8),
}

pub(super) const REGISTERS: [Register; 6] = [
    Register::Row(0),
    Register::Row(1),
    Register::Text(0),
    Register::Text(1),
    Register::Field(0),
    Register::Field(1),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Read,
    /// A value with an optional TTL in milliseconds.
    Put(u32, Option<u64>),
    PutIfAbsent(u32),
    Swap {
        was: u32,
        value: u32,
    },
    Remove,
    RemoveIfPresent,
    Expire(u64),
    Persist,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// No reply, or an error.
    Unknown,
    /// A reply without information about the state.
    Done,
    Value(Option<u32>),
    /// Whether the operation was executed.
    Applied(bool),
}

/// An action, its reply, and their times in milliseconds of the server's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deed {
    pub(super) action: Action,
    pub(super) answer: Answer,
    pub(super) from_ms: u64,
    pub(super) to_ms: u64,
}

/// The value, and the earliest and latest time of its expiry.
pub(super) type State = Option<(u32, Option<(u64, u64)>)>;

impl Deed {
    /// The possible states after the action.
    pub(super) fn step(&self, state: &State) -> Vec<State> {
        let mut found = Vec::new();
        let ends = state.and_then(|(_, ends)| ends);
        // Clocks are rounded to milliseconds.
        if ends.is_none_or(|(_, latest)| self.from_ms <= latest + 1) {
            found.extend(self.step_from(*state));
        }
        if ends.is_some_and(|(earliest, _)| self.to_ms + 1 >= earliest) {
            found.extend(self.step_from(None));
        }
        found
    }

    fn step_from(&self, state: State) -> Option<State> {
        let ends = |ms: u64| (self.from_ms + ms, self.to_ms + ms);
        let (applied, next) = match self.action {
            Action::Read => {
                let fits = match self.answer {
                    Answer::Value(value) => value == state.map(|(value, _)| value),
                    _ => true,
                };
                return fits.then_some(state);
            }
            Action::Put(value, ttl_ms) => (true, Some((value, ttl_ms.map(ends)))),
            Action::PutIfAbsent(value) if state.is_none() => (true, Some((value, None))),
            Action::Swap { was, value } if state.is_some_and(|(own, _)| own == was) => {
                (true, Some((value, None)))
            }
            Action::Remove | Action::RemoveIfPresent => (state.is_some(), None),
            Action::Expire(ms) => {
                (state.is_some(), state.map(|(value, _)| (value, Some(ends(ms)))))
            }
            Action::Persist => {
                let has_expiry = state.is_some_and(|(_, ends)| ends.is_some());
                (has_expiry, state.map(|(value, _)| (value, None)))
            }
            Action::PutIfAbsent(_) | Action::Swap { .. } => (false, state),
        };
        let fits = !matches!(self.answer, Answer::Applied(reported) if reported != applied);
        fits.then_some(next)
    }
}

impl Register {
    /// The next action of a client. `value` is a new value; `known` was written before.
    pub(super) fn random_action(self, random: &mut SmallRng, value: u32, known: u32) -> Action {
        let has_ttl = matches!(self, Register::Text(_));
        let ttl_ms = pick(random, &[50, 1_000, 3_000, 60_000]);
        match random.random_range(0..24) {
            0..7 => Action::Read,
            7..11 => Action::PutIfAbsent(value),
            11..17 => Action::Swap { was: known, value },
            17..19 => Action::RemoveIfPresent,
            // Rows are written only with conditions: other writes are ordered by their timestamps.
            _ if matches!(self, Register::Row(_)) => Action::Read,
            19 => Action::Remove,
            20 if has_ttl => Action::Put(value, Some(ttl_ms)),
            21 if has_ttl => Action::Expire(ttl_ms),
            22 if has_ttl => Action::Persist,
            _ => Action::Put(value, None),
        }
    }

    /// The words of the command for an action, if the Redis protocol has one.
    pub(super) fn command(self, action: Action) -> Option<Vec<String>> {
        let words = match (self, action) {
            (Register::Row(_), _) | (_, Action::Swap { .. } | Action::RemoveIfPresent) => {
                return None;
            }
            (Register::Text(n), Action::Read) => format!("GET s{n}"),
            (Register::Text(n), Action::Put(value, None)) => format!("SET s{n} {value}"),
            (Register::Text(n), Action::Put(value, Some(ms))) => {
                format!("SET s{n} {value} PX {ms}")
            }
            (Register::Text(n), Action::PutIfAbsent(value)) => format!("SETNX s{n} {value}"),
            (Register::Text(n), Action::Remove) => format!("DEL s{n}"),
            (Register::Text(n), Action::Expire(ms)) => format!("PEXPIRE s{n} {ms}"),
            (Register::Text(n), Action::Persist) => format!("PERSIST s{n}"),
            (Register::Field(n), Action::Read) => format!("HGET h f{n}"),
            (Register::Field(n), Action::Put(value, _)) => format!("HSET h f{n} {value}"),
            (Register::Field(n), Action::PutIfAbsent(value)) => format!("HSETNX h f{n} {value}"),
            (Register::Field(n), Action::Remove) => format!("HDEL h f{n}"),
            (Register::Field(_), Action::Expire(_) | Action::Persist) => return None,
        };
        Some(words.split(' ').map(str::to_owned).collect())
    }

    /// The CQL statement for an action, if there is one.
    pub(super) fn statement(self, action: Action) -> Option<String> {
        let (table, columns, names) = match self {
            Register::Row(n) => ("k.r", "p, v", vec![n.to_string()]),
            Register::Text(n) => ("redis.strings", "key, value", vec![blob(&format!("s{n}"))]),
            Register::Field(n) => {
                let names = vec![blob("h"), blob(&format!("f{n}"))];
                ("redis.hashes", "key, field, value", names)
            }
        };
        let shown = |value: u32| match self {
            Register::Row(_) => value.to_string(),
            _ => blob(&value.to_string()),
        };
        let columns: Vec<&str> = columns.split(", ").collect();
        let (value_column, keys) = columns.split_last().expect("a table has columns");
        let pairs = keys.iter().zip(&names).map(|(column, name)| format!("{column} = {name}"));
        let place = format!("WHERE {}", pairs.collect::<Vec<_>>().join(" AND "));
        let insert = |value: u32| {
            let (columns, names) = (columns.join(", "), names.join(", "));
            format!("INSERT INTO {table} ({columns}) VALUES ({names}, {})", shown(value))
        };
        Some(match action {
            Action::Read => format!("SELECT {value_column} FROM {table} {place}"),
            Action::Put(value, None) => insert(value),
            Action::Put(value, Some(ms)) if ms % 1000 == 0 => {
                format!("{} USING TTL {}", insert(value), ms / 1000)
            }
            Action::PutIfAbsent(value) => format!("{} IF NOT EXISTS", insert(value)),
            Action::Swap { was, value } => format!(
                "UPDATE {table} SET {value_column} = {} {place} IF {value_column} = {}",
                shown(value),
                shown(was)
            ),
            Action::Remove => format!("DELETE FROM {table} {place}"),
            Action::RemoveIfPresent => format!("DELETE FROM {table} {place} IF EXISTS"),
            Action::Put(..) | Action::Expire(_) | Action::Persist => return None,
        })
    }

    /// Decodes the summary of a CQL response.
    pub(super) fn answer_of(self, action: Action, summary: &str) -> Answer {
        if summary.starts_with("ERROR ") {
            return Answer::Unknown;
        }
        if action != Action::Read {
            return match summary.split_whitespace().take(2).collect::<Vec<_>>()[..] {
                ["ROWS", applied] => Answer::Applied(applied == "01"),
                ["VOID"] => Answer::Done,
                _ => panic!("{action:?}: {summary}"),
            };
        }
        let cell = summary.strip_prefix("ROWS").unwrap_or_else(|| panic!("{summary}")).trim();
        let value = (!cell.is_empty()).then(|| {
            if matches!(self, Register::Row(_)) {
                return u32::from_str_radix(cell, 16).expect("an int");
            }
            let digits = cell.as_bytes().chunks(2).map(|pair| pair[1] - b'0');
            digits.fold(0, |value, digit| value * 10 + u32::from(digit))
        });
        Answer::Value(value)
    }
}

fn blob(text: &str) -> String {
    format!("0x{}", hex(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deed(action: Action, answer: Answer, from_ms: u64, to_ms: u64) -> Deed {
        Deed { action, answer, from_ms, to_ms }
    }

    #[test]
    fn a_value_expires_between_two_times() {
        let [put] = deed(Action::Put(1, Some(100)), Answer::Done, 10, 20).step(&None)[..] else {
            panic!("one possible state")
        };
        assert_eq!(put, Some((1, Some((110, 120)))));
        let read = |value, from, to| deed(Action::Read, Answer::Value(value), from, to).step(&put);
        assert_eq!(read(Some(1), 100, 105), [put]);
        assert_eq!(read(None, 100, 105), []);
        assert_eq!(read(Some(1), 112, 115), [put]);
        assert_eq!(read(None, 112, 115), [None]);
        assert_eq!(read(Some(1), 130, 140), []);
        assert_eq!(read(None, 130, 140), [None]);
        let swap = deed(Action::Swap { was: 1, value: 2 }, Answer::Applied(true), 100, 105);
        assert_eq!(swap.step(&put), [Some((2, None))]);
    }

    #[test]
    fn answers_to_conditions_must_match_the_state() {
        let state = Some((1, None));
        let put = |applied| deed(Action::PutIfAbsent(2), Answer::Applied(applied), 1, 1);
        assert_eq!(put(true).step(&state), []);
        assert_eq!(put(false).step(&state), [state]);
        assert_eq!(put(true).step(&None), [Some((2, None))]);
        let removed = deed(Action::Remove, Answer::Applied(false), 1, 1);
        assert_eq!(removed.step(&state), []);
        assert_eq!(deed(Action::Remove, Answer::Unknown, 1, 1).step(&state), [None]);
    }

    #[test]
    fn answers_are_read() {
        let text = Register::Text(0);
        assert_eq!(text.answer_of(Action::Read, "ROWS 3132"), Answer::Value(Some(12)));
        assert_eq!(text.answer_of(Action::Read, "ROWS "), Answer::Value(None));
        assert_eq!(text.answer_of(Action::Read, "ERROR 0000 x"), Answer::Unknown);
        assert_eq!(
            text.answer_of(Action::PutIfAbsent(1), "ROWS 00 7330 3132"),
            Answer::Applied(false)
        );
        let row = Register::Row(0);
        assert_eq!(row.answer_of(Action::Read, "ROWS 0000000c"), Answer::Value(Some(12)));
    }
}
