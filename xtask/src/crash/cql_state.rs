//! The state of one CQL client's tables, and the statements that change it.
//!
//! The state is compared as text lines in the server's format, so that the comparison needs no
//! second definition of values.

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// Partitions and clustering keys: few, so that statements affect the same rows.
const PARTITIONS: i32 = 4;
const CLUSTERINGS: i32 = 12;
/// Keys of maps, items of sets.
const ITEMS: i32 = 6;
/// A longer list is cleared.
const LIST_ITEMS_MAX: usize = 30;
/// A TTL longer than any test run, so that no cell expires, and the displayed part of the remaining
/// TTL.
const LIFE_SECONDS: u32 = 15_000_000;
const LIFE_SHOWN: &str = "ttl(v) / 10000000";
/// Tables that are created and dropped.
const SPARES: u8 = 2;
/// Partitions written by one batch, all with the same number.
pub(crate) const PUBLISHED: [i32; 3] = [100, 101, 102];
/// A length that does not fit into the smallest segment of the log.
const LONG_BYTES: usize = 20_000;

/// One row; an empty row does not exist.
#[derive(Debug, Clone, Default, PartialEq)]
struct Row {
    /// Whether it was inserted: then it exists even without cells.
    is_inserted: bool,
    v: Option<String>,
    has_life: bool,
    n: Option<i32>,
    l: Vec<i32>,
    s: BTreeSet<i32>,
    m: BTreeMap<i32, i32>,
}

impl Row {
    fn is_there(&self) -> bool {
        self.is_inserted || *self != Row::default()
    }
}

/// All tables of one client.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct State {
    rows: BTreeMap<(i32, i32), Row>,
    statics: BTreeMap<i32, i32>,
    counters: BTreeMap<i32, i64>,
    /// Tables that are created and dropped: whether they have the second column, and their rows.
    spares: BTreeMap<u8, (bool, BTreeMap<i32, i32>)>,
    /// The last published version.
    pub(crate) version: i32,
}

/// A statement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    Change(Change),
    Batch(Vec<Change>),
    /// One number in several partitions, by a logged batch.
    Publish(i32),
    IfNotExists {
        p: i32,
        c: i32,
        v: String,
        n: i32,
    },
    IfNumber {
        p: i32,
        c: i32,
        was: i32,
        n: i32,
    },
    Count {
        k: i32,
        by: i64,
    },
    CreateSpare(u8),
    DropSpare(u8),
    WidenSpare(u8),
    InsertSpare {
        table: u8,
        k: i32,
        a: i32,
    },
    Truncate,
    /// An INSERT of a row for which all clients race.
    Race {
        k: i64,
    },
    /// A counter that all clients increment.
    Share,
}

/// A change that may be part of a batch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    Insert {
        p: i32,
        c: i32,
        v: String,
        n: i32,
    },
    /// A cell with a TTL.
    SetMortal {
        p: i32,
        c: i32,
        v: String,
    },
    Append {
        p: i32,
        c: i32,
        item: i32,
    },
    ClearList {
        p: i32,
        c: i32,
    },
    Add {
        p: i32,
        c: i32,
        item: i32,
    },
    Remove {
        p: i32,
        c: i32,
        item: i32,
    },
    Put {
        p: i32,
        c: i32,
        key: i32,
        item: i32,
    },
    Take {
        p: i32,
        c: i32,
        key: i32,
    },
    Static {
        p: i32,
        n: i32,
    },
    DeleteRow {
        p: i32,
        c: i32,
    },
    DeleteText {
        p: i32,
        c: i32,
    },
    DeleteFrom {
        p: i32,
        c: i32,
    },
    DeletePartition {
        p: i32,
    },
}

/// The required answer to a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    Done,
    Applied(bool),
    Schema,
    /// Depends on the other clients.
    Open,
}

impl State {
    /// A statement that is valid after all earlier ones.
    pub(crate) fn step(&self, random: &mut StdRng, race: i64) -> Step {
        let (p, c) = (random.random_range(0..PARTITIONS), random.random_range(0..CLUSTERINGS));
        match random.random_range(0..100) {
            0..50 => Step::Change(self.change(random)),
            50..62 => {
                let count = random.random_range(2..6);
                let mut changes: Vec<Change> = Vec::new();
                for _ in 0..count {
                    let change = self.change(random);
                    // All changes of a batch have one timestamp, so changes of the same cell would
                    // have no order.
                    if changes.iter().all(|other| !other.meets(&change)) {
                        changes.push(change);
                    }
                }
                Step::Batch(changes)
            }
            62..70 => Step::Publish(self.version + 1),
            70..76 => Step::IfNotExists { p, c, v: text(random), n: random.random_range(0..4) },
            76..80 => Step::IfNumber {
                p,
                c,
                was: random.random_range(0..4),
                n: random.random_range(0..4),
            },
            80..87 => Step::Count { k: p, by: random.random_range(-5..20) },
            87..90 => Step::Share,
            90..93 => Step::Race { k: race },
            93 => {
                if random.random_bool(0.2) {
                    Step::Truncate
                } else {
                    Step::Share
                }
            }
            _ => self.schema_step(random),
        }
    }

    fn schema_step(&self, random: &mut StdRng) -> Step {
        let table = random.random_range(0..SPARES);
        match self.spares.get(&table) {
            None => Step::CreateSpare(table),
            Some((false, _)) if random.random_bool(0.2) => Step::WidenSpare(table),
            Some(_) if random.random_bool(0.2) => Step::DropSpare(table),
            Some(_) => {
                let (k, a) = (random.random_range(0..8), random.random_range(0..100));
                Step::InsertSpare { table, k, a }
            }
        }
    }

    fn change(&self, random: &mut StdRng) -> Change {
        let (p, c) = (random.random_range(0..PARTITIONS), random.random_range(0..CLUSTERINGS));
        let item = random.random_range(0..ITEMS);
        let key = random.random_range(0..ITEMS);
        match random.random_range(0..20) {
            0..6 => {
                let (v, n) = (text(random), random.random_range(0..4));
                if random.random_bool(0.2) {
                    return Change::SetMortal { p, c, v };
                }
                Change::Insert { p, c, v, n }
            }
            6 | 7 => match self.rows.get(&(p, c)) {
                Some(row) if row.l.len() >= LIST_ITEMS_MAX => Change::ClearList { p, c },
                _ => Change::Append { p, c, item },
            },
            8 | 9 => Change::Add { p, c, item },
            10 => Change::Remove { p, c, item },
            11 | 12 => Change::Put { p, c, key, item },
            13 => Change::Take { p, c, key },
            14 => Change::Static { p, n: item },
            15 | 16 => Change::DeleteRow { p, c },
            17 => Change::DeleteText { p, c },
            18 => Change::DeleteFrom { p, c: random.random_range(CLUSTERINGS / 2..CLUSTERINGS) },
            _ if random.random_bool(0.3) => Change::DeletePartition { p },
            _ => Change::Append { p, c, item },
        }
    }

    /// Applies a statement, and returns the expected answer.
    pub(crate) fn take(&mut self, step: &Step) -> Expected {
        match step {
            Step::Change(change) => self.apply(change),
            Step::Batch(changes) => changes.iter().for_each(|change| self.apply(change)),
            Step::Publish(version) => self.version = *version,
            Step::IfNotExists { p, c, v, n } => {
                if self.rows.get(&(*p, *c)).is_some_and(Row::is_there) {
                    return Expected::Applied(false);
                }
                let (p, c, v, n) = (*p, *c, v.clone(), *n);
                self.apply(&Change::Insert { p, c, v, n });
                return Expected::Applied(true);
            }
            Step::IfNumber { p, c, was, n } => {
                let row = self.rows.get_mut(&(*p, *c));
                let Some(row) = row.filter(|row| row.n == Some(*was)) else {
                    return Expected::Applied(false);
                };
                row.n = Some(*n);
                return Expected::Applied(true);
            }
            Step::Count { k, by } => *self.counters.entry(*k).or_default() += by,
            Step::CreateSpare(table) => {
                self.spares.insert(*table, (false, BTreeMap::new()));
                return Expected::Schema;
            }
            Step::DropSpare(table) => {
                self.spares.remove(table);
                return Expected::Schema;
            }
            Step::WidenSpare(table) => {
                self.spares.entry(*table).or_default().0 = true;
                return Expected::Schema;
            }
            Step::InsertSpare { table, k, a } => {
                self.spares.entry(*table).or_default().1.insert(*k, *a);
            }
            Step::Truncate => {
                self.rows.clear();
                self.statics.clear();
            }
            Step::Race { .. } => return Expected::Open,
            Step::Share => {}
        }
        Expected::Done
    }

    fn row(&mut self, p: i32, c: i32) -> &mut Row {
        self.rows.entry((p, c)).or_default()
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Insert { p, c, v, n } => {
                let row = self.row(*p, *c);
                row.is_inserted = true;
                (row.v, row.n, row.has_life) = (Some(v.clone()), Some(*n), false);
            }
            Change::SetMortal { p, c, v } => {
                let row = self.row(*p, *c);
                (row.v, row.has_life) = (Some(v.clone()), true);
            }
            Change::Append { p, c, item } => self.row(*p, *c).l.push(*item),
            Change::ClearList { p, c } => self.row(*p, *c).l.clear(),
            Change::Add { p, c, item } => drop(self.row(*p, *c).s.insert(*item)),
            Change::Remove { p, c, item } => drop(self.row(*p, *c).s.remove(item)),
            Change::Put { p, c, key, item } => drop(self.row(*p, *c).m.insert(*key, *item)),
            Change::Take { p, c, key } => drop(self.row(*p, *c).m.remove(key)),
            Change::Static { p, n } => drop(self.statics.insert(*p, *n)),
            Change::DeleteRow { p, c } => drop(self.rows.remove(&(*p, *c))),
            Change::DeleteText { p, c } => {
                let row = self.row(*p, *c);
                (row.v, row.has_life) = (None, false);
            }
            Change::DeleteFrom { p, c } => {
                self.rows.retain(|(partition, row), _| partition != p || row < c);
            }
            Change::DeletePartition { p } => {
                self.rows.retain(|(partition, _), _| partition != p);
                self.statics.remove(p);
            }
        }
        self.rows.retain(|_, row| row.is_there());
    }

    /// The lines that reading the tables of `client` returns: table and row.
    pub(crate) fn lines(&self, client: &str) -> BTreeSet<String> {
        let shown = |number: Option<i32>| number.map_or("null".to_owned(), |it| it.to_string());
        let mut lines = BTreeSet::new();
        let mut partitions: BTreeSet<i32> = self.statics.keys().copied().collect();
        for ((p, c), row) in &self.rows {
            partitions.remove(p);
            let text = row.v.as_ref().map_or("null".to_owned(), |text| format!("'{text}'"));
            let life = if row.has_life && row.v.is_some() { "1" } else { "null" };
            let list = collection('[', ']', row.l.iter().map(ToString::to_string));
            let set = collection('{', '}', row.s.iter().map(ToString::to_string));
            let map =
                collection('{', '}', row.m.iter().map(|(key, item)| format!("{key}: {item}")));
            let (number, of_all) = (shown(row.n), shown(self.statics.get(p).copied()));
            lines.insert(format!(
                "{client}_rows {p} | {c} | {of_all} | {text} | {life} | {number} | {list} | {set} | {map}"
            ));
        }
        for p in partitions {
            let of_all = shown(self.statics.get(&p).copied());
            let nulls = ["null"; 6].join(" | ");
            lines.insert(format!("{client}_rows {p} | null | {of_all} | {nulls}"));
        }
        if self.version > 0 {
            for p in PUBLISHED {
                lines.insert(format!("{client}_published {p} | {}", self.version));
            }
        }
        for (k, n) in &self.counters {
            lines.insert(format!("{client}_counts {k} | {n}"));
        }
        for (table, (is_wide, rows)) in &self.spares {
            let columns = if *is_wide { "'a', 'b', 'k'" } else { "'a', 'k'" };
            lines.insert(format!("{client}_spare{table} has {columns}"));
            for (k, a) in rows {
                lines.insert(format!("{client}_spare{table} {k} | {a}"));
            }
        }
        lines
    }
}

/// Statements that create the tables of `client`.
pub(crate) fn creation(client: &str) -> [String; 3] {
    [
        format!(
            "CREATE TABLE IF NOT EXISTS crash.{client}_rows (p int, c int, st int static, v text, \
             n int, l list<int>, s set<int>, m map<int, int>, PRIMARY KEY (p, c))"
        ),
        format!("CREATE TABLE IF NOT EXISTS crash.{client}_counts (k int PRIMARY KEY, n counter)"),
        format!("CREATE TABLE IF NOT EXISTS crash.{client}_published (k int PRIMARY KEY, n int)"),
    ]
}

/// Statements that read all rows of `client`; their results are [`State::lines`].
pub(crate) fn read_rows(client: &str) -> [(String, String); 3] {
    [
        (
            format!("{client}_rows"),
            format!("SELECT p, c, st, v, {LIFE_SHOWN}, n, l, s, m FROM crash.{client}_rows"),
        ),
        (format!("{client}_counts"), format!("SELECT k, n FROM crash.{client}_counts")),
        (format!("{client}_published"), format!("SELECT k, n FROM crash.{client}_published")),
    ]
}

/// The names of the tables that are created and dropped.
pub(crate) fn spares(client: &str) -> impl Iterator<Item = String> {
    (0..SPARES).map(move |table| format!("{client}_spare{table}"))
}

impl Step {
    pub(crate) fn statement(&self, client: &str) -> String {
        let rows = format!("crash.{client}_rows");
        let spare = |table: &u8| format!("crash.{client}_spare{table}");
        match self {
            Step::Change(change) => change.statement(client),
            Step::Batch(changes) => {
                let changes: Vec<String> =
                    changes.iter().map(|change| change.statement(client)).collect();
                format!("BEGIN BATCH {}; APPLY BATCH", changes.join("; "))
            }
            Step::Publish(version) => publish(client, *version),
            Step::IfNotExists { p, c, v, n } => format!(
                "INSERT INTO {rows} (p, c, v, n) VALUES ({p}, {c}, '{v}', {n}) IF NOT EXISTS"
            ),
            Step::IfNumber { p, c, was, n } => {
                format!("UPDATE {rows} SET n = {n} WHERE p = {p} AND c = {c} IF n = {was}")
            }
            Step::Count { k, by } => {
                format!("UPDATE crash.{client}_counts SET n = n + {by} WHERE k = {k}")
            }
            Step::CreateSpare(table) => {
                format!("CREATE TABLE {} (k int PRIMARY KEY, a int)", spare(table))
            }
            Step::DropSpare(table) => format!("DROP TABLE {}", spare(table)),
            Step::WidenSpare(table) => format!("ALTER TABLE {} ADD b int", spare(table)),
            Step::InsertSpare { table, k, a } => {
                format!("INSERT INTO {} (k, a) VALUES ({k}, {a})", spare(table))
            }
            Step::Truncate => format!("TRUNCATE {rows}"),
            Step::Race { k } => {
                format!("INSERT INTO crash.race (k, winner) VALUES ({k}, '{client}') IF NOT EXISTS")
            }
            Step::Share => "UPDATE crash.shared SET n = n + 1 WHERE k = 0".to_owned(),
        }
    }
}

/// One number in several partitions.
fn publish(client: &str, version: i32) -> String {
    let parts = PUBLISHED
        .map(|p| format!("INSERT INTO crash.{client}_published (k, n) VALUES ({p}, {version})"));
    format!("BEGIN BATCH {}; APPLY BATCH", parts.join("; "))
}

/// Reads the published version from one of [`PUBLISHED`].
pub(crate) fn read_published(client: &str, place: usize) -> String {
    let p = PUBLISHED[place];
    format!("SELECT n FROM crash.{client}_published WHERE k = {p}")
}

fn collection(open: char, close: char, items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() { "null".to_owned() } else { format!("{open}{}{close}", items.join(", ")) }
}

fn text(random: &mut StdRng) -> String {
    if random.random_bool(0.005) {
        return "x".repeat(LONG_BYTES);
    }
    let words = ["one", "two", "three", ""];
    format!("{}{}", words.choose(random).expect("four"), random.random_range(0..1000))
}

impl Change {
    /// Whether the order of the two matters.
    fn meets(&self, other: &Change) -> bool {
        let (one, two) = (self.place(), other.place());
        one.0 == two.0 && (one.1.is_none() || two.1.is_none() || one.1 == two.1)
    }

    /// The partition, and the row if there is one.
    fn place(&self) -> (i32, Option<i32>) {
        match self {
            Change::Insert { p, c, .. }
            | Change::SetMortal { p, c, .. }
            | Change::Append { p, c, .. }
            | Change::ClearList { p, c }
            | Change::Add { p, c, .. }
            | Change::Remove { p, c, .. }
            | Change::Put { p, c, .. }
            | Change::Take { p, c, .. }
            | Change::DeleteRow { p, c }
            | Change::DeleteText { p, c } => (*p, Some(*c)),
            Change::DeleteFrom { p, .. }
            | Change::Static { p, .. }
            | Change::DeletePartition { p } => (*p, None),
        }
    }

    fn statement(&self, client: &str) -> String {
        let table = format!("crash.{client}_rows");
        let at = |p: &i32, c: &i32| format!("WHERE p = {p} AND c = {c}");
        match self {
            Change::Insert { p, c, v, n } => {
                format!("INSERT INTO {table} (p, c, v, n) VALUES ({p}, {c}, '{v}', {n})")
            }
            Change::SetMortal { p, c, v } => {
                format!("UPDATE {table} USING TTL {LIFE_SECONDS} SET v = '{v}' {}", at(p, c))
            }
            Change::Append { p, c, item } => {
                format!("UPDATE {table} SET l = l + [{item}] {}", at(p, c))
            }
            Change::ClearList { p, c } => format!("DELETE l FROM {table} {}", at(p, c)),
            Change::Add { p, c, item } => {
                format!("UPDATE {table} SET s = s + {{{item}}} {}", at(p, c))
            }
            Change::Remove { p, c, item } => {
                format!("UPDATE {table} SET s = s - {{{item}}} {}", at(p, c))
            }
            Change::Put { p, c, key, item } => {
                format!("UPDATE {table} SET m[{key}] = {item} {}", at(p, c))
            }
            Change::Take { p, c, key } => format!("DELETE m[{key}] FROM {table} {}", at(p, c)),
            Change::Static { p, n } => format!("UPDATE {table} SET st = {n} WHERE p = {p}"),
            Change::DeleteRow { p, c } => format!("DELETE FROM {table} {}", at(p, c)),
            Change::DeleteText { p, c } => format!("DELETE v FROM {table} {}", at(p, c)),
            Change::DeleteFrom { p, c } => {
                format!("DELETE FROM {table} WHERE p = {p} AND c >= {c}")
            }
            Change::DeletePartition { p } => format!("DELETE FROM {table} WHERE p = {p}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn insert(p: i32, c: i32) -> Change {
        Change::Insert { p, c, v: "x".to_owned(), n: 1 }
    }

    #[test]
    fn rows_stay_as_long_as_anything_of_them_does() {
        let mut state = State::default();
        state.take(&Step::Change(Change::Append { p: 1, c: 1, item: 5 }));
        assert_eq!(
            state.lines("a").into_iter().collect::<Vec<_>>(),
            ["a_rows 1 | 1 | null | null | null | null | [5] | null | null"]
        );
        state.take(&Step::Change(Change::ClearList { p: 1, c: 1 }));
        assert_eq!(state, State::default());
        state.take(&Step::Change(insert(1, 2)));
        state.take(&Step::Change(Change::DeleteText { p: 1, c: 2 }));
        assert_eq!(state.lines("a").len(), 1, "it was inserted");
        state.take(&Step::Change(Change::Static { p: 1, n: 3 }));
        state.take(&Step::Change(Change::DeleteFrom { p: 1, c: 2 }));
        assert_eq!(
            state.lines("a").into_iter().collect::<Vec<_>>(),
            ["a_rows 1 | null | 3 | null | null | null | null | null | null"]
        );
    }

    #[test]
    fn conditions_hold_or_not() {
        let mut state = State::default();
        let step = Step::IfNotExists { p: 0, c: 0, v: String::new(), n: 2 };
        assert_eq!(state.take(&step), Expected::Applied(true));
        assert_eq!(state.take(&step), Expected::Applied(false));
        let step = Step::IfNumber { p: 0, c: 0, was: 2, n: 3 };
        assert_eq!(state.take(&step), Expected::Applied(true));
        assert_eq!(state.take(&step), Expected::Applied(false));
    }

    #[test]
    fn conflicts_within_a_batch_are_seen() {
        assert!(insert(1, 1).meets(&Change::DeleteRow { p: 1, c: 1 }));
        assert!(insert(1, 1).meets(&Change::DeletePartition { p: 1 }));
        assert!(!insert(1, 1).meets(&insert(1, 2)));
        assert!(!insert(1, 1).meets(&insert(2, 1)));
    }

    #[test]
    fn every_kind_of_step_comes_up() {
        let (mut random, mut state) = (StdRng::seed_from_u64(1), State::default());
        let mut kinds = BTreeSet::new();
        for _ in 0..2000 {
            let step = state.step(&mut random, 1);
            let text = format!("{step:?}");
            kinds.insert(text.split([' ', '(']).next().unwrap_or_default().to_owned());
            state.take(&step);
        }
        assert_eq!(kinds.len(), 13, "{kinds:?}");
    }
}
