//! The live view with normal and hostile clients.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use lab::serve::{CONNECTIONS_MAX, HEAD_BYTES_MAX, LiveView, Settings};

use crate::fixture::{self, Maker, folder};

/// Only one test waits for this timeout. It is long enough that a test without processor time for
/// seconds does not exceed it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

fn start(folder: &Path, head_timeout: Duration) -> LiveView {
    let listen = "127.0.0.1:0".parse().unwrap();
    LiveView::start(Settings { head_timeout, ..Settings::new(folder, listen) }).unwrap()
}

fn patient(folder: &Path) -> LiveView {
    start(folder, Duration::from_secs(20))
}

/// Sends bytes and reads until the view closes the connection.
fn ask(view: &LiveView, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(view.address()).unwrap();
    stream.write_all(bytes).unwrap();
    answer(&mut stream)
}

fn answer(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn get(view: &LiveView, path: &str) -> String {
    ask(view, format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
}

fn check_status(answer: &str, status: &str) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer:.300}");
}

fn version(answer: &str) -> &str {
    let line = answer.lines().find(|line| line.starts_with("ETag: ")).unwrap();
    &line["ETag: ".len()..]
}

#[test]
fn a_run_is_followed_while_it_is_written() {
    let root = folder("serve-live");
    let view = patient(&root);
    let empty = get(&view, "/");
    check_status(&empty, "200");
    assert!(empty.contains("Nothing has been measured yet"), "{empty}");
    check_status(&get(&view, "/report.html"), "500");

    let rows = Maker::new(4).rows("s1.t6", &fixture::instances());
    fixture::write_run(&root.join("first"), "s1.t6", "Live", &rows[..2]);
    fs::write(
        root.join("first/progress.json"),
        r#"{"cell": 2, "cells": 28, "phase": "measuring"}"#,
    )
    .unwrap();
    let first = get(&view, "/live");
    assert!(first.contains("3 of 28"), "{first}");
    assert!(first.contains("load.connections = 2, load.threads = 1"), "{first}");
    assert!(!first.contains("load.connections = 4"), "{first}");

    let request = format!("GET /live HTTP/1.1\r\nIf-None-Match: {}\r\n\r\n", version(&first));
    check_status(&ask(&view, request.as_bytes()), "304");

    fixture::write_rows(&root.join("first"), &rows[..4]);
    let second = ask(&view, request.as_bytes());
    check_status(&second, "200");
    assert!(second.contains("load.connections = 4"), "{second}");
    assert!(second.contains("<svg"), "charts are missing");

    check_status(&get(&view, "/report.html"), "200");
    assert!(get(&view, "/rows.csv").contains("operations_per_second"));

    fixture::write_rows(&root.join("first"), &rows[..1]);
    let again = get(&view, "/live");
    assert!(!again.contains("load.connections = 4"), "a shorter file is another run: {again}");

    fs::write(root.join("first/rows.jsonl"), "no row\n".repeat(9_000)).unwrap();
    let damaged = get(&view, "/live");
    check_status(&damaged, "500");
    assert!(damaged.contains("line 1 is not a row"), "{damaged}");
}

#[test]
fn strangers_get_their_answers() {
    let view = patient(&folder("serve-strangers"));
    for (request, status) in [
        ("GET /nothing HTTP/1.1\r\n\r\n", "404"),
        ("GET /../../etc/passwd HTTP/1.1\r\n\r\n", "404"),
        ("GET /%2e%2e/rows.jsonl HTTP/1.1\r\n\r\n", "404"),
        ("POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405"),
        ("DELETE /report.html HTTP/1.1\r\n\r\n", "405"),
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"),
        ("GET / HTTP/3.7\r\n\r\n", "400"),
        ("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "400"),
        ("\u{16}\u{3}\u{1}\u{2}\0", "400"),
    ] {
        check_status(&ask(&view, request.as_bytes()), status);
    }
    let refused = ask(&view, b"PUT / HTTP/1.1\r\n\r\n");
    assert!(refused.contains("Allow: GET, HEAD\r\n"), "{refused}");
    let head = ask(&view, b"HEAD / HTTP/1.1\r\n\r\n");
    check_status(&head, "200");
    assert!(head.ends_with("\r\n\r\n"), "HEAD has no content: {head}");
}

#[test]
fn a_huge_head_is_refused_unread() {
    let view = patient(&folder("serve-huge"));
    let line = format!("GET /{} HTTP/1.1\r\n", "a".repeat(HEAD_BYTES_MAX));
    check_status(&ask(&view, line.as_bytes()), "431");
    let header = format!("GET / HTTP/1.1\r\nCookie: {}\r\n\r\n", "a".repeat(3 * HEAD_BYTES_MAX));
    check_status(&ask(&view, header.as_bytes()), "431");
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(500));
    check_status(&ask(&view, many.as_bytes()), "431");
    check_status(&get(&view, "/"), "200");
}

#[test]
fn who_is_slow_is_let_go() {
    let view = start(&folder("serve-slow"), HEAD_TIMEOUT);
    // Started together, so that they time out together.
    let mut slow = [&b"GET / HTTP/1.1\r\nHost: loc"[..], b""].map(|bytes| {
        let mut stream = TcpStream::connect(view.address()).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    });
    let mut gone = TcpStream::connect(view.address()).unwrap();
    gone.write_all(b"GET /").unwrap();
    drop(gone);
    for stream in &mut slow {
        check_status(&answer(stream), "408");
    }
    check_status(&get(&view, "/"), "200");
}

#[test]
fn a_crowd_is_sent_away_and_leaves_no_trace() {
    let view = patient(&folder("serve-crowd"));
    let mut idle: Vec<TcpStream> = Vec::new();
    // Connections are accepted in order, so the one after the last finds no free thread.
    for _ in 0..CONNECTIONS_MAX {
        idle.push(TcpStream::connect(view.address()).unwrap());
    }
    check_status(&answer(&mut TcpStream::connect(view.address()).unwrap()), "503");
    for stream in &mut idle {
        stream.write_all(b"GET /nothing HTTP/1.1\r\n\r\n").unwrap();
        check_status(&answer(stream), "404");
    }
}

#[test]
fn a_folder_that_is_not_there_is_refused() {
    let listen = "127.0.0.1:0".parse().unwrap();
    let fault = LiveView::start(Settings::new(Path::new("no such folder"), listen)).unwrap_err();
    assert!(fault.to_string().contains("is not a folder"), "{fault}");
}
