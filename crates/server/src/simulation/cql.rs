//! CQL connections of the simulated server: handshakes, frames, malformed input, replies that wait
//! for the log.

use std::sync::Arc;

use binlog::Faults as DiskFaults;
use cql::plan::prepared::statement_id;
use cql::schema::{Catalog, Event, Target, Verb};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use wire::cql::{BatchKind, BatchStatement, Compression, SegmentFormat, Version};

use super::cql_client::{
    Client, execute, hex, no_values, plan, run_reactors, with_options, world_with_system,
};
use super::model::command;
use super::world::{Plan, World};
use crate::engine::gate::Gate;
use crate::protocol::ClientProtocol;
use crate::statements::schema_change::announce;

const SEED: u64 = 1;
pub(super) const VERSIONS: [Version; 3] = [Version::V3, Version::V4, Version::V5];

pub(super) const SUPPORTED: &str =
    "SUPPORTED PROTOCOL_VERSIONS COMPRESSION CQL_VERSION MYRIAD_DURABILITY";

#[test]
fn clients_of_every_version_and_compression_connect() {
    let mut world = World::new(SEED, plan());
    for version in VERSIONS {
        for compression in [None, Some(Compression::Lz4), Some(Compression::Snappy)] {
            if version == Version::V5 && compression == Some(Compression::Snappy) {
                continue;
            }
            let mut client = Client::connect(&mut world, version);
            client.send(|to, out| to.options(3, out));
            assert_eq!(client.ask(&mut world), [format!("3 {SUPPORTED}")]);
            client.startup(compression);
            assert_eq!(client.ask(&mut world), ["0 READY"]);
            client.send(|to, out| to.register(4, &["SCHEMA_CHANGE", "STATUS_CHANGE"], out));
            client.query(5, "SELEC 1");
            client.send(|to, out| to.options(6, out));
            let replies = client.ask(&mut world);
            assert_eq!((replies[0].as_str(), replies.len()), ("4 READY", 3));
            assert!(replies[1].starts_with("5 ERROR 2000 "), "{replies:?}");
            assert_eq!(replies[2], format!("6 {SUPPORTED}"));
        }
    }
}

#[test]
fn drivers_that_know_shards_see_the_reactors() {
    for (placement, is_told) in [("least-loaded", false), ("source-port", true)] {
        let mut world = World::new(SEED, with_options(&[("placement", placement)]));
        let mut client = Client::connect(&mut world, Version::V4);
        client.send(|to, out| to.options(1, out));
        let expected = if is_told {
            " SCYLLA_SHARD SCYLLA_NR_SHARDS SCYLLA_PARTITIONER SCYLLA_SHARDING_ALGORITHM \
             SCYLLA_SHARDING_IGNORE_MSB SCYLLA_SHARD_AWARE_PORT"
        } else {
            ""
        };
        assert_eq!(client.ask(&mut world), [format!("1 {SUPPORTED}{expected}")]);
    }
}

#[test]
fn drivers_receive_the_supported_versions() {
    let mut world = World::new(SEED, plan());
    for (first, version) in [(0x42, 66), (0x06, 6), (0x7f, 127)] {
        let mut client = Client::connect(&mut world, Version::V5);
        client.sim.send(&[first, 0, 0, 9, 5, 0, 0, 0, 0]);
        let expected = format!(
            "9 ERROR 000a Invalid or unsupported protocol version ({version}); the lowest \
             supported version is 3 and the greatest is 5"
        );
        assert_eq!(client.ask(&mut world), [expected]);
        assert!(client.sim.is_ended());
    }
    // Versions 1 and 2 have shorter headers.
    let mut client = Client::connect(&mut world, Version::V5);
    client.sim.send(&[1, 0, 7, 1, 0, 0, 0, 0]);
    let replies = client.ask(&mut world);
    assert!(replies[0].starts_with("7 ERROR 000a Invalid or unsupported protocol version (1)"));
}

#[test]
fn every_split_of_the_input_gets_the_same_replies() {
    for version in VERSIONS {
        let conversation = |client: &mut Client| {
            let mut parts = vec![client.encoded(|to, out| to.options(1, out))];
            let before = client.segments;
            let startup = client.encoded(|to, out| to.startup(2, &[("CQL_VERSION", "3.0.0")], out));
            parts.push(startup);
            if version == Version::V5 {
                client.segments = Some(SegmentFormat::Plain);
            }
            for stream in 3..6 {
                parts.push(client.encoded(|to, out| {
                    to.query(stream, "nonsense", &no_values(), out);
                    to.prepare(stream + 10, "more nonsense", None, out);
                }));
            }
            assert!(before.is_none());
            parts.concat()
        };
        let mut world = World::new(SEED, plan());
        let mut client = Client::connect(&mut world, version);
        let bytes = conversation(&mut client);
        client.sim.send(&bytes);
        let expected = client.ask(&mut world);
        assert_eq!(expected.len(), 8);
        for cut in 1..bytes.len() {
            let mut client = Client::connect(&mut world, version);
            conversation(&mut client);
            client.sim.send(&bytes[..cut]);
            run_reactors(&mut world);
            client.sim.send(&bytes[cut..]);
            assert_eq!(client.ask(&mut world), expected, "{version} cut at {cut}");
            client.sim.close();
        }
    }
}

#[test]
fn unexpected_requests_are_refused_with_cassandras_errors() {
    let mut world = World::new(SEED, plan());
    let mut client = Client::connect(&mut world, Version::V4);
    client.query(1, "SELECT 1");
    client.send(|to, out| to.startup(2, &[], out));
    client.send(|to, out| to.startup(3, &[("CQL_VERSION", "2.0.0")], out));
    client.send(|to, out| {
        to.startup(4, &[("CQL_VERSION", "3.0.0"), ("COMPRESSION", "deflate")], out);
    });
    client.send(|to, out| to.startup(5, &[("CQL_VERSION", "4.0.0")], out));
    client.send(|to, out| to.startup(6, &[("CQL_VERSION", "4.0.0")], out));
    client.send(|to, out| to.register(7, &["WEATHER_CHANGE"], out));
    assert_eq!(
        client.ask(&mut world),
        [
            "1 ERROR 000a Unexpected message QUERY, expecting STARTUP or OPTIONS",
            "2 ERROR 000a Missing value CQL_VERSION in STARTUP message",
            "3 ERROR 000a CQL version 2.0.0 is not supported by the binary protocol (supported \
             version are >= 3.0.0)",
            "4 ERROR 000a Unknown compression algorithm: deflate",
            "5 READY",
            "6 ERROR 000a Unexpected message STARTUP, the connection is already initialized",
            "7 ERROR 000a Invalid value 'WEATHER_CHANGE' for an event type",
        ]
    );
    assert!(!client.sim.is_closed());
}

#[test]
fn a_malformed_body_gets_an_error_and_the_connection_continues() {
    let mut world = World::new(SEED, plan());
    let mut client = Client::start(&mut world, Version::V4, None);
    let message = |stream: u8, flags: u8, opcode: u8, body: &[u8]| {
        let length = u8::try_from(body.len()).unwrap();
        [&[4, flags, 0, stream, opcode, 0, 0, 0, length], body].concat()
    };
    client.sim.send(&message(1, 0, 0x55, b""));
    client.sim.send(&message(2, 0, 0x02, b""));
    client.sim.send(&message(3, 0, 0x07, b"\0\0\0\x02\xff\xfe\0\x01\0"));
    client.sim.send(&message(4, 0, 0x07, b"\0\0\0\x09short"));
    client.sim.send(&message(5, 0, 0x05, b"more"));
    client.sim.send(&message(6, 1, 0x05, b"packed"));
    client.sim.send(&message(7, 2, 0x05, b""));
    // A custom payload with one entry.
    client.sim.send(&message(8, 4, 0x05, b"\0\x01\0\x01k\0\0\0\x01v"));
    assert_eq!(
        client.ask(&mut world),
        [
            "1 ERROR 000a Unknown opcode 85",
            "2 ERROR 000a Unexpected direction of the message",
            "3 ERROR 000a Cannot decode string as UTF8",
            "4 ERROR 000a Not enough bytes in the message's body",
            &format!("5 {SUPPORTED}"),
            "6 ERROR 000a A message is compressed, but no compression was agreed on",
            &format!("7 {SUPPORTED}"),
            &format!("8 {SUPPORTED}"),
        ]
    );
    assert!(!client.sim.is_closed());
}

#[test]
fn unreadable_input_closes_the_connection() {
    let mut world = World::new(SEED, with_options(&[("native-transport-max-frame-size", "64kb")]));
    let check = |world: &mut World, version, bytes: &[u8], expected: &str| {
        let mut client = Client::start(world, version, None);
        client.send(|to, out| to.options(1, out));
        client.sim.send(bytes);
        client.send(|to, out| to.options(2, out));
        let replies = client.ask(world);
        assert_eq!(replies[0], format!("1 {SUPPORTED}"));
        assert_eq!(replies.len(), 2, "{replies:?}");
        assert!(replies[1].contains(expected), "{replies:?}");
        assert!(client.sim.is_ended());
    };
    // 64 KiB and one byte are announced; none has arrived.
    check(
        &mut world,
        Version::V4,
        &[4, 0, 0, 9, 7, 0, 1, 0, 1],
        "Request is too big: length 65537",
    );
    check(
        &mut world,
        Version::V4,
        &[3, 0, 0, 9, 7, 0, 0, 0, 0],
        "Invalid message version. Got 3/v3",
    );
    check(&mut world, Version::V4, &[0x84, 0, 0, 9, 7, 0, 0, 0, 0], "Wrong protocol direction");
    check(&mut world, Version::V5, b"damaged segment", "CRC mismatch detected in frame header");
}

#[test]
fn unauthenticated_clients_get_little_memory() {
    let mut world = World::new(SEED, plan());
    let mut client = Client::connect(&mut world, Version::V4);
    client.sim.send(&[4, 0, 0, 9, 1, 0, 1, 0, 1]);
    let replies = client.ask(&mut world);
    assert!(replies[0].contains("Request is too big"), "{replies:?}");
    assert!(client.sim.is_ended());
}

#[test]
fn a_corrupt_segment_is_never_executed() {
    for compression in [None, Some(Compression::Lz4)] {
        let mut world = World::new(SEED, plan());
        let probe = Client::start(&mut world, Version::V5, compression);
        let good = probe.encoded(|to, out| to.options(7, out));
        for at in 0..good.len() {
            let mut client = Client::start(&mut world, Version::V5, compression);
            let mut damaged = good.clone();
            damaged[at] ^= 0x04;
            client.sim.send(&damaged);
            let replies = client.ask(&mut world);
            assert_eq!(replies.len(), 1, "byte {at}: {replies:?}");
            assert!(replies[0].starts_with("0 ERROR 000a "), "byte {at}: {replies:?}");
            assert!(client.sim.is_ended(), "byte {at}");
        }
    }
}

#[test]
fn a_password_is_required_and_guessing_takes_time() {
    let mut world = World::new(SEED, with_options(&[("requirepass", "secret")]));
    for version in VERSIONS {
        let mut client = Client::connect(&mut world, version);
        client.startup(None);
        let class = "org.apache.cassandra.auth.PasswordAuthenticator";
        assert_eq!(client.ask(&mut world), [format!("0 AUTHENTICATE {class}")]);
        client.query(1, "SELECT 1");
        client.send(|to, out| to.auth_response(2, b"\0me\0wrong", out));
        client.send(|to, out| to.auth_response(3, b"\0me\0secret", out));
        client.send(|to, out| to.options(4, out));
        assert_eq!(
            client.ask(&mut world),
            ["1 ERROR 000a Unexpected message QUERY, expecting SASL_RESPONSE"]
        );
        world.advance(1_000_000_000);
        assert_eq!(
            client.ask(&mut world),
            [
                "2 ERROR 0100 Provided username me and/or password are incorrect".to_owned(),
                "3 AUTH_SUCCESS".to_owned(),
                format!("4 {SUPPORTED}")
            ]
        );
    }
    let mut guesser = Client::connect(&mut world, Version::V4);
    guesser.startup(None);
    for stream in 0..5 {
        guesser.send(|to, out| to.auth_response(stream, b"\0me\0guess", out));
    }
    for _ in 0..5 {
        run_reactors(&mut world);
        world.advance(1_000_000_000);
    }
    assert_eq!(guesser.ask(&mut world).len(), 4, "AUTHENTICATE, and three refusals");
    assert!(guesser.sim.is_ended());
}

#[test]
fn many_streams_in_one_read_are_all_answered() {
    let mut world = World::new(SEED, plan());
    for version in VERSIONS {
        let mut client = Client::start(&mut world, version, None);
        client.send(|to, out| (0..2000).for_each(|stream| to.options(stream, out)));
        let replies = client.ask(&mut world);
        let expected: Vec<String> =
            (0..2000).map(|stream| format!("{stream} {SUPPORTED}")).collect();
        assert_eq!(replies, expected);
    }
}

#[test]
fn redis_clients_are_served_at_the_same_time() {
    let mut world = World::new(SEED, plan());
    let resp = world.connect();
    let mut cql = Client::start(&mut world, Version::V5, None);
    world.send(resp, command(&["SET", "text0", "x"]));
    cql.send(|to, out| to.options(1, out));
    world.settle();
    world.check_served();
    assert_eq!(cql.replies(), [format!("1 {SUPPORTED}")]);
}

/// A client that registers for schema events.
fn listener(world: &mut World, version: Version) -> Client {
    let mut client = Client::start(world, version, None);
    client.send(|to, out| to.register(1, &["SCHEMA_CHANGE"], out));
    assert_eq!(client.ask(world), ["1 READY"]);
    client
}

/// Notifies clients of a schema change that becomes durable with the next write of `writer`.
fn change_schema(world: &mut World, writer: usize) {
    world.send(writer, command(&["SET", "text0", "x"]));
    run_reactors(world);
    let event = Event { verb: Verb::Created, keyspace: "k".to_owned(), target: Target::Keyspace };
    let gate = Gate::at(world.shared().log.next());
    assert!(!gate.is_open_at(world.shared().log.durable()));
    announce(world.shared(), event, gate);
    run_reactors(world);
}

const EVENT: &str = "-1 EVENT SCHEMA_CHANGE";

#[test]
fn replies_overtake_those_that_wait_for_the_log() {
    for version in VERSIONS {
        let mut world = World::new(SEED, plan());
        let writer = world.connect();
        let mut client = listener(&mut world, version);
        let mut other = Client::start(&mut world, version, None);
        change_schema(&mut world, writer);
        for stream in 0..3 {
            client.send(|to, out| to.options(stream, out));
            assert_eq!(client.ask(&mut world), [format!("{stream} {SUPPORTED}")]);
        }
        world.write_log();
        assert_eq!(client.ask(&mut world), [EVENT]);
        assert_eq!(other.ask(&mut world), [""; 0], "the client did not register");
    }
}

#[test]
fn waiting_events_move_with_their_connection() {
    let mut world = World::new(SEED, Plan { reactors: 2, ..plan() });
    let writer = world.connect();
    let mut client = listener(&mut world, Version::V5);
    world.settle();
    change_schema(&mut world, writer);
    let id = client.sim.id();
    let from = world.sim().place_of(id).expect("the client is connected");
    assert!(world.sim().migrate(id, 1 - from));
    assert_eq!(client.ask(&mut world), [""; 0]);
    assert_eq!(world.sim().place_of(id), Some(1 - from));
    world.write_log();
    assert_eq!(client.ask(&mut world), [EVENT], "the new reactor was not notified");
    // Move it back; neither reactor keeps any of its state.
    change_schema(&mut world, writer);
    assert!(world.sim().migrate(id, from));
    run_reactors(&mut world);
    world.write_log();
    assert_eq!(client.ask(&mut world), [EVENT]);
}

#[test]
fn waiting_events_are_sent_before_the_connection_closes() {
    for version in VERSIONS {
        // SIGTERM.
        let mut world = World::new(SEED, plan());
        let writer = world.connect();
        let mut client = listener(&mut world, version);
        change_schema(&mut world, writer);
        world.sim().drain();
        assert_eq!(client.ask(&mut world), [""; 0]);
        assert!(!client.sim.is_ended());
        world.write_log();
        assert_eq!(client.ask(&mut world), [EVENT]);
        world.settle();
        assert!(world.sim().is_ended());

        // The client has closed its sending side.
        let mut world = World::new(SEED, plan());
        let writer = world.connect();
        let mut client = listener(&mut world, version);
        change_schema(&mut world, writer);
        client.send(|to, out| to.options(7, out));
        client.sim.half_close();
        assert_eq!(client.ask(&mut world), [format!("7 {SUPPORTED}")]);
        assert!(!client.sim.is_ended());
        world.write_log();
        assert_eq!(client.ask(&mut world), [EVENT]);
        assert!(client.sim.is_ended());

        // The client's last message was malformed.
        let mut client = listener(&mut world, version);
        change_schema(&mut world, writer);
        client.sim.send(&[0xff; 32]);
        let replies = client.ask(&mut world);
        assert!(replies.len() == 1 && replies[0].contains("ERROR"), "{replies:?}");
        world.write_log();
        assert_eq!(client.ask(&mut world), [EVENT]);
        assert!(client.sim.is_ended());
    }
}

#[test]
fn events_that_wait_for_a_failed_log_are_never_sent() {
    for version in VERSIONS {
        let mut world = World::new(SEED, plan());
        let writer = world.connect();
        let mut client = listener(&mut world, version);
        let mut other = Client::start(&mut world, version, None);
        world.settle();
        world.disk.set_faults(DiskFaults { sync_error: 1.0, ..DiskFaults::default() });
        change_schema(&mut world, writer);
        world.settle();
        assert!(world.log_failed());
        assert_eq!(client.ask(&mut world), [""; 0]);
        assert!(client.sim.is_closed());
        other.send(|to, out| to.options(1, out));
        assert_eq!(other.ask(&mut world), [format!("1 {SUPPORTED}")]);
    }
}

#[test]
fn waiting_replies_are_bounded_and_none_is_lost() {
    let options = [("cql-requests-in-flight-max", "4")];
    let mut world = World::new(SEED, with_options(&options));
    let writer = world.connect();
    let mut client = listener(&mut world, Version::V4);
    world.settle();
    for _ in 0..6 {
        change_schema(&mut world, writer);
    }
    // The connection is full and is not read from.
    client.send(|to, out| (0..10).for_each(|stream| to.options(stream, out)));
    assert_eq!(client.ask(&mut world), [""; 0]);
    world.write_log();
    let replies = client.ask(&mut world);
    assert_eq!(replies.iter().filter(|reply| *reply == EVENT).count(), 6);
    assert_eq!(replies.len(), 16);
}

#[test]
fn clients_are_listed_with_their_drivers() {
    let mut world = World::new(SEED, plan());
    let _client = Client::start(&mut world, Version::V4, None);
    let published = world.shared().published[0].lock();
    let row =
        published.clients.values().find(|row| row.resp == 0).expect("the client is connected");
    assert_eq!((&*row.library_name, row.commands), ("test", 1));
    assert_eq!(world.shared().request_kinds.name(usize::from(row.last_command)), "cql|startup");
}

#[test]
fn statements_are_prepared_once_and_run_by_id() {
    check_prepared_statements(&[]);
}

pub(super) fn check_prepared_statements(options: &[(&'static str, &str)]) {
    let mut world = world_with_system(options);
    let id = statement_id("USE system", None);
    for version in VERSIONS {
        let mut client = Client::start(&mut world, version, None);
        execute(&client, 1, b"unknown", &[]);
        client.send(|to, out| to.prepare(2, "USE system", None, out));
        execute(&client, 3, &id, &[]);
        client.query(4, "USE system_schema");
        // The current keyspace is part of the id.
        client.send(|to, out| to.prepare(5, "USE system", None, out));
        let replies = client.ask(&mut world);
        assert!(replies[0].starts_with("1 ERROR 2500 Prepared query with ID 756e6b6e6f776e"));
        let other = statement_id("USE system", Some("system_schema"));
        assert_eq!(
            replies[1..],
            [
                format!("2 PREPARED {}", hex(&id)),
                "3 KEYSPACE system".to_owned(),
                "4 KEYSPACE system_schema".to_owned(),
                format!("5 PREPARED {}", hex(&other)),
            ]
        );
    }
    assert_eq!(world.shared().prepared.stats().statements, 2);
}

/// The schema, or the keyspace of a driver's connections, can then change, and a driver that
/// prepares the statement again gets the id that its application uses.
// Source: Cassandra 5.0, QueryProcessor.prepare
#[test]
fn ids_of_qualified_statements_do_not_depend_on_the_keyspace() {
    let mut world = world_with_system(&[]);
    let text = "SELECT key FROM system.local WHERE key = ?";
    let id = hex(&statement_id(text, None));
    for version in VERSIONS {
        let mut client = Client::start(&mut world, version, None);
        client.send(|to, out| to.prepare(1, text, None, out));
        client.query(2, "USE system_schema");
        client.send(|to, out| to.prepare(3, text, None, out));
        client.send(|to, out| to.prepare(4, "SELECT key FROM system.local", Some("system"), out));
        // Unqualified names refer to different tables in each keyspace.
        client.send(|to, out| to.prepare(5, "SELECT keyspace_name FROM tables", None, out));
        let replies = client.ask(&mut world);
        let own = statement_id("SELECT keyspace_name FROM tables", Some("system_schema"));
        let named = statement_id("SELECT key FROM system.local", None);
        assert_eq!(
            replies,
            [
                format!("1 PREPARED {id}"),
                "2 KEYSPACE system_schema".to_owned(),
                format!("3 PREPARED {id}"),
                format!("4 PREPARED {}", hex(&named)),
                format!("5 PREPARED {}", hex(&own)),
            ]
        );
    }
}

#[test]
fn statements_that_a_schema_change_affects_keep_their_id_and_get_new_columns() {
    let mut world = world_with_system(&[]);
    let mut client = Client::start(&mut world, Version::V5, None);
    let ask = |world: &mut World, client: &mut Client| {
        let mut replies = client.ask(world);
        while world.write_log() {
            replies.extend(client.ask(world));
        }
        replies
    };
    client.query(1, "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy'}");
    client.query(2, "CREATE TABLE k.t (p int PRIMARY KEY, v int)");
    ask(&mut world, &mut client);
    let text = "SELECT * FROM k.t";
    let id = statement_id(text, None);
    client.send(|to, out| to.prepare(3, text, None, out));
    client.query(4, "ALTER TABLE k.t ADD w int");
    assert_eq!(ask(&mut world, &mut client)[0], format!("3 PREPARED {}", hex(&id)));
    execute(&client, 5, &id, &[]);
    let reply = &ask(&mut world, &mut client)[0];
    assert!(reply.starts_with("5 ERROR 2500 "), "{reply}");
    client.query(6, "USE system");
    client.send(|to, out| to.prepare(7, text, None, out));
    execute(&client, 8, &id, &[]);
    let replies = ask(&mut world, &mut client);
    assert_eq!(replies[1], format!("7 PREPARED {}", hex(&id)));
    assert!(replies[2].starts_with("8 ROWS  now p,v,w as "), "{replies:?}");
    // Statements that can no longer run are not listed.
    client.query(9, "SELECT query_string FROM system.prepared_statements");
    client.query(10, "DROP TABLE k.t");
    client.query(11, "SELECT query_string FROM system.prepared_statements");
    let replies = ask(&mut world, &mut client);
    let reply = |stream: &str| replies.iter().find(|reply| reply.starts_with(stream)).unwrap();
    assert_eq!(*reply("9 "), format!("9 ROWS {}", hex(text.as_bytes())));
    assert_eq!(*reply("11 "), "11 ROWS ");
}

/// The server has no threads for hashing passwords in this mode.
#[test]
fn passwords_are_refused_at_once_without_roles() {
    for options in [&[][..], &[("cql-authenticator", "allow-all")], &[("requirepass", "secret")]] {
        let mut world = world_with_system(options);
        let mut client = if options == [("requirepass", "secret")] {
            let mut client = Client::connect(&mut world, Version::V4);
            client.startup(None);
            client.send(|to, out| to.auth_response(1, b"\0any\0secret", out));
            assert_eq!(client.ask(&mut world)[1], "1 AUTH_SUCCESS");
            client
        } else {
            Client::start(&mut world, Version::V4, None)
        };
        let refused = "ERROR 2200 org.apache.cassandra.auth.CassandraRoleManager doesn't support \
                       PASSWORD";
        for text in [
            "CREATE ROLE IF NOT EXISTS app WITH PASSWORD = 'x' AND LOGIN = true",
            "CREATE USER app WITH PASSWORD 'x'",
            "ALTER ROLE IF EXISTS app WITH PASSWORD = 'x'",
            "ALTER USER cassandra WITH PASSWORD 'x'",
        ] {
            client.query(2, text);
            client.send(|to, out| to.prepare(3, text, None, out));
            let id = statement_id(text, None);
            let replies = client.ask(&mut world);
            let prepared = format!("3 PREPARED {}", hex(&id));
            assert_eq!(replies, [format!("2 {refused}"), prepared], "{text}");
            execute(&client, 4, &id, &[]);
            assert_eq!(client.ask(&mut world), [format!("4 {refused}")], "{text}");
        }
        assert_eq!(world.state().cql.password_pool.waiting(), 0);
    }
}

#[test]
fn statements_are_evicted_at_the_limit_or_with_their_keyspace() {
    let mut world = world_with_system(&[("prepared-statements-max", "2")]);
    let mut client = Client::start(&mut world, Version::V4, None);
    let texts = ["USE system", "USE system ", "USE system  "];
    let ids = texts.map(|text| cql::plan::prepared::statement_id(text, None));
    for (stream, text) in (0..).zip(texts) {
        client.send(|to, out| to.prepare(stream, text, None, out));
    }
    assert_eq!(client.ask(&mut world).len(), 3);
    for (stream, id) in (0..).zip(ids) {
        execute(&client, stream, &id, &[]);
    }
    let replies = client.ask(&mut world);
    let known = replies.iter().filter(|reply| reply.ends_with("KEYSPACE system")).count();
    assert_eq!(known, 2, "{replies:?}");
    world.shared().catalog.store(Arc::new(Catalog::default()));
    execute(&client, 7, &ids[2], &[]);
    assert!(client.ask(&mut world)[0].starts_with("7 ERROR 2500 "));
    assert_eq!(world.shared().prepared.stats().statements, 1);
}

#[test]
fn statements_are_refused_under_memory_pressure() {
    let mut world = world_with_system(&[("cql-rpc-memory-limit", "2mb")]);
    let mut client = Client::start(&mut world, Version::V4, None);
    let memory = Arc::clone(world.shared().memory.read_buffer.of(ClientProtocol::Cql));
    memory.consume(2 << 20);
    client.query(1, "USE system");
    client.send(|to, out| to.options(2, out));
    let refused = "1 ERROR 1001 Server is under memory pressure";
    assert_eq!(client.ask(&mut world), [refused.to_owned(), format!("2 {SUPPORTED}")]);
    memory.release(2 << 20);
    client.query(3, "USE system");
    assert_eq!(client.ask(&mut world), ["3 KEYSPACE system"]);
    // The beginning of a request for which there is no memory.
    memory.consume(1 << 20);
    client.sim.send(&[4, 0, 0, 4, 7, 0, 64, 0, 0]);
    client.sim.send(&vec![0; 2_400_000]);
    let replies = client.ask(&mut world);
    assert!(replies[0].starts_with("0 ERROR 1001 memory limit of "), "{replies:?}");
    assert!(client.sim.is_ended());
}

#[test]
fn malformed_input_does_not_affect_other_connections() {
    let mut random = SmallRng::seed_from_u64(SEED);
    let mut world = world_with_system(&[]);
    let mut witness = Client::start(&mut world, Version::V5, None);
    for round in 0..600 {
        let version = VERSIONS[round % 3];
        let compression = (round % 2 == 0).then_some(Compression::Lz4);
        let client = Client::start(&mut world, version, compression);
        let mut bytes = client.encoded(|to, out| {
            to.query(1, "SELECT * FROM system.local", &no_values(), out);
            to.prepare(2, "USE system", None, out);
            to.execute(3, &[7; 16], &[8; 16], &no_values(), out);
            to.register(4, &["SCHEMA_CHANGE"], out);
            let with = no_values().parameters;
            to.batch(5, BatchKind::Logged, &[(BatchStatement::Text("x"), &[])], &with, out);
        });
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..bytes.len());
            match random.random_range(0..3) {
                0 => bytes[at] = random.random(),
                1 => bytes.truncate(at + 1),
                _ => bytes.insert(at, random.random()),
            }
        }
        client.sim.send(&bytes);
        run_reactors(&mut world);
        client.sim.half_close();
        witness.send(|to, out| to.options(1, out));
        assert_eq!(witness.ask(&mut world), [format!("1 {SUPPORTED}")]);
        assert!(client.sim.is_ended(), "round {round}: the server has not closed it");
    }
}
