//! MONITOR lines on their way to the reactors of their clients.
//!
//! A reactor that runs a long request does not read its mail meanwhile. The lines that wait for it
//! are bounded; after lines were lost, the reactor closes its MONITOR clients, as it closes clients
//! that do not read.

use std::fmt::Display;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use base::time::UnixMs;

use crate::engine::client_address::ClientAddress;
use crate::engine::secret::Shown;

/// Bytes of lines that wait for one reactor. The reactors share the memory of the lines. Small in
/// unit tests, so that they can reach the limit.
const PENDING_BYTES_MAX: usize = if cfg!(test) { 1 << 20 } else { 64 << 20 };

/// Pending lines of one reactor. On its own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Feed {
    pending_bytes: AtomicUsize,
    has_lost: AtomicBool,
}

/// Pending lines of every reactor; see the module documentation.
#[derive(Debug)]
pub(crate) struct MonitorFeeds(Box<[Feed]>);

impl MonitorFeeds {
    pub(crate) fn new(reactors: usize) -> MonitorFeeds {
        MonitorFeeds((0..reactors).map(|_| Feed::default()).collect())
    }

    /// Accounts for lines to a reactor. False if they must not be sent, because too many are
    /// already waiting.
    pub(crate) fn add(&self, reactor: usize, bytes: usize) -> bool {
        let feed = &self.0[reactor];
        let before = feed.pending_bytes.fetch_add(bytes, Ordering::Relaxed);
        // Lines of a single turn are sent regardless of their size: the output limits of their
        // clients apply.
        let may_wait = before == 0 || before + bytes <= PENDING_BYTES_MAX;
        if !may_wait {
            self.lose(reactor, bytes);
        }
        may_wait
    }

    /// Bytes of lines on their way to a reactor.
    pub(crate) fn pending_bytes(&self, reactor: usize) -> usize {
        self.0[reactor].pending_bytes.load(Ordering::Relaxed)
    }

    /// Records that lines counted by [`MonitorFeeds::add`] were not sent.
    pub(crate) fn lose(&self, reactor: usize, bytes: usize) {
        let feed = &self.0[reactor];
        feed.has_lost.store(true, Ordering::Relaxed);
        feed.pending_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Records that a reactor has received lines. True if lines to it were lost since the last
    /// call.
    pub(crate) fn taken(&self, reactor: usize, bytes: usize) -> bool {
        let feed = &self.0[reactor];
        feed.pending_bytes.fetch_sub(bytes, Ordering::Relaxed);
        feed.has_lost.swap(false, Ordering::Relaxed)
    }
}

/// Where a request came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestSource {
    Client(ClientAddress),
    Script,
}

/// Appends a request as `+1339518083.107412 [0 127.0.0.1:60866] "keys" "*"` and a line end. The
/// time is that of the reactor's turn, in milliseconds.
// Source: Redis 7.2 `replication.c`, `replicationFeedMonitors`
///
/// `place` is the database, or the protocol if it has no databases. `socket`: the path of the Unix
/// socket.
pub(crate) fn monitor_line(
    place: &dyn Display,
    source: RequestSource,
    socket: &Path,
    now: UnixMs,
    request: Shown<'_>,
    out: &mut Vec<u8>,
) {
    let (seconds, ms) = (now.0 / 1000, now.0 % 1000);
    let written = match source {
        RequestSource::Client(ClientAddress::Internet(remote)) => {
            write!(out, "+{seconds}.{ms:03}000 [{place} {remote}]")
        }
        RequestSource::Client(ClientAddress::UnixSocket) => {
            let path = socket.display();
            write!(out, "+{seconds}.{ms:03}000 [{place} unix:{path}]")
        }
        RequestSource::Client(ClientAddress::Unknown) => {
            write!(out, "+{seconds}.{ms:03}000 [{place} ?:0]")
        }
        RequestSource::Script => write!(out, "+{seconds}.{ms:03}000 [{place} lua]"),
    };
    written.expect("writing to a vector cannot fail");
    for at in 0..request.len() {
        out.push(b' ');
        quote(request.get(at), out);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the bytes in quotes, with everything that is not printable ASCII escaped.
// Source: Redis 7.2 `sds.c`, `sdscatrepr`
pub(crate) fn quote(bytes: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    for byte in bytes {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x07 => out.extend_from_slice(b"\\a"),
            0x08 => out.extend_from_slice(b"\\b"),
            b' '..=b'~' => out.push(*byte),
            _ => {
                let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
                out.extend_from_slice(b"\\x");
                out.extend_from_slice(&digits);
            }
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_wait_are_bounded_for_each_reactor() {
        let feeds = MonitorFeeds::new(2);
        let half = PENDING_BYTES_MAX / 2;
        assert!(feeds.add(0, half) && feeds.add(0, half));
        assert!(!feeds.add(0, 1));
        assert!(feeds.add(1, 1));
        assert!(!feeds.taken(1, 1), "only the other reactor has lost lines");
        assert!(feeds.taken(0, half));
        assert!(!feeds.taken(0, half));
        assert!(feeds.add(0, 2 * PENDING_BYTES_MAX), "lines of one turn");
        assert!(!feeds.add(0, 1));
    }

    use wire::resp::OwnedArgs;

    #[track_caller]
    fn check(remote: ClientAddress, args: &[&[u8]], expected: &str) {
        let args: OwnedArgs = args.iter().collect();
        let mut out = Vec::new();
        monitor_line(
            &0,
            RequestSource::Client(remote),
            Path::new("/run/s"),
            UnixMs(1_339_518_083_007),
            Shown::whole(args.as_args()),
            &mut out,
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn lines_are_as_redis_writes_them() {
        let internet = |text: &str| ClientAddress::Internet(text.parse().unwrap());
        check(
            internet("127.0.0.1:60866"),
            &[b"keys", b"*"],
            "+1339518083.007000 [0 127.0.0.1:60866] \"keys\" \"*\"\r\n",
        );
        check(
            internet("[::1]:6379"),
            &[b"ECHO", b"a \"b\\\r\n\t\x07\x08\x00\x7f\xff"],
            "+1339518083.007000 [0 [::1]:6379] \"ECHO\" \
             \"a \\\"b\\\\\\r\\n\\t\\a\\b\\x00\\x7f\\xff\"\r\n",
        );
        check(ClientAddress::UnixSocket, &[b""], "+1339518083.007000 [0 unix:/run/s] \"\"\r\n");
        check(ClientAddress::Unknown, &[b""], "+1339518083.007000 [0 ?:0] \"\"\r\n");
    }
}
