//! Indexes: the rows that they find, and the number of rows examined.

use proptest::prelude::*;

use super::harness::{Asked, Server};

const ROWS: i32 = 200;

/// A table of 200 partitions; `v` has each of its values four times, `w` each 20 times.
fn filled(indexes: &str) -> Server {
    let mut server = Server::new();
    server.check(
        "> CREATE TABLE t (p int, q int, c int, s int STATIC, v int, w int, l list<int>, e set<int>, \
         m map<text, int>, f frozen<set<int>>, PRIMARY KEY ((p, q), c))",
    );
    server.check(indexes);
    for p in 0..ROWS {
        let (v, w) = (p % (ROWS / 4), p % (ROWS / 20));
        let text = format!(
            "INSERT INTO t (p, q, c, s, v, w, l, e, m, f) VALUES ({p}, {v}, {v}, {v}, {v}, {w}, \
             [{v}, 1000], {{{v}, 1000}}, {{'a': {v}, 'b{v}': 1000}}, {{{v}, 1000}})"
        );
        server.run(&text).unwrap();
    }
    server
}

/// Runs a query with four results, and checks how many rows it examines.
#[track_caller]
fn check(server: &mut Server, condition: &str, examined: u64) {
    let text = format!("SELECT p FROM t WHERE {condition}");
    let mut rows = server.run(&text).unwrap().rows;
    rows.sort_by_key(|row| row.parse::<i32>().unwrap());
    let expected = [7, 57, 107, 157].map(|p| p.to_string());
    assert_eq!(rows, expected, "{text}");
    assert_eq!(server.examined(&text), examined, "{text}");
}

#[test]
fn a_query_examines_only_the_rows_that_it_finds() {
    let indexes = "
        > CREATE INDEX ON t (v)
        > CREATE INDEX ON t (w)
        > CREATE INDEX ON t (q)
        > CREATE INDEX ON t (c)
        > CREATE INDEX ON t (s)
        > CREATE INDEX ON t (l)
        > CREATE INDEX ON t (e)
        > CREATE INDEX ON t (m)
        > CREATE INDEX ON t (KEYS(m))
        > CREATE INDEX ON t (ENTRIES(m))
        > CREATE INDEX ON t (FULL(f))
        ";
    // Built from inserts, and by a scan of existing rows.
    let mut late = filled("");
    check(&mut late, "v = 7 ALLOW FILTERING", 200);
    late.check(indexes);
    for mut server in [filled(indexes), late] {
        for condition in [
            "v = 7",
            "q = 7",
            "c = 7",
            "s = 7",
            "l CONTAINS 7",
            "e CONTAINS 7",
            "m CONTAINS 7",
            "m CONTAINS KEY 'b7'",
            "m['a'] = 7",
            "f = {7, 1000}",
            // The index with the fewest rows is used.
            "v = 7 AND w = 7 ALLOW FILTERING",
            "w = 7 AND v = 7 ALLOW FILTERING",
            "e CONTAINS 1000 AND v = 7 ALLOW FILTERING",
        ] {
            check(&mut server, condition, 4);
        }
        check(&mut server, "w = 7 AND q > 6 AND q < 8 ALLOW FILTERING", 20);
        assert_eq!(server.examined("SELECT p FROM t WHERE p = 7 AND q = 7 AND v = 7"), 1);
        let halves = ["token(p, q) > 0", "token(p, q) <= 0"];
        let examined =
            halves.map(|half| server.examined(&format!("SELECT p FROM t WHERE v = 7 AND {half}")));
        assert_eq!(examined.iter().sum::<u64>(), 4);
        let (grown, counted) = server.bytes();
        assert_eq!(grown, counted);
    }
}

#[test]
fn overwritten_deleted_and_expired_values_are_not_found() {
    let mut server = filled(
        "> CREATE INDEX by_v ON t (v)\n> CREATE INDEX by_e ON t (e)\n> CREATE INDEX by_s ON t (s)",
    );
    server.check(
        "
        > UPDATE t SET v = 8 WHERE p = 7 AND q = 7 AND c = 7
        > DELETE v FROM t WHERE p = 57 AND q = 7 AND c = 7
        > DELETE FROM t WHERE p = 107 AND q = 7
        > UPDATE t USING TTL 10 SET v = 7 WHERE p = 157 AND q = 7 AND c = 7
        > SELECT p FROM t WHERE v = 7
        157
        > UPDATE t SET e = e - {7} WHERE p = 7 AND q = 7 AND c = 7
        > DELETE FROM t WHERE p = 157 AND q = 7 AND c > 3
        > UPDATE t SET e = {9} WHERE p = 57 AND q = 7 AND c = 7
        > SELECT p FROM t WHERE e CONTAINS 7
        > SELECT p FROM t WHERE s = 7 AND p IN (157, 107, 57, 7) AND q = 7
        7
        57
        157
        > SELECT p, c FROM t WHERE s = 7 AND p = 157 AND q = 7
        157 | null
        > UPDATE t USING TTL 10 SET v = 1000 WHERE p = 1000 AND q = 0 AND c = 0
        > SELECT p FROM t WHERE v = 1000
        1000
        ",
    );
    server.pass_seconds(20);
    server.check("> SELECT p FROM t WHERE v = 1000");
    server.purge();
    assert_eq!(server.examined("SELECT p FROM t WHERE v = 1000"), 0);
    let (grown, counted) = server.bytes();
    assert_eq!(grown, counted);
}

#[test]
fn dropping_an_index_frees_its_memory() {
    let mut server = filled("");
    let before = server.bytes();
    server.check("> CREATE INDEX by_v ON t (v)");
    let with = server.bytes();
    assert!(with.0 > before.0 + 200 * 20, "{with:?} {before:?}");
    assert_eq!(with.0, with.1);
    server.check("> DROP INDEX by_v");
    assert_eq!(server.bytes(), before);
    server.check("> CREATE INDEX by_v ON t (v)\n> TRUNCATE t");
    server.check("> SELECT p FROM t WHERE v = 7");
    let (grown, counted) = server.bytes();
    assert_eq!(grown, counted);
}

#[test]
fn a_stripe_without_the_index_is_scanned() {
    let mut server = filled("");
    server.builds_indexes = false;
    server.check("> CREATE INDEX by_v ON t (v)");
    check(&mut server, "v = 7", 200);
    server.settle_indexes();
    check(&mut server, "v = 7", 4);
    // The same after a restart: indexes are not logged but rebuilt.
    let mut server = server.restart();
    server.check("> SELECT count(*) FROM t\n200");
    check(&mut server, "v = 7", 200);
    server.settle_indexes();
    check(&mut server, "v = 7", 4);
}

#[test]
fn filtering_must_be_allowed_unless_an_index_suffices() {
    let mut server = filled(
        "> CREATE INDEX ON t (v)
         > CREATE CUSTOM INDEX ON t (w) USING 'StorageAttachedIndex'
         > CREATE CUSTOM INDEX ON t (s) USING 'sai'",
    );
    let refused = "Cannot execute this query as it might involve data filtering";
    for condition in ["v = 7 AND w = 7", "v > 7", "c = 7", "token(p, q) > 0 AND c = 7"] {
        let error = server.run(&format!("SELECT p FROM t WHERE {condition}")).unwrap_err();
        assert!(error.to_string().starts_with(refused), "{condition}: {error}");
    }
    check(&mut server, "w = 7 AND s = 7", 4);
}

/// All pages of a query's result.
fn pages(server: &mut Server, text: &str, page_size: i32) -> Vec<String> {
    let mut rows = Vec::new();
    let mut state: Option<Vec<u8>> = None;
    loop {
        let page_size = Some(page_size);
        let asked = Asked { page_size, paging_state: state.as_deref(), ..Asked::default() };
        let page = server.ask(text, asked).unwrap();
        rows.extend(page.rows);
        state = page.paging_state;
        if state.is_none() {
            return rows;
        }
    }
}

/// A change to a table of a few rows.
#[derive(Debug, Clone)]
enum Step {
    Set { p: u8, c: u8, column: &'static str, value: u8, ttl: u8 },
    SetStatic { p: u8, value: u8 },
    Delete { p: u8, c: Option<u8> },
    Add { p: u8, c: u8, value: u8 },
    Remove { p: u8, c: u8, value: u8 },
    Purge,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (p, c, value) = (|| 0..3_u8, || 0..4_u8, || 0..3_u8);
    let column = prop_oneof![Just("v"), Just("w")];
    let ttl = prop_oneof![3 => Just(0_u8), 1 => Just(10)];
    let step = prop_oneof![
        6 => (p(), c(), column, value(), ttl)
            .prop_map(|(p, c, column, value, ttl)| Step::Set { p, c, column, value, ttl }),
        2 => (p(), value()).prop_map(|(p, value)| Step::SetStatic { p, value }),
        2 => (p(), prop::option::of(c())).prop_map(|(p, c)| Step::Delete { p, c }),
        3 => (p(), c(), value()).prop_map(|(p, c, value)| Step::Add { p, c, value }),
        1 => (p(), c(), value()).prop_map(|(p, c, value)| Step::Remove { p, c, value }),
        1 => Just(Step::Purge),
    ];
    prop::collection::vec(step, 0..40)
}

impl Step {
    fn text(&self, table: &str) -> Option<String> {
        let place = |p: &u8, c: &u8| format!("WHERE p = {p} AND c = {c}");
        Some(match self {
            Step::Set { p, c, column, value, ttl } => {
                format!("UPDATE {table} USING TTL {ttl} SET {column} = {value} {}", place(p, c))
            }
            Step::SetStatic { p, value } => format!("UPDATE {table} SET s = {value} WHERE p = {p}"),
            Step::Delete { p, c: None } => format!("DELETE FROM {table} WHERE p = {p}"),
            Step::Delete { p, c: Some(c) } => format!("DELETE FROM {table} {}", place(p, c)),
            Step::Add { p, c, value } => {
                format!("UPDATE {table} SET e = e + {{{value}}} {}", place(p, c))
            }
            Step::Remove { p, c, value } => {
                format!("UPDATE {table} SET e = e - {{{value}}} {}", place(p, c))
            }
            Step::Purge => return None,
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// A query returns the same rows in the same order with and without indexes, whole or page by
    /// page.
    #[test]
    fn indexes_find_the_same_rows_as_a_scan(before in steps(), after in steps(), page_size in 1..6_i32) {
        let mut server = Server::new();
        for table in ["t", "u"] {
            let columns = "p int, c int, s int STATIC, v int, w int, e set<int>, PRIMARY KEY (p, c)";
            server.run(&format!("CREATE TABLE {table} ({columns}) WITH gc_grace_seconds = 5")).unwrap();
        }
        let run = |server: &mut Server, steps: &[Step]| {
            for step in steps {
                if let Some(text) = step.text("t") {
                    server.run(&text).unwrap();
                    server.run(&step.text("u").unwrap()).unwrap();
                } else {
                    server.pass_seconds(4);
                    server.purge();
                }
            }
        };
        run(&mut server, &before);
        server.check("> CREATE INDEX ON t (v)\n> CREATE INDEX ON t (s)\n> CREATE INDEX ON t (e)\n> CREATE INDEX ON t (c)");
        run(&mut server, &after);
        for condition in [
            "v = 1", "s = 1", "e CONTAINS 1", "c = 1", "v = 1 AND w = 1", "v = 1 AND s = 1",
            "p = 1 AND v = 1", "p IN (0, 2) AND e CONTAINS 1", "p = 1 AND c > 0 AND v = 1",
            "v = 1 AND e CONTAINS 1 PER PARTITION LIMIT 1", "v = 1 LIMIT 3",
        ] {
            let text = |table: &str| {
                format!("SELECT p, c, s, v, w, e FROM {table} WHERE {condition} ALLOW FILTERING")
            };
            let expected = server.run(&text("u")).unwrap().rows;
            prop_assert_eq!(&server.run(&text("t")).unwrap().rows, &expected, "{}", condition);
            prop_assert_eq!(&pages(&mut server, &text("t"), page_size), &expected, "{} in pages", condition);
        }
        let (grown, counted) = server.bytes();
        prop_assert_eq!(grown, counted);
    }
}

/// Whether a query finds its rows by an index, by a scan of stripes without one, or among rows that
/// another restriction finds, texts are compared as the index compares them.
#[test]
fn texts_are_compared_as_their_index_compares_them() {
    let mut server = Server::new();
    let options = "WITH OPTIONS = {'case_sensitive': 'false', 'ascii': 'true'}";
    server.check(&format!(
        "> CREATE TABLE t (k int PRIMARY KEY, v text, w int, s set<text>, l list<text>, m map<text, text>)
         > INSERT INTO t (k, v, w, s, l, m) VALUES (1, 'Éa', 1, {{'Ab'}}, ['Ab'], {{'Ke': 'Va'}})
         > INSERT INTO t (k, v, w, s, l, m) VALUES (2, 'EA', 1, {{'x'}}, ['x'], {{'x': 'x'}})
         > CREATE INDEX ON t (v) USING 'sai' {options}
         > CREATE INDEX ON t (s) USING 'sai' {options}
         > CREATE INDEX ON t (l) USING 'sai' {options}
         > CREATE INDEX ON t (keys(m)) USING 'sai' {options}
         > CREATE INDEX ON t (values(m)) USING 'sai' {options}"
    ));
    let script = "> SELECT k FROM t WHERE v = 'ea'
                  1
                  2
                  > SELECT k FROM t WHERE v = 'Ea' AND w = 1 ALLOW FILTERING
                  1
                  2
                  > SELECT k FROM t WHERE v = 'eá' AND k = 2
                  2
                  > SELECT k FROM t WHERE v IN ('ea')
                  1
                  2
                  > SELECT k FROM t WHERE s CONTAINS 'AB'
                  1
                  > SELECT k FROM t WHERE l CONTAINS 'AB' AND s CONTAINS 'ab'
                  1
                  > SELECT k FROM t WHERE m CONTAINS KEY 'KE'
                  1
                  > SELECT k FROM t WHERE m CONTAINS 'vÁ'
                  1
                  > SELECT k FROM t WHERE v > 'a' ALLOW FILTERING
                  1";
    server.check(script);
    server.settle_indexes();
    server.check(script);
    let mut server = server.restart();
    server.check(script);
    // A changed text moves in the index.
    server.check(
        "> UPDATE t SET v = 'b' WHERE k = 1
         > SELECT k FROM t WHERE v = 'EÀ'
         2
         > SELECT k FROM t WHERE v = 'B'
         1",
    );
    // The small capital is folded to "A", which remains one.
    server.check(
        "> INSERT INTO t (k, v) VALUES (3, 'ᴀx')
         > SELECT k FROM t WHERE v = 'ᴀX'
         3
         > SELECT k FROM t WHERE v = 'ax'",
    );
    server.settle_indexes();
    server.check("> SELECT k FROM t WHERE v = 'ᴀX'\n3");
    // An index of the other kind answers first, and compares bytes.
    server.check("> CREATE INDEX plain ON t (v)\n> SELECT k FROM t WHERE v = 'ea'");
    server.settle_indexes();
    server.check(
        "> SELECT k FROM t WHERE v = 'EA'
         2
         > SELECT k FROM t WHERE v = 'ea'
         > DROP INDEX plain
         > SELECT k FROM t WHERE v = 'ea'
         2",
    );
}

/// Of equal decimals, an index finds the one with the same scale; without an index, both are equal.
#[test]
fn an_index_compares_the_bytes_of_decimals() {
    let mut server = Server::new();
    server.check(
        "> CREATE TABLE t (k int PRIMARY KEY, v decimal, l list<decimal>)
         > INSERT INTO t (k, v, l) VALUES (1, 1.0, [1.0])
         > INSERT INTO t (k, v, l) VALUES (2, 1.00, [1.00])
         > SELECT k FROM t WHERE v = 1.0 ALLOW FILTERING
         1
         2
         > CREATE INDEX ON t (v)
         > CREATE INDEX ON t (l)",
    );
    for _ in 0..2 {
        server.check(
            "> SELECT k FROM t WHERE v = 1.0
             1
             > SELECT k FROM t WHERE v = 1.00
             2
             > SELECT k FROM t WHERE v = 1
             > SELECT k FROM t WHERE l CONTAINS 1.00
             2",
        );
        server.settle_indexes();
    }
}

#[test]
fn an_index_refuses_to_compare_very_long_values() {
    let mut server = Server::new();
    let long = "x".repeat(70_000);
    server.check(
        "> CREATE TABLE t (k int PRIMARY KEY, v text, w text)
         > CREATE INDEX ON t (v)
         > CREATE INDEX ON t (w) USING 'sai'",
    );
    let refused = server.run(&format!("SELECT k FROM t WHERE v = '{long}'")).unwrap_err();
    assert_eq!(refused.to_string(), "Index expression values may not be larger than 64K");
    assert!(server.run(&format!("SELECT k FROM t WHERE w = '{long}'")).unwrap().rows.is_empty());
}
