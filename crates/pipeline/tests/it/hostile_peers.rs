//! Peers that violate the protocol are disconnected, and a concurrent run loses nothing.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pipeline::collector::CREDITS;
use pipeline::frame::{HEADER_BYTES, Header, Kind, PAYLOAD_BYTES_MAX, STATUS_BYTES_MAX};
use pipeline::link::Link;
use pipeline::message::{
    CollectorWelcome, ExecutorWelcome, GeneratorWelcome, Hello, NAME_BYTES_MAX,
};
use pipeline::monitor::{self, MonitorOptions, Reporter};
use pipeline::status::{GeneratorStatus, Status};

use crate::faults::{
    STREAM, TASKS, check_account, collect, execute, generate, listen, run_generator,
};

/// Silent connections to each port. Fewer than the limit of concurrent handshakes.
const SILENT: usize = 40;

/// Encodes a frame with correct checksums.
fn frame(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut header = Header::control(kind, STREAM, 1);
    header.count = 1;
    [&header.with_payload(payload).encode()[..], payload].concat()
}

fn hello(hello: &Hello) -> Vec<u8> {
    frame(Kind::Hello, &serde_json::to_vec(hello).unwrap())
}

/// First messages that every part refuses.
fn first_messages() -> Vec<Vec<u8>> {
    let mut promise = Header::control(Kind::Result, STREAM, 1);
    (promise.count, promise.payload_bytes) = (1, u32::try_from(PAYLOAD_BYTES_MAX).unwrap());
    let long_name = "n".repeat(NAME_BYTES_MAX + 1);
    let mut damaged = hello(&Hello::Executor { stream: None, name: "x".into() });
    *damaged.last_mut().unwrap() ^= 1;
    vec![
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(3),
        vec![0xff; HEADER_BYTES],
        promise.encode().to_vec(),
        frame(Kind::Hello, b"{"),
        frame(Kind::Hello, b"{\"role\":\"king\"}"),
        frame(Kind::Finish, b""),
        frame(Kind::Account, b"{}"),
        hello(&Hello::Executor { stream: Some(STREAM), name: long_name.clone() }),
        hello(&Hello::Reporter { stage: "all".into(), name: long_name, instance: 1 }),
        damaged,
    ]
}

/// Sends bytes, and waits for the end of the connection. A reset is possible, because not
/// everything is read.
fn is_disconnected(address: SocketAddr, messages: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let _ = stream.write_all(messages);
    let mut rest = Vec::new();
    let ended = stream.read_to_end(&mut rest).map_err(|error| error.kind());
    let shown = messages.escape_ascii().take(100).collect::<Vec<_>>();
    let is_end = matches!(ended, Ok(_) | Err(std::io::ErrorKind::ConnectionReset));
    assert!(is_end, "{ended:?}: {}", shown.escape_ascii());
}

fn silent(address: SocketAddr) -> Vec<TcpStream> {
    let connect = |_| TcpStream::connect(address).unwrap();
    (0..SILENT).map(connect).collect()
}

/// An executor that requests tasks, computes none of them, and complains about others.
fn idle_executor(generator: SocketAddr) {
    let mut link = Link::connect(generator).unwrap();
    let greeting = Hello::Executor { stream: None, name: "\n\u{1b}[2J".into() };
    link.send_message(Header::control(Kind::Hello, 0, 0), &greeting).unwrap();
    let mut buffer = Vec::new();
    let _: ExecutorWelcome = link.receive_message(Kind::Welcome, &mut buffer).unwrap();
    let mut credit = Header::control(Kind::Credit, STREAM, 1);
    credit.count = u32::MAX;
    for _ in 0..3 {
        link.send(&credit, &[]).unwrap();
    }
    let pairs: Vec<u8> = (0..512).flat_map(|number: u64| (number << 40).to_be_bytes()).collect();
    for payload in [&pairs[..], &[0xff; 4096], b"odd"] {
        let nack = Header::control(Kind::Nack, STREAM, 1).with_payload(payload);
        link.send(&nack, payload).unwrap();
    }
    // Ends the connection: a generator sends no account.
    let _ = link.send(&Header::control(Kind::Account, STREAM, 1), &[]);
    while link.receive(&mut buffer).is_ok() {}
}

/// An executor whose results belong to no task.
fn faulty_executor(collector: SocketAddr) {
    let mut link = Link::connect(collector).unwrap();
    let greeting = Hello::Executor { stream: Some(STREAM), name: String::new() };
    let mut buffer = Vec::new();
    // Wait for the generator.
    loop {
        link.send_message(Header::control(Kind::Hello, STREAM, 0), &greeting).unwrap();
        match link.receive_message::<CollectorWelcome>(Kind::Welcome, &mut buffer) {
            Ok(welcome) => break assert_eq!(welcome.credits, CREDITS),
            Err(_) => link = Link::connect(collector).unwrap(),
        }
    }
    for first_id in [0, 50, 1 << 40, u64::MAX - 1] {
        let mut header = Header::control(Kind::Result, STREAM, 1);
        (header.sequence, header.first_id, header.count) = (first_id, first_id, 1);
        let payload = [7; 44];
        link.send(&header.with_payload(&payload), &payload).unwrap();
        // Simulates damage in transit.
        link.send(&header.with_payload(&payload), &[8; 44]).unwrap();
    }
    let mut header = Header::control(Kind::Result, STREAM + 1, 1);
    header.count = 1;
    let _ = link.send(&header.with_payload(&[]), &[]);
    while link.receive(&mut buffer).is_ok() {}
}

#[test]
fn hostile_peers_do_not_disturb_a_run() {
    let over = Arc::new(AtomicBool::new(false));
    let (for_executors, generator) = listen();
    let (for_results, collector) = listen();
    let collecting = collect(for_results, None, Arc::clone(&over));
    let options = generate(for_executors, collector, TASKS);
    let generating = thread::spawn(move || run_generator(options));
    let silent = [silent(generator), silent(collector)];
    for address in [generator, collector] {
        for messages in first_messages() {
            is_disconnected(address, &messages);
        }
    }
    idle_executor(generator);
    faulty_executor(collector);
    let executing = execute(generator, collector, &over);
    let summary = generating.join().unwrap();
    over.store(true, Ordering::SeqCst);
    check_account(&summary);
    assert_eq!(summary.account.damaged_frames, 8, "{:?}", summary.account);
    drop(silent);
    executing.join().unwrap().unwrap();
    collecting.join().unwrap();
}

/// A generator with any epoch may be right if the collector has lost its state, and must not leave
/// the stream without further epochs.
#[test]
fn no_message_uses_up_the_epochs() {
    let over = Arc::new(AtomicBool::new(false));
    let (for_executors, generator) = listen();
    let (for_results, collector) = listen();
    let collecting = collect(for_results, None, Arc::clone(&over));
    let options = generate(for_executors, collector, TASKS);
    for epoch in [u32::MAX, u32::MAX - 1, 1 << 20] {
        let mut link = Link::connect(collector).unwrap();
        let plan = options.plan.clone();
        let greeting = Hello::Generator { stream: STREAM, epoch: Some(epoch), plan };
        link.send_message(Header::control(Kind::Hello, STREAM, epoch), &greeting).unwrap();
        let answer = link.receive_message::<GeneratorWelcome>(Kind::Welcome, &mut Vec::new());
        let error = answer.unwrap_err().to_string();
        assert!(error.contains("is too far from 0"), "{error}");
    }
    let generating = thread::spawn(move || run_generator(options));
    let executing = execute(generator, collector, &over);
    let summary = generating.join().unwrap();
    over.store(true, Ordering::SeqCst);
    assert_eq!(summary.epoch, 1);
    check_account(&summary);
    executing.join().unwrap().unwrap();
    collecting.join().unwrap();
}

#[test]
fn hostile_peers_do_not_disturb_a_monitor() {
    let (listener, reports) = listen();
    let (pages, page) = listen();
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = Arc::clone(&stop);
    let options = MonitorOptions { listener, pages, out: None };
    let monitor = thread::spawn(move || monitor::run(options, &stopping));
    let silent = silent(reports);
    let greeting = hello(&Hello::Reporter { stage: "all".into(), name: "r".into(), instance: 1 });
    let mut too_long = Header::control(Kind::Status, 0, 0);
    too_long.payload_bytes = u32::try_from(STATUS_BYTES_MAX).unwrap() + 1;
    let after_greeting = [
        frame(Kind::Status, b"{}"),
        frame(Kind::Status, b"{\"state\":\"running\",\"status\":{\"stage\":\"king\"}}"),
        too_long.encode().to_vec(),
        frame(Kind::Data, b""),
    ];
    let greeted = after_greeting.iter().map(|messages| [&greeting[..], messages].concat());
    for messages in first_messages().into_iter().chain(greeted) {
        is_disconnected(reports, &messages);
    }
    for messages in [&b"POST / HTTP/1.1\r\n\r\n"[..], &b"x".repeat(9 << 10), b"\0\r\n\r\n"] {
        is_disconnected(page, messages);
    }
    let reporter = Reporter::start(reports, "real".into());
    let status = GeneratorStatus { next_id: 5, ..Default::default() };
    reporter.finish(Ok(vec![Status::Generator(status)]));
    let mut stream = TcpStream::connect(page).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("tasks_total{stage=\"generator\"} 5\n"), "{answer}");
    assert!(answer.contains("parts{state=\"running\"} 0\n"), "{answer}");
    stop.store(true, Ordering::SeqCst);
    drop(silent);
    monitor.join().unwrap().unwrap();
}
