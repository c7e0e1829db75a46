//! Rows of a stored schema that do not describe anything usable.
//!
//! A server alone never writes such rows. In a group of masters, several servers may change the
//! schema before they have received each other's change, and rows may arrive before the rows that
//! they belong to. In the end all servers store the same rows, and decide by them alone what is
//! usable, so all have the same schema, and each one starts. The rows stay stored: when what they
//! lack arrives, or is created, the object appears. A statement that creates the keyspace, table or
//! type of their name deletes them, so that it begins empty.

use std::fmt;

use super::row::RowId;

/// A stored row that does not describe anything usable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableRow {
    pub(super) id: RowId,
    pub keyspace: String,
    pub object: SchemaObject,
    pub reason: Reason,
}

/// What a row describes, or is a part of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SchemaObject {
    Table(String),
    Type(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Reason {
    #[error("its keyspace is missing")]
    NoKeyspace,
    #[error("its table is missing")]
    NoTable,
    #[error("it belongs to another table of this name")]
    OtherTable,
    #[error("another column has its number")]
    OtherColumn,
    #[error("its column is missing")]
    NoColumn,
    #[error("a type that it uses is missing or uses it")]
    NoType,
    #[error("its fields do not form a type")]
    Fields,
    #[error("its columns do not form a table")]
    Columns,
}

impl fmt::Display for SchemaObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SchemaObject::Table(name) => write!(f, "table {name}"),
            SchemaObject::Type(name) => write!(f, "type {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::load::from_rows;
    use super::super::testing::{all_rows, apply, catalog, try_change_in};
    use super::super::{Catalog, builtin};
    use super::*;

    const START: [&str; 4] = [
        "CREATE TYPE address (street text)",
        "CREATE TYPE person (name text)",
        "CREATE TABLE t (a int, c int, v text, p frozen<person>, PRIMARY KEY (a, c))",
        "CREATE TABLE bare (a int PRIMARY KEY)",
    ];

    /// The schema when all have received the statements, each executed by a server that knew only
    /// its own.
    fn merged(statements: &[(u16, &str)]) -> Catalog {
        let start = catalog(&START);
        let mut rows = all_rows(&start);
        let mut views = [start.clone(), start];
        for (server, text) in statements {
            let view = &mut views[usize::from(*server - 1)];
            let change = try_change_in(Some(*server), view, text).unwrap().unwrap();
            apply(&mut rows, &change);
            *view = change.catalog;
        }
        from_rows(&rows).unwrap()
    }

    fn columns(catalog: &Catalog, table: &str) -> Vec<String> {
        let table = catalog.table("k", table).expect("the table is usable");
        table.columns.iter().map(|column| column.name.clone()).collect()
    }

    fn reasons(catalog: &Catalog) -> Vec<(String, Reason)> {
        let mut found: Vec<_> =
            catalog.unusable.iter().map(|row| (row.object.to_string(), row.reason)).collect();
        found.sort();
        found.dedup();
        found
    }

    #[test]
    fn the_later_of_two_tables_of_one_name_stays_alone() {
        let both = merged(&[
            (1, "CREATE TABLE n (k int PRIMARY KEY, one int, v text)"),
            (2, "CREATE TABLE n (k int, l text, two int, PRIMARY KEY (k, l))"),
            (1, "ALTER TABLE n ADD three int"),
        ]);
        assert_eq!(columns(&both, "n"), ["k", "l", "two"]);
        assert_eq!(reasons(&both), [("table n".to_owned(), Reason::OtherTable)]);
    }

    #[test]
    fn columns_that_two_servers_add_have_different_numbers() {
        let both =
            merged(&[(1, "ALTER TABLE t ADD x int"), (2, "ALTER TABLE t ADD (y text, z int)")]);
        assert_eq!(columns(&both, "t"), ["a", "c", "p", "v", "x", "y", "z"]);
        assert_eq!(reasons(&both), []);
    }

    /// As when two instances of an application change the schema at their start.
    #[test]
    fn the_same_column_that_two_servers_add_has_one_number() {
        let both = ["ALTER TABLE t ADD x int", "ALTER TABLE t ADD x int"];
        let numbers = [1, 2].map(|server| {
            let alone = merged(&[(server, both[0])]);
            alone.table("k", "t").unwrap().column("x").unwrap().number
        });
        assert_eq!(numbers[0], numbers[1]);
        let both = merged(&[(1, both[0]), (2, both[1])]);
        assert_eq!(both.table("k", "t").unwrap().column("x").unwrap().number, numbers[0]);
        let other = merged(&[(1, "ALTER TABLE t ADD x text")]);
        assert_ne!(other.table("k", "t").unwrap().column("x").unwrap().number, numbers[0]);
        // Its cells must not return with another column of the name.
        let again = ["ALTER TABLE t ADD x int", "ALTER TABLE t DROP x", "ALTER TABLE t ADD x int"];
        let again = merged(&again.map(|text| (1, text)));
        assert_ne!(again.table("k", "t").unwrap().column("x").unwrap().number, numbers[0]);
    }

    /// Without its last column, the key would be another one, for which there are no rows.
    #[test]
    fn a_table_that_lost_a_column_of_its_key_is_set_aside() {
        let both = merged(&[(1, "ALTER TABLE t RENAME c TO x"), (2, "ALTER TABLE t ADD x int")]);
        assert!(both.table("k", "t").is_none());
        assert_eq!(reasons(&both), [("table t".to_owned(), Reason::Columns)]);
    }

    #[test]
    fn drop_deletes_what_is_not_usable() {
        let both = merged(&[(1, "DROP TABLE t"), (2, "ALTER TABLE t WITH comment = 'x'")]);
        assert!(!both.unusable.is_empty());
        for text in ["DROP TABLE t", "DROP TABLE IF EXISTS t"] {
            let change = try_change_in(Some(1), &both, text).unwrap().unwrap();
            assert_eq!(change.deleted.len(), both.unusable.len());
            assert!(change.catalog.unusable.is_empty());
        }
        let error = try_change_in(Some(1), &both, "DROP TYPE t").unwrap_err().to_string();
        assert_eq!(error, "Type 'k.t' doesn't exist");
        let create = "CREATE TABLE IF NOT EXISTS t (k int PRIMARY KEY)";
        let error = try_change_in(Some(1), &both, create).unwrap_err().to_string();
        assert!(error.contains("delete them by DROP"), "{error}");
    }

    #[test]
    fn of_two_names_of_a_key_column_the_first_stays() {
        let both =
            merged(&[(1, "ALTER TABLE t RENAME c TO e"), (2, "ALTER TABLE t RENAME c TO d")]);
        assert_eq!(columns(&both, "t"), ["a", "d", "p", "v"]);
        assert_eq!(reasons(&both), [("table t".to_owned(), Reason::OtherColumn)]);
    }

    #[test]
    fn what_lacks_its_table_type_or_column_is_set_aside() {
        let table = || "table t".to_owned();
        for (drop, use_it, expected) in [
            ("DROP TABLE t", "ALTER TABLE t WITH comment = 'x'", vec![(table(), Reason::Columns)]),
            ("DROP TABLE t", "ALTER TABLE t ADD x int", vec![(table(), Reason::NoTable)]),
            ("ALTER TABLE t DROP v", "CREATE INDEX ON t (v)", vec![(table(), Reason::NoColumn)]),
            (
                "DROP TYPE address",
                "ALTER TABLE t ADD x frozen<address>",
                vec![(table(), Reason::NoType)],
            ),
            (
                "DROP TYPE address",
                "CREATE TYPE other (x frozen<address>)",
                vec![("type other".to_owned(), Reason::NoType)],
            ),
            (
                "ALTER TYPE address ADD owner frozen<person>",
                "ALTER TYPE person ADD home frozen<address>",
                vec![
                    (table(), Reason::NoType),
                    ("type address".to_owned(), Reason::NoType),
                    ("type person".to_owned(), Reason::NoType),
                ],
            ),
        ] {
            let both = merged(&[(1, drop), (2, use_it)]);
            assert_eq!(reasons(&both), expected, "{drop}; {use_it}");
        }
    }

    #[test]
    fn a_table_returns_with_the_type_that_it_lacks() {
        let both = merged(&[(1, "DROP TYPE address"), (2, "ALTER TABLE t ADD x frozen<address>")]);
        assert!(both.table("k", "t").is_none());
        let again = "CREATE TYPE IF NOT EXISTS address (street text)";
        let change = try_change_in(Some(1), &both, again).unwrap().unwrap();
        let mut rows = all_rows(&both);
        rows.extend(all_rows(&catalog(
            &[&START[..], &["ALTER TABLE t ADD x frozen<address>"]].concat(),
        )));
        apply(&mut rows, &change);
        assert_eq!(columns(&from_rows(&rows).unwrap(), "t"), ["a", "c", "p", "v", "x"]);
    }

    const STATEMENTS: [&str; 32] = [
        START[0],
        START[1],
        START[2],
        START[3],
        "CREATE TABLE t (b text PRIMARY KEY, v int)",
        "CREATE TABLE bare (a int, c int, n counter, PRIMARY KEY (a, c))",
        "DROP TABLE t",
        "DROP TABLE bare",
        "ALTER TABLE t ADD x int",
        "ALTER TABLE t ADD d int",
        "ALTER TABLE t ADD e text",
        "ALTER TABLE t ADD y frozen<address>",
        "ALTER TABLE t ADD s int STATIC",
        "ALTER TABLE t DROP x",
        "ALTER TABLE t DROP x USING TIMESTAMP 5",
        "ALTER TABLE t DROP v",
        "ALTER TABLE t DROP y",
        "ALTER TABLE t RENAME c TO d",
        "ALTER TABLE t RENAME c TO e",
        "ALTER TABLE t RENAME d TO c",
        "ALTER TABLE t WITH comment = 'x'",
        "ALTER TABLE bare ADD n int",
        "ALTER TABLE bare ADD v frozen<person>",
        "CREATE INDEX ON t (v)",
        "CREATE INDEX ON t (c)",
        "DROP INDEX t_v_idx",
        "ALTER TYPE address ADD owner frozen<person>",
        "ALTER TYPE person ADD home frozen<address>",
        "DROP TYPE address",
        "DROP TYPE person",
        "DROP KEYSPACE k",
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy'}",
    ];

    proptest! {
        /// Two servers change the schema, and now and then receive what the other one has done.
        /// Whatever they do, each one starts, and what is usable is consistent.
        #[test]
        fn any_changes_of_two_servers_make_a_schema(
            picks in proptest::collection::vec((1..3_u16, 0..STATEMENTS.len(), 0..4), 0..24),
        ) {
            let mut rows = all_rows(&catalog(&START));
            let mut shared = from_rows(&rows).unwrap();
            let mut views = [shared.clone(), shared.clone()];
            for (server, pick, meet) in picks {
                let view = &mut views[usize::from(server - 1)];
                if let Ok(Some(change)) = try_change_in(Some(server), view, STATEMENTS[pick]) {
                    apply(&mut rows, &change);
                    *view = Catalog::clone(&change.catalog);
                }
                if meet == 0 {
                    shared = from_rows(&rows).unwrap();
                    views = [shared.clone(), shared.clone()];
                }
            }
            shared = from_rows(&rows).unwrap();
            let used = all_rows(&shared);
            let builtin = all_rows(&builtin());
            let stored = |id: &RowId| rows.contains_key(id) || builtin.contains_key(id);
            prop_assert!(used.keys().all(stored), "nothing was made up");
            let is_unusable = |id: &RowId| shared.unusable.iter().any(|row| row.id == *id);
            prop_assert!(rows.keys().all(|id| used.contains_key(id) != is_unusable(id)));
            let again = from_rows(&used).unwrap();
            prop_assert_eq!(&again.keyspaces, &shared.keyspaces);
            prop_assert!(again.unusable.is_empty());
        }
    }
}
