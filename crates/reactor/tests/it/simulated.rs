//! The loop under a simulated network.

use std::sync::Arc;

use proptest::prelude::*;
use reactor::{Config, Faults, Limits, Placement, Sim, SimClient};

use crate::echo::{Echo, Mail};

fn config(reactors: usize) -> Config {
    Config {
        reactors,
        has_spare: false,
        placement: Placement::RoundRobin,
        limits: Arc::new(Limits::default()),
        drain_timeout_ms: 1000,
    }
}

fn sim(reactors: usize, faults: Faults, seed: u64) -> Sim<Echo> {
    Sim::new(&config(reactors), faults, seed, |_, _| Echo::default())
}

fn calm() -> Sim<Echo> {
    sim(1, Faults::default(), 0)
}

/// Sends the same mail to every reactor.
fn tell(sim: &Sim<Echo>, mail: &Mail) {
    for mailbox in sim.links().mailboxes() {
        mailbox.send(mail.clone()).unwrap();
    }
}

/// Sends, runs, and returns the reply.
fn ask(sim: &mut Sim<Echo>, client: &SimClient, request: &[u8]) -> Vec<u8> {
    client.send(request);
    sim.run_until_idle();
    client.received()
}

#[test]
fn echoes_and_becomes_idle() {
    let mut sim = calm();
    let client = sim.connect();
    assert_eq!(ask(&mut sim, &client, b"hello\nwor"), b"hello\n");
    assert_eq!(ask(&mut sim, &client, b"ld\n"), b"world\n");
    assert!(!sim.turn());
    let counters = sim.links().stats_sum();
    assert_eq!((counters.reads, counters.writes), (2, 2));
    assert_eq!(counters.connections, 1);
    client.close();
    sim.run_until_idle();
    assert!(client.is_closed());
    assert_eq!(sim.handler(0).closed, 1);
    assert_eq!(sim.links().connections(), 0);
}

#[test]
fn a_handler_knows_of_an_end_before_the_peer() {
    for last_words in [&b"drop\n"[..], b"quit\n"] {
        let mut sim = calm();
        let client = Arc::new(sim.connect());
        sim.handler(0).watched = Some(Arc::clone(&client));
        ask(&mut sim, &client, last_words);
        assert!(client.is_closed());
        assert_eq!(sim.handler(0).closed, 1);
    }
}

#[test]
fn an_idle_connection_owns_no_buffers() {
    let mut sim = calm();
    let client = sim.connect();
    ask(&mut sim, &client, b"hello\nsize 100000\n");
    assert_eq!(sim.info(client.id()).unwrap().buffer_bytes, 0);
    ask(&mut sim, &client, b"unfinished");
    let info = sim.info(client.id()).unwrap();
    assert_eq!((info.input_bytes, info.buffer_bytes), (10, 10));
    ask(&mut sim, &client, b"\nhold 1\n");
    let info = sim.info(client.id()).unwrap();
    assert_eq!((info.held_bytes, info.output_bytes), (7, 7));
    assert!(info.buffer_bytes < 200);
    tell(&sim, &Mail::Level(1));
    sim.run_until_idle();
    assert!(sim.info(client.id()).unwrap().buffer_bytes < 200);
    assert_eq!(sim.info(client.id()).unwrap().input_bytes, 0);
}

#[test]
fn held_output_waits_for_the_level_and_holds_what_follows() {
    let mut sim = calm();
    let client = sim.connect();
    assert_eq!(ask(&mut sim, &client, b"free\nhold 5\nbehind\nhold 7\n"), b"free\n");
    assert_eq!(sim.links().stats(0).held_bytes, 7 + 7 + 7);
    tell(&sim, &Mail::Level(4));
    assert_eq!(ask(&mut sim, &client, b""), b"");
    tell(&sim, &Mail::Level(5));
    assert_eq!(ask(&mut sim, &client, b""), b"held 5\nbehind\n");
    sim.handler(0).level = 9;
    tell(&sim, &Mail::Level(1));
    assert_eq!(ask(&mut sim, &client, b""), b"held 7\n");
    assert_eq!(sim.links().stats(0).held_bytes, 0);
    assert_eq!(ask(&mut sim, &client, b"hold 9\n"), b"held 9\n");
}

#[test]
fn output_released_in_before_wait_is_sent_in_the_same_turn() {
    let mut sim = calm();
    let client = sim.connect();
    assert_eq!(ask(&mut sim, &client, b"hold 3\n"), b"");
    sim.handler(0).level = 3;
    assert!(sim.turn());
    assert_eq!(client.received(), b"held 3\n");
    assert!(!sim.turn());
}

#[test]
fn a_greedy_pipeline_does_not_starve_others() {
    let mut sim = calm();
    sim.handler(0).budget = 10;
    let greedy = sim.connect();
    let modest = sim.connect();
    sim.run_until_idle();
    greedy.send(&b"g\n".repeat(10_000));
    modest.send(b"m\n");
    sim.turn();
    assert_eq!(modest.received(), b"m\n");
    assert_eq!(greedy.received().len(), 20);
    modest.send(b"m\n");
    sim.turn();
    assert_eq!(modest.received(), b"m\n");
    assert_eq!(greedy.received().len(), 20);
    sim.run_until_idle();
    assert_eq!(greedy.received().len(), 20_000 - 40);
}

#[test]
fn a_paused_connection_is_left_alone_until_resumed() {
    let mut sim = calm();
    let client = sim.connect();
    assert_eq!(ask(&mut sim, &client, b"one\npause\ntwo\n"), b"one\n");
    assert_eq!(ask(&mut sim, &client, b"three\n"), b"");
    tell(&sim, &Mail::Resume(client.id()));
    assert_eq!(ask(&mut sim, &client, b""), b"two\nthree\n");
    tell(&sim, &Mail::Resume(client.id()));
    assert_eq!(ask(&mut sim, &client, b"four\n"), b"four\n");
}

#[test]
fn the_handler_decides_whether_to_keep_a_paused_connection_without_its_peer() {
    let mut sim = calm();
    let client = sim.connect();
    ask(&mut sim, &client, b"pause\n");
    client.close();
    sim.run_until_idle();
    assert!(client.is_closed());

    let mut sim = calm();
    sim.handler(0).keeps_left = true;
    let client = sim.connect();
    ask(&mut sim, &client, b"pause\nrest\n");
    client.half_close();
    sim.run_until_idle();
    assert!(!client.is_closed());
    tell(&sim, &Mail::Resume(client.id()));
    assert_eq!(ask(&mut sim, &client, b""), b"rest\n");
    assert!(client.is_closed());
}

#[test]
fn half_closing_still_gets_every_reply() {
    let mut sim = calm();
    let client = sim.connect();
    client.send(b"one\nhold 2\ntwo\n");
    client.half_close();
    sim.run_until_idle();
    assert_eq!(client.received(), b"one\n");
    assert!(!client.is_closed());
    tell(&sim, &Mail::Level(2));
    sim.run_until_idle();
    assert_eq!(client.received(), b"held 2\ntwo\n");
    assert!(client.is_closed());
}

#[test]
fn requests_in_progress_delay_the_end() {
    for drains in [false, true] {
        let mut sim = calm();
        let client = sim.connect();
        client.send(b"one\nlater\n");
        sim.run_until_idle();
        if drains {
            sim.drain();
        } else {
            client.half_close();
        }
        sim.run_until_idle();
        assert_eq!(client.received(), b"one\n");
        assert!(!client.is_closed());
        tell(&sim, &Mail::Push(client.id(), b"done\n".to_vec()));
        sim.run_until_idle();
        assert_eq!(client.received(), b"done\n");
        assert!(!client.is_closed());
        tell(&sim, &Mail::Close(client.id()));
        sim.run_until_idle();
        assert!(client.is_closed());
    }
}

#[test]
fn closing_flushes_held_output_and_lingers_for_late_input() {
    let mut sim = calm();
    let client = sim.connect();
    assert_eq!(ask(&mut sim, &client, b"hold 2\nquit\nignored\n"), b"");
    tell(&sim, &Mail::Level(2));
    assert_eq!(ask(&mut sim, &client, b"late\n"), b"held 2\nbye\n");
    assert!(client.is_ended());
    assert!(!client.is_closed());
    sim.advance(1_000_000_000);
    sim.run_until_idle();
    assert!(client.is_closed());
    assert_eq!(sim.handler(0).closed, 1);

    let client = sim.connect();
    assert_eq!(ask(&mut sim, &client, b"quit\n"), b"bye\n");
    assert!(client.is_closed());
    let client = sim.connect();
    assert_eq!(ask(&mut sim, &client, b"lost\ndrop\n"), b"");
    assert!(client.is_closed());
}

#[test]
fn a_slow_reader_is_not_read_until_it_has_caught_up() {
    let mut sim = calm();
    sim.links().limits().output_pause_bytes.set(10_000);
    sim.handler(0).budget = 1;
    let client = sim.connect();
    client.set_window(100);
    assert_eq!(ask(&mut sim, &client, &b"size 999\n".repeat(50)).len(), 100);
    let info = sim.info(client.id()).unwrap();
    assert!(info.output_bytes > 10_000 && info.output_bytes < 12_000, "{info:?}");
    assert!(info.input_bytes > 0);
    let mut received = 100;
    while received < 50_000 {
        sim.run_until_idle();
        let some = client.received().len();
        assert!(some > 0);
        assert!(sim.info(client.id()).unwrap().output_bytes < 12_000);
        received += some;
    }
    assert_eq!(received, 50_000);
    assert_eq!(sim.info(client.id()).unwrap().buffer_bytes, 0);
}

#[test]
fn pushes_to_a_peer_that_does_not_read_end_in_closing_but_one_large_reply_does_not() {
    let mut sim = calm();
    sim.links().limits().output_bytes_max.set(1000);
    let client = sim.connect();
    client.set_window(0);
    assert_eq!(ask(&mut sim, &client, b"size 100000\n"), b"");
    assert!(!client.is_closed());
    tell(&sim, &Mail::Push(client.id(), b"news\n".to_vec()));
    sim.run_until_idle();
    assert!(client.is_closed());
    assert_eq!(sim.links().stats(0).output_overflows, 1);
}

#[test]
fn input_over_the_bound_closes() {
    let mut sim = calm();
    sim.links().limits().input_bytes_max.set(1000);
    let endless = sim.connect();
    ask(&mut sim, &endless, &[b'x'; 999]);
    assert!(!endless.is_closed());
    ask(&mut sim, &endless, b"xx");
    ask(&mut sim, &endless, b"x");
    assert!(endless.is_closed());
    let promising = sim.connect();
    ask(&mut sim, &promising, b"long 1001\n");
    assert!(promising.is_closed());
    assert_eq!(sim.links().stats(0).input_overflows, 2);
}

#[test]
fn a_long_request_is_shown_once_when_it_is_whole() {
    let mut sim = calm();
    let client = sim.connect();
    let body = vec![b'v'; 3_000_000];
    client.send(b"long 3000000\n");
    sim.run_until_idle();
    let calls = sim.handler(0).data_calls;
    for part in body.chunks(100_000) {
        client.send(part);
        sim.run_until_idle();
        assert!(sim.info(client.id()).is_some_and(|info| info.input_bytes <= 3_000_000));
    }
    assert_eq!(sim.handler(0).data_calls, calls + 1);
    assert!(client.received() == body);
    assert_eq!(sim.info(client.id()).unwrap().buffer_bytes, 0);
    assert_eq!(ask(&mut sim, &client, b"next\n"), b"next\n");
}

#[test]
fn too_much_held_output_stops_reading_until_it_leaves() {
    let mut sim = calm();
    sim.links().limits().held_bytes_max.set(10);
    let first = sim.connect();
    let second = sim.connect();
    ask(&mut sim, &first, b"hold 1\nhold 1\n");
    assert_eq!(ask(&mut sim, &second, b"hello\n"), b"");
    assert_eq!(ask(&mut sim, &first, b"more\n"), b"");
    assert_eq!(sim.links().stats(0).stalls, 2);
    tell(&sim, &Mail::Level(1));
    assert_eq!(ask(&mut sim, &first, b""), b"held 1\nheld 1\nmore\n");
    assert_eq!(second.received(), b"hello\n");
}

#[test]
fn idle_connections_are_closed_but_not_busy_or_paused_ones() {
    let mut sim = calm();
    sim.links().limits().idle_timeout_ms.set(1000);
    let idle = sim.connect();
    let busy = sim.connect();
    let paused = sim.connect();
    ask(&mut sim, &paused, b"pause\n");
    for _ in 0..6 {
        sim.advance(300_000_000);
        assert_eq!(ask(&mut sim, &busy, b"hi\n"), b"hi\n");
    }
    assert!(idle.is_closed());
    assert!(!busy.is_closed());
    assert!(!paused.is_closed());
    assert_eq!(sim.links().stats(0).idle_timeouts, 1);
}

#[test]
fn timers_fire_when_due() {
    let mut sim = calm();
    tell(&sim, &Mail::TimerAt(2_000, 2));
    tell(&sim, &Mail::TimerAt(1_000, 1));
    sim.run_until_idle();
    assert!(sim.handler(0).timers.is_empty());
    sim.advance(1_500);
    sim.run_until_idle();
    assert_eq!(sim.handler(0).timers, [1]);
    sim.advance(500);
    sim.run_until_idle();
    assert_eq!(sim.handler(0).timers, [1, 2]);
}

#[test]
fn pushes_reach_one_or_all() {
    let mut sim = sim(3, Faults::default(), 0);
    let clients: Vec<SimClient> = (0..6).map(|_| sim.connect()).collect();
    sim.run_until_idle();
    tell(&sim, &Mail::Push(clients[4].id(), b"you ".to_vec()));
    tell(&sim, &Mail::PushAll(b"all".to_vec()));
    sim.run_until_idle();
    for (index, client) in clients.iter().enumerate() {
        let expected: &[u8] = if index == 4 { b"you all" } else { b"all" };
        assert_eq!(client.received(), expected);
        assert_eq!(sim.info(client.id()).unwrap().buffer_bytes, 0);
    }
    tell(&sim, &Mail::Close(clients[2].id()));
    sim.run_until_idle();
    assert!(clients[2].is_closed());
}

#[test]
fn draining_flushes_what_is_in_flight_and_ends() {
    let mut sim = sim(2, Faults::default(), 0);
    let idle = sim.connect();
    let held = sim.connect();
    let paused = sim.connect();
    let stuck = sim.connect();
    ask(&mut sim, &held, b"hold 5\n");
    ask(&mut sim, &paused, b"pause\nlast\n");
    ask(&mut sim, &stuck, b"hold 1000\n");
    sim.drain();
    sim.run_until_idle();
    assert!(sim.handler(0).draining);
    assert!(idle.is_closed());
    assert!(!held.is_closed());
    assert!(!paused.is_closed());
    tell(&sim, &Mail::Level(5));
    tell(&sim, &Mail::Resume(paused.id()));
    sim.run_until_idle();
    assert_eq!(held.received(), b"held 5\n");
    assert_eq!(paused.received(), b"last\n");
    assert!(held.is_closed());
    assert!(paused.is_closed());
    assert!(!sim.is_ended());
    sim.advance(1_000_000_000);
    sim.run_until_idle();
    assert!(sim.is_ended());
    assert!(stuck.is_closed());
    assert_eq!(sim.links().connections(), 0);
    let late = sim.connect();
    assert!(late.is_closed());
}

#[test]
fn migration_moves_everything_that_belongs_to_a_connection() {
    let mut sim = sim(2, Faults::default(), 0);
    sim.handler(0).budget = 1;
    let client = sim.connect();
    sim.run_until_idle();
    client.send(b"free\nhold 3\nbehind\nmore\nunfini");
    sim.turn();
    assert_eq!(client.received(), b"free\n");
    assert!(sim.migrate(client.id(), 1));
    assert_eq!(sim.place_of(client.id()), None);
    sim.run_until_idle();
    assert_eq!(sim.place_of(client.id()), Some(1));
    assert_eq!(sim.links().stats(0).held_bytes, 0);
    assert_eq!(sim.links().stats(1).held_bytes, 7 + 7 + 5);
    // The level of the connection's current reactor counts.
    sim.links().mailboxes()[0].send(Mail::Level(3)).unwrap();
    assert_eq!(ask(&mut sim, &client, b"shed\n"), b"");
    sim.links().mailboxes()[1].send(Mail::Level(3)).unwrap();
    assert_eq!(ask(&mut sim, &client, b""), b"held 3\nbehind\nmore\nunfinished\n");
    assert_eq!((sim.handler(0).departed, sim.handler(1).arrived), (1, 1));
    let counters = sim.links().stats_sum();
    assert_eq!((counters.migrated_in, counters.migrated_out), (1, 1));
    ask(&mut sim, &client, b"pause\n");
    assert!(!sim.migrate(client.id(), 0));
}

#[test]
fn an_overloaded_reactor_moves_a_connection_to_an_idle_one() {
    let config = Config { placement: Placement::LeastLoaded, ..config(2) };
    let mut sim = Sim::new(&config, Faults::default(), 0, |_, _| Echo::default());
    sim.set_read_cost(100_000);
    let clients: Vec<SimClient> = (0..4).map(|_| sim.connect()).collect();
    sim.run_until_idle();
    let places = |sim: &Sim<Echo>, clients: &[SimClient]| -> Vec<Option<usize>> {
        clients.iter().map(|client| sim.place_of(client.id())).collect()
    };
    assert_eq!(places(&sim, &clients), [Some(0), Some(1), Some(0), Some(1)]);
    // Only those of the first reactor are busy.
    let mut received = [0; 2];
    for _ in 0..200 {
        for (client, received) in [&clients[0], &clients[2]].into_iter().zip(&mut received) {
            client.send(b"work work work\n");
            *received += client.received().len();
        }
        sim.turn();
    }
    sim.run_until_idle();
    let after = places(&sim, &clients);
    assert_ne!(after[0], after[2], "{after:?}");
    assert_eq!((after[1], after[3]), (Some(1), Some(1)));
    // Two equally busy reactors stop moving connections.
    assert_eq!(sim.links().stats_sum().migrated_in, 1);
    for (client, received) in [&clients[0], &clients[2]].into_iter().zip(received) {
        assert_eq!(received + client.received().len(), 200 * 15);
    }
}

/// Echoes a stream of numbered lines with some gates, while the network misbehaves, the connection
/// moves, the peer stops reading, and the level rises: every byte is echoed, in order, and none
/// before its gate opens.
fn storm(seed: u64, reactors: usize, lines: &[(u16, u8)], steps: &[u8]) {
    let mut sim = sim(reactors, Faults::harmless(), seed);
    sim.links().limits().output_pause_bytes.set(200);
    sim.links().limits().held_bytes_max.set(300);
    for reactor in 0..reactors {
        sim.handler(reactor).budget = 3;
    }
    let clients: Vec<SimClient> = (0..3).map(|_| sim.connect()).collect();
    let mut level = 0;
    let mut received = vec![Vec::new(); clients.len()];
    let mut expected = vec![Vec::new(); clients.len()];
    let mut requests = lines.iter().enumerate();
    let mut steps = steps.iter().cycle();
    loop {
        let mut sent = false;
        for (client, expected) in clients.iter().zip(&mut expected) {
            let Some((number, (length, gate))) = requests.next() else { break };
            sent = true;
            if *gate > 0 {
                client.send(format!("hold {gate}\n").as_bytes());
                expected.extend_from_slice(format!("held {gate}\n").as_bytes());
            } else {
                let line = format!("{number}:{}\n", "y".repeat(usize::from(*length)));
                client.send(line.as_bytes());
                expected.extend_from_slice(line.as_bytes());
            }
        }
        for _ in 0..3 {
            let step = *steps.next().unwrap();
            let client = &clients[usize::from(step) % clients.len()];
            match step % 5 {
                0 => {
                    sim.migrate(client.id(), usize::from(step / 5) % reactors);
                }
                1 => client.set_window(usize::from(step)),
                2 => {
                    level += 1;
                    tell(&sim, &Mail::Level(level));
                }
                _ => {}
            }
            sim.turn();
            for (client, received) in clients.iter().zip(&mut received) {
                received.extend(client.received());
            }
            for (received, expected) in received.iter().zip(&expected) {
                assert!(expected.starts_with(received));
                assert_no_gate_above(received, level);
            }
        }
        if !sent {
            break;
        }
    }
    sim.set_faults(Faults::default());
    tell(&sim, &Mail::Level(u64::MAX));
    for client in &clients {
        client.set_window(usize::MAX);
    }
    sim.run_until_idle();
    for ((client, received), expected) in clients.iter().zip(&mut received).zip(&expected) {
        received.extend(client.received());
        assert!(received == expected, "{} of {} bytes", received.len(), expected.len());
        assert_eq!(sim.info(client.id()).unwrap().output_bytes, 0);
    }
    assert_eq!(sim.links().stats_sum().held_bytes, 0);
    assert_eq!(sim.links().connections(), clients.len());
}

fn assert_no_gate_above(received: &[u8], level: u64) {
    for line in received.split(|&byte| byte == b'\n') {
        let gate = std::str::from_utf8(line).unwrap().strip_prefix("held ");
        let gate = gate.and_then(|gate| gate.parse::<u64>().ok());
        // A prefix of a gate's number is not above the number.
        assert!(gate.is_none_or(|gate| gate <= level), "{gate:?} left at level {level}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_byte_is_lost_or_reordered_in_a_storm(
        seed in any::<u64>(),
        reactors in 1_usize..5,
        lines in prop::collection::vec((0_u16..2000, prop_oneof![3 => Just(0_u8), 1 => 1_u8..100]), 1..120),
        steps in prop::collection::vec(any::<u8>(), 1..60),
    ) {
        storm(seed, reactors, &lines, &steps);
    }

    /// Whatever breaks, every connection is closed exactly once and no state remains.
    #[test]
    fn resets_leave_no_state(
        seed in any::<u64>(),
        requests in prop::collection::vec(prop::sample::select(
            &["a\n", "hold 1\n", "pause\n", "quit\nx", "drop\n", "size 5000\n", "half"][..],
        ), 1..60),
    ) {
        let faults = Faults { reset: 30, ..Faults::harmless() };
        let mut sim = sim(2, faults, seed);
        let clients: Vec<SimClient> = (0..8).map(|_| sim.connect()).collect();
        for (number, request) in requests.iter().enumerate() {
            let client = &clients[number % clients.len()];
            client.send(request.as_bytes());
            if number % 7 == 0 {
                sim.migrate(client.id(), number % 2);
            }
            sim.turn();
        }
        for client in &clients {
            client.close();
        }
        tell(&sim, &Mail::Level(1));
        sim.run_until_idle();
        sim.advance(2_000_000_000);
        sim.run_until_idle();
        for client in &clients {
            prop_assert!(client.is_closed());
        }
        let opened = sim.handler(0).opened + sim.handler(1).opened;
        let closed = sim.handler(0).closed + sim.handler(1).closed;
        prop_assert_eq!((opened, closed), (8, 8));
        prop_assert_eq!(sim.links().connections(), 0);
        let counters = sim.links().stats_sum();
        prop_assert_eq!((counters.connections, counters.held_bytes), (0, 0));
    }

    #[test]
    fn equal_seeds_run_equally(seed in any::<u64>()) {
        let run = || {
            let mut sim = sim(3, Faults { reset: 10, ..Faults::harmless() }, seed);
            let clients: Vec<SimClient> = (0..5).map(|_| sim.connect()).collect();
            for client in &clients {
                client.send(&b"some line\n".repeat(20));
            }
            let turns = sim.run_until_idle();
            let received: Vec<Vec<u8>> = clients.iter().map(SimClient::received).collect();
            (turns, received, sim.links().stats_sum())
        };
        prop_assert_eq!(run(), run());
    }
}
