//! Three servers, of which any becomes the master, by REPLICAOF NO ONE, a restart or FAILOVER, at any
//! moment: no write that was acknowledged at the durability `replicated` is lost.

use binlog::Faults;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reactor::SimClient;

use super::replication::{any_durability, ask, follow, master, plan, turn};
use super::tests::{Announce, seeds};
use super::world::{Plan, World};
use crate::config::Durability;
use crate::engine::mail::Mail;
use crate::engine::replication::{LinkState, Role, epoch_id};
use crate::engine::role_change::store_replaced;
use crate::replica::end_promotion;

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
        let world = &mut self.worlds[server];
        world.shared().replication.set_source(address);
        // As the thread of the link does.
        let was_master = std::mem::take(&mut world.shared().replication.link().was_master);
        for mailbox in world.shared().links().mailboxes().iter().filter(|_| was_master) {
            mailbox.send(Mail::Demoted).unwrap();
        }
        turn(world);
        self.follows[server] = Some(source);
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
        let Some(old) = self.follows[server] else { return };
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
            17..=19 if masters.len() == 2 => self.settle_roles(),
            _ => {}
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
        let newest = masters.iter().copied().filter(|server| !is_replaced(server));
        let newest = newest.max_by_key(start).expect("the last one is not replaced");
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
    assert!(acknowledged as u64 > SEEDS, "{acknowledged}");
    assert!(refused > 0, "a replaced master refuses writes");
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

/// What is left of a FAILOVER from server 0 to server 1, whose configuration is that of a replica.
fn hand_over(cluster: &mut Cluster) -> bool {
    // The old master asks for the promotion together with the stream.
    let request = {
        let shared = cluster.worlds[0].shared();
        let end = shared.replication.end(&shared.log);
        let epoch = shared.replication.epochs().0.unwrap().id;
        let epoch = String::from_utf8_lossy(&epoch).into_owned();
        format!("REPLCONF capa myriad-stream-1|PSYNC {epoch} {end} FAILOVER|")
    };
    let target = &mut cluster.worlds[1];
    let client = target.sim().connect();
    client.send(request.replace('|', "\r\n").as_bytes());
    turn(target);
    let reply = String::from_utf8_lossy(&client.received()).into_owned();
    client.close();
    turn(target);
    assert!(reply.starts_with("+OK\r\n") && !reply.contains('-'), "{reply}");
    cluster.role(1) == Role::Master
}

#[test]
fn a_failover_ends_although_its_target_restarts_as_a_replica() {
    for kills in 0..3 {
        let mut cluster = Cluster::start(11, Durability::Always);
        let before = cluster.worlds[0].shared().replication.epochs().0;
        cluster.reconfigure(0, 1);
        for _ in 0..kills {
            assert!(hand_over(&mut cluster), "{kills} kills");
            let power_cut = cluster.random.random_bool(0.5);
            cluster.worlds[1].die(power_cut, Faults::default());
            cluster.reconfigure(1, 0);
            assert_eq!(cluster.role(1), Role::Replica);
        }
        assert!(hand_over(&mut cluster), "{kills} kills");
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
