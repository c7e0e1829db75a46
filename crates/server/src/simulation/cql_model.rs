//! A model of one CQL client's tables after each statement.

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::SmallRng;

use crate::statements::execute::tests::model::{Step, row};

/// Partitions and rows of each: few, so that statements affect the same rows.
const PARTITIONS: i32 = 3;
const ROWS: i32 = 4;
/// TTLs in seconds: none, elapsed when tables are checked, longer than a run.
pub(super) const LIVES: [u32; 4] = [0, 0, 10, 10_000_000];
/// TTLs whose cells do not reappear when the clock is set back.
pub(super) const LONG_LIVES: [u32; 2] = [0, 10_000_000];
/// Timestamps of one client's writes: the client's number is multiplied by this, and the write's
/// number is added.
const TIMES: usize = 1 << 20;

/// The tables of a client, and the columns to compare.
pub(super) const TABLES: [(&str, &str); 4] =
    [("t", "p, c, v"), ("n", "p, n"), ("l", "p, v"), ("x", "p, v")];

/// A write to table `t` and its unique timestamp.
pub(super) type Timed = (usize, Step);

#[derive(Debug, Clone)]
pub(super) enum Statement {
    Write(Timed),
    /// A batch, applied atomically.
    Batch(Vec<Timed>),
    /// Increments a counter.
    Count {
        p: i32,
        by: i64,
    },
    InsertIfAbsent {
        p: i32,
        v: i32,
    },
    UpdateIf {
        p: i32,
        was: i32,
        v: i32,
    },
    DeleteIfPresent {
        p: i32,
    },
    /// Creates a table that is dropped again.
    CreateSpare,
    DropSpare,
    TruncateSpare,
    InsertSpare {
        p: i32,
        v: i32,
    },
}

/// The outcome of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Written,
    /// Nothing needed to change.
    Unchanged,
    /// Its condition did not hold.
    Refused,
    /// The table does not exist.
    Unknown,
}

/// The content of the tables.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    writes: Vec<Timed>,
    counters: BTreeMap<i32, i64>,
    values: BTreeMap<i32, i32>,
    spare: Option<BTreeMap<i32, i32>>,
}

impl State {
    pub(super) fn apply(&mut self, statement: &Statement) -> Outcome {
        match statement {
            Statement::Write(write) => self.writes.push(write.clone()),
            Statement::Batch(writes) => self.writes.extend_from_slice(writes),
            Statement::Count { p, by } => *self.counters.entry(*p).or_default() += by,
            Statement::InsertIfAbsent { p, v } => {
                if self.values.contains_key(p) {
                    return Outcome::Refused;
                }
                self.values.insert(*p, *v);
            }
            Statement::UpdateIf { p, was, v } => match self.values.get_mut(p) {
                Some(value) if *value == *was => *value = *v,
                _ => return Outcome::Refused,
            },
            Statement::DeleteIfPresent { p } => {
                if self.values.remove(p).is_none() {
                    return Outcome::Refused;
                }
            }
            Statement::CreateSpare => {
                if self.spare.is_some() {
                    return Outcome::Unchanged;
                }
                self.spare = Some(BTreeMap::new());
            }
            Statement::DropSpare => {
                if self.spare.take().is_none() {
                    return Outcome::Unchanged;
                }
            }
            Statement::TruncateSpare => match &mut self.spare {
                None => return Outcome::Unknown,
                Some(rows) => rows.clear(),
            },
            Statement::InsertSpare { p, v } => match &mut self.spare {
                None => return Outcome::Unknown,
                Some(rows) => {
                    rows.insert(*p, *v);
                }
            },
        }
        Outcome::Written
    }

    /// The rows of each of [`TABLES`], sorted, after short TTLs have elapsed; `None` for a table
    /// that does not exist.
    pub(super) fn shown(&self) -> Vec<Option<Vec<String>>> {
        let places = (0..PARTITIONS).flat_map(|p| (0..ROWS).map(move |c| (p, c)));
        let rows = places.filter_map(|(p, c)| {
            let v = row(&self.writes, p, c)?.v;
            let v = v.map_or_else(|| "null".to_owned(), |v| format!("{v:08x}"));
            Some(format!("{p:08x} {c:08x} {v}"))
        });
        let pairs = |rows: &BTreeMap<i32, i32>| -> Vec<String> {
            rows.iter().map(|(p, v)| format!("{p:08x} {v:08x}")).collect()
        };
        let counters = self.counters.iter().map(|(p, n)| format!("{p:08x} {n:016x}"));
        vec![
            Some(rows.collect()),
            Some(counters.collect()),
            Some(pairs(&self.values)),
            self.spare.as_ref().map(pairs),
        ]
    }

    pub(super) fn forget_writes(&mut self) {
        self.writes.clear();
    }
}

impl Statement {
    /// A random statement. `number`: of the client's next write; each write increments it.
    pub(super) fn random(
        random: &mut SmallRng,
        state: &State,
        lives: &[u32],
        number: &mut usize,
    ) -> Statement {
        let p = random.random_range(0..PARTITIONS);
        let v = random.random_range(0..5);
        match random.random_range(0..30) {
            0..11 => Statement::Write(timed(random, lives, number)),
            11..15 => {
                let count = random.random_range(2..6);
                Statement::Batch((0..count).map(|_| timed(random, lives, number)).collect())
            }
            15..18 => Statement::Count { p, by: random.random_range(1..10) },
            18..20 => Statement::InsertIfAbsent { p, v },
            20..23 => {
                let now = state.values.get(&p).copied();
                let was = now.filter(|_| random.random_bool(0.6)).unwrap_or(v);
                Statement::UpdateIf { p, was, v }
            }
            23 => Statement::DeleteIfPresent { p },
            24..26 => Statement::CreateSpare,
            26 => Statement::DropSpare,
            27 => Statement::TruncateSpare,
            _ => Statement::InsertSpare { p, v },
        }
    }

    /// The statement's text for the tables of this client.
    pub(super) fn text(&self, client: usize) -> String {
        let write = |(time, step): &Timed| {
            step.text(*time).replacen(" t ", &format!(" {} ", table("t", client)), 1)
        };
        let (n, l, x) = (table("n", client), table("l", client), table("x", client));
        match self {
            Statement::Write(timed) => write(timed),
            Statement::Batch(writes) => {
                let writes: Vec<_> = writes.iter().map(write).collect();
                format!("BEGIN BATCH {}; APPLY BATCH", writes.join("; "))
            }
            Statement::Count { p, by } => format!("UPDATE {n} SET n = n + {by} WHERE p = {p}"),
            Statement::InsertIfAbsent { p, v } => {
                format!("INSERT INTO {l} (p, v) VALUES ({p}, {v}) IF NOT EXISTS")
            }
            Statement::UpdateIf { p, was, v } => {
                format!("UPDATE {l} SET v = {v} WHERE p = {p} IF v = {was}")
            }
            Statement::DeleteIfPresent { p } => format!("DELETE FROM {l} WHERE p = {p} IF EXISTS"),
            Statement::CreateSpare => {
                format!("CREATE TABLE IF NOT EXISTS {x} (p int PRIMARY KEY, v int)")
            }
            Statement::DropSpare => format!("DROP TABLE IF EXISTS {x}"),
            Statement::TruncateSpare => format!("TRUNCATE {x}"),
            Statement::InsertSpare { p, v } => {
                format!("INSERT INTO {x} (p, v) VALUES ({p}, {v})")
            }
        }
    }
}

/// The name of a client's table.
pub(super) fn table(name: &str, client: usize) -> String {
    format!("k.{name}{client}")
}

/// Statements that create the permanent tables of a client.
pub(super) fn creation(client: usize) -> [String; 3] {
    let (t, n, l) = (table("t", client), table("n", client), table("l", client));
    [
        format!("CREATE TABLE {t} (p int, c int, v int, PRIMARY KEY (p, c))"),
        format!("CREATE TABLE {n} (p int PRIMARY KEY, n counter)"),
        format!("CREATE TABLE {l} (p int PRIMARY KEY, v int)"),
    ]
}

fn timed(random: &mut SmallRng, lives: &[u32], number: &mut usize) -> Timed {
    let (p, c) = (random.random_range(0..PARTITIONS), random.random_range(0..ROWS));
    let v = random.random_bool(0.8).then(|| random.random_range(0..9));
    let ttl = lives[random.random_range(0..lives.len())];
    let step = match random.random_range(0..12) {
        0..4 => Step::Insert { p, c, v, ttl },
        4..8 => Step::Update { p, c, v, ttl },
        8 => Step::DeleteCell { p, c },
        9 => Step::DeleteRow { p, c },
        10 => Step::DeleteRange { p, from: c, to: ROWS },
        _ => Step::DeletePartition { p },
    };
    *number += 1;
    assert!(*number < TIMES, "timestamps would overlap with other clients'");
    (random.random_range(1..1000) * TIMES + *number, step)
}
