//! Long reads in parts: results do not depend on where reads pause.

use super::harness::Server;

const QUESTIONS: [&str; 19] = [
    "SELECT * FROM t",
    "SELECT count(*), sum(v), min(c), max(v) FROM t",
    "SELECT p, count(*), avg(v) FROM t GROUP BY p",
    "SELECT p, c, sum(v) FROM t GROUP BY p, c LIMIT 7",
    "SELECT DISTINCT p, s FROM t",
    "SELECT p, v FROM t PER PARTITION LIMIT 2",
    "SELECT p, v FROM t WHERE v > 3 LIMIT 6 ALLOW FILTERING",
    "SELECT p, c FROM t WHERE p IN (3, 1, 2) ORDER BY c DESC",
    "SELECT c FROM t WHERE p = 1 ORDER BY c DESC",
    "SELECT p, c FROM t WHERE v = 3",
    "SELECT p, c, sum(v) FROM t WHERE v = 3 GROUP BY p, c PER PARTITION LIMIT 1",
    "SELECT count(*) FROM t WHERE token(p) > 0 AND c > 1 ALLOW FILTERING",
    "SELECT p, c, d FROM t WHERE p IN (5, 2) AND c IN (0, 1, 7, 8, 9, 2) AND d IN (9, 8, 1, 0)",
    "SELECT c FROM t WHERE p = 3 AND (c, d) IN ((2, 2), (9, 9), (0, 7), (1, 1)) ORDER BY c DESC",
    "SELECT p, c FROM t WHERE p IN (1, 2, 3) ORDER BY c DESC LIMIT 5",
    "SELECT p, c, v FROM t WHERE p IN (3, 1, 2) ORDER BY c ASC",
    "SELECT p, s FROM t WHERE p IN (100, 101, 4)",
    "SELECT count(*) FROM redis.hashes",
    "SELECT key, field FROM redis.hashes",
];

#[test]
fn paused_reads_return_the_same_rows() {
    let mut server = Server::new();
    server.check(
        "> CREATE TABLE t (p int, c int, d int, s int STATIC, v int, PRIMARY KEY (p, c, d))",
    );
    server.check("> CREATE INDEX ON t (v)");
    for (p, c, d) in (0..8).flat_map(|p| (0..3).flat_map(move |c| (0..3).map(move |d| (p, c, d)))) {
        let v = (p + c + d) % 5;
        server.run(&format!("INSERT INTO t (p, c, d, v) VALUES ({p}, {c}, {d}, {v})")).unwrap();
        server.resp(&format!("HSET h{p} {c}{d} {v}"));
    }
    server.run("INSERT INTO t (p, s) VALUES (100, 1)").unwrap();
    server.run("DELETE FROM t WHERE p = 4").unwrap();
    server.run("INSERT INTO t (p, s) VALUES (101, 2)").unwrap();
    for c in 0..20 {
        server.run(&format!("DELETE FROM t WHERE p = 101 AND c = {c} AND d = 0")).unwrap();
    }
    for question in QUESTIONS {
        server.turn_rows = 0;
        let expected = server.run(question).unwrap();
        assert!(!expected.rows.is_empty(), "{question}");
        for turn_rows in [1, 2, 3, 5, 100] {
            server.turn_rows = turn_rows;
            assert_eq!(server.run(question).unwrap(), expected, "{question} {turn_rows}");
        }
    }
    server.pauses = 0;
    server.turn_rows = 10;
    server.run("SELECT count(*) FROM t").unwrap();
    assert!(server.pauses >= 6, "{}", server.pauses);
}

/// Deletions during a scan do not end it, and the scan keeps its start time.
#[test]
fn scans_of_partitions_without_rows_pause() {
    let mut server = Server::new();
    server.check("> CREATE TABLE t (p int PRIMARY KEY, v int)");
    for p in 0..50 {
        server.run(&format!("DELETE FROM t WHERE p = {p}")).unwrap();
    }
    server.turn_rows = 10;
    server.check("> SELECT count(*) FROM t\n0");
    assert!(server.pauses >= 4, "{}", server.pauses);
}

/// Deleted and expired rows, and keys without rows, count as well.
#[test]
fn scans_without_rows_inside_a_partition_pause() {
    let mut server = Server::new();
    server.check("> CREATE TABLE t (p int, c int, s int STATIC, v int, PRIMARY KEY (p, c))");
    server.check("> CREATE INDEX ON t (v)");
    for c in 0..200 {
        server.run(&format!("INSERT INTO t (p, c, v) VALUES (1, {c}, 7) USING TTL 10")).unwrap();
    }
    server.run("INSERT INTO t (p, c, s, v) VALUES (1, 1000, 5, 8)").unwrap();
    server.run("INSERT INTO t (p, c, s) VALUES (2, 1, 6)").unwrap();
    server.run("DELETE FROM t WHERE p = 2 AND c = 1").unwrap();
    server.pass_seconds(20);
    server.turn_rows = 10;
    let places: Vec<String> = (2000..2200).map(|c| c.to_string()).collect();
    let named = format!("SELECT c FROM t WHERE p = 1 AND c IN (1000, {})", places.join(", "));
    for (question, answer) in [
        ("SELECT c, s FROM t WHERE p = 1", "1000 | 5"),
        ("SELECT c, s FROM t WHERE p = 1 ORDER BY c DESC", "1000 | 5"),
        (&*named, "1000"),
        ("SELECT count(*) FROM t WHERE v = 7", "0"),
    ] {
        server.pauses = 0;
        assert_eq!(server.run(question).unwrap().rows, [answer], "{question}");
        assert!(server.pauses >= 15, "{question}: {}", server.pauses);
    }
    // A partition with only static cells is returned, in however many parts it was visited.
    server.turn_rows = 1;
    assert_eq!(server.run("SELECT c, s FROM t WHERE p = 2").unwrap().rows, ["null | 6"]);
}

#[test]
fn long_values_end_a_turn_sooner() {
    let mut server = Server::new();
    server.check("> CREATE TABLE t (p int PRIMARY KEY, l list<text>)");
    let text = "x".repeat(1000);
    for p in 0..40 {
        server.run(&format!("INSERT INTO t (p, l) VALUES ({p}, ['{text}', '{text}'])")).unwrap();
    }
    server.turn_rows = 100;
    for question in [
        "SELECT count(*) FROM t WHERE l CONTAINS 'y' ALLOW FILTERING",
        "SELECT max(collection_count(l)) FROM t",
        "SELECT p, collection_count(l) FROM t",
    ] {
        server.pauses = 0;
        server.run(question).unwrap();
        assert!(server.pauses >= 4, "{question}: {}", server.pauses);
    }
}
