//! Real threads and sockets on loopback.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal as Posix;
use reactor::{
    Config, Control, Group, GroupError, GroupStopper, Limits, Links, Listener, Placement, Signal,
};

use crate::echo::{Echo, Mail};

/// A running group; ends when stopped.
struct Server {
    address: SocketAddr,
    links: Links<Mail>,
    stopper: GroupStopper,
    thread: JoinHandle<Result<(), GroupError>>,
}

impl Server {
    fn start(reactors: usize, placement: Placement, limits: Limits) -> Server {
        Server::start_with(reactors, placement, limits, Echo::default)
    }

    fn start_with(
        reactors: usize,
        placement: Placement,
        limits: Limits,
        make: impl Fn() -> Echo,
    ) -> Server {
        let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), b"refused\n").unwrap();
        let config = Config {
            reactors,
            has_spare: false,
            placement,
            limits: Arc::new(limits),
            drain_timeout_ms: 500,
        };
        let group = Group::start(&config, vec![listener], |_, _| make()).unwrap();
        assert!(group.descriptors().connections_possible > 0);
        let address = group.addresses()[0];
        let (links, stopper) = (group.links().clone(), group.stopper());
        let thread = std::thread::spawn(move || group.run(|_| Control::Stop));
        Server { address, links, stopper, thread }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    fn stop(self) {
        self.stopper.stop();
        self.thread.join().unwrap().unwrap();
        assert_eq!(self.links.connections(), 0);
        let counters = self.links.stats_sum();
        assert_eq!((counters.connections, counters.held_bytes), (0, 0));
    }
}

fn ask(stream: &mut TcpStream, request: &[u8], reply: &[u8]) {
    stream.write_all(request).unwrap();
    let mut bytes = vec![0; reply.len()];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, reply);
}

#[test]
fn a_listener_may_have_its_own_reactor() {
    let listen = |reactor| {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Listener::bind(any, b"").unwrap().with_reactor(reactor)
    };
    let config = Config { reactors: 3, drain_timeout_ms: 500, ..Config::default() };
    let listeners = vec![listen(2), listen(0)];
    let group = Group::start(&config, listeners, |_, _| Echo::default()).unwrap();
    let (addresses, links, stopper) = (group.addresses(), group.links().clone(), group.stopper());
    let thread = std::thread::spawn(move || group.run(|_| Control::Stop));
    for (address, count) in [(addresses[0], 5), (addresses[1], 3)] {
        for _ in 0..count {
            ask(&mut TcpStream::connect(address).unwrap(), b"hello\n", b"hello\n");
        }
    }
    stopper.stop();
    thread.join().unwrap().unwrap();
    let accepted = [0, 1, 2].map(|reactor| links.stats(reactor).accepted);
    assert_eq!(accepted, [3, 0, 5]);
}

#[test]
fn serves_and_ends() {
    let server = Server::start(2, Placement::LeastLoaded, Limits::default());
    let mut stream = server.connect();
    ask(&mut stream, b"hello\n", b"hello\n");
    let mut other = server.connect();
    ask(&mut other, b"world\n", b"world\n");
    server.stop();
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
}

#[test]
fn a_connected_stream_is_given_to_a_reactor() {
    let outside = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let config = Config { reactors: 2, drain_timeout_ms: 500, ..Config::default() };
    let make =
        |_: usize, _: &Links<Mail>| Echo { greeting: b"first\n".to_vec(), ..Echo::default() };
    let group = Group::start(&config, Vec::new(), make).unwrap();
    let mut peers = Vec::new();
    for reactor in [0, 1, 1] {
        let stream = TcpStream::connect(outside.local_addr().unwrap()).unwrap();
        group.adopter().adopt(reactor, stream).unwrap();
        let mut peer = outside.accept().unwrap().0;
        ask(&mut peer, b"hello\n", b"first\nhello\n");
        peers.push(peer);
    }
    let links = group.links().clone();
    assert_eq!((links.stats(0).accepted, links.stats(1).accepted), (1, 2));
    assert_eq!(links.connections(), 3);
    group.shutdown().unwrap();
    for mut peer in peers {
        assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0);
    }
    assert_eq!(links.connections(), 0);
}

#[test]
fn an_unpipelined_request_is_one_read_and_one_write() {
    let server = Server::start(1, Placement::LeastLoaded, Limits::default());
    let mut stream = server.connect();
    for _ in 0..100 {
        ask(&mut stream, b"ping\n", b"ping\n");
    }
    drop(stream);
    let links = server.links.clone();
    server.stop();
    let counters = links.stats(0);
    // One more read finds the end, unless the drain was first.
    assert!((100..=101).contains(&counters.reads), "{counters:?}");
    assert_eq!(counters.writes, 100);
}

#[test]
fn a_thousand_connections_at_once_spread_evenly() {
    let server = Server::start(4, Placement::RoundRobin, Limits::default());
    let mut streams: Vec<TcpStream> = (0..1000).map(|_| server.connect()).collect();
    for (number, stream) in streams.iter_mut().enumerate() {
        let line = format!("number {number}\n");
        ask(stream, line.as_bytes(), line.as_bytes());
    }
    for reactor in 0..4 {
        assert_eq!(server.links.stats(reactor).accepted, 250);
    }
    assert_eq!(server.links.connections(), 1000);
    server.stop();
}

#[test]
fn connections_over_the_limit_get_a_refusal() {
    let limits = Limits::default();
    limits.connections_max.set(2);
    let server = Server::start(1, Placement::LeastLoaded, limits);
    let mut streams: Vec<TcpStream> = (0..2).map(|_| server.connect()).collect();
    for stream in &mut streams {
        ask(stream, b"in\n", b"in\n");
    }
    let mut refused = Vec::new();
    server.connect().read_to_end(&mut refused).unwrap();
    assert_eq!(refused, b"refused\n");
    assert_eq!(server.links.acceptor_stats().read().refused_over_limit, 1);
    server.links.limits().connections_max.set(3);
    ask(&mut server.connect(), b"in\n", b"in\n");
    server.stop();
}

/// Runs the next test in a process of its own, because the bound of open files is the process's.
#[test]
fn running_out_of_descriptors_refuses_and_recovers() {
    let test = "live::in_a_process_with_few_descriptors";
    let program = std::env::current_exe().unwrap();
    let status = std::process::Command::new("sh")
        .args(["-c", r#"ulimit -n 160 && exec "$0" --exact "$1" --ignored --nocapture"#])
        .arg(program)
        .arg(test)
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
#[ignore = "run by running_out_of_descriptors_refuses_and_recovers"]
fn in_a_process_with_few_descriptors() {
    let server = Server::start(1, Placement::LeastLoaded, Limits::default());
    let served = |mut stream: &TcpStream| {
        stream.write_all(b"in\n").unwrap();
        let mut reply = [0; 3];
        stream.read_exact(&mut reply).is_ok_and(|()| &reply == b"in\n")
    };
    // The acceptor leaves descriptors for other files of the process: here those take more than
    // their share, so that accepting itself runs out.
    let files: Vec<_> = (0..110).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
    // Each connection takes two descriptors here, one per end. The odd one determines which end
    // finds none left.
    let odd = std::fs::File::open("/dev/null").unwrap();
    let mut streams = Vec::new();
    let refused = loop {
        match TcpStream::connect(server.address) {
            Ok(stream) if served(&stream) => streams.push(stream),
            Ok(_) => break true,
            Err(_) => break false,
        }
    };
    if !refused {
        drop(odd);
        let mut stream = server.connect();
        let mut words = Vec::new();
        // Our own bytes may cross the close on the way.
        let _ = stream.read_to_end(&mut words);
        assert_eq!(words, b"refused\n");
    }
    assert!(streams.len() > 5);
    let counters = server.links.acceptor_stats().read();
    assert!(counters.refused_no_descriptor >= 1, "{counters:?}");
    // Both ends of a connection must be closed before the next can be served: ours, and the other
    // one after the reactor has noticed. Until then the next are refused.
    drop(streams.pop());
    let until = Instant::now() + Duration::from_mins(1);
    while !served(&server.connect()) {
        assert!(Instant::now() < until, "the group does not recover");
    }
    drop(files);
    server.stop();
}

#[test]
fn half_closing_still_gets_a_large_reply() {
    let server = Server::start(1, Placement::LeastLoaded, Limits::default());
    let mut stream = server.connect();
    stream.write_all(b"first\nsize 30000000\nlast\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), 6 + 30_000_001 + 5);
    assert!(received.starts_with(b"first\nxx"));
    assert!(received.ends_with(b"x\nlast\n"));
    server.stop();
}

#[test]
fn a_value_of_many_megabytes_passes() {
    let server = Server::start(1, Placement::LeastLoaded, Limits::default());
    let mut stream = server.connect();
    let body: Vec<u8> = (0..40_000_000_u32).map(|number| (number % 251) as u8).collect();
    let writer = {
        let (mut stream, body) = (stream.try_clone().unwrap(), body.clone());
        std::thread::spawn(move || {
            stream.write_all(b"long 40000000\n").unwrap();
            stream.write_all(&body).unwrap();
        })
    };
    let mut received = vec![0; body.len()];
    stream.read_exact(&mut received).unwrap();
    writer.join().unwrap();
    assert!(received == body);
    server.stop();
}

#[test]
fn levels_and_mail_come_from_other_threads() {
    let server = Server::start(2, Placement::RoundRobin, Limits::default());
    let mut streams = [server.connect(), server.connect()];
    for (number, stream) in streams.iter_mut().enumerate() {
        stream.write_all(format!("now\nhold {}\n", number + 1).as_bytes()).unwrap();
        ask(stream, b"", b"now\n");
    }
    for level in 1..=2 {
        for mailbox in server.links.mailboxes() {
            mailbox.send(Mail::Level(level)).unwrap();
        }
    }
    ask(&mut streams[0], b"", b"held 1\n");
    ask(&mut streams[1], b"", b"held 2\n");
    server.stop();
}

#[test]
fn a_waker_makes_a_sleeping_reactor_read_the_level() {
    let level = Arc::new(AtomicU64::new(0));
    let server = Server::start_with(1, Placement::LeastLoaded, Limits::default(), || Echo {
        shared_level: Some(Arc::clone(&level)),
        ..Echo::default()
    });
    let mut stream = server.connect();
    for round in 1..200 {
        stream.write_all(format!("hold {round}\n").as_bytes()).unwrap();
        level.store(round, Ordering::Release);
        server.links.wakers().for_each(|waker| waker.wake());
        ask(&mut stream, b"", format!("held {round}\n").as_bytes());
    }
    server.stop();
}

#[test]
fn signals_come_as_values_and_can_end_the_group() {
    let config = Config { reactors: 1, ..Config::default() };
    let group = Group::start(&config, Vec::new(), |_, _| Echo::default()).unwrap();
    // Sent to this thread, which handles the signals.
    for signal in [Posix::SIGUSR1, Posix::SIGHUP, Posix::SIGTERM] {
        nix::sys::signal::raise(signal).unwrap();
    }
    let mut seen = Vec::new();
    let ended = group.run(|signal| {
        seen.push(signal);
        if signal == Signal::Terminate { Control::Stop } else { Control::Continue }
    });
    ended.unwrap();
    assert_eq!(seen.len(), 3);
    for signal in [Signal::User1, Signal::Hangup, Signal::Terminate] {
        assert!(seen.contains(&signal));
    }
}

/// A reply must not be lost to the reset that closing with unread input would cause.
#[test]
fn the_last_reply_survives_unread_input() {
    let server = Server::start(1, Placement::LeastLoaded, Limits::default());
    for _ in 0..50 {
        let mut stream = server.connect();
        let mut request = b"size 100000\nquit\n".to_vec();
        request.resize(600_000, b'x');
        stream.write_all(&request).unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        assert_eq!(reply.len(), 100_001 + 4);
    }
    server.stop();
}

#[test]
fn ends_in_time_although_a_peer_does_not_read() {
    let server = Server::start(1, Placement::LeastLoaded, Limits::default());
    let mut stream = server.connect();
    stream.write_all(b"start\nsize 100000000\n").unwrap();
    ask(&mut stream, b"", b"start\n");
    server.stop();
}
