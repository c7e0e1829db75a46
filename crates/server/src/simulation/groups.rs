//! Group commit when a sync takes time, on a simulated slow disk.

use std::sync::Arc;

use binlog::Faults as DiskFaults;

use super::model::command;
use super::world::{Plan, World};
use crate::config::Settings;

const MS: u64 = 1_000_000;
/// Granularity of simulated time. A client that receives its reply sends its next request one step
/// later.
const STEP_NS: u64 = MS / 10;
const SYNC_NS: u64 = 5 * MS;
/// Maximum time that a group waits for more clients.
const WAIT_NS: u64 = SYNC_NS / 4;
/// Time until a newly started log has measured its disk.
const WARMUP_NS: u64 = 20 * SYNC_NS;

/// When a client sends its next request.
#[derive(Debug, Clone, Copy)]
enum Habit {
    /// This long after the reply has arrived.
    AfterReply(u64),
    /// At these intervals, regardless of replies.
    Every(u64),
    /// Sends no more requests.
    Never,
}

struct Client {
    number: usize,
    habit: Habit,
    next_ns: u64,
    /// Send times of its requests without a reply, oldest first.
    sent_ns: Vec<u64>,
}

/// Clients of a server on a slow disk, and the outcome of their requests.
struct Scene {
    world: World,
    clients: Vec<Client>,
    now_ns: u64,
    served: u64,
    longest_ns: u64,
    syncs_before: u64,
}

impl Scene {
    fn new(reactors: usize, sync_ns: u64) -> Scene {
        let plan = Plan {
            reactors,
            sync_ns,
            segment_bytes: 1 << 20,
            lane_bytes: 256 << 10,
            ..Plan::default()
        };
        let world = World::new(7, plan);
        let clients = Vec::new();
        Scene { world, clients, now_ns: 0, served: 0, longest_ns: 0, syncs_before: 0 }
    }

    fn add(&mut self, habit: Habit, first_ns: u64) {
        let number = self.world.connect();
        let next_ns = self.now_ns + first_ns;
        self.clients.push(Client { number, habit, next_ns, sent_ns: Vec::new() });
    }

    /// Adds closed-loop clients in two halves with different start times.
    fn add_two_halves(&mut self, clients: u64, sync_ns: u64) {
        for number in 0..clients {
            self.add(Habit::AfterReply(0), if number % 2 == 0 { 0 } else { sync_ns / 2 });
        }
    }

    fn step(&mut self) {
        for client in &mut self.clients {
            let is_due = client.next_ns <= self.now_ns;
            let may_send = match client.habit {
                Habit::AfterReply(_) => client.sent_ns.is_empty(),
                Habit::Every(_) => true,
                Habit::Never => false,
            };
            if is_due && may_send {
                let key = format!("text{}", client.number);
                self.world.send(client.number, command(&["SET", &key, "x"]));
                client.sent_ns.push(self.now_ns);
                if let Habit::Every(ns) = client.habit {
                    client.next_ns += ns;
                }
            }
        }
        while self.world.write_log() | self.run_reactors() {}
        self.take_replies();
        self.now_ns += STEP_NS;
        self.world.advance(STEP_NS);
    }

    fn run_reactors(&mut self) -> bool {
        let mut worked = false;
        while (0..self.world.plan.reactors).any(|reactor| self.world.step(reactor)) {
            worked = true;
        }
        worked
    }

    fn take_replies(&mut self) {
        self.world.receive_all();
        for client in &mut self.clients {
            let there = &self.world.clients[client.number];
            let unanswered = there.waiting() + there.session.outstanding();
            for sent_ns in client.sent_ns.drain(..client.sent_ns.len() - unanswered) {
                self.served += 1;
                self.longest_ns = self.longest_ns.max(self.now_ns - sent_ns);
                if let Habit::AfterReply(ns) = client.habit {
                    client.next_ns = self.now_ns + ns;
                }
            }
        }
    }

    fn run(&mut self, ns: u64) {
        let until_ns = self.now_ns + ns;
        while self.now_ns < until_ns {
            self.step();
        }
    }

    fn syncs(&self) -> u64 {
        self.world.shared().log.stats().syncs
    }

    /// Starts a new measurement.
    fn measure(&mut self, ns: u64) {
        (self.served, self.longest_ns) = (0, 0);
        self.syncs_before = self.syncs();
        self.run(ns);
    }

    fn served_per_sync(&self) -> f64 {
        let syncs = u32::try_from(self.syncs() - self.syncs_before).unwrap();
        f64::from(u32::try_from(self.served).unwrap()) / f64::from(syncs)
    }

    /// Runs until a sync has completed, its clients have sent their next requests, and the group
    /// waits for more clients.
    fn run_into_a_wait(&mut self) {
        let syncs = self.syncs();
        while self.syncs() == syncs {
            self.step();
        }
        self.step();
        assert!(!self.world.is_syncing());
        assert!(self.clients.iter().any(|client| !client.sent_ns.is_empty()));
    }
}

/// Checks whether two halves of the clients merge into one group: `expected` is the share of all
/// clients in a group.
#[track_caller]
fn check_group(reactors: usize, sync_ns: u64, expected: std::ops::RangeInclusive<f64>) {
    const CLIENTS: u32 = 12;
    let mut scene = Scene::new(reactors, sync_ns);
    scene.add_two_halves(u64::from(CLIENTS), sync_ns);
    scene.run(20 * sync_ns);
    scene.measure(40 * sync_ns);
    let share = scene.served_per_sync() / f64::from(CLIENTS);
    assert!(expected.contains(&share), "{share} of the clients per group");
    scene.world.settle();
    scene.world.check_served();
}

#[test]
fn after_slow_syncs_all_waiting_clients_share_a_group() {
    for reactors in 1..=3 {
        check_group(reactors, SYNC_NS, 0.97..=1.03);
        check_group(reactors, 20 * MS, 0.97..=1.03);
        check_group(reactors, MS, 0.9..=1.03);
    }
    // Longer than the log's own tick.
    check_group(1, 120 * MS, 0.97..=1.03);
}

#[test]
fn after_fast_syncs_the_next_one_begins_at_once() {
    check_group(1, 9 * MS / 10, 0.4..=0.6);
    let mut scene = Scene::new(1, 9 * MS / 10);
    scene.add_two_halves(12, 9 * MS / 10);
    scene.run(WARMUP_NS);
    for _ in 0..500 {
        scene.step();
        assert!(scene.world.is_syncing(), "a client waits, but no sync is in progress");
    }
}

#[test]
fn a_reactor_stays_awake_for_a_fast_log_only() {
    for (sync_ns, expected) in [(MS / 10, true), (SYNC_NS, false)] {
        let mut scene = Scene::new(1, sync_ns);
        scene.add(Habit::AfterReply(0), 0);
        scene.run(WARMUP_NS);
        assert_eq!(scene.world.server(0).is_log_fast(), expected, "{sync_ns}");
    }
}

#[test]
fn log_spin_us_bounds_the_waits_for_which_a_reactor_stays_awake() {
    let mut scene = Scene::new(1, MS / 10);
    let shared = scene.world.shared();
    let settings = Settings { log_spin_us: 10, ..(**shared.settings.load()).clone() };
    shared.settings.store(Arc::new(settings));
    scene.add(Habit::AfterReply(0), 0);
    scene.run(WARMUP_NS);
    assert!(!scene.world.server(0).is_log_fast());
}

#[test]
fn a_lone_writer_never_waits_for_others() {
    for pause_ns in [0, MS, WAIT_NS + MS, 3 * SYNC_NS] {
        let mut scene = Scene::new(2, SYNC_NS);
        scene.add(Habit::AfterReply(pause_ns), 0);
        scene.run(WARMUP_NS);
        scene.measure(40 * SYNC_NS);
        assert_eq!(scene.longest_ns, SYNC_NS, "with {pause_ns} ns between its requests");
        assert!(scene.served > 9);
    }
}

/// Adds one client that sends at intervals to `clients` closed loops. The longest time to its reply
/// is that of two syncs and a wait, and rarely more than that of two syncs.
fn check_open_loop(clients: u64, interval_ns: u64) -> Scene {
    let mut scene = Scene::new(2, SYNC_NS);
    scene.add_two_halves(clients, SYNC_NS);
    scene.add(Habit::Every(interval_ns), 0);
    scene.run(WARMUP_NS);
    scene.measure(60 * SYNC_NS);
    assert!(scene.longest_ns <= 2 * SYNC_NS + WAIT_NS + 2 * STEP_NS, "{}", scene.longest_ns);
    scene
}

#[test]
fn an_open_loop_client_waits_at_most_for_part_of_a_sync() {
    for interval_ns in [STEP_NS, 3 * STEP_NS, MS, 3 * MS, 7 * MS, 2 * SYNC_NS] {
        check_open_loop(0, interval_ns);
        check_open_loop(6, interval_ns);
    }
}

#[test]
fn groups_stop_waiting_for_absent_clients() {
    let mut scene = check_open_loop(0, MS / 5);
    // One wait in seventeen groups; each of the other groups begins when the previous one ends.
    scene.measure(17 * 10 * SYNC_NS);
    let syncs = scene.syncs() - scene.syncs_before;
    assert!(syncs >= 17 * 10 - 6, "{syncs} syncs, expected about 170 without pauses");
}

#[test]
fn a_client_that_leaves_is_waited_for_once() {
    let mut scene = Scene::new(1, SYNC_NS);
    scene.add_two_halves(12, SYNC_NS);
    scene.run(WARMUP_NS);
    scene.clients.iter_mut().step_by(3).for_each(|client| client.habit = Habit::Never);
    scene.measure(20 * SYNC_NS);
    assert!(scene.longest_ns <= SYNC_NS + WAIT_NS + 2 * STEP_NS, "{}", scene.longest_ns);
    scene.measure(20 * SYNC_NS);
    assert!(scene.longest_ns <= SYNC_NS + 2 * STEP_NS, "{}", scene.longest_ns);
    assert!((7.7..=8.3).contains(&scene.served_per_sync()));
}

/// A group of eight clients that waits for three that will not send again.
fn waiting_scene() -> Scene {
    let mut scene = Scene::new(2, SYNC_NS);
    scene.add_two_halves(8, SYNC_NS);
    scene.run(WARMUP_NS);
    scene.clients.iter_mut().take(3).for_each(|client| client.habit = Habit::Never);
    scene.run_into_a_wait();
    scene
}

#[test]
fn a_log_that_fails_after_a_wait_holds_no_client() {
    let mut scene = waiting_scene();
    scene.world.disk.set_faults(DiskFaults { write_error: 1.0, ..DiskFaults::default() });
    assert!(!scene.world.log_failed());
    for _ in 0..=WAIT_NS / STEP_NS {
        scene.step_without_clients();
    }
    assert!(scene.world.log_failed(), "the group has waited longer than it may");
    let closed = |number: usize| scene.world.clients[number].sim.is_closed();
    assert!((3..8).all(closed), "clients that wait for the failed log are closed");
    assert!(!(0..3).any(closed), "clients that do not wait stay connected");
    scene.world.send(0, command(&["SET", "text0", "late"]));
    scene.world.send(0, command(&["GET", "text0"]));
    scene.world.settle();
    assert!(scene.world.clients[0].is_served(), "writes are refused and reads continue");
    scene.world.crash(true, DiskFaults::default());
}

#[test]
fn a_crash_in_a_wait_loses_no_acknowledged_write() {
    for power_cut in [true, false] {
        waiting_scene().world.crash(power_cut, DiskFaults::default());
    }
}

impl Scene {
    fn step_without_clients(&mut self) {
        while self.world.write_log() | self.run_reactors() {}
        self.world.receive_all();
        self.now_ns += STEP_NS;
        self.world.advance(STEP_NS);
    }
}

#[test]
fn a_full_lane_ends_a_wait() {
    let mut scene = waiting_scene();
    let big = "x".repeat(200 << 10);
    scene.world.send(0, command(&["SET", "text0", &big]));
    while scene.run_reactors() {}
    scene.world.write_log();
    assert!(scene.world.is_syncing(), "the group waits though a lane is more than half full");
    scene.world.settle();
    scene.world.check_served();
}
