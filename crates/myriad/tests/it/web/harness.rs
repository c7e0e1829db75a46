//! Servers, clients and load generators for the tests.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::process::Process;
pub(super) use crate::process::{PATIENCE, signal, wait_until};
pub(super) use crate::secure::connect;

pub(super) const HELLO: &str =
    "HTTP/1.1 200 OK\r\nContent-Length: 27\r\n\r\nHello from Tom HTTP Server\n";
pub(super) const GET_HELLO: &str = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";
pub(super) const GET_HELLO_AND_CLOSE: &str =
    "GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
pub(super) const HELLO_AND_CLOSE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 27\r\nConnection: close\r\n\r\nHello from Tom HTTP Server\n";
/// Timeouts long enough for a client that is descheduled.
pub(super) const PATIENT: [&str; 4] = ["--head-timeout-ms", "60000", "--drain-timeout-ms", "60000"];
/// Time for which an exiting worker keeps an idle connection open.
pub(super) const DRAIN_IDLE: Duration = Duration::from_millis(500);

/// A running master.
pub(super) struct Server {
    pub(super) master: Process,
    lines: Option<BufReader<ChildStdout>>,
    pub(super) address: SocketAddr,
    /// Address for HTTPS, if there is one.
    pub(super) https: Option<SocketAddr>,
    /// All listening addresses, with the names of their protocols.
    pub(super) addresses: Vec<(String, SocketAddr)>,
}

impl Server {
    pub(super) fn start(options: &[&str]) -> Server {
        Server::start_saying(options, Stdio::inherit())
    }

    /// Starts a server that writes its log to `errors`.
    pub(super) fn start_saying(options: &[&str], errors: impl Into<Stdio>) -> Server {
        Server::run(&mut Command::new(env!("CARGO_BIN_EXE_myriad")), options, errors)
    }

    /// Starts a server that may open `count` files, as may each worker.
    pub(super) fn start_with_descriptors(
        count: usize,
        options: &[&str],
        errors: impl Into<Stdio>,
    ) -> Server {
        let script = format!("ulimit -n {count} && exec \"$0\" \"$@\"");
        let mut shell = Command::new("sh");
        Server::run(shell.args(["-c", &script, env!("CARGO_BIN_EXE_myriad")]), options, errors)
    }

    fn run(program: &mut Command, options: &[&str], errors: impl Into<Stdio>) -> Server {
        let listen = own_address();
        Server::run_as_told(program, &[&["--listen", &listen][..], options].concat(), errors)
    }

    /// Starts a server with no options except these.
    pub(super) fn run_as_told(
        program: &mut Command,
        options: &[&str],
        errors: impl Into<Stdio>,
    ) -> Server {
        program.arg("web").args(options);
        program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let mut master = Process::start(program);
        let mut lines = BufReader::new(master.0.stdout.take().unwrap());
        let addresses = ready_addresses(&mut lines);
        let of = |name: &str| addresses.iter().find(|one| one.0 == name).map(|one| one.1);
        let (address, https) = (of("http").unwrap(), of("https"));
        Server { master, lines: Some(lines), address, https, addresses }
    }

    /// Parses the address in the next line that this server or its successor prints.
    pub(super) fn next_address(&mut self) -> SocketAddr {
        self.next_addresses().0
    }

    /// Like `next_address`, but also returns the address for HTTPS.
    pub(super) fn next_addresses(&mut self) -> (SocketAddr, Option<SocketAddr>) {
        let addresses = self.next_ready();
        let of = |name: &str| addresses.iter().find(|one| one.0 == name).map(|one| one.1);
        (of("http").unwrap(), of("https"))
    }

    /// Like `next_address`, but returns all addresses.
    pub(super) fn next_ready(&mut self) -> Vec<(String, SocketAddr)> {
        ready_addresses(self.lines.as_mut().unwrap())
    }

    /// Returns the address of the status page.
    pub(super) fn status(&self) -> SocketAddr {
        self.addresses.iter().find(|one| one.0 == "status").unwrap().1
    }

    /// Returns the sum of a metric over all workers; `name` includes its labels except `worker`.
    pub(super) fn metric(&self, name: &str) -> u64 {
        let get = "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let text = ask_all(self.status(), get.as_bytes());
        let samples = text.lines().filter_map(|line| line.rsplit_once(' '));
        samples
            .filter(|(found, _)| {
                let plain = found.replace(",worker=", "{worker=");
                plain.split_once("{worker=").is_some_and(|(found, _)| found == name)
            })
            .map(|(_, number)| number.parse::<u64>().unwrap())
            .sum()
    }

    /// Closes the read end of its standard output.
    pub(super) fn stop_listening(&mut self) {
        self.lines = None;
    }

    pub(super) fn connect(&self) -> TcpStream {
        connect(self.address)
    }

    pub(super) fn signal(&self, name: &str) {
        self.master.signal(name);
    }

    /// Returns the process IDs of the workers.
    pub(super) fn workers(&self) -> Vec<u32> {
        children(self.master.id())
    }

    /// Stops the server and checks that it exits successfully.
    pub(super) fn stop(self) {
        self.signal("TERM");
        let status = self.master.wait();
        assert!(status.success(), "{status}");
    }
}

/// Returns a loopback address that no other server uses, with port 0. After this server has closed
/// its port, no other server can be found there.
pub(super) fn own_address() -> String {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(number < u8::MAX, "there are more servers than addresses");
    let process = std::process::id();
    format!("127.{}.{}.{number}:0", 1 + process / 250 % 250, 1 + process % 250)
}

/// Parses the addresses in the next `ready` line.
fn ready_addresses(lines: &mut impl BufRead) -> Vec<(String, SocketAddr)> {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let words = line.trim().strip_prefix("ready ");
    let words = words.unwrap_or_else(|| panic!("not ready: {line:?}"));
    let address = |word: &str| {
        let (name, address) = word.split_once('=').unwrap();
        (name.to_owned(), address.parse().unwrap())
    };
    words.split(' ').map(address).collect()
}

/// Stops a process and waits until it has stopped, because signals are delivered asynchronously.
pub(super) fn halt(pid: u32) {
    signal(pid, "STOP");
    wait_until("the process has stopped", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        // The fields after the name, which may contain any characters.
        stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('T'))
    });
}

/// Returns the number of connections that wait to be accepted at an address.
// Source: proc_net_tcp(5): the receive queue of a listening socket is its accept queue
pub(super) fn waiting_at(address: SocketAddr) -> u64 {
    let SocketAddr::V4(address) = address else { panic!("{address} is not an IPv4 address") };
    let number = u32::from_ne_bytes(address.ip().octets());
    let local = format!("{number:08X}:{:04X}", address.port());
    let tcp = fs::read_to_string("/proc/net/tcp").unwrap();
    tcp.lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_here = words.get(1) == Some(&local.as_str()) && words.get(3) == Some(&"0A");
            let (_, waiting) = is_here.then(|| words[4].split_once(':').unwrap())?;
            Some(u64::from_str_radix(waiting, 16).unwrap())
        })
        .sum()
}

pub(super) fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(|child| child.parse().unwrap()).collect()
}

/// Sends `request` and reads exactly `reply`.
#[track_caller]
pub(super) fn ask(stream: &mut (impl Read + Write), request: &str, reply: &str) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = vec![0; reply.len()];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(String::from_utf8_lossy(&bytes), reply);
}

/// Sends `request` and reads until the server closes.
pub(super) fn ask_all(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = connect(address);
    stream.write_all(request).unwrap();
    read_all(stream)
}

/// Sends each request on a connection of its own to the only worker and returns the responses. The
/// worker is stopped until all have been sent, because it soon disconnects silent clients.
pub(super) fn ask_at_once(server: &Server, requests: &[&[u8]]) -> Vec<String> {
    let worker = server.workers()[0];
    halt(worker);
    let streams: Vec<TcpStream> = requests
        .iter()
        .map(|request| {
            let mut stream = server.connect();
            stream.write_all(request).unwrap();
            stream
        })
        .collect();
    signal(worker, "CONT");
    streams.into_iter().map(read_all).collect()
}

/// Reads until the server closes. A reset also counts as the end.
fn read_all(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => String::from_utf8_lossy(&bytes).into_owned(),
    }
}

/// Checks the status of a request on a new connection.
#[track_caller]
pub(super) fn check_status(server: &Server, request: &str, status: u16) {
    let answer = ask_all(server.address, request.as_bytes());
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer:?}");
}

/// A directory that is removed on drop.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("myriad-it-web-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("root/sub")).unwrap();
        fs::write(path.join("secret.txt"), "secret").unwrap();
        fs::write(path.join("root/index.html"), "<p>index</p>").unwrap();
        Folder(path)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Clients that request /hello repeatedly and collect errors.
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    /// Each client keeps its connection open as long as the server allows.
    pub(super) fn start(address: SocketAddr, clients: usize) -> Load {
        Load::asking(address, clients, GET_HELLO)
    }

    /// Each request uses a new connection.
    pub(super) fn of_new_connections(address: SocketAddr, clients: usize) -> Load {
        Load::asking(address, clients, GET_HELLO_AND_CLOSE)
    }

    fn asking(address: SocketAddr, clients: usize, request: &'static str) -> Load {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let threads = (0..clients)
            .map(|_| {
                let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
                std::thread::spawn(move || {
                    let mut failures = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        if let Err(error) = converse(address, request, &stop, &answered) {
                            failures.push(error.to_string());
                        }
                    }
                    failures
                })
            })
            .collect();
        Load { stop, answered, threads }
    }

    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Waits for `count` more responses.
    pub(super) fn go_on(&self, count: u64) {
        let target = self.answered() + count;
        wait_until("more requests are answered", || self.answered() >= target);
    }

    pub(super) fn stop(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    }
}

/// Sends requests on one connection until a response closes it or the load ends.
fn converse(
    address: SocketAddr,
    request: &str,
    stop: &AtomicBool,
    answered: &AtomicU64,
) -> std::io::Result<()> {
    // Upper bound of the time of the last request.
    let mut quiet_since = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    while !stop.load(Ordering::Relaxed) {
        let asked = Instant::now();
        let mut line = String::new();
        let begun = stream.write_all(request.as_bytes()).and_then(|()| reader.read_line(&mut line));
        let has_ended = match &begun {
            Ok(count) => *count == 0,
            Err(error) => line.is_empty() && is_end(error),
        };
        // A descheduled thread may send its request after the idle deadline, when the server has
        // rightly closed the connection.
        if has_ended && quiet_since.elapsed() >= DRAIN_IDLE {
            return Ok(());
        }
        begun?;
        quiet_since = asked;
        if !line.starts_with("HTTP/1.1 200 ") {
            return Err(std::io::Error::other(format!("answered {line:?}")));
        }
        let mut closes = false;
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line)?;
            closes |= line == "Connection: close\r\n";
        }
        reader.read_exact(&mut [0; 27])?;
        answered.fetch_add(1, Ordering::Relaxed);
        if closes {
            return Ok(());
        }
    }
    Ok(())
}

/// Whether the error means that the peer has closed the connection.
fn is_end(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// Makes the master `before` replace its program, and returns the new master. It is a child of the
/// old one, which stays alive until then because a request is unfinished there.
pub(super) fn replace(before: u32, address: SocketAddr) -> Orphan {
    let mut asking = connect(address);
    ask(&mut asking, GET_HELLO, HELLO);
    let (begun, rest) = GET_HELLO_AND_CLOSE.split_at(10);
    asking.write_all(begun.as_bytes()).unwrap();
    signal(before, "USR2");
    let next = successor(before);
    ask(&mut asking, rest, HELLO_AND_CLOSE);
    next
}

/// Returns the master that `before` has just started. It can be found before it is ready.
pub(super) fn successor(before: u32) -> Orphan {
    let is_master = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|&byte| byte == 0).any(|word| word == b"--inherit")
    };
    let started = Instant::now();
    loop {
        if let Some(pid) = children(before).into_iter().find(is_master) {
            return Orphan(pid);
        }
        assert!(started.elapsed() < PATIENCE, "no new master");
        std::thread::yield_now();
    }
}

/// A process that is not a child of the test. Killed when dropped if it is still running.
pub(super) struct Orphan(pub(super) u32);

impl Orphan {
    pub(super) fn is_there(&self) -> bool {
        is_running(self.0)
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        if self.is_there() {
            signal(self.0, "KILL");
        }
    }
}

/// Whether a process is running; a zombie is not.
pub(super) fn is_running(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// Whether a process has the file at this path open.
pub(super) fn has_open(pid: u32, path: &Path) -> bool {
    let Ok(path) = fs::canonicalize(path) else { return false };
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    links.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok()).any(|link| link == path)
}

/// Returns the number of connected TCP sockets of a process, excluding pipes and listening sockets.
pub(super) fn connections_of(pid: u32) -> usize {
    let tcp = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
    let established: Vec<&str> = tcp
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            (words.get(3) == Some(&"01")).then(|| words[9])
        })
        .collect();
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = links.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    links
        .filter(|link| {
            let inode = link.to_str().and_then(|text| text.strip_prefix("socket:["));
            let inode = inode.map(|text| text.trim_end_matches(']'));
            inode.is_some_and(|inode| established.contains(&inode))
        })
        .count()
}
