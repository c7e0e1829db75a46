//! Requests of the Redis protocol on open connections.

use std::io::{Read, Write};

pub(crate) fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
    bytes
}

/// Returns a reply line or bulk string; of an array only its header. Empty if the connection ends.
pub(crate) fn ask(stream: &mut (impl Read + Write), words: &[&str]) -> String {
    if stream.write_all(&request(words)).is_err() {
        return String::new();
    }
    read_reply(stream)
}

pub(crate) fn read_reply(stream: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n") {
        let mut byte = [0];
        if stream.read_exact(&mut byte).is_err() {
            return String::new();
        }
        bytes.push(byte[0]);
    }
    bytes.truncate(bytes.len() - 2);
    let line = String::from_utf8(bytes).unwrap();
    match line.strip_prefix('$').map(str::parse::<usize>) {
        Some(Ok(length)) => {
            let mut bytes = vec![0; length + 2];
            stream.read_exact(&mut bytes).unwrap();
            bytes.truncate(length);
            String::from_utf8(bytes).unwrap()
        }
        _ => line,
    }
}

/// Returns a number from INFO.
pub(crate) fn counter(stream: &mut (impl Read + Write), name: &str) -> u64 {
    let info = ask(stream, &["INFO", "everything"]);
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("no {name}")).trim().parse().unwrap()
}
