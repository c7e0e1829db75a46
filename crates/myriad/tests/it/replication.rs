//! A master and its replicas as processes: copy, stream, restart, failover.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::process::{PATIENCE, Server, directory};

impl Server {
    /// Host and port, as REPLICAOF takes them.
    pub(crate) fn place(&self) -> String {
        self.address("resp").to_string().replace(':', " ")
    }

    pub(crate) fn info(&self, field: &str) -> String {
        let info = self.ask("INFO replication");
        let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.unwrap_or_default().trim_end().to_owned()
    }

    pub(crate) fn follow(&self, master: &Server) {
        assert_eq!(self.ask(&format!("REPLICAOF {}", master.place())), "+OK\r\n");
    }

    /// Waits until the replica has the data of its master.
    pub(crate) fn reach(&self, master: &Server) {
        let deadline = Instant::now() + PATIENCE;
        let digest = master.ask("DEBUG DIGEST");
        while self.info("master_link_status") != "up" || self.ask("DEBUG DIGEST") != digest {
            assert!(Instant::now() < deadline, "{}", self.ask("INFO replication"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The contents of the files that a server has set aside.
pub(crate) fn set_aside(directory: &Path) -> Vec<String> {
    let Ok(files) = std::fs::read_dir(directory.join("set-aside")) else { return Vec::new() };
    files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect()
}

/// A sync of the master that a replica waited for would end the test too late.
#[test]
fn a_replica_of_a_server_whose_clients_wait_for_no_sync_is_as_new_as_its_offset() {
    for durability in ["interval", "never"] {
        let settings = ["--durability", durability, "--durability-interval-ms", "86400000"];
        let directories =
            ["master", "replica"].map(|name| directory(&format!("unsynced-{durability}-{name}")));
        let [master, replica] = directories.each_ref().map(|one| Server::start(one, &settings));
        master.ask("SET k v");
        replica.follow(&master);
        replica.reach(&master);
        let offset = |server: &Server| server.info("master_repl_offset").parse::<u64>().unwrap();
        for value in 100..200 {
            assert_eq!(master.ask(&format!("SET k {value}")), "+OK\r\n");
            let end = offset(&master);
            let deadline = Instant::now() + PATIENCE;
            while offset(&replica) < end {
                assert!(Instant::now() < deadline, "{}", replica.ask("INFO replication"));
            }
            assert_eq!(replica.ask("GET k"), format!("$3\r\n{value}\r\n"));
        }
        assert_eq!(master.ask("SET k w\r\nWAIT 1 0"), "+OK\r\n:1\r\n");
        // A kill loses nothing, and the replica continues.
        master.process.kill();
        let master = Server::start(&directories[0], &settings);
        replica.follow(&master);
        replica.reach(&master);
        assert_eq!(replica.ask("GET k"), "$1\r\nw\r\n");
        assert!(set_aside(&directories[1]).is_empty());
    }
}

#[test]
fn a_replica_copies_follows_and_continues_after_it_was_killed() {
    let [one, other] = ["replication-one", "replication-other"].map(directory);
    let (master, replica) = (Server::start(&one, &[]), Server::start(&other, &[]));
    master.ask("SET k v\r\nRPUSH l a b\r\nHSET h f 1\r\nXADD x * f v\r\nDEBUG POPULATE 20000");
    replica.ask("SET own v");
    replica.follow(&master);
    replica.reach(&master);
    assert_eq!(replica.ask("GET own"), "$-1\r\n");
    assert!(replica.ask("SET k w").starts_with("-READONLY "));
    assert!(master.ask("ROLE").contains("127.0.0.1"));
    let begun = master.info("master_replid");
    assert_eq!(replica.info("master_replid"), begun);

    replica.process.kill();
    master.ask("SET k w\r\nDEL l");
    let option = master.place();
    let replica = Server::start(&other, &["--replicaof", &option]);
    replica.reach(&master);
    assert_eq!(replica.ask("GET k"), "$1\r\nw\r\n");
    assert_eq!(replica.info("connected_slaves"), "0");
    assert_eq!(master.info("connected_slaves"), "1");
}

#[test]
fn a_master_shows_the_address_that_its_replica_announces() {
    let [one, other] = ["replication-shown-one", "replication-shown-other"].map(directory);
    let master = Server::start(&one, &[]);
    master.ask("SET k v");
    assert_eq!(master.ask("ROLE"), "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n", "no stream has begun");
    let announced = ["--replica-announce-ip", "db.example", "--replica-announce-port", "7"];
    let replica = Server::start(&other, &announced);
    replica.follow(&master);
    replica.reach(&master);
    let role = master.ask("ROLE");
    assert!(role.contains("$10\r\ndb.example\r\n$1\r\n7\r\n"), "{role}");
    assert!(master.info("slave0").starts_with("ip=db.example,port=7,"));
    assert_ne!(master.info("master_repl_offset"), "0");
}

/// Passes on the first bytes of a master's stream. Returns its port.
fn start_of_stream(master: &Server, bytes: u64) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let master = master.address("resp");
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(master).unwrap());
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            std::thread::spawn(move || {
                // Both connections stay open.
                let (mut server, mut client) = (server, client);
                std::io::copy(&mut (&mut server).take(bytes), &mut client).unwrap();
                std::thread::sleep(PATIENCE);
            });
        }
    });
    port
}

#[test]
fn a_replica_without_its_master_reports_that_its_copy_is_incomplete() {
    let [one, other] = ["replication-whole", "replication-part"].map(directory);
    let (master, replica) = (Server::start(&one, &[]), Server::start(&other, &[]));
    master.ask("DEBUG POPULATE 100000");
    let port = start_of_stream(&master, 1 << 20);
    assert_eq!(replica.ask(&format!("REPLICAOF 127.0.0.1 {port}")), "+OK\r\n");
    wait_until(|| replica.ask("DBSIZE").contains("it is incomplete"), || replica.ask("DBSIZE"));
    // The beginning of the copy reaches the log.
    std::thread::sleep(Duration::from_secs(1));
    replica.process.kill();

    let log = other.with_extension("log");
    let file = std::fs::File::create(&log).unwrap();
    let replica = Server::start_with_log(&other, &[], file.into());
    let found = replica.ask("DBSIZE");
    let expected = "-LOADING The copy of a master's data was interrupted, and this server has no \
                    master: send REPLICAOF host port, or restart it with an empty directory.\r\n";
    assert_eq!(found, expected);
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains("the copy of a master's data never completed"), "{text}");
    replica.follow(&master);
    replica.reach(&master);
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains("the copy is complete"), "{text}");
}

#[test]
fn a_replica_without_a_password_reports_that_one_is_required() {
    let directory = directory("no-password");
    let master = Server::start(&directory.join("master"), &["--requirepass", "secret"]);
    let log = directory.join("replica.log");
    let options = ["--log-file", log.to_str().unwrap(), "--replicaof", &master.place()];
    let replica = Server::start(&directory.join("replica"), &options);
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until(|| read().contains("NOAUTH Authentication required."), read);
    drop((master, replica));
}

#[test]
fn a_promoted_replica_is_followed_by_the_others() {
    let names = ["replication-first", "replication-second", "replication-third"];
    let directories = names.map(directory);
    let [first, second, third] = directories.each_ref().map(|one| Server::start(one, &[]));
    first.ask("SET k v\r\nDEBUG POPULATE 5000");
    second.follow(&first);
    second.reach(&first);
    third.follow(&second);
    third.reach(&second);
    // As Sentinel promotes.
    let promoted = second.ask("MULTI\r\nREPLICAOF NO ONE\r\nCLIENT KILL TYPE normal\r\nEXEC");
    assert!(promoted.ends_with("*2\r\n+OK\r\n:0\r\n"), "{promoted}");
    wait_until(|| second.info("role") == "master", || second.ask("INFO replication"));
    assert_eq!(second.info("master_replid2"), first.info("master_replid"));
    second.ask("SET k new");
    third.reach(&second);
    // What only the old master has is set aside.
    first.ask("SET divergent v\r\nRPUSH other a b");
    first.follow(&second);
    first.reach(&second);
    let [file] = &set_aside(&directories[0])[..] else { panic!("one file is set aside") };
    let lines: Vec<&str> = file.lines().collect();
    assert_eq!(lines.len(), 2, "{file}");
    assert!(lines[0].contains("\"divergent\""), "{file}");
    assert!(lines[1].contains("\"other\""), "{file}");
    assert!(set_aside(&directories[2]).is_empty());
    assert_eq!(first.ask("GET divergent\r\nGET k"), "$-1\r\n$3\r\nnew\r\n");
    assert_eq!(third.info("master_replid"), second.info("master_replid"));
}

/// A client of the Redis protocol with one connection.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(server: SocketAddr) -> Client {
        let stream = TcpStream::connect(server).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(BufReader::new(stream))
    }

    /// The first line of the reply; `None`: the connection has ended.
    fn ask(&mut self, request: &str) -> Option<String> {
        let mut line = String::new();
        self.0.get_mut().write_all(format!("{request}\r\n").as_bytes()).ok()?;
        (self.0.read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_owned())
    }
}

/// Adds numbers to a set at the durability `replicated`. Returns the last one that was confirmed.
fn add_until_refused(server: SocketAddr, writer: usize) -> u64 {
    let mut client = Client::connect(server);
    assert_eq!(client.ask("CLIENT DURABILITY replicated").as_deref(), Some("+OK"));
    let mut number = 1;
    while client.ask(&format!("SADD set{writer} {number}")).as_deref() == Some(":1") {
        number += 1;
    }
    number - 1
}

/// As Sentinel does it: all servers run, and the old master learns last that it is a replica.
#[test]
fn nothing_confirmed_is_lost_when_one_of_two_replicas_is_promoted() {
    let directories = ["promotion-old", "promotion-new", "promotion-other"].map(directory);
    let [old, new, other] = directories.each_ref().map(|one| Server::start(one, &[]));
    for replica in [&new, &other] {
        replica.follow(&old);
        replica.reach(&old);
    }
    let address = old.address("resp");
    let writers: Vec<_> = (0..4)
        .map(|writer| std::thread::spawn(move || add_until_refused(address, writer)))
        .collect();
    // Confirmed, too: the writer has sent the next one.
    let has_confirmed = |writer| old.ask(&format!("SISMEMBER set{writer} 21")) == ":1\r\n";
    wait_until(|| (0..4).all(has_confirmed), || old.ask("INFO replication"));
    assert_eq!(new.ask("REPLICAOF NO ONE\r\nSET after 1"), "+OK\r\n+OK\r\n");
    assert_eq!(new.info("role"), "master");
    assert_eq!(old.info("master_replaced"), "1");
    // The other replica is there, and confirms nothing.
    wait_until(|| old.info("connected_slaves") == "1", || old.ask("INFO replication"));
    let refused = "+OK\r\n-NOREPLICAS Not enough good replicas to write.\r\n";
    assert_eq!(old.ask("CLIENT DURABILITY replicated\r\nSET k v"), refused);
    other.follow(&new);
    old.follow(&new);
    for (number, writer) in writers.into_iter().enumerate() {
        let last = writer.join().unwrap();
        assert!(last >= 20, "{last}");
        let found = new.ask(&format!("SISMEMBER set{number} {last}"));
        assert_eq!(found, ":1\r\n", "the last of {last} numbers");
    }
    old.reach(&new);
    assert_eq!(old.info("master_replaced"), "0");
}

/// Ends the writers when a test ends or fails.
struct RaiseAtEnd<'f>(&'f AtomicBool);

impl Drop for RaiseAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes numbers to a key of its own, at whichever of the servers is the master. Returns the
/// highest number that was acknowledged.
fn write_until(over: &AtomicBool, addresses: &[SocketAddr], key: &str) -> u64 {
    let (mut number, mut acknowledged, mut at) = (0, 0, 0);
    let mut client = None;
    while !over.load(Ordering::Relaxed) {
        number += 1;
        let server = client.get_or_insert_with(|| {
            let mut server = Client::connect(addresses[at % addresses.len()]);
            assert_eq!(server.ask("CLIENT DURABILITY replicated").as_deref(), Some("+OK"));
            server
        });
        match server.ask(&format!("SET {key} {number}")).as_deref() {
            Some("+OK") => acknowledged = number,
            refused => {
                let reply = refused.unwrap_or("-ended");
                assert!(
                    ["-READONLY", "-NOREPLICAS", "-ended"].iter().any(|one| reply.starts_with(one)),
                    "{reply}"
                );
                (client, at) = (None, at + 1);
            }
        }
    }
    acknowledged
}

#[test]
fn failover_hands_over_the_role_and_all_writes() {
    let names = ["failover-first", "failover-second", "failover-third"];
    let directories = names.map(directory);
    let servers = directories.each_ref().map(|one| Server::start(one, &[]));
    let [first, second, third] = &servers;
    assert_eq!(first.ask("FAILOVER"), "-ERR FAILOVER requires connected replicas.\r\n");
    first.ask("DEBUG POPULATE 2000");
    for replica in [second, third] {
        replica.follow(first);
        replica.reach(first);
    }
    assert!(second.ask("FAILOVER").starts_with("-ERR FAILOVER is not valid when server is a"));
    assert_eq!(second.ask("WAIT 1 0").split(' ').nth(1), Some("WAIT"));
    let over = AtomicBool::new(false);
    let addresses = servers.each_ref().map(|server| server.address("resp"));
    let keys = ["a", "b", "c", "d"];
    let acknowledged = std::thread::scope(|scope| {
        let writers = keys.map(|key| scope.spawn(|| write_until(&over, &addresses, key)));
        let end = RaiseAtEnd(&over);
        for (from, to) in [(first, second), (second, first), (first, third)] {
            let before = from.info("master_replid");
            let port = to.address("resp").port().to_string();
            wait_until(|| from.ask("ROLE").contains(&port), || from.ask("INFO replication"));
            assert_eq!(from.ask(&format!("FAILOVER TO {} TIMEOUT 60000", to.place())), "+OK\r\n");
            wait_until(
                || from.info("master_link_status") == "up",
                || from.ask("INFO replication") + &to.ask("INFO replication"),
            );
            assert_eq!((from.info("role"), to.info("role")), ("slave".into(), "master".into()));
            assert_eq!(from.info("master_failover_state"), "no-failover");
            assert_eq!(to.info("master_replid2"), before, "the old master continues the stream");
            for other in &servers {
                if !std::ptr::eq(other, to) && !std::ptr::eq(other, from) {
                    other.follow(to);
                }
            }
        }
        drop(end);
        writers.map(|writer| writer.join().unwrap())
    });
    for (key, acknowledged) in keys.iter().zip(acknowledged) {
        assert!(acknowledged > 0, "{key}: no write was acknowledged");
        let found: u64 = third.ask(&format!("GET {key}")).lines().nth(1).unwrap().parse().unwrap();
        assert!(found >= acknowledged, "{key}: {found} is older than {acknowledged}");
    }
    first.reach(third);
    second.reach(third);
}

#[test]
fn a_failover_without_a_complete_replica_is_given_up() {
    let directories = ["failover-late", "failover-lame"].map(directory);
    let [master, replica] = directories.each_ref().map(|one| Server::start(one, &[]));
    master.ask("SET k 1");
    replica.follow(&master);
    replica.reach(&master);
    replica.process.signal("STOP");
    master.ask("SET k 2");
    assert_eq!(master.ask("FAILOVER TIMEOUT 300\r\nFAILOVER"), {
        "+OK\r\n-ERR FAILOVER already in progress.\r\n"
    });
    // A write waits meanwhile, and is served then.
    assert_eq!(master.ask("SET k 3"), "+OK\r\n");
    assert_eq!(master.ask("FAILOVER ABORT"), "-ERR No failover in progress.\r\n");
    assert_eq!(master.ask("FAILOVER\r\nFAILOVER ABORT\r\nSET k 4"), "+OK\r\n+OK\r\n+OK\r\n");
    let info = master.ask("FAILOVER\r\nFAILOVER ABORT\r\nINFO replication");
    assert!(info.contains("master_failover_state:no-failover\r\n"), "{info}");
    assert_eq!(master.ask("SET k 4"), "+OK\r\n", "it waits until the failover has ended");
    // After a pause of all commands, the failover still stops only writes.
    assert_eq!(
        master.ask("FAILOVER\r\nCLIENT PAUSE 50 ALL\r\nGET k\r\nFAILOVER ABORT\r\nSET k 4"),
        "+OK\r\n+OK\r\n$1\r\n4\r\n+OK\r\n+OK\r\n"
    );
    assert_eq!(
        (master.info("role"), master.info("connected_slaves")),
        ("master".into(), "1".into())
    );
    replica.process.signal("CONT");
    replica.reach(&master);
    assert_eq!(replica.ask("GET k"), "$1\r\n4\r\n");
}

pub(crate) fn wait_until(condition: impl Fn() -> bool, describe: impl Fn() -> String) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{}", describe());
        std::thread::sleep(Duration::from_millis(20));
    }
}
