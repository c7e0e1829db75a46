//! Limits on clients, and work that must not delay other clients.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use super::harness::{
    Folder, GET_HELLO, GET_HELLO_AND_CLOSE, HELLO, PATIENCE, Server, ask, ask_all, check_status,
    connect, own_address, wait_until,
};

/// Returns a number of a process's memory, in KiB.
fn memory_kib(pid: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

const REFUSED_FOR_MEMORY: &str = "myriad_web_refused_total{reason=\"memory\"";

/// One client holds 400 unfinished bodies, 396 MB. Another one began an upload before, and
/// continues to be served.
#[test]
fn unfinished_bodies_have_a_bound_in_total() {
    const BODY_BYTES: usize = 500_000;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = listener.local_addr().unwrap().to_string();
    let receiving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"end") {
            let mut part = [0; 16 << 10];
            let count = stream.read(&mut part).unwrap();
            assert_ne!(count, 0);
            received.extend_from_slice(&part[..count]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        received
    });
    let status = own_address();
    let options = ["--workers", "1", "--upstream", &upstream, "--memory-max", "33554432"];
    let more = ["--status", &status, "--listen", "[::1]:0", "--idle-timeout-ms", "600000"];
    let server = Server::start(&[&options[..], &more].concat());
    let worker = server.workers()[0];
    let first_kib = memory_kib(worker, "VmRSS");
    let other = server.addresses.iter().find(|(_, address)| address.is_ipv6()).unwrap().1;
    let body = [&vec![b'b'; BODY_BYTES - 3][..], b"end"].concat();
    let mut honest = connect(other);
    let head = format!("POST /api/x HTTP/1.1\r\nHost: a\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
    honest.write_all(head.as_bytes()).unwrap();
    honest.write_all(&body[..BODY_BYTES / 2]).unwrap();
    let begun = vec![b'x'; 990_000];
    let mut hostile: Vec<TcpStream> = Vec::new();
    for number in 0..400 {
        let mut stream = server.connect();
        stream
            .write_all(b"POST /api/x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")
            .unwrap();
        stream.write_all(&begun).unwrap();
        hostile.push(stream);
        if number % 50 == 0 {
            ask(&mut connect(other), GET_HELLO, HELLO);
        }
    }
    // What was not received is lost with a connection that the server has ended.
    wait_until("the server holds no more than it may", || {
        server.metric(REFUSED_FOR_MEMORY) >= 400 - 33_554_432 / 990_000 - 1
    });
    honest.write_all(&body[BODY_BYTES / 2..]).unwrap();
    let mut answer = [0; 12];
    honest.read_exact(&mut answer).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 200");
    assert!(receiving.join().unwrap().ends_with(&body));
    // The oldest connection got a response.
    let mut refusal = [0; 12];
    hostile[0].read_exact(&mut refusal).unwrap();
    assert_eq!(String::from_utf8_lossy(&refusal), "HTTP/1.1 503");
    let most_kib = memory_kib(worker, "VmHWM");
    assert!(most_kib < 100 << 10, "{most_kib} KiB");
    drop((honest, hostile));
    wait_until("the memory is returned to the system", || {
        memory_kib(worker, "VmRSS") - first_kib < (most_kib - first_kib) / 2
    });
    server.stop();
}

/// Each client may leave less than this unread, and has many connections.
#[test]
fn unread_responses_have_a_bound_in_total() {
    let folder = Folder::new("unread");
    fs::write(folder.path("root/file.bin"), vec![7; 60_000]).unwrap();
    let (root, status) = (folder.path("root"), own_address());
    let options = ["--workers", "1", "--root", root.to_str().unwrap(), "--status", &status];
    let limits = ["--memory-max", "1048576", "--body-bytes-max", "1000"];
    let server = Server::start(&[&options[..], &limits].concat());
    let requests = "GET /file.bin HTTP/1.1\r\nHost: a\r\n\r\n".repeat(200);
    let hostile: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut stream = server.connect();
            stream.write_all(requests.as_bytes()).unwrap();
            stream
        })
        .collect();
    wait_until("some are disconnected", || server.metric(REFUSED_FOR_MEMORY) != 0);
    ask(&mut server.connect(), GET_HELLO, HELLO);
    drop(hostile);
    server.stop();
}

/// The client reads continuously but too slowly. That it can do so for this long is for other
/// limits to prevent.
#[test]
fn a_response_that_is_read_too_slowly_is_aborted() {
    const FILE_BYTES: u64 = 256 << 20;
    let folder = Folder::new("bit-by-bit");
    fs::File::create(folder.path("root/big.bin")).unwrap().set_len(FILE_BYTES).unwrap();
    let root = folder.path("root");
    // More than the kernel buffers and this client reads in the time.
    let demand = ["--write-timeout-ms", "1000", "--write-rate-min", "80000000"];
    let options = [&["--workers", "1", "--root", root.to_str().unwrap()][..], &demand].concat();
    let server = Server::start(&options);
    let mut stream = server.connect();
    stream.write_all(b"GET /big.bin HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let (mut taken, mut part) = (0, vec![0; 128 << 10]);
    let error = loop {
        std::thread::sleep(Duration::from_millis(10));
        match stream.read(&mut part) {
            Ok(0) => panic!("the response ended after {taken} bytes"),
            Ok(count) => taken += count as u64,
            Err(error) => break error,
        }
        assert!(taken < FILE_BYTES, "the client read the whole file");
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    ask(&mut server.connect(), GET_HELLO, HELLO);
    server.stop();
}

/// Most of the body arrived at once, so the minimum rate alone would allow minutes for the rest.
#[test]
fn a_body_that_stalls_times_out() {
    let server = Server::start(&["--workers", "1", "--idle-timeout-ms", "300"]);
    let begun = "x".repeat(99_999);
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
    check_status(&server, &format!("{head}{begun}"), 408);
    server.stop();
}

#[test]
fn connections_above_the_limit_wait() {
    let server = Server::start(&["--workers", "1", "--connections-max", "2"]);
    let mut first = [server.connect(), server.connect()];
    for stream in &mut first {
        ask(stream, GET_HELLO, HELLO);
    }
    let mut third = server.connect();
    third.write_all(GET_HELLO.as_bytes()).unwrap();
    third.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let early = third.read(&mut [0; 1]).unwrap_err();
    assert!(matches!(early.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{early}");
    ask(&mut first[1], GET_HELLO, HELLO);
    drop(first);
    third.set_read_timeout(Some(PATIENCE)).unwrap();
    ask(&mut third, "", HELLO);
    drop(third);
    server.stop();
}

#[test]
fn connections_above_the_limit_per_address_get_503() {
    let server = Server::start(&["--workers", "1", "--connections-per-address-max", "2"]);
    let mut first = [server.connect(), server.connect()];
    for stream in &mut first {
        ask(stream, GET_HELLO, HELLO);
    }
    let answer = ask_all(server.address, GET_HELLO_AND_CLOSE.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Retry-After: 1"), "{answer}");
    for stream in &mut first {
        ask(stream, GET_HELLO, HELLO);
    }
    drop(first);
    wait_until("a connection is accepted again", || {
        ask_all(server.address, GET_HELLO_AND_CLOSE.as_bytes()).starts_with("HTTP/1.1 200 ")
    });
    server.stop();
}

/// Without file descriptors a server can neither serve nor refuse, so it reserves one for refusals.
#[test]
fn clients_get_503_when_no_descriptor_is_left() {
    let folder = Folder::new("descriptors");
    let said = folder.path("said");
    let errors = fs::File::create(&said).unwrap();
    let server = Server::start_with_descriptors(40, &["--workers", "1"], errors);
    let mut kept: Vec<TcpStream> = Vec::new();
    let refusal = loop {
        assert!(kept.len() < 40, "more connections than descriptors");
        let mut stream = connect(server.address);
        stream.write_all(GET_HELLO.as_bytes()).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        if status != HELLO.as_bytes()[..12] {
            break String::from_utf8_lossy(&status).into_owned();
        }
        stream.read_exact(&mut [0; HELLO.len() - 12]).unwrap();
        kept.push(stream);
    };
    assert_eq!(refusal, "HTTP/1.1 503");
    for stream in &mut kept {
        ask(stream, GET_HELLO, HELLO);
    }
    wait_until("the failure is logged", || {
        fs::read_to_string(&said).unwrap().contains("clients refused with 503")
    });
    drop(kept);
    wait_until("a connection is accepted again", || {
        ask_all(server.address, GET_HELLO_AND_CLOSE.as_bytes()).starts_with("HTTP/1.1 200 ")
    });
    server.stop();
}

/// The upstream breaks off, and for this client only the close of the connection marks the end of
/// the response.
#[test]
fn a_truncated_response_is_not_mistaken_for_a_complete_one() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = upstream.local_addr().unwrap().to_string();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = upstream.accept().unwrap();
        assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
        let begun = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
        stream.write_all(begun).unwrap();
    });
    let server = Server::start(&["--workers", "1", "--upstream", &address]);
    let mut stream = server.connect();
    stream.write_all(b"GET /api/x HTTP/1.0\r\n\r\n").unwrap();
    let error = stream.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    answering.join().unwrap();
    server.stop();
}

/// Returns the bytes that the main thread, and the file threads, of a process have read from disk.
fn read_from_disks(pid: u32) -> (u64, u64) {
    let (mut own, mut others) = (0, 0);
    for thread in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let path = thread.unwrap().path();
        // Kernels may be built without this accounting.
        let account = fs::read_to_string(path.join("io")).unwrap_or_default();
        let line = account.lines().find_map(|line| line.strip_prefix("read_bytes: "));
        let bytes: u64 = line.map_or(0, |line| line.parse().unwrap());
        if fs::read_to_string(path.join("comm")).unwrap().starts_with("files") {
            others += bytes;
        } else {
            own += bytes;
        }
    }
    (own, others)
}

/// The kernel charges disk reads to the thread that waited for them.
#[test]
fn uncached_files_are_not_read_by_the_serving_thread() {
    const FILE_BYTES: u64 = 12 << 20;
    let folder = Folder::new("cold");
    let path = folder.path("root/cold.bin");
    let content: Vec<u8> =
        (0..FILE_BYTES).map(|number| (number * number / 128 % 251) as u8).collect();
    fs::write(&path, &content).unwrap();
    let root = folder.path("root");
    let server = Server::start(&["--workers", "1", "--root", root.to_str().unwrap()]);
    let forget = || {
        let of = format!("of={}", path.display());
        let words = [&of, "oflag=nocache", "conv=notrunc,fdatasync", "count=0", "status=none"];
        assert!(Command::new("dd").args(words).status().unwrap().success());
    };
    let get = |name: &str, range: &str| {
        let lines = format!("Host: a\r\n{range}Connection: close\r\n");
        let mut stream = server.connect();
        stream.write_all(format!("GET /{name} HTTP/1.1\r\n{lines}\r\n").as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let head = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        answer.split_off(head)
    };
    // A first request loads the parts of the program that are still on disk.
    fs::write(folder.path("root/warm.bin"), vec![7; 100_000]).unwrap();
    assert_eq!(get("warm.bin", "").len(), 100_000);
    let worker = server.workers()[0];
    forget();
    let before = read_from_disks(worker);
    assert!(get("cold.bin", "") == content);
    let after = read_from_disks(worker);
    let (own, others) = (after.0 - before.0, after.1 - before.1);
    // On a file system in memory, no thread reads from disk.
    assert!(own <= FILE_BYTES / 16, "the serving thread read {own} bytes, file threads {others}");
    // A range across the boundary of two pieces, and one at the end.
    forget();
    let (from, to) = ((5 << 20) - 3, (6 << 20) + 2);
    let part = get("cold.bin", &format!("Range: bytes={from}-{to}\r\n"));
    assert!(part == content[from..=to]);
    assert!(get("cold.bin", "Range: bytes=-5\r\n") == content[content.len() - 5..]);
    server.stop();
}
