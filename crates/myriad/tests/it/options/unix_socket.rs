//! The Unix socket: who may use its path, and what the server shows of its clients.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use super::fixture::{Server, happens};
use crate::resp::{ask, read_reply};

const SOCKET: &[&str] = &["--unixsocket", "{dir}/s"];

fn path(server: &Server) -> PathBuf {
    server.files.path("s")
}

/// Connects to the socket of a server.
pub(super) fn connect(server: &Server) -> UnixStream {
    let stream = UnixStream::connect(path(server)).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream
}

/// The next `count` lines and strings of a reply that is an array.
fn words(stream: &mut UnixStream, count: usize) -> String {
    (0..count).map(|_| read_reply(stream)).collect::<Vec<_>>().join(" ")
}

#[test]
fn clients_are_shown_with_the_path() {
    let with = [SOCKET, &["--slowlog-log-slower-than", "0"]].concat();
    let server = Server::start("unix-shown", &with, &[]);
    let (mut monitor, mut client) = (connect(&server), connect(&server));
    let address = format!("{}:0", path(&server).display());
    assert_eq!(ask(&mut monitor, &["MONITOR"]), "+OK");
    assert_eq!(ask(&mut client, &["SET", "k", "v"]), "+OK");
    let line = read_reply(&mut monitor);
    let origin = format!("[0 unix:{}] \"SET\" \"k\" \"v\"", path(&server).display());
    assert!(line.ends_with(&origin), "{line}");
    let info = ask(&mut client, &["CLIENT", "INFO"]);
    assert!(info.contains(&format!(" addr={address} laddr={address} ")), "{info}");
    assert!(info.contains(" flags=U "), "{info}");
    assert!(ask(&mut client, &["CLIENT", "LIST"]).contains(" flags=OU "));
    assert_eq!(ask(&mut client, &["SLOWLOG", "GET", "1"]), "*1");
    // The entry with 6 elements, of which one is an array with the two arguments.
    let entry = words(&mut client, 9);
    assert!(entry.contains(&address), "{entry}");
    assert!(ask(&mut client, &["AUTH", "x", "y"]).starts_with("-WRONGPASS"));
    assert_eq!(ask(&mut client, &["ACL", "LOG", "1"]), "*1");
    let entry = words(&mut client, 21);
    assert!(entry.contains(&format!(" addr={address} ")), "{entry}");
    let listener = format!("name=unix,bind={}", path(&server).display());
    assert!(ask(&mut client, &["INFO", "server"]).contains(&listener));
    assert_eq!(ask(&mut client, &["DEBUG", "SLEEP", "0"]), "+OK", "a local connection");
    let killed = ask(&mut server.connect("resp"), &["CLIENT", "KILL", "ADDR", &address]);
    assert_eq!(killed, ":2");
}

#[test]
fn it_counts_as_local_and_obeys_the_limit_of_clients_and_the_password() {
    let with = [SOCKET, &["--maxclients", "1", "--requirepass", "p", "--resp", ""]].concat();
    let server = Server::start("unix-limits", &with, &[]);
    let mut client = connect(&server);
    assert_eq!(ask(&mut client, &["PING"]), "-NOAUTH Authentication required.");
    assert_eq!(ask(&mut client, &["AUTH", "p"]), "+OK");
    assert_eq!(read_reply(&mut connect(&server)), "-ERR max number of clients reached");
    assert_eq!(ask(&mut client, &["CONFIG", "SET", "requirepass", ""]), "+OK", "protected mode");
}

#[test]
fn a_path_in_use_is_refused_and_stays_in_use() {
    let server = Server::start("unix-first", SOCKET, &[]);
    let other = path(&server).display().to_string();
    let second = Server::start("unix-second", &["--unixsocket", &other], &[]);
    assert!(happens(|| !second.has_started()));
    let expected = format!("could not listen on {other}: another process listens on this socket");
    let shown = second.text("stderr");
    assert!(shown.contains(&expected), "{shown}");
    assert_eq!(ask(&mut connect(&server), &["PING"]), "+PONG");
}

#[test]
fn a_socket_that_was_left_behind_is_replaced_and_one_of_an_orderly_end_is_removed() {
    let server = Server::start("unix-left", &[], &[]);
    let left = path(&server);
    drop(UnixListener::bind(&left).unwrap());
    assert!(left.exists());
    let name = left.display().to_string();
    let next = Server::start("unix-next", &["--unixsocket", &name], &[]);
    assert_eq!(ask(&mut UnixStream::connect(&left).unwrap(), &["PING"]), "+PONG");
    next.signal("TERM");
    assert!(happens(|| next.ends_within(Duration::ZERO)));
    assert!(!left.exists());
}

#[test]
fn only_a_socket_is_replaced() {
    let server = Server::start("unix-file", &[], &[]);
    std::fs::write(path(&server), "data").unwrap();
    let name = path(&server).display().to_string();
    let second = Server::start("unix-over", &["--unixsocket", &name], &[]);
    assert!(!second.has_started());
    assert!(second.text("stderr").contains("the file exists and is not a socket"));
    assert_eq!(server.text("s"), "data");
}
