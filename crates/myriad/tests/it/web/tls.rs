//! HTTPS: every accept strategy, certificate reloads, and hostile peers.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, HandshakeKind};

use super::STRATEGIES;
use super::harness::{
    DRAIN_IDLE, Folder, GET_HELLO, GET_HELLO_AND_CLOSE, HELLO, HELLO_AND_CLOSE, Load, Orphan,
    PATIENT, Server, ask, ask_all, check_status, connect, halt, is_running, replace, signal,
    successor, wait_until,
};
use crate::secure::{Files, Stream, dial};

/// The beginning of a handshake in a record of the maximum length, so that it stays incomplete.
const BEGUN: &[u8] = &[0x16, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc, 3, 3];
/// Number of program replacements.
const REPLACEMENTS: usize = 3;

/// A directory with certificates and a site.
struct Ground {
    folder: Folder,
    files: Files,
    /// Caches sessions, as browsers do.
    client: Arc<ClientConfig>,
}

impl Ground {
    fn new(name: &str) -> Ground {
        let folder = Folder::new(&format!("tls-{name}"));
        let files = Files::make(folder.path("certificates"));
        let client = files.client(None);
        Ground { folder, files, client }
    }

    fn start(&self, options: &[&str]) -> Server {
        let (certificate, key) = (self.files.text("one.pem"), self.files.text("one.key"));
        let tls = ["--listen-tls", "127.0.0.1:0", "--tls-cert-file", &certificate];
        Server::start(&[&tls[..], &["--tls-key-file", &key], options].concat())
    }

    /// Starts a server with its options in a file and its log in another.
    fn start_with_file(&self, options: &str) -> Server {
        self.write_options(options);
        let file = self.folder.path("web.toml").display().to_string();
        let errors = fs::File::create(self.folder.path("said")).unwrap();
        Server::start_saying(&[&["--config", &file][..], &PATIENT].concat(), errors)
    }

    fn write_options(&self, options: &str) {
        fs::write(self.folder.path("web.toml"), options).unwrap();
    }

    /// Returns the TLS options in file format.
    fn options_at(&self, address: SocketAddr) -> String {
        let (certificate, key) = (self.files.path("one.pem"), self.files.path("one.key"));
        let (certificate, key) = (certificate.display(), key.display());
        format!(
            "listen-tls = \"{address}\"\ntls-cert-file = \"{certificate}\"\ntls-key-file = \"{key}\"\n"
        )
    }

    fn has_said(&self, words: &str, times: usize) -> bool {
        fs::read_to_string(self.folder.path("said")).unwrap().matches(words).count() == times
    }

    fn dial(&self, server: &Server) -> Stream {
        dial(server.https.unwrap(), &self.client)
    }

    /// Returns the certificate that a new client sees. Retries, because an exiting worker may
    /// disconnect a client that is descheduled.
    fn shown(&self, address: SocketAddr) -> CertificateDer<'static> {
        let mut shown = None;
        wait_until("the server presents a certificate", || {
            let mut stream = dial(address, &self.files.client(None));
            let asked = stream.write_all(GET_HELLO.as_bytes());
            let heard = asked.and_then(|()| stream.read_exact(&mut [0; HELLO.len()]));
            shown = heard.ok().and_then(|()| stream.conn.peer_certificates()?.first().cloned());
            shown.is_some()
        });
        shown.unwrap().into_owned()
    }

    /// Replaces the first certificate and key with those of another name.
    fn put(&self, name: &str) {
        for suffix in ["pem", "key"] {
            let to = self.files.path(&format!("one.{suffix}"));
            fs::copy(self.files.path(&format!("{name}.{suffix}")), to).unwrap();
        }
    }
}

/// Reads the response until `close_notify`; without it, the read is an error.
fn ask_secure(mut stream: Stream, request: &str) -> io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Checks that the connection ends or is reset, with at most an alert before that.
#[track_caller]
fn check_refused(mut stream: TcpStream) {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    assert!(answer.is_empty() || answer[0] == 0x15, "{answer:?}");
}

/// Begins a request, so that its worker stays until it is complete. Returns the rest of the
/// request.
fn begin_request(stream: &mut Stream) -> &'static str {
    let (begun, rest) = GET_HELLO_AND_CLOSE.split_at(10);
    ask(stream, GET_HELLO, HELLO);
    stream.write_all(begun.as_bytes()).unwrap();
    rest
}

#[test]
fn every_strategy_serves_tls_in_processes_and_threads() {
    let ground = Ground::new("strategies");
    for mode in ["process", "thread"] {
        for accept in STRATEGIES {
            let options = ["--mode", mode, "--accept", accept, "--workers", "2"];
            let server = ground.start(&[&options[..], &PATIENT].concat());
            let mut streams = Vec::new();
            for _ in 0..4 {
                let mut stream = ground.dial(&server);
                ask(&mut stream, GET_HELLO, HELLO);
                streams.push(stream);
            }
            let mut plain = server.connect();
            ask(&mut plain, GET_HELLO, HELLO);
            for stream in &mut streams {
                ask(stream, &GET_HELLO.repeat(3), &HELLO.repeat(3));
            }
            ask(&mut plain, GET_HELLO, HELLO);
            let answer = ask_secure(ground.dial(&server), GET_HELLO_AND_CLOSE).unwrap();
            assert_eq!(answer, HELLO_AND_CLOSE);
            drop((streams, plain));
            server.stop();
        }
    }
}

#[test]
fn whole_files_and_ranges_are_served() {
    let ground = Ground::new("files");
    let big: String = "0123456789a".repeat(300_000);
    let length = big.len();
    fs::write(ground.folder.path("root/big.bin"), &big).unwrap();
    let root = ground.folder.path("root").display().to_string();
    let log = ground.folder.path("access.log");
    let log_name = log.display().to_string();
    let options = ["--workers", "1", "--root", &root, "--access-log", &log_name];
    let server = ground.start(&[&options[..], &PATIENT].concat());
    let ask = |request: &str| ask_secure(ground.dial(&server), request).unwrap();
    let close = "HTTP/1.1\r\nHost: a\r\nConnection: close\r\n";
    let whole = ask(&format!("GET /big.bin {close}\r\n"));
    assert!(whole.split_once("\r\n\r\n").unwrap().1 == big);
    let part = ask(&format!("GET /big.bin {close}Range: bytes=1048570-1048580\r\n\r\n"));
    assert!(part.contains(&format!("Content-Range: bytes 1048570-1048580/{length}\r\n")), "{part}");
    assert!(part.ends_with(&format!("\r\n\r\n{}", &big[1_048_570..=1_048_580])), "{part}");
    let head = ask(&format!("HEAD /big.bin {close}\r\n"));
    assert!(head.contains(&format!("Content-Length: {length}\r\n")), "{head}");
    assert!(head.ends_with("\r\n\r\n"), "{head}");
    // Pipelined on one connection, with a short response in between.
    let get = "GET /big.bin HTTP/1.1\r\nHost: a\r\n\r\n";
    let all = ask(&format!("{get}{GET_HELLO}{get}{GET_HELLO_AND_CLOSE}"));
    let bodies = format!("\r\n\r\n{big}");
    assert_eq!(all.matches(&bodies).count(), 2);
    assert!(all.contains(&format!("{bodies}{HELLO}")) && all.ends_with(HELLO_AND_CLOSE));
    server.stop();
    let lines = fs::read_to_string(log).unwrap();
    let line = format!("\"GET /big.bin HTTP/1.1\" 200 {length}");
    assert_eq!(lines.matches(&line).count(), 3, "{lines}");
    assert!(lines.starts_with("127.0.0.1 "), "{lines}");
}

#[test]
fn the_expiry_of_the_certificate_is_a_metric() {
    let ground = Ground::new("expiry");
    let name = "\nmyriad_web_tls_certificate_expiry_timestamp_seconds ";
    let status = ["--status", "127.0.0.1:0"];
    let ask = |server: &Server| ask_all(server.status(), b"GET /metrics HTTP/1.0\r\n\r\n");
    let server = ground.start(&status);
    let page = ask(&server);
    let (_, expiry) = page.split_once(name).expect(&page);
    let expiry: u64 = expiry.lines().next().unwrap().parse().unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert!(expiry > now.as_secs(), "{expiry}");
    server.stop();
    let server = Server::start(&status);
    let page = ask(&server);
    assert!(!page.contains(name), "{page}");
    server.stop();
}

#[test]
fn protocols_are_negotiated() {
    let ground = Ground::new("protocols");
    let server = ground.start(&[&["--workers", "1"][..], &PATIENT].concat());
    let offer = |protocols: &[&[u8]]| {
        let mut client = ClientConfig::clone(&ground.client);
        client.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let mut stream = dial(server.https.unwrap(), &Arc::new(client));
        let asked = stream.write_all(GET_HELLO.as_bytes());
        let heard = asked.and_then(|()| stream.read_exact(&mut [0; HELLO.len()]));
        heard.map(|()| stream.conn.alpn_protocol().map(<[u8]>::to_vec))
    };
    assert_eq!(offer(&[]).unwrap(), None);
    assert_eq!(offer(&[b"h2", b"http/1.1"]).unwrap().unwrap(), b"http/1.1");
    assert_eq!(offer(&[b"http/1.0"]).unwrap().unwrap(), b"http/1.0");
    assert!(offer(&[b"h2"]).is_err(), "no common protocol");
    server.stop();
}

#[test]
fn curl_works_with_both_versions() {
    let ground = Ground::new("curl");
    let page = "<p>page</p>".repeat(50_000);
    fs::write(ground.folder.path("root/page.html"), &page).unwrap();
    let root = ground.folder.path("root").display().to_string();
    let server = ground.start(&[&["--workers", "2", "--root", &root][..], &PATIENT].concat());
    let https = server.https.unwrap();
    let resolve = format!("localhost:{}:{}", https.port(), https.ip());
    let url = format!("https://localhost:{}/page.html", https.port());
    let trusted = ground.files.text("ca.pem");
    let common = ["-sS", "--cacert", &trusted, "--resolve", &resolve];
    for version in [&["--tlsv1.3"][..], &["--tlsv1.2", "--tls-max", "1.2"], &["--http1.0"]] {
        let words = [&common[..], version, &[&url]].concat();
        let output = Command::new("curl").args(&words).output();
        let output = output.unwrap_or_else(|error| panic!("curl: {error}: scripts/setup.sh test"));
        assert!(output.status.success(), "{words:?}: {output:?}");
        assert!(output.stdout == page.as_bytes(), "{words:?}: {} bytes", output.stdout.len());
    }
    server.stop();
}

/// Sessions resume at the worker that issued the ticket; another worker makes a full handshake.
#[test]
fn clients_resume_sessions_with_tickets() {
    let ground = Ground::new("tickets");
    let server = ground.start(&[&["--workers", "1"][..], &PATIENT].concat());
    let come = || {
        let mut stream = ground.dial(&server);
        ask(&mut stream, GET_HELLO, HELLO);
        stream.conn.handshake_kind().unwrap()
    };
    assert_eq!(come(), HandshakeKind::Full);
    assert_eq!(come(), HandshakeKind::Resumed);
    let before = server.workers();
    signal(before[0], "KILL");
    wait_until("the replacement worker is running", || {
        let now = server.workers();
        now.len() == 1 && now != before
    });
    assert_eq!(come(), HandshakeKind::Full);
    server.stop();
}

#[test]
fn a_reload_installs_a_new_certificate() {
    let ground = Ground::new("reload");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = format!("workers = 1\n{}", ground.options_at(any));
    let server = ground.start_with_file(&options);
    let https = server.https.unwrap();
    let (one, two) = (ground.files.certificate("one"), ground.files.certificate("two"));
    assert_eq!(ground.shown(https), one);
    let mut stays = ground.dial(&server);
    let rest = begin_request(&mut stays);
    ground.put("two");
    server.signal("HUP");
    wait_until("the new workers serve", || ground.has_said("serving with new options", 1));
    // The old worker may not have received its stop request yet.
    wait_until("the server presents the new certificate", || ground.shown(https) == two);
    ask(&mut stays, rest, HELLO_AND_CLOSE);

    // An invalid certificate, a missing one, and one with another key change nothing.
    let workers = || {
        let now = server.workers();
        (now.len() == 1).then(|| now[0])
    };
    wait_until("the old worker has ended", || workers().is_some());
    assert_eq!(ground.shown(https), two);
    let worker = workers();
    let certificate = ground.files.path("one.pem");
    let breaks: [&dyn Fn(); 3] = [
        &|| fs::write(&certificate, "nonsense").unwrap(),
        &|| fs::remove_file(&certificate).unwrap(),
        &|| fs::write(&certificate, fs::read(ground.files.path("client.pem")).unwrap()).unwrap(),
    ];
    for (round, break_it) in breaks.iter().enumerate() {
        break_it();
        server.signal("HUP");
        wait_until("the failure is logged", || {
            ground.has_said("reload failed; keeping the old options", round + 1)
        });
        assert_eq!(workers(), worker);
        assert_eq!(ground.shown(https), two);
    }
    // Nor do they prevent the replacement of a worker.
    signal(worker.unwrap(), "KILL");
    wait_until("the replacement worker is running", || {
        workers().is_some_and(|now| Some(now) != worker)
    });
    assert_eq!(ground.shown(https), two);
    server.stop();
}

#[test]
fn a_reload_enables_and_disables_https() {
    for accept in ["least-loaded", "fdpass", "notify-lt"] {
        let ground = Ground::new(&format!("appear-{accept}"));
        let plain = format!("workers = 2\naccept = \"{accept}\"\n");
        let server = ground.start_with_file(&plain);
        assert_eq!(server.https, None);
        // No other server uses this loopback address.
        let port = server.address.port();
        let https = SocketAddr::new(server.address.ip(), port.checked_add(1).unwrap_or(port - 1));
        let load = Load::start(server.address, 2);
        load.go_on(20);
        ground.write_options(&format!("{plain}{}", ground.options_at(https)));
        server.signal("HUP");
        wait_until("HTTPS is enabled", || ground.has_said("serving with new options", 1));
        let mut stays = dial(https, &ground.client);
        let rest = begin_request(&mut stays);
        load.go_on(20);
        ground.write_options(&plain);
        server.signal("HUP");
        wait_until("HTTPS is disabled", || ground.has_said("serving with new options", 2));
        wait_until("the address refuses connections", || TcpStream::connect(https).is_err());
        ask(&mut stays, rest, HELLO_AND_CLOSE);
        load.go_on(20);
        assert_eq!(load.stop(), Vec::<String>::new(), "{accept}");
        server.stop();
    }
}

/// Makes one request on a new connection. A client that was descheduled for longer than an exiting
/// worker waits may find the worker gone.
fn try_hello(address: SocketAddr, client: &Arc<ClientConfig>) -> Result<(), String> {
    let begun = Instant::now();
    match ask_secure(dial(address, client), GET_HELLO_AND_CLOSE) {
        Ok(answer) if answer == HELLO_AND_CLOSE => Ok(()),
        Err(_) if begun.elapsed() >= DRAIN_IDLE => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

/// Ends the load even if the test fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn replacing_the_program_keeps_https() {
    for accept in ["least-loaded", "fdpass"] {
        let ground = Ground::new(&format!("replace-{accept}"));
        let options = ["--accept", accept, "--workers", "2"];
        let mut server = ground.start(&[&options[..], &PATIENT].concat());
        let https = server.https.unwrap();
        let (is_over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let ending = Ending(&is_over);
            let load = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    try_hello(https, &ground.client)?;
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<(), String>(())
            });
            let go_on = || {
                let target = answered.load(Ordering::Relaxed) + 20;
                wait_until("more requests are answered", || {
                    load.is_finished() || answered.load(Ordering::Relaxed) >= target
                });
            };
            let mut masters = vec![Orphan(server.master.id())];
            for _ in 0..REPLACEMENTS {
                go_on();
                let before = masters[0].0;
                masters.insert(0, replace(before, server.address));
                assert_eq!(server.next_addresses(), (server.address, Some(https)));
                wait_until("the old master has ended", || !is_running(before));
            }
            go_on();
            drop(ending);
            assert_eq!(load.join().unwrap(), Ok(()), "{accept}");
            assert_eq!(ground.shown(https), ground.files.certificate("one"));
            signal(masters[0].0, "TERM");
            wait_until("the last master has ended", || !masters[0].is_there());
        });
        assert!(TcpStream::connect(https).is_err());
    }
}

/// A client that waits at an address that the next program does not serve is served by the previous
/// one.
#[test]
fn a_new_program_at_another_address_loses_no_connection() {
    for accept in ["least-loaded", "fdpass"] {
        let ground = Ground::new(&format!("moves-{accept}"));
        let [here, there] = [1, 2].map(|last| SocketAddr::from(([127, 0, 0, last], 0)));
        let rest = format!("accept = \"{accept}\"\nworkers = 1\n");
        let mut server = ground.start_with_file(&(ground.options_at(here) + &rest));
        let (master, worker) = (server.master.id(), server.workers()[0]);
        halt(worker);
        let mut waiting: Vec<Stream> = (0..5).map(|_| ground.dial(&server)).collect();
        ground.write_options(&(ground.options_at(there) + &rest));
        signal(master, "USR2");
        let next = successor(master);
        let (http, https) = server.next_addresses();
        assert_eq!((http, https.unwrap().ip()), (server.address, there.ip()));
        signal(worker, "CONT");
        let since = Instant::now();
        let mut answered = 0;
        for stream in &mut waiting {
            // The worker may or may not have received its stop request.
            let heard = stream.write_all(GET_HELLO.as_bytes());
            let heard = heard.and_then(|()| stream.read_exact(&mut [0; 12]));
            // A client that sends its request late, because it was descheduled, is disconnected.
            assert!(heard.is_ok() || since.elapsed() >= DRAIN_IDLE, "{heard:?}");
            answered += usize::from(heard.is_ok());
        }
        assert!(answered > 0);
        drop(waiting);
        wait_until("the old master has ended", || !is_running(master));
        ask(&mut dial(https.unwrap(), &ground.client), GET_HELLO, HELLO);
        signal(next.0, "TERM");
        wait_until("the new master has ended", || !next.is_there());
    }
}

#[test]
fn shutdown_finishes_pending_responses_over_tls() {
    let ground = Ground::new("ending");
    fs::write(ground.folder.path("root/big.bin"), vec![b'7'; 8_000_000]).unwrap();
    let root = ground.folder.path("root").display().to_string();
    let server = ground.start(&[&["--workers", "2", "--root", &root][..], &PATIENT].concat());
    let mut idle = ground.dial(&server);
    ask(&mut idle, GET_HELLO, HELLO);
    let mut downloads = ground.dial(&server);
    ask(&mut downloads, "GET /big.bin HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\n");
    server.signal("TERM");
    let mut rest = String::new();
    downloads.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with(&"7".repeat(8_000_000)), "{} bytes", rest.len());
    // An orderly end: without close_notify, the read is an error.
    assert_eq!(idle.read(&mut [0; 8]).unwrap(), 0);
    assert!(server.master.wait().success());
    assert!(TcpStream::connect(server.https.unwrap()).is_err());
}

/// A client that connected before the shutdown is not disconnected because its handshake takes
/// long.
#[test]
fn shutdown_waits_for_handshakes() {
    let ground = Ground::new("late");
    let server = ground.start(&[&["--workers", "1"][..], &PATIENT].concat());
    let mut late = ground.dial(&server);
    server.signal("TERM");
    std::thread::sleep(2 * DRAIN_IDLE);
    let since = Instant::now();
    let heard = late.write_all(GET_HELLO.as_bytes());
    let mut answer = [0; HELLO_AND_CLOSE.len()];
    let heard = heard.and_then(|()| late.read_exact(&mut answer));
    // The client may be descheduled between its handshake and its request.
    assert!(heard.is_ok() || since.elapsed() >= DRAIN_IDLE, "{heard:?}");
    assert!(heard.is_err() || answer == HELLO_AND_CLOSE.as_bytes());
    drop(late);
    assert!(server.master.wait().success());
}

#[test]
fn connections_without_tls_are_closed() {
    let ground = Ground::new("plain");
    let server = ground.start(&[&["--workers", "1"][..], &PATIENT].concat());
    let https = server.https.unwrap();
    let mut good = ground.dial(&server);
    ask(&mut good, GET_HELLO, HELLO);
    let zeros = vec![0; 100_000];
    for bytes in [GET_HELLO.as_bytes(), b"\x16\x03\x01\xff\xff", &zeros] {
        let mut stream = connect(https);
        // The server may close the connection before all bytes are sent.
        let _ = stream.write_all(bytes);
        check_refused(stream);
    }
    // In the middle of a handshake, and of a record.
    connect(https).write_all(BEGUN).unwrap();
    let mut cut = ground.dial(&server);
    ask(&mut cut, GET_HELLO, HELLO);
    cut.sock.write_all(&[0x17, 3, 3, 0, 100, 1, 2, 3]).unwrap();
    drop(cut);
    // TLS on a plain-text port.
    assert!(ask_secure(dial(server.address, &ground.client), GET_HELLO).is_err());
    ask(&mut good, GET_HELLO, HELLO);
    server.stop();
}

#[test]
fn incomplete_handshakes_time_out() {
    let ground = Ground::new("halves");
    let server = ground.start(&["--workers", "1", "--head-timeout-ms", "200"]);
    let https = server.https.unwrap();
    let halves: Vec<TcpStream> = (0..20)
        .map(|number| {
            let mut half = connect(https);
            half.write_all(&BEGUN[..number % BEGUN.len()]).unwrap();
            half
        })
        .collect();
    halves.into_iter().for_each(check_refused);
    // Sending a byte now and then does not extend the deadline.
    let mut stream = connect(https);
    let mut sent = 0;
    for byte in BEGUN.iter().chain(std::iter::repeat(&0)) {
        if stream.write_all(&[*byte]).is_err() {
            break;
        }
        sent += 1;
        // One minute, which is shorter than sending the whole record would take.
        assert!(sent < 6000, "the slow client was never disconnected");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Retry, because a client may be descheduled during its handshake.
    wait_until("a legitimate client is served", || {
        ask_secure(ground.dial(&server), GET_HELLO_AND_CLOSE)
            .is_ok_and(|answer| answer == HELLO_AND_CLOSE)
    });
    wait_until("an incomplete head gets 408", || {
        ask_secure(ground.dial(&server), "GET /hello HT")
            .is_ok_and(|answer| answer.starts_with("HTTP/1.1 408 "))
    });
    server.stop();
}

#[test]
fn limits_include_tls_connections() {
    let ground = Ground::new("limits");
    let options = ["--workers", "1", "--connections-per-address-max", "2"];
    let server = ground.start(&[&options[..], &PATIENT].concat());
    let mut first = [ground.dial(&server), ground.dial(&server)];
    for stream in &mut first {
        ask(stream, GET_HELLO, HELLO);
    }
    check_status(&server, GET_HELLO_AND_CLOSE, 503);
    assert!(ask_secure(ground.dial(&server), GET_HELLO_AND_CLOSE).is_err());
    for stream in &mut first {
        ask(stream, GET_HELLO, HELLO);
    }
    drop(first);
    wait_until("a connection is accepted again", || {
        ask_secure(ground.dial(&server), GET_HELLO_AND_CLOSE).is_ok()
    });
    wait_until("a plain connection is accepted", || {
        ask_all(server.address, GET_HELLO_AND_CLOSE.as_bytes()).starts_with("HTTP/1.1 200 ")
    });
    server.stop();
}

/// The upstream learns the scheme of the client's request, and a long response arrives completely.
#[test]
fn an_upstream_learns_the_scheme_of_a_request() {
    let ground = Ground::new("proxy");
    let body = "0123456789".repeat(600_000);
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = upstream.local_addr().unwrap().to_string();
    let answered = body.clone();
    let answering = std::thread::spawn(move || {
        [(); 2].map(|()| {
            let (mut stream, _) = upstream.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").unwrap();
            stream.write_all(answered.as_bytes()).unwrap();
            String::from_utf8(request).unwrap()
        })
    });
    let options = ["--workers", "1", "--upstream", &address];
    let server = ground.start(&[&options[..], &PATIENT].concat());
    let lines = "Host: a\r\nX-Forwarded-Proto: gopher\r\nConnection: close\r\n";
    let request = format!("GET /api/big HTTP/1.0\r\n{lines}\r\n");
    let secure = ask_secure(ground.dial(&server), &request).unwrap();
    assert!(secure.starts_with("HTTP/1.1 200 OK\r\n"), "{} bytes", secure.len());
    assert!(secure.split_once("\r\n\r\n").unwrap().1 == body, "{} bytes", secure.len());
    let plain = ask_all(server.address, request.as_bytes());
    assert!(plain.ends_with(&body), "{} bytes", plain.len());
    for (request, scheme) in answering.join().unwrap().iter().zip(["https", "http"]) {
        let line = format!("X-Forwarded-Proto: {scheme}\r\n");
        assert!(request.contains(&line) && !request.contains("gopher"), "{request}");
        assert!(request.contains("X-Forwarded-For: 127.0.0.1\r\n"), "{request}");
    }
    server.stop();
}

/// The options for a certificate and a key.
fn pair<'a>(certificate: &'a str, key: &'a str) -> [&'a str; 4] {
    ["--tls-cert-file", certificate, "--tls-key-file", key]
}

/// Returns the exit code of the program with invalid options, and its error output.
fn refusal(options: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
    let output = command.args(["web", "--listen", "127.0.0.1:0"]).args(options).output().unwrap();
    assert!(output.stdout.is_empty(), "{output:?}");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn conflicting_options_are_refused() {
    let ground = Ground::new("usage");
    let (one, key) = (ground.files.text("one.pem"), ground.files.text("one.key"));
    let (two_key, none) = (ground.files.text("two.key"), ground.files.text("none.pem"));
    let listen = ["--listen-tls", "127.0.0.1:0"];
    let serial = ["--accept", "serial"];
    for (options, code, words) in [
        (vec!["--tls-key-file", &key], 2, "--tls-key-file: requires listen-tls"),
        (listen.to_vec(), 2, "--listen-tls: requires tls-cert-file"),
        (pair(&one, &key).to_vec(), 2, "--tls-cert-file: requires listen-tls"),
        ([&listen[..], &pair(&one, &key), &serial].concat(), 2, "serial does not support TLS"),
        ([&listen[..], &pair(&none, &key)].concat(), 1, "none.pem: No such file"),
        ([&listen[..], &pair(&one, &one)].concat(), 1, "tls-key-file: "),
        ([&listen[..], &pair(&one, &two_key)].concat(), 1, "tls-key-file: "),
    ] {
        let (found, said) = refusal(&options);
        assert!(found == Some(code) && said.contains(words), "{options:?}: {found:?} {said}");
    }
}
