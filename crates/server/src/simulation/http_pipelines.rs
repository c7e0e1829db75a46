//! `/pipeline` across several turns of its reactor: other clients are served in between, and no
//! results are lost.

use super::cql_client::run_reactors;
use super::http_client::{Client, SECOND_NS, request, run};
use super::world::{Plan, World};
use crate::protocol::ClientProtocol;

/// Each clock reading advances the time by this much, so that a turn ends after a few commands.
const STEP_NS: u64 = 100_000;
const COMMANDS: usize = 200;

fn world(lane_bytes: u64) -> World {
    let options = vec![("http", "127.0.0.1:0".to_owned())];
    let plan = Plan { reactors: 1, step_ns: STEP_NS, options, lane_bytes, ..Plan::default() };
    World::new(1, plan)
}

/// A pipeline and the expected results, which reveal the order and number of executions.
fn increments() -> (String, String) {
    let body = format!("[{}]", vec![r#"["INCR","n"]"#; COMMANDS].join(","));
    let results: Vec<_> = (1..=COMMANDS).map(|n| format!("{{\"result\":{n}}}")).collect();
    (request("POST /pipeline", &body), format!("[{}]", results.join(",")))
}

#[test]
fn other_clients_are_served_between_the_commands_of_a_pipeline() {
    let mut world = world(16 << 10);
    let mut client = Client::connect(&mut world);
    let bystander = world.sim().connect();
    run(&mut world);
    let (request_text, expected) = increments();
    // A second request waits until the first one is complete.
    client.sim.send((request_text + &request("GET /get/n", "")).as_bytes());
    world.step(0);
    let mut rounds = 0;
    loop {
        bystander.send(b"PING\r\n");
        world.step(0);
        world.step(0);
        assert_eq!(bystander.received(), b"+PONG\r\n");
        world.write_log();
        let answers = client.answers();
        if answers.is_empty() {
            rounds += 1;
            continue;
        }
        assert!(rounds >= 5, "only {rounds} turns");
        run(&mut world);
        let bodies: Vec<_> = answers.into_iter().chain(client.answers()).collect();
        assert_eq!(bodies[0].line("Transfer-Encoding"), Some("chunked"));
        assert_eq!(bodies[0].body, expected);
        assert_eq!(bodies[1].body, format!("{{\"result\":\"{COMMANDS}\"}}"));
        break;
    }
    client.sim.close();
    world.advance(SECOND_NS);
    run(&mut world);
    assert_eq!(world.shared().memory.read_buffer.of(ClientProtocol::Http).current_bytes(), 0);
}

#[test]
fn an_http_1_0_client_gets_results_until_the_connection_closes() {
    let mut world = world(16 << 10);
    let mut client = Client::connect(&mut world);
    let (text, expected) = increments();
    client.sim.send(text.replace("HTTP/1.1", "HTTP/1.0").as_bytes());
    run(&mut world);
    assert!(client.sim.is_ended());
    assert_eq!(client.answers(), [], "the body ends with the connection");
    assert!(client.decoder.end_of_input().unwrap());
    assert_eq!(client.answer.map(|answer| answer.body), Some(expected));
}

#[test]
fn a_pipeline_waits_for_room_in_the_log_and_for_the_end_of_a_pause() {
    let mut world = world(16 << 10);
    let mut client = Client::connect(&mut world);
    let value = "v".repeat(3_000);
    let body = format!("[{}]", vec![format!("[\"SET\",\"a\",\"{value}\"]"); 40].join(","));
    client.sim.send(request("POST /pipeline", &body).as_bytes());
    run_reactors(&mut world);
    assert!(world.shared().log.next().0 < 30_000, "the lane is full");
    run(&mut world);
    let results = format!("[{}]", vec!["{\"result\":\"OK\"}"; 40].join(","));
    assert_eq!(client.answers().remove(0).body, results);

    let (text, expected) = increments();
    client.sim.send(text.as_bytes());
    world.step(0);
    world.step(0);
    let admin = world.sim().connect();
    admin.send(b"CLIENT PAUSE 5000 WRITE\r\n");
    run(&mut world);
    assert_eq!(admin.received(), b"+OK\r\n");
    assert_eq!(client.answers(), []);
    world.advance(6 * SECOND_NS);
    run(&mut world);
    assert_eq!(client.answers().remove(0).body, expected);
}

#[test]
fn a_client_that_reads_slowly_holds_one_part_of_its_answer() {
    const VALUE_BYTES: usize = 256 << 10;
    let mut world = world(1 << 20);
    let mut client = Client::connect(&mut world);
    client.ask(&mut world, "PUT /set/a", &"v".repeat(VALUE_BYTES));
    let body = format!("[{}]", vec![r#"["GET","a"]"#; COMMANDS].join(","));
    client.sim.set_window(0);
    client.sim.send(request("POST /pipeline", &body).as_bytes());
    run(&mut world);
    let held = world.sim().info(client.sim.id()).unwrap().output_bytes;
    assert!(held < (1 << 20) + 2 * VALUE_BYTES, "{held} bytes are unread");
    client.sim.set_window(usize::MAX);
    let mut answers = Vec::new();
    while answers.is_empty() {
        run(&mut world);
        answers = client.answers();
    }
    assert_eq!(answers[0].body.len(), COMMANDS * (VALUE_BYTES + "{'result':''},".len()) + 1);
}

#[test]
fn shutdown_finishes_pipelines_and_drops_those_of_closed_clients() {
    let mut world = world(16 << 10);
    let mut client = Client::connect(&mut world);
    let closed = Client::connect(&mut world);
    let (text, expected) = increments();
    client.sim.send(text.as_bytes());
    closed.sim.send(text.replace("\"n\"", "\"m\"").as_bytes());
    let commands = |world: &World| world.shared().totals().commands;
    while commands(&world) < 20 {
        world.step(0);
    }
    assert!(commands(&world) < COMMANDS as u64, "both pipelines have begun, and neither has ended");
    closed.sim.reset();
    world.sim().drain();
    run(&mut world);
    assert_eq!(client.answers().remove(0).body, expected);
    assert!(world.sim().is_ended());
    assert_eq!(world.shared().memory.read_buffer.of(ClientProtocol::Http).current_bytes(), 0);
}
