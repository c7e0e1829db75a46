//! Several masters that follow each other, directly or by a hub: concurrent writes, lost links,
//! crashes and clocks that differ, from a seed. The links are those of the real server without
//! their sockets.

use binlog::Faults;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reactor::SimClient;
use wire::replication::{
    ARCHIVE_CAPABILITY, CAPABILITY, CHAIN_CAPABILITY, FRAME_BYTES, FrameReader, HEADER_BYTES,
    Header,
};
use wire::resp::decode_reply;

use super::cql_client::with_options;
use super::replication::{TABLE, ask, query, take_snapshot, turn};
use super::tests::{Announce, seeds};
use super::world::{Plan, World};
use crate::engine::hub::Peer;
use crate::engine::rdb_file::Scratch;
use crate::engine::replication::LinkState;
use crate::engine::transfer_thread::serve;
use crate::handler::State;
use crate::replica::Merger;

/// Seeds per `cargo test`.
const SEEDS: u64 = 40;
const ROUNDS: usize = 60;

pub(super) fn plan(server: u16, is_hub: bool) -> Plan {
    let server = server.to_string();
    let hub = if is_hub { "yes" } else { "no" };
    with_options(&[("enable-debug-command", "yes"), ("server-id", &server), ("hub", hub)])
}

pub(super) fn number(index: usize) -> u16 {
    u16::try_from(index + 1).unwrap()
}

/// Makes `to` a server that follows `from`.
pub(super) fn add_peer(world: &mut World, from: usize) {
    let server = number(from);
    assert_eq!(ask(world, &format!("HUB ADD {server} peer {}|", 1000 + server)), "+OK\r\n");
}

fn peer(world: &World, from: usize) -> Peer {
    world.shared().hub.peers().all()[&number(from)].clone()
}

/// A connection by which one server follows another.
struct Link<'s> {
    client: SimClient,
    merger: Merger<'s>,
    frames: FrameReader,
    bytes: Vec<u8>,
}

impl<'s> Link<'s> {
    fn open(source: &mut World, state: &'s State, (from, to): (usize, usize)) -> Link<'s> {
        let generation = state.shared.hub.peers().all()[&number(from)].generation;
        let mut merger = Merger::new(state, number(from), generation);
        let place = merger.request().map_or_else(
            || "? -1".to_owned(),
            |(id, position)| format!("{} {position}", String::from_utf8_lossy(&id)),
        );
        let client = source.sim().connect();
        let (own, other) = (number(to), number(from));
        let request = format!(
            "REPLCONF capa {CAPABILITY} capa {CHAIN_CAPABILITY} server-id {own} to-server-id {other}\r\n\
             PSYNC {place}\r\n"
        );
        client.send(request.as_bytes());
        turn(source);
        let frames = FrameReader::default();
        let mut link = Link { client, merger, frames, bytes: Vec::new() };
        link.receive(source);
        link.take_reply("+OK\r\n");
        link
    }

    /// Makes the source send a part.
    fn receive(&mut self, source: &mut World) {
        let now = source.sim().now();
        serve(source.shared(), now, &mut Scratch::default());
        turn(source);
        self.bytes.extend(self.client.received());
    }

    fn take_reply(&mut self, start: &str) {
        let (_, bytes) = decode_reply(&self.bytes).expect("a reply").expect("a whole one");
        let reply: Vec<u8> = self.bytes.drain(..bytes).collect();
        assert!(reply.starts_with(start.as_bytes()), "{}", String::from_utf8_lossy(&reply));
    }

    /// Merges one frame. False if none has arrived.
    fn merge_one(&mut self, receiver: &mut World) -> bool {
        if self.bytes.first() == Some(&b'+') {
            self.take_reply("+");
        }
        let Some(head) = self.bytes.first_chunk::<HEADER_BYTES>() else { return false };
        let header = Header::decode(head).unwrap();
        let end = HEADER_BYTES + header.payload_bytes;
        if self.bytes.len() < end {
            return false;
        }
        let payload: Vec<u8> = self.bytes[HEADER_BYTES..end].to_vec();
        self.bytes.drain(..end);
        let frame = self.frames.open(&header, &payload).unwrap();
        self.merger.note_received(&frame);
        self.merger.apply(receiver.sim().now(), &frame).expect("a valid stream");
        true
    }
}

/// Merges what a peer has written until the log of the receiver has no room for more. That log is
/// not written meanwhile.
pub(super) fn merge_until_full(source: &mut World, to: &mut World, ends: (usize, usize)) {
    let state = to.state().clone();
    let mut link = Link::open(source, &state, ends);
    for _ in 0..20_000 {
        link.receive(source);
        link.merge_one(to);
        if !link.merger.has_room() {
            return;
        }
    }
    panic!("the log has room for everything");
}

/// Runs a link for a number of frames, or until nothing more arrives. Returns whether any value
/// arrived.
pub(super) fn follow(
    source: &mut World,
    to: &mut World,
    ends: (usize, usize),
    frames: Option<usize>,
) -> bool {
    let before = peer(to, ends.0).received;
    let state = to.state().clone();
    let mut link = Link::open(source, &state, ends);
    let mut left = frames.unwrap_or(usize::MAX);
    let mut idle = 0;
    while left > 0 && idle < 3 {
        link.receive(source);
        if link.merge_one(to) {
            (left, idle) = (left - 1, 0);
        } else {
            idle += 1;
        }
        turn(to);
    }
    assert!(!link.client.is_ended(), "the stream continues");
    let is_whole = link.merger.link_state() == LinkState::Connected;
    assert!(is_whole || frames.is_some(), "the link does not catch up");
    link.client.close();
    turn(source);
    peer(to, ends.0).received > before
}

/// The servers, and the links between them: (source, receiver).
pub(super) struct Group {
    pub(super) worlds: Vec<World>,
    links: Vec<(usize, usize)>,
}

impl Group {
    /// `hub`: its place, if there is one.
    pub(super) fn new(seed: u64, links: &[(usize, usize)], hub: Option<usize>) -> Group {
        let count = links.iter().map(|(from, to)| from.max(to) + 1).max().unwrap();
        let new = |index| {
            let plan = plan(number(index), hub == Some(index));
            World::new(seed.wrapping_add(index as u64), plan)
        };
        let mut worlds: Vec<World> = (0..count).map(new).collect();
        for (from, to) in links {
            add_peer(&mut worlds[*to], *from);
        }
        Group { worlds, links: links.to_vec() }
    }

    fn pair(&mut self, (from, to): (usize, usize)) -> (&mut World, &mut World) {
        let [source, receiver] = self.worlds.get_disjoint_mut([from, to]).unwrap();
        (source, receiver)
    }

    pub(super) fn follow(&mut self, ends: (usize, usize), frames: Option<usize>) -> bool {
        let (source, receiver) = self.pair(ends);
        follow(source, receiver, ends, frames)
    }

    /// Lets all links run until no value is sent any more. Returns the number of rounds.
    pub(super) fn settle(&mut self) -> usize {
        for round in 0..20 {
            let links = self.links.clone();
            let sent = links.into_iter().map(|ends| self.follow(ends, None)).collect::<Vec<_>>();
            if !sent.contains(&true) {
                return round;
            }
        }
        panic!("values circulate");
    }

    fn check_equal(&mut self, what: &str) {
        let shown: Vec<String> = self.worlds.iter_mut().map(shown).collect();
        for (index, other) in shown.iter().enumerate() {
            assert!(shown[0] == *other, "{what}: 1 has {}, {} has {other}", shown[0], index + 1);
        }
    }
}

/// What clients see of the data.
pub(super) fn shown(world: &mut World) -> String {
    let mut shown = ask(world, "DEBUG DIGEST|DBSIZE|FUNCTION LIST|");
    for key in 0..6 {
        for kind in ["s", "l", "h", "z", "t", "x"] {
            shown += &ask(world, &format!("DUMP {kind}{key}|PEXPIRETIME {kind}{key}|"));
        }
        shown += &ask(world, &format!("TSRANGEBYTIME r{key} -1000000 1000000|"));
    }
    shown
}

fn change(world: &mut World, random: &mut SmallRng) {
    let (key, value) = (random.random_range(0..6), random.random_range(0..1000));
    let request = match random.random_range(0..17) {
        0 | 1 => format!("SET s{key} {value}|"),
        2 => format!("SET s{key} {value} PX {}|", random.random_range(1..90_000)),
        3 => format!("APPEND s{key} {value}|"),
        4 => format!("RPUSH l{key} {value} x|LPOP l{key}|"),
        5 => format!("HSET h{key} f{value} 1 g {value}|"),
        6 => format!("ZADD z{key} {value} m{value}|"),
        7 => format!("SADD t{key} {value}|SPOP t{key}|"),
        8 => format!("XADD x{key} * f {value}|"),
        9 => format!("MULTI|INCR s{key}|SET s1 {value}|DEL l{key}|EXEC|"),
        10 => format!("RENAME l{key} l{}|", random.random_range(0..6)),
        11 => format!("DEL s{key} l{key} h{key}|"),
        12 => format!("EXPIRE h{key} {}|", random.random_range(1..90)),
        13 => format!("SELECT 3|SET s{key} {value}|"),
        14 => format!("TSADD r{key} {value} v|"),
        15 if random.random_bool(0.3) => "FLUSHALL|".to_owned(),
        15 => "SELECT 3|FLUSHDB|".to_owned(),
        _ => format!("HPEXPIRE h{key} {} FIELDS 1 g|", random.random_range(1..90_000)),
    };
    ask(world, &request);
}

fn run(seed: u64, links: &[(usize, usize)], hub: Option<usize>) {
    let _announce = Announce(seed);
    let mut random = SmallRng::seed_from_u64(seed);
    let mut group = Group::new(seed, links, hub);
    let masters: Vec<usize> = (0..group.worlds.len()).filter(|at| hub != Some(*at)).collect();
    for world in &mut group.worlds {
        world.advance(random.random_range(0..5_000_000_000));
    }
    for round in 0..ROUNDS {
        let at = masters[random.random_range(0..masters.len())];
        let any = random.random_range(0..group.worlds.len());
        let ends = links[random.random_range(0..links.len())];
        match random.random_range(0..12) {
            0..=5 => (0..random.random_range(1..6))
                .for_each(|_| change(&mut group.worlds[at], &mut random)),
            6 | 7 => {
                group.follow(ends, Some(random.random_range(1..6)));
            }
            8 => take_snapshot(&mut group.worlds[any]),
            9 => {
                let loses_power = random.random_bool(0.5);
                group.worlds[any].die(loses_power, Faults::default());
            }
            10 => group.worlds[any].advance(random.random_range(0..3_000_000_000)),
            _ if random.random_bool(0.3) => {
                group.settle();
                wait_for_expiry(&mut group);
                group.check_equal(&format!("round {round}"));
            }
            _ => {}
        }
    }
    let rounds = group.settle();
    assert!(rounds <= 4, "every value reaches every server after two links: {rounds} rounds");
    wait_for_expiry(&mut group);
    group.check_equal("at the end");
}

/// Keys expire by the clock of each server: lets all that expire do so everywhere.
fn wait_for_expiry(group: &mut Group) {
    for world in &mut group.worlds {
        world.advance(200_000_000_000);
        turn(world);
    }
}

#[test]
fn two_masters_that_follow_each_other_become_equal() {
    seeds(SEEDS).for_each(|seed| run(seed, &[(0, 1), (1, 0)], None));
}

#[test]
fn masters_and_their_hub_become_equal() {
    seeds(SEEDS).for_each(|seed| run(seed, &[(0, 2), (1, 2), (2, 0), (2, 1)], Some(2)));
}

#[test]
fn the_later_write_wins_everywhere_and_none_returns_to_its_author() {
    let mut group = Group::new(5, &[(0, 2), (1, 2), (2, 0), (2, 1)], Some(2));
    ask(&mut group.worlds[0], "SET k old|SADD s a b|SET gone 1|");
    group.settle();
    let received = |group: &Group| [0, 1].map(|at| peer(&group.worlds[at], 2).received);
    let before = received(&group);
    ask(&mut group.worlds[1], "DEL gone|");
    ask(&mut group.worlds[0], "SET k first|");
    group.worlds[1].advance(1_000_000_000);
    ask(&mut group.worlds[1], "SET k second|");
    group.settle();
    for world in &mut group.worlds {
        assert_eq!(ask(world, "GET k|GET gone|SCARD s|"), "$6\r\nsecond\r\n$-1\r\n:2\r\n");
    }
    // The second value of `k` and the deletion went to the first master only.
    let after = received(&group);
    assert_eq!([after[0] - before[0], after[1] - before[1]], [2, 0]);
    let refused = "-READONLY You can't write against a hub: write to one of its masters.\r\n";
    assert_eq!(ask(&mut group.worlds[2], "SET k 1|"), refused);
    let swap = ask(&mut group.worlds[0], "SWAPDB 0 1|");
    assert_eq!(swap, "-ERR SWAPDB is not possible on a server with a server-id\r\n");
}

/// The logs have marks, and records that are not sent to their author.
#[test]
fn a_server_that_has_received_everything_has_no_lag_and_logs_nothing_more() {
    let mut group = Group::new(6, &[(0, 2), (1, 2), (2, 0), (2, 1)], Some(2));
    group.settle();
    for round in 0..3 {
        ask(&mut group.worlds[round % 2], "SET k v|DEL gone|");
        group.settle();
        let ends = |group: &Group| -> Vec<_> {
            group.worlds.iter().map(|world| world.shared().log.next()).collect()
        };
        let before = ends(&group);
        group.worlds.iter_mut().for_each(|world| world.advance(2_000_000_000));
        group.settle();
        assert_eq!(ends(&group), before, "idle servers log no positions");
        for (from, to) in group.links.clone() {
            let peer = peer(&group.worlds[to], from);
            let source = group.worlds[from].shared();
            let end = source.replication.position(&source.log);
            assert_eq!((peer.lag_bytes(), peer.position()), (0, end), "{to} follows {from}");
            assert!(peer.stored <= end);
        }
    }
    // What was not logged is received again after a restart.
    for at in 0..3 {
        group.worlds[at].die(true, Faults::default());
        group.settle();
        assert!(
            group.links.iter().all(|(from, to)| peer(&group.worlds[*to], *from).lag_bytes() == 0)
        );
    }
    group.check_equal("after restarts");
}

#[test]
fn a_replica_has_the_number_of_its_master() {
    let mut world = World::new(3, with_options(&[("server-id", "2")]));
    let refused = "-ERR this server has another server-id, 2\r\n";
    let psync = format!("REPLCONF capa {CAPABILITY}|PSYNC ? -1|");
    assert_eq!(ask(&mut world, &psync), format!("+OK\r\n{refused}"));
    assert_eq!(ask(&mut world, "REPLCONF to-server-id 3|"), refused);
    let psync = format!("REPLCONF capa {CAPABILITY} to-server-id 2|PSYNC ? -1|");
    assert_eq!(ask(&mut world, &psync), "+OK\r\n", "the stream begins later");
    let archive = format!("REPLCONF capa {CAPABILITY} capa {ARCHIVE_CAPABILITY}|PSYNC ? -1|");
    assert_eq!(ask(&mut world, &archive), "+OK\r\n");
    let mut world = World::new(4, with_options(&[]));
    assert_eq!(
        ask(&mut world, "REPLCONF to-server-id 3|"),
        "-ERR this server has another server-id, 0\r\n"
    );
}

/// As an operator of `pika_hub` would: a master that is down gets another address.
#[test]
fn a_hub_is_administrated_as_pika_hub() {
    let mut group = Group::new(31, &[(0, 1), (1, 0)], Some(1));
    ask(&mut group.worlds[0], "SET k v|");
    group.settle();
    let hub = &mut group.worlds[1];
    let Peer { place, generation, .. } = peer(hub, 0);
    assert!(place.is_some());
    for (request, expected) in [
        ("TRANSFER 1 other 78", "-ERR server_id 1 is online, could not transfer"),
        ("TRANSFER 9 other 78", "-ERR server_id 9 is not found in pika_servers"),
        ("TRANSFER x other 78", "-ERR invalid server-id: a number from 1 to 65535 is required"),
        ("TRANSFER 1 other 0", "-ERR Invalid master port"),
        // `INFO hub` has the host among other fields.
        ("HUB ADD 1 other,lag_bytes 78", "-ERR Invalid master host"),
        ("HUB ADD 1 lag_bytes=0 78", "-ERR Invalid master host"),
    ] {
        assert_eq!(ask(hub, &format!("{request}|")), format!("{expected}\r\n"));
    }
    hub.shared().hub.peers().get_mut(1, generation).unwrap().state = LinkState::Connecting;
    let moved = "+OK\r\n*1\r\n$15\r\n1 other 77 down\r\n";
    assert_eq!(ask(hub, "TRANSFER 1 other 77|HUB LIST|"), moved);
    assert_eq!(peer(hub, 0).place, place, "the place in its log stays");
    assert!(ask(hub, "COPY 1 3 host 79 password|").starts_with("-READONLY"));
    let master = &mut group.worlds[0];
    assert_eq!(ask(master, "COPY k other DB 1|"), ":1\r\n");
    ask(master, "REPLICAOF 127.0.0.1 1|");
    assert!(ask(master, "TRANSFER 2 other 78|").starts_with("-READONLY a replica follows"));
}

#[test]
fn a_server_that_lost_its_data_gets_back_what_it_wrote() {
    for (links, hub) in
        [(&[(0, 1), (1, 0)][..], None), (&[(0, 2), (1, 2), (2, 0), (2, 1)][..], Some(2))]
    {
        let mut group = Group::new(7, links, hub);
        ask(&mut group.worlds[0], "SET s1 mine|SADD t2 a b|SET gone 1|DEL gone|");
        ask(&mut group.worlds[1], "SET s3 other|");
        group.settle();
        group.worlds[0] = World::new(99, plan(number(0), false));
        add_peer(&mut group.worlds[0], hub.unwrap_or(1));
        group.settle();
        assert_eq!(ask(&mut group.worlds[0], "GET s1|SCARD t2|"), "$4\r\nmine\r\n:2\r\n");
        group.check_equal("afterwards");
    }
}

#[test]
fn a_replica_follows_no_peer() {
    let mut group = Group::new(8, &[(0, 1), (1, 0)], None);
    ask(&mut group.worlds[0], "REPLICAOF 127.0.0.1 1|");
    let refused = "-READONLY a replica follows no other server than its master\r\n";
    assert_eq!(ask(&mut group.worlds[0], "HUB ADD 9 host 1|HUB REMOVE 2|"), refused.repeat(2));
}

#[test]
fn rows_of_tables_are_merged_cell_by_cell() {
    let mut group = Group::new(6, &[(0, 2), (1, 2), (2, 0), (2, 1)], Some(2));
    let [one, other] = [0, 1];
    query(&mut group.worlds[one], &[TABLE, "CREATE TABLE ks.t (k int PRIMARY KEY, v int, w int)"]);
    group.settle();
    query(&mut group.worlds[one], &["INSERT INTO ks.t (k, v) VALUES (1, 10) USING TIMESTAMP 5"]);
    query(
        &mut group.worlds[other],
        &[
            "INSERT INTO ks.t (k, v) VALUES (1, 11) USING TIMESTAMP 5",
            "UPDATE ks.t USING TIMESTAMP 7 SET w = 3 WHERE k = 1",
            "DELETE FROM ks.t USING TIMESTAMP 9 WHERE k = 2",
        ],
    );
    query(&mut group.worlds[one], &["INSERT INTO ks.t (k, v) VALUES (2, 1) USING TIMESTAMP 8"]);
    group.settle();
    let rows = |world: &mut World| query(world, &["SELECT k, v, w FROM ks.t"]);
    let expected = rows(&mut group.worlds[0]);
    for world in &mut group.worlds {
        assert_eq!(rows(world), expected);
    }
    assert!(
        expected.contains("0000000b"),
        "of equal timestamps the greater value stays: {expected}"
    );
}

/// Conflicts that a server has counted, and the winner and loser of the latest one.
pub(super) fn conflicts(world: &mut World) -> (u64, Option<(u16, u16)>) {
    let hub = &world.shared().hub;
    let count = hub.peers().all().values().map(|peer| peer.conflicts).sum();
    (count, hub.conflicts().first().map(|latest| (latest.winner.server, latest.loser.server)))
}

#[test]
fn a_conflict_is_counted_if_neither_server_had_the_value_of_the_other() {
    let mut group = Group::new(11, &[(0, 1), (1, 0)], None);
    let found = |group: &mut Group| [0, 1].map(|at| conflicts(&mut group.worlds[at]));
    ask(&mut group.worlds[0], "SET k 1|SET only 1|");
    group.settle();
    // In turns: no conflict.
    for round in 0..6 {
        let at = round % 2;
        ask(&mut group.worlds[at], "APPEND k x|RPUSH l a|DEL only|SET only 2|");
        group.settle();
    }
    assert_eq!(found(&mut group), [(0, None); 2]);
    // Several writes of each, at the same time: one conflict for each server and key, also if a
    // link sends a value again. They are transactions, so that none is sent without the others.
    ask(&mut group.worlds[0], "MULTI|APPEND k one|APPEND k two|SET free 1|EXEC|");
    group.worlds[1].advance(60_000_000_000);
    ask(&mut group.worlds[1], "MULTI|APPEND k three|DEL l|APPEND k four|EXEC|");
    group.settle();
    group.check_equal("afterwards");
    let [first, second] = found(&mut group);
    assert_eq!([first, second], [(1, Some((2, 1))); 2]);
    // The loser writes after it has received the winner: no conflict.
    ask(&mut group.worlds[0], "APPEND k five|");
    ask(&mut group.worlds[1], "SET other 1|");
    group.settle();
    assert_eq!(found(&mut group), [first, second]);
    let shown = ask(&mut group.worlds[0], "HUB CONFLICTS|INFO hub|");
    assert!(
        shown.starts_with("*1\r\n*10\r\n$3\r\nkey\r\n$1\r\nk\r\n$8\r\ndatabase\r\n:0"),
        "{shown}"
    );
    assert!(shown.contains("hub_conflicts:1\r\n") && shown.contains(",conflicts=1\r\n"), "{shown}");
    let latest = shown.lines().find(|line| line.starts_with("hub_conflict0:")).unwrap();
    assert!(latest.starts_with("hub_conflict0:db=0,winner=2,winner_us="), "{latest}");
    assert!(latest.contains(",loser=1,loser_us=") && latest.ends_with(",key=\"k\""), "{latest}");
}

#[test]
fn a_bounded_number_of_conflicts_is_remembered() {
    let mut group = Group::new(12, &[(0, 1), (1, 0)], None);
    let name = "n".repeat(1000);
    for world in &mut group.worlds {
        for number in 0..40 {
            ask(world, &format!("SET {name}{number} v|"));
        }
    }
    group.settle();
    for world in &mut group.worlds {
        assert_eq!(conflicts(world).0, 40);
        let latest = world.shared().hub.conflicts();
        assert_eq!(latest.len(), crate::engine::hub::CONFLICTS_MAX);
        assert!(latest.iter().all(|conflict| conflict.name.len() == 256));
        assert_eq!(ask(world, "INFO hub|").matches("\r\nhub_conflict1").count(), 1 + 6);
    }
}

#[test]
fn rows_that_were_received_are_older_than_what_is_written_afterwards() {
    let mut group = Group::new(13, &[(0, 1), (1, 0)], None);
    group.worlds[0].advance(3_600_000_000_000);
    query(&mut group.worlds[0], &[TABLE, "CREATE TABLE ks.t (k int PRIMARY KEY, v int)"]);
    query(&mut group.worlds[0], &["INSERT INTO ks.t (k, v) VALUES (1, 10)"]);
    // An hour ahead, and chosen by a client: the clock of the other server does not follow it.
    query(
        &mut group.worlds[0],
        &["UPDATE ks.t USING TIMESTAMP 9000000000000000000 SET v = 5 WHERE k = 2"],
    );
    group.settle();
    query(&mut group.worlds[1], &["UPDATE ks.t SET v = 11 WHERE k = 1"]);
    group.settle();
    for world in &mut group.worlds {
        let row = query(world, &["SELECT v FROM ks.t WHERE k = 1"]);
        assert!(row.contains("0000000b"), "the later update: {row}");
        assert!(world.shared().write_clock.newest() < 9_000_000_000_000_000_000);
    }
}

/// One server drops a keyspace while another one creates a table in it, in both orders.
#[test]
fn a_dropped_keyspace_stays_dropped_on_all_and_none_fails_to_start() {
    for drops_first in [true, false] {
        let mut group = Group::new(14, &[(0, 1), (1, 0)], None);
        query(&mut group.worlds[0], &[TABLE]);
        group.settle();
        let (drop, create) = ("DROP KEYSPACE ks", "CREATE TABLE ks.t (k int PRIMARY KEY, v int)");
        let later = usize::from(drops_first);
        group.worlds[later].advance(5_000_000_000);
        query(&mut group.worlds[0], &[drop]);
        query(&mut group.worlds[1], &[create]);
        group.settle();
        group.check_equal("afterwards");
        for world in &mut group.worlds {
            world.die(true, Faults::default());
            assert!(world.shared().catalog.load().keyspace("ks").is_none());
        }
        let again = "CREATE TABLE ks.t (other int PRIMARY KEY)";
        let unconditional = TABLE.replace("IF NOT EXISTS ", "");
        query(&mut group.worlds[1], &[&unconditional, again]);
        group.settle();
        let versions = [0, 1].map(|at| {
            let world = &mut group.worlds[at];
            world.die(true, Faults::default());
            let catalog = world.shared().catalog.load_full();
            assert_eq!(catalog.table("ks", "t").unwrap().columns.len(), 1);
            assert!(catalog.unusable.is_empty());
            catalog.version
        });
        assert_eq!(versions[0], versions[1]);
    }
}

/// Two servers change one table or type before they have received each other's change. The name
/// of a column of `ks.t` afterwards; none: the table is not usable.
#[test]
fn changes_of_the_schema_at_once_make_one_schema_and_all_start() {
    for (one, other, expected) in [
        ("DROP TYPE ks.a", "ALTER TABLE ks.t ADD x frozen<ks.a>", None),
        ("DROP TABLE ks.t", "ALTER TABLE ks.t WITH comment = 'c'", None),
        ("ALTER TABLE ks.t ADD x int", "ALTER TABLE ks.t ADD y text", Some("x")),
        ("ALTER TABLE ks.t RENAME c TO x", "ALTER TABLE ks.t RENAME c TO y", Some("x")),
        ("ALTER TABLE ks.t DROP v", "CREATE INDEX ON ks.t (v)", Some("k")),
    ] {
        let mut group = Group::new(17, &[(0, 1), (1, 0)], None);
        let table = "CREATE TABLE ks.t (k int, c int, v int, PRIMARY KEY (k, c))";
        query(&mut group.worlds[0], &[TABLE, "CREATE TYPE ks.a (b int)", table]);
        group.settle();
        query(&mut group.worlds[0], &[one]);
        query(&mut group.worlds[1], &[other]);
        group.settle();
        group.check_equal(other);
        let versions = [0, 1].map(|at| {
            let world = &mut group.worlds[at];
            let before = world.shared().catalog.load().version;
            world.die(true, Faults::default());
            let catalog = world.shared().catalog.load_full();
            let table = catalog.table("ks", "t");
            assert_eq!(table.is_some(), expected.is_some(), "{one}; {other}");
            if let (Some(table), Some(column)) = (table, expected) {
                assert!(table.columns.iter().any(|found| found.name == column), "{one}; {other}");
            }
            assert_eq!(catalog.version, before, "the same schema as before the start");
            catalog.version
        });
        assert_eq!(versions[0], versions[1]);
    }
    let mut group = Group::new(18, &[(0, 1), (1, 0)], None);
    query(&mut group.worlds[0], &[TABLE]);
    group.settle();
    query(&mut group.worlds[0], &["CREATE TABLE ks.t (k int PRIMARY KEY, v int)"]);
    query(&mut group.worlds[1], &["CREATE TABLE ks.t (k int, l text, PRIMARY KEY (k, l))"]);
    group.settle();
    let columns = [0, 1].map(|at| {
        let catalog = group.worlds[at].shared().catalog.load_full();
        catalog.table("ks", "t").expect("one of the tables is usable").columns.len()
    });
    assert_eq!(columns, [2, 2]);
}

/// Another link loads the schema in the middle of a copy: a table may lack some of its rows, which
/// is reported as an error only if no copy is left.
#[test]
fn rows_of_a_schema_that_is_copied_may_lack_others() {
    let mut was_incomplete = false;
    for frames in 1..64 {
        let mut group = Group::new(20, &[(0, 2), (1, 2)], Some(2));
        query(&mut group.worlds[0], &[TABLE]);
        // Longer than a frame together, so that rows of a table are in several.
        let name = |number| format!("{}{number} int, ", "c".repeat(FRAME_BYTES / 256));
        let columns: String = (0..40).map(name).collect();
        for table in 0..3 {
            let create = format!("CREATE TABLE ks.t{table} ({columns} k int PRIMARY KEY)");
            query(&mut group.worlds[0], &[&create]);
        }
        let schema = |group: &mut Group| {
            let shared = group.worlds[2].shared();
            (!shared.catalog.load().unusable.is_empty(), shared.hub.is_copying())
        };
        group.follow((0, 2), Some(frames));
        group.follow((1, 2), None);
        let (is_unusable, is_copying) = schema(&mut group);
        assert!(is_copying || !is_unusable, "{frames} frames");
        was_incomplete |= is_unusable;
        group.follow((0, 2), None);
        assert_eq!(schema(&mut group), (false, false), "{frames} frames");
        if !is_copying {
            break;
        }
    }
    assert!(was_incomplete, "a copy was interrupted between rows of a table");
}

/// A table that lacks its type is usable again on the server that creates the type, at once.
#[test]
fn a_created_type_makes_the_table_usable_that_lacked_it() {
    let mut group = Group::new(19, &[(0, 1), (1, 0)], None);
    let table = "CREATE TABLE ks.t (k int PRIMARY KEY, v frozen<ks.a>)";
    query(&mut group.worlds[0], &[TABLE, "CREATE TYPE ks.a (b int)"]);
    group.settle();
    query(&mut group.worlds[0], &["DROP TYPE ks.a"]);
    query(&mut group.worlds[1], &[table, "INSERT INTO ks.t (k, v) VALUES (1, {b: 2})"]);
    group.settle();
    assert!(group.worlds[0].shared().catalog.load().table("ks", "t").is_none());
    query(&mut group.worlds[0], &["CREATE TYPE ks.a (b int)"]);
    for settled in [false, true] {
        if settled {
            group.settle();
        }
        let row = query(&mut group.worlds[0], &["SELECT v FROM ks.t WHERE k = 1"]);
        assert!(row.contains("00000002"), "the row is there: {row}");
    }
    let row = query(&mut group.worlds[1], &["SELECT v FROM ks.t WHERE k = 1"]);
    assert!(row.contains("00000002"), "the row is there: {row}");
}

#[test]
fn a_replica_forgets_when_its_databases_were_emptied() {
    let mut member = World::new(15, plan(1, false));
    ask(&mut member, "SET k 1|FLUSHALL|");
    assert_ne!(member.shared().keyspace.floor(0), store::Version::NONE);
    let mut master = World::new(16, with_options(&[]));
    ask(&mut master, "SET k 1|");
    super::replication::copy_from(&mut master, &mut member);
    assert_eq!(member.shared().keyspace.floor(0), store::Version::NONE);
    member.restart().unwrap();
    assert_eq!(member.shared().keyspace.floor(0), store::Version::NONE);
}
