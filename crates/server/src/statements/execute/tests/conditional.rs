//! Conditional writes concurrent with writes from clocks that are ahead. An applied write takes
//! effect, and whether it is applied is consistent with the previous read.

use proptest::prelude::*;

use super::harness::Server;

/// How far a client's clock is ahead, in microseconds.
const AHEAD_US: u64 = 60_000_000;

fn server() -> (Server, u64) {
    let mut server = Server::new();
    server.check(
        "
        > CREATE TABLE t (p int, c int, v int, s set<int>, PRIMARY KEY (p, c))
        > CREATE TABLE keys (p int, c int, PRIMARY KEY (p, c))
        ",
    );
    let ahead = u64::try_from(server.now.unix_us()).unwrap() + AHEAD_US;
    (server, ahead)
}

#[test]
fn rows_are_inserted_over_deletions_with_future_timestamps() {
    for deleted in ["", "AND c = 1", "AND c > 0", "AND c < 5"] {
        let (mut server, ahead) = server();
        server.check(&format!(
            "
            > DELETE FROM t USING TIMESTAMP {ahead} WHERE p = 1 {deleted}
            > INSERT INTO t (p, c, v) VALUES (1, 1, 7) IF NOT EXISTS
            true
            > SELECT v FROM t WHERE p = 1 AND c = 1
            7
            > INSERT INTO t (p, c, v) VALUES (1, 1, 8) IF NOT EXISTS
            false | 1 | 1 | null | 7
            "
        ));
    }
}

#[test]
fn rows_with_future_timestamps_are_deleted() {
    let (mut server, ahead) = server();
    server.check(&format!(
        "
        > INSERT INTO keys (p, c) VALUES (1, 1) USING TIMESTAMP {ahead}
        > DELETE FROM keys WHERE p = 1 AND c = 1 IF EXISTS
        true
        > SELECT * FROM keys
        > DELETE FROM keys WHERE p = 1 AND c = 1 IF EXISTS
        false
        "
    ));
}

#[test]
fn cells_are_written_over_deletions_with_future_timestamps() {
    let (mut server, ahead) = server();
    server.check(&format!(
        "
        > INSERT INTO t (p, c, v, s) VALUES (1, 1, 1, {{1, 2}})
        > DELETE v, s FROM t USING TIMESTAMP {ahead} WHERE p = 1 AND c = 1
        > UPDATE t SET v = 7, s = s + {{3}} WHERE p = 1 AND c = 1 IF v = null
        true
        > SELECT v, s FROM t
        7 | [3]
        "
    ));
}

/// Threads use rows as locks: a thread whose INSERT was applied owns the row until it deletes it.
#[test]
fn locks_have_one_winner() {
    const THREADS: usize = 4;
    const ATTEMPTS: usize = 500;
    let mut server = Server::new();
    server.check("> CREATE TABLE locks (k int PRIMARY KEY, owner int)");
    let attempts = |mut server: Server, owner: usize| {
        let mut won = 0;
        for attempt in 0..ATTEMPTS {
            let key = attempt % 2;
            let insert =
                format!("INSERT INTO locks (k, owner) VALUES ({key}, {owner}) IF NOT EXISTS");
            let select = format!("SELECT owner FROM locks WHERE k = {key}");
            let delete = format!("DELETE FROM locks WHERE k = {key} IF owner = {owner}");
            let taken = server.run(&insert).unwrap().rows.concat();
            if taken == "true" {
                assert_eq!(
                    server.run(&select).unwrap().rows,
                    [owner.to_string()],
                    "after {insert}"
                );
                assert_eq!(server.run(&delete).unwrap().rows, ["true"], "after {insert}");
                won += 1;
            } else {
                let own = format!("false | {key} | {owner}");
                assert_ne!(taken, own, "it was deleted, and the deletion was applied");
            }
        }
        won
    };
    let servers: Vec<Server> = (0..THREADS).map(|_| server.other_reactor()).collect();
    let won: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = servers
            .into_iter()
            .enumerate()
            .map(|(owner, server)| scope.spawn(move || attempts(server, owner)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(won >= ATTEMPTS, "only {won} attempts took the lock");
}

/// An operation on the one row. Timestamps are in microseconds ahead of the clock.
#[derive(Debug, Clone, Copy)]
enum Step {
    Insert(u64),
    DeleteRow(u64),
    DeleteRange(u64),
    DeletePartition(u64),
    DeleteCell(u64),
    InsertIfNotExists,
    UpdateIfValue,
    UpdateIfExists,
    DeleteIfExists,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ahead = || prop_oneof![Just(0), 0..AHEAD_US];
    let step = prop_oneof![
        ahead().prop_map(Step::Insert),
        ahead().prop_map(Step::DeleteRow),
        ahead().prop_map(Step::DeleteRange),
        ahead().prop_map(Step::DeletePartition),
        ahead().prop_map(Step::DeleteCell),
        Just(Step::InsertIfNotExists),
        Just(Step::UpdateIfValue),
        Just(Step::UpdateIfExists),
        Just(Step::DeleteIfExists),
    ];
    proptest::collection::vec(step, 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Each step's condition agrees with a read before it, and its effect with a read after it.
    #[test]
    fn conditional_writes_are_linearizable(steps in steps()) {
        let (mut server, start) = server();
        let start = start - AHEAD_US;
        for (nth, step) in steps.into_iter().enumerate() {
            let read = |server: &mut Server| {
                server.run("SELECT v FROM t WHERE p = 1 AND c = 1").unwrap().rows.pop()
            };
            let before = read(&mut server);
            let at = |ahead: u64| format!("USING TIMESTAMP {}", start + ahead);
            let row = "WHERE p = 1 AND c = 1";
            // The statement; for a conditional one, whether the condition holds and the value
            // afterwards.
            let (text, expected) = match step {
                Step::Insert(ahead) => {
                    (format!("INSERT INTO t (p, c, v) VALUES (1, 1, {nth}) {}", at(ahead)), None)
                }
                Step::DeleteRow(ahead) => (format!("DELETE FROM t {} {row}", at(ahead)), None),
                Step::DeleteRange(ahead) => {
                    (format!("DELETE FROM t {} WHERE p = 1 AND c >= 0", at(ahead)), None)
                }
                Step::DeletePartition(ahead) => {
                    (format!("DELETE FROM t {} WHERE p = 1", at(ahead)), None)
                }
                Step::DeleteCell(ahead) => (format!("DELETE v FROM t {} {row}", at(ahead)), None),
                Step::InsertIfNotExists => (
                    format!("INSERT INTO t (p, c, v) VALUES (1, 1, {nth}) IF NOT EXISTS"),
                    Some((before.is_none(), Some(nth.to_string()))),
                ),
                Step::UpdateIfValue => {
                    let value = before.clone().unwrap_or("null".to_owned());
                    (
                        format!("UPDATE t SET v = {nth} {row} IF v = {value}"),
                        Some((true, Some(nth.to_string()))),
                    )
                }
                Step::UpdateIfExists => (
                    format!("UPDATE t SET v = {nth} {row} IF EXISTS"),
                    Some((before.is_some(), Some(nth.to_string()))),
                ),
                Step::DeleteIfExists => {
                    (format!("DELETE FROM t {row} IF EXISTS"), Some((before.is_some(), None)))
                }
            };
            let answer = server.run(&text).unwrap();
            if let Some((holds, after)) = expected {
                let is_applied = answer.rows[0].starts_with("true");
                prop_assert_eq!(is_applied, holds, "{}", text);
                let after = if holds { after } else { before };
                prop_assert_eq!(read(&mut server), after, "{}", text);
            }
        }
    }
}
