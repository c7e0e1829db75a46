//! A server whose only reactor runs a script without an end.

use std::io::Write;

use super::fixture::{Server, ask, happens, read_reply, request};

/// Starts the script, and returns its connection. The script is slow when this returns.
fn stall(server: &Server) -> std::net::TcpStream {
    let mut admin = server.connect("admin");
    let mut runner = server.connect("resp");
    runner.write_all(&request(&["EVAL", "while true do end", "0"])).unwrap();
    let is_stalled = || {
        let stats = ask(&mut admin, &["INFO", "stats"]);
        stats.lines().any(|line| line.trim() == "reactor_stalls:1")
    };
    assert!(happens(is_stalled), "{}", server.text("stderr"));
    runner
}

fn start(label: &str, options: &[&str]) -> Server {
    let base = ["--admin", "127.0.0.1:0", "--stall-threshold-ms", "50"];
    let options: Vec<&str> = base.iter().chain(options).copied().collect();
    Server::start(label, &options, &[])
}

#[test]
fn administrators_are_served_and_end_the_script() {
    let options = ["--busy-reply-threshold", "1", "--http", "127.0.0.1:0"];
    let server = start("stalled", &options);
    let mut runner = stall(&server);
    // A new connection to the usual port.
    let mut client = server.connect("resp");
    assert_eq!(ask(&mut client, &["PING"]), "+PONG");
    assert!(ask(&mut client, &["INFO"]).contains("redis_version"));
    assert!(ask(&mut client, &["CLIENT", "LIST"]).contains("cmd=client|list"));
    assert_eq!(ask(&mut client, &["CONFIG", "SET", "hz", "20"]), "+OK");
    assert_eq!(ask(&mut client, &["ACL", "WHOAMI"]), "default");
    assert!(ask(&mut client, &["GET", "k"]).starts_with("-BUSY "));
    let mut health = server.connect("http");
    health.write_all(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
    assert_eq!(read_reply(&mut health), "HTTP/1.1 200 OK");
    assert_eq!(ask(&mut client, &["SCRIPT", "KILL"]), "+OK");
    assert!(read_reply(&mut runner).starts_with("-ERR Script killed by user"));
    assert_eq!(ask(&mut client, &["SET", "k", "v"]), "+OK");
    assert_eq!(ask(&mut runner, &["GET", "k"]), "v");
}

#[test]
fn the_server_ends_although_a_script_does_not() {
    let server = start("stalled-end", &["--shutdown-timeout-ms", "100"]);
    let _runner = stall(&server);
    assert_eq!(ask(&mut server.connect("admin"), &["SHUTDOWN"]), "");
    assert!(happens(|| server.ends_within(std::time::Duration::ZERO)));
}
