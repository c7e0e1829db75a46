//! Processes of the program under test, and requests to its servers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Deadline that only a hung test reaches.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A child process; killed when dropped.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Process {
        Process(command.spawn().unwrap())
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.id(), name);
    }

    /// Waits for the end.
    pub(crate) fn wait(mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }

    /// Kills the process, as a drop does.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both calls fail only if the process has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(status.unwrap().success(), "kill -{name} {pid}");
}

/// A running server; killed when dropped.
pub(crate) struct Server {
    pub(crate) process: Process,
    /// Its `ready` line; empty if it did not start.
    ready: String,
}

impl Server {
    /// Starts a server with two reactors and a Redis port.
    pub(crate) fn start(directory: &Path, options: &[&str]) -> Server {
        Server::start_with_log(directory, options, Stdio::null())
    }

    pub(crate) fn start_with_log(directory: &Path, options: &[&str], log: Stdio) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
        command.args(["serve", "--resp", "127.0.0.1:0", "--reactors", "2", "--dir"]).arg(directory);
        command.args(["--enable-debug-command", "yes", "--elements-per-command-max", "0"]);
        Server::run(command.args(options).stderr(log))
    }

    /// Starts a server, and waits until it is ready or has ended.
    pub(crate) fn run(command: &mut Command) -> Server {
        let mut process = Process::start(command.stdout(Stdio::piped()));
        let mut ready = String::new();
        BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        Server { process, ready }
    }

    pub(crate) fn has_started(&self) -> bool {
        self.ready.starts_with("ready ")
    }

    /// Returns the addresses at which the server listens because of this option.
    pub(crate) fn addresses(&self, option: &str) -> impl Iterator<Item = SocketAddr> {
        let listeners = self.ready.split_whitespace().filter_map(|word| word.split_once('='));
        let listeners = listeners.filter(move |(name, _)| *name == option);
        listeners.map(|(_, address)| address.parse().unwrap())
    }

    /// Returns the address for `option`, which must be there.
    pub(crate) fn address(&self, option: &str) -> SocketAddr {
        let address = self.addresses(option).next();
        address.unwrap_or_else(|| panic!("no {option}: {:?}", self.ready))
    }

    /// Sends inline requests to the Redis port, like [`ask_inline`].
    pub(crate) fn ask(&self, requests: &str) -> String {
        ask_inline(self.address("resp"), requests)
    }

    /// Stops the server and checks that it exits successfully.
    pub(crate) fn stop(self) {
        self.process.signal("TERM");
        assert!(self.process.wait().success());
    }
}

/// Sends inline requests on a new connection. Returns the replies as they are sent.
pub(crate) fn ask_inline(address: impl ToSocketAddrs, requests: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{requests}\r\nQUIT\r\n").unwrap();
    let mut replies = String::new();
    stream.read_to_string(&mut replies).unwrap();
    replies.strip_suffix("+OK\r\n").unwrap().to_owned()
}

/// Returns the path of a directory for one test, which is not there yet.
pub(crate) fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&directory);
    directory
}

/// Waits until the condition holds; panics after the deadline.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
