//! Many clients on one thread, each of which repeatedly requests the same page.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::time::Timespec;

use super::stay_on_load_cpu;
use super::talk::{GET, GET_OLD, HELLO_BODY_BYTES};

const EVENTS_MAX: usize = 512;
/// Interval at which the stop flag is checked.
const WAIT_MAX: Duration = Duration::from_millis(5);
/// Delay before a failed client retries.
const RETRY: Duration = Duration::from_millis(5);
/// Failures that are recorded individually; further ones are only counted.
const FAILURES_MAX: usize = 10_000;
/// Longer responses are not the expected page.
const ANSWER_BYTES_MAX: usize = 4096;

/// Request pattern of the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// A new connection for each page, opened after the previous one has ended.
    NewConnections,
    /// One connection for all pages; each request follows the previous response.
    KeepAlive,
    /// One connection for all pages, requested at times that do not depend on responses. Latency is
    /// measured from the due time.
    Paced(Duration),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) address: SocketAddr,
    pub(super) clients: usize,
    pub(super) manner: Manner,
}

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) at: Instant,
    /// The client's port; 0 without a connection.
    pub(super) port: u16,
    pub(super) what: String,
}

/// Clients that send requests until stopped or dropped.
#[derive(Debug)]
pub(super) struct Clients {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    must_stop: AtomicBool,
    pages: AtomicU64,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    failures: Vec<Failure>,
    failure_count: u64,
    /// Of paced clients.
    latencies_ns: Vec<u64>,
}

impl Clients {
    pub(super) fn start(plan: Plan) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut clients = ClientLoop::new(plan, Arc::clone(&shared))?;
        let builder = thread::Builder::new().name("clients".to_owned());
        let thread = builder.spawn(move || stay_on_load_cpu().and_then(|()| clients.run()));
        Ok(Self { shared, thread: Some(thread.context("could not start the clients")?) })
    }

    /// Returns the number of received pages.
    pub(super) fn pages(&self) -> u64 {
        self.shared.pages.load(Ordering::Relaxed)
    }

    /// Returns the number of failed requests.
    pub(super) fn failure_count(&self) -> u64 {
        self.shared.book.lock().failure_count
    }

    /// Returns the failures since `at`.
    pub(super) fn failures_since(&self, at: Instant) -> Vec<Failure> {
        let book = self.shared.book.lock();
        book.failures.iter().filter(|failure| failure.at >= at).cloned().collect()
    }

    /// Returns the latencies since the last call.
    pub(super) fn take_latencies_ns(&self) -> Vec<u64> {
        std::mem::take(&mut self.shared.book.lock().latencies_ns)
    }

    /// Stops the clients; fails if they ended with an error.
    pub(super) fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        self.shared.must_stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // Dropped after an error of the experiment, which is more informative.
        let _ = self.end();
    }
}

/// State of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The client waits for its next request; it may have a connection.
    Waiting,
    Connecting,
    Asking,
}

#[derive(Debug)]
struct Client {
    stream: Option<TcpStream>,
    phase: Phase,
    /// Number of connections so far, to recognize events of old ones.
    generation: u32,
    port: u16,
    input: Vec<u8>,
    due: Instant,
}

/// All clients of one thread.
#[derive(Debug)]
struct ClientLoop {
    plan: Plan,
    shared: Arc<Shared>,
    epoll: OwnedFd,
    list: Vec<Client>,
    /// Clients by the time of their next request.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
}

impl ClientLoop {
    fn new(plan: Plan, shared: Arc<Shared>) -> Result<Self> {
        let epoll =
            epoll::create(CreateFlags::CLOEXEC).context("could not create an epoll instance")?;
        let start = Instant::now();
        let client = |_| Client {
            stream: None,
            phase: Phase::Waiting,
            generation: 0,
            port: 0,
            input: Vec::new(),
            due: start,
        };
        let mut clients: Vec<Client> = (0..plan.clients).map(client).collect();
        if let Manner::Paced(period) = plan.manner {
            let step = period / u32::try_from(plan.clients.max(1)).unwrap_or(u32::MAX);
            let mut due = start;
            for client in &mut clients {
                client.due = due;
                due += step;
            }
        }
        let due = clients.iter().enumerate().map(|(index, client)| Reverse((client.due, index)));
        let due = due.collect();
        Ok(Self { plan, shared, epoll, list: clients, due })
    }

    fn run(&mut self) -> Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !self.shared.must_stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            while let Some(Reverse((at, index))) = self.due.peek().copied()
                && at <= now
            {
                self.due.pop();
                self.ask(index);
            }
            events.clear();
            let timeout = self.timeout();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("could not wait for responses"),
            }
            for event in &events {
                let (data, flags) = (event.data, event.flags);
                self.advance(data.u64(), flags);
            }
        }
        Ok(())
    }

    fn timeout(&self) -> Timespec {
        let next = self.due.peek().map(|Reverse((at, _))| *at);
        let left = next.map_or(WAIT_MAX, |at| at.saturating_duration_since(Instant::now()));
        Timespec { tv_sec: 0, tv_nsec: left.min(WAIT_MAX).subsec_nanos().into() }
    }

    /// Sends a client's next request.
    fn ask(&mut self, index: usize) {
        if self.list[index].stream.is_some() {
            return self.send(index);
        }
        self.list[index].phase = Phase::Connecting;
        match connect(self.plan.address).and_then(|socket| self.watch(index, socket)) {
            Ok(()) => {}
            Err(error) => self.fail(index, &format!("connect: {error}")),
        }
    }

    fn watch(&mut self, index: usize, stream: TcpStream) -> io::Result<()> {
        let client = &mut self.list[index];
        // Other sockets do not need their port.
        client.port = if self.plan.manner == Manner::NewConnections {
            0
        } else {
            stream.local_addr()?.port()
        };
        let token = u64::from(client.generation) << 32 | index as u64;
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, &stream, EventData::new_u64(token), flags)?;
        client.stream = Some(stream);
        client.input.clear();
        Ok(())
    }

    /// Handles an event of a connection.
    fn advance(&mut self, token: u64, flags: EventFlags) {
        let index = usize::try_from(token & u64::from(u32::MAX)).unwrap_or(usize::MAX);
        let Some(client) = self.list.get(index) else { return };
        if u64::from(client.generation) != token >> 32 || client.stream.is_none() {
            return;
        }
        if client.phase == Phase::Connecting && flags.intersects(EventFlags::OUT) {
            self.send(index);
        }
        let ends = EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        if flags.intersects(ends) {
            self.receive(index);
        }
    }

    fn send(&mut self, index: usize) {
        let request = match self.plan.manner {
            Manner::NewConnections => GET_OLD,
            Manner::KeepAlive | Manner::Paced(_) => GET,
        };
        let client = &mut self.list[index];
        client.phase = Phase::Asking;
        let Some(stream) = &mut client.stream else { return };
        match stream.write(request) {
            Ok(count) if count == request.len() => {}
            Ok(_) => self.fail(index, "request did not fit into the socket buffer"),
            Err(error) => self.fail(index, &format!("send: {error}")),
        }
    }

    fn receive(&mut self, index: usize) {
        let mut part = [0; 512];
        loop {
            let client = &mut self.list[index];
            let Some(stream) = &mut client.stream else { return };
            match stream.read(&mut part) {
                Ok(0) => return self.ended(index),
                Ok(count) => client.input.extend_from_slice(&part[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.fail(index, &format!("read: {error}")),
            }
            if client.input.len() > ANSWER_BYTES_MAX {
                return self.fail(index, "response too long");
            }
        }
        if self.plan.manner == Manner::NewConnections {
            return;
        }
        match answer(&self.list[index].input) {
            Answer::Unfinished => {}
            Answer::Page { closes } => self.finish(index, closes),
            Answer::Other => self.fail_with_answer(index),
        }
    }

    /// Handles the end of a connection.
    fn ended(&mut self, index: usize) {
        match answer(&self.list[index].input) {
            Answer::Page { .. } => self.finish(index, true),
            Answer::Unfinished => self.fail(index, "connection closed without a response"),
            Answer::Other => self.fail_with_answer(index),
        }
    }

    /// Handles a received page.
    fn finish(&mut self, index: usize, closes: bool) {
        self.shared.pages.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let client = &mut self.list[index];
        client.phase = Phase::Waiting;
        client.input.clear();
        let next = match self.plan.manner {
            Manner::NewConnections | Manner::KeepAlive => now,
            Manner::Paced(period) => {
                let latency = now.saturating_duration_since(client.due).as_nanos();
                let latency_ns = u64::try_from(latency).unwrap_or(u64::MAX);
                self.shared.book.lock().latencies_ns.push(latency_ns);
                client.due + period
            }
        };
        if closes {
            client.stream = None;
            client.generation = client.generation.wrapping_add(1);
        }
        client.due = next;
        self.due.push(Reverse((next, index)));
    }

    fn fail_with_answer(&mut self, index: usize) {
        let input = &self.list[index].input;
        let line = input.split(|&byte| byte == b'\r').next().unwrap_or_default();
        let what = format!("answered {:?}", String::from_utf8_lossy(line));
        self.fail(index, &what);
    }

    fn fail(&mut self, index: usize, what: &str) {
        let at = Instant::now();
        let client = &mut self.list[index];
        if client.phase == Phase::Waiting {
            // The server may close an idle connection.
            client.stream = None;
            client.generation = client.generation.wrapping_add(1);
            return;
        }
        let failure = Failure { at, port: client.port, what: what.to_owned() };
        client.stream = None;
        client.generation = client.generation.wrapping_add(1);
        client.phase = Phase::Waiting;
        client.port = 0;
        client.due = at + RETRY;
        self.due.push(Reverse((client.due, index)));
        let mut book = self.shared.book.lock();
        book.failure_count += 1;
        if book.failures.len() < FAILURES_MAX {
            book.failures.push(failure);
        }
    }
}

/// Creates a nonblocking socket that is connecting.
pub(super) fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}

/// Parsing result of a connection's input.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Unfinished,
    Page { closes: bool },
    Other,
}

fn answer(input: &[u8]) -> Answer {
    let Some(end) = input.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Answer::Unfinished;
    };
    let head = &input[..end];
    if !head.starts_with(b"HTTP/1.1 200 ") {
        return Answer::Other;
    }
    if input.len() < end + 4 + HELLO_BODY_BYTES {
        return Answer::Unfinished;
    }
    let mut lines = head.split(|&byte| byte == b'\n');
    let closes = lines.any(|line| line.trim_ascii_end() == b"Connection: close");
    Answer::Page { closes }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::repro::web::talk::HELLO;

    #[test]
    fn answers_are_known_when_they_are_whole() {
        for length in 0..HELLO.len() {
            assert_eq!(answer(&HELLO[..length]), Answer::Unfinished, "{length}");
        }
        assert_eq!(answer(HELLO), Answer::Page { closes: false });
        let text = String::from_utf8_lossy(HELLO).replace("27\r\n", "27\r\nConnection: close\r\n");
        assert_eq!(answer(text.as_bytes()), Answer::Page { closes: true });
        assert_eq!(answer(b"HTTP/1.1 503 Busy\r\n\r\n"), Answer::Other);
    }

    /// Waits until `is_true`, for at most a minute.
    fn wait_until(mut is_true: impl FnMut() -> bool) {
        let until = Instant::now() + Duration::from_mins(1);
        while !is_true() {
            assert!(Instant::now() < until);
            thread::yield_now();
        }
    }

    /// A server that answers every request, or closes each connection immediately.
    fn server(answers: bool) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                if !answers {
                    continue;
                }
                thread::spawn(move || {
                    let mut request = [0; 512];
                    while stream.read(&mut request).is_ok_and(|count| count > 0) {
                        if stream.write_all(HELLO).is_err() {
                            return;
                        }
                        if request.starts_with(GET_OLD) {
                            return;
                        }
                    }
                });
            }
        });
        address
    }

    #[test]
    fn every_manner_gets_its_pages() {
        let address = server(true);
        let period = Duration::from_millis(1);
        for manner in [Manner::NewConnections, Manner::KeepAlive, Manner::Paced(period)] {
            let client_group = Clients::start(Plan { address, clients: 3, manner }).unwrap();
            wait_until(|| client_group.pages() >= 20);
            assert_eq!(client_group.failure_count(), 0, "{manner:?}");
            let has_latencies = !client_group.take_latencies_ns().is_empty();
            assert_eq!(has_latencies, matches!(manner, Manner::Paced(_)));
            client_group.stop().unwrap();
        }
    }

    #[test]
    fn pages_that_do_not_come_are_counted_with_their_ports() {
        let started = Instant::now();
        for manner in [Manner::NewConnections, Manner::KeepAlive] {
            let plan = Plan { address: server(false), clients: 2, manner };
            let client_group = Clients::start(plan).unwrap();
            wait_until(|| client_group.failure_count() >= 4);
            let failures = client_group.failures_since(started);
            assert!(failures.len() >= 4 && client_group.pages() == 0, "{failures:?}");
            let has_port = failures.iter().all(|failure| failure.port != 0);
            assert_eq!(has_port, manner == Manner::KeepAlive, "{failures:?}");
            assert!(
                client_group.failures_since(Instant::now() + Duration::from_mins(1)).is_empty()
            );
            client_group.stop().unwrap();
        }
    }
}
