//! A master and its replicas as processes: copy, stream, restart, failover.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_mins(1);

struct Server {
    child: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(directory: &Path, options: &[&str]) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_myriad"))
            .args(["serve", "--resp", "127.0.0.1:0", "--reactors", "2", "--dir"])
            .arg(directory)
            .args(["--enable-debug-command", "yes", "--elements-per-command-max", "0"])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let address = ready.split_whitespace().find_map(|word| word.strip_prefix("resp="));
        Server { child, address: address.unwrap().to_owned() }
    }

    /// Host and port, as REPLICAOF takes them.
    fn place(&self) -> String {
        self.address.replace(':', " ")
    }

    /// The replies to inline requests, as they are sent.
    fn ask(&self, requests: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "{requests}\r\nQUIT\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply.strip_suffix("+OK\r\n").unwrap().to_owned()
    }

    fn info(&self, field: &str) -> String {
        let info = self.ask("INFO replication");
        let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.unwrap_or_default().trim_end().to_owned()
    }

    fn follow(&self, master: &Server) {
        assert_eq!(self.ask(&format!("REPLICAOF {}", master.place())), "+OK\r\n");
    }

    /// Waits until the replica has the data of its master.
    fn reach(&self, master: &Server) {
        let deadline = Instant::now() + PATIENCE;
        let digest = master.ask("DEBUG DIGEST");
        while self.info("master_link_status") != "up" || self.ask("DEBUG DIGEST") != digest {
            assert!(Instant::now() < deadline, "{}", self.ask("INFO replication"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&directory);
    directory
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

    replica.kill();
    master.ask("SET k w\r\nDEL l");
    let option = master.place();
    let replica = Server::start(&other, &["--replicaof", &option]);
    replica.reach(&master);
    assert_eq!(replica.ask("GET k"), "$1\r\nw\r\n");
    assert_eq!(replica.info("connected_slaves"), "0");
    assert_eq!(master.info("connected_slaves"), "1");
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
    assert_eq!(second.info("master_replid2"), first.info("master_replid"));
    second.ask("SET k new");
    third.reach(&second);
    // What only the old master has is lost.
    first.ask("SET divergent v");
    first.follow(&second);
    first.reach(&second);
    assert_eq!(first.ask("GET divergent\r\nGET k"), "$-1\r\n$3\r\nnew\r\n");
    assert_eq!(third.info("master_replid"), second.info("master_replid"));
}
