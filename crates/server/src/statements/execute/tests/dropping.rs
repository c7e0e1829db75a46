//! DROP TABLE concurrent with writes that were planned before it.

use cql::error::CqlError;
use cql::plan::prepared::PreparedStatement;
use store::TableId;

use super::harness::{Asked, Server};

/// The number of partitions of a table, which may have been dropped.
fn kept(server: &Server, statement: &PreparedStatement) -> usize {
    let id = statement.catalog.table("k", "t").unwrap().id;
    server.partitions_of(TableId(id.as_u128()))
}

#[test]
fn a_write_planned_before_the_drop_leaves_no_rows() {
    let mut server = Server::new();
    server.check("> CREATE TABLE t (p int PRIMARY KEY, v int)");
    let text = "INSERT INTO t (p, v) VALUES (1, 1)";
    let statement = server.prepare(text).unwrap();
    server.execute(&statement, Asked::default()).unwrap();
    assert_eq!(kept(&server, &statement), 1);
    server.change_schema("DROP TABLE t");
    assert_eq!(kept(&server, &statement), 0);
    let error = server.execute(&statement, Asked::default()).unwrap_err();
    assert_eq!(error.to_string(), "table t does not exist");
    // A new table with the same name is a different table.
    server.change_schema("CREATE TABLE t (p int PRIMARY KEY, v int)");
    let error = server.execute(&statement, Asked::default()).unwrap_err();
    assert_eq!(error.to_string(), "table t does not exist");
    assert_eq!(kept(&server, &statement), 0);
    server.check("> SELECT * FROM t");
}

/// Columns have numbers, which a plan takes from the table as it was.
#[test]
fn a_write_planned_before_an_alteration_is_replanned() {
    let mut server = Server::new();
    server.check("> CREATE TABLE t (p int PRIMARY KEY, v int, w int)");
    let texts = [
        "INSERT INTO t (p, v) VALUES (1, 1)",
        "UPDATE t SET v = 2 WHERE p = 1 IF EXISTS",
        "BEGIN BATCH INSERT INTO t (p, v) VALUES (1, 3); APPLY BATCH",
    ];
    for change in [
        "ALTER TABLE t DROP v",
        "ALTER TABLE t ADD v int",
        "ALTER TABLE t RENAME p TO q",
        "ALTER TABLE t RENAME q TO p",
    ] {
        let planned: Vec<_> = texts.iter().filter_map(|text| server.prepare(text).ok()).collect();
        server.change_schema(change);
        for statement in &planned {
            let error = server.execute(statement, Asked::default()).unwrap_err();
            assert_eq!(error, CqlError::TableAltered, "{change}: {}", statement.text);
        }
    }
    server.check("> SELECT * FROM t");
    for text in texts {
        server.run(text).unwrap();
    }
    server.check(
        "> SELECT p, v FROM t
         1 | 3",
    );
}

#[test]
fn changing_another_table_does_not_affect_writes() {
    let mut server = Server::new();
    server.check("> CREATE TABLE t (p int PRIMARY KEY, v int)");
    let statement = server.prepare("INSERT INTO t (p, v) VALUES (1, 1)").unwrap();
    server.change_schema("CREATE TABLE u (p int PRIMARY KEY)");
    server.execute(&statement, Asked::default()).unwrap();
    server.check(
        "> SELECT * FROM t
         1 | 1",
    );
}

/// Writers with a prepared statement race with a drop. No data of the table remains, even after a
/// restart.
#[test]
fn writers_that_race_with_a_drop_leave_no_data() {
    let mut server = Server::new();
    for _ in 0..20 {
        server.change_schema("CREATE TABLE t (p int PRIMARY KEY, v int)");
        let statement = server.prepare("INSERT INTO t (p, v) VALUES (?, 1)").unwrap();
        let mut writers: Vec<Server> = (0..2).map(|_| server.other_reactor()).collect();
        std::thread::scope(|scope| {
            for writer in &mut writers {
                let statement = &statement;
                scope.spawn(move || {
                    for number in (0..100).cycle() {
                        let number: i32 = number;
                        let bytes = number.to_be_bytes();
                        let values = [wire::cql::Value::Bytes(&bytes)];
                        let asked = Asked { values: &values, ..Asked::default() };
                        if writer.execute(statement, asked).is_err() {
                            return;
                        }
                    }
                });
            }
            server.change_schema("DROP TABLE t");
        });
        assert_eq!(kept(&server, &statement), 0);
    }
}
