//! The web server as a black box: its responses, its workers, its signals.

mod harness;
mod limits;
mod operator;
mod options;
mod tls;
mod upstream;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use harness::{
    Folder, GET_HELLO, HELLO, Load, Orphan, PATIENCE, PATIENT, Server, ask, ask_all, ask_at_once,
    check_status, connections_of, halt, has_open, is_running, own_address, replace, signal,
    successor, wait_until, waiting_at,
};

use crate::diagnostics::DESTINATIONS;

const STRATEGIES: [&str; 6] =
    ["least-loaded", "reuseport", "exclusive", "fdpass", "notify-lt", "notify-et"];

#[test]
fn every_strategy_serves_in_processes_and_threads() {
    for mode in ["process", "thread"] {
        for accept in STRATEGIES {
            let server = Server::start(&["--mode", mode, "--accept", accept, "--workers", "2"]);
            let mut streams = Vec::new();
            for _ in 0..5 {
                let mut stream = server.connect();
                ask(&mut stream, GET_HELLO, HELLO);
                streams.push(stream);
            }
            for stream in &mut streams {
                ask(stream, &GET_HELLO.repeat(3), &HELLO.repeat(3));
            }
            drop(streams);
            server.stop();
        }
        let server = Server::start(&["--mode", mode, "--accept", "serial"]);
        for _ in 0..3 {
            assert_eq!(ask_all(server.address, GET_HELLO.as_bytes()), HELLO);
        }
        // The server has no log to reopen, and continues to run.
        let workers = server.workers();
        server.signal("USR1");
        for _ in 0..10 {
            assert_eq!(ask_all(server.address, GET_HELLO.as_bytes()), HELLO);
        }
        assert_eq!(server.workers(), workers);
        server.stop();
    }
}

/// Regression test for the historical server, which never answered a request in two segments.
#[test]
fn a_request_may_be_split_at_every_byte() {
    for accept in ["least-loaded", "serial"] {
        let server = Server::start(&["--workers", "1", "--accept", accept]);
        for split in 1..GET_HELLO.len() {
            let mut stream = server.connect();
            stream.write_all(&GET_HELLO.as_bytes()[..split]).unwrap();
            // Usually long enough for the server to read the first part separately.
            std::thread::yield_now();
            ask(&mut stream, &GET_HELLO[split..], HELLO);
        }
        server.stop();
    }
}

#[test]
fn only_files_below_the_root_are_served() {
    let folder = Folder::new("files");
    let big: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    fs::write(folder.path("root/big.bin"), &big).unwrap();
    std::os::unix::fs::symlink("../secret.txt", folder.path("root/link.txt")).unwrap();
    let root = folder.path("root");
    let server = Server::start(&["--root", root.to_str().unwrap(), "--workers", "1"]);
    let close = "HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let index = ask_all(server.address, format!("GET / {close}").as_bytes());
    assert!(
        index.contains("Content-Type: text/html") && index.ends_with("<p>index</p>"),
        "{index}"
    );
    for (path, status) in [
        ("/../secret.txt", 400),
        ("/%2e%2e/secret.txt", 400),
        ("/..%2fsecret.txt", 400),
        ("/a%00.html", 400),
        ("/link.txt", 403),
        ("/.hidden", 404),
        ("/none", 404),
        ("/sub", 301),
        ("/sub/", 404),
    ] {
        check_status(&server, &format!("GET {path} {close}"), status);
    }
    // The big file twice with another request after it, then a part of it.
    let mut stream = server.connect();
    let get = "GET /big.bin HTTP/1.1\r\nHost: a\r\n\r\n";
    stream.write_all(format!("{get}{get}GET /hello {close}").as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let bodies = bytes.windows(4).enumerate().filter(|(_, window)| window == b"\r\n\r\n");
    let first = bodies.map(|(at, _)| at + 4).next().unwrap();
    assert!(bytes[first..first + big.len()] == big[..]);
    let told = HELLO.replace("27\r\n", "27\r\nConnection: close\r\n");
    assert_eq!(bytes.len(), 2 * (first + big.len()) + told.len());
    assert!(bytes.ends_with(told.as_bytes()));
    let part = ask_all(
        server.address,
        b"GET /big.bin HTTP/1.1\r\nHost: a\r\nRange: bytes=-5\r\nConnection: close\r\n\r\n",
    );
    assert!(part.contains("Content-Range: bytes 2999995-2999999/3000000"), "{part}");
    server.stop();
}

#[test]
fn malformed_requests_get_the_right_status() {
    let server = Server::start(&["--workers", "1", "--body-bytes-max", "10"]);
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\nHost: a\n\n", 400),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n", 413),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        ("BREW / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 501),
        ("PUT /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", 405),
        ("\x16\x03\x01", 400),
    ] {
        check_status(&server, request, status);
    }
    check_status(&server, &format!("GET /{} HTTP/1.1\r\n", "a".repeat(20_000)), 414);
    let many = "A: b\r\n".repeat(101);
    check_status(&server, &format!("GET / HTTP/1.1\r\n{many}\r\n"), 431);
    // Requests before a malformed one are answered.
    let answers = ask_all(server.address, format!("{GET_HELLO}GET / HTTP/3.0\r\n\r\n").as_bytes());
    assert!(answers.starts_with(&format!("{HELLO}HTTP/1.1 505 ")), "{answers}");
    let mut stream = server.connect();
    ask(
        &mut stream,
        "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
    );
    ask(&mut stream, "x", "HTTP/1.1 405 ");
    drop(stream);
    server.stop();
}

#[test]
fn slow_clients_are_disconnected() {
    let options = ["--workers", "1", "--head-timeout-ms", "200", "--idle-timeout-ms", "200"];
    let server = Server::start(&[&options[..], &["--body-rate-min", "1000000"]].concat());
    // Silent from the start, in the middle of a head, in a body, and after a response.
    let body = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx";
    let requests: [&[u8]; 4] = [b"", b"GET /hello HT", body, GET_HELLO.as_bytes()];
    let answers = ask_at_once(&server, &requests);
    assert_eq!((answers[0].as_str(), answers[3].as_str()), ("", HELLO));
    for slow in &answers[1..3] {
        assert!(slow.starts_with("HTTP/1.1 408 "), "{slow:?}");
    }
    // Sending a byte now and then does not extend the deadline.
    let mut stream = server.connect();
    let mut sent = 0;
    for byte in "GET / HTTP/1.1\r\n".bytes().chain(std::iter::repeat(b'a')) {
        if stream.write_all(&[byte]).is_err() {
            break;
        }
        sent += 1;
        assert!(sent < 6000, "the slow client was never disconnected");
        std::thread::sleep(Duration::from_millis(10));
    }
    server.stop();
}

/// More connections than one pass over the timeouts closes.
#[test]
fn all_of_many_slow_clients_are_disconnected() {
    let server = Server::start(&["--workers", "1", "--head-timeout-ms", "200"]);
    for answer in ask_at_once(&server, &[&b"GET /hello HT"[..]; 300]) {
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer:?}");
    }
    server.stop();
}

#[test]
fn a_killed_worker_is_replaced_and_others_are_unaffected() {
    let server = Server::start(&["--workers", "2", "--accept", "fdpass"]);
    // One connection per worker: the master distributes them evenly.
    let mut streams = [(); 2].map(|()| {
        let mut stream = server.connect();
        ask(&mut stream, GET_HELLO, HELLO);
        stream
    });
    let before = server.workers();
    assert_eq!(before.len(), 2);
    signal(before[0], "KILL");
    // The unit tests of the master check the delay; they use a simulated clock.
    wait_until("the replacement worker is running", || {
        let now = server.workers();
        now.len() == 2 && !now.contains(&before[0])
    });
    // Exactly one connection belonged to the killed worker.
    let mut alive = 0;
    for stream in &mut streams {
        let mut bytes = [0; HELLO.len()];
        let asked = stream.write_all(GET_HELLO.as_bytes());
        if asked.and_then(|()| stream.read_exact(&mut bytes)).is_ok() {
            assert_eq!(bytes, HELLO.as_bytes());
            alive += 1;
        }
    }
    assert_eq!(alive, 1);
    for _ in 0..10 {
        ask(&mut server.connect(), GET_HELLO, HELLO);
    }
    server.stop();
}

/// Connections that wait for a worker that dies are served by the next one.
#[test]
fn waiting_connections_survive_the_death_of_a_worker() {
    for accept in ["least-loaded", "fdpass"] {
        let server = Server::start(&["--workers", "1", "--accept", accept]);
        let worker = server.workers()[0];
        halt(worker);
        let mut streams: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
        for stream in &mut streams {
            stream.write_all(GET_HELLO.as_bytes()).unwrap();
        }
        let waiting = if accept == "fdpass" { 0 } else { 20 };
        wait_until("the connections are queued", || waiting_at(server.address) == waiting);
        signal(worker, "KILL");
        for stream in &mut streams {
            ask(stream, "", HELLO);
        }
        server.stop();
    }
}

#[test]
fn shutdown_finishes_pending_responses() {
    for accept in ["least-loaded", "fdpass", "exclusive"] {
        let folder = Folder::new(&format!("ending-{accept}"));
        fs::write(folder.path("root/big.bin"), vec![7; 8_000_000]).unwrap();
        let root = folder.path("root");
        let options = ["--workers", "2", "--accept", accept, "--root", root.to_str().unwrap()];
        let server = Server::start(&options);
        let (mut downloads, mut idle) = (server.connect(), server.connect());
        ask(&mut idle, GET_HELLO, HELLO);
        ask(&mut downloads, "GET /big.bin HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\n");
        server.signal("TERM");
        let mut rest = Vec::new();
        downloads.read_to_end(&mut rest).unwrap();
        assert!(rest.ends_with(&vec![7; 8_000_000]), "{} bytes", rest.len());
        assert_eq!(idle.read(&mut [0; 8]).unwrap(), 0);
        assert!(server.master.wait().success());
        assert!(TcpStream::connect(server.address).is_err());
    }
}

/// The program is replaced ten times under load, and no client sees an error.
#[test]
fn replacing_the_program_breaks_no_connection() {
    for options in [
        ["--mode", "process", "--accept", "least-loaded", "--workers", "2"],
        ["--mode", "process", "--accept", "fdpass", "--workers", "2"],
        ["--mode", "thread", "--accept", "exclusive", "--workers", "2"],
    ] {
        let mut server = Server::start(&[&options[..], &PATIENT].concat());
        let load = Load::start(server.address, 4);
        load.go_on(100);
        let mut masters = vec![Orphan(server.master.id())];
        for _ in 0..10 {
            let before = masters[0].0;
            masters.insert(0, replace(before, server.address));
            assert_eq!(server.next_address(), server.address);
            wait_until("the old master has ended", || !is_running(before));
            load.go_on(50);
        }
        let failures = load.stop();
        assert!(failures.is_empty(), "{options:?}: {failures:?}");
        signal(masters[0].0, "TERM");
        wait_until("the last master has ended", || !masters[0].is_there());
        assert!(TcpStream::connect(server.address).is_err());
    }
}

/// A new program that is still starting when the server is stopped also stops.
#[test]
fn a_stop_also_stops_a_replacement_that_is_starting() {
    let folder = Folder::new("end");
    let file = folder.path("web.toml");
    fs::write(&file, "workers = 1\n").unwrap();
    let server = Server::start(&["--config", file.to_str().unwrap()]);
    // The next program blocks on its options until the pipe is written.
    fs::remove_file(&file).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    server.signal("USR2");
    let next = successor(server.master.id());
    server.signal("TERM");
    assert!(server.master.wait().success());
    wait_until("the new master has ended", || !next.is_there());
    assert!(TcpStream::connect(server.address).is_err());
}

/// The program that started the server may have closed its end of the output pipe.
#[test]
fn a_program_is_replaced_when_its_output_is_closed() {
    let mut server = Server::start(&[&["--workers", "1"][..], &PATIENT].concat());
    let before = server.master.id();
    server.stop_listening();
    let next = replace(before, server.address);
    wait_until("the old master has ended", || !is_running(before));
    ask(&mut server.connect(), GET_HELLO, HELLO);
    signal(next.0, "TERM");
    wait_until("the new master has ended", || !next.is_there());
}

/// If new workers fail to start, nothing changes, and clients that connect meanwhile are served:
/// the sockets bound for the new workers do not listen.
#[test]
fn a_failed_reload_loses_no_connection() {
    let folder = Folder::new("failing-options");
    let (file, said) = (folder.path("web.toml"), folder.path("said"));
    fs::write(&file, "workers = 1\naccept = \"exclusive\"\n").unwrap();
    let errors = fs::File::create(&said).unwrap();
    // Another process makes the copy: a file that is open for writing cannot be executed.
    let program = folder.path("myriad");
    let place = |source: &str| {
        let copy = folder.path("copy");
        assert!(Command::new("cp").arg(source).arg(&copy).status().unwrap().success());
        fs::rename(copy, &program).unwrap();
    };
    place(env!("CARGO_BIN_EXE_myriad"));
    let options = ["--listen", "127.0.0.1:0", "--config", file.to_str().unwrap()];
    let server = Server::run_as_told(&mut Command::new(&program), &options, errors);
    let workers = server.workers();
    place("/bin/false");
    fs::write(&file, "workers = 8\n").unwrap();
    let load = Load::of_new_connections(server.address, 4);
    load.go_on(50);
    for round in 1..=3 {
        server.signal("HUP");
        wait_until("the workers with the new options have failed", || {
            let said = fs::read_to_string(&said).unwrap();
            said.matches("keeping the old options").count() == round
        });
        wait_until("they have exited", || server.workers() == workers);
        load.go_on(50);
    }
    assert_eq!(load.stop(), Vec::<String>::new());
    server.stop();
}

#[test]
fn options_are_reloaded_without_interruption() {
    let folder = Folder::new("reload");
    let file = folder.path("web.toml");
    fs::write(&file, "workers = 1\naccept = \"exclusive\"\n").unwrap();
    let server = Server::start(&["--config", file.to_str().unwrap()]);
    let load = Load::start(server.address, 3);
    load.go_on(100);
    let before = server.workers();
    fs::write(&file, format!("workers = 3\nroot = {:?}\n", folder.path("root"))).unwrap();
    server.signal("HUP");
    wait_until("only the new workers remain", || {
        let now = server.workers();
        now.len() == 3 && !now.contains(&before[0])
    });
    check_status(&server, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 200);
    // Invalid options change nothing.
    fs::write(&file, "workers = 0\n").unwrap();
    let before = server.workers();
    server.signal("HUP");
    load.go_on(300);
    assert_eq!(server.workers(), before);
    assert_eq!(load.stop(), Vec::<String>::new());
    server.stop();
}

/// Connections are spread evenly, even if the kernel would assign them to a single socket.
#[test]
fn the_least_loaded_worker_gets_the_next_connection() {
    let server = Server::start(&["--workers", "4", "--accept", "least-loaded"]);
    let mut streams = Vec::new();
    for _ in 0..40 {
        let mut stream = server.connect();
        ask(&mut stream, GET_HELLO, HELLO);
        streams.push(stream);
    }
    let counts: Vec<usize> = server.workers().into_iter().map(connections_of).collect();
    assert_eq!(counts.len(), 4);
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(most - least <= 4, "{counts:?}");
    drop(streams);
    server.stop();
}

/// The historical design and its fault: five connections arrive while the master sleeps. The master
/// gets one notification and notifies one worker once, which accepts one connection.
#[test]
fn edge_triggered_notices_lose_connections_and_level_triggered_do_not() {
    for (accept, served) in [("notify-lt", 5), ("notify-et", 1)] {
        let server = Server::start(&["--workers", "1", "--accept", accept, "--accept-max", "1"]);
        halt(server.master.id());
        let mut streams: Vec<TcpStream> = (0..5).map(|_| server.connect()).collect();
        for stream in &mut streams {
            stream.write_all(GET_HELLO.as_bytes()).unwrap();
        }
        wait_until("all connections are queued", || waiting_at(server.address) == 5);
        signal(server.master.id(), "CONT");
        let mut answered = 0;
        for stream in &mut streams {
            // A connection that is not served soon after the first one waits until the next
            // connection arrives.
            let is_lost = accept == "notify-et" && answered == served;
            let patience = if is_lost { Duration::from_millis(300) } else { PATIENCE };
            stream.set_read_timeout(Some(patience)).unwrap();
            answered += usize::from(stream.read_exact(&mut [0; HELLO.len()]).is_ok());
        }
        assert_eq!(answered, served, "{accept}");
    }
}

#[test]
fn requests_below_api_are_proxied() {
    // The upstream is a second instance of this server with content of its own.
    let folder = Folder::new("proxy");
    fs::create_dir_all(folder.path("root/api")).unwrap();
    fs::write(folder.path("root/api/data.txt"), "data").unwrap();
    let big: String = "0123456789".repeat(300_000);
    fs::write(folder.path("root/api/big.txt"), &big).unwrap();
    let root = folder.path("root");
    let upstream = Server::start(&["--workers", "1", "--root", root.to_str().unwrap()]);
    let address = upstream.address.to_string();
    let log = folder.path("access.log");
    let server = Server::start(&[
        "--workers",
        "1",
        "--upstream",
        &address,
        "--access-log",
        log.to_str().unwrap(),
    ]);
    let mut stream = server.connect();
    for _ in 0..3 {
        ask(&mut stream, "GET /api/data.txt HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\n");
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\ndata") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            bytes.push(byte[0]);
        }
    }
    // Pipelined, with a local response between two proxied ones.
    let close = "HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let both =
        format!("GET /api/data.txt HTTP/1.1\r\nHost: a\r\n\r\n{GET_HELLO}GET /api/none {close}");
    let answers = ask_all(server.address, both.as_bytes());
    let parts: Vec<&str> = answers.split("HTTP/1.1 ").collect();
    assert_eq!(parts.len(), 4, "{answers}");
    assert!(parts[1].ends_with("\r\n\r\ndata") && parts[2].starts_with("200 OK"), "{answers}");
    assert!(parts[3].starts_with("404 "), "{answers}");
    let whole = ask_all(server.address, format!("GET /api/big.txt {close}").as_bytes());
    assert!(whole.ends_with(&big));
    let head = ask_all(server.address, format!("HEAD /api/data.txt {close}").as_bytes());
    assert!(head.contains("Content-Length: 4\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    check_status(&server, &format!("GET /api/../index.html {close}"), 400);
    upstream.stop();
    check_status(&server, &format!("GET /api/data.txt {close}"), 502);
    server.stop();
    let lines = fs::read_to_string(log).unwrap();
    assert!(lines.contains("\"GET /api/data.txt HTTP/1.1\" 200 4"), "{lines}");
    assert!(lines.contains("\"GET /hello HTTP/1.1\" 200 27"), "{lines}");
    // This error body is the server's own, so its length is known.
    let failed = format!("\"GET /api/data.txt HTTP/1.1\" 502 {} ", "502 Bad Gateway\n".len());
    assert!(lines.contains(&failed), "{lines}");
}

/// The upstream closes its connection after the response, and the client reads slowly.
#[test]
fn a_response_is_proxied_completely_after_its_upstream_closes() {
    const BODY_BYTES: usize = 6 << 20;
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = upstream.local_addr().unwrap().to_string();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = upstream.accept().unwrap();
        assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").unwrap();
        stream.write_all(&vec![7; BODY_BYTES]).unwrap();
    });
    let server = Server::start(&["--workers", "1", "--upstream", &address]);
    let mut stream = server.connect();
    stream.write_all(b"GET /api/big HTTP/1.0\r\n\r\n").unwrap();
    let (mut bytes, mut part) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        // Read more slowly than the response arrives.
        std::thread::sleep(Duration::from_millis(1));
        match stream.read(&mut part).unwrap() {
            0 => break,
            count => bytes.extend_from_slice(&part[..count]),
        }
    }
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(bytes.len() - head, BODY_BYTES);
    answering.join().unwrap();
    server.stop();
}

#[test]
fn a_log_that_was_moved_away_is_reopened() {
    let folder = Folder::new("log");
    let (log, old) = (folder.path("access.log"), folder.path("old.log"));
    let server = Server::start(&["--workers", "1", "--access-log", log.to_str().unwrap()]);
    ask(&mut server.connect(), GET_HELLO, HELLO);
    let has_line = |path: &Path| fs::read_to_string(path).is_ok_and(|text| text.contains("/hello"));
    wait_until("the line is written", || has_line(&log));
    fs::rename(&log, &old).unwrap();
    server.signal("USR1");
    // The master creates the file before the worker opens it.
    wait_until("the worker has opened the log", || has_open(server.workers()[0], &log));
    ask(&mut server.connect(), GET_HELLO, HELLO);
    wait_until("the line is written", || has_line(&log));
    server.stop();
    assert!(fs::read_to_string(old).unwrap().lines().count() == 1);
}

/// The log of requests and that of the operator, in each process.
#[test]
fn logs_that_take_nothing_stop_no_request() {
    for (mode, destination) in
        ["process", "thread"].into_iter().flat_map(|mode| DESTINATIONS.map(|it| (mode, it)))
    {
        let folder = Folder::new(&format!("no-log-{mode}-{destination:?}"));
        // A pipe that is read by no process; the server opens it for appending.
        let pipe = folder.path("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut both_ends = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        both_ends.write_all(&vec![b'x'; 64 * 1024]).unwrap();
        let access = if destination.loses() { "/dev/full" } else { pipe.to_str().unwrap() };
        let (log, _reader) = destination.open();
        let status = own_address();
        let options = ["--workers", "1", "--mode", mode, "--status", &status];
        let server = Server::start_saying(&[&options[..], &["--access-log", access]].concat(), log);
        for _ in 0..10 {
            // Causes events.
            server.signal("HUP");
            ask(&mut server.connect(), GET_HELLO, HELLO);
        }
        if destination.loses() {
            wait_until("the lost lines are counted", || {
                ask(&mut server.connect(), GET_HELLO, HELLO);
                server.metric("myriad_web_access_log_lines_dropped_total") > 0
            });
        }
        server.stop();
    }
}

/// A worker that is finishing its last requests still writes to the log.
#[test]
fn an_exiting_worker_writes_to_the_reopened_log() {
    let folder = Folder::new("old-log");
    let (file, said) = (folder.path("web.toml"), folder.path("said"));
    let (log, old) = (folder.path("access.log"), folder.path("old.log"));
    fs::write(folder.path("root/big.bin"), vec![7; 16_000_000]).unwrap();
    fs::write(&file, format!("root = {:?}\naccess-log = {log:?}\n", folder.path("root"))).unwrap();
    let errors = fs::File::create(&said).unwrap();
    let options = ["--config", file.to_str().unwrap(), "--workers", "1"];
    let server = Server::start_saying(&[&options[..], &PATIENT].concat(), errors);
    let worker = server.workers()[0];
    let mut stream = server.connect();
    let get = "GET /big.bin HTTP/1.1\r\nHost: a\r\n\r\n";
    ask(&mut stream, &format!("{get}{GET_HELLO}"), "HTTP/1.1 200 OK\r\n");
    server.signal("HUP");
    wait_until("another worker serves", || {
        fs::read_to_string(&said).unwrap().contains("serving with new options")
    });
    fs::rename(&log, &old).unwrap();
    server.signal("USR1");
    wait_until("the exiting worker has opened the log", || has_open(worker, &log));
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(b"\r\n\r\nHello from Tom HTTP Server\n"));
    wait_until("the line is written", || {
        fs::read_to_string(&log).unwrap().contains("GET /hello HTTP/1.1")
    });
    server.stop();
    assert!(!fs::read_to_string(old).unwrap().contains("/hello"));
}

#[test]
fn curl_and_wrk_report_no_errors() {
    let folder = Folder::new("clients");
    fs::write(folder.path("root/page.html"), "<p>page</p>".repeat(500)).unwrap();
    let root = folder.path("root");
    let server = Server::start(&["--workers", "2", "--root", root.to_str().unwrap()]);
    let url = |path: &str| format!("http://{}{path}", server.address);
    let run = |program: &str, words: &[&str]| {
        let output = Command::new(program).args(words).output();
        let output =
            output.unwrap_or_else(|error| panic!("{program}: {error}: scripts/setup.sh test"));
        assert!(output.status.success(), "{program} {words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let page = url("/page.html");
    assert_eq!(run("curl", &["-sf", "--compressed", &page]), "<p>page</p>".repeat(500));
    assert_eq!(run("curl", &["-sf", "-r", "0-7", &page]), "<p>page<");
    assert!(
        run("curl", &["-sI", "--path-as-is", &url("/../secret.txt")]).starts_with("HTTP/1.1 400 ")
    );
    assert!(run("curl", &["-s0", "-o", "/dev/null", "-w", "%{http_code}", &page]).ends_with("200"));
    let twice = run("curl", &["-sv", "--stderr", "-", &page, &url("/hello")]);
    assert!(twice.contains("Re-using existing connection"), "{twice}");
    let hello = url("/hello");
    for close in [&[][..], &["-H", "Connection: close"]] {
        // By default, wrk reports an error if a busy machine stalls for two seconds.
        let words = [&["-t1", "-c10", "-d1s", "--timeout", "60s"][..], close, &[&hello]].concat();
        let text = run("wrk", &words);
        assert!(text.contains("requests in"), "{text}");
        assert!(!text.contains("Non-2xx") && !text.contains("Socket errors"), "{text}");
    }
    server.stop();
}
