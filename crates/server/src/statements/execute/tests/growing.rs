//! User-defined types that get new fields after values of them were stored, and columns that are
//! dropped and added again.

use wire::cql::Value;

use super::harness::{Asked, Server};

const STORED: &str = "
    > CREATE TYPE u (a int)
    > CREATE TYPE o (i frozen<u>, n int)
    > CREATE TABLE t (p int, c frozen<u>, d frozen<o>, v int, s set<frozen<u>>, \
        m map<frozen<tuple<frozen<u>>>, int>, PRIMARY KEY (p, c, d)) \
        WITH CLUSTERING ORDER BY (c DESC, d ASC)
    > CREATE INDEX ON t (s)
    > CREATE INDEX ON t (d)
    > INSERT INTO t (p, c, d, v, s, m) VALUES \
        (1, {a: 1}, {i: {a: 2}, n: 3}, 4, {{a: 5}}, {({a: 6}): 7})";

#[test]
fn stored_keys_are_unchanged_when_their_type_gets_fields() {
    let mut server = Server::new();
    server.check(STORED);
    let before = server.run("SELECT * FROM t").unwrap();
    for (added, fields) in [("b int", 2), ("e text", 3)] {
        server.check(&format!("> ALTER TYPE u ADD {added}"));
        for restarts in [false, true] {
            if restarts {
                server = server.restart();
            }
            let rows = server.run("SELECT * FROM t").unwrap().rows;
            assert_eq!(rows.len(), before.rows.len(), "{rows:?}");
            for text in [
                "SELECT v FROM t WHERE p = 1 AND c = {a: 1} AND d = {i: {a: 2}, n: 3}",
                "SELECT v FROM t WHERE p = 1 AND c IN ({a: 1, b: null}, {a: 9})",
                "SELECT v FROM t WHERE p = 1 AND c >= {a: 1} AND c < {a: 1, b: 0}",
                "SELECT v FROM t WHERE s CONTAINS {a: 5}",
                "SELECT v FROM t WHERE d = {i: {a: 2, b: null}, n: 3}",
                "SELECT v FROM t WHERE m CONTAINS KEY ({a: 6}) ALLOW FILTERING",
            ] {
                assert_eq!(server.run(text).unwrap().rows, ["4"], "{fields} fields: {text}");
            }
        }
    }
    server.check(
        "> INSERT INTO t (p, c, d, v) VALUES (1, {a: 1, e: null}, {i: {a: 2}, n: 3}, 8)
        > UPDATE t SET s = s + {{a: 5}}, m[({a: 6})] = 9 WHERE p = 1 AND c = {a: 1} \
            AND d = {i: {a: 2}, n: 3}
        > SELECT count(*), max(v) FROM t
        1 | 8
        > UPDATE t SET s = s - {{a: 5}}, m = m - {({a: 6, b: null})} WHERE p = 1 AND c = {a: 1} \
            AND d = {i: {a: 2}, n: 3}
        > SELECT s, m FROM t
        null | null
        > DELETE FROM t WHERE p = 1 AND c = {a: 1}
        > SELECT * FROM t",
    );
}

/// Drivers send only the fields that they know.
#[test]
fn keys_with_fewer_fields_are_the_same_keys() {
    let mut server = Server::new();
    server.check(
        "> CREATE TYPE u (a int, b int)
        > CREATE TABLE t (p int, c frozen<u>, v int, PRIMARY KEY (p, c))
        > INSERT INTO t (p, c, v) VALUES (1, {a: 1}, 1)",
    );
    let short = [&4_i32.to_be_bytes()[..], &1_i32.to_be_bytes()].concat();
    let values = [Value::Bytes(&short)];
    let asked = Asked { values: &values, ..Asked::default() };
    let found = server.ask("SELECT v FROM t WHERE p = 1 AND c = ?", asked).unwrap();
    assert_eq!(found.rows, ["1"]);
    server.ask("INSERT INTO t (p, c, v) VALUES (1, ?, 2)", asked).unwrap();
    server.check("> SELECT v FROM t\n2");
}

#[test]
fn re_added_columns_keep_their_newer_cells_after_a_restart() {
    let mut server = Server::new();
    server.check(
        "> CREATE TABLE t (p int, c int, v int, l list<int>, w int, PRIMARY KEY (p, c))
        > UPDATE t USING TIMESTAMP 1000 SET v = 1, l = [1], w = 1 WHERE p = 1 AND c = 1
        > UPDATE t USING TIMESTAMP 3000 SET v = 2, l = [2] WHERE p = 1 AND c = 2
        > ALTER TABLE t DROP (v, l) USING TIMESTAMP 2000
        > SELECT * FROM t
        1 | 1 | 1
        > ALTER TABLE t ADD (v int, l list<int>)",
    );
    for restarts in [false, true] {
        if restarts {
            server = server.restart();
        }
        server.check(
            "> SELECT c, v, l, w FROM t
            1 | null | null | 1
            2 | 2 | [2] | null
            > UPDATE t SET w = 1 WHERE p = 1 AND c = 1 IF v = 1
            false | null
            > UPDATE t SET w = 1 WHERE p = 1 AND c = 1 IF v = null
            true",
        );
    }
    // An index finds only visible values.
    server.check(
        "> CREATE INDEX ON t (v)
        > SELECT c FROM t WHERE v = 2
        2
        > SELECT c FROM t WHERE v = 1
        > DROP INDEX t_v_idx
        > ALTER TABLE t DROP v
        > ALTER TABLE t ADD v int
        > SELECT c, v FROM t
        1 | null
        2 | null",
    );
}
