//! SELECT.

use super::harness::{Asked, Server, check};
use wire::cql::Value;

/// Two partitions of three rows, and one with static cells only.
const ROWS: &str = "
    > CREATE TABLE t (p int, c int, d text, s text STATIC, v int, PRIMARY KEY (p, c, d))
    > INSERT INTO t (p, c, d, v) VALUES (1, 1, 'a', 11)
    > INSERT INTO t (p, c, d, v) VALUES (1, 1, 'b', 12)
    > INSERT INTO t (p, c, d, v) VALUES (1, 2, 'a', 13)
    > INSERT INTO t (p, c, d, v) VALUES (2, 1, 'a', 21)
    > INSERT INTO t (p, c, d, v) VALUES (2, 3, 'c', 22)
    > INSERT INTO t (p, c, d) VALUES (2, 4, 'd')
    > INSERT INTO t (p, s) VALUES (3, 'lone')
    > UPDATE t SET s = 'one' WHERE p = 1
";

fn with_rows(script: &str) {
    check(&format!("{ROWS}{script}"));
}

#[test]
fn rows_are_found_by_key() {
    with_rows(
        "
        > SELECT * FROM t WHERE p = 1 AND c = 1 AND d = 'b'
        1 | 1 | b | one | 12
        > SELECT v FROM t WHERE p = 1 AND c = 1
        11
        12
        > SELECT v, c FROM t WHERE p = 2
        21 | 1
        22 | 3
        null | 4
        > SELECT v FROM t WHERE p = 9
        > SELECT * FROM t WHERE p = 3
        3 | null | null | lone | null
        > SELECT v FROM t WHERE p IN (2, 1, 2) AND c = 1
        11
        12
        21
        > SELECT v FROM t WHERE p = 1 AND c IN (2, 1, 9) AND d = 'a'
        11
        13
        ",
    );
}

#[test]
fn row_ranges_respect_their_bounds() {
    with_rows(
        "
        > SELECT v FROM t WHERE p = 1 AND c > 1
        13
        > SELECT v FROM t WHERE p = 1 AND c >= 1 AND c < 2
        11
        12
        > SELECT v FROM t WHERE p = 1 AND c = 1 AND d > 'a'
        12
        > SELECT v FROM t WHERE p = 1 AND (c, d) > (1, 'a')
        12
        13
        > SELECT v FROM t WHERE p = 1 AND (c, d) >= (1, 'b') AND (c) <= (1)
        12
        > SELECT v FROM t WHERE p = 1 AND (c, d) >= (1, 'b') AND c <= 1
        12
        > SELECT v FROM t WHERE p = 1 AND c >= 1 AND (c, d) < (1, 'b')
        11
        > SELECT v FROM t WHERE p = 1 AND (c, d) IN ((2, 'a'), (1, 'b'))
        12
        13
        > SELECT v FROM t WHERE p = 1 AND (c, d) = (1, 'a')
        11
        > SELECT v FROM t WHERE p = 1 AND c > 5 AND c < 2
        > SELECT v FROM t WHERE p = 1 ORDER BY c DESC
        13
        12
        11
        > SELECT v FROM t WHERE p = 1 AND c >= 1 ORDER BY c DESC, d DESC LIMIT 2
        13
        12
        > SELECT v FROM t WHERE p IN (1, 2) ORDER BY c DESC LIMIT 3
        null
        22
        13
        ",
    );
}

#[test]
fn descending_columns_reverse_ranges() {
    check(
        "
        > CREATE TABLE d (p int, a int, b int, PRIMARY KEY (p, a, b)) WITH CLUSTERING ORDER BY (a DESC, b ASC)
        > INSERT INTO d (p, a, b) VALUES (1, 1, 1)
        > INSERT INTO d (p, a, b) VALUES (1, 1, 2)
        > INSERT INTO d (p, a, b) VALUES (1, 2, 1)
        > INSERT INTO d (p, a, b) VALUES (1, 3, 1)
        > SELECT a, b FROM d WHERE p = 1
        3 | 1
        2 | 1
        1 | 1
        1 | 2
        > SELECT a, b FROM d WHERE p = 1 AND a > 1
        3 | 1
        2 | 1
        > SELECT a, b FROM d WHERE p = 1 AND a <= 2
        2 | 1
        1 | 1
        1 | 2
        > SELECT a, b FROM d WHERE p = 1 AND (a, b) > (1, 1)
        3 | 1
        2 | 1
        1 | 2
        > SELECT a, b FROM d WHERE p = 1 AND (a, b) <= (2, 1) ORDER BY a ASC
        1 | 2
        1 | 1
        2 | 1
        ",
    );
}

#[test]
fn scans_cover_the_whole_ring() {
    with_rows(
        "
        > SELECT p, v FROM t
        1 | 11
        1 | 12
        1 | 13
        2 | 21
        2 | 22
        2 | null
        3 | null
        > SELECT DISTINCT p, s FROM t
        1 | one
        2 | null
        3 | lone
        > SELECT p FROM t PER PARTITION LIMIT 1
        1
        2
        3
        > SELECT p FROM t PER PARTITION LIMIT 1 LIMIT 2
        1
        2
        > SELECT v FROM t WHERE token(p) >= -4069959284402364209 AND token(p) < -3248873570005575792
        11
        12
        13
        > SELECT p FROM t WHERE token(p) > token(1) PER PARTITION LIMIT 1
        2
        3
        > SELECT v FROM t WHERE token(p) >= token(1) AND p = 1 AND c = 2
        13
        > SELECT v FROM t WHERE token(p) > token(1) AND p = 1
        > SELECT token(p) FROM t WHERE p = 1 AND c = 2
        -4069959284402364209
        > SELECT v FROM t WHERE v = 22 ALLOW FILTERING
        22
        > SELECT v FROM t WHERE v > 11 AND v <= 21 ALLOW FILTERING
        12
        13
        21
        > SELECT p FROM t WHERE s = 'lone' ALLOW FILTERING
        3
        > SELECT v FROM t WHERE c = 1 ALLOW FILTERING
        11
        12
        21
        > SELECT v FROM t WHERE v IN (11, 22) ALLOW FILTERING
        11
        22
        ",
    );
}

#[test]
fn pages_resume_after_the_previous_page() {
    let mut server = Server::new();
    server.check(ROWS);
    for text in [
        "SELECT p, c, d FROM t",
        "SELECT p, c, d FROM t WHERE p IN (1, 2, 3)",
        "SELECT p, c, d FROM t WHERE p = 1 ORDER BY c DESC",
        "SELECT p, c, d FROM t WHERE p = 2 AND c IN (1, 3, 4)",
        "SELECT p, c FROM t WHERE p = 2 AND c > 1",
        "SELECT p, c FROM t PER PARTITION LIMIT 2",
        "SELECT p, c FROM t LIMIT 5",
        "SELECT DISTINCT p FROM t",
        "SELECT p, c, count(*) FROM t GROUP BY p, c",
    ] {
        let whole = server.run(text).unwrap().rows;
        assert!(whole.len() > 1, "{text}");
        for page_size in 1..=8 {
            let mut rows = Vec::new();
            let mut state: Option<Vec<u8>> = None;
            loop {
                let paging_state = state.as_deref();
                let asked = Asked { page_size: Some(page_size), paging_state, ..Asked::default() };
                let page = server.ask(text, asked).unwrap();
                assert!(i32::try_from(page.rows.len()).unwrap() <= page_size, "{text}");
                rows.extend(page.rows);
                state = page.paging_state;
                if state.is_none() {
                    break;
                }
            }
            assert_eq!(rows, whole, "{text}, {page_size} rows per page");
        }
    }
    for state in [&b"x"[..], b"", &[1; 40]] {
        let asked = Asked { page_size: Some(1), paging_state: Some(state), ..Asked::default() };
        let refused = server.ask("SELECT * FROM t", asked).unwrap_err();
        assert_eq!(refused.to_string(), "Invalid value for the paging state");
    }
}

#[test]
fn collections_are_filtered_by_their_items() {
    check(
        "
        > CREATE TABLE m (p int PRIMARY KEY, l list<int>, s set<text>, m map<text, int>, f frozen<map<text, int>>)
        > INSERT INTO m (p, l, s, m, f) VALUES (1, [3, 1, 3], {'b', 'a'}, {'x': 1, 'y': 2}, {'q': 7})
        > INSERT INTO m (p, l, s, m) VALUES (2, [4], {'c'}, {'x': 2})
        > SELECT * FROM m WHERE p = 1
        1 | {\"q\": 7} | [3, 1, 3] | {\"x\": 1, \"y\": 2} | [\"a\", \"b\"]
        > SELECT p FROM m WHERE l CONTAINS 4 ALLOW FILTERING
        2
        > SELECT p FROM m WHERE s CONTAINS 'a' ALLOW FILTERING
        1
        > SELECT p FROM m WHERE m CONTAINS 2 ALLOW FILTERING
        1
        2
        > SELECT p FROM m WHERE m CONTAINS KEY 'y' ALLOW FILTERING
        1
        > SELECT p FROM m WHERE m['x'] = 2 ALLOW FILTERING
        2
        > SELECT p FROM m WHERE f = {'q': 7} ALLOW FILTERING
        1
        > SELECT p FROM m WHERE f CONTAINS KEY 'q' ALLOW FILTERING
        1
        ",
    );
}

#[test]
fn counts_aggregate_rows() {
    with_rows(
        "
        > SELECT count(*) FROM t
        7
        > SELECT count(*) FROM t WHERE p = 1
        3
        > SELECT count(*) FROM t WHERE p = 8
        0
        > SELECT p, count(*) FROM t GROUP BY p
        1 | 3
        2 | 3
        3 | 1
        > SELECT p, c, count(*) FROM t WHERE p = 1 GROUP BY p, c
        1 | 1 | 2
        1 | 2 | 1
        > SELECT p, c, count(*) FROM t GROUP BY p, c PER PARTITION LIMIT 1
        1 | 1 | 2
        2 | 1 | 1
        3 | null | 1
        > SELECT p, c, d FROM t GROUP BY p, c LIMIT 3
        1 | 1 | a
        1 | 2 | a
        2 | 1 | a
        ",
    );
}

#[test]
fn json_returns_all_columns_in_one() {
    with_rows(
        "
        > SELECT JSON p, v, s FROM t WHERE p = 1 AND c = 2
        {\"p\": 1, \"v\": 13, \"s\": \"one\"}
        ",
    );
}

#[test]
fn write_times_and_ttls_are_returned() {
    check(
        "
        > CREATE TABLE w (p int PRIMARY KEY, v int, m map<text, int>)
        > INSERT INTO w (p, v) VALUES (1, 2) USING TIMESTAMP 5 AND TTL 100
        > UPDATE w USING TIMESTAMP 7 AND TTL 50 SET m = m + {'a': 1} WHERE p = 1
        > SELECT writetime(v), ttl(v), writetime(m), maxwritetime(m), ttl(m) FROM w
        5 | 100 | [7] | 7 | [50]
        > SELECT writetime(p) FROM w
        ! Cannot use selection function writetime on PRIMARY KEY part p
        ",
    );
}

#[test]
fn bind_markers_have_types_names_and_indexes() {
    let mut server = Server::new();
    server.check(ROWS);
    server.check(
        "> CREATE TABLE two (a int, b text, v map<text, int>, l list<int>, PRIMARY KEY ((a, b)))",
    );
    for (text, names, keys) in [
        ("SELECT v FROM t WHERE p = ? AND c > ? LIMIT ?", "p c [limit]", &[0][..]),
        ("SELECT v FROM t WHERE c = ? AND p = ? AND d IN ?", "c p in(d)", &[1]),
        ("SELECT v FROM t WHERE p = 1 AND (c, d) > (?, ?)", "c d", &[]),
        ("SELECT v FROM t WHERE p = ? AND (c, d) IN ?", "p in(c,d)", &[0]),
        ("SELECT v FROM t WHERE token(p) > ?", "partition key token", &[]),
        ("SELECT v FROM t WHERE p IN ?", "in(p)", &[]),
        ("SELECT v FROM two WHERE b IN (?, ?) AND a = ?", "b b a", &[2, 1]),
        ("SELECT v FROM t WHERE p > ? ALLOW FILTERING", "p", &[0]),
        (
            "BEGIN BATCH DELETE FROM t WHERE p = ?; UPDATE t USING TIMESTAMP ? SET s = ? WHERE p = ?; APPLY BATCH",
            "p [timestamp] s p",
            &[3],
        ),
        (
            "BEGIN BATCH USING TIMESTAMP ? DELETE FROM t WHERE p = ?; APPLY BATCH",
            "[timestamp] p",
            &[],
        ),
        (
            "BEGIN BATCH DELETE FROM t WHERE p = ?; DELETE FROM two WHERE a = ? AND b = ?; APPLY BATCH",
            "p a b",
            &[],
        ),
        (
            "INSERT INTO two (b, a) VALUES (?, ?) USING TTL ? AND TIMESTAMP ?",
            "b a [ttl] [timestamp]",
            &[1, 0],
        ),
        (
            "UPDATE two SET v[?] = ?, l[?] = ?, l = ? + l WHERE a = :x AND b = ?",
            "key(v) value(v) idx(l) value(l) l x b",
            &[5, 6],
        ),
        ("UPDATE t SET v = ? WHERE p = ? AND c = ? AND d = ? IF v = ?", "v p c d v", &[1]),
        ("DELETE v[?] FROM two WHERE a = ? AND b = ?", "key(v) a b", &[1, 2]),
        (
            "SELECT * FROM two WHERE v[?] = ? AND v CONTAINS KEY ? AND l CONTAINS ? ALLOW FILTERING",
            "key(v) value(v) key(v) value(l)",
            &[],
        ),
    ] {
        let statement = server.prepare(text).unwrap();
        let found: Vec<&str> =
            statement.markers.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(found.join(" "), names, "{text}");
        assert_eq!(statement.partition_key, keys, "{text}");
    }
    let statement = server.prepare("SELECT v FROM t WHERE p = ? AND c = ?").unwrap();
    let one = 1_i32.to_be_bytes();
    let values = [Value::Bytes(&one), Value::Bytes(&one)];
    let answer = server.execute(&statement, Asked { values: &values, ..Asked::default() }).unwrap();
    assert_eq!(answer.rows, ["11", "12"]);
    let few = Asked { values: &values[..1], ..Asked::default() };
    let refused = server.execute(&statement, few).unwrap_err();
    assert_eq!(refused.to_string(), "Invalid amount of bind variables");
}
