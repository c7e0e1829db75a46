//! `cluster-view`: reactors as nodes of a cluster.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

struct Server {
    child: Child,
    /// Address of `resp`, and of each reactor.
    address: String,
    nodes: Vec<String>,
}

impl Server {
    fn start(directory: &Path, reactors: &str) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_myriad"))
            .args(["serve", "--resp", "127.0.0.1:0", "--reactors", reactors])
            .args(["--cluster-view", "yes", "--dir"])
            .arg(directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let listed = |name| ready.split_whitespace().filter_map(move |w| w.strip_prefix(name));
        let address = listed("resp=").next().unwrap().to_owned();
        let nodes = listed("cluster-view=").map(str::to_owned).collect();
        Server { child, address, nodes }
    }

    fn stop(mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

/// The reply to one inline request, as it is sent.
fn ask(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{request}\r\nQUIT\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply.strip_suffix("+OK\r\n").unwrap().to_owned()
}

fn bulk(reply: &str) -> &str {
    reply.split_once("\r\n").unwrap().1.trim_end()
}

fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&directory);
    directory
}

#[test]
fn every_reactor_is_a_node_that_serves_all_keys() {
    let directory = directory("cluster-nodes");
    let server = Server::start(&directory, "3");
    assert_eq!(server.nodes.len(), 3);
    let listed = ask(&server.address, "CLUSTER NODES");
    let lines: Vec<&str> = bulk(&listed).lines().collect();
    let slots = ["0-5460", "5461-10921", "10922-16383"];
    let mut ids = Vec::new();
    for (reactor, node) in server.nodes.iter().enumerate() {
        let id = bulk(&ask(node, "CLUSTER MYID")).to_owned();
        assert_eq!(id.len(), 40);
        let words: Vec<&str> = lines[reactor].split(' ').collect();
        assert_eq!(words[..2], [id.as_str(), &format!("{node}@0")]);
        assert_eq!(words[8], slots[reactor]);
        // Its own connections are on its reactor, and only it calls itself `myself`.
        let info = ask(node, "CLIENT INFO");
        assert!(info.contains(&format!(" reactor={reactor} ")), "{info}");
        let seen = ask(node, "CLUSTER NODES");
        let own = seen.lines().find(|line| line.contains("myself,master")).unwrap();
        assert!(own.contains(&id), "{own}");
        // Keys of three slots, in different nodes.
        assert_eq!(ask(node, &format!("MSET foo {reactor} a {reactor} b {reactor}")), "+OK\r\n");
        assert_eq!(ask(&server.address, "GET foo"), format!("$1\r\n{reactor}\r\n"));
        ids.push(id);
    }
    let shown = ask(&server.nodes[1], "CLUSTER SHARDS");
    assert!(ids.iter().all(|id| shown.contains(id)), "{shown}");
    server.stop();

    // Identifiers outlive the process, and the number of reactors.
    let server = Server::start(&directory, "4");
    let again: Vec<String> =
        server.nodes.iter().map(|node| bulk(&ask(node, "CLUSTER MYID")).to_owned()).collect();
    assert_eq!(again[..3], ids);
    server.stop();
}

#[test]
fn the_nodes_cannot_be_changed() {
    let server = Server::start(&directory("cluster-refusals"), "1");
    let refused = [
        "ADDSLOTS 1",
        "BUMPEPOCH",
        "FAILOVER",
        "FORGET x",
        "MEET 127.0.0.1 1",
        "RESET HARD",
        "SETSLOT 1 STABLE",
    ];
    for request in refused {
        let reply = ask(&server.address, &format!("CLUSTER {request}"));
        let name = request.split(' ').next().unwrap();
        assert!(reply.starts_with(&format!("-ERR CLUSTER {name} is not possible")), "{reply}");
    }
    for (request, reply) in [
        ("CLUSTER KEYSLOT a{b}", ":3300\r\n"),
        ("CLUSTER KEYSLOT", "-ERR wrong number of arguments for 'cluster|keyslot' command\r\n"),
        ("CLUSTER COUNTKEYSINSLOT 16384", "-ERR Invalid slot\r\n"),
        ("CLUSTER COUNTKEYSINSLOT x", "-ERR value is not an integer or out of range\r\n"),
        ("CLUSTER GETKEYSINSLOT 0 -1", "-ERR Invalid slot or number of keys\r\n"),
        ("CLUSTER GETKEYSINSLOT 0 1", "*0\r\n"),
        ("CLUSTER REPLICAS x", "-ERR Unknown node x\r\n"),
        ("CLUSTER COUNT-FAILURE-REPORTS x", "-ERR Unknown node x\r\n"),
        ("CLUSTER LINKS", "*0\r\n"),
        ("READONLY", "+OK\r\n"),
        ("READWRITE", "+OK\r\n"),
        ("ASKING", "+OK\r\n"),
        ("SELECT 1", "+OK\r\n"),
    ] {
        assert_eq!(ask(&server.address, request), reply, "{request}");
    }
    let id = ask(&server.address, "CLUSTER MYID");
    assert_eq!(ask(&server.address, &format!("CLUSTER SLAVES {}", bulk(&id))), "*0\r\n");
    server.stop();
}
