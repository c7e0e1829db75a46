//! What a worker knows about one client.

use std::net::IpAddr;
use std::sync::Arc;

use base::time::MonoNs;
use wire::http::{Request, RequestDecoder};

use super::answer::Opened;
use super::pace::Pace;
use super::sending::Sending;
use crate::scheme::Scheme;

/// What the connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The first byte of the first request.
    First,
    /// The first byte of a request, after one was answered.
    Idle,
    /// The rest of a head.
    Head,
    /// The rest of a body.
    Body,
    /// The upstream.
    Upstream,
    /// The end of a tunnel: its bytes are the upstream's.
    Tunnel,
    /// A file, or a piece of it.
    Disk,
    /// Its turn: a file is on its way, and more of it follows.
    Turn,
    /// Its end: it was let go.
    End,
}

/// One client's connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) decoder: RequestDecoder,
    pub(crate) remote: Option<IpAddr>,
    pub(crate) scheme: Scheme,
    pub(crate) wait: Wait,
    /// When the wait began.
    pub(crate) since: MonoNs,
    /// The file that its next request has waited for.
    pub(crate) opened: Option<Arc<Opened>>,
    /// The file that is on its way, if more of it follows.
    pub(crate) sending: Option<Sending>,
    /// How fast it takes its answers, while there is something to take.
    pub(crate) pace: Option<Pace>,
}

impl Client {
    pub(crate) fn new(remote: Option<IpAddr>, scheme: Scheme, now: MonoNs) -> Client {
        Client {
            decoder: RequestDecoder::new(),
            remote,
            scheme,
            wait: Wait::First,
            since: now,
            opened: None,
            sending: None,
            pace: None,
        }
    }

    /// Notes what is waited for after all input is served; `has_served`: a request was answered.
    pub(crate) fn note_wait(&mut self, has_served: bool, now: MonoNs) {
        let wait = if self.decoder.is_in_body() {
            Wait::Body
        } else if self.decoder.is_inside() {
            Wait::Head
        } else if !has_served && self.wait == Wait::First {
            // Empty lines are not the begin of anything.
            Wait::First
        } else {
            Wait::Idle
        };
        // A head that comes byte by byte does not start anew with each of them.
        if has_served || wait != self.wait {
            self.wait = wait;
            self.since = now;
        }
    }
}

/// What holds for the answer to one request besides its content.
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one request")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// The connection ends with the answer.
    pub(crate) closes: bool,
    /// The request was HTTP/1.0 and asked for the connection to live on.
    pub(crate) says_keep_alive: bool,
    /// The request was HTTP/1.0, which has no chunks.
    pub(crate) is_old: bool,
    /// HEAD: the answer has no body.
    pub(crate) is_head: bool,
}

impl Terms {
    /// `ends`: no request is served after this one.
    pub(crate) fn of(request: &Request<'_>, ends: bool) -> Terms {
        let keeps_alive = request.keeps_alive() && !ends;
        let is_old = request.minor_version() == 0;
        Terms {
            closes: !keeps_alive,
            says_keep_alive: keeps_alive && is_old,
            is_old,
            is_head: request.method() == wire::http::Method::Head,
        }
    }

    /// For answers to what is no request.
    pub(crate) const REFUSED: Terms =
        Terms { closes: true, says_keep_alive: false, is_old: false, is_head: false };
}

#[cfg(test)]
mod tests {
    use wire::http::{Limits, RequestBatch};

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// What a client waits for, and since which second, when these parts have come, each in its second.
    #[track_caller]
    fn check(parts: &[(u64, &str)], expected: (Wait, u64)) {
        let mut client = Client::new(None, Scheme::Http, MonoNs(0));
        let (mut input, mut batch) = (Vec::new(), RequestBatch::new());
        for (second, part) in parts {
            input.extend_from_slice(part.as_bytes());
            let consumed = client.decoder.decode(&input, &Limits::DEFAULT, 64, &mut batch);
            input.drain(..consumed);
            client.note_wait(!batch.is_empty(), MonoNs(second * SECOND_NS));
        }
        assert_eq!((client.wait, client.since.0 / SECOND_NS), expected, "{parts:?}");
    }

    #[test]
    fn time_runs_from_the_first_byte_of_what_is_waited_for() {
        let whole = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let posted = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";
        check(&[], (Wait::First, 0));
        check(&[(9, "G")], (Wait::Head, 9));
        check(&[(9, "G"), (12, "E"), (15, "T")], (Wait::Head, 9));
        check(&[(3, "\r\n"), (6, "\r\n")], (Wait::First, 0));
        check(&[(3, whole)], (Wait::Idle, 3));
        check(&[(3, whole), (5, "\r\n")], (Wait::Idle, 3));
        check(&[(3, whole), (8, "GET"), (9, " /")], (Wait::Head, 8));
        check(&[(3, "POST"), (7, &posted[4..]), (8, "a")], (Wait::Body, 7));
        check(&[(3, posted), (4, "abc")], (Wait::Idle, 4));
    }
}
