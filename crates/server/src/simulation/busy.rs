//! One reactor is busy for seconds: clients of the other reactors are served, and no replies are
//! lost.

use rand::Rng;

use super::chaos::random_command;
use super::model::command;
use super::tests::{Announce, seeds};
use super::world::{Plan, World};

const SEEDS: u64 = 100;
const REACTORS: usize = 3;
/// Two clients per reactor: connections are assigned round robin.
const CLIENTS: usize = 2 * REACTORS;
const ROUNDS: usize = 60;
/// More rounds than this without replies are a stall. They take some seconds.
const SERVED_ROUNDS_MAX: usize = 2_000;

/// Runs every reactor except the first until their clients are served.
fn run_others(world: &mut World) {
    let is_served = |world: &World| {
        let mut others = (0..CLIENTS).filter(|client| client % REACTORS != 0);
        others.all(|client| world.clients[client].is_served())
    };
    for _ in 0..SERVED_ROUNDS_MAX {
        if is_served(world) {
            return;
        }
        let mut worked = world.write_log();
        for reactor in 1..REACTORS {
            worked |= world.step(reactor);
        }
        world.receive_all();
        if !worked {
            world.advance(10_000_000);
        }
    }
    panic!("a client waits for another client's reactor");
}

#[test]
fn clients_of_other_reactors_are_served() {
    for seed in seeds(SEEDS) {
        let _announce = Announce(seed);
        let mut world = World::new(seed, Plan { reactors: REACTORS, ..Plan::default() });
        for client in 0..CLIENTS {
            assert_eq!(world.connect(), client);
            world.send(client, command(&["CLIENT", "DURABILITY", "always"]));
        }
        world.settle();
        for _ in 0..ROUNDS {
            let client = world.random.random_range(0..CLIENTS);
            let next = random_command(&mut world.random);
            world.send(client, next);
            if world.chance(0.3) {
                let reactor = world.random.random_range(1..REACTORS);
                world.step(reactor);
            }
            if world.chance(0.02) {
                world.begin_snapshot();
            }
            world.go_on_with_snapshot(100);
        }
        run_others(&mut world);
        world.settle();
        world.check_served();
        let power_cut = world.chance(0.5);
        world.crash(power_cut, binlog::Faults::default());
    }
}
