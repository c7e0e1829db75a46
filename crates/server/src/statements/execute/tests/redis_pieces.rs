//! Keyspace `redis`: large values are read in parts.

use wire::cql::BatchKind;

use super::harness::{Asked, Server};

const ELEMENTS: usize = 600;

/// A hash, a set, a sorted set and a list of [`ELEMENTS`] elements, and small values as well.
fn server() -> Server {
    let mut server = Server::new();
    server.client.keyspace = Some("redis".to_owned());
    for at in 0..ELEMENTS {
        // Not in name order.
        let name = (at * 7919) % ELEMENTS;
        server.resp(&format!("HSET h {name:03} {}", name % 5));
        server.resp(&format!("SADD s {name:03}"));
        server.resp(&format!("ZADD z {} {name:03}", ELEMENTS - name));
        server.resp(&format!("RPUSH l {}", at % 5));
    }
    server.resp("HSET small f 1 g 2");
    server.resp("RPUSH short 1 2 3");
    server
}

/// Statements, and the minimum number of turns of 100 rows that they need.
const QUESTIONS: &[(&str, usize)] = &[
    ("SELECT count(*) FROM hashes WHERE key = 0x68", 12),
    ("SELECT count(*), min(field), max(value) FROM hashes", 12),
    ("SELECT count(*), sum(score), avg(score) FROM zsets WHERE key = 0x7a", 12),
    ("SELECT key, count(*) FROM sets GROUP BY key", 12),
    ("SELECT field, count(*) FROM hashes WHERE key = 0x68 GROUP BY key, field", 12),
    ("SELECT field FROM hashes WHERE key = 0x68 AND value = 0x33 ALLOW FILTERING", 10),
    ("SELECT field FROM hashes WHERE key = 0x68 AND value = 0x39 ALLOW FILTERING", 10),
    ("SELECT member FROM sets WHERE key = 0x73", 12),
    ("SELECT member FROM sets WHERE key = 0x73 ORDER BY member DESC", 12),
    ("SELECT member FROM sets WHERE key = 0x73 AND member > 0x313030 AND member < 0x32", 6),
    ("SELECT member FROM sets WHERE key = 0x73 ORDER BY member DESC LIMIT 3", 6),
    ("SELECT member FROM zsets PER PARTITION LIMIT 50", 6),
    ("SELECT \"index\", value FROM lists", 12),
    ("SELECT \"index\" FROM lists WHERE key = 0x6c AND value = 0x34 ALLOW FILTERING", 10),
    ("SELECT \"index\" FROM lists WHERE key = 0x6c ORDER BY \"index\" DESC", 12),
    ("SELECT key, field FROM hashes WHERE key IN (0x68, 0x736d616c6c)", 12),
];

#[test]
fn large_values_are_read_in_turns() {
    let mut server = server();
    for (question, turns) in QUESTIONS {
        server.turn_rows = 0;
        let expected = server.run(question).unwrap();
        for turn_rows in [1, 7, 100] {
            server.turn_rows = turn_rows;
            server.pauses = 0;
            assert_eq!(server.run(question).unwrap(), expected, "{question} {turn_rows}");
            assert!(server.pauses >= *turns, "{question}: {}", server.pauses);
        }
    }
}

#[test]
fn large_values_have_all_rows_in_their_order() {
    let mut server = server();
    let names: Vec<String> = (0..ELEMENTS).map(|name| format!("{name:03}")).collect();
    for statement in [
        "SELECT blobAsText(member) FROM sets WHERE key = 0x73",
        "SELECT blobAsText(field) FROM hashes WHERE key = 0x68",
        "SELECT blobAsText(member) FROM zsets",
    ] {
        assert_eq!(server.run(statement).unwrap().rows, names, "{statement}");
    }
    let statement = "SELECT blobAsText(member) FROM zsets WHERE key = 0x7a ORDER BY member DESC";
    let backwards: Vec<String> = names.iter().rev().cloned().collect();
    assert_eq!(server.run(statement).unwrap().rows, backwards);
    let points: Vec<String> = (0..200).map(|at| format!("textAsBlob('{:03}')", at * 4)).collect();
    let statement = format!(
        "SELECT blobAsText(member) FROM sets WHERE key = 0x73 AND member IN ({})",
        points.join(", ")
    );
    let expected: Vec<String> = names.iter().step_by(4).cloned().collect();
    server.turn_rows = 50;
    server.pauses = 0;
    assert_eq!(server.run(&statement).unwrap().rows, expected);
    assert!(server.pauses >= 4, "{}", server.pauses);
}

#[test]
fn pages_of_filtered_values_hold_every_row_once() {
    let mut server = server();
    server.turn_rows = 100;
    let statement =
        "SELECT blobAsText(field) FROM hashes WHERE key = 0x68 AND value = 0x33 ALLOW FILTERING";
    let mut found = Vec::new();
    let mut state: Option<Vec<u8>> = None;
    loop {
        let asked =
            Asked { page_size: Some(7), paging_state: state.as_deref(), ..Asked::default() };
        let page = server.ask(statement, asked).unwrap();
        found.extend(page.rows);
        state = page.paging_state;
        if state.is_none() {
            break;
        }
    }
    let expected: Vec<String> =
        (0..ELEMENTS).skip(3).step_by(5).map(|at| format!("{at:03}")).collect();
    assert_eq!(found, expected);
}

/// A row that exists throughout is returned exactly once while others are added and removed.
#[test]
fn a_value_may_change_between_two_parts() {
    let mut server = server();
    server.turn_rows = 100;
    let statement = "SELECT blobAsText(field) FROM hashes WHERE key = 0x68";
    server.meanwhile = vec!["HDEL h 001 599 300".into(), "HSET h 0000 new 9999 new".into()];
    let rows = server.run(statement).unwrap().rows;
    assert!(server.meanwhile.is_empty());
    let stays = |name: &usize| ![1, 300, 599].contains(name);
    let expected: Vec<String> =
        (0..ELEMENTS).filter(stays).map(|name| format!("{name:03}")).collect();
    let is_old = |row: &&String| expected.contains(row);
    assert_eq!(rows.iter().filter(is_old).cloned().collect::<Vec<_>>(), expected);
    // A value that is deleted, or replaced by one of another type, has no more rows.
    for change in ["DEL h", "SET h 1"] {
        server.meanwhile = vec![change.into()];
        let rows = server.run("SELECT count(*) FROM hashes WHERE key = 0x68").unwrap().rows;
        assert_eq!(rows, ["0"], "{change}");
    }
}

/// A condition refers to one row, and examines no other.
#[test]
fn conditions_examine_only_their_rows() {
    let mut server = server();
    let before = server.examined("SELECT * FROM sets WHERE key = 0x73 AND member = 0x303031");
    assert_eq!(before, 1);
    server.check(
        "
        > UPDATE hashes SET value = 0x39 WHERE key = 0x68 AND field = textAsBlob('003') IF value = 0x33
        true
        > UPDATE hashes SET value = 0x39 WHERE key = 0x68 AND field = textAsBlob('003') IF value = 0x33
        false | \"0x39\"
        > INSERT INTO sets (key, member) VALUES (0x73, textAsBlob('003')) IF NOT EXISTS
        false | \"0x73\" | \"0x303033\"
        ",
    );
}

#[test]
fn writes_that_process_many_elements_are_refused() {
    let mut server = server();
    server.set_elements_max(1500);
    let refused = "The statement would process more elements than elements-per-command-max allows";
    let ranges = "DELETE FROM hashes WHERE key = 0x68 AND field > 0x30 AND field < 0x35";
    assert_eq!(server.run(ranges).unwrap_err().to_string(), refused);
    let items = "DELETE FROM lists WHERE key = 0x6c AND \"index\" > 100 AND \"index\" < 300";
    assert_eq!(server.run(items).unwrap_err().to_string(), refused);
    // Of two writes to one key, the second reads a copy.
    let put = ("INSERT INTO sets (key, member) VALUES (0x73, 0x61)", &[][..]);
    let error = server.batch(BatchKind::Logged, &[put, put]).unwrap_err();
    assert_eq!(error.to_string(), refused);
    // The record contains the key once for each item.
    let key = "k".repeat(600);
    server.resp(&format!("RPUSH {key}{}", " v".repeat(50)));
    let update = |items: &str| {
        let key = format!("key = textAsBlob('{key}')");
        format!("UPDATE lists SET value = 0x77 WHERE {key} AND \"index\" IN ({items})")
    };
    let many = (0..50).map(|item| item.to_string()).collect::<Vec<_>>().join(", ");
    assert_eq!(server.run(&update(&many)).unwrap_err().to_string(), refused);
    server.run(&update("0, 1, 2")).unwrap();
    server.check(
        "
        # HLEN h
        :600
        # LLEN l
        :600
        > DELETE FROM hashes WHERE key = 0x68 AND field > textAsBlob('500')
        # HLEN h
        :501
        > DELETE FROM hashes WHERE key = 0x68
        # EXISTS h
        :0
        ",
    );
}
