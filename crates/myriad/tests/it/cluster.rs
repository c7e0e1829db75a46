//! `cluster-view`: reactors as nodes of a cluster.

use std::net::SocketAddr;
use std::path::Path;

use crate::process::{Server, ask_inline, directory};

fn start(directory: &Path, reactors: &str) -> Server {
    Server::start(directory, &["--reactors", reactors, "--cluster-view", "yes"])
}

fn bulk(reply: &str) -> &str {
    reply.split_once("\r\n").unwrap().1.trim_end()
}

#[test]
fn every_reactor_is_a_node_that_serves_all_keys() {
    let directory = directory("cluster-nodes");
    let server = start(&directory, "3");
    let nodes: Vec<SocketAddr> = server.addresses("cluster-view").collect();
    assert_eq!(nodes.len(), 3);
    let listed = server.ask("CLUSTER NODES");
    let lines: Vec<&str> = bulk(&listed).lines().collect();
    let slots = ["0-5460", "5461-10921", "10922-16383"];
    let mut ids = Vec::new();
    for (reactor, node) in nodes.iter().copied().enumerate() {
        let id = bulk(&ask_inline(node, "CLUSTER MYID")).to_owned();
        assert_eq!(id.len(), 40);
        let words: Vec<&str> = lines[reactor].split(' ').collect();
        assert_eq!(words[..2], [id.as_str(), &format!("{node}@0")]);
        assert_eq!(words[8], slots[reactor]);
        // Its own connections are on its reactor, and only it calls itself `myself`.
        let info = ask_inline(node, "CLIENT INFO");
        assert!(info.contains(&format!(" reactor={reactor} ")), "{info}");
        let seen = ask_inline(node, "CLUSTER NODES");
        let own = seen.lines().find(|line| line.contains("myself,master")).unwrap();
        assert!(own.contains(&id), "{own}");
        // Keys of three slots, in different nodes.
        assert_eq!(
            ask_inline(node, &format!("MSET foo {reactor} a {reactor} b {reactor}")),
            "+OK\r\n"
        );
        assert_eq!(server.ask("GET foo"), format!("$1\r\n{reactor}\r\n"));
        ids.push(id);
    }
    let shown = ask_inline(nodes[1], "CLUSTER SHARDS");
    assert!(ids.iter().all(|id| shown.contains(id)), "{shown}");
    server.stop();

    // Identifiers outlive the process, and the number of reactors.
    let server = start(&directory, "4");
    let again: Vec<String> = server
        .addresses("cluster-view")
        .map(|node| bulk(&ask_inline(node, "CLUSTER MYID")).to_owned())
        .collect();
    assert_eq!(again[..3], ids);
    server.stop();
}

#[test]
fn the_nodes_cannot_be_changed() {
    let server = start(&directory("cluster-refusals"), "1");
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
        let reply = server.ask(&format!("CLUSTER {request}"));
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
        assert_eq!(server.ask(request), reply, "{request}");
    }
    let id = server.ask("CLUSTER MYID");
    assert_eq!(server.ask(&format!("CLUSTER SLAVES {}", bulk(&id))), "*0\r\n");
    server.stop();
}
