//! Replays every file of the fuzzers' corpora through the function that the fuzzer calls.

use std::fs;
use std::path::{Path, PathBuf};

use wire::{cql, http, rdb, replication, resp::check};

/// A corpus with fewer files has been lost, and its test would pass on nothing.
const FILES_MIN: usize = 20;

#[test]
fn requests() {
    for (path, data) in corpus("resp_request") {
        println!("{}", path.display());
        check::check_requests(&data);
    }
}

#[test]
fn replies() {
    for (path, data) in corpus("resp_reply") {
        println!("{}", path.display());
        check::check_reply(&data);
    }
}

#[test]
fn cql_requests() {
    for (path, data) in corpus("cql_request") {
        println!("{}", path.display());
        cql::check::check_requests(&data);
    }
}

#[test]
fn cql_responses() {
    for (path, data) in corpus("cql_response") {
        println!("{}", path.display());
        cql::check::check_responses(&data);
    }
}

#[test]
fn cql_segments() {
    for (path, data) in corpus("cql_segment") {
        println!("{}", path.display());
        cql::check::check_segments(&data);
    }
}

#[test]
fn replication_frames() {
    for (path, data) in corpus("replication_frame") {
        println!("{}", path.display());
        replication::check(&data);
    }
}

#[test]
fn rdb_files_and_payloads() {
    for (path, data) in corpus("rdb") {
        println!("{}", path.display());
        rdb::check::check_file(&data);
        rdb::check::check_payload(&data);
    }
}

#[test]
fn http_requests() {
    for (path, data) in corpus("http_request") {
        println!("{}", path.display());
        http::check::check_requests(&data);
    }
}

#[test]
fn http_responses() {
    for (path, data) in corpus("http_response") {
        println!("{}", path.display());
        http::check::check_responses(&data);
    }
}

#[track_caller]
fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files: Vec<_> = fs::read_dir(&folder)
        .expect("the corpus is checked in")
        .map(|file| {
            let path = file.expect("a readable folder").path();
            let data = fs::read(&path).expect("a readable file");
            (path, data)
        })
        .collect();
    assert!(files.len() >= FILES_MIN, "{} files in {}", files.len(), folder.display());
    files
}
