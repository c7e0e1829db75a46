//! What the kernel says of the sockets of a port: how many connections wait, and whose they are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

const TABLE: &str = "/proc/net/tcp";
const ESTABLISHED: u8 = 0x01;
const LISTENING: u8 = 0x0a;

/// One line of the kernel's table of TCP sockets over IPv4.
#[derive(Debug, PartialEq, Eq)]
struct Socket {
    local_port: u16,
    remote_port: u16,
    state: u8,
    /// Of one that listens: connections that wait to be accepted.
    waiting: u64,
    inode: u64,
}

/// Connections that wait to be accepted at the sockets that listen on `port`. The kernel lists these
/// first, so the others are not read, however many there are.
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

/// How often the sockets that listen on `port` had no room for a connection, or for one that was about
/// to be made. The kernel's counters of this are of the whole machine; `ss` asks it for one socket.
pub(super) fn drops(port: u16) -> Result<u64> {
    let filter = format!("sport = :{port}");
    let mut command = Command::new("ss");
    command.args(["-H", "-l", "-t", "-n", "-m", &filter]).stdin(Stdio::null());
    let output = command.output().context("start ss (Debian: iproute2)")?;
    ensure!(output.status.success(), "ss failed: {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.split_whitespace().filter_map(drops_of).sum())
}

/// The last number of `skmem:(r0,rb131072,t0,tb16384,f0,w0,o0,bl0,d7)`.
// Source: ss(8), "-m" (sock_drop)
fn drops_of(word: &str) -> Option<u64> {
    let fields = word.strip_prefix("skmem:(")?.strip_suffix(')')?;
    fields.rsplit_once(",d")?.1.parse().ok()
}

/// The clients' ports of the connections to `port` that process `pid` has.
pub(super) fn clients_of(pid: u32, port: u16) -> Result<BTreeSet<u16>> {
    let text = fs::read_to_string(TABLE).with_context(|| format!("read {TABLE}"))?;
    let mut by_inode = BTreeMap::new();
    for line in text.lines().skip(1) {
        let socket = parse(line).with_context(|| format!("read {TABLE}"))?;
        if socket.state == ESTABLISHED && socket.local_port == port {
            by_inode.insert(socket.inode, socket.remote_port);
        }
    }
    let owned = inodes(pid).with_context(|| format!("list the sockets of process {pid}"))?;
    Ok(owned.iter().filter_map(|inode| by_inode.get(inode).copied()).collect())
}

/// Sockets that a process has open.
fn inodes(pid: u32) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // A descriptor that is closed meanwhile is no socket of the process any more.
        let Ok(link) = fs::read_link(entry?.path()) else { continue };
        let inode = link.to_str().and_then(|text| text.strip_prefix("socket:["));
        found.extend(inode.and_then(|text| text.trim_end_matches(']').parse::<u64>().ok()));
    }
    Ok(found)
}

/// `None`: no line of that table.
// Source: proc_net_tcp.rst; of a listening socket the receive queue is its backlog (inet_diag)
fn parse(line: &str) -> Option<Socket> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let port = |field: &str| u16::from_str_radix(field.rsplit_once(':')?.1, 16).ok();
    let (_, waiting) = fields.get(4)?.split_once(':')?;
    Some(Socket {
        local_port: port(fields.get(1)?)?,
        remote_port: port(fields.get(2)?)?,
        state: u8::from_str_radix(fields.get(3)?, 16).ok()?,
        waiting: u64::from_str_radix(waiting, 16).ok()?,
        inode: fields.get(9)?.parse().ok()?,
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
        let expected = Socket {
            local_port: 8080,
            remote_port: 0,
            state: LISTENING,
            waiting: 6,
            inode: 41_234,
        };
        assert_eq!(parse(line), Some(expected));
        for line in ["", "   3: 0100007F:1F90", "a b c d e f g h i j"] {
            assert_eq!(parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn drops_are_the_last_number_of_a_sockets_memory() {
        assert_eq!(drops_of("skmem:(r0,rb131072,t0,tb16384,f0,w0,o0,bl0,d7)"), Some(7));
        for word in ["", "LISTEN", "skmem:(r0)", "skmem:(r0,d)"] {
            assert_eq!(drops_of(word), None, "{word}");
        }
    }

    /// A connection is complete for its client a moment before it is for the server.
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
        assert!(clients_of(pid, address.port()).unwrap().is_empty(), "nobody has them yet");
        let (_first, remote) = listener.accept().unwrap();
        assert_eq!(accept_queue(address.port()).unwrap(), 2);
        let expected = BTreeSet::from([remote.port()]);
        assert_eq!(clients_of(pid, address.port()).unwrap(), expected);
        drop(streams);
    }
}
