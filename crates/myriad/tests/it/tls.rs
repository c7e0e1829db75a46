//! `myriad serve` with TLS: clients of all protocols, server and client certificates, certificate
//! reloads under load, and hostile peers.

mod harness;

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::process::wait_until;
use crate::resp::{ask, request};
use crate::secure::{Stream, conversation, dial};
use harness::Server;

const OPEN: [&str; 2] = ["--tls-auth-clients", "no"];
/// Certificate reloads under load.
const RELOADS: usize = 20;
/// Handshakes that the test starts but does not finish.
const HALVES: usize = 600;

/// Whether the server answers the client, rather than closing the connection.
fn is_let_in(mut stream: Stream) -> bool {
    let asked = stream.write_all(&request(&["PING"])).and_then(|()| {
        let mut answer = [0; 7];
        stream.read_exact(&mut answer).map(|()| assert_eq!(&answer, b"+PONG\r\n"))
    });
    asked.is_ok()
}

#[test]
fn every_protocol_works_over_tls() {
    let server = Server::start("protocols", &OPEN);
    let client = server.files.client(None);
    let mut resp = server.dial("resp-tls", &client);
    let value = "v".repeat(10_000_000);
    assert_eq!(ask(&mut resp, &["SET", "k", &value]), "+OK");
    assert_eq!(ask(&mut resp, &["GET", "k"]), value);

    let mut cql = server.dial("cql-tls", &client);
    // OPTIONS of version 4 on stream 1, answered by SUPPORTED.
    cql.write_all(&[4, 0, 0, 1, 5, 0, 0, 0, 0]).unwrap();
    let mut header = [0; 9];
    cql.read_exact(&mut header).unwrap();
    assert_eq!(header[..5], [0x84, 0, 0, 1, 6]);

    let mut http = server.dial("http-tls", &client);
    http.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    // Read to the end: it is an error if the server closes without close_notify.
    http.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn client_certificates_are_checked_as_configured() {
    let server = Server::start("clients", &[]);
    let dial = |identity| server.dial("resp-tls", &server.files.client(identity));
    for (auth, expected) in [("yes", [true, false, false]), ("optional", [true, true, false])] {
        assert_eq!(server.ask(&["CONFIG", "SET", "tls-auth-clients", auth]), "+OK");
        let found = [Some("client"), None, Some("stranger")].map(|who| is_let_in(dial(who)));
        assert_eq!(found, expected, "{auth}: our certificate, none, another authority's");
    }
    server.await_counters(&["tls_failures"], 3);
}

#[test]
fn invalid_files_prevent_startup_and_are_ignored_later() {
    let said = Server::refuse("missing", &["--tls-cert-file", "no/such.pem"]);
    assert!(said.contains("tls-cert-file: no/such.pem: No such file"), "{said}");
    let said = Server::refuse("absent", &["--tls-key-file", ""]);
    assert!(
        said.contains("tls-key-file: resp-tls 127.0.0.1:0 requires the certificate's key"),
        "{said}"
    );

    let server = Server::start("wrong", &OPEN);
    let other_key = server.files.text("two.key");
    let said = server.ask(&["CONFIG", "SET", "tls-key-file", &other_key]);
    assert!(
        said.starts_with("-ERR CONFIG SET failed (possibly related to argument 'tls-key-file')")
    );
    let said = server.ask(&["CONFIG", "SET", "tls-cert-file", "no/such.pem", "hz", "20"]);
    assert!(said.contains("'tls-cert-file') - no/such.pem: No such file"), "{said}");
    assert_eq!(server.counter("hz"), 10, "CONFIG SET is atomic");
    // The file is corrupted later: SIGHUP logs an error, and the loaded certificate remains in use.
    std::fs::write(server.files.path("one.pem"), "nonsense").unwrap();
    server.hang_up();
    for _ in 0..10 {
        assert!(is_let_in(server.dial("resp-tls", &server.files.client(None))));
    }
}

#[test]
fn the_expiry_is_that_of_the_certificate_in_use() {
    /// The start of 2040 and of 2041.
    const EXPIRY_UNIX_S: [u64; 2] = [2_208_988_800, 2_240_611_200];
    let server = Server::start("expiry", &OPEN);
    let client = server.files.client(None);
    let shows = |expected: u64| {
        let mut http = server.dial("http-tls", &client);
        let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        http.write_all(request).unwrap();
        let mut page = String::new();
        http.read_to_string(&mut page).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let rest = server.counter("tls_server_cert_expires_in_seconds");
        let line = format!("\nmyriad_tls_certificate_expiry_timestamp_seconds {expected}\n");
        page.contains(&line) && expected.abs_diff(now + rest) < 60
    };
    assert!(shows(EXPIRY_UNIX_S[0]));
    for kind in ["pem", "key"] {
        let [one, two] = ["one", "two"].map(|name| server.files.path(&format!("{name}.{kind}")));
        std::fs::copy(two, one).unwrap();
    }
    assert!(shows(EXPIRY_UNIX_S[0]), "the new file is not in use");
    server.hang_up();
    wait_until("the new certificate is in use", || shows(EXPIRY_UNIX_S[1]));
    // A failed reload changes nothing.
    let pem = server.files.text("client.pem");
    assert!(server.ask(&["CONFIG", "SET", "tls-cert-file", &pem]).starts_with("-ERR"));
    assert!(shows(EXPIRY_UNIX_S[1]));
}

#[test]
fn certificates_change_under_load_and_no_request_fails() {
    let server = Server::start("reload", &OPEN);
    let client = server.files.client(None);
    let address = server.address("resp-tls");
    let is_over = AtomicBool::new(false);
    let rounds = AtomicUsize::new(0);
    let begun = Barrier::new(4);
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let (client, is_over, rounds, begun) = (&client, &is_over, &rounds, &begun);
            scope.spawn(move || {
                let mut stays = dial(address, client);
                begun.wait();
                while !is_over.load(Ordering::Relaxed) {
                    // One connection that stays open throughout, and a new one per round.
                    let key = format!("k{worker}");
                    assert_eq!(ask(&mut stays, &["SET", &key, "v"]), "+OK");
                    let mut fresh = dial(address, client);
                    assert_eq!(ask(&mut fresh, &["GET", &key]), "v");
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        begun.wait();
        for reload in 0..RELOADS {
            let name = ["two", "one"][reload % 2];
            let (cert, key) = (
                server.files.text(&format!("{name}.pem")),
                server.files.text(&format!("{name}.key")),
            );
            let said = server.ask(&["CONFIG", "SET", "tls-cert-file", &cert, "tls-key-file", &key]);
            assert_eq!(said, "+OK");
            // The very next handshake uses the new certificate. The client has its own session
            // cache; otherwise it would resume a session.
            let mut next = dial(address, &server.files.client(None));
            assert_eq!(ask(&mut next, &["PING"]), "+PONG");
            assert_eq!(next.conn.peer_certificates().unwrap()[0], server.files.certificate(name));
            let seen = rounds.load(Ordering::Relaxed);
            wait_until("the load has done more rounds", || {
                rounds.load(Ordering::Relaxed) >= seen + 3
            });
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(server.counter("tls_failures"), 0);
}

#[test]
fn sighup_reloads_the_certificates() {
    let server = Server::start("hangup", &OPEN);
    let shown = || {
        let mut stream = server.dial("resp-tls", &server.files.client(None));
        assert_eq!(ask(&mut stream, &["PING"]), "+PONG");
        stream.conn.peer_certificates().unwrap()[0].clone().into_owned()
    };
    assert_eq!(shown(), server.files.certificate("one"));
    for suffix in ["pem", "key"] {
        let (from, to) = (format!("two.{suffix}"), format!("one.{suffix}"));
        std::fs::copy(server.files.path(&from), server.files.path(&to)).unwrap();
    }
    let two = server.files.certificate("two");
    server.hang_up();
    wait_until("the reload is done", || shown() == two);
}

#[test]
fn hostile_peers_are_limited_and_others_are_served() {
    // Enough time for a legitimate client that is descheduled.
    let options = ["--tls-handshakes-max", "40", "--tls-handshake-timeout-ms", "60000"];
    let server = Server::start("hostile", &[&OPEN[..], &options[..]].concat());
    let client = server.files.client(None);
    let mut good = server.dial("resp-tls", &client);
    assert_eq!(ask(&mut good, &["PING"]), "+PONG");

    // Plain text on a TLS port: an alert and the end.
    let mut plain = server.connect("resp-tls");
    plain.write_all(&request(&["PING"])).unwrap();
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).unwrap();
    assert_eq!(answer[0], 0x15, "{answer:?}");

    // TLS on a plain-text port: no handshake, and no damage.
    let mut lost = server.connect("resp");
    conversation(&client).write_tls(&mut lost).unwrap();
    lost.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    lost.read_to_end(&mut answer).unwrap();
    assert!(answer.is_empty() || answer.starts_with(b"-ERR"), "{answer:?}");

    // An oversized record, and an end in the middle of a record.
    let mut large = server.connect("cql-tls");
    large.write_all(&[0x16, 3, 1, 0xff, 0xff]).unwrap();
    let mut answer = Vec::new();
    large.read_to_end(&mut answer).unwrap();
    assert_eq!(answer[0], 0x15, "{answer:?}");
    let mut cut = server.dial("resp-tls", &client);
    assert_eq!(ask(&mut cut, &["PING"]), "+PONG");
    cut.sock.write_all(&[0x17, 3, 3, 0, 100, 1, 2, 3]).unwrap();
    drop(cut);

    // Incomplete handshakes: few are kept; the others are closed at once.
    let mut halves: Vec<_> = (0..HALVES)
        .map(|_| {
            let mut half = server.connect("resp-tls");
            half.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]).unwrap();
            half
        })
        .collect();
    assert!(is_let_in(server.dial("resp-tls", &client)), "a legitimate client");
    assert_eq!(server.ask(&["CONFIG", "SET", "tls-handshake-timeout-ms", "1000"]), "+OK");
    for half in &mut halves {
        // New handshakes displace the oldest; the last ones time out.
        match half.read_to_end(&mut Vec::new()) {
            Ok(0) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
            Ok(_) => panic!("an incomplete handshake got an answer"),
        }
    }
    let ended = ["tls_handshake_timeouts", "tls_handshakes_crowded_out"];
    server.await_counters(&ended, HALVES as u64);
    assert!(server.counter(ended[0]) <= 40);
    // The truncated connection, and the legitimate one that was dropped without close_notify.
    server.await_counters(&["tls_truncated_connections"], 2);
    assert_eq!(ask(&mut good, &["PING"]), "+PONG");
}

#[test]
fn clients_resume_sessions_with_tickets() {
    let server = Server::start("tickets", &OPEN);
    let client = server.files.client(None);
    for _ in 0..2 {
        let mut first = server.dial("resp-tls", &client);
        assert_eq!(ask(&mut first, &["PING"]), "+PONG");
        let mut second = server.dial("resp-tls", &client);
        assert_eq!(ask(&mut second, &["PING"]), "+PONG");
        assert_eq!(second.conn.handshake_kind(), Some(rustls::HandshakeKind::Resumed));
        let cert = server.files.text("one.pem");
        assert_eq!(server.ask(&["CONFIG", "SET", "tls-cert-file", &cert]), "+OK");
        let mut third = server.dial("resp-tls", &client);
        assert_eq!(ask(&mut third, &["PING"]), "+PONG");
        assert_eq!(third.conn.handshake_kind(), Some(rustls::HandshakeKind::Full));
    }
}
