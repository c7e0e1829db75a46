//! Statements of CQL, and clients of Redis commands that they concern.

use cql::plan::prepared::statement_id;
use reactor::SimClient;
use wire::cql::{BatchKind, BatchStatement, Consistency, Parameters, Version};

use super::cql_client::{Client, execute, with_options};
use super::http_client::{self, request};
use super::world::World;

const SECOND_NS: u64 = 1_000_000_000;

fn start() -> (World, Client) {
    let mut world = World::new(1, with_options(&[]));
    let client = Client::start(&mut world, Version::V4, None);
    (world, client)
}

/// Sends Redis commands, and returns what the client has received.
fn send(world: &mut World, client: &SimClient, commands: &str) -> String {
    client.send(commands.replace('|', "\r\n").as_bytes());
    received(world, client)
}

fn received(world: &mut World, client: &SimClient) -> String {
    world.settle();
    String::from_utf8_lossy(&client.received()).into_owned()
}

/// The replies to a statement.
fn run(world: &mut World, client: &mut Client, statement: &str) -> Vec<String> {
    client.query(1, statement);
    world.settle();
    client.replies()
}

#[test]
fn statements_end_the_caches_of_the_keys_that_they_change() {
    let (mut world, mut writer) = start();
    for mode in ["", " BCAST"] {
        let reader = world.sim().connect();
        send(&mut world, &reader, &format!("HELLO 3|CLIENT TRACKING ON{mode}|GET s|HGETALL h|"));
        let statements = [
            ("s", "INSERT INTO redis.strings (key, value) VALUES (0x73, 0x01)"),
            ("h", "UPDATE redis.hashes SET value = 0x01 WHERE key = 0x68 AND field = 0x66"),
        ];
        for (key, statement) in statements {
            assert_eq!(run(&mut world, &mut writer, statement), ["1 VOID"]);
            let expected = format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\n{key}\r\n");
            assert_eq!(received(&mut world, &reader), expected, "{mode}");
        }
    }
}

#[test]
fn statements_serve_blocked_clients() {
    let (mut world, mut writer) = start();
    let statements = [
        ("BLPOP l 0|", "INSERT INTO redis.lists (key, \"index\", value) VALUES (0x6c, 0, 0x41)"),
        ("BZPOPMIN z 0|", "INSERT INTO redis.zsets (key, member, score) VALUES (0x7a, 0x41, 1)"),
    ];
    for (command, statement) in statements {
        let client = world.sim().connect();
        assert_eq!(send(&mut world, &client, command), "");
        assert_eq!(run(&mut world, &mut writer, statement), ["1 VOID"]);
        assert!(received(&mut world, &client).contains("\r\n$1\r\nA\r\n"), "{command}");
    }
}

/// As with the commands of Redis.
#[test]
fn statements_that_only_delete_need_no_memory() {
    let (mut world, mut client) = start();
    let schema = [
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE k.t (p int PRIMARY KEY, v text, s set<int>)",
        "INSERT INTO k.t (p, v, s) VALUES (1, 'a', {1, 2})",
    ];
    for statement in schema {
        let replies = run(&mut world, &mut client, statement);
        assert!(!replies[0].contains("ERROR"), "{replies:?}");
    }
    let administrator = world.sim().connect();
    assert_eq!(send(&mut world, &administrator, "CONFIG SET maxmemory 1|"), "+OK\r\n");
    let insert = "INSERT INTO k.t (p, v) VALUES (2, 'a')";
    let update = "UPDATE k.t SET v = 'b' WHERE p = 1";
    let delete = "DELETE FROM k.t WHERE p = 1";
    let batch = format!("BEGIN BATCH {delete} {insert} APPLY BATCH");
    for refused in [insert, update, &batch, "CREATE TABLE k.u (p int PRIMARY KEY)"] {
        let replies = run(&mut world, &mut client, refused);
        assert!(replies[0].contains("Memory is full"), "{refused}: {replies:?}");
    }
    let batch = format!("BEGIN BATCH {delete} APPLY BATCH");
    let deletions = [
        "UPDATE k.t SET s = s - {1} WHERE p = 1",
        "DELETE v FROM k.t WHERE p = 1",
        delete,
        &batch,
        "TRUNCATE k.t",
        "DROP TABLE k.t",
        "DROP KEYSPACE k",
    ];
    for deletion in deletions {
        let replies = run(&mut world, &mut client, deletion);
        assert!(!replies[0].contains("ERROR"), "{deletion}: {replies:?}");
    }
}

#[test]
fn pauses_stop_statements() {
    let (mut world, mut client) = start();
    let administrator = world.sim().connect();
    let insert = "INSERT INTO redis.strings (key, value) VALUES (0x73, 0x01)";
    let select = "SELECT value FROM redis.strings WHERE key = 0x73";

    assert_eq!(send(&mut world, &administrator, "CLIENT PAUSE 60000 WRITE|"), "+OK\r\n");
    assert_eq!(run(&mut world, &mut client, select).len(), 1);
    assert!(run(&mut world, &mut client, "nonsense")[0].contains("ERROR"));
    assert!(run(&mut world, &mut client, insert).is_empty());
    assert_eq!(send(&mut world, &administrator, "GET s|"), "$-1\r\n");
    world.advance(61 * SECOND_NS);
    world.settle();
    assert_eq!(client.replies(), ["1 VOID"]);
    assert_eq!(send(&mut world, &administrator, "GET s|"), "$1\r\n\u{1}\r\n");

    assert_eq!(send(&mut world, &administrator, "CLIENT PAUSE 60000|"), "+OK\r\n");
    assert!(run(&mut world, &mut client, select).is_empty());
    assert_eq!(send(&mut world, &administrator, "CLIENT UNPAUSE|"), "+OK\r\n");
    assert_eq!(client.replies().len(), 1);
}

#[test]
fn pauses_stop_prepared_statements_and_batches() {
    let (mut world, mut client) = start();
    let administrator = world.sim().connect();
    let insert = "INSERT INTO redis.strings (key, value) VALUES (0x73, 0x01)";
    let select = "SELECT value FROM redis.strings WHERE key = 0x73";
    for text in [insert, select] {
        client.send(|to, out| to.prepare(1, text, None, out));
    }
    world.settle();
    assert_eq!(client.replies().len(), 2);
    send(&mut world, &administrator, "CLIENT PAUSE 60000 WRITE|");
    execute(&client, 2, &statement_id(select, None), &[]);
    world.settle();
    assert_eq!(client.replies().len(), 1, "a read");

    // What follows on a connection waits, too.
    let with = Parameters::new(Consistency::One);
    let text = [(BatchStatement::Text(insert), &[][..])];
    execute(&client, 3, &statement_id(insert, None), &[]);
    client.send(|to, out| to.batch(4, BatchKind::Unlogged, &text, &with, out));
    let mut other = Client::start(&mut world, Version::V5, None);
    other.send(|to, out| to.batch(5, BatchKind::Unlogged, &text, &with, out));
    world.settle();
    assert!(client.replies().is_empty() && other.replies().is_empty());
    assert_eq!(send(&mut world, &administrator, "GET s|"), "$-1\r\n");
    send(&mut world, &administrator, "CLIENT UNPAUSE|");
    assert_eq!(client.replies(), ["3 VOID", "4 VOID"]);
    assert_eq!(other.replies(), ["5 VOID"]);
}

#[test]
fn pauses_stop_statements_over_http() {
    let mut world = http_client::world();
    let mut client = http_client::Client::connect(&mut world);
    let administrator = world.sim().connect();
    let post = |statement: &str| format!("{{\"statement\": \"{statement}\"}}");
    let insert = post("INSERT INTO redis.strings (key, value) VALUES (0x73, 0x01)");
    let select = post("SELECT value FROM redis.strings WHERE key = 0x73");
    send(&mut world, &administrator, "CLIENT PAUSE 60000 WRITE|");
    assert_eq!(client.ask(&mut world, "POST /cql", &select).status, 200);
    assert_eq!(client.ask(&mut world, "POST /cql", &post("nonsense")).status, 400);
    client.sim.send(request("POST /cql", &insert).as_bytes());
    world.settle();
    assert_eq!(client.answers(), []);
    assert_eq!(send(&mut world, &administrator, "GET s|"), "$-1\r\n");
    send(&mut world, &administrator, "CLIENT UNPAUSE|");
    let answers = client.answers();
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].status, 200, "{}", answers[0].body);
    assert_eq!(send(&mut world, &administrator, "GET s|"), "$1\r\n\u{1}\r\n");
}
