//! Replicas as drivers of CQL see them: rows, events, changes of roles.

use reactor::SimClient;
use wire::cql::Version;
use wire::replication::{CAPABILITY, CqlEndpoint, Member};

use super::cql_client::{Client, hex, world_with_system};
use super::replication::{ask, turn};
use super::world::World;
use crate::config::MasterAddress;
use crate::engine::rdb_file::Scratch;
use crate::engine::replication::LinkState;
use crate::engine::transfer_thread::serve;

const PEERS: &str = "SELECT peer, peer_port, data_center FROM system.peers_v2";
const LOCAL: &str = "SELECT data_center FROM system.local";

/// Lets ticks pass.
fn pass(world: &mut World, seconds: u64) {
    for _ in 0..seconds * 10 {
        world.sim().advance(100_000_000);
        turn(world);
    }
}

fn listener(world: &mut World) -> Client {
    let mut client = Client::start(world, Version::V4, None);
    client.send(|to, out| to.register(1, &["STATUS_CHANGE", "TOPOLOGY_CHANGE"], out));
    assert_eq!(client.ask(world), ["1 READY"]);
    client
}

fn select(world: &mut World, text: &str) -> String {
    let mut client = Client::start(world, Version::V4, None);
    client.query(1, text);
    turn(world);
    client.replies().concat()
}

/// The client that a replica with this announcement is.
fn replica(world: &mut World, announced: &str) -> SimClient {
    let client = world.sim().connect();
    client.send(format!("REPLCONF capa {CAPABILITY} {announced}\r\nPSYNC ? -1\r\n").as_bytes());
    turn(world);
    assert!(client.received().starts_with(b"+OK\r\n"));
    for _ in 0..200 {
        let now = world.sim().now();
        serve(world.shared(), now, &mut Scratch::default());
        turn(world);
        client.received();
        if world.shared().replication.replicas().list().iter().any(|one| one.is_online) {
            return client;
        }
    }
    panic!("the replica does not get its copy");
}

fn is_one_of(kinds: &[&str], replies: &[String]) {
    let expected: Vec<String> = kinds.iter().map(|kind| format!("-1 EVENT {kind}")).collect();
    assert_eq!(replies, expected);
}

#[test]
fn drivers_are_notified_of_a_replica() {
    let mut world = world_with_system(&[]);
    let mut client = listener(&mut world);
    pass(&mut world, 1);
    assert_eq!(select(&mut world, PEERS), "1 ROWS ");
    let host = "0f4b2b8e-0000-4000-8000-000000000001";
    let announced = format!("cql-host-id {host} cql-address 10.0.0.2 cql-port 9042");
    let link = replica(&mut world, &announced);
    pass(&mut world, 1);
    is_one_of(&["TOPOLOGY_CHANGE", "STATUS_CHANGE"], &client.ask(&mut world));
    let row = format!("1 ROWS 0a000002 00002352 {}", hex(b"replicas"));
    assert_eq!(select(&mut world, PEERS), row);
    link.close();
    pass(&mut world, 8);
    assert!(client.ask(&mut world).is_empty(), "it may return");
    pass(&mut world, 3);
    is_one_of(&["STATUS_CHANGE"], &client.ask(&mut world));
    assert_eq!(select(&mut world, PEERS), row);
    pass(&mut world, 60);
    is_one_of(&["TOPOLOGY_CHANGE"], &client.ask(&mut world));
    assert_eq!(select(&mut world, PEERS), "1 ROWS ");
}

#[test]
fn a_replica_without_cql_is_not_listed() {
    let mut world = world_with_system(&[]);
    let host = "0f4b2b8e-0000-4000-8000-000000000001";
    for announced in ["", "cql-port 9042", &format!("cql-host-id {host} cql-address 10.0.0.2")] {
        let link = replica(&mut world, announced);
        pass(&mut world, 1);
        assert_eq!(select(&mut world, PEERS), "1 ROWS ", "{announced}");
        link.close();
        pass(&mut world, 1);
    }
}

#[test]
fn a_change_of_the_role_disconnects_drivers() {
    let mut world = world_with_system(&[]);
    pass(&mut world, 1);
    let of_schema = Client::start(&mut world, Version::V4, None);
    let client = listener(&mut world);
    let master = MasterAddress { host: "master".to_owned(), port: 1 };
    world.shared().replication.set_source(master);
    let generation = world.shared().replication.link().generation;
    pass(&mut world, 1);
    assert!(!client.sim.is_ended(), "the master has not sent its list");
    let cql = CqlEndpoint { ip: None, port: 9042, tls_port: 0 };
    let list = vec![Member { host: [7; 16], is_master: true, cql }];
    world.shared().replication.members.receive(generation, list, [10, 0, 0, 9].into());
    world.shared().replication.link().state = LinkState::Connected;
    pass(&mut world, 1);
    assert!(client.sim.is_ended());
    assert!(!of_schema.sim.is_ended());
    assert_eq!(select(&mut world, LOCAL), format!("1 ROWS {}", hex(b"replicas")));
    let row = format!("1 ROWS 0a000009 00002352 {}", hex(b"datacenter1"));
    assert_eq!(select(&mut world, PEERS), row);
    // UP of this server and of its master.
    let mut client = listener(&mut world);
    pass(&mut world, 2);
    is_one_of(&["STATUS_CHANGE"; 2], &client.ask(&mut world));
    world.shared().replication.link().source = None;
    pass(&mut world, 1);
    assert!(client.sim.is_ended());
    assert_eq!(select(&mut world, LOCAL), format!("1 ROWS {}", hex(b"datacenter1")));
    assert_eq!(select(&mut world, PEERS), "1 ROWS ");
}

#[test]
fn malformed_announcements_are_refused() {
    let mut world = world_with_system(&[]);
    for announced in [
        "cql-host-id x",
        "cql-host-id 00000000-0000-0000-0000-000000000000",
        "cql-address example.org",
        "cql-address 0.0.0.0",
        "cql-address ::ffff:0.0.0.0",
        "cql-address ff02::1",
        "cql-address 10.0.0.1:9042",
        "cql-port 0",
        "cql-port 65536",
        "cql-tls-port -1",
    ] {
        let reply = ask(&mut world, &format!("REPLCONF {announced}|"));
        assert!(reply.starts_with("-ERR invalid "), "{announced}: {reply}");
    }
}
