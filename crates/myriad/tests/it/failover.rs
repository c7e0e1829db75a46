//! FAILOVER when something fails: replicas that lack writes, that refuse the role, or whose reply
//! is lost. In most of them the test itself acts as the replica.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::process::{PATIENCE, Server, directory};
use crate::replication::{set_aside, wait_until};

/// Bytes of a frame of the stream before its payload.
const HEADER_BYTES: usize = 36;

fn port(listener: &TcpListener) -> u16 {
    listener.local_addr().unwrap().port()
}

fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// Passes connections on to a server, until it holds what that sends.
struct Relay {
    port: u16,
    is_held: Arc<AtomicBool>,
}

impl Relay {
    fn start(server: &Server) -> Relay {
        let (listener, is_held) = (listen(), Arc::new(AtomicBool::new(false)));
        let relay = Relay { port: port(&listener), is_held: Arc::clone(&is_held) };
        let address = server.address("resp");
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(to) = TcpStream::connect(address) else { return };
                pass_on(&client.unwrap(), &to, Arc::clone(&is_held));
            }
        });
        relay
    }
}

/// Passes bytes on in both directions, on threads that end with the connections.
fn pass_on(client: &TcpStream, server: &TcpStream, is_held: Arc<AtomicBool>) {
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
    let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    std::thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            while is_held.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            if to.write_all(&bytes[..count]).is_err() {
                return;
            }
        }
    });
}

/// Follows a master as a replica that serves clients on this port: acknowledges all records, and
/// stores nothing.
fn attach(master: &Server, port: u16) {
    let mut stream = TcpStream::connect(master.address("resp")).unwrap();
    write!(stream, "REPLCONF listening-port {port} capa myriad-stream-1\r\nPSYNC ? -1\r\n")
        .unwrap();
    let mut input = BufReader::new(stream.try_clone().unwrap());
    for expected in ["+OK", "+FULLRESYNC"] {
        let mut line = String::new();
        input.read_line(&mut line).unwrap();
        assert!(line.starts_with(expected), "{line}");
    }
    std::thread::spawn(move || {
        let mut head = [0; HEADER_BYTES];
        while input.read_exact(&mut head).is_ok() {
            let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap());
            let mut payload = vec![0; usize::try_from(number(12)).unwrap()];
            let is_ended = input.read_exact(&mut payload).is_err()
                || write!(stream, "REPLCONF ACK {}\r\n", number(28)).is_err();
            if is_ended {
                return;
            }
        }
    });
    let place = format!("port={port},state=online");
    let info = || master.ask("INFO replication");
    wait_until(|| info().contains(&place), info);
}

/// A connection of a master that hands its role over.
struct HandOver {
    stream: BufReader<TcpStream>,
}

impl HandOver {
    fn accept(listener: &TcpListener) -> HandOver {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        HandOver { stream: BufReader::new(stream) }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The words of the next request.
    fn request(&mut self) -> Vec<String> {
        let count = self.line().trim_start_matches('*').parse::<usize>().unwrap();
        let word = |_| {
            let length = self.line().trim_start_matches('$').parse::<usize>().unwrap();
            let mut word = vec![0; length + 2];
            self.stream.read_exact(&mut word).unwrap();
            word.truncate(length);
            String::from_utf8(word).unwrap()
        };
        (0..count).map(word).collect()
    }

    fn reply(&mut self, line: &str) {
        self.stream.get_mut().write_all(line.as_bytes()).unwrap();
    }

    /// Answers the requests before the last one, which is returned.
    fn promotion(&mut self) -> Vec<String> {
        loop {
            let request = self.request();
            if request[0] == "PSYNC" {
                assert_eq!(request[3..], ["FAILOVER"]);
                return request;
            }
            self.reply("+OK\r\n");
        }
    }
}

/// A master with a key, and the place of its replica, which is the test.
fn start(name: &str) -> (Server, TcpListener) {
    let (server, listener) = (Server::start(&directory(name), &[]), listen());
    assert_eq!(server.ask("SET k 1"), "+OK\r\n");
    attach(&server, port(&listener));
    (server, listener)
}

fn begin(master: &Server, port: u16) {
    let request = format!("FAILOVER TO 127.0.0.1 {port} TIMEOUT 60000");
    assert_eq!(master.ask(&request), "+OK\r\n");
}

/// Waits until the failover has failed, and the server is the master that it was.
fn check_given_up(master: &Server) {
    let info = || master.ask("INFO replication");
    wait_until(|| master.info("master_failover_state") == "no-failover", info);
    assert_eq!(master.info("role"), "master");
    assert_eq!(master.ask("SET k 2\r\nGET k"), "+OK\r\n$1\r\n2\r\n");
}

#[test]
fn a_forced_failover_promotes_a_replica_that_lacks_writes() {
    let directories = ["failover-forced", "failover-lagging"].map(directory);
    let [master, replica] = directories.each_ref().map(|one| Server::start(one, &[]));
    let relay = Relay::start(&master);
    master.ask("SET k 1");
    assert_eq!(replica.ask(&format!("REPLICAOF 127.0.0.1 {}", relay.port)), "+OK\r\n");
    replica.reach(&master);
    relay.is_held.store(true, Ordering::SeqCst);
    assert_eq!(master.ask("SET k 2\r\nSET lost v"), "+OK\r\n+OK\r\n");
    let place = replica.place();
    let needs =
        "-ERR FAILOVER with force option requires both a timeout and target HOST and IP.\r\n";
    for incomplete in [format!("TO {place} FORCE"), "FORCE TIMEOUT 300".to_owned()] {
        assert_eq!(master.ask(&format!("FAILOVER {incomplete}")), needs);
    }
    let other = format!("FAILOVER TO 127.0.0.1 {} FORCE TIMEOUT 300", relay.port);
    assert_eq!(master.ask(&other), "-ERR FAILOVER target HOST and PORT is not a replica.\r\n");
    // Without FORCE, the replica that lacks writes is not promoted.
    assert_eq!(master.ask(&format!("FAILOVER TO {place} TIMEOUT 300")), "+OK\r\n");
    check_given_up(&master);

    assert_eq!(master.ask(&format!("FAILOVER TO {place} FORCE TIMEOUT 300")), "+OK\r\n");
    wait_until(
        || master.info("role") == "slave" && master.info("master_link_status") == "up",
        || master.ask("INFO replication") + &replica.ask("INFO replication"),
    );
    assert_eq!(replica.info("role"), "master");
    assert_eq!(master.info("master_failover_state"), "no-failover");
    master.reach(&replica);
    assert_eq!(master.ask("GET k\r\nGET lost"), "$1\r\n1\r\n$-1\r\n");
    // What only the old master had is set aside.
    let [file] = &set_aside(&directories[0])[..] else { panic!("one file is set aside") };
    for write in ["\"k\"", "\"lost\""] {
        assert!(file.contains(write), "{file}");
    }
}

#[test]
fn a_hand_over_that_cannot_connect_is_given_up() {
    let (master, listener) = start("failover-closed");
    let port = port(&listener);
    drop(listener);
    begin(&master, port);
    check_given_up(&master);
}

#[test]
fn a_refused_hand_over_is_given_up() {
    let (master, listener) = start("failover-refused");
    begin(&master, port(&listener));
    let mut connection = HandOver::accept(&listener);
    connection.promotion();
    connection.reply("-ERR PSYNC FAILOVER replid must match my replid.\r\n");
    check_given_up(&master);
}

#[test]
fn a_hand_over_without_a_reply_is_left_to_the_operator() {
    let (master, listener) = start("failover-silent");
    begin(&master, port(&listener));
    let first = HandOver::accept(&listener).promotion();
    // A refusal after that does not prove that the first request was without effect.
    let mut second = HandOver::accept(&listener);
    assert_eq!(second.promotion()[1..3], first[1..3], "the same request");
    second.reply("-ERR not now\r\n");
    let mut third = HandOver::accept(&listener);
    third.promotion();
    assert_eq!(master.info("role"), "slave");
    assert_eq!(master.info("master_failover_state"), "failover-in-progress");
    let refusal = "-ERR the replica may have been promoted: the failover cannot be aborted.\r\n";
    assert_eq!(master.ask("FAILOVER ABORT"), refusal);
    assert!(master.ask("FAILOVER").starts_with("-ERR FAILOVER already in progress."));
    assert!(master.ask("SET k 2").starts_with("-READONLY"));
    assert_eq!(master.ask("GET k"), "$1\r\n1\r\n");
    assert_eq!(master.ask("REPLICAOF NO ONE"), "+OK\r\n");
    check_given_up(&master);
}

#[test]
fn a_hand_over_whose_reply_was_lost_is_requested_again() {
    let (master, listener) = start("failover-lost-reply");
    let replica = Server::start(&directory("failover-promoted"), &[]);
    replica.follow(&master);
    replica.reach(&master);
    let before = master.info("master_replid");
    begin(&master, port(&listener));
    let mut connection = HandOver::accept(&listener);
    let request = connection.promotion();
    // The replica is promoted, but the master does not learn it.
    let mut to_replica = TcpStream::connect(replica.address("resp")).unwrap();
    let promotion = request.join(" ");
    write!(to_replica, "REPLCONF capa myriad-stream-1\r\n{promotion}\r\n").unwrap();
    wait_until(|| replica.info("role") == "master", || replica.ask("INFO replication"));
    drop(connection);

    let (again, _) = listener.accept().unwrap();
    let server = TcpStream::connect(replica.address("resp")).unwrap();
    pass_on(&again, &server, Arc::default());
    wait_until(
        || master.info("master_link_status") == "up",
        || master.ask("INFO replication") + &replica.ask("INFO replication"),
    );
    assert_eq!(master.info("role"), "slave");
    assert_eq!(master.info("master_failover_state"), "no-failover");
    assert_eq!(replica.info("master_replid2"), before, "one promotion");
    assert_eq!(replica.ask("SET k 2"), "+OK\r\n");
    master.reach(&replica);
    assert_eq!(master.ask("GET k"), "$1\r\n2\r\n");
}

/// The replica is promoted and killed, and its configuration is that of a replica.
#[test]
fn a_failover_whose_target_restarts_as_a_replica_ends() {
    let (master, listener) = start("failover-restart");
    let (target_directory, option) = (directory("failover-restarted"), master.place());
    let target = Server::start(&target_directory, &["--replicaof", &option]);
    target.reach(&master);
    begin(&master, port(&listener));
    let mut connection = HandOver::accept(&listener);
    let promotion = connection.promotion().join(" ");
    let mut to_target = TcpStream::connect(target.address("resp")).unwrap();
    write!(to_target, "REPLCONF capa myriad-stream-1\r\n{promotion}\r\n").unwrap();
    wait_until(|| target.info("role") == "master", || target.ask("INFO replication"));
    target.process.kill();
    drop(connection);

    let target = Server::start(&target_directory, &["--replicaof", &option]);
    let address = target.address("resp");
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(to) = TcpStream::connect(address) else { return };
            pass_on(&client.unwrap(), &to, Arc::default());
        }
    });
    check_handed_over(&master, &target);
}

/// The failover was complete when the new master was killed: both are to be replicas of each other.
#[test]
fn a_new_master_whose_configuration_is_outdated_stays_the_master() {
    let directories = ["failover-circle-one", "failover-circle-other"].map(directory);
    let master = Server::start(&directories[0], &[]);
    let option = master.place();
    let address = format!("127.0.0.1:{}", free_port());
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
        command.args(["serve", "--reactors", "2", "--enable-debug-command", "yes"]);
        command.args(["--resp", &address, "--replicaof", &option, "--dir"]).arg(&directories[1]);
        Server::run(&mut command)
    };
    let target = start();
    target.reach(&master);
    assert_eq!(master.ask("FAILOVER"), "+OK\r\n");
    check_handed_over(&master, &target);
    target.process.kill();
    check_handed_over(&master, &start());
}

fn free_port() -> u16 {
    port(&listen())
}

/// Waits until the target is the master, and the old master its replica.
fn check_handed_over(old: &Server, target: &Server) {
    wait_until(
        || target.info("role") == "master" && old.info("master_link_status") == "up",
        || old.ask("INFO replication") + &target.ask("INFO replication"),
    );
    assert_eq!(old.info("role"), "slave");
    assert_eq!(old.info("master_failover_state"), "no-failover");
    assert_eq!(target.ask("SET k 2"), "+OK\r\n");
    old.reach(target);
    assert_eq!(old.info("master_replaced"), "0");
}
