//! INSERT, UPDATE, DELETE, BATCH, TRUNCATE, and IF.

use super::harness::{Asked, Server, check};
use wire::cql::{BatchKind, Value};

#[test]
fn cells_are_set_and_deleted() {
    check(
        "
        > CREATE TABLE t (p int, c int, s text STATIC, v int, w text, PRIMARY KEY (p, c))
        > INSERT INTO t (p, c, v, w) VALUES (1, 1, 5, 'x')
        > UPDATE t SET v = 6, s = 'st' WHERE p = 1 AND c = 1
        > SELECT * FROM t
        1 | 1 | st | 6 | x
        > DELETE w FROM t WHERE p = 1 AND c = 1
        > INSERT INTO t (p, c, v) VALUES (1, 1, null)
        > SELECT * FROM t
        1 | 1 | st | null | null
        > UPDATE t SET v = 1 WHERE p = 1 AND c IN (2, 3)
        > SELECT c, v FROM t
        1 | null
        2 | 1
        3 | 1
        > UPDATE t SET v = null WHERE p = 1 AND c = 2
        > DELETE FROM t WHERE p = 1 AND c = 1
        > SELECT c FROM t
        3
        > DELETE s FROM t WHERE p = 1
        > SELECT s FROM t
        null
        ",
    );
}

#[test]
fn ranges_and_partitions_are_deleted() {
    check(
        "
        > CREATE TABLE t (p int, c int, d int, v int, PRIMARY KEY (p, c, d))
        > INSERT INTO t (p, c, d) VALUES (1, 1, 1)
        > INSERT INTO t (p, c, d) VALUES (1, 1, 2)
        > INSERT INTO t (p, c, d) VALUES (1, 2, 1)
        > INSERT INTO t (p, c, d) VALUES (1, 3, 1)
        > INSERT INTO t (p, c, d) VALUES (2, 3, 1)
        > DELETE FROM t WHERE p = 1 AND c = 1
        > SELECT c, d FROM t WHERE p = 1
        2 | 1
        3 | 1
        > DELETE FROM t WHERE p = 1 AND c > 2
        > SELECT c, d FROM t WHERE p = 1
        2 | 1
        > DELETE FROM t WHERE p IN (1, 2)
        > SELECT c, d FROM t
        > INSERT INTO t (p, c, d) VALUES (2, 3, 1)
        > SELECT c, d FROM t
        3 | 1
        > TRUNCATE t
        > SELECT c, d FROM t
        ",
    );
}

#[test]
fn the_latest_timestamp_wins() {
    check(
        "
        > CREATE TABLE t (p int PRIMARY KEY, v int)
        > INSERT INTO t (p, v) VALUES (1, 10) USING TIMESTAMP 10
        > INSERT INTO t (p, v) VALUES (1, 9) USING TIMESTAMP 9
        > SELECT v FROM t
        10
        > DELETE FROM t USING TIMESTAMP 9 WHERE p = 1
        > SELECT v FROM t
        10
        > DELETE FROM t USING TIMESTAMP 10 WHERE p = 1
        > SELECT v FROM t
        > INSERT INTO t (p, v) VALUES (1, 11) USING TIMESTAMP 11
        > SELECT v, writetime(v) FROM t
        11 | 11
        > INSERT INTO t (p, v) VALUES (1, 5)
        > INSERT INTO t (p, v) VALUES (1, 4)
        > SELECT v FROM t
        4
        ",
    );
}

#[test]
fn cells_with_a_ttl_expire() {
    let mut server = Server::new();
    server.check(
        "
        > CREATE TABLE t (p int PRIMARY KEY, v int, w int)
        > CREATE TABLE d (p int PRIMARY KEY, v int) WITH default_time_to_live = 50
        > INSERT INTO t (p, v) VALUES (1, 1) USING TTL 10
        > UPDATE t USING TTL 20 SET w = 2 WHERE p = 1
        > INSERT INTO d (p, v) VALUES (1, 1)
        > INSERT INTO d (p, v) VALUES (2, 1) USING TTL 0
        > SELECT v, ttl(v), w, ttl(w) FROM t
        1 | 10 | 2 | 20
        > SELECT p, ttl(v) FROM d
        1 | 50
        2 | null
        ",
    );
    server.pass_seconds(10);
    server.check(
        "
        > SELECT v, ttl(v), w, ttl(w) FROM t
        null | null | 2 | 10
        ",
    );
    server.pass_seconds(10);
    server.check("> SELECT * FROM t");
    server.pass_seconds(30);
    server.check(
        "
        > SELECT p FROM d
        2
        ",
    );
}

#[test]
fn collections_change_by_items() {
    check(
        "
        > CREATE TABLE t (p int PRIMARY KEY, l list<int>, s set<int>, m map<text, int>)
        > INSERT INTO t (p, l, s, m) VALUES (1, [1, 2], {3, 1}, {'a': 1})
        > UPDATE t SET l = l + [3, 4], s = s + {2}, m = m + {'b': 2, 'a': 5} WHERE p = 1
        > UPDATE t SET l = [8, 9] + l WHERE p = 1
        > UPDATE t SET l = [7] + l WHERE p = 1
        > SELECT l, s, m FROM t
        [7, 8, 9, 1, 2, 3, 4] | [1, 2, 3] | {\"a\": 5, \"b\": 2}
        > UPDATE t SET l[0] = 70, m['c'] = 3 WHERE p = 1
        > UPDATE t SET l = l - [8, 4], s = s - {1}, m = m - {'a'} WHERE p = 1
        > SELECT l, s, m FROM t
        [70, 9, 1, 2, 3] | [2, 3] | {\"b\": 2, \"c\": 3}
        > DELETE l[1], s[3], m['b'] FROM t WHERE p = 1
        > SELECT l, s, m FROM t
        [70, 1, 2, 3] | [2] | {\"c\": 3}
        > UPDATE t SET l[4] = 1 WHERE p = 1
        ! List index 4 out of bound, list has size 4
        > UPDATE t SET l[0] = 1 WHERE p = 2
        ! Attempted to set an element on a list which is null
        > UPDATE t SET l = [5], s = {}, m = null WHERE p = 1
        > SELECT l, s, m FROM t
        [5] | null | null
        > DELETE l FROM t WHERE p = 1
        > SELECT l FROM t
        null
        ",
    );
}

#[test]
fn fields_are_updated_individually() {
    check(
        "
        > CREATE TYPE address (street text, number int)
        > CREATE TABLE t (p int PRIMARY KEY, a address, f frozen<address>)
        > INSERT INTO t (p, a, f) VALUES (1, {street: 's', number: 1}, {street: 'f', number: 2})
        > UPDATE t SET a.number = 5 WHERE p = 1
        > SELECT a, f FROM t
        {\"street\": \"s\", \"number\": 5} | {\"street\": \"f\", \"number\": 2}
        > DELETE a.street FROM t WHERE p = 1
        > SELECT a FROM t
        {\"street\": null, \"number\": 5}
        > UPDATE t SET a.nix = 5 WHERE p = 1
        ! UDT column a does not have a field named nix
        > UPDATE t SET a = null WHERE p = 1 IF a.number = 5
        true
        > SELECT a FROM t
        null
        ",
    );
}

#[test]
fn counters_are_incremented() {
    check(
        "
        > CREATE TABLE n (p int, c int, hits counter, PRIMARY KEY (p, c))
        > UPDATE n SET hits = hits + 5 WHERE p = 1 AND c = 1
        > UPDATE n SET hits = hits - 2 WHERE p = 1 AND c = 1
        > UPDATE n SET hits += 10 WHERE p = 1 AND c = 1
        > SELECT * FROM n
        1 | 1 | 13
        > BEGIN COUNTER BATCH UPDATE n SET hits = hits + 1 WHERE p = 1 AND c = 1; UPDATE n SET hits = hits + 1 WHERE p = 1 AND c = 1; APPLY BATCH
        > SELECT hits FROM n
        15
        > DELETE FROM n WHERE p = 1 AND c = 1
        > SELECT * FROM n
        > UPDATE n SET hits = hits + null WHERE p = 1 AND c = 1
        ! Invalid null value for counter increment/decrement
        ",
    );
}

#[test]
fn conditions_are_evaluated_before_the_write() {
    check(
        "
        > CREATE TABLE t (p int, c int, s int STATIC, v int, m map<text, int>, l list<int>, PRIMARY KEY (p, c))
        > INSERT INTO t (p, c, v) VALUES (1, 1, 5) IF NOT EXISTS
        true
        > INSERT INTO t (p, c, v) VALUES (1, 1, 6) IF NOT EXISTS
        false | 1 | 1 | null | null | null | 5
        > UPDATE t SET v = 7 WHERE p = 1 AND c = 1 IF v = 6
        false | 5
        > UPDATE t SET v = 7 WHERE p = 1 AND c = 1 IF v = 5 AND s = null
        true
        > UPDATE t SET v = 8 WHERE p = 1 AND c = 1 IF v IN (6, 7)
        true
        > UPDATE t SET v = 9 WHERE p = 1 AND c = 1 IF v > 7 AND v != 9
        true
        > UPDATE t SET v = 1 WHERE p = 1 AND c = 2 IF EXISTS
        false
        > UPDATE t SET v = 1 WHERE p = 1 AND c = 2 IF v = 1
        false
        > UPDATE t SET v = 1 WHERE p = 1 AND c = 2 IF v = null
        true
        > UPDATE t SET s = 1 WHERE p = 1 IF s = null
        true
        > UPDATE t SET s = 2 WHERE p = 1 IF s = 5
        false | 1
        > UPDATE t SET m = {'a': 1}, l = [4] WHERE p = 1 AND c = 1
        > UPDATE t SET v = 10 WHERE p = 1 AND c = 1 IF m['a'] = 1 AND l[0] = 4 AND m = {'a': 1}
        true
        > UPDATE t SET v = 11 WHERE p = 1 AND c = 1 IF m['b'] = 1
        false | {\"a\": 1}
        > DELETE FROM t WHERE p = 1 AND c = 1 IF v = 11
        false | 10
        > DELETE FROM t WHERE p = 1 AND c = 1 IF EXISTS
        true
        > SELECT c, v FROM t
        2 | 1
        > UPDATE t SET v = 1 WHERE p = 1 AND c = 2 IF v < null
        ! Invalid comparison with null for operator \"<\"
        ",
    );
}

/// Columns that were not read for the conditions are not returned.
#[test]
fn a_refusal_returns_the_columns_read() {
    check(
        "
        > CREATE TABLE t (p int, c int, s int STATIC, u int STATIC, v int, x set<int>, PRIMARY KEY (p, c))
        > INSERT INTO t (p, c, s, u, v, x) VALUES (1, 1, 5, 6, 10, {7})
        > UPDATE t SET v = 20 WHERE p = 1 AND c = 2
        > UPDATE t SET v = 30 WHERE p = 2 AND c = 1
        > INSERT INTO t (p, c, v) VALUES (1, 1, 0) IF NOT EXISTS
        false | 1 | 1 | null | null | 10 | [7]
        > INSERT INTO t (p, c, s) VALUES (1, 1, 0) IF NOT EXISTS
        false | 1 | 1 | 5 | 6 | 10 | [7]
        > INSERT INTO t (p, s) VALUES (1, 0) IF NOT EXISTS
        false | 1 | 1 | 5 | 6 | null | null
        > UPDATE t SET s = 0 WHERE p = 2 IF s = 1
        false
        > UPDATE t SET v = 0 WHERE p = 2 AND c = 9 IF s = 1
        false | null
        > UPDATE t SET v = 0, s = 0 WHERE p = 1 AND c = 9 IF v = 1
        false | null
        > UPDATE t SET v = 0 WHERE p = 1 AND c = 9 IF v = 1
        false
        > UPDATE t SET v = 0 WHERE p = 1 AND c = 1 IF s = 0 AND v = 0 AND u = 0
        false | 10 | 5 | 6
        > BEGIN BATCH UPDATE t SET v = 0 WHERE p = 1 AND c = 2 IF v = 0; UPDATE t SET v = 0 WHERE p = 1 AND c = 1 IF s = 0; APPLY BATCH
        false | 1 | 2 | 20 | 5
        > BEGIN BATCH INSERT INTO t (p, c, v) VALUES (1, 1, 0) IF NOT EXISTS; UPDATE t SET s = 0 WHERE p = 1; APPLY BATCH
        false | 1 | 1 | null | null | 10 | [7]
        > UPDATE t SET v = 0 WHERE p = 1 AND c = 1 IF x CONTAINS 8
        false | [7]
        > UPDATE t SET v = 11 WHERE p = 1 AND c = 1 IF x CONTAINS 7
        true
        ",
    );
}

#[test]
fn conditions_on_one_row_must_be_compatible() {
    let mut server = Server::new();
    server.check("> CREATE TABLE t (p int, c int, v int, PRIMARY KEY (p, c))");
    let exists = "UPDATE t SET v = 1 WHERE p = 1 AND c = 1 IF EXISTS";
    let is_absent = "INSERT INTO t (p, c, v) VALUES (1, 1, 1) IF NOT EXISTS";
    let is_two = "UPDATE t SET v = 1 WHERE p = 1 AND c = 1 IF v = 2";
    for (first, second, expected) in [
        (exists, is_absent, "Cannot mix IF EXISTS and IF NOT EXISTS conditions for the same row"),
        (is_absent, is_two, "Cannot mix IF conditions and IF NOT EXISTS for the same row"),
        (is_two, is_absent, "Cannot mix IF conditions and IF NOT EXISTS for the same row"),
        (exists, is_two, "Cannot mix IF conditions and IF NOT EXISTS for the same row"),
        (is_two, exists, "Cannot mix IF conditions and IF EXISTS for the same row"),
    ] {
        let script = format!("> BEGIN BATCH {first}; {second}; APPLY BATCH\n! {expected}");
        server.check(&script);
    }
}

/// Assigning null to a collection deletes older items, but none with the same timestamp.
#[test]
fn null_deletes_only_older_items() {
    check(
        "
        > CREATE TYPE y (f int)
        > CREATE TABLE t (p int PRIMARY KEY, l list<int>, s set<int>, m map<int, int>, u y, v int)
        > INSERT INTO t (p, l, s, m, u, v) VALUES (1, [1], {1}, {1: 1}, {f: 1}, 1) USING TIMESTAMP 25
        > INSERT INTO t (p, l, s, m, u, v) VALUES (1, null, null, null, null, null) USING TIMESTAMP 25
        > SELECT l, s, m, u, v FROM t
        [1] | [1] | {\"1\": 1} | {\"f\": 1} | null
        > UPDATE t USING TIMESTAMP 26 SET l = null, s = null, m = null, u = null WHERE p = 1
        > SELECT l, s, m, u FROM t
        null | null | null | null
        > UPDATE t USING TIMESTAMP 27 SET l = [2] WHERE p = 1
        > DELETE l FROM t USING TIMESTAMP 27 WHERE p = 1
        > SELECT l FROM t
        null
        ",
    );
}

#[test]
fn conditional_writes_follow_the_timestamps_they_read() {
    let mut server = Server::new();
    server.check("> CREATE TABLE t (p int PRIMARY KEY, v int)");
    let ahead = Some(server.now.unix_us() + 1_000_000);
    server
        .ask("INSERT INTO t (p, v) VALUES (1, 1)", Asked { timestamp: ahead, ..Asked::default() })
        .unwrap();
    server.check(
        "
        > UPDATE t SET v = 2 WHERE p = 1 IF v = 1
        true
        > SELECT v FROM t
        2
        ",
    );
}

#[test]
fn batches_are_atomic() {
    check(
        "
        > CREATE TABLE t (p int, c int, v int, PRIMARY KEY (p, c))
        > BEGIN BATCH INSERT INTO t (p, c, v) VALUES (1, 1, 1); UPDATE t SET v = 2 WHERE p = 2 AND c = 1; DELETE FROM t WHERE p = 3; APPLY BATCH
        > SELECT * FROM t
        1 | 1 | 1
        2 | 1 | 2
        > BEGIN UNLOGGED BATCH USING TIMESTAMP 77 INSERT INTO t (p, c, v) VALUES (5, 1, 1); APPLY BATCH
        > SELECT writetime(v) FROM t WHERE p = 5
        77
        > BEGIN BATCH INSERT INTO t (p, c, v) VALUES (1, 2, 2) IF NOT EXISTS; UPDATE t SET v = 9 WHERE p = 1 AND c = 1 IF v = 1; APPLY BATCH
        true
        > BEGIN BATCH INSERT INTO t (p, c, v) VALUES (1, 3, 2) IF NOT EXISTS; UPDATE t SET v = 10 WHERE p = 1 AND c = 1 IF v = 1; APPLY BATCH
        false | 1 | 1 | 9
        > SELECT c, v FROM t WHERE p = 1
        1 | 9
        2 | 2
        > BEGIN BATCH INSERT INTO t (p, c, v) VALUES (1, 3, 2); INSERT INTO t (p, c, v) VALUES (1, null, 2); APPLY BATCH
        ! Invalid null value in condition for column c
        > SELECT c FROM t WHERE p = 1
        1
        2
        ",
    );
}

#[test]
fn batch_messages_are_supported() {
    let mut server = Server::new();
    server.check("> CREATE TABLE t (p int PRIMARY KEY, v int)");
    let number = |number: i32| number.to_be_bytes();
    let (one, two) = (number(1), number(2));
    let insert = "INSERT INTO t (p, v) VALUES (?, ?)";
    let statements = [
        (insert, &[Value::Bytes(&one), Value::Bytes(&two)][..]),
        (insert, &[Value::Bytes(&two), Value::Unset]),
    ];
    server.batch(BatchKind::Logged, &statements).unwrap();
    server.check(
        "
        > SELECT * FROM t
        1 | 2
        2 | null
        ",
    );
    let refused = server.batch(BatchKind::Logged, &[("SELECT * FROM t", &[])]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed."
    );
}

#[test]
fn unset_values_change_nothing() {
    let mut server = Server::new();
    server.check(
        "
        > CREATE TABLE t (p int PRIMARY KEY, v int)
        > INSERT INTO t (p, v) VALUES (1, 1)
        ",
    );
    let one = 1_i32.to_be_bytes();
    let values = [Value::Bytes(&one), Value::Unset];
    let asked = Asked { values: &values, ..Asked::default() };
    server.ask("INSERT INTO t (p, v) VALUES (?, ?)", asked).unwrap();
    server.check(
        "
        > SELECT v FROM t
        1
        ",
    );
    let values = [Value::Unset, Value::Unset];
    let refused = server
        .ask("INSERT INTO t (p, v) VALUES (?, ?)", Asked { values: &values, ..Asked::default() });
    assert_eq!(refused.unwrap_err().to_string(), "Invalid unset value for column p");
}

#[test]
fn replaying_the_log_restores_the_same_rows() {
    let mut server = Server::new();
    server.check(
        "
        > CREATE TABLE t (p int, c int, s text STATIC, v int, l list<int>, m map<text, int>, PRIMARY KEY (p, c))
        > CREATE TABLE n (p int PRIMARY KEY, hits counter)
        > CREATE TABLE gone (p int PRIMARY KEY)
        > INSERT INTO t (p, c, s, v, l, m) VALUES (1, 1, 'st', 5, [1, 2], {'a': 1})
        > UPDATE t SET l = [0] + l, m['b'] = 2, v = 6 WHERE p = 1 AND c = 1
        > INSERT INTO t (p, c, v) VALUES (1, 2, 7)
        > INSERT INTO t (p, c, v) VALUES (2, 1, 8) USING TTL 10
        > DELETE FROM t WHERE p = 1 AND c > 1
        > UPDATE n SET hits = hits + 3 WHERE p = 1
        > UPDATE n SET hits = hits + 4 WHERE p = 1
        > INSERT INTO gone (p) VALUES (1)
        > TRUNCATE gone
        ",
    );
    let mut server = server.restart();
    let after = "
        > SELECT * FROM t
        1 | 1 | st | [0, 1, 2] | {\"a\": 1, \"b\": 2} | 6
        2 | 1 | null | null | null | 8
        > SELECT hits FROM n
        7
        > SELECT * FROM gone
        ";
    server.check(after);
    server.pass_seconds(10);
    server.check(
        "
        > SELECT p FROM t
        1
        ",
    );
}

#[test]
fn json_documents_are_inserted_as_rows() {
    check(
        "
        > CREATE TABLE t (p int PRIMARY KEY, v int, w text)
        > INSERT INTO t JSON '{\"p\": 1, \"v\": 5, \"w\": \"x\"}'
        > INSERT INTO t JSON '{\"p\": 1, \"v\": 6}' DEFAULT UNSET
        > SELECT * FROM t
        1 | 6 | x
        > INSERT INTO t JSON '{\"p\": 1, \"v\": 7}'
        > SELECT * FROM t
        1 | 7 | null
        > INSERT INTO t JSON '{\"v\": 7}'
        ! Invalid null value in condition for column p
        > BEGIN BATCH INSERT INTO t JSON '{\"p\": 2, \"v\": 1}'; INSERT INTO t JSON '{\"p\": 3, \"v\": 2}'; APPLY BATCH
        > SELECT p, v FROM t
        1 | 7
        2 | 1
        3 | 2
        ",
    );
}

#[test]
fn a_null_ttl_means_no_ttl() {
    let mut server = Server::new();
    server.check("> CREATE TABLE t (k int PRIMARY KEY, v int) WITH default_time_to_live = 1000");
    for (text, value, expected) in [
        ("INSERT INTO t (k, v) VALUES (1, 1) USING TTL ?", Value::Null, "null"),
        ("UPDATE t USING TTL ? SET v = 2 WHERE k = 1", Value::Null, "null"),
        ("UPDATE t USING TTL ? SET v = 2 WHERE k = 1", Value::Unset, "1000"),
        ("UPDATE t USING TTL ? SET v = 3 WHERE k = 1", Value::Bytes(&[0, 0, 0, 9]), "9"),
    ] {
        server.ask(text, Asked { values: &[value], ..Asked::default() }).unwrap();
        assert_eq!(server.run("SELECT ttl(v) FROM t").unwrap().rows, [expected], "{text}");
    }
    let asked = Asked { values: &[Value::Null], ..Asked::default() };
    let error = server.ask("UPDATE t USING TIMESTAMP ? SET v = 1 WHERE k = 1", asked);
    assert_eq!(error.unwrap_err().to_string(), "Invalid null value of timestamp");
}

#[test]
fn list_indexes_must_be_valid() {
    let mut server = Server::new();
    server.check(
        "> CREATE TABLE t (k int PRIMARY KEY, l list<int>)
        > UPDATE t SET l = [1, 2] WHERE k = 1",
    );
    for text in ["UPDATE t SET l[?] = 7 WHERE k = 1", "DELETE l[?] FROM t WHERE k = 1"] {
        for (value, expected) in [
            (Value::Null, "Invalid null value for list index"),
            (Value::Bytes(&[]), "Invalid empty value for list index"),
            (Value::Bytes(&[0, 0, 0, 2]), "List index 2 out of bound, list has size 2"),
        ] {
            let refused = server.ask(text, Asked { values: &[value], ..Asked::default() });
            assert_eq!(refused.unwrap_err().to_string(), expected, "{text}");
        }
    }
    // An unset place deletes nothing, an unset value of a set likewise.
    let unset = Asked { values: &[Value::Unset], ..Asked::default() };
    let refused = server.ask("UPDATE t SET l[?] = 7 WHERE k = 1", unset);
    assert_eq!(refused.unwrap_err().to_string(), "Invalid unset value for list index");
    server.ask("DELETE l[?] FROM t WHERE k = 1", unset).unwrap();
    server.check("> ALTER TABLE t ADD (s set<int>, m map<int, int>)");
    server.ask("DELETE s[?] FROM t WHERE k = 1", unset).unwrap();
    let refused = server.ask("DELETE m[?] FROM t WHERE k = 1", unset);
    assert_eq!(refused.unwrap_err().to_string(), "Invalid unset map key");
    server.check("> SELECT l FROM t\n[1, 2]");
}

/// So that data can be moved back to Cassandra.
#[test]
fn key_and_index_lengths_have_the_limits_of_cassandra() {
    let mut server = Server::new();
    server.check(
        "> CREATE TABLE t (k int, c text, d text, v int, s set<text>, PRIMARY KEY (k, c, d))
        > CREATE TABLE i (k int PRIMARY KEY, v text, s set<text>, l list<text>, \
            m map<text, text>, e map<text, text>)
        > CREATE INDEX ON i (v)
        > CREATE INDEX ON i (s)
        > CREATE INDEX ON i (l)
        > CREATE INDEX ON i (keys(m))
        > CREATE INDEX ON i (entries(e))",
    );
    let (short, long) = ("a".repeat(65_534), "a".repeat(65_535));
    let too_long = "Key length of 65536 is longer than maximum of 65535";
    for (text, expected) in [
        (format!("INSERT INTO t (k, c, d) VALUES (1, '{long}', '')"), None),
        (format!("INSERT INTO t (k, c, d) VALUES (1, '{short}', 'b')"), None),
        (format!("INSERT INTO t (k, c, d) VALUES (1, '{long}', 'b')"), Some(too_long)),
        (format!("UPDATE t SET v = 1 WHERE k = 1 AND c = 'b' AND d = '{long}'"), Some(too_long)),
        (format!("DELETE FROM t WHERE k = 1 AND c = 'b' AND d = '{long}'"), Some(too_long)),
        (format!("DELETE FROM t WHERE k = 1 AND c = '{long}b'"), None),
        (format!("SELECT v FROM t WHERE k = 1 AND c = '{long}' AND d = 'b'"), None),
        (format!("INSERT INTO t (k, c, d, s) VALUES (1, '', '', {{'{long}b'}})"), None),
    ] {
        let refused = server.run(&text).err().map(|error| error.to_string());
        assert_eq!(refused.as_deref(), expected, "{}", &text[..40]);
    }
    for (text, index, size) in [
        (format!("v = '{short}'"), "", 0),
        (format!("v = '{long}'"), "v", 65_535),
        (format!("s = {{'{long}'}}"), "s", 65_535),
        (format!("l = ['{long}']"), "l", 65_535),
        (format!("l = l + ['{short}']"), "", 0),
        (format!("m['{long}'] = ''"), "m", 65_535),
        (format!("m[''] = '{long}'"), "", 0),
        (format!("e = {{'x': '{short}'}}"), "e", 65_541),
    ] {
        let refused = server.run(&format!("UPDATE i SET {text} WHERE k = 1")).err();
        let expected = (size > 0).then(|| {
            format!(
                "Cannot index value of size {size} for index i_{index}_idx on k.i({index}) \
                 (maximum allowed size=65535)"
            )
        });
        assert_eq!(refused.map(|error| error.to_string()), expected, "{}", &text[..10]);
    }
}

#[test]
fn conditions_ignore_unset_values_of_in() {
    let mut server = Server::new();
    server.check(
        "> CREATE TYPE u (a int)
        > CREATE TABLE t (k int PRIMARY KEY, v u, w int)
        > INSERT INTO t (k, v, w) VALUES (1, {a: 1}, 1)",
    );
    let asked = |values| Asked { values, ..Asked::default() };
    for (condition, applied) in [("v.a IN (1, ?)", "true"), ("w IN (?, 2)", "false | 1")] {
        let text = format!("UPDATE t SET w = 1 WHERE k = 1 IF {condition}");
        let answer = server.ask(&text, asked(&[Value::Unset])).unwrap();
        assert_eq!(answer.rows, [applied], "{condition}");
    }
    let refused = server.ask("UPDATE t SET w = 1 WHERE k = 1 IF w = ?", asked(&[Value::Unset]));
    let expected = "Invalid 'unset' value in condition for w";
    assert_eq!(refused.unwrap_err().to_string(), expected);
}
