//! A reactor whose handler accepts connections itself, files after answers, and room for output.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::time::MonoNs;
use reactor::{
    ConnId, Connections, Context, Flow, Handler, Limits, Next, Output, Peer, Solo, Tls, Trigger,
    Watcher,
};
use rustix::net::SocketFlags;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::tls::{identity, provider};

const LISTENER: u32 = 7;
/// More than the socket of a peer that does not read can buffer.
const FLOOD_BYTES: usize = 64 << 20;

/// Answers each line with the same line, `file` with a line and the file, `end` with the end of the
/// reactor; `flood` with far more than a socket takes; `reset` with a word and the reset of the
/// connection; `pause` with nothing more.
struct AcceptingHandler {
    listener: OwnedFd,
    tls: Option<Tls>,
    file: Arc<OwnedFd>,
    file_bytes: u64,
    room: Arc<[AtomicUsize; 2]>,
    failures: Failures,
}

/// Why each connection has failed, in the order of their ends.
type Failures = Arc<Mutex<Vec<Option<ErrorKind>>>>;

impl Handler for AcceptingHandler {
    type Session = ();
    type Mail = ();

    fn open(&mut self, _: &mut Context<'_, ()>, _: ConnId, _: &Peer, _: &mut Output) {}

    fn data(
        &mut self,
        cx: &mut Context<'_, ()>,
        id: ConnId,
        (): &mut (),
        input: &[u8],
        out: &mut Output,
    ) -> Flow {
        let Some(end) = input.iter().position(|&byte| byte == b'\n') else { return Flow::read(0) };
        let line = &input[..=end];
        let next = match line {
            b"end\n" => {
                cx.end(MonoNs(u64::MAX));
                Next::Close
            }
            b"file\n" => {
                out.buffer().extend_from_slice(b"here:");
                out.attach(Arc::clone(&self.file), 2, self.file_bytes);
                Next::Again
            }
            b"flood\n" => {
                out.buffer().extend_from_slice(&vec![b'x'; FLOOD_BYTES]);
                Next::Again
            }
            b"reset\n" => {
                out.buffer().extend_from_slice(b"word");
                cx.reset(id);
                Next::Pause
            }
            b"pause\n" => {
                out.buffer().extend_from_slice(line);
                Next::Pause
            }
            line => {
                out.buffer().extend_from_slice(line);
                Next::Again
            }
        };
        Flow { consumed: end + 1, next }
    }

    fn closed(&mut self, cx: &mut Context<'_, ()>, _: ConnId, (): ()) {
        self.failures.lock().unwrap().push(cx.failure().map(|error| error.kind()));
    }

    fn mail(&mut self, _: &mut Context<'_, ()>, _: &mut Connections<'_, ()>, (): ()) {}

    fn source(&mut self, cx: &mut Context<'_, ()>, _: &mut Connections<'_, ()>, source: u32) {
        assert_eq!(source, LISTENER);
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        while let Ok(socket) = rustix::net::accept_with(&self.listener, flags) {
            let peer = Peer { remote: None, local: None, listener: 0 };
            match &self.tls {
                Some(tls) => cx.adopt_tls(socket, peer, tls).unwrap(),
                None => cx.adopt(socket, peer, true),
            };
        }
    }

    fn no_room(&mut self, _: &mut Context<'_, ()>, _: ConnId, (): &mut ()) {
        self.room[0].fetch_add(1, Ordering::Relaxed);
    }

    fn has_room(&mut self, _: &mut Context<'_, ()>, _: ConnId, (): &mut ()) {
        self.room[1].fetch_add(1, Ordering::Relaxed);
    }
}

struct Server {
    address: SocketAddr,
    room: Arc<[AtomicUsize; 2]>,
    failures: Failures,
    thread: JoinHandle<()>,
}

impl Server {
    fn start(trigger: Trigger, file: &[u8], file_bytes: u64) -> Server {
        Server::start_with(None, trigger, file, file_bytes)
    }

    fn start_with(tls: Option<Tls>, trigger: Trigger, file: &[u8], file_bytes: u64) -> Server {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = reactor::listen(any, 64, false).unwrap();
        let address = rustix::net::getsockname(&listener).unwrap().try_into().unwrap();
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let held = rustix::fs::memfd_create("file", flags).unwrap();
        std::fs::File::from(held.try_clone().unwrap()).write_all(file).unwrap();
        let room: Arc<[AtomicUsize; 2]> = Arc::default();
        let failures = Failures::default();
        let (seen, noted) = (Arc::clone(&room), Arc::clone(&failures));
        let thread = std::thread::spawn(move || {
            let make = |_: &_, watcher: Watcher| {
                watcher.add(&listener, LISTENER, trigger).unwrap();
                let file = Arc::new(held);
                AcceptingHandler { listener, tls, file, file_bytes, room: seen, failures: noted }
            };
            Solo::new(Arc::new(Limits::default()), make).unwrap().run();
        });
        Server { address, room, failures, thread }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).unwrap()
    }

    fn stop(self) {
        self.connect().write_all(b"end\n").unwrap();
        self.thread.join().unwrap();
    }
}

#[track_caller]
fn ask(stream: &mut (impl Read + Write), request: &[u8], reply: &[u8]) {
    stream.write_all(request).unwrap();
    let mut bytes = vec![0; reply.len()];
    stream.read_exact(&mut bytes).unwrap();
    assert!(bytes == reply, "{} bytes", reply.len());
}

#[test]
fn connections_that_the_handler_accepts_are_served() {
    for trigger in [Trigger::Level, Trigger::Edge, Trigger::Exclusive] {
        let server = Server::start(trigger, b"", 0);
        let mut streams: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
        for stream in &mut streams {
            ask(stream, b"one\ntwo\n", b"one\ntwo\n");
            ask(stream, b"three\n", b"three\n");
        }
        drop(streams);
        server.stop();
    }
}

/// The peer reads late, so that the file is sent in many parts.
#[test]
fn a_file_follows_its_answer_and_requests_follow_the_file() {
    let file: Vec<u8> = (0..5_000_000_u32).map(|number| (number % 251) as u8).collect();
    let server = Server::start(Trigger::Level, &file, file.len() as u64 - 2);
    let mut stream = server.connect();
    let answer = [b"here:", &file[2..]].concat();
    let twice = [&answer[..], &answer[..], b"after\n"].concat();
    ask(&mut stream, b"file\nfile\nafter\n", &twice);
    ask(&mut stream, b"more\n", b"more\n");
    drop(stream);
    server.stop();
}

fn client_config(roots: Arc<RootCertStore>) -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

fn dial(config: &Arc<ClientConfig>, server: &Server) -> StreamOwned<ClientConnection, TcpStream> {
    let name = ServerName::try_from("localhost").unwrap();
    let client = ClientConnection::new(Arc::clone(config), name).unwrap();
    StreamOwned::new(client, server.connect())
}

#[test]
fn connections_with_tls_are_adopted_like_others() {
    let file: Vec<u8> = (0..5_000_000_u32).map(|number| (number % 251) as u8).collect();
    let identity = identity();
    let config = client_config(identity.roots);
    let tls = Some(Tls::new(identity.server));
    let server = Server::start_with(tls, Trigger::Level, &file, file.len() as u64 - 2);
    let dial = || dial(&config, &server);
    let mut stream = dial();
    ask(&mut stream, b"one\n", b"one\n");
    let answer = [b"here:", &file[2..]].concat();
    ask(&mut stream, b"file\nfile\nafter\n", &[&answer[..], &answer, b"after\n"].concat());
    // Input that is not TLS: an alert and the end.
    let mut plain = server.connect();
    plain.write_all(b"longer than the head of a record\n").unwrap();
    let mut alert = Vec::new();
    plain.read_to_end(&mut alert).unwrap();
    assert_eq!(alert[0], 0x15, "{alert:?}");
    let mut last = dial();
    last.write_all(b"end\n").unwrap();
    // Any end other than a close_notify alert is an error.
    assert_eq!(last.read(&mut [0; 8]).unwrap(), 0);
    drop((stream, last));
    server.thread.join().unwrap();
}

#[test]
fn a_file_that_is_too_short_ends_the_connection() {
    let server = Server::start(Trigger::Level, b"0123456789", 9);
    let mut stream = server.connect();
    stream.write_all(b"file\nnever\n").unwrap();
    let mut bytes = Vec::new();
    // The kernel may report that input was left unread.
    let _ = stream.read_to_end(&mut bytes);
    assert!(b"here:23456789".starts_with(&bytes), "{bytes:?}");
    drop(stream);
    server.stop();
}

/// A peer that is cut off in its answer must not mistake it for a complete one.
#[test]
fn a_reset_is_not_the_end_of_an_answer() {
    let server = Server::start(Trigger::Level, b"", 0);
    let mut stream = server.connect();
    stream.write_all(b"reset\n").unwrap();
    let error = stream.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    server.stop();
}

/// Whatever a connection waits for, with and without TLS.
#[test]
fn the_handler_knows_why_a_connection_failed() {
    fn check<S: Read + Write>(
        server: Server,
        dial: impl Fn(&Server) -> S,
        of: fn(&S) -> &TcpStream,
    ) {
        let requests = [&b"one\n"[..], b"pause\n", b"flood\n"];
        for request in requests {
            let mut stream = dial(&server);
            stream.write_all(request).unwrap();
            stream.read_exact(&mut [0; 1]).unwrap();
            // The end of the stream resets the connection.
            rustix::net::sockopt::set_socket_linger(of(&stream), Some(Duration::ZERO)).unwrap();
        }
        let failures = Arc::clone(&server.failures);
        let until = Instant::now() + Duration::from_mins(1);
        while failures.lock().unwrap().len() < requests.len() {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(1));
        }
        dial(&server).write_all(b"end\n").unwrap();
        server.thread.join().unwrap();
        let reset = Some(ErrorKind::ConnectionReset);
        assert_eq!(failures.lock().unwrap()[..requests.len()], [reset; 3]);
    }
    let identity = identity();
    let config = client_config(identity.roots);
    let tls = Some(Tls::new(identity.server));
    check(Server::start(Trigger::Level, b"", 0), Server::connect, |stream| stream);
    let server = Server::start_with(tls, Trigger::Level, b"", 0);
    check(server, |server| dial(&config, server), |stream| &stream.sock);
}

#[test]
fn the_handler_knows_when_output_has_room() {
    let server = Server::start(Trigger::Level, b"", 0);
    let mut stream = server.connect();
    let flood = [vec![b'x'; FLOOD_BYTES], b"after\n".to_vec()].concat();
    stream.write_all(b"flood\nafter\n").unwrap();
    // A peer that read at once could be as fast as the flood.
    let until = Instant::now() + Duration::from_mins(1);
    while server.room[0].load(Ordering::Relaxed) == 0 {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    }
    ask(&mut stream, b"", &flood);
    assert_eq!(server.room[0].load(Ordering::Relaxed), 1);
    assert_eq!(server.room[1].load(Ordering::Relaxed), 1);
    drop(stream);
    server.stop();
}
