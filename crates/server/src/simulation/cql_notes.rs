//! Parts of a CQL response besides the result: traces, warnings, changed columns.

use cql::plan::prepared::{PreparedStatement, statement_id};
use wire::cql::{
    BatchKind, BatchStatement, Consistency, Parameters, ParametersToSend, Value, Version,
};

use super::cql_client::{Client, answers, ask, hex, no_values, world};
use super::http_client;
use super::world::World;
use crate::config::Durability;
use crate::statements::scan_queue::ROWS_PER_TURN;

const KEYSPACE: &str =
    "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";

fn world_with_table() -> World {
    let mut world = world(&[]);
    let mut client = Client::start(&mut world, Version::V4, None);
    for text in [KEYSPACE, "CREATE TABLE k.t (p int PRIMARY KEY, v text)"] {
        assert!(ask(&mut world, &mut client, text).starts_with("CHANGE"));
    }
    world
}

/// A traced long read pauses like any other, and has one trace.
#[test]
fn a_traced_read_yields_to_other_requests() {
    let mut world = world_with_table();
    let mut client = Client::start(&mut world, Version::V4, None);
    for p in 0..3 * ROWS_PER_TURN {
        client.query(1, &format!("INSERT INTO k.t (p, v) VALUES ({p}, 'a')"));
    }
    assert_eq!(answers(&mut world, &mut client).len(), 3 * ROWS_PER_TURN);
    let pauses = world.server(0).scan_pause_count();
    let mut message = client.encoded(|to, out| {
        let with = ParametersToSend { parameters: Parameters::new(Consistency::One), values: &[] };
        to.query(3, "SELECT count(*) FROM k.t", &with, out);
    });
    message[1] |= 0x02;
    client.sim.send(&message);
    let replies = answers(&mut world, &mut client);
    assert_eq!(replies.len(), 1);
    assert!(replies[0].contains(" trace "), "{}", replies[0]);
    assert!(world.server(0).scan_pause_count() > pauses);
    let count = ask(&mut world, &mut client, "SELECT count(*) FROM system_traces.sessions");
    assert!(count.starts_with(&format!("ROWS {:016x}", 1)), "{count}");
}

#[test]
fn traces_can_be_queried() {
    let mut world = world_with_table();
    let mut client = Client::start(&mut world, Version::V4, None);
    let mut traced = |text: &str| {
        let mut message = client.encoded(|to, out| {
            let with =
                ParametersToSend { parameters: Parameters::new(Consistency::One), values: &[] };
            to.query(3, text, &with, out);
        });
        message[1] |= 0x02;
        client.sim.send(&message);
        let replies = answers(&mut world, &mut client);
        let (reply, id) = replies[0].split_once(" trace ").expect("the response has a trace id");
        assert_eq!(id.len(), 32);
        (
            reply.to_owned(),
            format!("{}-{}-{}-{}-{}", &id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]),
        )
    };
    let (reply, id) = traced("INSERT INTO k.t (p, v) VALUES (1, 'a')");
    assert_eq!(reply, "3 VOID");
    let (_, other) = traced("SELECT v FROM k.t WHERE p = 1");
    assert_ne!(id, other);
    let shown = |text: &str| hex(text.as_bytes());
    let sessions = |columns: &str| {
        format!("SELECT {columns} FROM system_traces.sessions WHERE session_id = {id}")
    };
    let reply = ask(&mut world, &mut client, &sessions("request, command, parameters['query']"));
    let (request, command) = (shown("Execute CQL3 query"), shown("QUERY"));
    let query = shown("INSERT INTO k.t (p, v) VALUES (1, 'a')");
    assert_eq!(reply, format!("ROWS {request} {command} {query}"));
    let reply = ask(&mut world, &mut client, &sessions("TTL(duration)"));
    assert_eq!(reply, format!("ROWS {}", hex(&86_400_i32.to_be_bytes())));
    let events = format!("SELECT activity FROM system_traces.events WHERE session_id = {id}");
    let reply = ask(&mut world, &mut client, &events);
    let activities: Vec<&str> = reply.split(' ').skip(1).collect();
    assert_eq!(activities.len(), 3, "a write waits for the log: {reply}");
    assert!(activities[2].starts_with(&shown("Response waits until the log")), "{reply}");
}

#[test]
fn clients_are_warned_of_batches() {
    let mut world = world_with_table();
    let mut client = Client::start(&mut world, Version::V5, None);
    let mut batch = |kind, partitions: usize, value_bytes: usize| {
        let value = "x".repeat(value_bytes);
        let texts: Vec<String> = (0..partitions)
            .map(|p| format!("INSERT INTO k.t (p, v) VALUES ({p}, '{value}')"))
            .collect();
        let statements: Vec<_> =
            texts.iter().map(|text| (BatchStatement::Text(text), &[][..])).collect();
        let with = Parameters::new(Consistency::One);
        client.send(|to, out| to.batch(1, kind, &statements, &with, out));
        answers(&mut world, &mut client).remove(0)
    };
    for kind in [BatchKind::Logged, BatchKind::Unlogged] {
        assert_eq!(batch(kind, 10, 1), "1 VOID");
        let big = batch(kind, 2, 4000);
        let text = "1 VOID (Batch for [k.t] is of size 7.";
        assert!(big.starts_with(text), "{big}");
        assert!(big.contains("exceeding specified threshold of 5.000KiB by 2."), "{big}");
        assert_eq!(batch(kind, 1, 40_000), "1 VOID", "one partition may be big");
        assert_eq!(batch(kind, 2, 30_000), "1 ERROR 2200 Batch too large");
    }
    let wide = batch(BatchKind::Unlogged, 11, 1);
    assert_eq!(
        wide,
        "1 VOID (Unlogged batch covering 11 partitions detected against table [k.t]. You should use \
         a logged batch for atomicity, or asynchronous writes for performance.)"
    );
    assert_eq!(batch(BatchKind::Logged, 11, 1), "1 VOID");
}

const SELECT: &str = "SELECT * FROM k.t";

#[test]
fn clients_with_outdated_columns_receive_the_new_ones() {
    let mut world = world_with_table();
    let mut old = Client::start(&mut world, Version::V5, None);
    let mut new = Client::start(&mut world, Version::V5, None);
    let id = statement_id(SELECT, None);
    let metadata_id = |world: &World| {
        let catalog = world.shared().catalog.load_full();
        PreparedStatement::new(SELECT, None, catalog).unwrap().result_metadata_id
    };
    old.send(|to, out| to.prepare(1, SELECT, None, out));
    assert_eq!(answers(&mut world, &mut old), [format!("1 PREPARED {}", hex(&id))]);
    let before = metadata_id(&world);
    let execute = |client: &Client, known: &[u8; 16]| {
        let mut parameters = Parameters::new(Consistency::One);
        parameters.skip_metadata = true;
        let with = ParametersToSend { parameters, values: &[] as &[(Option<&str>, Value<'_>)] };
        client.send(|to, out| to.execute(2, &id, known, &with, out));
    };
    assert_eq!(ask(&mut world, &mut new, "INSERT INTO k.t (p, v) VALUES (1, 'a')"), "VOID");
    execute(&old, &before);
    assert_eq!(answers(&mut world, &mut old), ["2 ROWS 00000001 61"]);
    assert!(ask(&mut world, &mut new, "ALTER TABLE k.t ADD n int").starts_with("CHANGE"));
    // Another client prepares it again; this client continues with its old metadata.
    execute(&old, &before);
    assert!(answers(&mut world, &mut old)[0].starts_with("2 ERROR 2500"));
    new.send(|to, out| to.prepare(1, SELECT, None, out));
    assert_eq!(answers(&mut world, &mut new).len(), 1);
    let after = metadata_id(&world);
    assert_ne!(before, after);
    execute(&old, &before);
    let expected = format!("2 ROWS 00000001 null 61 now p,n,v as {}", hex(&after));
    assert_eq!(answers(&mut world, &mut old), [expected]);
    execute(&old, &after);
    assert_eq!(answers(&mut world, &mut old), ["2 ROWS 00000001 null 61"]);
}

#[test]
fn a_connection_chooses_the_durability_of_its_writes() {
    let mut world = world_with_table();
    for (word, durability) in [
        ("NEVER", Durability::Never),
        ("interval", Durability::Interval),
        ("always", Durability::Always),
    ] {
        let mut client = Client::connect(&mut world, Version::V4);
        let options = [("CQL_VERSION", "3.0.0"), ("MYRIAD_DURABILITY", word)];
        client.send(|to, out| to.startup(0, &options, out));
        assert_eq!(client.ask(&mut world), ["0 READY"]);
        client.query(1, "INSERT INTO k.t (p, v) VALUES (1, 'a')");
        // The log is not written in the meantime.
        let is_answered = !client.ask(&mut world).is_empty();
        assert_eq!(is_answered, durability != Durability::Always, "{word}");
        answers(&mut world, &mut client);
    }
    let mut client = Client::connect(&mut world, Version::V4);
    client.send(|to, out| {
        to.startup(0, &[("CQL_VERSION", "3.0.0"), ("MYRIAD_DURABILITY", "maybe")], out);
    });
    let refusal = "0 ERROR 000a MYRIAD_DURABILITY must be one of ";
    assert!(client.ask(&mut world)[0].starts_with(refusal));
}

/// A query with an entry in its custom payload.
fn send_with(client: &Client, (name, value): (&str, &str), text: &str) {
    let mut message = client.encoded(|to, out| {
        to.query(1, text, &no_values(), out);
    });
    let body_at = 9;
    let mut map = vec![0, 1];
    map.extend_from_slice(&u16::try_from(name.len()).unwrap().to_be_bytes());
    map.extend_from_slice(name.as_bytes());
    map.extend_from_slice(&u32::try_from(value.len()).unwrap().to_be_bytes());
    map.extend_from_slice(value.as_bytes());
    message[1] |= 4;
    let length = u32::try_from(message.len() - body_at + map.len()).unwrap();
    message[5..body_at].copy_from_slice(&length.to_be_bytes());
    message.splice(body_at..body_at, map);
    client.sim.send(&message);
}

#[test]
fn a_request_chooses_the_durability_of_its_write() {
    let mut world = world_with_table();
    let mut client = Client::start(&mut world, Version::V4, None);
    let insert = "INSERT INTO k.t (p, v) VALUES (1, 'a')";
    send_with(&client, ("MYRIAD_DURABILITY", "never"), insert);
    assert_eq!(client.ask(&mut world), ["1 VOID"], "before the log is written");
    client.query(1, insert);
    assert!(client.ask(&mut world).is_empty(), "the choice was for one request");
    assert_eq!(answers(&mut world, &mut client), ["1 VOID"]);
    send_with(&client, ("MYRIAD_DURABILITY", "replicated"), insert);
    let [refused] = &answers(&mut world, &mut client)[..] else { panic!("one reply") };
    assert!(refused.starts_with("1 ERROR 1000"), "no replica: {refused}");
    send_with(&client, ("MYRIAD_DURABILITY", "maybe"), insert);
    assert!(client.ask(&mut world)[0].starts_with("1 ERROR 000a MYRIAD_DURABILITY must be one of"));
    send_with(&client, ("other", "x"), insert);
    assert_eq!(answers(&mut world, &mut client), ["1 VOID"]);
}

/// DESCRIBE and USE report only durable schema.
#[test]
fn schema_queries_wait_for_the_last_change() {
    let mut world = world(&[]);
    let mut writer = Client::start(&mut world, Version::V4, None);
    let mut reader = Client::start(&mut world, Version::V4, None);
    writer.query(1, KEYSPACE);
    assert!(writer.ask(&mut world).is_empty());
    reader.query(2, "USE k");
    reader.query(3, "DESCRIBE KEYSPACES");
    assert!(reader.ask(&mut world).is_empty());
    world.write_log();
    assert_eq!(writer.ask(&mut world), ["1 CHANGE CREATED KEYSPACE k"]);
    let replies = reader.ask(&mut world);
    assert_eq!(replies[0], "2 KEYSPACE k");
    assert!(replies[1].starts_with("3 ROWS "), "{replies:?}");
    // Durable schema is reported at once.
    reader.query(4, "USE k");
    assert_eq!(reader.ask(&mut world), ["4 KEYSPACE k"]);
}

/// Whatever a statement answers, an error too, depends on the schema in which its names were looked
/// up. A crash could undo a change of it that is not durable.
#[test]
fn no_statement_is_answered_by_a_schema_that_is_not_durable() {
    const CHANGES: [&str; 11] = [
        "CREATE KEYSPACE n WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "ALTER KEYSPACE k WITH durable_writes = false",
        "CREATE TABLE k.n (p int PRIMARY KEY)",
        "ALTER TABLE k.t ADD w int",
        "ALTER TABLE k.t DROP x",
        "CREATE INDEX n ON k.t (v)",
        "DROP INDEX k.old",
        "CREATE TYPE k.n (a int)",
        "ALTER TYPE k.u ADD b int",
        "DROP TABLE k.t",
        "DROP KEYSPACE k",
    ];
    const QUESTIONS: [&str; 14] = [
        "SELECT schema_version FROM system.local",
        "SELECT schema_version FROM system.peers_v2",
        "SELECT table_name FROM system_schema.tables",
        "SELECT * FROM k.t",
        "SELECT * FROM k.n",
        "SELECT w FROM k.t",
        "SELECT p FROM k.t WHERE v = 'a'",
        "INSERT INTO k.t (p, nope) VALUES (1, 1)",
        "BEGIN BATCH INSERT INTO k.n (p) VALUES (1); APPLY BATCH",
        "USE n",
        "DESCRIBE TABLE k.n",
        "DESCRIBE TYPE k.n",
        "CREATE TYPE IF NOT EXISTS k.u (a int)",
        "nonsense",
    ];
    for change in CHANGES {
        let mut world = world_with_table();
        let mut writer = Client::start(&mut world, Version::V4, None);
        for text in [
            "ALTER TABLE k.t ADD (x int, y int)",
            "CREATE INDEX old ON k.t (y)",
            "CREATE TYPE k.u (a int)",
        ] {
            assert!(ask(&mut world, &mut writer, text).starts_with("CHANGE"));
        }
        let mut readers = QUESTIONS.map(|_| Client::start(&mut world, Version::V4, None));
        let mut fast = Client::connect(&mut world, Version::V4);
        let options = [("CQL_VERSION", "3.0.0"), ("MYRIAD_DURABILITY", "interval")];
        fast.send(|to, out| to.startup(0, &options, out));
        assert_eq!(fast.ask(&mut world), ["0 READY"]);
        writer.query(1, change);
        assert!(writer.ask(&mut world).is_empty(), "{change}");
        for (reader, question) in readers.iter_mut().zip(QUESTIONS) {
            reader.query(2, question);
            assert_eq!(reader.ask(&mut world), [""; 0], "{question} after {change}");
        }
        fast.query(3, QUESTIONS[0]);
        assert_eq!(fast.ask(&mut world).len(), 1, "this client does not wait for the log");
        world.write_log();
        assert!(writer.ask(&mut world)[0].starts_with("1 CHANGE"), "{change}");
        for (reader, question) in readers.iter_mut().zip(QUESTIONS) {
            assert_eq!(reader.ask(&mut world).len(), 1, "{question} after {change}");
        }
    }
}

/// The same over HTTP.
#[test]
fn no_http_answer_depends_on_a_schema_that_is_not_durable() {
    let mut world = http_client::world();
    let connect = |world: &mut World| http_client::Client::connect(world);
    let (mut writer, mut reader) = (connect(&mut world), connect(&mut world));
    let post = |statement: &str| {
        http_client::request("POST /cql", &format!("{{\"statement\": \"{statement}\"}}"))
    };
    for (change, question, status) in [
        (KEYSPACE, "SELECT * FROM k.t", 400),
        ("CREATE TABLE k.t (p int PRIMARY KEY)", "SELECT * FROM k.t", 200),
        ("DROP TABLE k.t", "SELECT * FROM k.t", 400),
        ("DROP KEYSPACE k", "SELECT schema_version FROM system.local", 200),
    ] {
        writer.sim.send(post(change).as_bytes());
        while world.step(0) {}
        reader.sim.send(post(question).as_bytes());
        while world.step(0) {}
        assert_eq!(reader.answers(), [], "{question} after {change}");
        http_client::run(&mut world);
        assert_eq!(writer.answers().len(), 1);
        let answers = reader.answers();
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].status, status, "{question} after {change}: {}", answers[0].body);
    }
}

/// Otherwise a crash could restore the value after a client was informed of its deletion.
#[test]
fn a_deletion_without_effect_waits_for_the_previous_one() {
    let delete = "DELETE FROM redis.strings WHERE key = 0x6b";
    for first in [delete, "DELETE FROM redis.strings WHERE key = 0x6b IF EXISTS"] {
        let mut world = world(&[]);
        let mut writer = Client::start(&mut world, Version::V4, None);
        let mut other = Client::start(&mut world, Version::V4, None);
        let insert = "INSERT INTO redis.strings (key, value) VALUES (0x6b, 0x76)";
        assert_eq!(ask(&mut world, &mut writer, insert), "VOID");
        writer.query(1, first);
        assert!(writer.ask(&mut world).is_empty());
        other.query(2, delete);
        assert!(other.ask(&mut world).is_empty(), "the deletion is not durable yet");
        world.write_log();
        assert_eq!(other.ask(&mut world), ["2 VOID"]);
        other.query(3, delete);
        assert_eq!(other.ask(&mut world), ["3 VOID"], "nothing to wait for");
    }
}
