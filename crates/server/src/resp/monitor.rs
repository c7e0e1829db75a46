//! MONITOR: a client that sees every request of the server.

use std::fmt::Display;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use base::time::UnixMs;
use wire::resp::Args;

use super::command::{Command, Done, Flags, Group};
use super::cx::Cx;
use super::fail::Fail;
use crate::secret::{REDACTED, is_secret};

/// MONITOR: shows all requests of all clients from now on.
pub(crate) const MONITOR: Command = Command {
    name: "monitor",
    summary: "Sends every request that the server executes to this connection.",
    since: "1.0.0",
    group: Group::Server,
    arity: 1,
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    run: monitor,
    ..Command::EMPTY
};

// Source: Redis 7.2 `replication.c`, `monitorCommand`; a second one gets no reply there, too
fn monitor(cx: &mut Cx<'_>, _: Args<'_>) -> Done {
    if cx.in_exec {
        return Err(Fail::text("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    if !cx.session.monitor {
        cx.session.monitor = true;
        cx.shared.monitors.fetch_add(1, Ordering::Relaxed);
        cx.reply.ok();
    }
    Ok(())
}

/// Appends a request as `+1339518083.107412 [0 127.0.0.1:60866] "keys" "*"` and a line end. The
/// time is that of the reactor's turn, in milliseconds.
// Source: Redis 7.2 `replication.c`, `replicationFeedMonitors`
///
/// `place` is the database, or the protocol if it knows none.
pub(crate) fn monitor_line(
    place: &dyn Display,
    remote: Option<SocketAddr>,
    now: UnixMs,
    args: Args<'_>,
    out: &mut Vec<u8>,
) {
    let (seconds, ms) = (now.0 / 1000, now.0 % 1000);
    let written = match remote {
        Some(remote) => write!(out, "+{seconds}.{ms:03}000 [{place} {remote}]"),
        None => write!(out, "+{seconds}.{ms:03}000 [{place} ?:0]"),
    };
    written.expect("a vector takes every write");
    for at in 0..args.len() {
        out.push(b' ');
        quote(if is_secret(args, at) { REDACTED } else { args.get(at) }, out);
    }
    out.extend_from_slice(b"\r\n");
}

/// In quotes, with everything that is not printable ASCII escaped.
// Source: Redis 7.2 `sds.c`, `sdscatrepr`
fn quote(bytes: &[u8], out: &mut Vec<u8>) {
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
    use wire::resp::OwnedArgs;

    use super::*;

    #[track_caller]
    fn check(remote: Option<&str>, args: &[&[u8]], expected: &str) {
        let remote = remote.map(|text| text.parse().unwrap());
        let args: OwnedArgs = args.iter().collect();
        let mut out = Vec::new();
        monitor_line(&0, remote, UnixMs(1_339_518_083_007), args.as_args(), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn lines_are_as_redis_writes_them() {
        check(
            Some("127.0.0.1:60866"),
            &[b"keys", b"*"],
            "+1339518083.007000 [0 127.0.0.1:60866] \"keys\" \"*\"\r\n",
        );
        check(
            Some("[::1]:6379"),
            &[b"ECHO", b"a \"b\\\r\n\t\x07\x08\x00\x7f\xff"],
            "+1339518083.007000 [0 [::1]:6379] \"ECHO\" \
             \"a \\\"b\\\\\\r\\n\\t\\a\\b\\x00\\x7f\\xff\"\r\n",
        );
        check(None, &[b""], "+1339518083.007000 [0 ?:0] \"\"\r\n");
    }
}
