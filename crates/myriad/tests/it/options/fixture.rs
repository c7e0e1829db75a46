//! A server for one row, and requests to it.

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::cql::{Cql, Response, long};
use crate::process;
use crate::resp;
use crate::secure::Files;

/// Deadline for effects that must occur; effects that must not occur get less time.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of servers started so far, which makes their directories unique.
static STARTED: AtomicUsize = AtomicUsize::new(0);

/// A server, and its files, which are removed after its end.
pub(super) struct Server {
    server: process::Server,
    pub(super) files: Files,
}

impl Server {
    /// Starts a server with one reactor and a Redis port, and the options of the row.
    pub(super) fn start(label: &str, with: &[&str], given: &[String]) -> Server {
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = format!("myriad-it-options-{label}-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&directory);
        let files = if with.iter().any(|option| option.contains("tls")) {
            Files::make(directory)
        } else {
            fs::create_dir_all(&directory).unwrap();
            Files { directory }
        };
        fs::write(files.path("users.acl"), "user client on +acl|whoami\n").unwrap();
        let base = ["--resp", "127.0.0.1:0", "--reactors", "1", "--dir", "{dir}/data"];
        let options = base.iter().chain(with).map(|word| (*word).to_owned()).chain(given.to_vec());
        let place = files.directory.display().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
        command
            .arg("serve")
            .args(options.map(|word| word.replace("{dir}", &place)))
            .stdin(Stdio::null())
            .stderr(fs::File::create(files.path("stderr")).unwrap());
        Server { server: process::Server::run(&mut command), files }
    }

    pub(super) fn has_started(&self) -> bool {
        self.server.has_started()
    }

    pub(super) fn id(&self) -> u32 {
        self.server.process.id()
    }

    pub(super) fn address(&self, option: &str) -> Option<SocketAddr> {
        let mut address = self.server.addresses(option).next()?;
        if address.ip().is_unspecified() {
            address.set_ip([127, 0, 0, 1].into());
        }
        Some(address)
    }

    pub(super) fn connect(&self, option: &str) -> TcpStream {
        let address = self.address(option).unwrap_or_else(|| {
            panic!("no {option}: {}", self.text("stderr"));
        });
        crate::secure::connect(address)
    }

    /// Runs one command on a new connection.
    pub(super) fn ask(&self, words: &[&str]) -> String {
        resp::ask(&mut self.connect("resp"), words)
    }

    /// Returns a number from INFO.
    pub(super) fn counter(&self, name: &str) -> u64 {
        resp::counter(&mut self.connect("resp"), name)
    }

    /// Returns a file in the row's directory as text; empty if it does not exist.
    pub(super) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.files.path(name)).unwrap_or_default()
    }

    /// Ends the server and returns a file: a thread writes the log's lines, the last ones at the end.
    pub(super) fn final_text(&self, name: &str) -> String {
        self.signal("TERM");
        assert!(self.ends_within(PATIENCE), "the server does not end");
        self.text(name)
    }

    /// Returns names and sizes of the files below the row's directory.
    pub(super) fn listed(&self, name: &str) -> Vec<(String, u64)> {
        let Ok(entries) = fs::read_dir(self.files.path(name)) else { return Vec::new() };
        let listed = |entry: fs::DirEntry| {
            let bytes = entry.metadata().map_or(0, |metadata| metadata.len());
            (entry.file_name().to_string_lossy().into_owned(), bytes)
        };
        entries.filter_map(Result::ok).map(listed).collect()
    }

    pub(super) fn signal(&self, name: &str) {
        self.server.process.signal(name);
    }

    /// Whether the process exits within this time.
    pub(super) fn ends_within(&self, time: Duration) -> bool {
        let stat = PathBuf::from(format!("/proc/{}/stat", self.id()));
        // A process remains a zombie until its parent waits for it.
        let has_ended = || fs::read_to_string(&stat).is_ok_and(|text| text.contains(") Z "));
        happens_within(time, has_ended)
    }
}

/// Whether the condition becomes true before the deadline.
pub(super) fn happens(happened: impl FnMut() -> bool) -> bool {
    happens_within(PATIENCE, happened)
}

pub(super) fn happens_within(time: Duration, mut happened: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + time;
    while !happened() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Returns the first word if the condition holds, otherwise the second.
pub(super) fn word(holds: bool, words: [&str; 2]) -> String {
    words[usize::from(!holds)].to_owned()
}

/// Whether the server closes the connection within this time; discards its output.
pub(super) fn is_closed_within(stream: &mut TcpStream, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    let mut bytes = [0; 4096];
    while let Some(left) = deadline.checked_duration_since(Instant::now()) {
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1)))).unwrap();
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return true,
        }
    }
    false
}

/// Starts a CQL connection, and logs in.
pub(super) fn login(server: &Server, user: &str, password: &str) -> Cql {
    let mut cql = Cql::start(server.connect("cql"));
    let token = format!("\0{user}\0{password}");
    cql.ask(Cql::AUTH_RESPONSE, &long(token.as_bytes()));
    cql
}

/// Formats a response as `ERROR 1001`, or as its opcode.
pub(super) fn outcome((kind, body): &Response) -> String {
    match kind {
        0 => format!("ERROR {:04x}", u32::from_be_bytes([body[0], body[1], body[2], body[3]])),
        2 => "READY".to_owned(),
        3 => "AUTHENTICATE".to_owned(),
        6 => "SUPPORTED".to_owned(),
        8 => "RESULT".to_owned(),
        kind => format!("{kind}"),
    }
}
