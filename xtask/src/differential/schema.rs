//! A random table.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::term::Term;
use super::types::{Type, USER_TYPE};

/// Placeholder of the table's name.
pub(super) const TABLE: &str = "$T";

/// Different values of one key column: few, so that statements affect the same rows.
const KEY_VALUES_MAX: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Partition,
    Clustering { is_descending: bool },
    Static,
    Regular,
}

#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) of: Type,
    pub(super) role: Role,
    /// For a key column: its possible values.
    values: Vec<Term>,
}

impl Column {
    pub(super) fn term(&self, random: &mut StdRng) -> Term {
        match self.values.choose(random) {
            Some(value) => value.clone(),
            None => self.of.term(random),
        }
    }

    /// A term of CQL that may be sent as a value.
    pub(super) fn marked(&self, random: &mut StdRng) -> String {
        self.term(random).marked()
    }

    pub(super) fn is_key(&self) -> bool {
        matches!(self.role, Role::Partition | Role::Clustering { .. })
    }
}

/// The source of write timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Times {
    /// The client, from a short range, so that writes arrive late and with equal timestamps.
    Client,
    /// The server: then conditions are possible, but timestamps cannot be compared.
    Server,
}

#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    pub(super) user: Vec<(String, Type)>,
    pub(super) is_counter: bool,
    pub(super) times: Times,
    /// Whether rows are inserted with a TTL: Cassandra returns their remains only if all columns
    /// are selected.
    pub(super) rows_expire: bool,
    /// Targets of indexes: names of columns, possibly inside a function.
    pub(super) indexes: Vec<String>,
    options: Vec<String>,
    /// Number of columns added so far: names are used only once.
    added: usize,
}

impl Table {
    pub(super) fn random(random: &mut StdRng) -> Table {
        let user = Type::fields(random);
        let is_counter = random.random_bool(0.1);
        let mut columns = Vec::new();
        let count = *[1, 1, 2].choose(random).expect("three");
        for at in 0..count {
            columns.push(key(random, &user, format!("p{at}"), Role::Partition));
        }
        let clustering = *[0, 1, 1, 2, 2, 3].choose(random).expect("six");
        for at in 0..clustering {
            let role = Role::Clustering { is_descending: random.random_bool(0.4) };
            columns.push(key(random, &user, format!("c{at}"), role));
        }
        let mut value = |name: String, role, random: &mut StdRng| {
            let of = if is_counter { Type::native("counter") } else { Type::value(random, &user) };
            columns.push(Column { name, of, role, values: Vec::new() });
        };
        if clustering > 0 && random.random_bool(0.4) {
            for at in 0..random.random_range(1..3) {
                value(format!("s{at}"), Role::Static, random);
            }
        }
        // A table may consist of key columns only, unless it has counters.
        for at in 0..random.random_range(i32::from(is_counter)..6) {
            let name = if at == 4 { "\"V 4\"".to_owned() } else { format!("v{at}") };
            value(name, Role::Regular, random);
        }
        let is_server = random.random_bool(0.4) && !is_counter;
        let times = if is_server { Times::Server } else { Times::Client };
        let indexes = if is_counter { Vec::new() } else { indexes(random, &columns) };
        let (rows_expire, options) = (false, Vec::new());
        let mut table =
            Table { columns, user, is_counter, times, rows_expire, indexes, options, added: 0 };
        table.rows_expire = !is_counter && table.cells_expire() && random.random_bool(0.25);
        if table.rows_expire && random.random_bool(0.4) {
            let life = random.random_range(5..40);
            table.options.push(format!("default_time_to_live = {life}"));
        }
        table
    }

    /// ALTER TABLE or TRUNCATE, and the resulting table.
    pub(super) fn alter(&mut self, random: &mut StdRng) -> String {
        let droppable = |column: &Column| {
            !column.is_key() && !self.indexes.iter().any(|index| index.contains(&column.name))
        };
        let droppable: Vec<usize> =
            (0..self.columns.len()).filter(|at| droppable(&self.columns[*at])).collect();
        match random.random_range(0..10) {
            0 => format!("TRUNCATE {TABLE}"),
            1..4 if droppable.len() > 1 => {
                let at = *droppable.choose(random).expect("there are some");
                format!("ALTER TABLE {TABLE} DROP {}", self.columns.remove(at).name)
            }
            4 => {
                let keys: Vec<usize> =
                    (0..self.columns.len()).filter(|at| self.columns[*at].is_key()).collect();
                let at = *keys.choose(random).expect("a table has a key");
                let name = self.new_name('k');
                let old = std::mem::replace(&mut self.columns[at].name, name.clone());
                if self.indexes.iter().any(|index| index.contains(&old)) {
                    // Rejected, because an index uses it.
                    self.columns[at].name.clone_from(&old);
                }
                format!("ALTER TABLE {TABLE} RENAME {old} TO {name}")
            }
            _ => {
                let of = if self.is_counter {
                    Type::native("counter")
                } else {
                    Type::value(random, &self.user)
                };
                let is_static = self.clustering().next().is_some() && random.random_bool(0.3);
                let role = if is_static { Role::Static } else { Role::Regular };
                let suffix = if is_static { " static" } else { "" };
                let name = self.new_name('w');
                let text = format!("ALTER TABLE {TABLE} ADD {name} {}{suffix}", of.name());
                self.columns.push(Column { name, of, role, values: Vec::new() });
                text
            }
        }
    }

    fn new_name(&mut self, letter: char) -> String {
        self.added += 1;
        format!("{letter}new{}", self.added)
    }

    /// Whether cells may have a TTL. For the entries of an index on a key, Cassandra computes the
    /// TTL from its own clock, whatever the request specifies.
    pub(super) fn cells_expire(&self) -> bool {
        let mut keys = self.columns.iter().filter(|column| column.is_key());
        !keys.any(|key| self.indexes.iter().any(|index| index.contains(&key.name)))
    }

    /// The statements that create it.
    pub(super) fn creation(&self) -> Vec<String> {
        let fields: Vec<String> =
            self.user.iter().map(|(name, of)| format!("{name} {}", of.name())).collect();
        let mut columns = Vec::new();
        for column in &self.columns {
            let suffix = if column.role == Role::Static { " static" } else { "" };
            columns.push(format!("{} {}{suffix}", column.name, column.of.name()));
        }
        let partition: Vec<&str> = self.partition().map(|column| column.name.as_str()).collect();
        let mut key = format!("({})", partition.join(", "));
        let mut order = Vec::new();
        for column in self.clustering() {
            key = format!("{key}, {}", column.name);
            let is_descending = column.role == Role::Clustering { is_descending: true };
            order.push(format!("{} {}", column.name, if is_descending { "DESC" } else { "ASC" }));
        }
        columns.push(format!("PRIMARY KEY ({key})"));
        let mut options = self.options.clone();
        if !order.is_empty() {
            options.push(format!("CLUSTERING ORDER BY ({})", order.join(", ")));
        }
        let mut table = format!("CREATE TABLE {TABLE} ({})", columns.join(", "));
        if !options.is_empty() {
            table = format!("{table} WITH {}", options.join(" AND "));
        }
        let mut statements =
            vec![format!("CREATE TYPE {USER_TYPE} ({})", fields.join(", ")), table];
        let indexes = self.indexes.iter();
        statements.extend(indexes.map(|target| format!("CREATE INDEX ON {TABLE} ({target})")));
        statements
    }

    pub(super) fn partition(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| column.role == Role::Partition)
    }

    pub(super) fn clustering(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| matches!(column.role, Role::Clustering { .. }))
    }

    pub(super) fn statics(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| column.role == Role::Static)
    }

    /// Columns outside the key.
    pub(super) fn values(&self) -> Vec<&Column> {
        self.columns.iter().filter(|column| !column.is_key()).collect()
    }
}

/// On a third of the tables, each of some columns once.
fn indexes(random: &mut StdRng, columns: &[Column]) -> Vec<String> {
    if random.random_bool(0.67) {
        return Vec::new();
    }
    let count = random.random_range(1..4);
    let chosen = columns.choose_multiple(random, count).collect::<Vec<_>>().into_iter();
    let targets = chosen.map(|column| {
        let name = &column.name;
        let words: &[&str] = match &column.of {
            Type::Map(..) => &["keys", "values", "entries"],
            Type::Frozen(of) if matches!(**of, Type::List(_) | Type::Set(_) | Type::Map(..)) => {
                &["full"]
            }
            _ => return name.clone(),
        };
        format!("{}({name})", words.choose(random).expect("some"))
    });
    targets.collect()
}

fn key(random: &mut StdRng, user: &[(String, Type)], name: String, role: Role) -> Column {
    let of = Type::key(random, user);
    let values = (0..KEY_VALUES_MAX).map(|_| of.key_term(random)).collect();
    Column { name, of, role, values }
}
