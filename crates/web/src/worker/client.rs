//! The state of one client connection.

use std::net::IpAddr;
use std::sync::Arc;

use base::time::MonoNs;
use wire::http::{Request, RequestDecoder};

use super::answer::Opened;
use super::pace::Pace;
use super::sending::Sending;
use crate::scheme::Scheme;

/// What the connection is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The first byte of the first request.
    First,
    /// The first byte of a request, after an earlier one was answered.
    Idle,
    /// The rest of a head.
    Head,
    /// The rest of a body.
    Body,
    /// The upstream.
    Upstream,
    /// The end of a tunnel, whose bytes belong to the upstream.
    Tunnel,
    /// A file, or a piece of it.
    Disk,
    /// Its next turn: more pieces of a file follow.
    Turn,
    /// The end of the connection: it was closed by this side.
    End,
}

/// One client connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) decoder: RequestDecoder,
    pub(crate) remote: Option<IpAddr>,
    pub(crate) scheme: Scheme,
    pub(crate) wait: Wait,
    /// Start of the wait.
    pub(crate) since: MonoNs,
    /// The file that its next request has waited for.
    pub(crate) opened: Option<Arc<Opened>>,
    /// The file being sent, if more of it follows.
    pub(crate) sending: Option<Sending>,
    /// The client's read rate, while a response is pending.
    pub(crate) pace: Option<Pace>,
    /// Upper limit of the unprocessed input that its connection keeps.
    pub(crate) kept_bytes: usize,
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
            kept_bytes: 0,
        }
    }

    /// Updates the wait after all input is processed. `has_served`: a request was answered.
    pub(crate) fn note_wait(&mut self, has_served: bool, now: MonoNs) {
        let wait = if self.decoder.is_in_body() {
            Wait::Body
        } else if self.decoder.is_inside() {
            Wait::Head
        } else if !has_served && self.wait == Wait::First {
            // Empty lines do not begin a request.
            Wait::First
        } else {
            Wait::Idle
        };
        // The timeout of a head that trickles in does not restart with each byte.
        if has_served || wait != self.wait {
            self.wait = wait;
            self.since = now;
        }
    }
}

/// Properties of the response to one request, apart from its content.
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one request")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseOptions {
    /// The connection ends after the response.
    pub(crate) closes: bool,
    /// The request was HTTP/1.0 and asked to keep the connection open.
    pub(crate) announces_keep_alive: bool,
    /// The request was HTTP/1.0, which has no chunked encoding.
    pub(crate) is_old: bool,
    /// HEAD: the response has no body.
    pub(crate) is_head: bool,
}

impl ResponseOptions {
    /// `ends`: no request is served after this one.
    pub(crate) fn of(request: &Request<'_>, ends: bool) -> ResponseOptions {
        let keeps_alive = request.keeps_alive() && !ends;
        let is_old = request.minor_version() == 0;
        ResponseOptions {
            closes: !keeps_alive,
            announces_keep_alive: keeps_alive && is_old,
            is_old,
            is_head: request.method() == wire::http::Method::Head,
        }
    }

    /// For responses to invalid requests.
    pub(crate) const REFUSED: ResponseOptions = ResponseOptions {
        closes: true,
        announces_keep_alive: false,
        is_old: false,
        is_head: false,
    };
}

#[cfg(test)]
mod tests {
    use wire::http::{Limits, RequestBatch};

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Checks the wait and its start time, in seconds, after these parts arrived at these times.
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
    fn timeouts_start_at_the_first_byte() {
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
