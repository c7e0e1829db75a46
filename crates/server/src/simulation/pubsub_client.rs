//! Clients that publish and subscribe, for the simulated server.

use reactor::SimClient;

use super::cql_client::run_reactors;
use super::http_client::SECOND_NS;
use super::world::{Plan, World};

const SEED: u64 = 1;

pub(super) fn world_with(reactors: usize, options: &[(&'static str, &str)]) -> World {
    let options = options.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    World::new(SEED, Plan { reactors, options, ..Plan::default() })
}

/// Runs reactors and log until they are idle.
pub(super) fn run(world: &mut World) {
    loop {
        run_reactors(world);
        if !world.write_log() {
            return;
        }
    }
}

/// Connects a client to this reactor.
pub(super) fn connect(world: &mut World, reactor: usize) -> SimClient {
    loop {
        let client = world.sim().connect();
        run(world);
        if world.sim().place_of(client.id()) == Some(reactor) {
            return client;
        }
        client.close();
        run(world);
    }
}

pub(super) fn send(client: &SimClient, words: &[&str]) {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let mut bytes = Vec::new();
    wire::resp::encode_request(&words, &mut bytes);
    client.send(&bytes);
}

pub(super) fn received(client: &SimClient) -> String {
    String::from_utf8(client.received()).unwrap()
}

/// Sends one request and returns the replies so far.
pub(super) fn ask(world: &mut World, client: &SimClient, words: &[&str]) -> String {
    send(client, words);
    run(world);
    received(client)
}

/// Publishes a message and returns the number of receivers.
#[track_caller]
pub(super) fn publish(world: &mut World, client: &SimClient, channel: &str, payload: &str) -> u64 {
    let reply = ask(world, client, &["PUBLISH", channel, payload]);
    reply.trim_end().strip_prefix(':').unwrap_or_else(|| panic!("{reply}")).parse().unwrap()
}

/// Bytes that clients and their subscriptions use, according to the tracker.
pub(super) fn held_bytes(world: &mut World) -> u64 {
    world.advance(SECOND_NS);
    run(world);
    world.shared().memory.clients.current_bytes()
}

pub(super) fn message(channel: &str, payload: &str) -> String {
    let (channel_bytes, payload_bytes) = (channel.len(), payload.len());
    format!(
        "*3\r\n$7\r\nmessage\r\n${channel_bytes}\r\n{channel}\r\n${payload_bytes}\r\n{payload}\r\n"
    )
}
