//! A server with TLS, and requests to it.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustls::ClientConfig;

use crate::process::{self, wait_until};
use crate::resp;
use crate::secure::{Files, Stream, connect, dial};

/// A running server, and its files, which are removed after its end.
pub(super) struct Server {
    server: process::Server,
    pub(super) files: Files,
}

impl Server {
    /// Starts a server with certificate `one` and a TLS port for every protocol.
    pub(super) fn start(label: &str, options: &[&str]) -> Server {
        let files = Files::make(directory(label));
        let server = process::Server::run(command(&files, options).stderr(Stdio::null()));
        assert!(server.has_started());
        Server { server, files }
    }

    /// Starts a server that must fail because of invalid files. Returns its standard error.
    pub(super) fn refuse(label: &str, options: &[&str]) -> String {
        let files = Files::make(directory(label));
        let output = command(&files, options).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }

    pub(super) fn address(&self, option: &str) -> SocketAddr {
        self.server.address(option)
    }

    pub(super) fn connect(&self, option: &str) -> TcpStream {
        connect(self.address(option))
    }

    pub(super) fn dial(&self, option: &str, client: &Arc<ClientConfig>) -> Stream {
        dial(self.address(option), client)
    }

    pub(super) fn hang_up(&self) {
        self.server.process.signal("HUP");
    }

    /// Runs a command whose reply is a bulk string or a line, such as INFO.
    pub(super) fn ask(&self, words: &[&str]) -> String {
        resp::ask(&mut self.connect("resp"), words)
    }

    /// Waits until these INFO counters add up to `sum`: a reactor publishes its counters after each
    /// turn.
    pub(super) fn await_counters(&self, names: &[&str], sum: u64) {
        wait_until(&format!("{} is {sum}", names.join(" + ")), || {
            names.iter().map(|name| self.counter(name)).sum::<u64>() == sum
        });
    }

    pub(super) fn counter(&self, name: &str) -> u64 {
        resp::counter(&mut self.connect("resp"), name)
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
    command.args(options).arg("--dir").arg(files.path("data")).stdin(Stdio::null());
    command
}
