//! Commands on a collection of more elements than a reactor may process at once.

use std::net::TcpStream;

use crate::process::{Server, directory};
use crate::resp::ask;

const MEMBERS: usize = 200_000;
const MEMBERS_PER_REQUEST: usize = 100_000;
const OPTIONS: &[&str] = &["--durability", "never"];

/// A client of a server whose key `s` is a set of that many members, with this limit of elements.
fn filled(server: &Server, members: usize, elements_max: &str) -> TcpStream {
    let mut client = TcpStream::connect(server.address("resp")).unwrap();
    for first in (0..members).step_by(MEMBERS_PER_REQUEST) {
        let members = first..first + MEMBERS_PER_REQUEST;
        let members: Vec<String> = members.map(|number| format!("e{number}")).collect();
        let words = ["SADD", "s"].into_iter().chain(members.iter().map(String::as_str));
        let reply = ask(&mut client, &words.collect::<Vec<_>>());
        assert_eq!(reply, format!(":{MEMBERS_PER_REQUEST}"));
    }
    assert_eq!(
        ask(&mut client, &["CONFIG", "SET", "elements-per-command-max", elements_max]),
        "+OK"
    );
    client
}

#[test]
fn a_collection_of_any_size_is_read_and_written() {
    let directory = directory("long-requests");
    let server = Server::start(&directory, OPTIONS);
    let mut client = filled(&server, MEMBERS, "100000");
    let mut check = |line: &str, expected: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(ask(&mut client, &words), expected, "{line}");
    };
    check("SUNIONSTORE d s", ":200000");
    check("COPY s c", ":1");
    check("RENAME s t", "+OK");
    check("RENAMENX t s", ":1");
    check("SINTERCARD 2 s d LIMIT 3", ":3");
    check("SORT s ALPHA LIMIT 7 1 STORE l", ":1");
    check("LINDEX l 0", "e100001");
    check("DEL d", ":1");
    check("DEBUG POPULATE 50000 p", "+OK");
    check("DBSIZE", ":50003");
    let members = server.ask("SMEMBERS s");
    assert!(members.starts_with("*200000\r\n"), "{members:.100}");
    assert_eq!(members.lines().count(), 1 + 2 * MEMBERS);
    let digest = ask(&mut client, &["DEBUG", "DIGEST"]);
    assert_eq!(digest.len(), 41, "{digest}");
    let digests = server.ask("DEBUG DIGEST-VALUE s c");
    let [_, of_source, of_copy] = digests.lines().collect::<Vec<_>>()[..] else {
        panic!("{digests}");
    };
    assert_eq!(of_source, of_copy);
    drop(client);
    server.stop();
    let server = Server::start(&directory, OPTIONS);
    assert_eq!(server.ask("DEBUG DIGEST"), format!("{digest}\r\n"), "the log has it all");
    server.stop();
}

/// Clients of all reactors are served while long requests run, and requests for their key after it.
#[test]
fn clients_read_and_write_while_long_requests_run() {
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 3;
    let server = Server::start(&directory("long-requests-clients"), OPTIONS);
    let mut client = filled(&server, MEMBERS_PER_REQUEST, "10000");
    let address = server.address("resp");
    let served = std::thread::scope(|scope| {
        let run = |number: usize| {
            let mut client = TcpStream::connect(address).unwrap();
            for round in 0..ROUNDS {
                let (own, value) = (format!("own{number}"), round.to_string());
                assert_eq!(ask(&mut client, &["SET", &own, &value]), "+OK");
                assert_eq!(ask(&mut client, &["GET", &own]), value);
                assert_eq!(ask(&mut client, &["SINTERCARD", "2", "s", "s"]), ":100000");
                assert_eq!(ask(&mut client, &["SCARD", "s"]), ":100000");
                let copy = format!("copy{number}");
                assert_eq!(ask(&mut client, &["COPY", "s", &copy, "REPLACE"]), ":1");
            }
            ROUNDS
        };
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || run(number))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum::<usize>()
    });
    assert_eq!(served, CLIENTS * ROUNDS);
    let copies = ["DEBUG", "DIGEST-VALUE", "copy0", "copy1", "copy2", "copy3", "s"];
    assert_eq!(ask(&mut client, &copies), "*5");
    drop(client);
    server.stop();
}
