//! What each option of a statement that changes the schema or roles does here.
//!
//! An option without a row fails the tests, so that none is accepted, stored and forgotten.

/// What an option does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// As in Cassandra.
    Obeyed,
    /// Stored and shown, which is all that it is for.
    Shown,
    /// Stored and shown, without effect, for this reason.
    Ignored(&'static str),
    /// Each use, or each one that is not the default.
    Refused,
}

/// A statement that has options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionOwner {
    Keyspace,
    Table,
    /// A storage-attached index; others have no options.
    Index,
    Role,
}

impl OptionOwner {
    pub(crate) fn title(self) -> &'static str {
        match self {
            OptionOwner::Keyspace => "keyspaces",
            OptionOwner::Table => "tables",
            OptionOwner::Index => "storage-attached indexes",
            OptionOwner::Role => "roles",
        }
    }
}

/// An option and what it does.
#[derive(Debug, Clone, Copy)]
pub struct OptionEffect {
    pub owner: OptionOwner,
    pub name: &'static str,
    /// A use of the option that differs from its default, as in the statement.
    pub example: &'static str,
    pub effect: Effect,
}

const fn of(
    owner: OptionOwner,
    name: &'static str,
    example: &'static str,
    effect: Effect,
) -> OptionEffect {
    OptionEffect { owner, name, example, effect }
}

const ONE_COPY: Effect = Effect::Ignored("there is one copy");
const IN_MEMORY: Effect = Effect::Ignored("rows are in memory, not in SSTables");
const NO_ANN: Effect = Effect::Ignored("no query uses an index on vectors");

/// All options that statements may contain.
pub const OPTIONS: [OptionEffect; 37] = [
    of(OptionOwner::Keyspace, "replication", "replication = {'class': 'SimpleStrategy'}", ONE_COPY),
    of(
        OptionOwner::Keyspace,
        "durable_writes",
        "replication = {'class': 'SimpleStrategy'} AND durable_writes = false",
        Effect::Ignored("the durability of the server or of the connection applies"),
    ),
    of(OptionOwner::Table, "additional_write_policy", "additional_write_policy = '50p'", ONE_COPY),
    of(
        OptionOwner::Table,
        "allow_auto_snapshot",
        "allow_auto_snapshot = false",
        Effect::Ignored("no snapshot is taken before a table is dropped"),
    ),
    of(OptionOwner::Table, "bloom_filter_fp_chance", "bloom_filter_fp_chance = 0.5", IN_MEMORY),
    of(OptionOwner::Table, "caching", "caching = {'keys': 'NONE'}", IN_MEMORY),
    of(
        OptionOwner::Table,
        "cdc",
        "cdc = true",
        Effect::Ignored("`/changes` of HTTP shows all changes"),
    ),
    of(OptionOwner::Table, "clustering order", "CLUSTERING ORDER BY (c DESC)", Effect::Obeyed),
    of(OptionOwner::Table, "comment", "comment = 'x'", Effect::Shown),
    of(OptionOwner::Table, "compact storage", "COMPACT STORAGE", Effect::Refused),
    of(
        OptionOwner::Table,
        "compaction",
        "compaction = {'class': 'LeveledCompactionStrategy'}",
        IN_MEMORY,
    ),
    of(OptionOwner::Table, "compression", "compression = {'enabled': false}", IN_MEMORY),
    of(OptionOwner::Table, "crc_check_chance", "crc_check_chance = 0.5", IN_MEMORY),
    of(OptionOwner::Table, "default_time_to_live", "default_time_to_live = 60", Effect::Obeyed),
    of(OptionOwner::Table, "extensions", "extensions = {'x': 'y'}", Effect::Shown),
    of(OptionOwner::Table, "gc_grace_seconds", "gc_grace_seconds = 60", Effect::Obeyed),
    of(OptionOwner::Table, "id", "id = 5a1c395e-b41f-11e5-9f22-ba0be0483c18", Effect::Obeyed),
    of(
        OptionOwner::Table,
        "incremental_backups",
        "incremental_backups = false",
        Effect::Ignored("backups contain all tables"),
    ),
    of(OptionOwner::Table, "max_index_interval", "max_index_interval = 4096", IN_MEMORY),
    of(OptionOwner::Table, "memtable", "memtable = 'default'", IN_MEMORY),
    of(
        OptionOwner::Table,
        "memtable_flush_period_in_ms",
        "memtable_flush_period_in_ms = 60",
        IN_MEMORY,
    ),
    of(OptionOwner::Table, "min_index_interval", "min_index_interval = 60", IN_MEMORY),
    of(OptionOwner::Table, "read_repair", "read_repair = 'NONE'", ONE_COPY),
    of(OptionOwner::Table, "speculative_retry", "speculative_retry = '50p'", ONE_COPY),
    of(OptionOwner::Index, "case_sensitive", "'case_sensitive': 'false'", Effect::Obeyed),
    of(OptionOwner::Index, "normalize", "'normalize': 'true'", Effect::Obeyed),
    of(OptionOwner::Index, "ascii", "'ascii': 'true'", Effect::Obeyed),
    of(
        OptionOwner::Index,
        "maximum_node_connections",
        "'maximum_node_connections': '4'",
        Effect::Refused,
    ),
    of(
        OptionOwner::Index,
        "construction_beam_width",
        "'construction_beam_width': '4'",
        Effect::Refused,
    ),
    of(OptionOwner::Index, "similarity_function", "'similarity_function': 'cosine'", NO_ANN),
    of(OptionOwner::Index, "optimize_for", "'optimize_for': 'recall'", NO_ANN),
    of(OptionOwner::Role, "superuser", "SUPERUSER = true", Effect::Obeyed),
    of(OptionOwner::Role, "login", "LOGIN = true", Effect::Obeyed),
    of(OptionOwner::Role, "password", "PASSWORD = 'x'", Effect::Obeyed),
    of(
        OptionOwner::Role,
        "hashed password",
        "HASHED PASSWORD = '$2a$10$JSJEMFm6GeaW9XxT5JIheuEtPvat6i7uKbnTcxX3c1wshIIsGyUtG'",
        Effect::Obeyed,
    ),
    of(OptionOwner::Role, "options", "OPTIONS = {'a': 'b'}", Effect::Refused),
    of(OptionOwner::Role, "access", "ACCESS TO DATACENTERS {'a'}", Effect::Refused),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Analysis;
    use crate::roles::testing as roles;
    use crate::schema::testing::{catalog, try_change};
    use crate::schema::{INDEX_OPTIONS, TABLE_OPTIONS};

    fn names(owner: OptionOwner) -> Vec<&'static str> {
        let rows = OPTIONS.iter().filter(|row| row.owner == owner);
        rows.map(|row| row.name).collect()
    }

    /// The tables by which statements are checked have no option without a row here.
    #[test]
    fn every_accepted_option_has_a_row() {
        let tables = names(OptionOwner::Table);
        for option in &TABLE_OPTIONS {
            assert!(tables.contains(&option.name), "{}", option.name);
        }
        assert_eq!(names(OptionOwner::Index), INDEX_OPTIONS);
        for row in &OPTIONS {
            assert_eq!(names(row.owner).iter().filter(|name| **name == row.name).count(), 1);
        }
    }

    fn statement(row: &OptionEffect) -> String {
        let OptionEffect { owner, name, example, .. } = row;
        match owner {
            OptionOwner::Keyspace => format!("CREATE KEYSPACE n WITH {example}"),
            OptionOwner::Table => {
                format!("CREATE TABLE n (k int, c int, PRIMARY KEY (k, c)) WITH {example}")
            }
            OptionOwner::Index => {
                let column = if Analysis::OPTIONS.contains(name) { "a" } else { "v" };
                format!("CREATE INDEX n ON t ({column}) USING 'sai' WITH OPTIONS = {{{example}}}")
            }
            OptionOwner::Role => format!("CREATE ROLE n WITH {example}"),
        }
    }

    /// What is accepted is obeyed, shown or documented as without effect; all else is refused.
    #[test]
    fn options_are_accepted_unless_their_row_reports_a_refusal() {
        let before = catalog(&["CREATE TABLE t (k int PRIMARY KEY, a text, v vector<float, 2>)"]);
        for row in &OPTIONS {
            let text = statement(row);
            let is_accepted = if row.owner == OptionOwner::Role {
                matches!(roles::try_change(&roles::roles(&[]), &text), Ok(Some(_)))
            } else {
                matches!(try_change(&before, &text), Ok(Some(_)))
            };
            assert_eq!(is_accepted, row.effect != Effect::Refused, "{text}");
        }
    }

    /// An earlier version accepted such an index, and did not obey its options.
    #[test]
    fn a_stored_index_whose_options_cannot_be_obeyed_is_not_used() {
        let catalog = catalog(&[
            "CREATE TABLE t (k int, c text, f frozen<list<text>>, a text, PRIMARY KEY (k, c))",
            "CREATE INDEX a ON t (a) USING 'sai'",
            "CREATE INDEX c ON t (c) USING 'sai'",
            "CREATE INDEX f ON t (full(f)) USING 'sai'",
        ]);
        let table = &catalog.keyspaces["k"].tables["t"];
        for (nth, index) in table.indexes.iter().enumerate() {
            let mut index = index.clone();
            let id = table.index_id(&index);
            assert!(id.is_some());
            index.options.insert("case_sensitive".into(), "true".into());
            assert_eq!(table.index_id(&index), id, "the default");
            index.options.insert("ascii".into(), "true".into());
            assert_ne!(table.index_id(&index), id, "it has other terms");
            assert_eq!(table.index_id(&index).is_some(), nth == 0, "{}", index.name);
        }
    }

    #[test]
    fn unknown_options_are_refused() {
        let before = catalog(&["CREATE TABLE t (k int PRIMARY KEY, a text)"]);
        for text in [
            "CREATE KEYSPACE n WITH replication = {'class': 'SimpleStrategy'} AND nope = 1",
            "CREATE TABLE n (k int PRIMARY KEY) WITH nope = 1",
            "ALTER TABLE t WITH nope = 1",
            "CREATE INDEX n ON t (a) USING 'sai' WITH OPTIONS = {'nope': 'true'}",
            "CREATE INDEX n ON t (a) USING 'legacy_local_table' WITH OPTIONS = {'ascii': 'true'}",
            "CREATE TYPE n (a int) WITH nope = 1",
            "CREATE ROLE n WITH nope = true",
            "CREATE MATERIALIZED VIEW n AS SELECT * FROM t WHERE k IS NOT NULL PRIMARY KEY (k) WITH \
             comment = 'x'",
        ] {
            assert!(try_change(&before, text).is_err(), "{text}");
        }
    }
}
