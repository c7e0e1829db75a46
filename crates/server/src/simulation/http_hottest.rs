//! Hot keys and busy clients in the console.

use serde_json::{Value, json};

use super::http_client::{Client, SECOND_NS, run, world};
use super::pubsub_client::{ask, connect, send};
use super::world::World;

/// Longer than the period over which keys and clients are counted.
const WINDOW_NS: u64 = 7 * SECOND_NS;
const COMMANDS: usize = 8_000;
/// Enough for some samples, whatever the intervals between them.
const STATEMENTS: usize = 600;

fn overview(world: &mut World, client: &mut Client) -> Value {
    let answer = client.ask(world, "GET /api/v1/overview", "");
    assert_eq!(answer.status, 200, "{}", answer.body);
    serde_json::from_str(&answer.body).unwrap()
}

fn end_window(world: &mut World) {
    world.advance(WINDOW_NS);
    run(world);
}

#[test]
fn a_hot_key_and_a_busy_client_are_listed() {
    let mut world = world();
    let mut visitor = Client::connect(&mut world);
    let loader = connect(&mut world, 0);
    let idler = connect(&mut world, 0);
    assert_eq!(ask(&mut world, &loader, &["CLIENT", "SETNAME", "loader"]), "+OK\r\n");
    assert_eq!(ask(&mut world, &idler, &["GET", "other"]), "$-1\r\n");
    for n in 0..COMMANDS {
        let cold = format!("cold:{n}");
        send(&loader, &["GET", if n % 2 == 0 { "<b>hot</b>" } else { cold.as_str() }]);
    }
    run(&mut world);
    assert_eq!(
        overview(&mut world, &mut visitor)["hot_keys"],
        json!([]),
        "the window has not ended"
    );

    end_window(&mut world);
    let seen = overview(&mut world, &mut visitor);
    let keys = seen["hot_keys"].as_array().unwrap();
    assert_eq!(keys.len(), 1, "{seen}");
    assert_eq!(keys[0]["key"], "<b>hot</b>");
    assert_eq!(keys[0]["is_cut"], false);
    assert_eq!(keys[0]["database"], 0);
    assert_eq!(keys[0]["table"], Value::Null);
    let share_ppm = keys[0]["share_ppm"].as_u64().unwrap();
    assert!((350_000..650_000).contains(&share_ppm), "{seen}");
    let busiest = &seen["busiest_clients"][0];
    assert_eq!(busiest["id"], loader.id().0);
    assert_eq!(busiest["name"], "loader");
    assert_eq!(busiest["protocol"], "resp");
    assert_eq!(busiest["reactor"], "r00");
    assert!(busiest["share_ppm"].as_u64().unwrap() > 990_000, "{seen}");
    assert!(busiest["requests_per_s"].as_f64().unwrap() > 100.0, "{seen}");

    end_window(&mut world);
    let seen = overview(&mut world, &mut visitor);
    assert_eq!(seen["hot_keys"], json!([]), "the key is no longer listed");
    assert_eq!(seen["busiest_clients"][0]["protocol"], "http");
}

#[test]
fn a_closed_client_is_counted_but_not_listed() {
    let mut world = world();
    let mut visitor = Client::connect(&mut world);
    let leaver = connect(&mut world, 0);
    let stayer = connect(&mut world, 0);
    for n in 0..100 {
        send(&leaver, &["PING"]);
        if n % 10 == 0 {
            send(&stayer, &["PING"]);
        }
    }
    run(&mut world);
    leaver.close();
    run(&mut world);
    end_window(&mut world);
    let seen = overview(&mut world, &mut visitor);
    let clients = seen["busiest_clients"].as_array().unwrap();
    assert_eq!(clients.len(), 1, "{seen}");
    assert_eq!(clients[0]["id"], stayer.id().0);
    assert_eq!(clients[0]["share_ppm"], 90_909, "10 of 110");
}

#[test]
fn a_partition_is_listed_by_its_table_and_key() {
    let mut world = world();
    let mut client = Client::connect(&mut world);
    let mut run_statement = |world: &mut World, statement: &str| {
        let body = json!({ "statement": statement }).to_string();
        let answer = client.ask(world, "POST /cql", &body);
        assert_eq!(answer.status, 200, "{statement}: {}", answer.body);
    };
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    run_statement(&mut world, &format!("CREATE KEYSPACE k WITH replication = {replication}"));
    let table = "CREATE TABLE k.t (a int, b text, c int, PRIMARY KEY ((a, b)))";
    run_statement(&mut world, table);
    for n in 0..STATEMENTS {
        let statement = match n % 3 {
            0 => "INSERT INTO k.t (a, b, c) VALUES (7, 'x', 1)",
            1 => "SELECT c FROM k.t WHERE a = 7 AND b = 'x'",
            _ => "UPDATE k.t SET c = 2 WHERE a = 7 AND b = 'x'",
        };
        run_statement(&mut world, statement);
    }
    end_window(&mut world);
    let mut visitor = Client::connect(&mut world);
    let seen = overview(&mut world, &mut visitor);
    let keys = seen["hot_keys"].as_array().unwrap();
    assert_eq!(keys.len(), 1, "{seen}");
    assert_eq!(keys[0]["key"], r#"7, "x""#);
    assert_eq!(keys[0]["table"], "k.t");
    assert_eq!(keys[0]["database"], Value::Null);
    assert_eq!(keys[0]["share_ppm"], 1_000_000);
}
