//! Three masters and their hub as processes: concurrent writes, kills, and members that come and go.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::process::{self, PATIENCE, ask_inline, directory};

struct Server {
    server: process::Server,
    id: u16,
}

/// Servers start again at their addresses, which no other program and no other test uses.
const PORT: u16 = 7411;

fn address(id: u16) -> String {
    let process = std::process::id();
    format!("127.{}.{}.{id}", 1 + process % 250, process / 250 % 250)
}

impl Server {
    fn command(root: &Path, id: u16, number: u16, command: &str) -> Command {
        let mut process = Command::new(env!("CARGO_BIN_EXE_myriad"));
        process
            .args([command, "--reactors", "2", "--enable-debug-command", "yes"])
            .args(["--resp", &format!("{}:{PORT}", address(id)), "--server-id"])
            .arg(number.to_string())
            .arg("--dir")
            .arg(root.join(id.to_string()));
        process
    }

    fn start(root: &Path, id: u16, command: &str) -> Server {
        let mut command = Server::command(root, id, id, command);
        let server = process::Server::run(command.stderr(Stdio::null()));
        assert!(server.has_started());
        Server { server, id }
    }

    /// The errors of a server that does not start with this number.
    fn refused(root: &Path, id: u16, number: u16) -> String {
        let mut command = Server::command(root, id, number, "serve");
        let mut server = process::Server::run(command.stderr(Stdio::piped()));
        assert!(!server.has_started(), "the server has started");
        let stderr = server.process.0.stderr.take().unwrap();
        let text = std::io::read_to_string(stderr).unwrap();
        assert!(!server.process.wait().success(), "{text}");
        text
    }

    fn ask(&self, requests: &str) -> String {
        ask_inline((address(self.id), PORT), requests)
    }

    fn follow(&self, other: &Server) {
        let request = format!("HUB ADD {} {} {PORT}", other.id, address(other.id));
        assert_eq!(self.ask(&request), "+OK\r\n");
    }

    fn write_some(&self, round: usize) {
        let id = self.id;
        for key in 0..20 {
            self.ask(&format!(
                "SET s{key} {id}-{round}\r\nSADD t{key} {id}\r\nHSET h{key} f{id} {round}\r\n\
                 INCR n{id}\r\nRPUSH l{id} {round}\r\nDEL s{}",
                (key + round) % 20
            ));
        }
    }

    fn digest(&self) -> String {
        self.ask("DEBUG DIGEST")
    }
}

fn wait_until_equal(servers: &[&Server]) {
    let began = Instant::now();
    loop {
        let digests: Vec<String> = servers.iter().map(|server| server.digest()).collect();
        if digests.iter().all(|digest| *digest == digests[0]) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "the servers differ: {digests:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn masters_and_their_hub_become_equal_after_kills() {
    let root = &directory("hub");
    std::fs::create_dir(root).unwrap();
    let one = Server::start(root, 1, "serve");
    let mut two = Server::start(root, 2, "serve");
    let three = Server::start(root, 3, "serve");
    let mut hub = Server::start(root, 9, "hub");
    for master in [&one, &two] {
        hub.follow(master);
        master.follow(&hub);
    }
    one.write_some(0);
    two.write_some(0);
    // Joins while the others write, with data of its own.
    three.write_some(0);
    hub.follow(&three);
    three.follow(&hub);
    for round in 1..4 {
        std::thread::scope(|scope| {
            for master in [&one, &two, &three] {
                scope.spawn(move || master.write_some(round));
            }
        });
        hub.server.process.kill();
        one.write_some(round + 10);
        hub = Server::start(root, 9, "hub");
        two.server.process.kill();
        three.write_some(round + 20);
        two = Server::start(root, 2, "serve");
    }
    wait_until_equal(&[&one, &two, &three, &hub]);
    // Each counter has one author: nothing acknowledged was lost.
    for id in 1..4 {
        let counts = [&one, &two, &three, &hub].map(|server| server.ask(&format!("GET n{id}")));
        let writes = [7 * 20, 4 * 20, 7 * 20][id - 1];
        assert_eq!(
            counts,
            [(); 4].map(|()| format!("${}\r\n{writes}\r\n", writes.to_string().len()))
        );
    }
    assert!(hub.ask("SET s1 x").starts_with("-READONLY"));

    assert_eq!(hub.ask("HUB REMOVE 3"), "+OK\r\n");
    assert_eq!(hub.ask("HUB REMOVE 3"), "-ERR no such peer\r\n");
    three.ask("SET alone 1");
    one.ask("SET together 1");
    wait_until_equal(&[&one, &two, &hub]);
    assert_eq!(two.ask("GET alone\r\nGET together"), "$-1\r\n$1\r\n1\r\n");
    hub.follow(&three);
    wait_until_equal(&[&one, &two, &three, &hub]);
    assert_eq!(two.ask("GET alone"), "$1\r\n1\r\n");

    // The data of server 2 belong to server 2.
    drop(two);
    for number in [0, 5] {
        let refused = Server::refused(root, 2, number);
        assert!(refused.contains("set server-id to 2"), "{refused}");
    }
}
