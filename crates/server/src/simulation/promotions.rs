//! Three servers, of which any becomes the master, by REPLICAOF NO ONE, a restart or FAILOVER, at any
//! moment: no write that was acknowledged at the durability `replicated` is lost.

use binlog::Faults;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reactor::SimClient;

use super::replication::{any_durability, ask, follow, master, plan, port, turn};
use super::tests::{Announce, seeds};
use super::world::{Plan, World};
use crate::config::{Durability, MasterAddress};
use crate::engine::mail::{Fence, Mail};
use crate::engine::replication::{LinkState, Role, epoch_id};
use crate::engine::role_change::{begin_request, store_replaced};
use crate::replica::{abort, complete, end_promotion, hand_over, next_step};

/// Seeds per `cargo test`.
const SEEDS: u64 = 24;
const ROUNDS: usize = 80;
const SERVERS: usize = 3;
const REFUSED: &str = "-NOREPLICAS Not enough good replicas to write.\r\n";

/// The servers, and what clients know of them.
struct Cluster {
    random: SmallRng,
    worlds: Vec<World>,
    /// The server that each one follows.
    follows: [Option<usize>; SERVERS],
    /// The connections of replicas.
    links: [Option<SimClient>; SERVERS],
    must_copy: [bool; SERVERS],
    /// The connections of writers, and their values.
    writers: Vec<(SimClient, u64)>,
    written: u64,
    acknowledged: Vec<u64>,
    /// Acknowledged at a server that had been replaced, and refused there.
    refused: usize,
}

impl Cluster {
    fn start(seed: u64, durability: Durability) -> Cluster {
        let world = |number| World::new(seed ^ (number << 40), Plan { durability, ..plan() });
        let mut cluster = Cluster {
            random: SmallRng::seed_from_u64(seed),
            worlds: (0..SERVERS as u64).map(world).collect(),
            follows: [None; SERVERS],
            links: [const { None }; SERVERS],
            must_copy: [false; SERVERS],
            writers: Vec::new(),
            written: 0,
            acknowledged: Vec::new(),
            refused: 0,
        };
        for replica in 1..SERVERS {
            cluster.reconfigure(replica, 0);
            cluster.follow(replica, None);
        }
        cluster
    }

    fn role(&self, server: usize) -> Role {
        self.worlds[server].shared().replication.role()
    }

    /// How often each server has copied all data.
    fn copies(&self) -> [u64; SERVERS] {
        std::array::from_fn(|server| self.worlds[server].shared().replication.data_number())
    }

    fn masters(&self) -> Vec<usize> {
        (0..SERVERS).filter(|server| self.follows[*server].is_none()).collect()
    }

    /// REPLICAOF another server.
    fn reconfigure(&mut self, server: usize, source: usize) {
        self.end_link(server);
        let address = master(u16::try_from(source).unwrap() + 1);
        self.worlds[server].shared().replication.set_source(address);
        self.end_mastership(server);
        self.follows[server] = Some(source);
    }

    /// As the thread of the link does.
    fn end_mastership(&mut self, server: usize) {
        let world = &mut self.worlds[server];
        let was_master = std::mem::take(&mut world.shared().replication.link().was_master);
        for mailbox in world.shared().links().mailboxes().iter().filter(|_| was_master) {
            mailbox.send(Mail::Demoted).unwrap();
        }
        turn(world);
    }

    fn end_link(&mut self, server: usize) {
        if let Some(link) = self.links[server].take() {
            link.close();
            (0..SERVERS).for_each(|other| turn(&mut self.worlds[other]));
        }
        self.worlds[server].shared().replication.link().state = LinkState::Connecting;
    }

    /// Runs the link of a replica for a while. `None`: until it has everything.
    fn follow(&mut self, server: usize, frames: Option<usize>) {
        let Some(source) = self.follows[server] else { return };
        let source_has_data = self.role(source) != Role::Copying;
        // Of two servers that follow each other, or a chain without a master, none has news.
        if !source_has_data || self.follows[source].is_some() {
            return;
        }
        let [source, replica] = self.worlds.get_disjoint_mut([source, server]).unwrap();
        let link = follow(source, replica, &mut self.must_copy[server], frames);
        complete(replica.shared());
        turn(replica);
        // The address of the real link, so that a promotion asks the master first.
        replica.shared().replication.link().peer = Some(([10, 0, 0, 1], 1).into());
        if let Some(earlier) = self.links[server].replace(link) {
            earlier.close();
            turn(source);
        }
    }

    fn write(&mut self, server: usize) {
        self.written += 1;
        let world = &mut self.worlds[server];
        let client = world.sim().connect();
        let value = self.written;
        client.send(format!("CLIENT DURABILITY replicated\r\nSADD set {value}\r\n").as_bytes());
        turn(world);
        self.writers.push((client, value));
    }

    fn collect(&mut self) {
        for (client, value) in &self.writers {
            let reply = client.received();
            if reply.ends_with(b":1\r\n") {
                self.acknowledged.push(*value);
            }
            self.refused += usize::from(reply.ends_with(REFUSED.as_bytes()));
        }
    }

    /// Kills a server and starts it again with the configuration that it had.
    fn kill(&mut self, server: usize) {
        self.collect();
        self.writers.clear();
        for replica in 0..SERVERS {
            if replica == server || self.follows[replica] == Some(server) {
                self.end_link(replica);
            }
        }
        let power_cut = self.random.random_bool(0.5);
        self.worlds[server].die(power_cut, Faults::default());
        if let Some(source) = self.follows[server] {
            self.reconfigure(server, source);
        }
    }

    /// A replica notifies a master that it replaces it, and is answered.
    fn notify(&mut self, server: usize, old: usize) -> Option<u64> {
        let epochs = self.worlds[server].shared().replication.history().epochs().to_vec();
        // The last epoch that both know, as the newest one before the promotion is.
        let known = self.worlds[old].shared().replication.history().clone();
        let common = epochs.iter().rev().find(|epoch| known.epochs().contains(epoch))?;
        let id = String::from_utf8_lossy(&common.id).into_owned();
        let reply = ask(&mut self.worlds[old], &format!("REPLCONF replaced-epoch {id}|"));
        // As the thread of promotions does.
        store_replaced(self.worlds[old].shared()).unwrap();
        reply.trim_end().strip_prefix(':')?.parse().ok()
    }

    /// REPLICAOF NO ONE, while clients write and other replicas confirm.
    fn promote(&mut self, server: usize) {
        // A replica of a replica cannot notify the master.
        let Some(old) = self.follows[server].filter(|old| self.follows[*old].is_none()) else {
            return;
        };
        let is_linked = self.worlds[server].shared().replication.link().peer.is_some();
        if self.role(server) != Role::Replica || self.must_copy[server] || !is_linked {
            return;
        }
        let client = self.worlds[server].sim().connect();
        client.send(b"REPLICAOF NO ONE\r\n");
        turn(&mut self.worlds[server]);
        let state = self.worlds[server].state().clone();
        let replication = &state.shared.replication;
        assert_eq!(client.received(), b"", "the reply waits for the master");
        self.act_meanwhile(old, server);
        let confirmed = self.notify(server, old).expect("its master");
        let now = self.worlds[server].sim().now();
        replication.note_confirmed(confirmed, now.mono);
        self.act_meanwhile(old, server);
        if !replication.is_promotion_due(&replication.promotion().unwrap(), now.mono) {
            assert!(replication.published() < confirmed);
            self.follow(server, None);
        }
        assert!(replication.is_promotion_due(&replication.promotion().unwrap(), now.mono));
        let id = epoch_id(|| self.random.random());
        end_promotion(&state.shared, now, id);
        turn(&mut self.worlds[server]);
        assert_eq!(client.received(), b"+OK\r\n");
        assert_eq!(self.role(server), Role::Master);
        self.follows[server] = None;
        self.end_link(server);
        self.must_copy[server] = false;
    }

    /// What other servers do while a replica is being promoted.
    fn act_meanwhile(&mut self, old: usize, promoted: usize) {
        for _ in 0..self.random.random_range(0..6) {
            if self.random.random_bool(0.5) {
                self.write(old);
                continue;
            }
            let other = (0..SERVERS).find(|server| ![old, promoted].contains(server)).unwrap();
            if self.follows[other] == Some(old) {
                let frames = self.random.random_range(1..9);
                self.follow(other, Some(frames));
            }
        }
    }

    /// FAILOVER, with other events between its steps.
    fn fail_over(&mut self, old: usize) {
        let mut request = "FAILOVER|".to_owned();
        let replicas = self.worlds[old].shared().replication.replicas().list();
        if !replicas.is_empty() && self.random.random_bool(0.5) {
            let place = replicas[self.random.random_range(0..replicas.len())].place();
            request = format!("FAILOVER TO {} {}|", place.host, place.port);
        }
        if ask(&mut self.worlds[old], &request) != "+OK\r\n" {
            return;
        }
        let Some(address) = self.wait_for_target(old) else { return };
        let is_target = |server: &usize| port(&self.worlds[*server]) == address.port;
        let target = (0..SERVERS).find(is_target).expect("a replica");
        assert_eq!(self.follows[target], Some(old));
        hand_over(self.worlds[old].shared(), address);
        self.end_mastership(old);
        self.follows[old] = Some(target);
        self.request_promotion(old, target);
    }

    /// Ends writes, and waits until a replica has all. `None`: the failover has ended.
    fn wait_for_target(&mut self, old: usize) -> Option<MasterAddress> {
        const STEPS: usize = 40;
        let state = self.worlds[old].state().clone();
        let (shared, replication) = (&state.shared, &state.shared.replication);
        replication.refuse_writes();
        let fence = Fence::new(shared.links().mailboxes().len());
        for mailbox in shared.links().mailboxes() {
            mailbox.send(Mail::Fence(fence.clone())).unwrap();
        }
        turn(&mut self.worlds[old]);
        assert!(fence.is_passed());
        let position = replication.note_own_position(&shared.log);
        shared.log.request_sync(shared.log.next());
        turn(&mut self.worlds[old]);
        for step in 1.. {
            self.act_between(old);
            // A restart ends it.
            let failover = self.worlds[old].shared().replication.failover().clone()?;
            match next_step(shared, &failover, position, step == STEPS) {
                None => {}
                Some(Ok(target)) => return Some(target),
                Some(Err(reason)) => {
                    abort(shared, &reason);
                    store_replaced(shared).unwrap();
                    turn(&mut self.worlds[old]);
                    return None;
                }
            }
        }
        unreachable!("the last step is late")
    }

    /// What may happen while a failover waits.
    fn act_between(&mut self, old: usize) {
        let server = self.random.random_range(0..SERVERS);
        match self.random.random_range(0..40) {
            0..=9 => self.write(old),
            10..=35 if server != old => {
                let frames = self.random.random_range(1..9);
                self.follow(server, Some(frames));
            }
            36 => drop(ask(&mut self.worlds[old], "FAILOVER ABORT|")),
            37 if server != old => self.promote(server),
            38 => self.kill(server),
            _ => {}
        }
    }

    /// Requests the promotion until it has succeeded, while servers restart and replies are lost.
    fn request_promotion(&mut self, old: usize, target: usize) {
        let mut is_promoted = false;
        while !is_promoted || self.random.random_bool(0.5) {
            match self.random.random_range(0..8) {
                0 => self.write(old),
                1 => self.write(target),
                2 => {
                    // With the configuration of a replica.
                    self.follows[target] = Some(old);
                    self.kill(target);
                    is_promoted = false;
                }
                3 => {
                    // With the configuration of a master.
                    self.follows[old] = None;
                    self.kill(old);
                    break;
                }
                _ => {
                    is_promoted = self.ask_for_promotion(old, target);
                    assert!(is_promoted);
                }
            }
        }
        if self.role(target) == Role::Master {
            self.follows[target] = None;
            self.end_link(target);
            self.must_copy[target] = false;
        }
    }

    /// The old master asks for the promotion together with the stream.
    fn ask_for_promotion(&mut self, old: usize, target: usize) -> bool {
        let request = {
            let shared = self.worlds[old].shared();
            begin_request(shared).unwrap();
            let end = shared.replication.end(&shared.log);
            let epoch = shared.replication.epochs().0.unwrap().id;
            let epoch = String::from_utf8_lossy(&epoch).into_owned();
            format!("REPLCONF capa myriad-stream-1|PSYNC {epoch} {end} FAILOVER|")
        };
        let world = &mut self.worlds[target];
        let client = world.sim().connect();
        client.send(request.replace('|', "\r\n").as_bytes());
        turn(world);
        let reply = String::from_utf8_lossy(&client.received()).into_owned();
        client.close();
        turn(world);
        assert!(reply.starts_with("+OK\r\n") && !reply.contains('-'), "{reply}");
        self.role(target) == Role::Master
    }

    /// Any event.
    fn act(&mut self) {
        let server = self.random.random_range(0..SERVERS);
        let masters = self.masters();
        match self.random.random_range(0..20) {
            0..=6 => {
                let at = masters[self.random.random_range(0..masters.len())];
                self.write(at);
            }
            7..=13 => {
                let frames = self.random.random_range(1..30);
                self.follow(server, Some(frames));
            }
            14 | 15 if masters.len() == 1 => self.promote(server),
            16 => self.kill(server),
            17 if masters.len() == 1 => self.fail_over(masters[0]),
            17 => {}
            _ => self.settle_roles(),
        }
    }

    /// Makes all servers follow the one that was promoted last, as Sentinel does.
    fn settle_roles(&mut self) {
        let start = |server: &usize| {
            let epoch = self.worlds[*server].shared().replication.epochs().0;
            epoch.map_or(0, |epoch| epoch.start)
        };
        let is_replaced =
            |server: &usize| self.worlds[*server].shared().replication.replicas().is_fenced();
        let masters = self.masters();
        let of_all = masters.iter().copied().max_by_key(start).expect("a master");
        let newest = masters.iter().copied().filter(|server| !is_replaced(server));
        let newest = newest.max_by_key(start).unwrap_or(of_all);
        if is_replaced(&newest) {
            // It restarted while it handed over, and its replica is not promoted.
            assert_eq!(ask(&mut self.worlds[newest], "REPLICAOF NO ONE|"), "+OK\r\n");
        }
        for server in (0..SERVERS).filter(|server| *server != newest) {
            if self.follows[server] != Some(newest) {
                self.reconfigure(server, newest);
            }
        }
    }

    /// Returns the number of acknowledged and of refused writes.
    fn end(&mut self) -> (usize, usize) {
        self.settle_roles();
        self.collect();
        let [newest] = self.masters()[..] else { panic!("one master") };
        for server in 0..SERVERS {
            self.follow(server, None);
        }
        let members = ask(&mut self.worlds[newest], "SMEMBERS set|");
        let lines: Vec<&str> = members.split("\r\n").collect();
        for value in &self.acknowledged {
            assert!(lines.contains(&value.to_string().as_str()), "{value} is lost: {members}");
        }
        let digest = ask(&mut self.worlds[newest], "DEBUG DIGEST|");
        for world in &mut self.worlds {
            assert_eq!(ask(world, "DEBUG DIGEST|"), digest);
        }
        (self.acknowledged.len(), self.refused)
    }
}

fn run(seed: u64) -> (usize, usize) {
    let _announce = Announce(seed);
    let mut cluster = Cluster::start(seed, any_durability(seed));
    for _ in 0..ROUNDS {
        cluster.act();
    }
    cluster.end()
}

#[test]
fn no_write_confirmed_by_replicas_is_lost_by_promotions() {
    let (acknowledged, refused) =
        seeds(SEEDS).map(run).fold((0, 0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
    if seeds(SEEDS) == (0..SEEDS) {
        assert!(acknowledged as u64 > SEEDS, "{acknowledged}");
        assert!(refused > 0, "a replaced master refuses writes");
    }
}

/// A master whose replica was promoted, with another replica that still follows it.
fn replaced(durability: Durability) -> Cluster {
    let mut cluster = Cluster::start(7, durability);
    cluster.promote(1);
    cluster.follow(2, None);
    cluster
}

fn info(world: &mut World, field: &str) -> String {
    let info = ask(world, "INFO replication|");
    let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_default().to_owned()
}

/// With `interval` each run begins an epoch when the other replica connects.
#[test]
fn a_replaced_master_confirms_nothing_until_an_operator_decides() {
    let request =
        "CLIENT DURABILITY replicated|SET k 1|WAIT 1 10|CLIENT DURABILITY always|SET k 2|";
    for durability in [Durability::Always, Durability::Interval] {
        let mut cluster = replaced(durability);
        for run in 0..3 {
            if run > 0 {
                cluster.kill(0);
                cluster.follow(2, None);
            }
            let old = &mut cluster.worlds[0];
            assert_eq!(info(old, "master_replaced"), "1", "{durability:?}, run {run}");
            assert_eq!(info(old, "connected_slaves"), "1");
            assert_eq!(ask(old, request), format!("+OK\r\n{REFUSED}:1\r\n+OK\r\n+OK\r\n"));
            let waiter = old.sim().connect();
            waiter.send(b"SET k 3\r\nWAIT 1 10\r\n");
            turn(old);
            cluster.follow(2, None);
            let old = &mut cluster.worlds[0];
            old.advance(20_000_000);
            turn(old);
            assert_eq!(waiter.received(), b"+OK\r\n:0\r\n", "the replica has the write");
            let failover = ask(old, "FAILOVER|");
            assert!(failover.contains("another server has replaced this master"), "{failover}");
        }
        assert_eq!(info(&mut cluster.worlds[1], "master_replaced"), "0");
        assert_eq!(ask(&mut cluster.worlds[0], "REPLICAOF NO ONE|"), "+OK\r\n");
        store_replaced(cluster.worlds[0].shared()).unwrap();
        cluster.kill(0);
        assert_eq!(info(&mut cluster.worlds[0], "master_replaced"), "0");
        cluster.follow(2, None);
        cluster.write(0);
        cluster.follow(2, None);
        cluster.collect();
        assert_eq!(cluster.acknowledged.len(), 1);
    }
}

#[test]
fn a_replaced_master_that_becomes_a_replica_is_not_replaced_any_more() {
    let mut cluster = replaced(Durability::Always);
    let copies = cluster.copies();
    for server in [0, 2] {
        cluster.reconfigure(server, 1);
        cluster.follow(server, None);
    }
    assert_eq!(info(&mut cluster.worlds[0], "master_replaced"), "0");
    cluster.promote(0);
    for restarts in [false, true] {
        if restarts {
            cluster.kill(0);
        }
        assert_eq!(info(&mut cluster.worlds[0], "master_replaced"), "0");
    }
    assert_eq!(info(&mut cluster.worlds[1], "master_replaced"), "1");
    for server in [1, 2] {
        cluster.reconfigure(server, 0);
        cluster.follow(server, None);
    }
    assert_eq!(cluster.copies(), copies, "no promotion requires a copy");
}

#[test]
fn only_a_replica_of_its_own_stream_replaces_a_master() {
    let mut cluster = replaced(Durability::Always);
    let other = "f".repeat(40);
    let refused = "-ERR this server is not the master of that replica\r\n";
    for server in 0..SERVERS {
        let reply = ask(&mut cluster.worlds[server], &format!("REPLCONF replaced-epoch {other}|"));
        assert_eq!(reply, refused);
    }
    // A replica confirms nothing by itself.
    let epoch = cluster.worlds[2].shared().replication.epochs().0.unwrap();
    let id = String::from_utf8_lossy(&epoch.id).into_owned();
    let reply = ask(&mut cluster.worlds[2], &format!("REPLCONF replaced-epoch {id}|"));
    assert_eq!(reply, refused);
    assert_eq!(ask(&mut cluster.worlds[2], "REPLCONF replaced-epoch x|"), "-ERR syntax error\r\n");
    let own = cluster.worlds[1].shared().identity.run_id.clone();
    let request = format!("REPLCONF run-id {own} replaced-epoch {id}|");
    let reply = ask(&mut cluster.worlds[1], &request);
    assert_eq!(reply, "-ERR a server cannot replace itself\r\n");
    assert_eq!(info(&mut cluster.worlds[1], "master_replaced"), "0");
}

#[test]
fn reconfiguration_ends_a_promotion() {
    let mut cluster = Cluster::start(9, Durability::Always);
    let client = cluster.worlds[1].sim().connect();
    client.send(b"REPLICAOF NO ONE\r\n");
    turn(&mut cluster.worlds[1]);
    assert!(ask(&mut cluster.worlds[1], "SET k v|").is_empty(), "writes wait");
    cluster.reconfigure(1, 2);
    let now = cluster.worlds[1].sim().now();
    let state = cluster.worlds[1].state().clone();
    end_promotion(&state.shared, now, epoch_id(|| 1));
    turn(&mut cluster.worlds[1]);
    assert_eq!(cluster.role(1), Role::Replica);
    assert_eq!(client.received(), b"-ERR another REPLICAOF has ended the promotion\r\n");
    assert!(ask(&mut cluster.worlds[1], "SET k v|").starts_with("-READONLY"));
}

/// The new master may have been promoted when the old one restarts as the master of its
/// configuration, with another replica.
#[test]
fn a_master_that_restarts_while_it_hands_over_confirms_nothing() {
    let mut cluster = Cluster::start(13, Durability::Always);
    (1..SERVERS).for_each(|server| cluster.follow(server, None));
    assert_eq!(ask(&mut cluster.worlds[0], "FAILOVER|"), "+OK\r\n");
    let address = std::iter::repeat_with(|| cluster.wait_for_target(0)).take(20).flatten().next();
    let address = address.expect("both replicas have all");
    hand_over(cluster.worlds[0].shared(), address);
    assert!(cluster.ask_for_promotion(0, 1));
    cluster.follows[1] = None;
    cluster.kill(0);
    cluster.follow(2, None);
    let old = &mut cluster.worlds[0];
    assert_eq!(info(old, "master_replaced"), "1");
    assert_eq!(ask(old, "CLIENT DURABILITY replicated|SET k 1|"), format!("+OK\r\n{REFUSED}"));
    assert_eq!(ask(old, "REPLICAOF NO ONE|"), "+OK\r\n");
    assert_eq!(info(&mut cluster.worlds[0], "master_replaced"), "0");
}

#[test]
fn a_failover_ends_although_its_target_restarts_as_a_replica() {
    for kills in 0..3 {
        let mut cluster = Cluster::start(11, Durability::Always);
        let before = cluster.worlds[0].shared().replication.epochs().0;
        cluster.reconfigure(0, 1);
        for _ in 0..kills {
            assert!(cluster.ask_for_promotion(0, 1), "{kills} kills");
            let power_cut = cluster.random.random_bool(0.5);
            cluster.worlds[1].die(power_cut, Faults::default());
            cluster.reconfigure(1, 0);
            assert_eq!(cluster.role(1), Role::Replica);
        }
        assert!(cluster.ask_for_promotion(0, 1), "{kills} kills");
        cluster.follows[1] = None;
        assert_eq!(cluster.worlds[1].shared().replication.epochs().1, before, "one promotion");
        assert_eq!(ask(&mut cluster.worlds[1], "SET k v|"), "+OK\r\n");
        cluster.follow(0, None);
        assert_eq!(ask(&mut cluster.worlds[0], "GET k|"), "$1\r\nv\r\n");
    }
}

/// The master was restarted after a power cut, which undid what its replicas had, and then replaced.
#[test]
fn what_a_power_cut_undid_is_received_again_and_what_followed_it_is_set_aside() {
    for writes_more in [false, true] {
        let mut cluster = Cluster::start(13, Durability::Interval);
        cluster.follow(1, None);
        cluster.worlds[0].advance(2_000_000_000);
        // The interval has elapsed, so the first one is synced.
        for value in 0..9 {
            ask(&mut cluster.worlds[0], &format!("SET k {value}|"));
        }
        for replica in [1, 2] {
            cluster.follow(replica, None);
            assert_eq!(ask(&mut cluster.worlds[replica], "GET k|"), "$1\r\n8\r\n");
            cluster.end_link(replica);
        }
        cluster.worlds[0].die(true, Faults::default());
        assert_ne!(ask(&mut cluster.worlds[0], "GET k|"), "$1\r\n8\r\n");
        if writes_more {
            ask(&mut cluster.worlds[0], "SET lost v|");
        }
        let now = cluster.worlds[1].sim().now();
        ask(&mut cluster.worlds[1], "REPLICAOF NO ONE|");
        end_promotion(cluster.worlds[1].shared(), now, epoch_id(|| 1));
        assert_eq!(cluster.role(1), Role::Master);
        cluster.follows[1] = None;
        let copies = cluster.copies();
        for server in [0, 2] {
            cluster.reconfigure(server, 1);
            cluster.follow(server, None);
            assert_eq!(ask(&mut cluster.worlds[server], "GET k|"), "$1\r\n8\r\n");
            assert_eq!(ask(&mut cluster.worlds[server], "GET lost|"), "$-1\r\n");
        }
        // Its number of copies begins at 0 with each run.
        let expected = [u64::from(writes_more), copies[1], copies[2]];
        assert_eq!(cluster.copies(), expected, "writes more: {writes_more}");
    }
}
