//! A server for one row, and requests to it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::secure::Files;

/// Deadline for effects that must occur; effects that must not occur get less time.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of servers started so far, which makes their directories unique.
static STARTED: AtomicUsize = AtomicUsize::new(0);

/// A running server. Dropping it kills the process and removes its directory.
pub(super) struct Server {
    child: Child,
    pub(super) files: Files,
    /// Its `ready` line; empty if it did not start.
    ready: String,
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
        let mut child = Command::new(env!("CARGO_BIN_EXE_myriad"))
            .arg("serve")
            .args(options.map(|word| word.replace("{dir}", &place)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(files.path("stderr")).unwrap())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        Server { child, files, ready }
    }

    pub(super) fn has_started(&self) -> bool {
        self.ready.starts_with("ready ")
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn address(&self, option: &str) -> Option<SocketAddr> {
        let mut listeners = self.ready.split_whitespace().filter_map(|word| word.split_once('='));
        let (_, address) = listeners.find(|(name, _)| *name == option)?;
        let mut address: SocketAddr = address.parse().unwrap();
        if address.ip().is_unspecified() {
            address.set_ip([127, 0, 0, 1].into());
        }
        Some(address)
    }

    pub(super) fn connect(&self, option: &str) -> TcpStream {
        let address = self.address(option).unwrap_or_else(|| {
            panic!("no {option}: {:?} {}", self.ready, self.text("stderr"));
        });
        crate::secure::connect(address)
    }

    /// Runs one command on a new connection.
    pub(super) fn ask(&self, words: &[&str]) -> String {
        ask(&mut self.connect("resp"), words)
    }

    /// Returns a number from INFO.
    pub(super) fn counter(&self, name: &str) -> u64 {
        let info = self.ask(&["INFO", "everything"]);
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap_or_else(|| panic!("no {name}")).trim().parse().unwrap()
    }

    /// Returns a file in the row's directory as text; empty if it does not exist.
    pub(super) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.files.path(name)).unwrap_or_default()
    }

    /// Ends the server and returns a file: a thread writes the log's lines, the last ones at the end.
    pub(super) fn final_text(&self, name: &str) -> String {
        self.signal("-TERM");
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
        let id = self.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Whether the process exits within this time.
    pub(super) fn ends_within(&self, time: Duration) -> bool {
        let stat = PathBuf::from(format!("/proc/{}/stat", self.id()));
        // A process remains a zombie until its parent waits for it.
        let has_ended = || fs::read_to_string(&stat).is_ok_and(|text| text.contains(") Z "));
        happens_within(time, has_ended)
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

pub(super) fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
    bytes
}

/// Returns a reply line or bulk string; of an array only its header. Empty if the connection ends.
pub(super) fn ask(stream: &mut (impl Read + Write), words: &[&str]) -> String {
    if stream.write_all(&request(words)).is_err() {
        return String::new();
    }
    read_reply(stream)
}

pub(super) fn read_reply(stream: &mut impl Read) -> String {
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

/// A CQL connection, version 4 of the protocol.
pub(super) struct Cql {
    pub(super) stream: TcpStream,
}

/// Opcode and body of a response.
pub(super) type Response = (u8, Vec<u8>);

impl Cql {
    pub(super) const STARTUP: u8 = 1;
    pub(super) const OPTIONS: u8 = 5;
    pub(super) const QUERY: u8 = 7;
    pub(super) const PREPARE: u8 = 9;
    pub(super) const EXECUTE: u8 = 10;
    pub(super) const AUTH_RESPONSE: u8 = 15;

    pub(super) fn connect(server: &Server) -> Cql {
        Cql { stream: server.connect("cql") }
    }

    /// Opens a connection and completes STARTUP.
    pub(super) fn start(server: &Server) -> Cql {
        let mut cql = Cql::connect(server);
        cql.startup();
        cql
    }

    pub(super) fn startup(&mut self) -> Response {
        self.ask(Cql::STARTUP, b"\0\x01\0\x0bCQL_VERSION\0\x053.0.0")
    }

    pub(super) fn login(server: &Server, user: &str, password: &str) -> Cql {
        let mut cql = Cql::start(server);
        let token = format!("\0{user}\0{password}");
        cql.ask(Cql::AUTH_RESPONSE, &long(token.as_bytes()));
        cql
    }

    pub(super) fn query(&mut self, text: &str) -> Response {
        let mut body = long(text.as_bytes());
        body.extend([0, 1, 0]); // consistency one, no flags
        self.ask(Cql::QUERY, &body)
    }

    pub(super) fn ask(&mut self, kind: u8, body: &[u8]) -> Response {
        let mut frame = vec![4, 0, 0, 1, kind];
        frame.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
        frame.extend(body);
        self.stream.write_all(&frame).unwrap();
        self.read()
    }

    pub(super) fn read(&mut self) -> Response {
        let mut header = [0; 9];
        self.stream.read_exact(&mut header).unwrap();
        let length = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
        let mut body = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut body).unwrap();
        (header[4], body)
    }
}

/// Encodes a CQL long string.
pub(super) fn long(text: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(text.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend(text);
    bytes
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
