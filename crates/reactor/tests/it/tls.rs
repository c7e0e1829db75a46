//! Connections with TLS, on the simulated network, with a library's client.

use std::io::{Read, Write};
use std::sync::Arc;

use proptest::prelude::*;
use reactor::{Config, Faults, Limits, Placement, Sim, SimClient, Tls};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, SupportedProtocolVersion,
};

use crate::echo::{Echo, Mail};

/// A self-signed certificate, the server's credentials made from it, and the roots for its clients.
pub(crate) struct Identity {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) roots: Arc<RootCertStore>,
}

pub(crate) fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

pub(crate) fn identity() -> Identity {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let server = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    Identity { server: Arc::new(server), roots: Arc::new(roots) }
}

fn sim(reactors: usize, limits: Limits, faults: Faults, seed: u64) -> Sim<Echo> {
    let config = Config {
        reactors,
        has_spare: false,
        placement: Placement::RoundRobin,
        limits: Arc::new(limits),
        drain_timeout_ms: 1000,
    };
    Sim::new(&config, faults, seed, |_, _| Echo::default())
}

fn calm() -> Sim<Echo> {
    sim(1, Limits::default(), Faults::default(), 0)
}

/// A client on the simulated network.
struct Client {
    wire: SimClient,
    tls: ClientConnection,
    received: Vec<u8>,
    /// How the server's output ended, if it has.
    end: Option<Result<(), rustls::Error>>,
    /// Bytes passed to the network at once.
    piece: usize,
}

impl Client {
    fn new(
        wire: SimClient,
        roots: &Arc<RootCertStore>,
        version: &'static SupportedProtocolVersion,
    ) -> Client {
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(Arc::clone(roots))
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
        tls.set_buffer_limit(None);
        Client { wire, tls, received: Vec::new(), end: None, piece: usize::MAX }
    }

    fn connect(sim: &mut Sim<Echo>, tls: &Arc<Tls>, roots: &Arc<RootCertStore>) -> Client {
        Client::new(sim.connect_tls(0, tls), roots, &rustls::version::TLS13)
    }

    fn say(&mut self, bytes: &[u8]) {
        self.tls.writer().write_all(bytes).unwrap();
    }

    /// Bytes that the client sends now.
    fn sealed(&mut self) -> Vec<u8> {
        let mut sealed = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut sealed).unwrap();
        }
        sealed
    }

    /// Takes arrived bytes. True if there were any.
    fn take(&mut self) -> bool {
        let bytes = self.wire.received();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() && self.end.is_none() {
            self.tls.read_tls(&mut rest).unwrap();
            match self.tls.process_new_packets() {
                Ok(state) => {
                    let mut plain = vec![0; state.plaintext_bytes_to_read()];
                    self.tls.reader().read_exact(&mut plain).unwrap();
                    self.received.extend(plain);
                    if state.peer_has_closed() {
                        self.end = Some(Ok(()));
                    }
                }
                Err(error) => self.end = Some(Err(error)),
            }
        }
        !bytes.is_empty()
    }

    /// Runs both sides until neither has anything to send.
    fn pump(&mut self, sim: &mut Sim<Echo>) {
        loop {
            let sealed = self.sealed();
            for piece in sealed.chunks(self.piece.min(sealed.len()).max(1)) {
                self.wire.send(piece);
                sim.run_until_idle();
            }
            sim.run_until_idle();
            if !self.take() && sealed.is_empty() {
                return;
            }
        }
    }

    fn ask(&mut self, sim: &mut Sim<Echo>, request: &[u8]) -> Vec<u8> {
        self.say(request);
        self.pump(sim);
        std::mem::take(&mut self.received)
    }
}

/// An established connection of one reactor.
fn established() -> (Sim<Echo>, Client) {
    let (mut sim, identity) = (calm(), identity());
    let tls = Arc::new(Tls::new(identity.server));
    let mut client = Client::connect(&mut sim, &tls, &identity.roots);
    assert_eq!(client.ask(&mut sim, b"first\n"), b"first\n");
    (sim, client)
}

#[test]
fn both_versions_echo_and_idle_connections_own_no_buffers() {
    let identity = identity();
    let tls = Arc::new(Tls::new(identity.server));
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut sim = calm();
        sim.handler(0).greeting = b"welcome\n".to_vec();
        let mut client = Client::new(sim.connect_tls(0, &tls), &identity.roots, version);
        assert_eq!(client.ask(&mut sim, b"hello\nwor"), b"welcome\nhello\n");
        assert_eq!(client.ask(&mut sim, b"ld\n"), b"world\n");
        assert_eq!(sim.info(client.wire.id()).unwrap().buffer_bytes, 0);
        let counters = sim.links().stats_sum();
        assert_eq!((counters.tls_handshakes, counters.tls_failures), (1, 0));
    }
}

#[test]
fn every_split_of_the_stream_brings_the_same() {
    let identity = identity();
    let tls = Arc::new(Tls::new(identity.server));
    for piece in [1, 2, 3, 5, 7, 16, 64, 250, 1000] {
        let mut sim = calm();
        let mut client = Client::connect(&mut sim, &tls, &identity.roots);
        client.piece = piece;
        assert_eq!(client.ask(&mut sim, b"one\ntwo\nsize 40000\n").len(), 8 + 40_001, "{piece}");
        let long = vec![b'y'; 20_000];
        client.say(b"long 20000\n");
        assert_eq!(client.ask(&mut sim, &long), long, "{piece}");
    }
}

#[test]
fn a_close_notify_is_answered_with_one() {
    let (mut sim, mut client) = established();
    client.say(b"last\n");
    client.tls.send_close_notify();
    client.pump(&mut sim);
    assert_eq!(client.received, b"last\n");
    assert_eq!(client.end, Some(Ok(())));
    assert!(client.wire.is_closed());
    assert_eq!(sim.links().stats_sum().tls_truncated, 0);
}

#[test]
fn closing_sends_everything_and_a_close_notify() {
    let (mut sim, mut client) = established();
    assert_eq!(client.ask(&mut sim, b"size 300000\nquit\n").len(), 300_001 + 4);
    assert_eq!(client.end, Some(Ok(())));
    assert!(client.wire.is_closed());
}

#[test]
fn a_close_notify_to_a_paused_connection_waits_for_its_turn() {
    let (mut sim, mut client) = established();
    client.ask(&mut sim, b"pause\nrest\n");
    client.ask(&mut sim, b"more\n");
    client.tls.send_close_notify();
    client.pump(&mut sim);
    assert_eq!((client.received.as_slice(), client.end.as_ref()), (&b""[..], None));
    sim.links().mailboxes()[0].send(Mail::Resume(client.wire.id())).unwrap();
    client.pump(&mut sim);
    assert_eq!(client.received, b"rest\nmore\n");
    assert_eq!(client.end, Some(Ok(())));
}

#[test]
fn a_close_notify_waits_for_requests_in_progress() {
    let (mut sim, mut client) = established();
    client.say(b"later\n");
    client.tls.send_close_notify();
    client.pump(&mut sim);
    assert_eq!((client.received.as_slice(), client.end.as_ref()), (&b""[..], None));
    let id = client.wire.id();
    sim.links().mailboxes()[0].send(Mail::Push(id, b"done\n".to_vec())).unwrap();
    sim.links().mailboxes()[0].send(Mail::Close(id)).unwrap();
    client.pump(&mut sim);
    assert_eq!(client.received, b"done\n");
    assert_eq!(client.end, Some(Ok(())));
}

#[test]
fn a_stream_that_is_cut_is_a_broken_connection() {
    let (mut sim, mut client) = established();
    client.say(b"whole\nnot whole");
    let sealed = client.sealed();
    client.wire.send(&sealed[..sealed.len() - 1]);
    client.wire.half_close();
    sim.run_until_idle();
    client.take();
    assert!(client.wire.is_closed());
    // The record cannot be authenticated: not even its first line is run.
    assert_eq!(client.received, b"");
    assert_eq!(client.end, None, "no goodbye");
    assert_eq!(sim.links().stats_sum().tls_truncated, 1);
    assert_eq!(sim.handler(0).closed, 1);
}

#[test]
fn a_forged_record_gets_an_alert_and_the_end() {
    let (mut sim, mut client) = established();
    client.say(b"something\n");
    let mut sealed = client.sealed();
    *sealed.last_mut().unwrap() ^= 1;
    client.wire.send(&sealed);
    client.pump(&mut sim);
    assert!(matches!(
        client.end,
        Some(Err(rustls::Error::AlertReceived(rustls::AlertDescription::BadRecordMac)))
    ));
    assert_eq!(client.received, b"");
    assert_eq!(sim.links().stats_sum().tls_failures, 1);
    sim.advance(2_000_000_000);
    sim.run_until_idle();
    assert!(client.wire.is_closed());
}

#[test]
fn input_other_than_tls_gets_an_alert_and_the_end() {
    let mut long = vec![0x16, 3, 1, 0xff, 0xff];
    long.resize(70_000, 0);
    // A handshake message with an announced length of 16 MB, in small records.
    let endless = [&[0x16, 3, 1, 0x40, 0][..], &[1, 0xff, 0xff, 0xff], &[0; 16_380]].concat();
    let tls = Arc::new(Tls::new(identity().server));
    for bytes in [
        &b"PING\r\n"[..],
        b"*1\r\n$4\r\nPING\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        &[0x05, 0, 0, 0, 5, 0, 0, 0, 0],
        &[0; 100],
        &long,
        &endless,
        // Application data and an alert before any handshake.
        &[0x17, 3, 3, 0, 1, 0],
        &[0x15, 3, 3, 0, 2, 2, 40],
    ] {
        let mut sim = calm();
        let client = sim.connect_tls(0, &tls);
        client.send(bytes);
        sim.run_until_idle();
        assert!(client.is_ended(), "{:?}", &bytes[..6]);
        let answer = client.received();
        assert!(answer.is_empty() || answer[0] == 0x15, "nothing but an alert: {answer:?}");
        sim.advance(2_000_000_000);
        sim.run_until_idle();
        assert!(client.is_closed());
        assert_eq!(sim.handler(0).data_calls, 0);
        assert_eq!(sim.links().stats_sum().tls_failures, 1);
        assert_eq!(sim.links().connections(), 0);
    }
}

#[test]
fn a_slow_reader_bounds_what_is_kept_for_it() {
    let (mut sim, mut client) = established();
    client.wire.set_window(1000);
    client.say(b"size 10000000\nnext\n");
    let sealed = client.sealed();
    client.wire.send(&sealed);
    sim.run_until_idle();
    let info = sim.info(client.wire.id()).unwrap();
    assert!(info.output_bytes > 9_900_000);
    assert!(info.buffer_bytes < 10_000_000 + 200_000, "{} bytes", info.buffer_bytes);
    let mut windows = 0;
    while client.received.len() < 10_000_001 + 5 {
        client.wire.set_window(50_000);
        sim.run_until_idle();
        assert!(client.take());
        windows += 1;
    }
    assert!(windows > 190);
    assert!(client.received.ends_with(b"xx\nnext\n"));
    assert_eq!(sim.info(client.wire.id()).unwrap().buffer_bytes, 0);
}

#[test]
fn held_output_is_neither_sent_nor_encrypted() {
    let (mut sim, mut client) = established();
    assert_eq!(client.ask(&mut sim, b"free\nhold 7\ntail\n"), b"free\n");
    let info = sim.info(client.wire.id()).unwrap();
    assert_eq!((info.held_bytes, info.output_bytes), (12, 12));
    sim.links().mailboxes()[0].send(Mail::Level(7)).unwrap();
    assert_eq!(client.ask(&mut sim, b""), b"held 7\ntail\n");
}

#[test]
fn a_connection_moves_with_its_keys_but_not_before_it_has_some() {
    let identity = identity();
    let tls = Arc::new(Tls::new(identity.server));
    let mut sim = sim(2, Limits::default(), Faults::default(), 0);
    let mut client = Client::connect(&mut sim, &tls, &identity.roots);
    sim.run_until_idle();
    let home = sim.place_of(client.wire.id()).unwrap();
    assert!(!sim.migrate(client.wire.id(), 1 - home), "the handshake is not complete");
    assert_eq!(client.ask(&mut sim, b"here\n"), b"here\n");
    // Half a record moves too.
    client.say(b"there\n");
    let sealed = client.sealed();
    client.wire.send(&sealed[..9]);
    sim.run_until_idle();
    assert!(sim.migrate(client.wire.id(), 1 - home));
    sim.run_until_idle();
    client.wire.send(&sealed[9..]);
    client.pump(&mut sim);
    assert_eq!(client.received, b"there\n");
    assert_eq!(sim.place_of(client.wire.id()), Some(1 - home));
}

#[test]
fn a_new_certificate_is_for_new_connections() {
    let (old, new) = (identity(), identity());
    let tls = Arc::new(Tls::new(old.server));
    let mut sim = calm();
    let mut first = Client::connect(&mut sim, &tls, &old.roots);
    assert_eq!(first.ask(&mut sim, b"one\n"), b"one\n");
    // This one has only begun when the certificate changes.
    let mut second = Client::connect(&mut sim, &tls, &old.roots);
    sim.run_until_idle();
    tls.replace(new.server);
    let mut third = Client::connect(&mut sim, &tls, &new.roots);
    assert_eq!(third.ask(&mut sim, b"three\n"), b"three\n");
    assert_eq!(second.ask(&mut sim, b"two\n"), b"two\n");
    assert_eq!(first.ask(&mut sim, b"one\n"), b"one\n");
    let mut fourth = Client::connect(&mut sim, &tls, &old.roots);
    fourth.pump(&mut sim);
    assert!(matches!(fourth.end, Some(Err(rustls::Error::InvalidCertificate(_)))));
    assert_eq!(sim.links().stats_sum().tls_handshakes, 3);
}

#[test]
fn unfinished_handshakes_are_bounded_in_number_and_time() {
    let limits = Limits::default();
    limits.handshakes_max.set(100);
    limits.handshake_timeout_ms.set(5_000);
    limits.connections_max.set(20_000);
    let mut sim = sim(2, limits, Faults::default(), 0);
    let identity = identity();
    let tls = Arc::new(Tls::new(identity.server));
    let mut good = Client::connect(&mut sim, &tls, &identity.roots);
    assert_eq!(good.ask(&mut sim, b"before\n"), b"before\n");
    let hello = Client::connect(&mut sim, &tls, &identity.roots).sealed();
    let half = |sim: &mut Sim<Echo>, number: usize| {
        let wire = sim.connect_tls(0, &tls);
        // Nothing, a part, or all of the hello: none completes.
        wire.send(&hello[..[0, 50, hello.len()][number % 3]]);
        wire
    };
    let mut crowd = Vec::new();
    for number in 0..10_000 {
        crowd.push(half(&mut sim, number));
        if number % 1000 == 500 {
            sim.run_until_idle();
            assert!(sim.links().connections() <= 102);
            // A genuine client connects in between.
            let mut other = Client::connect(&mut sim, &tls, &identity.roots);
            assert_eq!(other.ask(&mut sim, b"other\n"), b"other\n");
            other.tls.send_close_notify();
            other.pump(&mut sim);
        }
    }
    sim.run_until_idle();
    assert_eq!(sim.links().connections(), 101);
    assert_eq!(sim.links().stats_sum().tls_crowded_out, 10_001 - 100);
    sim.advance(5_000_000_000);
    sim.run_until_idle();
    assert!(crowd.iter().all(SimClient::is_closed));
    assert_eq!(sim.links().stats_sum().tls_timeouts, 100);
    assert_eq!(sim.links().connections(), 1);
    assert_eq!(good.ask(&mut sim, b"after\n"), b"after\n");
}

#[test]
fn handshakes_do_not_delay_established_connections() {
    const CLIENTS: usize = 50;
    let (mut sim, mut good) = established();
    let identity = identity();
    let tls = Arc::new(Tls::new(identity.server));
    let connect = |sim: &mut Sim<Echo>| Client::connect(sim, &tls, &identity.roots);
    let mut crowd: Vec<Client> = (0..CLIENTS).map(|_| connect(&mut sim)).collect();
    sim.run_until_idle();
    for client in &mut crowd {
        let hello = client.sealed();
        client.wire.send(&hello);
    }
    good.say(b"in between\n");
    let sealed = good.sealed();
    good.wire.send(&sealed);
    sim.turn();
    assert!(good.take());
    assert_eq!(good.received, b"in between\n");
    let answered =
        |crowd: &mut Vec<Client>| crowd.iter_mut().filter_map(|c| c.take().then_some(())).count();
    assert_eq!(answered(&mut crowd), 4, "the handshakes of one turn");
    assert!(sim.links().stats_sum().tls_deferred >= (CLIENTS - 4) as u64);
    sim.run_until_idle();
    assert_eq!(answered(&mut crowd), CLIENTS - 4);
    for client in &mut crowd {
        assert_eq!(client.ask(&mut sim, b"all\n"), b"all\n");
    }
}

#[test]
fn draining_ends_established_and_unfinished_connections() {
    let (mut sim, mut client) = established();
    let tls = Arc::new(Tls::new(identity().server));
    let begun = sim.connect_tls(0, &tls);
    sim.run_until_idle();
    sim.drain();
    client.pump(&mut sim);
    assert_eq!(client.end, Some(Ok(())));
    assert!(begun.is_closed());
    assert!(sim.is_ended());
}

#[derive(Debug, Clone)]
enum Step {
    Size(usize),
    Long(usize),
    Line(usize),
    Hold,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_usize..100_000).prop_map(Step::Size),
        (1_usize..100_000).prop_map(Step::Long),
        (0_usize..50).prop_map(Step::Line),
        Just(Step::Hold),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// For any requests in any pieces, over a network that transfers a few bytes at a time, the
    /// answers are those of a plain connection.
    #[test]
    fn answers_are_those_of_a_plain_connection(
        steps in prop::collection::vec(step(), 1..8),
        piece in prop_oneof![1_usize..40, 1000_usize..100_000],
        seed in 0_u64..1000,
    ) {
        let mut script = Vec::new();
        for step in &steps {
            match step {
                Step::Size(count) => script.extend(format!("size {count}\n").bytes()),
                Step::Long(count) => {
                    script.extend(format!("long {count}\n").bytes());
                    script.extend(std::iter::repeat_n(b'z', *count));
                }
                Step::Line(count) => {
                    script.extend(std::iter::repeat_n(b'a', *count));
                    script.push(b'\n');
                }
                Step::Hold => script.extend(b"hold 3\n"),
            }
        }
        let mut plain = calm();
        plain.handler(0).level = 3;
        let expected = plain.connect();
        expected.send(&script);
        plain.run_until_idle();

        let identity = identity();
        let tls = Arc::new(Tls::new(identity.server));
        let faults = if seed % 2 == 0 { Faults::harmless() } else { Faults::default() };
        let mut sim = sim(1, Limits::default(), faults, seed);
        let mut client = Client::connect(&mut sim, &tls, &identity.roots);
        client.piece = piece.max(script.len() / 200);
        let mut answer = client.ask(&mut sim, &script);
        sim.links().mailboxes()[0].send(Mail::Level(3)).unwrap();
        answer.extend(client.ask(&mut sim, b""));
        prop_assert_eq!(answer, expected.received());
    }
}
