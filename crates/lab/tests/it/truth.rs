//! What the generator says is compared with what the server did: counts exactly, rates and times
//! within 2 %. Nothing here is compared with what a quiet machine would do.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use lab::load::{
    Arrival, Distribution, Keys, LoadEvent, LoadReport, LoadSpec, Operation, Protocol, Schedule,
    Sharing, Sizes, SocketWork, Warmup, Work, generate,
};
use lab::stats::histogram::decode;

use crate::server::{Act, Server};

fn work(address: SocketAddr) -> SocketWork {
    SocketWork {
        protocol: Protocol::Resp,
        address,
        password: None,
        threads: 1,
        connections: 4,
        users: 0,
        sharing: Sharing::Blocking,
        pipeline: 1,
        arrival: Arrival::Closed,
        mix: vec![Operation { weight: 1.0, words: vec!["GET".to_owned(), "{key}".to_owned()] }],
        keys: Keys { prefix: "key:".to_owned(), count: 1000, distribution: Distribution::Uniform },
        value_bytes: Sizes::Fixed(80),
        setup: Vec::new(),
        cql: None,
        http: None,
    }
}

fn spec(work: SocketWork, duration_ms: u64) -> LoadSpec {
    LoadSpec {
        work: Work::Socket(work),
        beside: BTreeMap::new(),
        warmup: Warmup::Fixed { ms: 0 },
        duration_ms,
        operations_max: None,
        window_ms: 50,
        cpus: Vec::new(),
        seed: 1,
    }
}

/// So many operations, however long they take.
fn counted(work: SocketWork, operations: u64) -> LoadSpec {
    LoadSpec { operations_max: Some(operations), ..spec(work, 60_000) }
}

fn run(spec: &LoadSpec) -> Result<LoadReport, String> {
    let mut report = None;
    let ended = generate(spec, &mut |event| {
        if let LoadEvent::Done(done) = event {
            report = Some(*done);
        }
        Ok(())
    });
    ended.map_err(|error| format!("{error:#}"))?;
    Ok(report.expect("a load that ended well has a report"))
}

fn open(per_second: f64) -> Arrival {
    Arrival::Open { per_second, schedule: Schedule::Even }
}

#[track_caller]
fn check_close(measured: f64, truth: f64, tolerance: f64) {
    let off = (measured / truth - 1.0).abs();
    assert!(off <= tolerance, "{measured} where {truth} is true: off by {:.1} %", off * 100.0);
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[allow(clippy::cast_precision_loss)]
fn real(count: u64) -> f64 {
    count as f64
}

#[test]
fn rate_and_latency_are_those_of_the_server() {
    let server = Server::start(|_| Act::ReplyAfter(Duration::from_millis(40)));
    let report = run(&counted(work(server.address), 120)).unwrap();
    let mut account = server.account();
    assert_eq!(report.operations, 120);
    assert_eq!(account.requests, 120);
    assert_eq!(report.windows.iter().sum::<u64>(), 120);
    assert_eq!((report.lost, report.broken_connections, report.unsent), (0, 0, 0));
    assert!(report.errors.is_empty());
    let busy = account.last.unwrap() - account.first.unwrap();
    check_close(real(report.duration_ns), busy.as_secs_f64() * 1e9, 0.02);
    for text in [&report.latency_raw, &report.latency_corrected] {
        let latency = decode(text).unwrap();
        assert_eq!(latency.len(), 120);
        let served = median(&mut account.served);
        check_close(real(latency.value_at_quantile(0.5)), served.as_secs_f64() * 1e9, 0.02);
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
    let served = median(&mut server.account().served).as_secs_f64() * 1e9;
    // Four users take turns on each connection.
    let raw = decode(&report.latency_raw).unwrap().value_at_quantile(0.5);
    let corrected = decode(&report.latency_corrected).unwrap().value_at_quantile(0.5);
    check_close(real(raw), served, 0.05);
    check_close(real(corrected), 4.0 * served, 0.05);
}

#[test]
fn requests_of_a_schedule_are_sent_whether_replies_come_or_not() {
    let server = Server::start(|_| Act::ReplyAfter(Duration::from_millis(1)));
    let work = SocketWork {
        threads: 2,
        arrival: open(400.0),
        sharing: Sharing::Multiplexed,
        ..work(server.address)
    };
    let report = run(&spec(work, 1000)).unwrap();
    assert_eq!(server.account().requests, 400);
    assert_eq!((report.lost, report.unsent), (0, 0));
    // Those that came after the phase are in the histogram, not in the count.
    assert_eq!(decode(&report.latency_corrected).unwrap().len(), 400);
    assert!(report.operations <= 400);
}

/// In the pause of a server with 4 connections, 4 requests are on their way; all others wait in the
/// generator, and only times from when they were due know of it.
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
        assert_eq!(server.account().requests, 2000);
        assert_eq!(report.unsent, 0);
        // A request due when so much of the pause was left waited as long.
        let expected = server.account().paused.as_secs_f64() * 1e3 - 200.0;
        let found = real(longer(&report.latency_corrected, 200));
        assert!(found >= 0.9 * expected, "{found} of {expected} waited");
        (report, found <= 1.1 * expected)
    };
    // More waited where something else took the processor, too: that is so, but no measure.
    let mut runs = (0..5).map(|_| paused_run());
    let undisturbed = runs.find(|(_, is_undisturbed)| *is_undisturbed);
    let (report, _) = undisturbed.expect("one of five runs is left alone");
    assert!(longer(&report.latency_raw, 200) <= 8);
    let quantile = |text: &str| decode(text).unwrap().value_at_quantile(0.9);
    assert!(quantile(&report.latency_corrected) > 4 * quantile(&report.latency_raw));
}

#[test]
fn lost_replies_are_counted() {
    let server = Server::start(|number| match number % 50 {
        7 => Act::Swallow,
        _ => Act::Reply,
    });
    let work =
        SocketWork { arrival: open(1000.0), sharing: Sharing::Multiplexed, ..work(server.address) };
    let report = run(&spec(work, 400)).unwrap();
    let account = server.account();
    assert_eq!((account.requests, account.swallowed), (400, 8));
    assert_eq!(report.lost, 8);
    assert_eq!(report.broken_connections, 0);
}

#[test]
fn closed_connections_and_what_they_take_along_are_counted() {
    let server = Server::start(|number| if number == 64 { Act::Close } else { Act::Reply });
    let work = SocketWork { pipeline: 16, ..work(server.address) };
    let report = run(&counted(work, 1600)).unwrap();
    assert_eq!(report.broken_connections, 1);
    // What had no reply of one batch is lost; the rest of the budget went over the others.
    assert!((1..=16).contains(&report.lost), "{}", report.lost);
    assert_eq!(report.operations + report.lost, 1600);
    assert!(report.operations <= server.account().replies);
}

/// Two loads at once: the one that leads ends after its operations, and each has its own account.
#[test]
fn loads_beside_each_other_are_counted_apart() {
    let (fast, slow) = (
        Server::start(|_| Act::Reply),
        Server::start(|_| Act::ReplyAfter(Duration::from_millis(10))),
    );
    let mut spec = counted(SocketWork { threads: 2, ..work(slow.address) }, 200);
    let beside = SocketWork { connections: 3, pipeline: 5, ..work(fast.address) };
    spec.beside.insert("beside".to_owned(), beside);
    let report = run(&spec).unwrap();
    assert_eq!(report.operations, 200);
    let other = &report.beside["beside"];
    let account = fast.account();
    // What was on its way at the end is not of the phase.
    assert!(other.operations > 0 && other.operations <= account.requests, "{}", other.operations);
    assert_eq!(account.requests % 5, 0);
    assert_eq!((report.lost, other.lost), (0, 0));
    assert_eq!(other.windows.iter().sum::<u64>(), other.operations);
    assert_eq!(decode(&other.latency_raw).unwrap().len(), other.operations);
    assert_eq!(report.operations_of_all(), 200 + other.operations);
    let slowest = slow.account().served.into_iter().min().unwrap().as_nanos() as u64;
    assert!(decode(&report.latency_raw).unwrap().min() >= slowest * 99 / 100);
    // All of them are threads of the one generator.
    assert!(other.threads.is_empty());
    assert!(report.threads.iter().filter(|thread| thread.name.starts_with('r')).count() >= 3);
    assert!(other.duration_ns.abs_diff(report.duration_ns) < 100_000_000);
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
    let report = run(&spec(work, 3_600_000)).unwrap();
    assert_eq!(report.stalled_connections, 4);
    assert_eq!((report.operations, report.lost), (0, 12));
    // It is not waited for until the end.
    assert!(report.duration_ns < 3_000_000_000_000);
}

#[test]
fn nonsense_is_no_result() {
    let server = Server::start(|number| if number < 10 { Act::Reply } else { Act::Nonsense });
    let reason = run(&spec(work(server.address), 10_000)).unwrap_err();
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
fn nobody_there_is_no_result() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let reason = run(&spec(work(address), 10_000)).unwrap_err();
    assert!(reason.contains("connection 1 of 4"), "{reason}");
}

/// Ten times as many requests are due as one thread can send.
#[test]
fn a_generator_at_its_limit_is_late() {
    let late = |per_second| {
        let server = Server::echo();
        let work = SocketWork {
            arrival: open(per_second),
            sharing: Sharing::Multiplexed,
            ..work(server.address)
        };
        run(&spec(work, 300)).unwrap()
    };
    let (relaxed, overloaded) = (late(100.0), late(100_000_000.0));
    assert!(overloaded.lag_ns_p99 > 100_000_000, "{}", overloaded.lag_ns_p99);
    assert!(overloaded.unsent > 1_000_000, "{}", overloaded.unsent);
    assert!(relaxed.lag_ns_p99 < overloaded.lag_ns_p99 / 2, "{}", relaxed.lag_ns_p99);
    assert_eq!(relaxed.unsent, 0);
}

#[test]
fn a_steady_warm_up_ends_before_its_time() {
    let server = Server::start(|_| Act::ReplyAfter(Duration::from_millis(5)));
    let mut spec = spec(work(server.address), 100);
    spec.warmup = Warmup::Steady { max_ms: 600_000 };
    let mut events = Vec::new();
    generate(&spec, &mut |event| {
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
