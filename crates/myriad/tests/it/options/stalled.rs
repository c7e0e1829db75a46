//! A server of which a reactor runs a script without an end.

use std::io::Write;
use std::net::TcpStream;

use super::fixture::{Server, happens};
use crate::resp::{ask, read_reply, request};

/// Starts the script, and returns its connection. The script is slow when this returns.
fn stall(server: &Server) -> TcpStream {
    let mut runner = server.connect("resp");
    run(server, &mut runner, "while true do end");
    runner
}

/// Starts a script, which is slow when this returns.
fn run(server: &Server, runner: &mut TcpStream, script: &str) {
    let mut admin = server.connect("admin");
    runner.write_all(&request(&["EVAL", script, "0"])).unwrap();
    let is_stalled = || {
        let stats = ask(&mut admin, &["INFO", "stats"]);
        stats.lines().any(|line| line.trim() == "reactor_stalls:1")
    };
    assert!(happens(is_stalled), "{}", server.text("stderr"));
}

fn reactor_of(client: &mut TcpStream) -> String {
    let info = ask(client, &["CLIENT", "INFO"]);
    let mut fields = info.split(' ');
    fields.find(|field| field.starts_with("reactor=")).expect("CLIENT INFO has it").to_owned()
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

/// The other reactor's regular work, and what its clients leave behind, waits for no stripe.
#[test]
fn a_script_that_holds_all_data_delays_its_own_reactor_only() {
    let options = ["--reactors", "2", "--hz", "100", "--busy-reply-threshold", "600000"];
    let server = start("stalled-other", &options);
    let mut runner = server.connect("resp");
    let own = reactor_of(&mut runner);
    let mut others: Vec<TcpStream> = Vec::new();
    for _ in 0..100 {
        // Which reactor accepts a connection is not determined.
        others.extend((0..32).map(|_| server.connect("resp")));
        others.retain_mut(|client| reactor_of(client) != own);
        if others.len() >= 3 {
            break;
        }
    }
    let [first, watching, blocked, ..] = &mut others[..] else { panic!("all are on one reactor") };
    assert_eq!(ask(first, &["SET", "due", "v", "PX", "1"]), "+OK");
    assert_eq!(ask(watching, &["WATCH", "k"]), "+OK");
    blocked.write_all(&request(&["BLPOP", "list", "3"])).unwrap();
    // After the script has begun, it would wait for its key.
    assert!(happens(|| ask(first, &["INFO", "clients"]).contains("blocked_clients:1\r")));
    run(&server, &mut runner, "while true do redis.call('DBSIZE') end");
    watching.shutdown(std::net::Shutdown::Both).unwrap();
    assert_eq!(read_reply(blocked), "*-1");
    assert_eq!(ask(blocked, &["PING"]), "+PONG");
    for _ in 0..50 {
        assert_eq!(ask(first, &["PING"]), "+PONG");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // Its client waits. A cursor of 0 would be the end of the scan.
    blocked.write_all(&request(&["SCAN", "0"])).unwrap();
    assert_eq!(ask(first, &["PING"]), "+PONG");
    assert_eq!(ask(first, &["SCRIPT", "KILL"]), "+OK");
    assert!(read_reply(&mut runner).starts_with("-ERR Script killed by user"));
    assert_eq!(read_reply(blocked), "*2");
    assert_eq!(ask(first, &["SET", "k", "v"]), "+OK");
}

#[test]
fn the_server_ends_although_a_script_does_not() {
    let server = start("stalled-end", &["--shutdown-timeout-ms", "100"]);
    let _runner = stall(&server);
    assert_eq!(ask(&mut server.connect("admin"), &["SHUTDOWN"]), "");
    assert!(happens(|| server.ends_within(std::time::Duration::ZERO)));
}
