//! The kernel's information about the sockets of a port: waiting connections, and their owners.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

const TABLE: &str = "/proc/net/tcp";
const LISTENING: u8 = 0x0a;

/// One line of the kernel's table of TCP sockets over IPv4.
#[derive(Debug, PartialEq, Eq)]
struct Socket {
    local_port: u16,
    state: u8,
    /// For a listening socket: connections that wait to be accepted.
    waiting: u64,
}

/// Returns the connections waiting at the sockets that listen on `port`. The kernel lists listening
/// sockets first, so the others are not read, however many there are.
pub(super) fn accept_queue(port: u16) -> Result<u64> {
    let file = File::open(TABLE).with_context(|| format!("open {TABLE}"))?;
    let mut waiting = 0;
    for line in BufReader::with_capacity(4096, file).lines().skip(1) {
        let socket = parse(&line?).with_context(|| format!("read {TABLE}"))?;
        if socket.state != LISTENING {
            break;
        }
        if socket.local_port == port {
            waiting += socket.waiting;
        }
    }
    Ok(waiting)
}

/// Returns how often the sockets that listen on `port` dropped a connection or a handshake. The
/// kernel's counters cover the whole machine; `ss` provides them per socket.
pub(super) fn drops(port: u16) -> Result<u64> {
    let text = ask_kernel(&["-l", "-m", &format!("sport = :{port}")])?;
    Ok(text.split_whitespace().filter_map(drops_of).sum())
}

/// Parses the last number of `skmem:(r0,rb131072,t0,tb16384,f0,w0,o0,bl0,d7)`.
// Source: ss(8), "-m" (sock_drop)
fn drops_of(word: &str) -> Option<u64> {
    let fields = word.strip_prefix("skmem:(")?.strip_suffix(')')?;
    fields.rsplit_once(",d")?.1.parse().ok()
}

/// Returns the client ports of the connections to `port` owned by process `pid`. The table in
/// `/proc` has the same information, but also contains tens of thousands of closed connections.
pub(super) fn clients_of(pid: u32, port: u16) -> Result<BTreeSet<u16>> {
    let text = ask_kernel(&["-e", "state", "established", &format!("sport = :{port}")])?;
    let by_inode: BTreeMap<u64, u16> = text.lines().filter_map(client_of).collect();
    let owned = inodes(pid).with_context(|| format!("list the sockets of process {pid}"))?;
    Ok(owned.iter().filter_map(|inode| by_inode.get(inode).copied()).collect())
}

/// Parses inode and client port: `0 0 127.0.0.1:80 127.0.0.1:37026 ino:19218190 sk:1`.
// Source: ss(8), "-e" (ino)
fn client_of(line: &str) -> Option<(u64, u16)> {
    let mut words = line.split_whitespace();
    let port = words.nth(3)?.rsplit_once(':')?.1.parse().ok()?;
    let inode = words.find_map(|word| word.strip_prefix("ino:"))?.parse().ok()?;
    Some((inode, port))
}

/// Returns the output of `ss` for TCP sockets.
fn ask_kernel(words: &[&str]) -> Result<String> {
    let mut command = Command::new("ss");
    command.args(["-H", "-t", "-n"]).args(words).stdin(Stdio::null());
    let output = command.output().context("could not start ss (Debian: iproute2)")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ss failed: {}: {complaint}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the open sockets of a process.
fn inodes(pid: u32) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // A descriptor that was closed in between does not belong to the process any longer.
        let Ok(link) = fs::read_link(entry?.path()) else { continue };
        let inode = link.to_str().and_then(|text| text.strip_prefix("socket:["));
        found.extend(inode.and_then(|text| text.trim_end_matches(']').parse::<u64>().ok()));
    }
    Ok(found)
}

/// Returns `None` for malformed lines.
// Source: proc_net_tcp.rst; of a listening socket the receive queue is its backlog (inet_diag)
fn parse(line: &str) -> Option<Socket> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (_, port) = fields.get(1)?.split_once(':')?;
    let (_, waiting) = fields.get(4)?.split_once(':')?;
    Some(Socket {
        local_port: u16::from_str_radix(port, 16).ok()?,
        state: u8::from_str_radix(fields.get(3)?, 16).ok()?,
        waiting: u64::from_str_radix(waiting, 16).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn lines_of_the_table() {
        let line = "   3: 0100007F:1F90 00000000:0000 0A 00000000:00000006 00:00000000 00000000     \
                    0        0 41234 1 0000000000000000 100 0 0 10 0";
        let expected = Socket { local_port: 8080, state: LISTENING, waiting: 6 };
        assert_eq!(parse(line), Some(expected));
        for line in ["", "   3: 0100007F:1F90", "a b c d e f g h i j"] {
            assert_eq!(parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn clients_are_known_by_their_sockets() {
        let line = "0      0      127.0.0.1:80 127.0.0.1:37026 ino:19218190 sk:1007 cgroup:/ <->";
        assert_eq!(client_of(line), Some((19_218_190, 37_026)));
        assert_eq!(client_of("0 0 [::1]:80 [::1]:37 timer:(on) ino:2"), Some((2, 37)));
        for line in ["", "0 0 127.0.0.1:80", "0 0 127.0.0.1:80 127.0.0.1:37026 sk:1"] {
            assert_eq!(client_of(line), None, "{line}");
        }
    }

    #[test]
    fn drops_are_the_last_number_of_a_sockets_memory() {
        assert_eq!(drops_of("skmem:(r0,rb131072,t0,tb16384,f0,w0,o0,bl0,d7)"), Some(7));
        for word in ["", "LISTEN", "skmem:(r0)", "skmem:(r0,d)"] {
            assert_eq!(drops_of(word), None, "{word}");
        }
    }

    /// A connection is established for the client slightly earlier than for the server.
    fn wait_until_waiting(port: u16, count: u64) {
        let until = Instant::now() + Duration::from_mins(1);
        while accept_queue(port).unwrap() != count {
            assert!(Instant::now() < until, "not {count}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn those_who_wait_are_counted_and_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(accept_queue(address.port()).unwrap(), 0);
        let streams = [(); 3].map(|()| TcpStream::connect(address).unwrap());
        wait_until_waiting(address.port(), 3);
        let pid = std::process::id();
        assert!(clients_of(pid, address.port()).unwrap().is_empty(), "they are not accepted yet");
        let (_first, remote) = listener.accept().unwrap();
        assert_eq!(accept_queue(address.port()).unwrap(), 2);
        let expected = BTreeSet::from([remote.port()]);
        assert_eq!(clients_of(pid, address.port()).unwrap(), expected);
        drop(streams);
    }
}
