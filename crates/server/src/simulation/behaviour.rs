//! Single behaviors of the server, each from a fixed seed.

use binlog::Faults as DiskFaults;

use super::cql_client::run_reactors;
use super::model::{Command, command};
use super::pubsub_client;
use super::world::{Plan, World};
use crate::commands::change_options;
use crate::engine::snapshot_taker::Progress;

const SEED: u64 = 1;

fn set(key: &str, value: &str) -> Command {
    command(&["SET", key, value])
}

fn get(key: &str) -> Command {
    command(&["GET", key])
}

/// A connection whose replies do not wait for the log.
fn connect_hasty(world: &mut World) -> usize {
    let client = world.connect();
    world.send(client, command(&["CLIENT", "DURABILITY", "never"]));
    client
}

fn is_served(world: &mut World, client: usize) -> bool {
    world.receive(client);
    world.clients[client].is_served()
}

#[test]
fn a_reply_waits_for_the_log_and_a_read_of_another_key_does_not() {
    let mut world = World::new(SEED, Plan::default());
    let (writer, reader) = (world.connect(), world.connect());
    world.send(writer, set("text0", "new"));
    run_reactors(&mut world);
    world.send(reader, get("text1"));
    run_reactors(&mut world);
    assert!(!is_served(&mut world, writer));
    assert!(is_served(&mut world, reader));
    world.send(reader, get("text0"));
    run_reactors(&mut world);
    assert!(!is_served(&mut world, reader), "a read returned data that may be lost");
    world.write_log();
    run_reactors(&mut world);
    assert!(is_served(&mut world, writer) && is_served(&mut world, reader));
}

#[test]
fn a_slow_reader_is_paused_and_keeps_little_memory() {
    const PAUSE_BYTES: usize = 64 * 1024;
    let options = vec![("output-pause-bytes", PAUSE_BYTES.to_string())];
    let plan = Plan { reactors: 1, options, ..Plan::default() };
    let mut world = World::new(SEED, plan);
    let (slow, other) = (world.connect(), world.connect());
    world.send(slow, set("text0", &"x".repeat(4096)));
    world.settle();
    world.clients[slow].sim.set_window(0);
    for _ in 0..2000 {
        world.send(slow, get("text0"));
    }
    run_reactors(&mut world);
    let id = world.clients[slow].sim.id();
    let info = world.sim().info(id).expect("the slow reader stays connected");
    // The command batch in progress is finished.
    assert!(info.output_bytes >= PAUSE_BYTES, "{info:?}");
    assert!(info.output_bytes < PAUSE_BYTES + 64 * 5000, "{info:?}");
    world.send(other, get("text1"));
    run_reactors(&mut world);
    assert!(is_served(&mut world, other), "a slow reader blocked another connection");
    world.clients[slow].sim.set_window(usize::MAX);
    world.settle();
    world.check_served();
}

#[test]
fn a_pause_of_writes_stops_scripts_that_may_write() {
    let mut world = World::new(SEED, Plan::default());
    let ask = |world: &mut World, words: &[&str]| {
        let client = world.sim().connect();
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut bytes = Vec::new();
        wire::resp::encode_request(&words, &mut bytes);
        client.send(&bytes);
        world.settle();
        String::from_utf8(client.received()).unwrap()
    };
    let reads = "#!lua flags=no-writes\nreturn 1";
    let load = |world: &mut World, text| ask(world, &["SCRIPT", "LOAD", text])[5..45].to_owned();
    let sha1_of_reads = load(&mut world, reads);
    let sha1_of_writes = load(&mut world, "return 1");
    let library = "#!lua name=l\nlocal function one() return 1 end \
                   redis.register_function('writes', one) redis.register_function{\
                   function_name='reads', callback=one, flags={'no-writes'}}";
    assert_eq!(ask(&mut world, &["FUNCTION", "LOAD", library]), "$1\r\nl\r\n");
    assert_eq!(ask(&mut world, &["CLIENT", "PAUSE", "60000", "WRITE"]), "+OK\r\n");
    for request in [
        &["EVAL", reads, "0"][..],
        &["EVALSHA", &sha1_of_reads, "0"],
        &["EVALSHA", &sha1_of_reads.to_uppercase(), "0"],
        &["FCALL", "reads", "0"],
        &["EVAL_RO", "return 1", "0"],
        &["EVALSHA_RO", &sha1_of_writes, "0"],
    ] {
        assert_eq!(ask(&mut world, request), ":1\r\n", "{request:?}");
    }
    for request in [
        &["EVAL", "return 1", "0"][..],
        &["EVAL", "#!lua\nreturn 1", "0"],
        &["EVAL", "#!lua flags=unknown\nreturn 1", "0"],
        &["EVALSHA", &sha1_of_writes, "0"],
        &["EVALSHA", "unknown", "0"],
        &["FCALL", "writes", "0"],
        &["FCALL", "unknown", "0"],
    ] {
        assert_eq!(ask(&mut world, request), "", "{request:?}");
    }
    let names = ["SCRIPT", "EXISTS", &sha1_of_reads.to_uppercase(), "unknown"];
    assert_eq!(ask(&mut world, &names), "*2\r\n:1\r\n:0\r\n");
}

#[test]
fn a_long_pipeline_does_not_starve_a_small_client() {
    let plan = Plan { reactors: 1, step_ns: 10_000, ..Plan::default() };
    let mut world = World::new(SEED, plan);
    let (greedy, small) = (connect_hasty(&mut world), connect_hasty(&mut world));
    world.settle();
    for _ in 0..5000 {
        world.send(greedy, get("text0"));
    }
    world.step(0);
    world.send(small, get("text0"));
    world.step(0);
    world.step(0);
    assert!(is_served(&mut world, small));
    assert!(!is_served(&mut world, greedy), "the pipeline was too short to prove anything");
    world.settle();
    world.check_served();
}

#[test]
fn a_full_lane_pauses_requests_and_loses_none() {
    let plan = Plan { reactors: 1, lane_bytes: 4096, ..Plan::default() };
    let mut world = World::new(SEED, plan);
    let clients = [world.connect(), connect_hasty(&mut world)];
    for number in 0..1000 {
        for client in clients {
            world.send(client, command(&["APPEND", "text0", &number.to_string()]));
        }
    }
    run_reactors(&mut world);
    world.receive_all();
    assert!(world.clients.iter().all(|client| client.waiting() > 500), "the lane was never full");
    world.settle();
    world.check_served();
}

#[test]
fn draining_answers_what_was_received() {
    let mut world = World::new(SEED, Plan::default());
    let clients = [world.connect(), world.connect(), connect_hasty(&mut world)];
    for client in clients {
        for number in 0..100 {
            world.send(client, command(&["APPEND", "text0", &number.to_string()]));
        }
    }
    run_reactors(&mut world);
    world.sim().drain();
    world.settle();
    assert!(world.sim().is_ended());
    assert!(world.clients.iter().all(|client| client.sim.is_closed() && client.is_served()));
    world.crash(true, DiskFaults::default());
}

#[test]
fn expiry_is_logged() {
    let mut world = World::new(SEED, Plan::default());
    let client = world.connect();
    world.send(client, command(&["SET", "text0", "x", "PX", "50"]));
    world.send(client, set("text1", "x"));
    world.settle();
    world.advance(1_000_000_000);
    world.settle();
    world.plan.options.push(("active-expire", "no".to_owned()));
    world.crash(true, DiskFaults::default());
    let now = world.sim().now().unix;
    let (databases, _) = world.shared().keyspace.stats(now);
    assert_eq!(databases[0].keys, 1, "recovery restored an expired key");
}

#[test]
fn a_read_that_removes_an_expired_key_does_not_wait_for_the_disk() {
    let options = vec![("active-expire", "no".to_owned())];
    let mut world = World::new(SEED, Plan { options, ..Plan::default() });
    let client = world.connect();
    world.send(client, command(&["SET", "text0", "x", "PX", "50"]));
    world.settle();
    world.advance(1_000_000_000);
    world.settle();
    for _ in 0..2 {
        world.send(client, get("text0"));
        run_reactors(&mut world);
        assert!(is_served(&mut world, client));
    }
    let now = world.sim().now().unix;
    assert_eq!(world.shared().keyspace.stats(now).0[0].keys, 0, "the read did not remove the key");
    world.settle();
    world.crash(true, DiskFaults::default());
    let now = world.sim().now().unix;
    assert_eq!(world.shared().keyspace.stats(now).0[0].keys, 0, "the removal is not in the log");
}

// As redis-server 7.0 replies.
#[test]
fn replies_stop_where_a_transaction_disables_them() {
    let mut world = pubsub_client::world_with(1, &[]);
    let client = pubsub_client::connect(&mut world, 0);
    let mut ask = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        pubsub_client::ask(&mut world, &client, &words)
    };
    for line in ["MULTI", "PING", "CLIENT REPLY OFF", "PING"] {
        ask(line);
    }
    assert_eq!(ask("EXEC"), "*3\r\n+PONG\r\n");
    assert_eq!(ask("PING"), "");
    assert_eq!(ask("CLIENT REPLY ON"), "+OK\r\n");
    for line in ["MULTI", "PING", "CLIENT REPLY SKIP", "PING"] {
        ask(line);
    }
    assert_eq!(ask("EXEC"), "*3\r\n+PONG\r\n+PONG\r\n");
    assert_eq!(ask("PING"), "");
    assert_eq!(ask("PING"), "+PONG\r\n");
}

#[test]
fn held_replies_move_with_their_connection() {
    let mut world = World::new(SEED, Plan::default());
    let (client, reader) = (world.connect(), world.connect());
    // The reactors' first turns have ended, and no tick is due: only the log can wake them.
    world.settle();
    world.send(client, set("text0", "x"));
    run_reactors(&mut world);
    let id = world.clients[client].sim.id();
    let from = world.sim().place_of(id).expect("the client is connected");
    assert!(world.migrate(client, 1 - from));
    run_reactors(&mut world);
    assert_eq!(world.sim().place_of(id), Some(1 - from));
    assert!(!is_served(&mut world, client));
    world.write_log();
    run_reactors(&mut world);
    assert!(
        is_served(&mut world, client),
        "the new reactor was not notified of the log's progress"
    );
    world.send(client, get("text0"));
    world.send(reader, get("text0"));
    world.settle();
    world.check_served();
}

#[test]
fn after_a_failed_sync_held_replies_stay_and_writes_are_refused() {
    let mut world = World::new(SEED, Plan::default());
    let (writer, late, hasty) = (world.connect(), world.connect(), connect_hasty(&mut world));
    world.send(writer, set("text0", "kept"));
    for client in [late, hasty] {
        world.send(client, command(&["MULTI"]));
        world.send(client, set("text1", "x"));
    }
    world.settle();
    world.disk.set_faults(DiskFaults { sync_error: 1.0, ..DiskFaults::default() });
    world.send(writer, set("text2", "lost"));
    world.settle();
    assert!(world.log_failed());
    assert!(world.clients[writer].sim.is_closed() && !world.clients[writer].is_served());
    for client in [late, hasty] {
        world.send(client, command(&["EXEC"]));
        world.send(client, set("text1", "x"));
        world.send(client, get("text0"));
        world.send(client, get("text1"));
    }
    world.settle();
    assert!(world.clients[late].is_served() && world.clients[hasty].is_served());
    world.crash(true, DiskFaults::default());
}

#[test]
fn the_same_seed_reproduces_the_run() {
    for seed in 0..20 {
        assert_eq!(super::chaos::run(seed, None), super::chaos::run(seed, None));
    }
}

/// Two reactors run CONFIG SET at the same time. A change acknowledged with OK takes effect and is
/// not undone.
#[test]
fn concurrent_changes_of_options_do_not_undo_each_other() {
    const CHANGES: u64 = 2000;
    let world = World::new(SEED, Plan::default());
    let shared = world.shared();
    let change = |name: &str, value: u64| {
        let value = value.to_string();
        change_options(shared, &[(name.as_bytes(), value.as_bytes())]).unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in 1..=CHANGES {
                change("slowlog-max-len", value);
                assert_eq!(shared.settings.load().slowlog_max_len as u64, value);
            }
        });
        for value in 1..=CHANGES {
            change("maxmemory", value);
            assert_eq!(shared.settings.load().maxmemory_bytes, value);
        }
    });
}

/// Memory above the limit is freed although no client writes: the limit was lowered. A write is
/// refused once nothing is left to evict.
#[test]
fn keys_are_evicted_without_a_write() {
    const KEYS: usize = 5000;
    const TICK_NS: u64 = 100_000_000;
    let mut world = World::new(SEED, Plan { reactors: 2, ..Plan::default() });
    let subscriber = world.sim().connect();
    subscriber.send(b"PSUBSCRIBE __keyevent@*__:evicted\r\n");
    world.ask(b"CONFIG SET maxmemory-policy allkeys-lru notify-keyspace-events Ee\r\n");
    for number in 0..KEYS {
        world.ask(format!("SET key{number} value\r\n").as_bytes());
    }
    assert_eq!(world.ask(b"CONFIG SET maxmemory 1\r\n"), b"+OK\r\n");
    world.advance(2 * TICK_NS);
    world.settle();
    assert_eq!(world.ask(b"DBSIZE\r\n"), b":0\r\n");
    let refusal: &[u8] = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    assert_eq!(world.ask(b"SET a b\r\n"), refusal);
    let messages = String::from_utf8_lossy(&subscriber.received()).into_owned();
    assert_eq!(messages.matches("pmessage").count(), KEYS);
    let is_evicted = |line: &str| line == format!("evicted_keys:{KEYS}");
    let stats = world.ask(b"INFO stats\r\n");
    assert!(String::from_utf8_lossy(&stats).lines().any(is_evicted));
}

/// INFO shows the snapshots of BGREWRITEAOF and of BGSAVE by the fields that tools wait for, and
/// one waits for the other.
#[test]
fn info_shows_what_a_snapshot_was_requested_for() {
    let mut world = World::new(SEED, Plan::default());
    world.ask(b"SET key value\r\n");
    let check = |world: &mut World, expected: [(&str, i64); 5]| {
        let info = String::from_utf8(world.ask(b"INFO persistence\r\n")).unwrap();
        for (name, value) in expected {
            let line = format!("{name}:{value}");
            assert!(info.lines().any(|it| it == line), "{line} is not in {info}");
        }
    };
    let fields = |[rewrites, rewrite, rewrite_next, rewrite_s, save]: [i64; 5]| {
        [
            ("aof_rewrites", rewrites),
            ("aof_rewrite_in_progress", rewrite),
            ("aof_rewrite_scheduled", rewrite_next),
            ("aof_current_rewrite_time_sec", rewrite_s),
            ("rdb_bgsave_in_progress", save),
        ]
    };
    let end = |world: &mut World| {
        world.take_snapshot_request();
        while world.go_on_with_snapshot(1000) != Progress::Idle {
            world.settle();
        }
    };
    check(&mut world, fields([0, 0, 0, -1, 0]));
    let rewrite: &[u8] = b"+Background append only file rewriting started\r\n";
    assert_eq!(world.ask(b"BGREWRITEAOF\r\n"), rewrite);
    check(&mut world, fields([0, 1, 0, 0, 0]));
    let refusal = world.ask(b"BGREWRITEAOF\r\nBGSAVE\r\nBGSAVE SCHEDULE\r\n");
    assert_eq!(
        String::from_utf8(refusal).unwrap(),
        "-ERR Background append only file rewriting already in progress\r\n\
         -ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE \
         in order to schedule a BGSAVE whenever possible.\r\n\
         +Background saving scheduled\r\n"
    );
    end(&mut world);
    check(&mut world, fields([1, 0, 0, -1, 0]));
    // The scheduled one starts with the next tick.
    world.advance(200_000_000);
    world.settle();
    check(&mut world, fields([1, 0, 0, -1, 1]));
    let scheduled: &[u8] = b"+Background append only file rewriting scheduled\r\n";
    assert_eq!(world.ask(b"BGREWRITEAOF\r\n"), scheduled);
    check(&mut world, fields([1, 0, 1, -1, 1]));
    end(&mut world);
    world.advance(200_000_000);
    world.settle();
    check(&mut world, fields([1, 1, 0, 0, 0]));
    end(&mut world);
    check(&mut world, fields([2, 0, 0, -1, 0]));
}
