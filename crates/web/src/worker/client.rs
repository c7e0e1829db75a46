//! What a worker knows about one client.

use std::net::IpAddr;
use std::sync::Arc;

use base::time::MonoNs;
use reactor::ConnId;
use wire::http::{Request, RequestDecoder};

use super::answer::Opened;

/// What the connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The first byte of a request, after one was answered.
    Idle,
    /// The rest of a head; also the first byte of the first request.
    Head,
    /// The rest of a body.
    Body,
    /// The upstream.
    Upstream,
    /// A file.
    Disk,
    /// Its end: it was let go.
    End,
}

/// One client's connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) decoder: RequestDecoder,
    pub(crate) remote: Option<IpAddr>,
    pub(crate) wait: Wait,
    /// When the wait began.
    pub(crate) since: MonoNs,
    /// The upstream connection that answers its request now.
    pub(crate) exchange: Option<ConnId>,
    /// The file that its next request has waited for.
    pub(crate) opened: Option<Arc<Opened>>,
}

impl Client {
    pub(crate) fn new(remote: Option<IpAddr>, now: MonoNs) -> Client {
        Client {
            decoder: RequestDecoder::new(),
            remote,
            wait: Wait::Head,
            since: now,
            exchange: None,
            opened: None,
        }
    }

    /// Notes what is waited for after all input is served; `has_served`: a request was answered.
    pub(crate) fn note_wait(&mut self, has_served: bool, now: MonoNs) {
        let wait = if self.decoder.is_in_body() {
            Wait::Body
        } else if self.decoder.is_inside() || (!has_served && self.wait == Wait::Head) {
            Wait::Head
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
