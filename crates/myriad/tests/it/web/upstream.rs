//! Proxying: queues, host names, upgraded connections, and log entries.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use super::harness::{Folder, Server, ask_all, own_address, wait_until};

const GET_AND_CLOSE: &str = "GET /api/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const GET_SOCKET: &str = "GET /api/socket HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n\
     Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const QUEUED: &str = "myriad_web_upstream_requests{state=\"queued\"";
const ACTIVE: &str = "myriad_web_upstream_requests{state=\"active\"";

/// Reads the head of a request or a response.
fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// An upstream that responds to one request with the request's head each time the test sends on the
/// channel.
fn reluctant() -> (String, Sender<()>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (go, told) = channel::<()>();
    let thread = std::thread::spawn(move || {
        while told.recv().is_ok() {
            let (mut stream, _) = listener.accept().unwrap();
            let head = read_head(&mut stream);
            let length = head.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{head}"
            );
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    (address, go, thread)
}

fn ask_later(server: &Server) -> TcpStream {
    let mut stream = server.connect();
    stream.write_all(GET_AND_CLOSE.as_bytes()).unwrap();
    stream
}

fn answer(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn requests_are_queued_and_refused_when_the_queue_is_full() {
    let (upstream, go, thread) = reluctant();
    let status = own_address();
    let options = ["--workers", "1", "--upstream", &upstream, "--upstream-connections-max", "1"];
    let limits = ["--upstream-queue-max", "2", "--status", &status];
    let server = Server::start(&[&options[..], &limits].concat());
    let first = ask_later(&server);
    wait_until("the first request is at the upstream", || server.metric(ACTIVE) == 1);
    let second = ask_later(&server);
    wait_until("the second request is queued", || server.metric(QUEUED) == 1);
    let third = ask_later(&server);
    wait_until("the third request is queued", || server.metric(QUEUED) == 2);
    let refused = ask_all(server.address, GET_AND_CLOSE.as_bytes());
    assert!(
        refused.starts_with("HTTP/1.1 503 ") && refused.contains("Retry-After: 1"),
        "{refused}"
    );
    assert_eq!(server.metric("myriad_web_refused_total{reason=\"upstream_queue_full\""), 1);
    for stream in [first, second, third] {
        go.send(()).unwrap();
        assert!(answer(stream).starts_with("HTTP/1.1 200 OK\r\n"));
    }
    assert_eq!((server.metric(QUEUED), server.metric(ACTIVE)), (0, 0));
    assert_eq!(server.metric("myriad_web_upstream_requests_total"), 3);
    drop(go);
    thread.join().unwrap();
    server.stop();
}

#[test]
fn a_queued_request_times_out() {
    let (upstream, go, thread) = reluctant();
    let options = ["--workers", "1", "--upstream", &upstream, "--upstream-connections-max", "1"];
    let status = own_address();
    let limits = ["--upstream-queue-timeout-ms", "200", "--status", &status];
    let server = Server::start(&[&options[..], &limits].concat());
    let first = ask_later(&server);
    wait_until("the first request is at the upstream", || server.metric(ACTIVE) == 1);
    let refused = ask_all(server.address, GET_AND_CLOSE.as_bytes());
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert_eq!(server.metric("myriad_web_refused_total{reason=\"upstream_queue_timeout\""), 1);
    go.send(()).unwrap();
    assert!(answer(first).starts_with("HTTP/1.1 200 OK\r\n"));
    drop(go);
    thread.join().unwrap();
    server.stop();
}

/// The upstream is configured by name, and its requests can be matched with lines in the access
/// log.
#[test]
fn an_upstream_gets_the_request_id_of_the_log() {
    let (upstream, go, thread) = reluctant();
    let folder = Folder::new("request-id");
    let log = folder.path("access.log");
    let named = upstream.replace("127.0.0.1", "localhost");
    let options = ["--workers", "1", "--upstream", &named, "--access-log-format", "json"];
    let server = Server::start(&[&options[..], &["--access-log", log.to_str().unwrap()]].concat());
    go.send(()).unwrap();
    let echo = ask_all(server.address, GET_AND_CLOSE.as_bytes());
    let id = echo.split("X-Request-ID: ").nth(1).unwrap().split("\r\n").next().unwrap();
    drop(go);
    thread.join().unwrap();
    server.stop();
    let text = fs::read_to_string(log).unwrap();
    let line: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!((line["request_id"].as_str(), line["host"].as_str()), (Some(id), Some("a")));
    let (all, there) = (line["duration_us"].as_u64(), line["upstream_us"].as_u64());
    assert!(there.unwrap() <= all.unwrap(), "{line}");
}

/// An upstream that sends `answer` on each of `count` connections, and then waits for the test
/// before it sends the rest.
fn slow_upstream(
    answer: &'static str,
    rest: &'static str,
    count: usize,
) -> (String, Sender<()>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (go, told) = channel::<()>();
    let thread = std::thread::spawn(move || {
        for _ in 0..count {
            let (mut stream, _) = listener.accept().unwrap();
            read_head(&mut stream);
            stream.write_all(answer.as_bytes()).unwrap();
            told.recv().unwrap();
            stream.write_all(rest.as_bytes()).unwrap();
        }
    });
    (address, go, thread)
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let line_end = bytes.windows(2).position(|two| two == b"\r\n").unwrap();
        let line = std::str::from_utf8(&bytes[..line_end]).unwrap();
        let length = usize::from_str_radix(line, 16).unwrap();
        if length == 0 {
            return whole;
        }
        whole.extend_from_slice(&bytes[line_end + 2..][..length]);
        bytes = &bytes[line_end + 2 + length + 2..];
    }
}

/// The first part of the response reaches the client before the upstream has sent the second one.
#[test]
fn responses_are_compressed_as_they_arrive() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nETag: \"1\"\r\n\
                Accept-Ranges: bytes\r\nConnection: close\r\n\r\n[1,";
    let (upstream, go, thread) = slow_upstream(head, "2]", 3);
    let server = Server::start(&["--workers", "1", "--upstream", &upstream]);
    let ask = |line: &str| {
        let mut stream = server.connect();
        let lines = format!("Host: a\r\n{line}Connection: close\r\n\r\n");
        stream.write_all(format!("GET /api/x HTTP/1.1\r\n{lines}").as_bytes()).unwrap();
        let head = read_head(&mut stream);
        // The length of the first chunk.
        let mut first = [0];
        stream.read_exact(&mut first).unwrap();
        go.send(()).unwrap();
        let mut body = first.to_vec();
        stream.read_to_end(&mut body).unwrap();
        (head, unchunked(&body))
    };
    let (head, body) = ask("Accept-Encoding: gzip\r\n");
    assert!(head.contains("\r\nETag: W/\"1\"\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Encoding: gzip\r\nVary: Accept-Encoding\r\n"), "{head}");
    assert!(!head.contains("Accept-Ranges") && body.starts_with(b"\x1f\x8b"), "{head}");
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(body.as_slice()).read_to_end(&mut unpacked).unwrap();
    assert_eq!(unpacked, b"[1,2]");
    for line in ["", "Accept-Encoding: gzip\r\nRange: bytes=0-99\r\n"] {
        let (head, body) = ask(line);
        assert!(head.contains("\r\nETag: \"1\"\r\n"), "{head}");
        assert!(head.contains("\r\nVary: Accept-Encoding\r\n"), "{head}");
        assert!(!head.contains("Content-Encoding") && body == b"[1,2]", "{head}");
    }
    thread.join().unwrap();
    server.stop();
}

#[test]
fn a_failure_of_the_upstream_is_logged_with_its_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = listener.local_addr().unwrap().to_string();
    drop(listener);
    let folder = Folder::new("failure");
    let said = folder.path("said");
    let options = ["--workers", "1", "--upstream", &upstream];
    let server = Server::start_saying(&options, fs::File::create(&said).unwrap());
    for _ in 0..20 {
        let answer = ask_all(server.address, GET_AND_CLOSE.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    }
    server.stop();
    let text = fs::read_to_string(&said).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("upstream failed")).collect();
    // The first one, and possibly the number of the others.
    assert!((1..=2).contains(&lines.len()), "{text}");
    for part in [&upstream, "GET /api/x", "status=502", "Connection refused"] {
        assert!(lines[0].contains(part), "{part}: {text}");
    }
}

/// An upstream that accepts a WebSocket, sends a greeting, and echoes all input.
fn echo_socket() -> (String, JoinHandle<u64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let head = read_head(&mut stream);
        for line in ["\r\nConnection: Upgrade\r\n", "\r\nUpgrade: websocket\r\n"] {
            assert!(head.contains(line), "{head}");
        }
        let switch = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                      Connection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\ngreeting";
        stream.write_all(switch.as_bytes()).unwrap();
        let mut reader = stream.try_clone().unwrap();
        // The server may close an idle socket with a reset.
        std::io::copy(&mut reader, &mut stream).unwrap_or(0)
    });
    (address, thread)
}

#[test]
fn a_websocket_relays_both_directions_until_one_side_closes() {
    const BYTES: usize = 3_000_000;
    let folder = Folder::new("websocket");
    let log = folder.path("access.log");
    let (upstream, thread) = echo_socket();
    let status = own_address();
    let options = ["--workers", "1", "--upstream", &upstream, "--websockets-max", "1"];
    let more = ["--access-log", log.to_str().unwrap(), "--status", &status];
    let server = Server::start(&[&options[..], &more].concat());
    let mut stream = server.connect();
    stream.write_all(GET_SOCKET.as_bytes()).unwrap();
    let head = read_head(&mut stream);
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    assert!(
        head.contains("\r\nUpgrade: websocket\r\n") && head.contains("Accept: x\r\n"),
        "{head}"
    );
    let mut greeting = [0; 8];
    stream.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"greeting");
    wait_until("the WebSocket is counted", || server.metric("myriad_web_websockets") == 1);
    let refused = ask_all(server.address, GET_SOCKET.replace("keep-alive", "close").as_bytes());
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    // More than all buffers on the path hold, so both sides must wait for each other.
    let sent: Vec<u8> = (0..BYTES).map(|at| u8::try_from(at * at / 7 % 251).unwrap()).collect();
    let (mut writer, whole) = (stream.try_clone().unwrap(), sent.clone());
    let writing = std::thread::spawn(move || writer.write_all(&whole).unwrap());
    let mut echo = vec![0; BYTES];
    stream.read_exact(&mut echo).unwrap();
    assert!(echo == sent);
    writing.join().unwrap();
    drop(stream);
    assert_eq!(thread.join().unwrap(), BYTES as u64);
    wait_until("the WebSocket is closed", || server.metric("myriad_web_websockets") == 0);
    server.stop();
    let text = fs::read_to_string(log).unwrap();
    let expected = format!("\"GET /api/socket HTTP/1.1\" 101 {} ", BYTES + greeting.len());
    assert!(text.contains(&expected), "{text}");
}

#[test]
fn an_idle_websocket_is_closed() {
    let (upstream, thread) = echo_socket();
    let options = ["--workers", "1", "--upstream", &upstream];
    let server = Server::start(&[&options[..], &["--websocket-idle-timeout-ms", "300"]].concat());
    let mut stream = server.connect();
    stream.write_all(GET_SOCKET.as_bytes()).unwrap();
    assert!(read_head(&mut stream).starts_with("HTTP/1.1 101 "));
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"greeting");
    assert_eq!(thread.join().unwrap(), 0);
    server.stop();
}

/// The connection becomes a WebSocket only if the upstream agrees. Other protocols are not offered
/// to it.
#[test]
fn a_declined_upgrade_is_an_ordinary_request() {
    let (upstream, go, thread) = reluctant();
    let server = Server::start(&["--workers", "1", "--upstream", &upstream]);
    for (protocol, passes) in [("websocket", true), ("h2c", false)] {
        go.send(()).unwrap();
        let ask = GET_SOCKET.replace("websocket", protocol).replace("keep-alive", "close");
        let answer = ask_all(server.address, ask.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert_eq!(answer.contains("\r\nUpgrade: "), passes, "{answer}");
    }
    drop(go);
    thread.join().unwrap();
    server.stop();
}
