//! A server with TLS, and requests to it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use crate::secure::{Files, PATIENCE, Stream, connect, dial};

/// A running server. Dropping it kills the process and removes its directory.
pub(super) struct Server {
    child: Child,
    pub(super) files: Files,
    ready: String,
}

impl Server {
    /// Starts a server with certificate `one` and a TLS port for every protocol.
    pub(super) fn start(label: &str, options: &[&str]) -> Server {
        let files = Files::make(directory(label));
        let mut child = command(&files, options).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        lines.read_line(&mut ready).unwrap();
        assert!(ready.starts_with("ready "), "not ready: {ready:?}");
        Server { child, files, ready }
    }

    /// Starts a server that must fail because of invalid files. Returns its standard error.
    pub(super) fn refuse(label: &str, options: &[&str]) -> String {
        let files = Files::make(directory(label));
        let output = command(&files, options).stderr(Stdio::piped()).output().unwrap();
        fs::remove_dir_all(&files.directory).unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }

    pub(super) fn address(&self, option: &str) -> SocketAddr {
        let mut listeners = self.ready.split_whitespace().filter_map(|word| word.split_once('='));
        listeners.find(|(name, _)| *name == option).unwrap().1.parse().unwrap()
    }

    pub(super) fn connect(&self, option: &str) -> TcpStream {
        connect(self.address(option))
    }

    pub(super) fn dial(&self, option: &str, client: &Arc<ClientConfig>) -> Stream {
        dial(self.address(option), client)
    }

    pub(super) fn hang_up(&self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
    }

    /// Runs a command whose reply is a bulk string or a line, such as INFO.
    pub(super) fn ask(&self, words: &[&str]) -> String {
        ask(&mut self.connect("resp"), words)
    }

    /// Waits until these INFO counters add up to `sum`: a reactor publishes its counters after each
    /// turn.
    pub(super) fn await_counters(&self, names: &[&str], sum: u64) {
        wait_for(&names.join(" + "), || {
            names.iter().map(|name| self.counter(name)).sum::<u64>() == sum
        });
    }

    pub(super) fn counter(&self, name: &str) -> u64 {
        let info = self.ask(&["INFO", "everything"]);
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap_or_else(|| panic!("no {name}")).trim().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both calls fail only if the process has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.files.directory);
    }
}

/// Waits until the condition holds; panics after the deadline.
pub(super) fn wait_for(what: &str, mut has_come: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !has_come() {
        assert!(Instant::now() < deadline, "waited for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn directory(label: &str) -> PathBuf {
    std::env::temp_dir().join(format!("myriad-it-tls-{label}-{}", std::process::id()))
}

fn command(files: &Files, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
    command.args(["serve", "--reactors", "2", "--resp", "127.0.0.1:0"]);
    for option in ["--resp-tls", "--cql-tls", "--http-tls"] {
        command.args([option, "127.0.0.1:0"]);
    }
    let file = |option: &str, name: &str| [option.to_owned(), files.text(name)];
    command.args(file("--tls-cert-file", "one.pem"));
    command.args(file("--tls-key-file", "one.key"));
    command.args(file("--tls-ca-cert-file", "ca.pem"));
    command.args(options).arg("--dir").arg(Path::new(&files.directory).join("data"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

pub(super) fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
    bytes
}

/// Runs one command of RESP whose reply is a line or a bulk string.
pub(super) fn ask(stream: &mut (impl Read + Write), words: &[&str]) -> String {
    stream.write_all(&request(words)).unwrap();
    let line = read_line(stream);
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

fn read_line(stream: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    bytes.truncate(bytes.len() - 2);
    String::from_utf8(bytes).unwrap()
}
