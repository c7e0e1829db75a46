//! The effect of a statement on the schema.
//!
//! [`change`] is pure: it takes a catalog and returns a new one, with the difference between the
//! two as rows of `system_schema`. Its caller holds the lock of the schema, appends rows and
//! truncations to the log as one record, and publishes the catalog.

use std::sync::Arc;

use uuid::Uuid;
use wire::cql::{SchemaChange, SchemaTarget};

use super::names::keyspace_of;
use super::row::{RowId, Rows};
use super::rows::{difference, version};
use super::unusable::{SchemaObject, UnusableRow};
use super::{Catalog, alter_table, indexes, keyspaces, tables, user_types};
use crate::error::CqlError;
use crate::statements::{Dropped, Statement};

/// Inputs of a change other than the catalog and the statement.
#[derive(Debug, Clone, Copy)]
pub struct ChangeContext<'a> {
    /// The keyspace in use, for unqualified names.
    pub keyspace: Option<&'a str>,
    /// The id of a table to be created, unless the statement specifies one.
    pub table_id: Uuid,
    /// Microseconds since the epoch, later than every earlier change: the time of dropping columns.
    pub timestamp: i64,
    /// Other masters may change the schema at the same time.
    pub is_in_group: bool,
}

/// A change of the schema that has not been written.
#[derive(Debug, Clone)]
pub struct Change {
    pub catalog: Arc<Catalog>,
    /// The new content of rows: earlier cells that are missing must be deleted.
    pub written: Rows,
    pub deleted: Vec<RowId>,
    /// Tables whose partitions are deleted.
    pub truncated: Vec<Uuid>,
    pub event: Event,
}

/// The description of a change for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub verb: Verb,
    pub keyspace: String,
    pub target: Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Created,
    Updated,
    Dropped,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Keyspace,
    Table(String),
    Type(String),
}

impl Event {
    pub fn wire(&self) -> SchemaChange<'_> {
        let keyspace = self.keyspace.as_str();
        let target = match &self.target {
            Target::Keyspace => SchemaTarget::Keyspace(keyspace),
            Target::Table(name) => SchemaTarget::Table { keyspace, name },
            Target::Type(name) => SchemaTarget::Type { keyspace, name },
        };
        let change = match self.verb {
            Verb::Created => "CREATED",
            Verb::Updated => "UPDATED",
            Verb::Dropped => "DROPPED",
        };
        SchemaChange { change, target }
    }
}

/// The catalog after a statement, and the event for clients. None: IF (NOT) EXISTS makes it a
/// no-op.
pub(super) type ChangeResult = Result<Option<(Catalog, Event)>, CqlError>;

/// Applies a statement to the schema. None: the statement was a no-op, and the reply is empty.
pub fn change(
    catalog: &Catalog,
    statement: &Statement,
    cx: &ChangeContext<'_>,
) -> Result<Option<Change>, CqlError> {
    if let Some(change) = drop_unusable(catalog, statement, cx)? {
        return Ok(Some(change));
    }
    let outcome = match statement {
        Statement::CreateKeyspace(create) => keyspaces::create(catalog, create),
        Statement::AlterKeyspace(alter) => keyspaces::alter(catalog, alter),
        Statement::CreateTable(create) => tables::create(catalog, create, cx),
        Statement::AlterTable(alter) => alter_table::alter(catalog, alter, cx),
        Statement::CreateType(create) => user_types::create(catalog, create, cx),
        Statement::AlterType(alter) => user_types::alter(catalog, alter, cx),
        Statement::CreateIndex(create) => indexes::create(catalog, create, cx),
        Statement::Drop(drop) => match &drop.what {
            Dropped::Keyspace(name) => keyspaces::drop(catalog, name, drop.if_exists),
            Dropped::Table(name) => tables::drop(catalog, name, drop.if_exists, cx),
            Dropped::Type(name) => user_types::drop(catalog, name, drop.if_exists, cx),
            Dropped::Index(name) => indexes::drop(catalog, name, drop.if_exists, cx),
            Dropped::Role(_) => return Err(no_change()),
        },
        _ => return Err(no_change()),
    };
    let Some((mut after, event)) = outcome? else { return Ok(None) };
    let is_conditional = match statement {
        Statement::CreateKeyspace(create) => create.if_not_exists,
        Statement::CreateTable(create) => create.if_not_exists,
        Statement::CreateType(create) => create.if_not_exists,
        _ => false,
    };
    if is_conditional && after.unusable.iter().any(|row| replaces(&event, row)) {
        return Err(CqlError::invalid(
            "Rows with this name were received that are incomplete: wait for the other servers, or \
             delete them by DROP, or by CREATE without IF NOT EXISTS",
        ));
    }
    let mut found = difference(catalog, &after);
    let replaced = after.unusable.extract_if(.., |row| replaces(&event, row));
    let replaced = replaced.map(|row| row.id).filter(|id| !found.written.contains_key(id));
    found.deleted.extend(replaced);
    after.fingerprint = catalog.fingerprint.wrapping_add(found.fingerprint);
    after.version = version(after.fingerprint);
    Ok(Some(Change {
        catalog: Arc::new(after),
        written: found.written,
        deleted: found.deleted,
        truncated: found.truncated,
        event,
    }))
}

/// The change of a DROP TABLE or DROP TYPE of something that is not usable: its rows are deleted.
fn drop_unusable(
    catalog: &Catalog,
    statement: &Statement,
    cx: &ChangeContext<'_>,
) -> Result<Option<Change>, CqlError> {
    let Statement::Drop(drop) = statement else { return Ok(None) };
    let (name, target) = match &drop.what {
        Dropped::Table(name) => (name, Target::Table(name.name.clone())),
        Dropped::Type(name) => (name, Target::Type(name.name.clone())),
        _ => return Ok(None),
    };
    let keyspace = keyspace_of(name, cx)?;
    let is_usable = catalog.keyspace(keyspace).is_some_and(|keyspace| {
        let (tables, types) = (&keyspace.tables, &keyspace.types);
        tables.contains_key(&name.name) && matches!(target, Target::Table(_))
            || types.contains_key(&name.name) && matches!(target, Target::Type(_))
    });
    let event = Event { verb: Verb::Dropped, keyspace: keyspace.to_owned(), target };
    if is_usable || !catalog.unusable.iter().any(|row| replaces(&event, row)) {
        return Ok(None);
    }
    let mut after = catalog.clone();
    let deleted = after.unusable.extract_if(.., |row| replaces(&event, row));
    let deleted = deleted.map(|row| row.id).collect();
    let (written, truncated) = (Rows::new(), Vec::new());
    Ok(Some(Change { catalog: Arc::new(after), written, deleted, truncated, event }))
}

/// Whether a change creates or drops the keyspace, table or type of a row that is not usable: the
/// row is deleted, so that what is created begins empty.
fn replaces(event: &Event, row: &UnusableRow) -> bool {
    let is_its = match (&event.target, &row.object) {
        (Target::Keyspace, _) => true,
        (Target::Table(name), SchemaObject::Table(object))
        | (Target::Type(name), SchemaObject::Type(object)) => name == object,
        _ => false,
    };
    let is_whole = matches!(event.verb, Verb::Created | Verb::Dropped);
    is_whole && row.keyspace == event.keyspace && is_its
}

/// Whether [`change`] executes the statement.
pub fn changes_schema(statement: &Statement) -> bool {
    match statement {
        Statement::CreateKeyspace(_)
        | Statement::AlterKeyspace(_)
        | Statement::CreateTable(_)
        | Statement::AlterTable(_)
        | Statement::CreateType(_)
        | Statement::AlterType(_)
        | Statement::CreateIndex(_) => true,
        Statement::Drop(drop) => !matches!(drop.what, Dropped::Role(_)),
        _ => false,
    }
}

fn no_change() -> CqlError {
    CqlError::Server("the statement does not change the schema".into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::builtin;
    use super::super::load::from_rows;
    use super::super::testing::{all_rows, apply, catalog, try_change};
    use super::*;

    const START: [&str; 7] = [
        "CREATE TYPE address (street text, codes frozen<set<int>>)",
        "CREATE TYPE person (name text, home frozen<address>)",
        "CREATE TABLE t (a int, b text, c int, s int STATIC, v text, m map<text, int>, \
         f frozen<list<int>>, p frozen<person>, PRIMARY KEY ((a, b), c)) \
         WITH CLUSTERING ORDER BY (c DESC) AND comment = 'it''s'",
        "CREATE TABLE counts (a int PRIMARY KEY, n counter)",
        "CREATE TABLE keyed (p frozen<address> PRIMARY KEY, v int)",
        "CREATE INDEX by_v ON t (v)",
        "CREATE TABLE \"Odd\" (\"K\" int PRIMARY KEY, \"select\" text)",
    ];

    fn check(statement: &str, expected: &str) {
        let found = match try_change(&catalog(&START), statement) {
            Err(CqlError::Config(text)) => format!("Config: {text}"),
            Err(CqlError::Unauthorized(text)) => format!("Unauthorized: {text}"),
            Err(CqlError::Syntax(text)) => format!("Syntax: {text}"),
            Err(CqlError::AlreadyExists { keyspace, table, message }) => {
                format!("AlreadyExists {keyspace}.{table}: {message}")
            }
            Err(CqlError::Invalid(text)) => text,
            Err(other) => format!("{other:?}"),
            Ok(None) => "nothing".to_owned(),
            Ok(Some(change)) => {
                let SchemaChange { change, target } = change.event.wire();
                format!("{change} {target:?}")
            }
        };
        assert_eq!(found, expected, "{statement}");
    }

    #[test]
    fn keyspaces_are_made_changed_and_dropped() {
        for (statement, expected) in [
            ("CREATE KEYSPACE k", "Missing mandatory option 'replication'"),
            (
                "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy'}",
                "AlreadyExists k.: Cannot add existing keyspace \"k\"",
            ),
            (
                "CREATE KEYSPACE IF NOT EXISTS k WITH replication = {'class': 'SimpleStrategy'}",
                "nothing",
            ),
            (
                "CREATE KEYSPACE n WITH replication = {'class': 'NetworkTopologyStrategy', \
                 'datacenter1': 3}",
                "CREATED Keyspace(\"n\")",
            ),
            (
                "CREATE KEYSPACE n WITH replication = {'class': 'NetworkTopologyStrategy', 'dc': 3}",
                "Config: Unrecognized strategy option {dc} passed to NetworkTopologyStrategy for \
                 keyspace n",
            ),
            (
                "CREATE KEYSPACE n WITH replication = {'class': 'LocalStrategy'}",
                "Unable to use given strategy class: LocalStrategy is reserved for internal use.",
            ),
            (
                "CREATE KEYSPACE n WITH replication = {'class': 'X'}",
                "Config: Unable to find replication strategy class 'org.apache.cassandra.locator.X'",
            ),
            (
                "CREATE KEYSPACE n WITH replication = {'replication_factor': 1}",
                "Config: Missing replication strategy class",
            ),
            (
                "CREATE KEYSPACE n WITH replication = {'class': 'SimpleStrategy', \
                 'replication_factor': -1}",
                "Config: Replication factor must be non-negative; found -1",
            ),
            ("CREATE KEYSPACE n WITH x = 1", "Syntax: Unknown property 'x'"),
            (
                "CREATE KEYSPACE \"a b\" WITH replication = {'class': 'SimpleStrategy'}",
                "Keyspace name must not be empty and must contain alphanumeric or underscore \
                 characters only (got \"a b\")",
            ),
            ("ALTER KEYSPACE k WITH durable_writes = false", "UPDATED Keyspace(\"k\")"),
            ("ALTER KEYSPACE x WITH durable_writes = false", "Keyspace 'x' doesn't exist"),
            ("ALTER KEYSPACE IF EXISTS x WITH durable_writes = false", "nothing"),
            (
                "ALTER KEYSPACE system_auth WITH replication = {'class': 'SimpleStrategy', \
                 'replication_factor': 3}",
                "UPDATED Keyspace(\"system_auth\")",
            ),
            (
                "ALTER KEYSPACE system WITH durable_writes = false",
                "Unauthorized: system keyspace is not user-modifiable.",
            ),
            ("DROP KEYSPACE k", "DROPPED Keyspace(\"k\")"),
            ("DROP KEYSPACE x", "Keyspace 'x' doesn't exist"),
            ("DROP KEYSPACE IF EXISTS x", "nothing"),
            ("DROP KEYSPACE system_auth", "Unauthorized: Cannot DROP <keyspace system_auth>"),
            (
                "DROP KEYSPACE system_views",
                "Virtual keyspace 'system_views' is not user-modifiable",
            ),
        ] {
            check(statement, expected);
        }
    }

    #[test]
    fn tables_are_made_and_dropped() {
        for (statement, expected) in [
            (
                "CREATE TABLE n (a int PRIMARY KEY)",
                "CREATED Table { keyspace: \"k\", name: \"n\" }",
            ),
            ("CREATE TABLE x.n (a int PRIMARY KEY)", "Keyspace 'x' doesn't exist"),
            (
                "CREATE TABLE t (a int PRIMARY KEY)",
                "AlreadyExists k.t: Cannot add already existing table \"t\" to keyspace \"k\"",
            ),
            ("CREATE TABLE IF NOT EXISTS t (a int PRIMARY KEY)", "nothing"),
            (
                "CREATE TABLE n (a int, a int, PRIMARY KEY (a))",
                "Duplicate column 'a' declaration for table 'n'",
            ),
            (
                "CREATE TABLE n (a int, PRIMARY KEY (b))",
                "Unknown column 'b' referenced in PRIMARY KEY for table 'n'",
            ),
            (
                "CREATE TABLE n (a int, PRIMARY KEY (a, a))",
                "Duplicate column 'a' in PRIMARY KEY clause for table 'n'",
            ),
            (
                "CREATE TABLE n (a list<int> PRIMARY KEY)",
                "Invalid non-frozen collection type list<int> for PRIMARY KEY column 'a'",
            ),
            (
                "CREATE TABLE n (a address PRIMARY KEY)",
                "Invalid non-frozen user-defined type address for PRIMARY KEY column 'a'",
            ),
            (
                "CREATE TABLE n (a counter PRIMARY KEY)",
                "counter type is not supported for PRIMARY KEY column 'a'",
            ),
            (
                "CREATE TABLE n (a duration PRIMARY KEY)",
                "duration type is not supported for PRIMARY KEY column 'a'",
            ),
            (
                "CREATE TABLE n (a int, b int STATIC, PRIMARY KEY (a, b))",
                "Static column 'b' cannot be part of the PRIMARY KEY",
            ),
            (
                "CREATE TABLE n (a int PRIMARY KEY, b int STATIC)",
                "Static columns are only useful (and thus allowed) if the table has at least one \
                 clustering column",
            ),
            (
                "CREATE TABLE n (a int PRIMARY KEY, b int, c counter)",
                "Cannot mix counter and non counter columns in the same table",
            ),
            (
                "CREATE TABLE n (a int PRIMARY KEY, c counter) WITH default_time_to_live = 1",
                "Cannot set default_time_to_live on a table with counters",
            ),
            (
                "CREATE TABLE n (a int PRIMARY KEY) WITH CLUSTERING ORDER BY (a DESC)",
                "Only clustering columns can be defined in CLUSTERING ORDER directive",
            ),
            (
                "CREATE TABLE n (a int, b int, c int, PRIMARY KEY (a, b, c)) \
                 WITH CLUSTERING ORDER BY (c DESC)",
                "Missing CLUSTERING ORDER for column b",
            ),
            (
                "CREATE TABLE n (a int, b int, c int, PRIMARY KEY (a, b, c)) \
                 WITH CLUSTERING ORDER BY (c DESC, b ASC)",
                "The order of columns in the CLUSTERING ORDER directive must match that of the \
                 clustering columns (b must appear before c)",
            ),
            ("CREATE TABLE n (a int PRIMARY KEY, b nope)", "Unknown type k.nope"),
            (
                "CREATE TABLE n (a int PRIMARY KEY, b list<list<int>>)",
                "Non-frozen collections are not allowed inside collections: list<list<int>>",
            ),
            (
                "CREATE TABLE \"a b\" (a int PRIMARY KEY)",
                "Config: k.a b: Table name must not be empty or not contain \
                 non-alphanumeric-underscore characters (got \"a b\")",
            ),
            ("CREATE TABLE n (a int PRIMARY KEY) WITH id = 'x'", "Config: Invalid table id"),
            (
                "CREATE TABLE system.n (a int PRIMARY KEY)",
                "Unauthorized: system keyspace is not user-modifiable.",
            ),
            (
                "CREATE TABLE system_traces.n (a int PRIMARY KEY)",
                "Unauthorized: Cannot CREATE <keyspace system_traces>",
            ),
            ("DROP TABLE t", "DROPPED Table { keyspace: \"k\", name: \"t\" }"),
            ("DROP TABLE x", "Table 'k.x' doesn't exist"),
            ("DROP TABLE IF EXISTS x.y", "nothing"),
        ] {
            check(statement, expected);
        }
    }

    #[test]
    fn tables_are_altered() {
        let updated = "UPDATED Table { keyspace: \"k\", name: \"t\" }";
        for (statement, expected) in [
            ("ALTER TABLE t ADD n int", updated),
            ("ALTER TABLE t ADD (n int, o set<text>)", updated),
            ("ALTER TABLE t ADD v int", "Column with name 'v' already exists"),
            ("ALTER TABLE t ADD IF NOT EXISTS v int", "nothing"),
            (
                "ALTER TABLE keyed ADD n int STATIC",
                "Static columns are only useful (and thus allowed) if the table has at least one \
                 clustering column",
            ),
            (
                "ALTER TABLE t ADD n counter",
                "Config: k.t: Cannot have a counter column (\"n\") in a non counter table",
            ),
            (
                "ALTER TABLE counts ADD n2 int",
                "Config: k.counts: Cannot have a non counter column (\"n2\") in a counter table",
            ),
            ("ALTER TABLE t DROP m", updated),
            ("ALTER TABLE t DROP m USING TIMESTAMP 5", updated),
            ("ALTER TABLE t DROP x", "Column x was not found in table 'k.t'"),
            ("ALTER TABLE t DROP IF EXISTS x", "nothing"),
            ("ALTER TABLE t DROP a", "Cannot drop PRIMARY KEY column a"),
            (
                "ALTER TABLE t DROP v",
                "Cannot drop column v because it has dependent secondary indexes (by_v)",
            ),
            ("ALTER TABLE t RENAME c TO cc", updated),
            ("ALTER TABLE t RENAME v TO w", "Cannot rename non PRIMARY KEY column v"),
            (
                "ALTER TABLE t RENAME c TO v",
                "Cannot rename column c to v in table 'k.t'; another column with that name already \
                 exists",
            ),
            ("ALTER TABLE t WITH gc_grace_seconds = 1", updated),
            ("ALTER TABLE t WITH comment = 'it''s'", "nothing"),
            (
                "ALTER TABLE t WITH id = 5f0e9ac0-0000-1000-8000-000000000000",
                "Config: Cannot alter table id.",
            ),
            (
                "ALTER TABLE counts WITH default_time_to_live = 5",
                "Cannot set default_time_to_live on a table with counters",
            ),
            ("ALTER TABLE x ADD n int", "Table 'k.x' doesn't exist"),
            ("ALTER TABLE IF EXISTS x ADD n int", "nothing"),
        ] {
            check(statement, expected);
        }
    }

    #[test]
    fn dropped_columns_are_added_again_unchanged() {
        let dropped = [&START[..], &["ALTER TABLE t DROP m", "ALTER TABLE t DROP s"]].concat();
        let dropped = catalog(&dropped);
        for (statement, expected) in [
            (
                "ALTER TABLE t ADD m int",
                "Cannot add a column 'm' of type int, incompatible with previously dropped column \
                 'm' of type map<text, int>",
            ),
            (
                "ALTER TABLE t ADD s int",
                "Cannot re-add previously dropped column 's' of kind REGULAR, incompatible with \
                 previous kind STATIC",
            ),
        ] {
            let error = try_change(&dropped, statement).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        let before = catalog(&START).table("k", "t").unwrap().column("m").unwrap().number;
        let again = try_change(&dropped, "ALTER TABLE t ADD m map<text, int>").unwrap().unwrap();
        let table = again.catalog.table("k", "t").unwrap();
        let numbers: Vec<u32> = table.columns.iter().map(|column| column.number).collect();
        assert_ne!(table.column("m").unwrap().number, before);
        assert!(numbers.iter().enumerate().all(|(nth, number)| !numbers[..nth].contains(number)));
        let of = &catalog(&[&START[..], &["ALTER TABLE t DROP p"]].concat());
        let of = &of.table("k", "t").unwrap().dropped["p"].column_type;
        assert_eq!(of.to_string(), "frozen<tuple<text, frozen<tuple<text, frozen<set<int>>>>>>");
    }

    #[test]
    fn types_are_made_changed_and_dropped() {
        let updated = "UPDATED Type { keyspace: \"k\", name: \"address\" }";
        for (statement, expected) in [
            ("CREATE TYPE n (a int)", "CREATED Type { keyspace: \"k\", name: \"n\" }"),
            ("CREATE TYPE address (a int)", "A user type with name 'address' already exists"),
            ("CREATE TYPE IF NOT EXISTS address (a int)", "nothing"),
            ("CREATE TYPE n (a int, a int)", "Duplicate field name 'a' in type 'n'"),
            ("CREATE TYPE n (a counter)", "A user type cannot contain counters"),
            ("CREATE TYPE n (a address)", "A user type cannot contain non-frozen UDTs"),
            ("ALTER TYPE person ADD age int", "UPDATED Type { keyspace: \"k\", name: \"person\" }"),
            (
                "ALTER TYPE person ADD name int",
                "Cannot add field name to type k.person: a field with name name already exists",
            ),
            ("ALTER TYPE person ADD IF NOT EXISTS name int", "nothing"),
            (
                "ALTER TYPE person ADD friend frozen<list<person>>",
                "Cannot add new field friend of type frozen<list<frozen<person>>> to user type \
                 person as it would create a circular reference",
            ),
            (
                "ALTER TYPE address ADD n int",
                "Cannot add new field n of type int to user type address as the type is being used \
                 in partition key by the following tables: k.keyed",
            ),
            ("ALTER TYPE address RENAME street TO road", updated),
            ("ALTER TYPE address RENAME x TO y", "Unkown field x in user type address"),
            ("ALTER TYPE address RENAME street TO codes", "Duplicate field name codes in type k"),
            ("ALTER TYPE x ADD n int", "Type k.x doesn't exist"),
            ("DROP TYPE x", "Type 'k.x' doesn't exist"),
            (
                "DROP TYPE person",
                "Cannot drop user type 'k.person' as it is still used by tables t",
            ),
            (
                "DROP TYPE address",
                "Cannot drop user type 'k.address' as it is still used by user types person",
            ),
        ] {
            check(statement, expected);
        }
    }

    #[test]
    fn whatever_has_a_type_sees_its_change() {
        let changed = [&START[..], &["ALTER TYPE address RENAME street TO road"]].concat();
        let changed = catalog(&changed);
        let shown = |of: &crate::types::CqlType| format!("{of:?}");
        let column = changed.table("k", "t").unwrap().column("p").unwrap();
        assert!(shown(&column.column_type).contains("\"road\""));
        assert!(!shown(&column.column_type).contains("\"street\""));
        let person = &changed.keyspace("k").unwrap().types["person"];
        assert!(shown(&person.fields[1].1).contains("\"road\""));
    }

    #[test]
    fn indexes_are_made_and_dropped() {
        let updated = "UPDATED Table { keyspace: \"k\", name: \"t\" }";
        for (statement, expected) in [
            ("CREATE INDEX ON t (c)", updated),
            ("CREATE INDEX ON t (KEYS(m))", updated),
            ("CREATE INDEX ON t (full(f))", updated),
            ("CREATE CUSTOM INDEX ON t (c) USING 'StorageAttachedIndex'", updated),
            ("CREATE INDEX by_v ON t (c)", "Index 'by_v' already exists"),
            ("CREATE INDEX IF NOT EXISTS by_v ON t (c)", "nothing"),
            ("CREATE INDEX other ON t (v)", "Index other is a duplicate of existing index by_v"),
            ("CREATE INDEX ON t (x)", "Undefined column name x in table k.t"),
            ("CREATE INDEX ON x (v)", "Table 'x' doesn't exist"),
            ("CREATE INDEX ON counts (n)", "Secondary indexes on counter tables aren't supported"),
            ("CREATE INDEX ON t (v, c)", "Only CUSTOM indexes support multiple columns"),
            (
                "CREATE INDEX ON keyed (p)",
                "Cannot create secondary index on the only partition key column p",
            ),
            (
                "CREATE INDEX ON t (f)",
                "Cannot create values() index on frozen column f. Frozen collections are immutable \
                 and must be fully indexed by using the 'full(f)' modifier",
            ),
            (
                "CREATE INDEX ON t (full(m))",
                "full() indexes can only be created on frozen collections",
            ),
            (
                "CREATE INDEX ON t (values(v))",
                "Cannot create values() index on v. Non-collection columns only support simple \
                 indexes",
            ),
            (
                "CREATE CUSTOM INDEX ON t (v) USING 'x'",
                "Config: Unable to find custom indexer class 'x'",
            ),
            ("DROP INDEX by_v", updated),
            ("DROP INDEX x", "Index 'k.x' doesn't exist"),
            ("DROP INDEX IF EXISTS x", "nothing"),
        ] {
            check(statement, expected);
        }
    }

    #[test]
    fn names_of_indexes_are_free_ones() {
        let name = |catalog: &Catalog| {
            let table = catalog.table("k", "t").unwrap();
            table.indexes.iter().map(|index| index.name.clone()).collect::<Vec<_>>()
        };
        let both = ["CREATE INDEX t_c_idx ON t (a)", "CREATE INDEX ON t (c)"];
        assert_eq!(name(&catalog(&[&START[..], &both].concat())), ["by_v", "t_c_idx", "t_c_idx_1"]);
    }

    #[test]
    fn no_keyspace_is_in_use() {
        let statement = crate::statements::parse("CREATE TABLE n (a int PRIMARY KEY)");
        let cx = ChangeContext {
            keyspace: None,
            table_id: Uuid::nil(),
            timestamp: 0,
            is_in_group: false,
        };
        let error = change(&builtin(), &statement.unwrap().statement, &cx).unwrap_err();
        assert_eq!(
            error.to_string(),
            "No keyspace has been specified. USE a keyspace, or explicitly specify \
             keyspace.tablename"
        );
    }

    const CHANGES: [&str; 26] = [
        "ALTER TABLE t ADD n frozen<person>",
        "ALTER TABLE t ADD m map<text, int>",
        "ALTER TABLE t ADD s int STATIC",
        "ALTER TABLE t DROP (m, s)",
        "ALTER TABLE t DROP n",
        "ALTER TABLE t DROP m USING TIMESTAMP 5000",
        "ALTER TABLE t DROP v USING TIMESTAMP -1",
        "ALTER TABLE t RENAME c TO \"C\"",
        "ALTER TABLE t RENAME \"C\" TO c",
        "ALTER TABLE t WITH speculative_retry = 'NEVER' AND memtable_flush_period_in_ms = 5",
        "ALTER TABLE t WITH extensions = {'x': 'y'} AND bloom_filter_fp_chance = 0.00123",
        "ALTER TABLE t WITH compression = {'enabled': false} AND cdc = true",
        "DROP TABLE t",
        START[2],
        "DROP TABLE keyed",
        START[4],
        "CREATE INDEX ON t (values(m))",
        "CREATE CUSTOM INDEX sai ON t (v) USING 'sai' WITH OPTIONS = {'ascii': 'true'}",
        "DROP INDEX by_v",
        "DROP INDEX sai",
        "ALTER TYPE address RENAME street TO road",
        "ALTER TYPE person ADD age vector<float, 3>",
        "CREATE TYPE other (a frozen<person>, b tuple<int, frozen<address>>)",
        "DROP TYPE other",
        "DROP KEYSPACE k",
        "CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy'}",
    ];

    /// One server of a group of masters drops a keyspace, and another one creates a table in it.
    #[test]
    fn a_table_without_its_keyspace_is_ignored_until_a_new_keyspace_deletes_it() {
        let dropped = catalog(&[]);
        let mut rows = all_rows(&try_change(&dropped, "DROP KEYSPACE k").unwrap().unwrap().catalog);
        let table = "CREATE TABLE t (old int PRIMARY KEY, v int)";
        let created = try_change(&dropped, table).unwrap().unwrap();
        apply(&mut rows, &created);
        let loaded = from_rows(&rows).unwrap();
        assert!(loaded.keyspace("k").is_none());
        assert_eq!(loaded.unusable.len(), 3, "the table and its columns");
        let again = "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy'}";
        let created = try_change(&loaded, again).unwrap().unwrap();
        apply(&mut rows, &created);
        assert_eq!((created.deleted.len(), created.catalog.unusable.len()), (3, 0));
        let created = try_change(&created.catalog, "CREATE TABLE t (new int PRIMARY KEY)");
        apply(&mut rows, &created.unwrap().unwrap());
        let loaded = from_rows(&rows).unwrap();
        assert!(loaded.unusable.is_empty());
        assert_eq!(loaded.keyspace("k").unwrap().tables["t"].columns.len(), 1);
        // The row of the keyspace arrives after that of its table.
        let keyspaces = table_id("keyspaces");
        let mut late: Rows = rows.extract_if(.., |id, _| id.table == keyspaces).collect();
        assert_eq!(from_rows(&rows).unwrap().unusable.len(), 2);
        rows.append(&mut late);
        assert!(from_rows(&rows).unwrap().unusable.is_empty());
    }

    fn table_id(name: &str) -> Uuid {
        super::super::builtin_table(super::super::SCHEMA, name).id
    }

    proptest! {
        /// Rows and catalog agree after any changes, the version is determined by the content, and
        /// a change names exactly the rows that differ.
        #[test]
        fn rows_are_the_schema(picks in proptest::collection::vec(0..CHANGES.len(), 0..12)) {
            let mut catalog = catalog(&START);
            let mut rows = all_rows(&catalog);
            for pick in picks {
                let Ok(Some(change)) = try_change(&catalog, CHANGES[pick]) else { continue };
                apply(&mut rows, &change);
                catalog = change.catalog;
                prop_assert_eq!(&rows, &all_rows(&catalog));
                let loaded = from_rows(&rows).unwrap();
                prop_assert_eq!(&loaded.keyspaces, &catalog.keyspaces);
                let start = from_rows(&all_rows(&builtin())).unwrap();
                // Test catalogs start from the built-in one, whose hash is excluded.
                let sum = loaded.fingerprint.wrapping_sub(start.fingerprint);
                prop_assert_eq!(sum, catalog.fingerprint);
            }
        }
    }
}
