//! MIGRATE to other servers: Myriad, a real Redis where one is installed, and one that is slow.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::process::{self, ask_inline, directory};

struct Server {
    server: process::Server,
    port: String,
}

impl Server {
    fn start(name: &str, options: &[&str]) -> Server {
        let server = process::Server::start(&directory(name), options);
        let port = server.address("resp").port().to_string();
        Server { server, port }
    }

    /// Sends inline requests, and returns the replies with spaces for line ends.
    fn ask(&self, requests: &[&str]) -> String {
        words(&self.server.ask(&requests.join("\r\n")))
    }
}

fn words(replies: &str) -> String {
    replies.trim_end().replace("\r\n", " ")
}

#[test]
fn keys_move_and_are_deleted_after_they_have_arrived() {
    let source = Server::start("migrate-source", &[]);
    let target = Server::start("migrate-target", &["--requirepass", "pw"]);
    let port = &target.port;
    let login = "AUTH pw";
    let set = ["SET a 1", "SET b 2 PX 1000000", "RPUSH l 1 2", "HSETEX h EX 1000 FIELDS 1 f v"];
    assert_eq!(source.ask(&set), "+OK +OK :2 :1");
    let refused = source.ask(&[&format!("MIGRATE 127.0.0.1 {port} a 0 5000"), "GET a"]);
    assert!(refused.starts_with("-ERR Target instance replied with error: NOAUTH"), "{refused}");
    assert!(refused.ends_with("$1 1"), "{refused}");
    let moved = source.ask(&[
        &format!("MIGRATE 127.0.0.1 {port} \"\" 3 5000 AUTH2 default pw KEYS b l h missing"),
        "EXISTS b l h",
    ]);
    assert_eq!(moved, "+OK :0");
    let read = ["LRANGE l 0 -1", "HTTL h FIELDS 1 f", "GET b"];
    let found = target.ask(&[&[login, "SELECT 3"][..], &read].concat());
    assert_eq!(found, "+OK +OK *2 $1 1 $1 2 *1 :1000 $1 2");
    let ttl_ms = target.ask(&[login, "SELECT 3", "PTTL b"]);
    let ttl_ms: u64 = ttl_ms.rsplit(':').next().unwrap().parse().unwrap();
    assert!((900_000..=1_000_000).contains(&ttl_ms), "{ttl_ms}");

    let copy = format!("MIGRATE 127.0.0.1 {port} a 0 5000 COPY {login}");
    assert_eq!(source.ask(&[&copy, "GET a"]), "+OK $1 1");
    let busy = "-ERR Target instance replied with error: BUSYKEY Target key name already exists.";
    assert_eq!(source.ask(&["SET a 2", &copy, "GET a"]), format!("+OK {busy} $1 2"));
    // One key is refused, the other is moved.
    let two = format!("MIGRATE 127.0.0.1 {port} \"\" 0 5000 {login} KEYS a c");
    assert_eq!(source.ask(&["SET c 3", &two, "EXISTS a", "EXISTS c"]), format!("+OK {busy} :1 :0"));
    assert_eq!(source.ask(&[&format!("{copy} REPLACE")]), "+OK");
    assert_eq!(target.ask(&[login, "MGET a c"]), "+OK *2 $1 2 $1 3");
}

/// A target that acknowledges a RESTORE for each message of `restore`. Returns its port.
fn slow_target(restore: mpsc::Receiver<()>, arrived: mpsc::Sender<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut replies = stream.try_clone().unwrap();
        for line in BufReader::new(stream).split(b'\n') {
            match line.unwrap().as_slice() {
                b"SELECT\r" => replies.write_all(b"+OK\r\n").unwrap(),
                b"RESTORE\r" => {
                    arrived.send(()).unwrap();
                    if restore.recv().is_err() {
                        return;
                    }
                    replies.write_all(b"+OK\r\n").unwrap();
                }
                _ => {}
            }
        }
    });
    port
}

#[test]
fn a_key_that_changes_meanwhile_stays_and_others_are_served() {
    let source = Server::start("migrate-slow", &[]);
    let (restore, restored) = mpsc::channel();
    let (arrive, arrived) = mpsc::channel();
    let port = slow_target(restored, arrive);
    assert_eq!(source.ask(&["SET a 1", "SET b 1"]), "+OK +OK");
    let request = format!("MIGRATE 127.0.0.1 {port} \"\" 0 20000 KEYS a b");
    thread::scope(|scope| {
        let migrate = scope.spawn(|| source.ask(&[&request]));
        arrived.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(source.ask(&["SET a 2", "GET b"]), "+OK $1 1");
        restore.send(()).unwrap();
        restore.send(()).unwrap();
        let reply = migrate.join().unwrap();
        assert!(reply.starts_with("-ERR a key changed while it was sent"), "{reply}");
    });
    assert_eq!(source.ask(&["GET a", "EXISTS b"]), "$1 2 :0");
}

#[test]
fn a_target_that_does_not_answer_keeps_nothing_waiting() {
    let source = Server::start("migrate-silent", &[]);
    let (_restore, restored) = mpsc::channel();
    let (arrive, _arrived) = mpsc::channel();
    let port = slow_target(restored, arrive);
    let request = format!("MIGRATE 127.0.0.1 {port} a 0 200");
    let reply = source.ask(&["SET a 1", &request, "GET a"]);
    assert_eq!(reply, "+OK -IOERR error or timeout reading from target instance $1 1");
}

#[test]
fn redis_takes_the_keys() {
    if Command::new("redis-server").arg("--version").output().is_err() {
        return; // not installed here
    }
    let port = {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port().to_string()
    };
    let mut redis = Command::new("redis-server")
        .args(["--port", &port, "--save", "", "--bind", "127.0.0.1"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while TcpStream::connect(format!("127.0.0.1:{port}")).is_err() {
        assert!(redis.try_wait().unwrap().is_none(), "redis-server has ended");
        thread::sleep(Duration::from_millis(20));
    }
    let source = Server::start("migrate-to-redis", &[]);
    let set = ["SET a 1", "ZADD z 1 m", "XADD s 1-1 f v", "HSETEX h EX 1000 FIELDS 1 f v"];
    source.ask(&set);
    let moved = source.ask(&[
        &format!("MIGRATE 127.0.0.1 {port} \"\" 0 5000 KEYS a z s"),
        &format!("MIGRATE 127.0.0.1 {port} h 0 5000"),
        "EXISTS a z s h",
    ]);
    let found = ask_inline(format!("127.0.0.1:{port}"), "GET a\r\nZSCORE z m\r\nXLEN s");
    redis.kill().unwrap();
    redis.wait().unwrap();
    let refused = "-ERR Target instance replied with error: ERR DUMP payload version or checksum";
    assert!(moved.starts_with(&format!("+OK {refused}")), "{moved}");
    assert!(moved.ends_with(":1"), "{moved}");
    assert_eq!(words(&found), "$1 1 $1 1 :1");
}
