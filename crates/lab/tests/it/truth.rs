//! Compares the generator's report with the server's own records: counts exactly, rates and times
//! with bounds that the server observed, whose tightness depends on the machine's load. No
//! comparison assumes a quiet machine.

use std::time::Duration;

use lab::load::{
    Arrival, LoadEvent, Patience, Schedule, Sharing, SocketWork, Warmup, generate_with,
};
use lab::stats::histogram::decode;

use crate::load::{counted, run, run_timed, spec, work};
use crate::server::{Account, Act, PATIENT, Server, address_without_listener};

fn open(per_second: f64) -> Arrival {
    Arrival::Open { per_second, schedule: Schedule::Even }
}

/// Histograms have an error of at most 0.1 %.
#[track_caller]
fn check_between(measured_ns: u64, least: Duration, most: Duration) {
    let (measured, least, most) = (real(measured_ns), real_ns(least), real_ns(most));
    assert!(measured >= 0.998 * least, "{measured} where {least} is the least");
    assert!(measured <= 1.002 * most, "{measured} where {most} is the most");
}

fn real_ns(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

/// Bounds of the client's median.
fn median_bounds(account: &Account) -> (Duration, Duration) {
    let (mut served, mut around) = (account.served.clone(), account.around.clone());
    served.sort();
    around.sort();
    // The first and the last request of a connection have no upper bound.
    (served[(served.len() - 1) / 2], around[served.len() / 2])
}

#[allow(clippy::cast_precision_loss)]
fn real(count: u64) -> f64 {
    count as f64
}

#[test]
fn rate_and_latency_are_those_of_the_server() {
    let server = Server::start(|_| Act::ReplyAfter(Duration::from_millis(40)));
    let (report, lasted) = run_timed(&counted(work(server.address), 120), PATIENT).unwrap();
    let account = server.account();
    assert_eq!(report.operations, 120);
    assert_eq!(account.requests, 120);
    assert_eq!(report.windows.iter().sum::<u64>(), 120);
    assert_eq!((report.lost, report.broken_connections, report.unsent), (0, 0, 0));
    assert!(report.errors.is_empty());
    let busy = account.last.unwrap() - account.first.unwrap();
    check_between(report.duration_ns, busy, lasted);
    let (least, most) = median_bounds(&account);
    for text in [&report.latency_raw, &report.latency_corrected] {
        let latency = decode(text).unwrap();
        assert_eq!(latency.len(), 120);
        check_between(latency.value_at_quantile(0.5), least, most);
    }
    // 20 bytes of frame, 16 of key; 5 bytes of reply.
    assert_eq!((report.sent_bytes, report.received_bytes), (120 * 36, 120 * 5));
}

#[test]
fn every_pipelined_request_counts_once() {
    for (threads, sharing, users, pipeline) in [
        (1, Sharing::Blocking, 0, 16),
        (2, Sharing::Blocking, 0, 1),
        (2, Sharing::Blocking, 9, 3),
        (1, Sharing::Multiplexed, 9, 3),
        (2, Sharing::Multiplexed, 2, 64),
    ] {
        let server = Server::start(|_| Act::Reply);
        let work = SocketWork { threads, sharing, users, pipeline, ..work(server.address) };
        let report = run(&counted(work, 10_007)).unwrap();
        let account = server.account();
        assert_eq!(
            (report.operations, account.requests, account.replies),
            (10_007, 10_007, 10_007)
        );
        assert_eq!(decode(&report.latency_raw).unwrap().len(), 10_007);
        assert_eq!(report.lost, 0);
    }
}

#[test]
fn users_that_wait_for_a_connection_see_it_in_their_latency_only() {
    let server = Server::start(|_| Act::ReplyAfter(Duration::from_millis(20)));
    let work = SocketWork { connections: 2, users: 8, ..work(server.address) };
    let report = run(&counted(work, 80)).unwrap();
    let account = server.account();
    let (least, most) = median_bounds(&account);
    let raw = decode(&report.latency_raw).unwrap().value_at_quantile(0.5);
    check_between(raw, least, most);
    // Four users take turns on each connection: six requests of others, three on each, precede a
    // request. All except the first and the last users, fewer than half, wait only for users with
    // known bounds.
    let least = 4 * *account.served.iter().min().unwrap();
    let most = 4 * *account.around.iter().max().unwrap();
    let corrected = decode(&report.latency_corrected).unwrap().value_at_quantile(0.5);
    check_between(corrected, least, most);
}

#[test]
fn requests_of_a_schedule_are_sent_whether_replies_come_or_not() {
    let unsent = |duration_ms: u64| {
        let server = Server::start(|_| Act::ReplyAfter(Duration::from_millis(1)));
        let work = SocketWork {
            threads: 2,
            arrival: open(100_000.0 / real(duration_ms)),
            sharing: Sharing::Multiplexed,
            ..work(server.address)
        };
        let report = run(&spec(work, duration_ms)).unwrap();
        let requests = server.account().requests;
        assert_eq!((report.lost, requests + report.unsent), (0, 100));
        // Replies after the phase are in the histogram, but not in the count.
        assert_eq!(decode(&report.latency_corrected).unwrap().len(), requests);
        assert!(report.operations <= requests);
        report.unsent
    };
    // The last request is due a hundredth of the phase before its end. A generator without
    // processor time at that moment sends it too late; with the longest phase it has half a second.
    let mut runs = [1_000, 10_000, 50_000].into_iter().map(unsent);
    assert!(runs.any(|unsent| unsent == 0), "not all was sent");
}

/// During a pause of a server with 4 connections, 4 requests are in flight; all others wait in the
/// generator, and only corrected latencies include that.
#[test]
fn a_pause_shows_in_corrected_times_and_hides_in_raw_ones() {
    let pause = Duration::from_millis(600);
    let longer = |text: &str, ms: u64| {
        let histogram = decode(text).unwrap();
        histogram.len() - histogram.count_between(0, ms * 1_000_000)
    };
    let paused_run = || {
        let server = Server::start(move |number| match number {
            200 => Act::PauseAll(pause),
            _ => Act::Reply,
        });
        let work = SocketWork { arrival: open(1000.0), ..work(server.address) };
        let report = run(&spec(work, 2000)).unwrap();
        assert_eq!(server.account().requests + report.unsent, 2000);
        // A request that is due during the pause waits until its end.
        let expected = server.account().paused.as_secs_f64() * 1e3 - 200.0;
        let found = real(longer(&report.latency_corrected, 200));
        // If many requests are left at the end, the pause was longer than the phase.
        let is_whole = real(report.unsent) <= 0.05 * expected;
        assert!(!is_whole || found >= 0.9 * expected, "{found} of {expected} waited");
        (report, is_whole && found <= 1.1 * expected)
    };
    // More requests wait if other programs used the processor, which invalidates the run.
    let mut runs = (0..5).map(|_| paused_run());
    let undisturbed = runs.find(|(_, is_undisturbed)| *is_undisturbed);
    let (report, _) = undisturbed.expect("one of five runs is undisturbed");
    assert!(longer(&report.latency_raw, 200) <= 8);
    let quantile = |text: &str| decode(text).unwrap().value_at_quantile(0.9);
    assert!(quantile(&report.latency_corrected) > 4 * quantile(&report.latency_raw));
}

#[test]
fn lost_replies_are_counted() {
    let swallowed = |duration_ms: u64| {
        let server = Server::start(|number| match number % 50 {
            7 => Act::Swallow,
            _ => Act::Reply,
        });
        let arrival = open(400_000.0 / real(duration_ms));
        let work = SocketWork { arrival, sharing: Sharing::Multiplexed, ..work(server.address) };
        // Waiting for them times out.
        let patience = Patience { drain: Duration::from_secs(8), ..PATIENT };
        let (report, _) = run_timed(&spec(work, duration_ms), patience).unwrap();
        let account = server.account();
        assert_eq!(account.requests + report.unsent, 400);
        assert_eq!((report.lost, report.broken_connections), (account.swallowed, 0));
        account.swallowed
    };
    // A generator without processor time for a part of the phase may send fewer.
    assert!([400, 10_000].into_iter().map(swallowed).any(|count| count == 8));
}

#[test]
fn closed_connections_and_what_they_take_along_are_counted() {
    let server = Server::start(|number| if number == 64 { Act::Close } else { Act::Reply });
    let work = SocketWork { pipeline: 16, ..work(server.address) };
    let report = run(&counted(work, 1600)).unwrap();
    assert_eq!(report.broken_connections, 1);
    // Requests of one batch without replies are lost; the other connections used the rest of the
    // budget.
    assert!((1..=16).contains(&report.lost), "{}", report.lost);
    assert_eq!(report.operations + report.lost, 1600);
    assert!(report.operations <= server.account().replies);
}

/// Two concurrent loads: the leading one ends after its operations, and each has separate results.
#[test]
fn loads_beside_each_other_are_counted_apart() {
    let (fast, slow) = (
        Server::start(|_| Act::Reply),
        Server::start(|_| Act::ReplyAfter(Duration::from_millis(10))),
    );
    let mut spec = counted(SocketWork { threads: 2, ..work(slow.address) }, 200);
    let side_loads = SocketWork { connections: 3, pipeline: 5, ..work(fast.address) };
    spec.side_loads.insert("beside".to_owned(), side_loads);
    let (report, lasted) = run_timed(&spec, PATIENT).unwrap();
    assert_eq!(report.operations, 200);
    let other = &report.side_loads["beside"];
    let account = fast.account();
    // Requests in flight at the end do not belong to the phase.
    assert!(other.operations > 0 && other.operations <= account.requests, "{}", other.operations);
    assert_eq!(account.requests % 5, 0);
    assert_eq!((report.lost, other.lost), (0, 0));
    assert_eq!(other.windows.iter().sum::<u64>(), other.operations);
    assert_eq!(decode(&other.latency_raw).unwrap().len(), other.operations);
    assert_eq!(report.operations_of_all(), 200 + other.operations);
    let slowest = slow.account().served.into_iter().min().unwrap().as_nanos() as u64;
    assert!(decode(&report.latency_raw).unwrap().min() >= slowest * 99 / 100);
    // All of them are threads of the same generator.
    assert!(other.threads.is_empty());
    assert!(report.threads.iter().filter(|thread| thread.name.starts_with('r')).count() >= 3);
    // The additional load ends shortly after the first.
    check_between(other.duration_ns, Duration::from_nanos(report.duration_ns), lasted);
}

#[test]
fn a_server_that_goes_away_ends_the_load() {
    let server = Server::start(|number| if number < 100 { Act::Reply } else { Act::Close });
    let report = run(&counted(work(server.address), 1_000_000)).unwrap();
    assert_eq!(report.broken_connections, 4);
    assert_eq!(report.operations, 100);
    assert_eq!(report.lost, 4);
    assert!(report.duration_ns < 50_000_000_000);
}

#[test]
fn errors_are_counted_by_their_first_word() {
    let server = Server::start(|number| if number % 10 == 3 { Act::Error } else { Act::Reply });
    let work = SocketWork { pipeline: 8, ..work(server.address) };
    let report = run(&counted(work, 1000)).unwrap();
    let account = server.account();
    assert_eq!(account.errors, 100);
    assert_eq!(report.errors.len(), 1);
    assert_eq!(report.errors["BUSY"], account.errors);
    assert_eq!(report.operations, 1000);
}

#[test]
fn a_server_that_says_nothing_has_stalled() {
    let server = Server::start(|_| Act::Swallow);
    let work = SocketWork { pipeline: 3, threads: 2, ..work(server.address) };
    let (report, _) = run_timed(&spec(work, 3_600_000), Patience::default()).unwrap();
    assert_eq!(report.stalled_connections, 4);
    assert_eq!((report.operations, report.lost), (0, 12));
    // The stall ends the wait.
    assert!(report.duration_ns < 3_000_000_000_000);
}

#[test]
fn nonsense_is_no_result() {
    let server = Server::start(|number| if number < 10 { Act::Reply } else { Act::Nonsense });
    let reason = run(&spec(work(server.address), 60_000)).unwrap_err();
    assert!(reason.contains("reply"), "{reason}");
}

#[test]
fn a_refused_setup_is_no_result() {
    let server = Server::start(|_| Act::Error);
    let mut work = work(server.address);
    work.password = Some("secret".to_owned());
    let reason = run(&spec(work, 10_000)).unwrap_err();
    assert_eq!(reason, "the server refused the setup: -BUSY come back later");
}

#[test]
fn a_missing_server_is_no_result() {
    let (_kept, address) = address_without_listener();
    let reason = run(&spec(work(address), 10_000)).unwrap_err();
    assert!(reason.contains("connection 1 of 4"), "{reason}");
}

/// Ten times as many requests are due as one thread can send.
#[test]
fn a_generator_at_its_limit_is_late() {
    let late = |per_second, duration_ms| {
        let server = Server::echo();
        let work = SocketWork {
            arrival: open(per_second),
            sharing: Sharing::Multiplexed,
            ..work(server.address)
        };
        run(&spec(work, duration_ms)).unwrap()
    };
    // A thread that stalls between turns causes a different delay: a longer phase covers it.
    let mut overloaded = [300, 1_000, 3_000].into_iter().map(|duration_ms| {
        let report = late(100_000_000.0, duration_ms);
        assert!(report.unsent > 1_000_000, "{}", report.unsent);
        report.lag_ns_p99
    });
    let overloaded_ns = overloaded.find(|lag_ns| *lag_ns > 100_000_000).expect("it is late");
    let mut relaxed = [1_000, 10_000, 60_000].into_iter().map(|duration_ms| {
        // Ten requests, the last of them due a tenth of the phase before its end.
        let report = late(10_000.0 / real(duration_ms), duration_ms);
        report.unsent == 0 && report.lag_ns_p99 < overloaded_ns / 2
    });
    assert!(relaxed.any(|is_in_time| is_in_time), "a relaxed generator is in time");
}

#[test]
fn a_steady_warm_up_ends_before_its_time() {
    let server = Server::start(|_| Act::ReplyAfter(Duration::from_millis(5)));
    let mut spec = spec(work(server.address), 100);
    spec.warmup = Warmup::Steady { max_ms: 600_000 };
    let mut events = Vec::new();
    generate_with(&spec, PATIENT, &mut |event| {
        events.push(event);
        Ok(())
    })
    .unwrap();
    assert_eq!(events[0], LoadEvent::Connected);
    assert!(
        matches!(events[1], LoadEvent::Measuring { warmup_ms } if warmup_ms < 600_000),
        "{:?}",
        events[1]
    );
    assert!(matches!(events[events.len() - 2], LoadEvent::Measured));
    let LoadEvent::Done(report) = &events[events.len() - 1] else { panic!("{events:?}") };
    assert_eq!(report.windows.len(), 2);
    assert_eq!(report.duration_ns, 100_000_000);
}
