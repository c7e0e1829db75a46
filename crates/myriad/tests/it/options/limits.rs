//! Limits on memory, requests and replies.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::fixture::{Server, happens_within, is_closed_within, outcome, word};
use super::{Row, row};
use crate::cql::{Cql, long};
use crate::resp::{ask, read_reply, request};

const CQL: &[&str] = &["--cql", "127.0.0.1:0"];
const HTTP: &[&str] = &["--http", "127.0.0.1:0"];
const SMALL_RPC: &[&str] = &["--cql", "127.0.0.1:0", "--cql-rpc-memory-limit", "10mb"];
const TWO_REACTORS: &[&str] = &["--reactors", "2"];
const NO_LONG_REQUESTS: &[&str] = &["--long-request-threads", "0"];
const FEW_ELEMENTS: &[&str] = &["--elements-per-command-max", "10"];
const YES: [&str; 2] = ["yes", "no"];
const MIB: usize = 1 << 20;

pub(super) const ROWS: &[Row] = &[
    row("memory-limit", "1mb", &[], is_short_of_memory, ["no", "yes"]),
    row("read-buffer-memory-limit", "1mb", &[], set_long, ["+OK", "-OOM"]),
    row("cql-rpc-memory-limit", "1mb", CQL, part_of_a_frame, ["waits", "ERROR 1001"]),
    row("throttle-cql-calls-on-soft-memory-limit", "no", SMALL_RPC, refuses_some, ["yes", "no"]),
    row("client-query-buffer-limit", "1mb", &[], is_long_request_closed, ["no", "yes"]),
    row("client-output-buffer-limit", "normal 512kb 0 0", &[], is_unread_closed, ["no", "yes"]),
    row("proto-max-bulk-len", "1mb", &[], set_long, ["+OK", "-ERR"]),
    row("elements-per-command-max", "10", NO_LONG_REQUESTS, long_range, ["*20", "-ERR"]),
    row("long-request-threads", "0", FEW_ELEMENTS, long_range, ["*20", "-ERR"]),
    row("native-transport-max-frame-size", "64kb", CQL, long_query, ["RESULT", "refused"]),
    row("overload-queue-age-ms", "1", &[], are_old_requests_refused, ["no", "yes"]),
    row("http-body-bytes-max", "1kb", HTTP, long_body, ["201", "413"]),
    row("http-idle-timeout-ms", "1000", HTTP, is_idle_http_closed, ["no", "yes"]),
    row("busy-reply-threshold", "1", TWO_REACTORS, is_refused_beside_a_script, ["no", "yes"]),
    row("script-memory-limit", "1mb", &[], long_string_of_a_script, [":4000000", "-ERR"]),
    row("prepared-statements-memory", "64kb", CQL, first_of_many, ["RESULT", "ERROR 2500"]),
];

fn first_word(reply: &str) -> String {
    reply.split(' ').next().unwrap_or_default().to_owned()
}

/// Whether the server is short of memory. Resident memory is measured ten times a second.
fn is_short_of_memory(server: &Server) -> String {
    let is_refused = || server.ask(&["SET", "k", "v"]).starts_with("-OOM");
    word(happens_within(Duration::from_secs(1), is_refused), YES)
}

/// Sends a request of four megabytes.
fn set_long(server: &Server) -> String {
    let mut stream = server.connect("resp");
    // The server may respond and close the connection before it has read everything.
    let _ = stream.write_all(&request(&["SET", "k", &"v".repeat(4 * MIB)]));
    first_word(&read_reply(&mut stream))
}

/// Whether reads of a key are refused while a script that took the key runs for half a second. Of
/// several connections some are on another reactor than the script.
fn is_refused_beside_a_script(server: &Server) -> String {
    const SCRIPT: &str = "local began = os.clock() repeat until os.clock() - began > 0.5 \
                          return redis.call('SET', KEYS[1], 'v')";
    let mut readers: Vec<TcpStream> = (0..4).map(|_| server.connect("resp")).collect();
    let mut runner = server.connect("resp");
    runner.write_all(&request(&["EVAL", SCRIPT, "1", "k"])).unwrap();
    let has_ended = AtomicBool::new(false);
    let is_refused = std::thread::scope(|scope| {
        let has_ended = &has_ended;
        let is_refused = move |reader: &mut TcpStream| {
            let mut is_refused = false;
            while !is_refused && !has_ended.load(Ordering::Relaxed) {
                is_refused = ask(reader, &["GET", "k"]).starts_with("-BUSY");
            }
            is_refused
        };
        let threads: Vec<_> =
            readers.iter_mut().map(|reader| scope.spawn(move || is_refused(reader))).collect();
        read_reply(&mut runner);
        has_ended.store(true, Ordering::Relaxed);
        threads.into_iter().any(|thread| thread.join().unwrap())
    });
    word(is_refused, YES)
}

fn long_string_of_a_script(server: &Server) -> String {
    first_word(&server.ask(&["EVAL", "return #string.rep('x', 4000000)", "0"]))
}

/// Sends a QUERY whose body is incomplete.
fn send_part(cql: &mut Cql, length: usize, sent: usize) {
    let mut frame = vec![4, 0, 0, 1, Cql::QUERY];
    frame.extend(u32::try_from(length).unwrap().to_be_bytes());
    frame.resize(9 + sent, b' ');
    // The server may close the connection meanwhile.
    let _ = cql.stream.write_all(&frame);
}

fn part_of_a_frame(server: &Server) -> String {
    let mut cql = Cql::start(server.connect("cql"));
    send_part(&mut cql, 8 * MIB, 4 * MIB);
    cql.stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut answer = [0; 13];
    match cql.stream.read_exact(&mut answer) {
        Ok(()) => outcome(&(answer[4], answer[9..].to_vec())),
        Err(_) => "waits".to_owned(),
    }
}

/// Whether some statements are refused: above nine tenths of the limit, the server sheds a share of
/// them.
fn refuses_some(server: &Server) -> String {
    let mut holder = Cql::start(server.connect("cql"));
    send_part(&mut holder, 15 * MIB, 9 * MIB + MIB / 2);
    let is_held = || server.ask(&["MEMORY", "STATS"]).starts_with('*');
    assert!(happens_within(Duration::from_secs(1), is_held));
    let mut cql = Cql::start(server.connect("cql"));
    let mut is_refused =
        || (0..50).any(|_| outcome(&cql.query("SELECT key FROM system.local")) == "ERROR 1001");
    word(happens_within(Duration::from_secs(2), &mut is_refused), YES)
}

fn is_long_request_closed(server: &Server) -> String {
    let mut stream = server.connect("resp");
    let mut request = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000000\r\n".to_vec();
    request.resize(4 * MIB, b'v');
    let is_cut = stream.write_all(&request).is_err();
    word(is_cut || is_closed_within(&mut stream, Duration::from_secs(2)), YES)
}

/// Whether the server disconnects a client that does not read replies of 128 KiB.
fn is_unread_closed(server: &Server) -> String {
    server.ask(&["SETRANGE", "k", "1048575", "x"]);
    let mut stream = server.connect("resp");
    stream.write_all(&request(&["GETRANGE", "k", "0", "131071"]).repeat(400)).unwrap();
    let is_closed = || server.counter("connected_clients") == 1;
    word(happens_within(Duration::from_secs(3), is_closed), YES)
}

fn long_range(server: &Server) -> String {
    let mut words = vec!["RPUSH", "k"];
    words.extend(["e"; 20]);
    assert_eq!(server.ask(&words), ":20");
    first_word(&server.ask(&["LRANGE", "k", "0", "-1"]))
}

fn long_query(server: &Server) -> String {
    let mut cql = Cql::start(server.connect("cql"));
    let text = format!("USE system{}", " ".repeat(100_000));
    let reply = outcome(&cql.query(&text));
    if reply.starts_with("ERROR") { "refused".to_owned() } else { reply }
}

/// Whether requests are refused after some connections have each sent a hundred scripts of two
/// milliseconds. Each turn serves one of each connection.
fn are_old_requests_refused(server: &Server) -> String {
    const SCRIPT: &str = "local began = os.clock() repeat until os.clock() - began > 0.002";
    let mut streams: Vec<TcpStream> = (0..4).map(|_| server.connect("resp")).collect();
    for stream in &mut streams {
        stream.write_all(&request(&["EVAL", SCRIPT, "0"]).repeat(100)).unwrap();
    }
    let mut replies = Vec::new();
    for stream in &mut streams {
        replies.extend((0..100).map(|_| read_reply(stream)));
    }
    let is_refused = replies.iter().any(|reply| reply.starts_with("-TRYAGAIN "));
    assert_eq!(server.counter("overload_refused_requests") > 0, is_refused);
    word(is_refused, YES)
}

/// Returns the status code of a response.
fn status(stream: &mut TcpStream) -> String {
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    String::from_utf8_lossy(&head[9..]).into_owned()
}

fn long_body(server: &Server) -> String {
    let mut stream = server.connect("http");
    let body = "v".repeat(2_000);
    let head =
        format!("PUT /kv/k HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    status(&mut stream)
}

fn is_idle_http_closed(server: &Server) -> String {
    let mut stream = server.connect("http");
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert_eq!(status(&mut stream), "200");
    word(is_closed_within(&mut stream, Duration::from_secs(4)), YES)
}

/// Executes the first of many prepared statements.
fn first_of_many(server: &Server) -> String {
    let mut cql = Cql::start(server.connect("cql"));
    let mut first = Vec::new();
    for index in 1..=200 {
        let text = format!("USE system{}", " ".repeat(1_000 + index));
        let (kind, body) = cql.ask(Cql::PREPARE, &long(text.as_bytes()));
        assert_eq!(kind, 8, "{}", String::from_utf8_lossy(&body));
        // The kind of the result, then the ID as short bytes.
        let length = usize::from(u16::from_be_bytes([body[4], body[5]]));
        if first.is_empty() {
            first = body[4..6 + length].to_vec();
        }
    }
    first.extend([0, 1, 0]);
    outcome(&cql.ask(Cql::EXECUTE, &first))
}
