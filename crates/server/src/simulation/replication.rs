//! Two servers, of which one replicates the other: crashes, lost links, snapshots and failovers,
//! from a seed. The link is that of the real server without its sockets.

use binlog::Faults;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reactor::{ConnId, SimClient};
use store::SnapshotBlock;
use wire::cql::Version;
use wire::replication::{
    CAPABILITY, CHAIN_CAPABILITY, Chain, Format, FrameReader, HEADER_BYTES, Header, Kind,
    MEMBERS_CAPABILITY, take_members,
};
use wire::resp::{Reply, decode_reply};

use super::cql_client::{Client, with_options};
use super::tests::{Announce, seeds};
use super::world::{Plan, World};
use crate::config::{Durability, MasterAddress, Settings};
use crate::engine::rdb_file::Scratch;
use crate::engine::replication::{Feed, Feeder, LinkState, Reader, Role};
use crate::engine::server_state::{ServerState, params};
use crate::engine::snapshot_taker::Progress;
use crate::engine::transfer_thread::serve;
use crate::handler::State;
use crate::replica::{Applied, StreamApplier as Applier, end_own_writes};

/// Seeds per `cargo test`.
const SEEDS: u64 = 60;
const ROUNDS: usize = 60;
pub(super) const TABLE: &str = "CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {'class': 'SimpleStrategy', \
                     'replication_factor': 1}";

/// What a replica announces for drivers of CQL: the same until it restarts.
fn cql(replica: &State) -> String {
    let number = replica.shared.keyspace.seed() % 0xffff;
    let place = number % 250 + 2;
    format!(
        "cql-host-id 0f4b2b8e-0000-4000-8000-{number:012x} cql-address 10.0.0.{place} cql-port 9042"
    )
}

/// The port that a replica announces: the same until it restarts.
pub(super) fn port(replica: &World) -> u16 {
    port_of(replica.state())
}

fn port_of(replica: &State) -> u16 {
    u16::try_from(replica.shared.keyspace.seed() % 60_000).unwrap() + 1
}

pub(super) fn plan() -> Plan {
    with_options(&[("enable-debug-command", "yes")])
}

/// A third of the seeds each.
pub(super) fn any_durability(seed: u64) -> Durability {
    [Durability::Always, Durability::Interval, Durability::Never][(seed % 3) as usize]
}

pub(super) fn turn(world: &mut World) {
    while world.write_log() | (0..world.plan.reactors).any(|reactor| world.step(reactor)) {}
}

pub(super) fn ask(world: &mut World, requests: &str) -> String {
    let replies = world.ask(requests.replace('|', "\r\n").as_bytes());
    String::from_utf8_lossy(&replies).into_owned()
}

pub(super) fn master(port: u16) -> MasterAddress {
    MasterAddress { host: "master".to_owned(), port }
}

/// A connection between a master and a replica.
struct Link<'s> {
    replica: &'s State,
    client: SimClient,
    applier: Applier<'s>,
    applied: Applied,
    frames: FrameReader,
    bytes: Vec<u8>,
    /// Pretends that the replica has logged something else.
    is_altered: bool,
    /// Number of lists of members that were received.
    lists: usize,
}

impl<'s> Link<'s> {
    /// `is_old`: the replica reads only streams of version 1.
    fn open(source: &mut World, replica: &'s State, must_copy: bool, is_old: bool) -> Link<'s> {
        let generation = replica.shared.replication.link().generation;
        end_own_writes(&replica.shared).unwrap();
        let mut applier = Applier::new(replica, generation);
        let request = applier.request().filter(|_| !must_copy);
        let client = source.sim().connect();
        let place = request.map_or_else(
            || "? -1".to_owned(),
            |(id, position)| format!("{} {position}", String::from_utf8_lossy(&id)),
        );
        let chained = if is_old { String::new() } else { format!(" capa {CHAIN_CAPABILITY}") };
        let capabilities = format!("capa {CAPABILITY} capa {MEMBERS_CAPABILITY}{chained}");
        let announced = format!("listening-port {} {}", port_of(replica), cql(replica));
        let request = format!("REPLCONF {capabilities} {announced}\r\nPSYNC {place}\r\n");
        client.send(request.as_bytes());
        turn(source);
        let (applied, frames) = (Applied::default(), FrameReader::default());
        let (bytes, is_altered, lists) = (Vec::new(), false, 0);
        let mut link = Link { replica, client, applier, applied, frames, bytes, is_altered, lists };
        link.receive(source);
        assert_eq!(link.take_reply(), Some(Reply::Simple(b"OK".to_vec())));
        link
    }

    /// Makes the master send a part.
    fn receive(&mut self, source: &mut World) {
        let now = source.sim().now();
        serve(source.shared(), now, &mut Scratch::default());
        turn(source);
        self.bytes.extend(self.client.received());
    }

    fn take_reply(&mut self) -> Option<Reply> {
        let (reply, bytes) = decode_reply(&self.bytes).expect("a reply")?;
        self.bytes.drain(..bytes);
        Some(reply)
    }

    /// Applies up to `count` of the frames that have arrived. False: the stream must begin again
    /// with a copy.
    fn apply(&mut self, count: usize, now: base::time::Now) -> bool {
        if self.bytes.first() == Some(&b'+') {
            let reply = self.take_reply();
            assert!(matches!(reply, Some(Reply::Simple(_))), "{reply:?}");
        }
        let is_refused = self.bytes.first() == Some(&b'-');
        assert!(!is_refused, "{}", String::from_utf8_lossy(&self.bytes));
        for _ in 0..count {
            let Some(head) = self.bytes.first_chunk::<HEADER_BYTES>() else { return true };
            let header = Header::decode(head).unwrap();
            let end = HEADER_BYTES + header.payload_bytes;
            if self.bytes.len() < end {
                return true;
            }
            let payload: Vec<u8> = self.bytes[HEADER_BYTES..end].to_vec();
            self.bytes.drain(..end);
            let mut frame = self.frames.open(&header, &payload).unwrap();
            if self.is_altered {
                frame.chain = Chain(!frame.chain.0);
            }
            if header.kind == Kind::Members {
                self.lists += 1;
                let list = take_members(frame.contents).unwrap();
                let generation = self.replica.shared.replication.link().generation;
                let members = &self.replica.shared.replication.members;
                members.receive(generation, list, [10, 0, 0, 1].into());
                continue;
            }
            match self.applier.apply(now, &frame) {
                Ok(applied) => {
                    self.applied = applied;
                    self.replica.shared.replication.link().state = self.applier.link_state();
                }
                Err(_) => return false,
            }
        }
        true
    }

    /// Brings what has been applied to the replica's disk, and acknowledges it.
    fn acknowledge(&self, source: &mut World, replica: &mut World) {
        let Applied { position, log: end } = self.applied;
        replica.shared().log.request_sync(end);
        turn(replica);
        assert!(replica.shared().log.durable() >= end);
        if let Some(position) = position {
            self.client.send(format!("REPLCONF ACK {position}\r\n").as_bytes());
            turn(source);
        }
    }
}

/// Runs a link for a while, or until the replica has everything. Returns its connection, which is
/// still open.
pub(super) fn follow(
    source: &mut World,
    replica: &mut World,
    must_copy: &mut bool,
    frames: Option<usize>,
) -> SimClient {
    const ATTEMPTS_MAX: usize = 20;
    for _ in 0..ATTEMPTS_MAX {
        if let Some(link) = follow_once(source, replica, *must_copy, frames) {
            *must_copy = false;
            return link;
        }
        *must_copy = true;
    }
    panic!("the replica cannot apply the stream of its master");
}

/// `None`: the stream must begin again with a copy.
fn follow_once(
    source: &mut World,
    replica: &mut World,
    must_copy: bool,
    frames: Option<usize>,
) -> Option<SimClient> {
    let state = replica.state().clone();
    // Some links are those of an older version.
    let is_old = state.shared.replication.position(&state.shared.log).is_multiple_of(3);
    let mut link = Link::open(source, &state, must_copy, is_old);
    let mut left = frames.unwrap_or(usize::MAX);
    let mut before = 0;
    for _ in 0..20_000 {
        link.receive(source);
        let count = left.min(7);
        if !link.apply(count, replica.sim().now()) {
            link.client.close();
            return None;
        }
        left -= count;
        turn(replica);
        link.acknowledge(source, replica);
        let at = state.shared.replication.position(&state.shared.log);
        let end = source.shared().replication.position(&source.shared().log);
        let is_whole = link.applier.link_state() == LinkState::Connected && at == end;
        if left == 0 || (is_whole && frames.is_none()) {
            return Some(link.client);
        }
        if at == before && source.plan.durability != Durability::Always {
            // A copy, and an epoch, wait for a sync of the master.
            source.advance(100_000_000);
            replica.advance(100_000_000);
        }
        before = at;
    }
    panic!("the replica does not reach its master");
}

/// Applies what the master has written until the log of the replica has no room for more. That log
/// is not written meanwhile.
pub(super) fn apply_until_full(source: &mut World, replica: &mut World, must_copy: bool) {
    let state = replica.state().clone();
    let mut link = Link::open(source, &state, must_copy, false);
    for _ in 0..20_000 {
        link.receive(source);
        assert!(link.apply(1, replica.sim().now()));
        if !link.applier.has_room() {
            return;
        }
    }
    panic!("the log has room for everything");
}

/// Makes a server a replica by a copy.
pub(super) fn copy_from(source: &mut World, replica: &mut World) {
    replica.shared().replication.set_source(master(1));
    follow(source, replica, &mut true, None);
}

fn change(world: &mut World, random: &mut SmallRng) {
    let (key, value) = (random.random_range(0..12), random.random_range(0..1000));
    let request = match random.random_range(0..18) {
        0 | 1 => format!("SET s{key} {value}|"),
        2 => format!("SET s{key} {value} EX {}|", random.random_range(1..300)),
        3 => format!("APPEND s{key} {value}|"),
        4 => format!("RPUSH l{key} {value} x|LPOP l{key}|"),
        5 => format!("HSET h{key} f{value} 1 g {value}|"),
        6 => format!("ZADD z{key} {value} m{value}|"),
        7 => format!("SADD t{key} {value}|SPOP t{key}|"),
        8 => format!("XADD x{key} * f {value}|"),
        9 => format!("MULTI|INCR n1|INCR n2|INCR n{key}|EXEC|"),
        10 => format!("RENAME l{key} l{}|", random.random_range(0..12)),
        11 => format!("DEL s{key} l{key} h{key}|"),
        12 => format!("EXPIRE h{key} {}|", random.random_range(1..300)),
        13 => format!("SELECT 3|SET s{key} {value}|"),
        14 => format!("TSADD r{key} {value} v|"),
        15 if random.random_bool(0.2) => "FLUSHDB|".to_owned(),
        15 | 16 if random.random_bool(0.2) => "SWAPDB 0 3|".to_owned(),
        16 => format!("CREATEDB d{key}|"),
        _ => format!(
            "FUNCTION LOAD REPLACE \"#!lua name=lib{key}\\nredis.register_function('f{key}', \
             function() return {value} end)\"|"
        ),
    };
    ask(world, &request);
}

pub(super) fn take_snapshot(world: &mut World) {
    world.begin_snapshot();
    while world.go_on_with_snapshot(1000) != Progress::Idle {
        world.write_log();
    }
}

/// What clients see of the data.
fn shown(world: &mut World) -> String {
    let mut shown = ask(world, "DEBUG DIGEST|FUNCTION LIST|LISTDB|GET n1|GET n2|");
    for key in 0..12 {
        shown += &ask(world, &format!("TSRANGEBYTIME r{key} -1000000 1000000|PEXPIRETIME h{key}|"));
    }
    shown
}

fn check_equal(source: &mut World, replica: &mut World, what: &str) {
    let (expected, found) = (shown(source), shown(replica));
    assert!(expected == found, "{what}: the master has {expected}, the replica {found}");
}

/// Returns the number of replicated writes that were acknowledged, or more.
fn run(seed: u64) -> u64 {
    let _announce = Announce(seed);
    let mut random = SmallRng::seed_from_u64(seed);
    let durability = any_durability(seed);
    let mut worlds = [seed, !seed].map(|seed| World::new(seed, Plan { durability, ..plan() }));
    let (mut source, mut must_copy, mut generation) = (0, false, 1);
    worlds[1].shared().replication.set_source(master(generation));
    let mut confirmed = Confirmed::default();
    let mut connection = Connection::default();
    for round in 0..ROUNDS {
        let [first, second] = &mut worlds;
        let (one, other) = if source == 0 { (first, second) } else { (second, first) };
        match random.random_range(0..12) {
            0..=3 => (0..random.random_range(1..9)).for_each(|_| change(one, &mut random)),
            4 => confirmed.write(one),
            5 | 6 => {
                let frames = Some(random.random_range(1..900));
                connection.replace(follow(one, other, &mut must_copy, frames));
            }
            7 => {
                connection.replace(follow(one, other, &mut must_copy, None));
                check_equal(one, other, &format!("round {round}"));
                assert!(ask(other, "SET s1 v|").starts_with("-READONLY"));
            }
            8 => take_snapshot(if random.random_bool(0.5) { one } else { other }),
            9 => {
                confirmed.collect();
                one.die(random.random_bool(0.5), Faults::default());
            }
            10 => {
                other.die(random.random_bool(0.5), Faults::default());
                generation += 1;
                other.shared().replication.set_source(master(generation));
            }
            _ => {
                let seconds = random.random_range(1..60);
                for world in &mut worlds {
                    world.advance(seconds * 1_000_000_000);
                }
            }
        }
        if random.random_bool(0.08) {
            let [first, second] = &mut worlds;
            let (old, new) = if source == 0 { (first, second) } else { (second, first) };
            confirmed.collect();
            fail_over(old, new, &mut random, &mut generation);
            confirmed.check(new);
            source = 1 - source;
            must_copy = false;
        }
    }
    let [first, second] = &mut worlds;
    let (one, other) = if source == 0 { (first, second) } else { (second, first) };
    follow(one, other, &mut must_copy, None);
    check_equal(one, other, "at the end");
    confirmed.collect();
    confirmed.check(other);
    confirmed.acknowledged
}

/// The connection of the replica. It stays open while nothing is sent, so that writes at the
/// durability `replicated` wait for the replica, until the next one is open: a source serves a
/// bounded number.
#[derive(Debug, Default)]
struct Connection(Option<SimClient>);

impl Connection {
    fn replace(&mut self, next: SimClient) {
        if let Some(earlier) = self.0.replace(next) {
            earlier.close();
        }
    }
}

/// Writes at the durability `replicated`.
#[derive(Debug, Default)]
struct Confirmed {
    /// Each connection with the value of its write.
    waiting: Vec<(SimClient, u64)>,
    last: u64,
    /// The highest value that was acknowledged.
    acknowledged: u64,
}

impl Confirmed {
    fn write(&mut self, world: &mut World) {
        self.last += 1;
        let client = world.sim().connect();
        let request =
            format!("SELECT 5\r\nCLIENT DURABILITY replicated\r\nSET confirmed {}\r\n", self.last);
        client.send(request.as_bytes());
        turn(world);
        self.waiting.push((client, self.last));
    }

    fn collect(&mut self) {
        for (client, value) in self.waiting.drain(..) {
            if client.received().ends_with(b"+OK\r\n+OK\r\n+OK\r\n") {
                self.acknowledged = self.acknowledged.max(value);
            }
        }
    }

    /// Checks that a new master has what the old one has acknowledged, or a later write.
    fn check(&self, world: &mut World) {
        let reply = ask(world, "SELECT 5|GET confirmed|");
        let value = reply.split("\r\n").nth(2).and_then(|text| text.parse().ok()).unwrap_or(0);
        assert!(value >= self.acknowledged, "{value} is older than {}", self.acknowledged);
    }
}

#[test]
fn replies_of_replicated_writes_wait_for_the_disk_of_a_replica() {
    let mut source = World::new(7, plan());
    let mut replica = World::new(8, plan());
    replica.shared().replication.set_source(master(1));
    let state = replica.state().clone();
    let client = source.sim().connect();
    let reader = source.sim().connect();
    let send = |client: &SimClient, source: &mut World, text: &str| {
        client.send(text.replace('|', "\r\n").as_bytes());
        turn(source);
        String::from_utf8(client.received()).unwrap()
    };
    let refused = "-NOREPLICAS Not enough good replicas to write.\r\n";
    let choose = "CLIENT DURABILITY replicated|";
    assert_eq!(
        send(&client, &mut source, &format!("{choose}SET s1 1|")),
        format!("+OK\r\n{refused}")
    );

    let mut link = Link::open(&mut source, &state, false, false);
    let go_on = |link: &mut Link<'_>, source: &mut World, replica: &mut World| {
        while {
            link.receive(source);
            !link.bytes.is_empty()
        } {
            assert!(link.apply(usize::MAX, replica.sim().now()));
            turn(replica);
        }
    };
    go_on(&mut link, &mut source, &mut replica);
    link.acknowledge(&mut source, &mut replica);
    assert_eq!(send(&client, &mut source, "GET s1|"), "$-1\r\n");
    assert_eq!(send(&client, &mut source, "SET s1 2|GET s2|"), "", "the next reply waits, too");
    assert_eq!(send(&reader, &mut source, "GET s1|"), "$1\r\n2\r\n", "it is on the local disk");
    assert_eq!(send(&reader, &mut source, &format!("{choose}|GET s1|")), "+OK\r\n");
    let waiter = source.sim().connect();
    assert_eq!(send(&waiter, &mut source, "SET s3 1|WAIT 0 0|WAIT 1 0|"), "+OK\r\n:0\r\n");
    let other = source.sim().connect();
    assert_eq!(send(&other, &mut source, "SET s4 1|WAITAOF 1 1 0|"), "+OK\r\n");
    go_on(&mut link, &mut source, &mut replica);
    assert_eq!(client.received(), b"", "the replica has not acknowledged it");
    // What was applied over an earlier connection may not be on the disk either.
    link = Link::open(&mut source, &state, false, false);
    go_on(&mut link, &mut source, &mut replica);
    assert_eq!(link.applied.log, replica.shared().log.next());
    assert_eq!(client.received(), b"", "the position of a request does not acknowledge it");
    link.acknowledge(&mut source, &mut replica);
    assert_eq!(client.received(), b"+OK\r\n$-1\r\n");
    assert_eq!(reader.received(), b"$1\r\n2\r\n");
    assert_eq!(waiter.received(), b":1\r\n");
    assert_eq!(other.received(), b"*2\r\n:1\r\n:1\r\n");
    assert_eq!(send(&other, &mut source, "SET s4 2|WAIT 2 1|"), "+OK\r\n");
    source.advance(2_000_000);
    turn(&mut source);
    assert_eq!(other.received(), b":0\r\n", "the timeout has elapsed");

    assert_eq!(send(&client, &mut source, "SET s1 3|"), "");
    drop(link);
    turn(&mut source);
    assert!(!client.is_ended());
    for _ in 0..100 {
        source.advance(1_000_000_000);
        turn(&mut source);
    }
    assert!(client.is_ended(), "its write was not confirmed");
    assert_eq!(send(&reader, &mut source, "SET s1 4|GET s1|"), format!("{refused}$1\r\n3\r\n"));
}

/// Makes the replica the master, and the master its replica, which may have records of its own.
fn fail_over(old: &mut World, new: &mut World, random: &mut SmallRng, generation: &mut u16) {
    let is_whole = new.shared().replication.role() == Role::Replica;
    if !is_whole || new.shared().replication.history().is_empty() {
        return fail_over_of_incomplete(old, new, generation);
    }
    let before = shown(new);
    assert_eq!(ask(new, "REPLICAOF NO ONE|"), "+OK\r\n");
    assert_eq!(shown(new), before, "a promotion changes no data");
    (0..random.random_range(0..4)).for_each(|_| change(old, random));
    (0..random.random_range(0..4)).for_each(|_| change(new, random));
    *generation += 1;
    old.shared().replication.set_source(master(*generation));
}

/// A replica without a complete copy cannot be promoted; exchange the roles by a new copy.
fn fail_over_of_incomplete(old: &mut World, new: &mut World, generation: &mut u16) {
    let mut must_copy = true;
    follow(old, new, &mut must_copy, None);
    assert_eq!(ask(new, "REPLICAOF NO ONE|"), "+OK\r\n");
    *generation += 1;
    old.shared().replication.set_source(master(*generation));
}

#[test]
fn a_replica_has_the_data_of_its_master_whatever_happens() {
    let acknowledged: u64 = seeds(SEEDS).map(run).sum();
    assert!(acknowledged > 0, "replicated writes are acknowledged");
}

/// Runs statements. Returns the response of the last one.
pub(super) fn query(world: &mut World, statements: &[&str]) -> String {
    let mut client = Client::start(world, Version::V4, None);
    let mut last = String::new();
    for statement in statements {
        client.query(1, statement);
        let mut replies = client.ask(world);
        while world.write_log() {
            replies.extend(client.ask(world));
        }
        assert_eq!(replies.len(), 1, "{statement}: {replies:?}");
        last = replies.remove(0);
        assert!(!last.contains("ERROR"), "{statement}: {last}");
    }
    client.sim.close();
    last
}

#[test]
fn tables_schema_and_roles_are_replicated() {
    let mut source = World::new(1, with_options(&[]));
    let mut replica = World::new(2, with_options(&[]));
    replica.shared().replication.set_source(master(1));
    let mut must_copy = false;
    query(&mut source, &[TABLE, "CREATE TABLE ks.t (k int PRIMARY KEY, v text)"]);
    query(&mut source, &["INSERT INTO ks.t (k, v) VALUES (1, 'one')"]);
    follow(&mut source, &mut replica, &mut must_copy, None);
    let rows = |world: &mut World| query(world, &["SELECT v FROM ks.t WHERE k = 1"]);
    assert_eq!(rows(&mut replica), rows(&mut source));
    query(&mut source, &["ALTER TABLE ks.t ADD w int", "UPDATE ks.t SET w = 5 WHERE k = 1"]);
    follow(&mut source, &mut replica, &mut must_copy, None);
    let rows = |world: &mut World| query(world, &["SELECT w FROM ks.t WHERE k = 1"]);
    assert_eq!(rows(&mut replica), rows(&mut source));
}

/// Writes a value, fails over to a replica whose clock is an hour slower, and writes another one.
fn write_across_a_failover(must_copy: bool) {
    let mut source = World::new(5, with_options(&[]));
    let mut replica = World::new(6, with_options(&[]));
    source.advance(3_600_000_000_000);
    replica.shared().replication.set_source(master(1));
    query(&mut source, &[TABLE, "CREATE TABLE ks.t (k int PRIMARY KEY, v text, l list<int>)"]);
    let mut copies = false;
    if !must_copy {
        follow(&mut source, &mut replica, &mut copies, None);
    }
    query(&mut source, &["UPDATE ks.t SET v = 'one', l = l + [1] WHERE k = 1"]);
    follow(&mut source, &mut replica, &mut copies, None);
    assert_eq!(ask(&mut replica, "REPLICAOF NO ONE|"), "+OK\r\n");
    let read = "SELECT v, l FROM ks.t WHERE k = 1";
    let found = query(&mut replica, &["UPDATE ks.t SET v = 'two', l = l + [2] WHERE k = 1", read]);
    let expected =
        query(&mut source, &["UPDATE ks.t SET v = 'two', l = l + [2] WHERE k = 1", read]);
    assert_eq!(found, expected, "must_copy: {must_copy}");
}

#[test]
fn a_new_master_with_a_slower_clock_replaces_values_of_the_old_one() {
    write_across_a_failover(false);
    write_across_a_failover(true);
}

#[test]
fn reads_of_an_incomplete_copy_are_refused_also_after_a_crash() {
    let mut source = World::new(3, Plan::default());
    let mut replica = World::new(4, Plan::default());
    ask(&mut source, "SET s1 v|");
    replica.shared().replication.set_source(master(1));
    let mut must_copy = false;
    follow(&mut source, &mut replica, &mut must_copy, Some(3));
    for reason in [
        "The data is being copied from the master; it is incomplete.",
        "The copy of a master's data was interrupted, and this server has no master: send \
         REPLICAOF host port, or restart it with an empty directory.",
    ] {
        assert!(ask(&mut replica, "GET s1|").starts_with("-LOADING"));
        assert!(
            ask(&mut replica, "REPLICAOF NO ONE|").starts_with("-ERR the copy of the master's")
        );
        assert_eq!(ask(&mut replica, "PING|"), format!("-LOADING {reason}\r\n"));
        replica.die(true, Faults::default());
    }
    replica.shared().replication.set_source(master(1));
    follow(&mut source, &mut replica, &mut must_copy, None);
    assert_eq!(ask(&mut replica, "GET s1|"), "$1\r\nv\r\n");
}

#[test]
fn a_replica_that_diverged_serves_no_data_until_it_has_copied_it() {
    let mut source = World::new(5, Plan::default());
    let mut replica = World::new(6, Plan::default());
    ask(&mut source, "SET s1 v|");
    copy_from(&mut source, &mut replica);
    assert_eq!(ask(&mut replica, "GET s1|"), "$1\r\nv\r\n");
    ask(&mut source, "SET s1 w|");
    let state = replica.state().clone();
    let mut link = Link::open(&mut source, &state, false, false);
    link.is_altered = true;
    link.receive(&mut source);
    assert!(!link.apply(usize::MAX, replica.sim().now()), "the stream ends");
    drop(link);
    turn(&mut replica);
    assert!(ask(&mut replica, "GET s1|").starts_with("-LOADING"));
    replica.restart().unwrap();
    assert!(ask(&mut replica, "GET s1|").starts_with("-LOADING"), "also after a restart");
    replica.shared().replication.set_source(master(1));
    follow(&mut source, &mut replica, &mut false, None);
    assert_eq!(ask(&mut replica, "GET s1|"), "$1\r\nw\r\n");
}

/// The effect of `replica-serve-stale-data`.
#[test]
fn a_replica_without_its_master_refuses_requests_for_data_if_it_is_to() {
    let stale = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
    let mut source = World::new(5, plan());
    let mut replica = World::new(6, plan());
    ask(&mut source, "SET s1 v|");
    copy_from(&mut source, &mut replica);
    replica.shared().replication.link().state = LinkState::Connecting;
    let read = "GET s1|EVAL 'return 1' 0|";
    assert_eq!(ask(&mut replica, read), "$1\r\nv\r\n:1\r\n");
    ask(&mut replica, "CONFIG SET replica-serve-stale-data no|");
    assert_eq!(ask(&mut replica, read), format!("-{stale}\r\n").repeat(2));
    assert!(ask(&mut replica, "INFO replication|").contains("master_link_status:down"));
    let mut client = Client::start(&mut replica, Version::V4, None);
    client.query(1, "SELECT key FROM system.local");
    let reply = client.ask(&mut replica).remove(0);
    assert!(reply.contains(stale), "{reply}");
    client.sim.close();
    replica.shared().replication.link().state = LinkState::Connected;
    assert_eq!(ask(&mut replica, read), "$1\r\nv\r\n:1\r\n");
    ask(&mut source, "CONFIG SET replica-serve-stale-data no|");
    assert_eq!(ask(&mut source, read), "$1\r\nv\r\n:1\r\n", "a master has no master");
}

/// The effect of `repl-backlog-size`.
#[test]
fn a_replica_continues_from_the_backlog_that_a_snapshot_leaves() {
    for (backlog, has_copied) in [("1", true), ("1mb", false)] {
        let options = vec![("repl-backlog-size", backlog.to_owned())];
        let plan = Plan { segment_bytes: 32 * 1024, options, ..Plan::default() };
        let mut source = World::new(5, plan);
        let mut replica = World::new(6, Plan::default());
        ask(&mut source, "SET s1 v|");
        replica.shared().replication.set_source(master(1));
        follow(&mut source, &mut replica, &mut true, None).close();
        turn(&mut source);
        let before = replica.shared().replication.data_number();
        for _ in 0..20 {
            ask(&mut source, &format!("SET s2 {}|", "x".repeat(10_000)));
        }
        take_snapshot(&mut source);
        replica.shared().replication.set_source(master(2));
        follow(&mut source, &mut replica, &mut false, None);
        assert_eq!(ask(&mut replica, "STRLEN s2|"), ":10000\r\n");
        let after = replica.shared().replication.data_number();
        assert_eq!(after != before, has_copied, "{backlog}");
    }
}

/// The effect of `min-replicas-max-lag`.
#[test]
fn a_replica_that_is_silent_for_too_long_is_not_available() {
    for (lag, expected) in [("3", "-NOREPLICAS"), ("10", "+OK"), ("0", "+OK")] {
        let options = [("min-replicas-to-write", "1"), ("min-replicas-max-lag", lag)];
        let mut source = World::new(7, with_options(&options));
        let mut replica = World::new(8, plan());
        replica.shared().replication.set_source(master(1));
        let state = replica.state().clone();
        let mut link = Link::open(&mut source, &state, false, false);
        while {
            link.receive(&mut source);
            !link.bytes.is_empty()
        } {
            assert!(link.apply(usize::MAX, replica.sim().now()));
            turn(&mut replica);
        }
        link.acknowledge(&mut source, &mut replica);
        assert_eq!(ask(&mut source, "SET s1 v|"), "+OK\r\n");
        for _ in 0..5 {
            source.advance(1_000_000_000);
            turn(&mut source);
        }
        let reply = ask(&mut source, "SET s1 w|");
        assert!(reply.starts_with(expected), "{lag}: {reply}");
    }
}

#[test]
fn a_client_that_waits_on_a_replica_receives_what_its_master_adds() {
    let mut source = World::new(7, Plan::default());
    let mut replica = World::new(8, Plan::default());
    ask(&mut source, "XADD x 1-0 f v|");
    copy_from(&mut source, &mut replica);
    let client = replica.sim().connect();
    client.send(b"XREAD BLOCK 0 STREAMS x $\r\n");
    turn(&mut replica);
    assert!(client.received().is_empty());
    ask(&mut source, "XADD x 2-0 f w|");
    follow(&mut source, &mut replica, &mut false, None);
    turn(&mut replica);
    let received = String::from_utf8_lossy(&client.received()).into_owned();
    assert!(received.contains("2-0") && !received.contains("READONLY"), "{received}");
}

#[test]
fn lists_of_members_are_not_part_of_the_data() {
    let mut source = World::new(5, plan());
    let mut replica = World::new(6, plan());
    ask(&mut source, "SET s1 v|");
    copy_from(&mut source, &mut replica);
    let state = replica.state().clone();
    for is_old in [true, false] {
        let mut link = Link::open(&mut source, &state, false, is_old);
        for value in 0..20 {
            source.advance(1_000_000_000);
            turn(&mut source);
            ask(&mut source, &format!("SET s1 {value}|"));
            link.receive(&mut source);
            assert!(link.apply(usize::MAX, replica.sim().now()));
            turn(&mut replica);
            link.acknowledge(&mut source, &mut replica);
        }
        assert!(link.lists > 0, "is_old: {is_old}");
        check_equal(&mut source, &mut replica, "after the lists");
    }
}

/// A server that follows a replica receives what the replica has, marks of the master's log
/// included, and continues there after restarts.
#[test]
fn a_replica_of_a_replica_reaches_the_position_of_an_idle_master() {
    let mut worlds = [1, 2, 3].map(|seed| World::new(seed, plan()));
    let [source, middle, last] = &mut worlds;
    copy_from(source, middle);
    last.shared().replication.set_source(master(2));
    follow(middle, last, &mut true, None);
    for round in 0..4 {
        let kept = last.state().clone();
        ask(source, "SET s1 v|");
        let state = middle.state().clone();
        let mut link = Link::open(source, &state, false, false);
        for _ in 0..3 {
            source.advance(1_000_000_000);
            link.receive(source);
            assert!(link.apply(usize::MAX, middle.sim().now()));
            link.acknowledge(source, middle);
        }
        drop(link);
        let position = middle.shared().replication.position(&middle.shared().log);
        assert_eq!(position, source.shared().replication.position(&source.shared().log));
        if round % 2 == 1 {
            middle.die(false, Faults::default());
            middle.shared().replication.set_source(master(1));
            assert_eq!(middle.shared().replication.position(&middle.shared().log), position);
        }
        // Some of the time it has read the master itself.
        if round > 1 {
            follow(source, last, &mut false, None);
        }
        let mut link = Link::open(middle, &kept, false, false);
        link.receive(middle);
        assert!(link.apply(1, last.sim().now()) && !link.applier.is_copying(), "round {round}");
        drop(link);
        follow(middle, last, &mut false, None);
        assert_eq!(kept.shared.replication.position(&kept.shared.log), position);
        check_equal(middle, last, &format!("round {round}"));
    }
}

#[test]
fn servers_that_are_to_be_replicas_of_each_other_keep_their_data() {
    let mut worlds = [1, 2].map(|seed| World::new(seed, plan()));
    for world in &mut worlds {
        let number = world.shared().keyspace.seed();
        ask(world, &format!("SET s1 {number}|"));
        world.shared().replication.set_source(master(1));
    }
    let states = worlds.each_ref().map(|world| world.state().clone());
    for (source, state) in worlds.iter_mut().zip(states.iter().rev()) {
        let mut link = Link::open(source, state, true, false);
        link.receive(source);
        let refusal = b"NOMASTERLINK Can't SYNC while not connected with my master".to_vec();
        assert_eq!(link.take_reply(), Some(Reply::Error(refusal)));
        assert!(link.client.is_closed());
    }
    let [one, two] = &mut worlds;
    assert_eq!(ask(one, "REPLICAOF NO ONE|"), "+OK\r\n");
    let expected = ask(one, "GET s1|");
    follow(one, two, &mut true, None);
    assert_eq!(ask(two, "GET s1|"), expected);
}

/// A server with more data than one part of a copy.
fn filled() -> World {
    let mut world = World::new(3, plan());
    for key in 0..30 {
        ask(&mut world, &format!("SET s{key} {}|", "v".repeat(60_000)));
    }
    world
}

/// Makes a server give up its data for that of a new master.
fn give_up(world: &mut World) {
    let mut other = World::new(4, plan());
    ask(&mut other, "SET s1 v|");
    let state = world.state().clone();
    state.shared.replication.set_source(master(4));
    let mut link = Link::open(&mut other, &state, true, false);
    link.receive(&mut other);
    assert!(link.apply(1, world.sim().now()), "it begins a copy");
    assert_eq!(state.shared.replication.role(), Role::Copying);
}

#[test]
fn a_file_of_data_that_the_server_gives_up_has_no_mark() {
    for gives_up in [false, true] {
        let mut source = filled();
        let client = source.sim().connect();
        client.send(b"REPLCONF rdb-only 1 capa eof\r\nSYNC\r\n");
        let mut received = Vec::new();
        for turns in 0..20 {
            turn(&mut source);
            let now = source.sim().now();
            serve(source.shared(), now, &mut Scratch::default());
            received.extend(client.received());
            if turns == 1 && gives_up {
                assert!(!client.is_closed() && received.len() < 1_000_000, "{}", received.len());
                give_up(&mut source);
            }
        }
        assert!(client.is_closed());
        let at = received.windows(5).position(|bytes| bytes == b"$EOF:").expect("a header");
        let mark = received[at + 5..at + 45].to_vec();
        assert_eq!(received.ends_with(&mark), !gives_up);
    }
}

/// The thread that makes the stream may be in the middle of a part when the data is given up.
#[test]
fn a_copy_of_data_that_its_source_gives_up_has_no_end() {
    let mut source = filled();
    // Gives the stream an epoch.
    copy_from(&mut source, &mut World::new(5, plan()));
    let state = source.state().clone();
    let ServerState { keyspace, log, replication, write_clock, hub, settings, .. } = &*state.shared;
    let now = source.sim().now();
    let params = &params(&settings.load(), now.unix, keyspace.seed(), 0);
    let (now, rules) = (now.mono, Settings::default().replica_rules());
    let disk = &*state.shared.snapshots.disk;
    let feed = Feed { keyspace, log, disk, replication, write_clock, hub, params, now, rules };
    let mut feeder = Feeder::new(ConnId(1), None, Reader::Replica, Format::Chained, false, false);
    let mut block = SnapshotBlock { stripe: 0, lsn: 0, keys: 0, bytes: Vec::new() };
    let mut part = || feeder.next_part(&feed, &mut block, false, || ()).expect("a part");
    assert!(!part().is_last);
    give_up(&mut source);
    // What was encoded with the first part.
    let next = Some(part()).filter(|part| part.is_last);
    let end = next.unwrap_or_else(part);
    assert!(end.is_last && end.bytes.is_empty(), "{} bytes", end.bytes.len());
}

/// The replica has become the master already: an error would report a refusal.
#[test]
fn a_stream_that_hands_over_ends_without_an_error() {
    let mut source = World::new(5, plan());
    source.shared().replication.set_source(master(1));
    let state = source.state().clone();
    let ServerState { keyspace, log, replication, write_clock, hub, settings, .. } = &*state.shared;
    let now = source.sim().now();
    let params = &params(&settings.load(), now.unix, keyspace.seed(), 0);
    let (now, rules) = (now.mono, Settings::default().replica_rules());
    let disk = &*state.shared.snapshots.disk;
    let feed = Feed { keyspace, log, disk, replication, write_clock, hub, params, now, rules };
    let mut block = SnapshotBlock { stripe: 0, lsn: 0, keys: 0, bytes: Vec::new() };
    for (hands_over, expected) in [
        (false, &b"-NOMASTERLINK Can't SYNC while not connected with my master\r\n"[..]),
        (true, b""),
    ] {
        let (reader, format) = (Reader::Replica, Format::Chained);
        let mut feeder = Feeder::new(ConnId(1), None, reader, format, false, hands_over);
        let part = feeder.next_part(&feed, &mut block, false, || ()).expect("a part");
        assert!(part.is_last);
        assert_eq!(part.bytes, expected);
    }
}

#[test]
fn a_lost_frame_ends_the_stream_before_anything_is_applied() {
    let mut source = World::new(5, Plan::default());
    let mut replica = World::new(6, Plan::default());
    replica.shared().replication.set_source(master(1));
    ask(&mut source, "SET s1 v|");
    follow(&mut source, &mut replica, &mut true, None);
    let state = replica.state().clone();
    let mut link = Link::open(&mut source, &state, false, false);
    assert!(link.apply(1, replica.sim().now()), "the stream continues");
    let mut frames = Vec::new();
    for value in ["a", "b"] {
        ask(&mut source, &format!("SET s1 {value}|"));
        for _ in 0..10 {
            link.receive(&mut source);
        }
        frames.push(std::mem::take(&mut link.bytes));
    }
    let (head, payload) = frames[1].split_first_chunk().unwrap();
    let header = Header::decode(head).unwrap();
    let payload = &payload[..header.payload_bytes];
    let error = link.frames.open(&header, payload).unwrap_err().to_string();
    assert!(error.starts_with("the stream is not the one that was sent"), "{error}");
}

/// Without a sync on either side.
#[test]
fn a_replica_shows_unsynced_writes_and_what_a_power_cut_undoes_is_set_aside() {
    for durability in [Durability::Interval, Durability::Never] {
        let [mut source, mut replica] =
            [5, 6].map(|seed| World::new(seed, Plan { durability, ..plan() }));
        ask(&mut source, "SET s1 v|");
        copy_from(&mut source, &mut replica);
        let state = replica.state().clone();
        let mut link = Link::open(&mut source, &state, false, false);
        // The interval has elapsed, so the next write is synced.
        source.advance(2_000_000_000);
        ask(&mut source, "SET s1 v|");
        link.receive(&mut source);
        assert!(link.apply(usize::MAX, replica.sim().now()));
        link.acknowledge(&mut source, &mut replica);
        let durable = source.shared().log.durable();
        for value in 0..300 {
            assert_eq!(ask(&mut source, &format!("SET s1 {value}|")), "+OK\r\n");
            link.receive(&mut source);
            assert!(link.apply(usize::MAX, replica.sim().now()));
            let offset = |world: &mut World| info_offset(world, "master_repl_offset");
            assert_eq!(offset(&mut source), offset(&mut replica));
            let expected = ask(&mut source, "GET s1|");
            assert_eq!(ask(&mut replica, "GET s1|"), expected, "{durability:?}: stale");
        }
        assert_eq!(source.shared().log.durable(), durable, "{durability:?}: a sync");
        // WAIT needs the disk of the replica only.
        let waiter = source.sim().connect();
        waiter.send(b"SET s2 v\r\nWAIT 1 1000\r\n");
        turn(&mut source);
        link.receive(&mut source);
        assert!(link.apply(usize::MAX, replica.sim().now()));
        link.acknowledge(&mut source, &mut replica);
        assert_eq!(waiter.received(), b"+OK\r\n:1\r\n");
        assert_eq!(source.shared().log.durable(), durable, "{durability:?}: a sync");
        drop(link);

        let before = source.shared().replication.epochs().0;
        let position = replica.shared().replication.published();
        source.die(true, Faults::default());
        assert_ne!(ask(&mut source, "GET s1|"), ask(&mut replica, "GET s1|"));
        // As many records as the replica has beyond it, and more, also in two runs.
        for value in 0..400 {
            ask(&mut source, &format!("SET s1 other{value}|"));
            if value == 200 {
                source.die(false, Faults::default());
            }
        }
        let copies = replica.shared().replication.data_number();
        follow(&mut source, &mut replica, &mut false, None);
        let after = source.shared().replication.epochs();
        assert!(after.0 != before && after.1 == before, "it has begun an epoch");
        assert!(after.0.unwrap().start < position, "where the log had ended");
        assert_eq!(replica.shared().replication.data_number(), copies + 1);
        check_equal(&mut source, &mut replica, "after the power cut");
    }
}

fn info_offset(world: &mut World, field: &str) -> u64 {
    let info = ask(world, "INFO replication|");
    let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap().trim_end().parse().unwrap()
}
