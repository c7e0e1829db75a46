//! Compares the generator's report for a web server with the server's own records. The server
//! refuses, closes connections and is silent as planned.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lab::load::{
    Arrival, HttpConnection, HttpVersion, HttpWork, LoadReport, Operation, Protocol, Schedule,
    SocketWork,
};
use lab::stats::histogram::decode;
use parking_lot::Mutex;

use crate::load::{self, counted, run, spec};
use crate::server::{accept, address_without_listener};

/// Reaction to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Hello,
    /// With a delay until the connection is closed.
    HelloAndWait,
    /// Chunked, with a write per chunk.
    Chunks,
    /// Delimited by the end of the connection.
    UntilClose,
    Busy,
    /// More content is announced than sent.
    Cut,
    /// A page of another length.
    Long,
    Nonsense,
    /// The connection is closed without a response.
    Close,
    /// The connection is reset.
    Reset,
    /// There is never a response.
    Silent,
}

const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// The server's own records.
#[derive(Debug, Clone, Default)]
struct Account {
    connections: u64,
    requests: u64,
    /// Connections closed by the client before the server.
    left: u64,
    heads: Vec<String>,
}

struct State {
    /// By the number of the request, counted over all connections from 0.
    plan: Box<dyn Fn(u64) -> Act + Send + Sync>,
    account: Mutex<Account>,
}

struct Server {
    address: SocketAddr,
    state: Arc<State>,
}

impl Server {
    fn start(plan: impl Fn(u64) -> Act + Send + Sync + 'static) -> Server {
        let state = Arc::new(State { plan: Box::new(plan), account: Mutex::default() });
        let shared = Arc::clone(&state);
        let address = accept(move |stream| {
            shared.account.lock().connections += 1;
            serve(stream, &shared);
        });
        Server { address, state }
    }

    fn account(&self) -> Account {
        self.state.account.lock().clone()
    }
}

fn serve(mut stream: TcpStream, state: &State) {
    stream.set_nodelay(true).unwrap();
    let (mut input, mut chunk) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        let count = match stream.read(&mut chunk) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("{error}"),
        };
        if count == 0 {
            state.account.lock().left += 1;
            return;
        }
        input.extend_from_slice(&chunk[..count]);
        while let Some(end) = head_end(&input) {
            let head = String::from_utf8(input.drain(..end).collect()).unwrap();
            let number = {
                let mut account = state.account.lock();
                account.heads.push(head.clone());
                account.requests += 1;
                account.requests - 1
            };
            let act = (state.plan)(number);
            let goes_on = answer(&mut stream, act);
            if act == Act::HelloAndWait {
                stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
                let was_left = stream.read(&mut chunk).is_ok_and(|count| count == 0);
                state.account.lock().left += u64::from(was_left);
            }
            if !goes_on || head.contains("Connection: close") {
                return;
            }
        }
    }
}

/// End of a request without a body; an HTTP/0.9 request is a line.
fn head_end(input: &[u8]) -> Option<usize> {
    let line = input.windows(2).position(|two| two == b"\r\n")?;
    if !input[..line].windows(5).any(|five| five == b"HTTP/") {
        return Some(line + 2);
    }
    input.windows(4).position(|four| four == b"\r\n\r\n").map(|end| end + 4)
}

/// Returns whether the connection continues. The client may have disconnected.
fn answer(stream: &mut TcpStream, act: Act) -> bool {
    let mut send = |bytes: &[u8]| stream.write_all(bytes).is_ok();
    match act {
        Act::Hello | Act::HelloAndWait => send(HELLO),
        Act::Chunks => {
            let pieces: [&[u8]; 5] = [
                b"HTTP/1.1 200 OK\r\nTransfer-Enc",
                b"oding: chunked\r\n\r\n3\r",
                b"\nhel\r\n2\r\nl",
                b"o\r\n0\r\n",
                b"\r\n",
            ];
            pieces.into_iter().all(send)
        }
        Act::UntilClose => {
            send(b"HTTP/1.1 200 OK\r\n\r\nhello");
            false
        }
        Act::Busy => send(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy"),
        Act::Cut => {
            send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel");
            false
        }
        Act::Long => send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello!"),
        Act::Nonsense => {
            send(b"+OK\r\n\r\n");
            false
        }
        Act::Close => false,
        Act::Reset => {
            rustix::net::sockopt::set_socket_linger(&*stream, Some(Duration::ZERO)).unwrap();
            false
        }
        Act::Silent => true,
    }
}

fn work(address: SocketAddr, http: HttpWork) -> SocketWork {
    SocketWork {
        protocol: Protocol::Http,
        connections: 3,
        mix: vec![Operation { weight: 1.0, words: vec!["GET".to_owned(), "/".to_owned()] }],
        http: Some(Box::new(HttpWork { body_bytes: Some(5), ..http })),
        ..load::work(address)
    }
}

/// Timeouts long enough for a server that stalls for seconds.
fn kept() -> HttpWork {
    HttpWork { timeout_ms: 60_000, ..HttpWork::default() }
}

/// A connection per request.
fn short() -> HttpWork {
    HttpWork { connection: HttpConnection::Close, ..kept() }
}

/// Runs this many requests, however long they take.
fn measure(work: SocketWork, requests: u64) -> LoadReport {
    run(&counted(work, requests)).unwrap()
}

/// Checks that `report` has this many operations and these failures, and no other problem.
#[track_caller]
fn check(report: &LoadReport, operations: u64, failures: &[(&str, u64)]) {
    let failures: BTreeMap<String, u64> =
        failures.iter().map(|(word, count)| ((*word).to_owned(), *count)).collect();
    assert_eq!((report.operations, &report.errors), (operations, &failures));
    assert_eq!((report.lost, report.broken_connections, report.unfinished), (0, 0, 0));
    assert_eq!(decode(&report.latency_raw).unwrap().len(), operations);
}

#[test]
fn kept_connections_take_request_after_request() {
    for (threads, connections, users, pipeline) in
        [(1, 1, 0, 1), (2, 3, 0, 1), (1, 2, 7, 1), (1, 3, 0, 16)]
    {
        let server = Server::start(|number| if number % 2 == 0 { Act::Hello } else { Act::Chunks });
        let work = work(server.address, kept());
        let report = measure(SocketWork { threads, connections, users, pipeline, ..work }, 480);
        check(&report, 480, &[]);
        let account = server.account();
        assert_eq!(account.requests, 480);
        // A thread that starts late has nothing left to do.
        let is_all = account.connections == connections as u64;
        assert!(is_all || threads > 1, "{} connections", account.connections);
        assert_eq!(account.heads[0], "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(report.sent_bytes, 480 * account.heads[0].len() as u64);
    }
}

#[test]
fn a_connection_for_one_request_is_closed_by_the_server_first() {
    for (threads, connections, users) in [(1, 1, 0), (2, 5, 0), (1, 2, 9)] {
        let acts = [Act::Hello, Act::Chunks, Act::UntilClose];
        let server = Server::start(move |number| acts[number as usize % 3]);
        let work = work(server.address, short());
        let report = measure(SocketWork { threads, connections, users, ..work }, 300);
        check(&report, 300, &[]);
        let account = server.account();
        assert_eq!((account.requests, account.connections), (300, 300));
        assert!(account.heads.iter().all(|head| head.contains("\r\nConnection: close\r\n")));
    }
    let server = Server::start(|_| Act::HelloAndWait);
    check(&measure(work(server.address, short()), 9), 9, &[]);
    // Connections that were open at the end of the load do not count.
    assert_eq!(server.account().connections, 9);
    assert!(server.account().left <= 3, "{} were left", server.account().left);
}

#[test]
fn connections_that_end_are_opened_again() {
    // Each third response is the last of its connection.
    let acts = [Act::Hello, Act::Hello, Act::UntilClose];
    let server = Server::start(move |number| acts[number as usize % 3]);
    let work = work(server.address, kept());
    let report = measure(SocketWork { connections: 1, ..work }, 30);
    check(&report, 30, &[]);
    assert_eq!(server.account().connections, 10);
}

#[test]
fn failures_are_counted_by_what_happened_and_never_as_done() {
    for (connection, act, word) in [
        (HttpConnection::KeepAlive, Act::Busy, "status 503"),
        (HttpConnection::Close, Act::Busy, "status 503"),
        (HttpConnection::KeepAlive, Act::Cut, "cut short"),
        (HttpConnection::Close, Act::Cut, "cut short"),
        (HttpConnection::KeepAlive, Act::Long, "length"),
        (HttpConnection::Close, Act::Nonsense, "malformed"),
        (HttpConnection::KeepAlive, Act::Close, "closed"),
        (HttpConnection::Close, Act::Reset, "reset"),
    ] {
        let server = Server::start(move |number| if number % 5 == 4 { act } else { Act::Hello });
        let http = HttpWork { connection, ..kept() };
        check(&measure(work(server.address, http), 100), 80, &[(word, 20)]);
        assert_eq!(server.account().requests, 100);
    }
}

#[test]
fn an_address_without_a_listener_refuses() {
    let (_kept, address) = address_without_listener();
    for http in [short(), kept()] {
        check(&measure(work(address, http), 7), 0, &[("refused", 7)]);
    }
}

#[test]
fn silence_is_a_failure_when_its_time_is_over_and_nothing_before() {
    let start = |timeout_ms: u64| {
        let plan = |number| if number == 3 { Act::Silent } else { Act::Hello };
        let server = Server::start(plan);
        let work = work(server.address, HttpWork { timeout_ms, ..kept() });
        (server, SocketWork { connections: 1, ..work })
    };
    // A stalled server is silent too: retry with more time.
    let ended = |timeout_ms: u64| {
        let (server, work) = start(timeout_ms);
        (measure(work, 8), server.account().connections)
    };
    let mut runs = [400, 2_000, 10_000].into_iter().map(ended);
    let (report, connections) =
        runs.find(|(report, _)| report.operations == 7).expect("seven requests are answered");
    check(&report, 7, &[("timed out", 1)]);
    assert_eq!(connections, 2);

    let unfinished = |duration_ms: u64| {
        let (_server, work) = start(60_000);
        run(&spec(work, duration_ms)).unwrap()
    };
    let mut runs = [300, 2_000, 10_000].into_iter().map(unfinished);
    let report = runs.find(|report| report.operations == 3).expect("three requests are answered");
    assert_eq!(report.unfinished, 1);
    assert!(report.errors.is_empty() && report.lost == 0, "{report:?}");
}

#[test]
fn a_schedule_opens_as_many_connections_as_it_needs() {
    for http in [short(), kept()] {
        let server = Server::start(|_| Act::Hello);
        let arrival = Arrival::Open { per_second: 500.0, schedule: Schedule::Poisson };
        let work = SocketWork { arrival, connections: 20, ..work(server.address, http.clone()) };
        let report = measure(work, 60);
        check(&report, 60, &[]);
        let account = server.account();
        assert_eq!(account.requests, 60);
        let is_short = http.connection == HttpConnection::Close;
        assert_eq!(account.connections == 60, is_short, "{}", account.connections);
    }
}

#[test]
fn older_clients_wait_for_the_end_or_for_nothing() {
    let server = Server::start(|_| Act::UntilClose);
    let http = HttpWork { version: HttpVersion::V0_9, ..short() };
    let mut lines = work(server.address, http);
    // The response is everything received.
    lines.http.as_mut().unwrap().body_bytes = None;
    check(&measure(lines, 20), 20, &[]);
    assert_eq!(server.account().heads[0], "GET /\r\n");

    let server = Server::start(|_| Act::Hello);
    let http = HttpWork { ignores_answers: true, ..short() };
    check(&measure(work(server.address, http), 20), 20, &[]);
    // The load has not waited for the server to accept them.
    let until = Instant::now() + Duration::from_mins(1);
    while server.account().connections < 20 {
        assert!(Instant::now() < until, "{} connections", server.account().connections);
        std::thread::yield_now();
    }
    assert_eq!(server.account().connections, 20);
}
