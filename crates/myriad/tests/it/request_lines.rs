//! `log-cql-requests`: request lines in the log of a running server.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use crate::process::{Server, directory};

/// Sends OPTIONS of version 4 on a stream and reads SUPPORTED.
fn ask_options(stream: &mut TcpStream, id: u8) {
    stream.write_all(&[4, 0, 0, id, 5, 0, 0, 0, 0]).unwrap();
    let mut header = [0; 9];
    stream.read_exact(&mut header).unwrap();
    assert_eq!(header[..5], [0x84, 0, 0, id, 6]);
    let body_bytes = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
    let mut body = vec![0; usize::try_from(body_bytes).unwrap()];
    stream.read_exact(&mut body).unwrap();
}

#[test]
fn each_request_is_logged_before_the_server_exits() {
    let directory = directory("request-lines");
    fs::create_dir(&directory).unwrap();
    let log = directory.join("log");
    let options = ["--cql", "127.0.0.1:0", "--durability", "never", "--log-cql-requests", "yes"];
    let options =
        [&options[..], &["--reactors", "1", "--log-file", log.to_str().unwrap()]].concat();
    let server = Server::start(&directory.join("data"), &options);
    let address = server.address("cql");
    let mut streams = [0, 1].map(|_| TcpStream::connect(address).unwrap());
    for id in 1..=100 {
        ask_options(&mut streams[usize::from(id % 2)], id);
    }
    server.stop();
    let text = fs::read_to_string(&log).unwrap();
    // `22:13:20.000042 r0 7/3 options`, after a line with the date.
    let of_requests = |line: &&str| line.ends_with(" options");
    let lines: Vec<Vec<&str>> =
        text.lines().filter(of_requests).map(|line| line.split(' ').collect()).collect();
    assert_eq!(lines.len(), 100, "{text}");
    let mut connections = [""; 2];
    for (index, line) in lines.iter().enumerate() {
        let [time, "r0", place, "options"] = line[..] else { panic!("{line:?}") };
        let shape: String =
            time.chars().map(|one| if one.is_ascii_digit() { '0' } else { one }).collect();
        assert_eq!(shape, "00:00:00.000000");
        let (connection, stream) = place.split_once('/').unwrap();
        assert_eq!(stream, (index + 1).to_string());
        let known = &mut connections[(index + 1) % 2];
        assert!(known.is_empty() || *known == connection, "{text}");
        *known = connection;
    }
    assert_ne!(connections[0], connections[1]);
    let mut dates: Vec<&str> =
        text.lines().filter(|line| line.ends_with(" r0 CQL requests")).collect();
    let written = dates.len();
    // One date line per day; the day may change during the test.
    dates.dedup();
    assert_eq!(dates.len(), written, "{text}");
    assert!((1..=2).contains(&written), "{text}");
    assert!(!text.contains(" lost "), "{text}");
    fs::remove_dir_all(&directory).unwrap();
}
