//! Passes requests on to the upstream, and its answers back.
//!
//! A request is sent when all of it is there; an answer goes to the client as it comes, no faster than
//! the client takes it. Connections to the upstream are used again.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use base::time::MonoNs;
use foldhash::fast::RandomState;
use reactor::{ConnId, Connections, Context, Flow, Next, Output, Peer};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use wire::http::{
    Event, Limits, Method, Request, ResponseDecoder, ResponseHead, encode_request, write_chunk,
    write_last_chunk,
};

use super::answer::{Sent, Site, UPSTREAM_FOLDER};
use super::client::{Terms, Wait};
use super::disk::Mail;
use super::log::{AccessLog, Words};
use super::server::Session;
use crate::content::path::{self, Below};
use crate::scheme::Scheme;

/// The `listener` of connections to the upstream.
pub(super) const UPSTREAM: usize = usize::MAX - 1;
/// Requests at the upstream at once, per worker; more get 503.
const EXCHANGES_MAX: usize = 256;
/// Connections that wait for the next request.
const IDLE_MAX: usize = 32;
/// Lines about one connection, which end here.
// Source: RFC 9110 7.6.1 (Connection); RFC 9112 6.1, 7.1.2
const HOP_BY_HOP: [&str; 11] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "expect",
];

/// One connection to the upstream.
#[derive(Debug, Default)]
pub(super) struct Upstream {
    decoder: ResponseDecoder,
    /// An answer said that the connection ends.
    is_last: bool,
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    pub(super) client: ConnId,
    pub(super) remote: Option<IpAddr>,
    pub(super) scheme: Scheme,
}

/// How the body of an answer is passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passing {
    /// The head is not there yet.
    Head,
    /// As it comes: its length is known, or the client's connection ends with it.
    Plain,
    Chunked,
}

/// A request that the upstream answers.
#[derive(Debug)]
struct Exchange {
    client: ConnId,
    remote: Option<IpAddr>,
    terms: Terms,
    is_head: bool,
    /// The whole request: to be sent, or to be sent again when a used connection turns out to be gone.
    request: Vec<u8>,
    /// The connection was used before, and the request may be sent twice.
    may_retry: bool,
    passing: Passing,
    closes: bool,
    sent: Sent,
    words: Option<Words>,
    last_heard: MonoNs,
    /// The status for the client if nothing comes.
    failure: u16,
}

/// What happens to the client behind some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    More,
    /// The answer is complete.
    Over,
    /// It is complete, and so is the connection.
    Close,
    /// It will never be complete.
    Abort,
    /// Nothing was sent: answer with this status.
    Fail(u16),
}

/// Bytes for a client, sent at the end of the turn.
#[derive(Debug)]
struct Delivery {
    client: ConnId,
    remote: Option<IpAddr>,
    terms: Terms,
    bytes: Vec<u8>,
    then: Then,
    /// For the log, at the end.
    noted: Option<(Words, Sent)>,
}

#[derive(Debug)]
pub(super) struct Proxy {
    address: Option<SocketAddr>,
    /// By upstream connection.
    exchanges: HashMap<ConnId, Exchange, RandomState>,
    idle: Vec<ConnId>,
    /// Requests for connections that are open already.
    outbox: Vec<ConnId>,
    inbox: Vec<Delivery>,
    /// Clients whose request went to another connection.
    moved: Vec<(ConnId, ConnId)>,
    /// Upstream connections whose client does not take more now.
    held: HashSet<ConnId, RandomState>,
}

impl Proxy {
    pub(super) fn new(address: Option<SocketAddr>) -> Proxy {
        Proxy {
            address,
            exchanges: HashMap::default(),
            idle: Vec::new(),
            outbox: Vec::new(),
            inbox: Vec::new(),
            moved: Vec::new(),
            held: HashSet::default(),
        }
    }

    pub(super) fn has_exchanges(&self) -> bool {
        !self.exchanges.is_empty()
    }

    /// Sends a request of `client` to the upstream, or says with which status it is refused.
    pub(super) fn start(
        &mut self,
        cx: &mut Context<'_, Mail>,
        origin: Origin,
        request: &Request<'_>,
        terms: Terms,
        words: Option<Words>,
    ) -> Result<ConnId, u16> {
        if matches!(request.method(), Method::Connect | Method::Trace) {
            return Err(501);
        }
        if path::climbs(request.path()) {
            return Err(400);
        }
        if self.exchanges.len() >= EXCHANGES_MAX {
            return Err(503);
        }
        let is_idempotent = matches!(
            request.method(),
            Method::Get | Method::Head | Method::Put | Method::Delete | Method::Options
        );
        let exchange = Exchange {
            client: origin.client,
            remote: origin.remote,
            terms,
            is_head: request.method() == Method::Head,
            request: encode(request, origin),
            may_retry: is_idempotent,
            passing: Passing::Head,
            closes: terms.closes,
            sent: Sent { status: 502, body_bytes: 0 },
            words,
            last_heard: cx.now().mono,
            failure: 502,
        };
        if let Some(upstream) = self.idle.pop() {
            self.outbox.push(upstream);
            self.exchanges.insert(upstream, exchange);
            return Ok(upstream);
        }
        self.connect(cx, exchange).map_err(|_| 502)
    }

    /// Sends `exchange` over a new connection; gives it back if there is none.
    #[expect(clippy::result_large_err, reason = "rare, and the one who asked goes on with it")]
    fn connect(
        &mut self,
        cx: &mut Context<'_, Mail>,
        mut exchange: Exchange,
    ) -> Result<ConnId, Exchange> {
        let Some(address) = self.address else { return Err(exchange) };
        exchange.may_retry = false;
        match begin_connecting(address) {
            Ok(socket) => {
                let peer = Peer { remote: Some(address), local: None, listener: UPSTREAM };
                let upstream = cx.adopt(socket, peer, false);
                self.exchanges.insert(upstream, exchange);
                Ok(upstream)
            }
            Err(error) => {
                tracing::warn!(%address, %error, "the upstream cannot be reached");
                Err(exchange)
            }
        }
    }

    /// A new connection to the upstream exists: its request is the first output.
    pub(super) fn open(&mut self, upstream: ConnId, out: &mut Output) -> Upstream {
        let mut opened = Upstream::default();
        if let Some(exchange) = self.exchanges.get(&upstream) {
            opened.decoder.expect_to_head(exchange.is_head);
            out.buffer().extend_from_slice(&exchange.request);
        }
        opened
    }

    /// Bytes of the upstream have come.
    pub(super) fn receive(
        &mut self,
        cx: &mut Context<'_, Mail>,
        id: ConnId,
        upstream: &mut Upstream,
        input: &[u8],
        site: &Site,
    ) -> Flow {
        if self.held.contains(&id) {
            return Flow { consumed: 0, next: Next::Pause };
        }
        // An answer that nobody asked for: the connection is of no use.
        let Some(exchange) = self.exchanges.get_mut(&id) else {
            return Flow { consumed: input.len(), next: Next::Abort };
        };
        exchange.last_heard = cx.now().mono;
        let (mut consumed, mut bytes) = (0, Vec::new());
        let outcome = loop {
            match upstream.decoder.decode(&input[consumed..], &Limits::DEFAULT) {
                Ok((0, Event::Unfinished)) => break Ok(false),
                Ok((used, event)) => {
                    consumed += used;
                    match event {
                        Event::Unfinished => {}
                        Event::Head(head) if (100..=199).contains(&head.status) => {
                            if head.status == 101 {
                                break Err("it changes the protocol".to_owned());
                            }
                        }
                        Event::Head(head) => {
                            upstream.is_last |= !head.keeps_alive;
                            exchange.pass_head(&head, site, &mut bytes);
                        }
                        Event::Body(body) => exchange.pass_body(body, &mut bytes),
                        Event::End => break Ok(true),
                    }
                }
                Err(error) => break Err(error.to_string()),
            }
        };
        match outcome {
            Ok(false) => {
                if !bytes.is_empty() {
                    self.inbox.push(exchange.delivery(bytes, Then::More));
                }
                Flow::read(consumed)
            }
            Ok(true) => {
                let exchange = self.exchanges.remove(&id).expect("it was just there");
                self.finish(exchange, bytes);
                if !upstream.is_last && consumed == input.len() && self.idle.len() < IDLE_MAX {
                    self.idle.push(id);
                    return Flow::read(consumed);
                }
                Flow { consumed, next: Next::Abort }
            }
            Err(error) => {
                tracing::warn!(%error, "the upstream's answer cannot be passed on");
                let exchange = self.exchanges.remove(&id).expect("it was just there");
                self.fail(exchange, bytes);
                Flow { consumed, next: Next::Abort }
            }
        }
    }

    /// The answer is complete.
    fn finish(&mut self, mut exchange: Exchange, mut bytes: Vec<u8>) {
        if exchange.passing == Passing::Chunked {
            write_last_chunk(&mut bytes, &[]);
        }
        let then = if exchange.closes { Then::Close } else { Then::Over };
        let words = exchange.words.take();
        let mut delivery = exchange.delivery(bytes, then);
        delivery.noted = words.map(|words| (words, exchange.sent));
        self.inbox.push(delivery);
    }

    /// The answer does not come, or not all of it.
    fn fail(&mut self, mut exchange: Exchange, bytes: Vec<u8>) {
        let then = if exchange.passing == Passing::Head {
            exchange.sent.status = exchange.failure;
            Then::Fail(exchange.failure)
        } else {
            Then::Abort
        };
        let words = exchange.words.take();
        let mut delivery = exchange.delivery(bytes, then);
        delivery.noted = words.map(|words| (words, exchange.sent));
        self.inbox.push(delivery);
    }

    /// A connection to the upstream is gone.
    pub(super) fn closed(
        &mut self,
        cx: &mut Context<'_, Mail>,
        id: ConnId,
        mut upstream: Upstream,
    ) {
        self.idle.retain(|idle| *idle != id);
        self.held.remove(&id);
        let Some(exchange) = self.exchanges.remove(&id) else { return };
        let has_head = exchange.passing != Passing::Head;
        if has_head && upstream.decoder.end_of_input().is_ok_and(|is_complete| is_complete) {
            return self.finish(exchange, Vec::new());
        }
        if exchange.may_retry && !has_head && !upstream.decoder.is_inside() {
            return self.retry(cx, exchange);
        }
        self.fail(exchange, Vec::new());
    }

    /// A used connection had been given up by the upstream: the next one is new.
    fn retry(&mut self, cx: &mut Context<'_, Mail>, exchange: Exchange) {
        let client = exchange.client;
        match self.connect(cx, exchange) {
            Ok(upstream) => self.moved.push((client, upstream)),
            Err(exchange) => self.fail(exchange, Vec::new()),
        }
    }

    /// The client is gone.
    pub(super) fn abandon(&mut self, cx: &mut Context<'_, Mail>, client: ConnId, upstream: ConnId) {
        if self.is_of(upstream, client) {
            self.exchanges.remove(&upstream);
            self.held.remove(&upstream);
            cx.abort(upstream);
        }
    }

    /// The client does not take more now.
    pub(super) fn hold(&mut self, client: ConnId, upstream: ConnId) {
        if self.is_of(upstream, client) {
            self.held.insert(upstream);
        }
    }

    /// The client takes more.
    pub(super) fn go_on(&mut self, cx: &mut Context<'_, Mail>, client: ConnId, upstream: ConnId) {
        if self.is_of(upstream, client) && self.held.remove(&upstream) {
            cx.resume(upstream);
        }
    }

    /// Whether the upstream works for the client. In the turn in which an answer ends its connection may
    /// have the next client's request already, and after a retry another connection has the exchange.
    fn is_of(&self, upstream: ConnId, client: ConnId) -> bool {
        self.exchanges.get(&upstream).is_some_and(|exchange| exchange.client == client)
    }

    /// Gives up upstreams that are silent for too long.
    pub(super) fn sweep(&mut self, cx: &mut Context<'_, Mail>, timeout_ns: u64) {
        let now = cx.now().mono;
        for (id, exchange) in &mut self.exchanges {
            // One that is held is silent because the client is.
            if now.since(exchange.last_heard) > timeout_ns && !self.held.contains(id) {
                exchange.failure = 504;
                exchange.may_retry = false;
                cx.abort(*id);
            }
        }
    }

    /// Hands over what the turn has brought, both ways.
    pub(super) fn deliver(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
        site: &mut Site,
        mut log: Option<&mut AccessLog>,
    ) {
        for id in std::mem::take(&mut self.outbox) {
            let Some(exchange) = self.exchanges.get(&id) else { continue };
            if let Some((Session::Upstream(upstream), out)) = connections.get_mut(id) {
                upstream.decoder.expect_to_head(exchange.is_head);
                out.buffer().extend_from_slice(&exchange.request);
            } else if let Some(exchange) = self.exchanges.remove(&id) {
                // It was closed in the turn in which it was chosen; nothing was sent.
                self.retry(cx, exchange);
            }
        }
        for (client, upstream) in std::mem::take(&mut self.moved) {
            match connections.get_mut(client) {
                Some((Session::Client(client), _)) => client.exchange = Some(upstream),
                _ => self.abandon(cx, client, upstream),
            }
        }
        for delivery in std::mem::take(&mut self.inbox) {
            site.update_date(cx.now());
            let mut delivery = delivery;
            let (noted, remote) = (delivery.noted.take(), delivery.remote);
            let failure = delivery.hand_over(cx, connections, site);
            if let (Some(log), Some((words, sent))) = (log.as_deref_mut(), noted) {
                log.note_words(remote, &words, failure.unwrap_or(sent), cx.now().unix);
            }
        }
    }
}

impl Delivery {
    /// Appends it to what the client gets. What was answered here, if the upstream has failed.
    fn hand_over(
        self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
        site: &Site,
    ) -> Option<Sent> {
        let (session, out) = connections.get_mut(self.client)?;
        let Session::Client(client) = session else { return None };
        out.buffer().extend_from_slice(&self.bytes);
        let mut failure = None;
        let closes = match self.then {
            Then::More => return None,
            Then::Abort => {
                cx.reset(self.client);
                return None;
            }
            Then::Fail(status) => {
                failure = Some(site.words(status, self.terms, out.buffer()).1);
                self.terms.closes
            }
            Then::Over => false,
            Then::Close => true,
        };
        client.exchange = None;
        client.wait = Wait::Idle;
        client.since = cx.now().mono;
        if closes {
            cx.close(self.client);
        } else {
            cx.resume(self.client);
        }
        failure
    }
}

impl Exchange {
    /// Appends the client's head for the upstream's.
    // Source: RFC 9110 7.6 (message forwarding), RFC 9112 6.3
    fn pass_head(&mut self, head: &ResponseHead<'_>, site: &Site, out: &mut Vec<u8>) {
        let has_body = !self.is_head && !matches!(head.status, 204 | 304);
        let is_chunked = has_body && head.content_length.is_none() && !self.terms.is_old;
        if has_body && head.content_length.is_none() && self.terms.is_old {
            self.closes = true;
        }
        let terms = Terms {
            closes: self.closes,
            says_keep_alive: self.terms.says_keep_alive && !self.closes,
            ..self.terms
        };
        let has_date = head.headers().get("date").is_some();
        let mut writer = if has_date {
            Site::head_without_date(head.status, terms, out)
        } else {
            site.head(head.status, terms, out)
        };
        for (name, value) in passed(head.headers()) {
            writer = writer.header(name, value);
        }
        self.sent.status = head.status;
        self.passing = if is_chunked { Passing::Chunked } else { Passing::Plain };
        match head.content_length {
            _ if is_chunked => drop_out(writer.chunked()),
            Some(length) if head.status != 204 => drop_out(writer.length(length)),
            _ => drop_out(writer.end()),
        }
    }

    fn pass_body(&mut self, body: &[u8], out: &mut Vec<u8>) {
        self.sent.body_bytes += body.len() as u64;
        match self.passing {
            Passing::Chunked => write_chunk(out, body),
            Passing::Plain | Passing::Head => out.extend_from_slice(body),
        }
    }

    fn delivery(&self, bytes: Vec<u8>, then: Then) -> Delivery {
        let Exchange { client, remote, terms, .. } = *self;
        Delivery { client, remote, terms, bytes, then, noted: None }
    }
}

/// The buffer goes on elsewhere.
fn drop_out(_: &mut Vec<u8>) {}

/// Lines that pass on: not those about one connection, nor those that they name.
// Source: RFC 9110 7.6.1 (Connection)
fn passed(headers: wire::http::Fields<'_>) -> impl Iterator<Item = (&str, &[u8])> {
    let named: Vec<&[u8]> = headers
        .clone()
        .get_all("connection")
        .flat_map(|line| line.split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .collect();
    headers.filter(move |(name, _)| {
        !HOP_BY_HOP.iter().any(|hop| is_line(name, hop))
            && !named.iter().any(|hop| name.as_bytes().eq_ignore_ascii_case(hop))
    })
}

/// Whether a line has this name, which is in lowercase. Programs behind CGI and its successors read `_`
/// and `-` of names as the same, so a client must not reach them with one where the other is dropped.
fn is_line(name: &str, known: &str) -> bool {
    let letter = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.len() == known.len() && name.bytes().map(letter).eq(known.bytes())
}

/// Whether a line is about how a client came here. Only this server knows, and the upstream acts on it,
/// so what a client says of it does not pass: any `X-Forwarded-*`, `X-Real-IP`, and `Forwarded`, which
/// says the same in another way.
// Source: RFC 7239 5.4, 8.1
fn is_about_origin(name: &str) -> bool {
    const FAMILY: &str = "x-forwarded-";
    name.get(..FAMILY.len()).is_some_and(|start| is_line(start, FAMILY))
        || ["forwarded", "x-real-ip"].iter().any(|known| is_line(name, known))
}

/// The addresses that a request came through: what its `X-Forwarded-For` lines say, in their order, and
/// its own client at the end. Every hop appends, perhaps as a line of its own, and the upstream trusts
/// the last ones.
fn forwarded_for(request: &Request<'_>, remote: IpAddr) -> Vec<u8> {
    let mut addresses = Vec::new();
    let lines = request.headers().get_all("x-forwarded-for").filter(|line| !line.is_empty());
    for line in lines {
        addresses.extend_from_slice(line);
        addresses.extend_from_slice(b", ");
    }
    addresses.extend_from_slice(remote.to_string().as_bytes());
    addresses
}

/// The request as the upstream gets it: its folder is written in one way, whatever the client wrote, so
/// that both servers read the same path.
// Source: RFC 9110 7.6 (message forwarding); RFC 9112 3.2.1 (origin-form)
fn encode(request: &Request<'_>, origin: Origin) -> Vec<u8> {
    let path = request.path();
    let mut target = match path::below(path, UPSTREAM_FOLDER) {
        Below::Inside(rest) => [b"/", UPSTREAM_FOLDER, b"/", rest].concat(),
        Below::Itself | Below::Elsewhere => path.to_vec(),
    };
    if let Some(query) = request.query() {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    let forwarded = origin.remote.map(|remote| forwarded_for(request, remote));
    let real = origin.remote.map(|remote| remote.to_string());
    let is_ours = |name: &str| is_line(name, "host") || is_about_origin(name);
    let mut lines: Vec<(&str, &[u8])> = vec![("Host", request.host().unwrap_or_default())];
    lines.extend(passed(request.headers()).filter(|(name, _)| !is_ours(name)));
    if let (Some(forwarded), Some(real)) = (&forwarded, &real) {
        lines.push(("X-Forwarded-For", forwarded));
        lines.push(("X-Real-IP", real.as_bytes()));
    }
    lines.push(("X-Forwarded-Proto", origin.scheme.name().as_bytes()));
    let has_body = !request.body().is_empty()
        || request.header("content-length").is_some()
        || request.header("transfer-encoding").is_some();
    let mut out = Vec::with_capacity(512 + request.body().len());
    encode_request(
        request.method_text(),
        &target,
        &lines,
        has_body.then(|| request.body()),
        &mut out,
    );
    out
}

/// A socket that is about to be connected.
fn begin_connecting(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use wire::http::{RequestBatch, RequestDecoder};

    use super::*;

    fn exchange(client: u64) -> Exchange {
        Exchange {
            client: ConnId(client),
            remote: None,
            terms: Terms::REFUSED,
            is_head: false,
            request: Vec::new(),
            may_retry: false,
            passing: Passing::Head,
            closes: false,
            sent: Sent { status: 502, body_bytes: 0 },
            words: None,
            last_heard: MonoNs(0),
            failure: 502,
        }
    }

    /// The bytes that the upstream gets for a request of 10.0.0.1.
    fn encoded(input: &[u8], scheme: Scheme) -> Vec<u8> {
        let mut batch = RequestBatch::new();
        RequestDecoder::new().decode(input, &Limits::DEFAULT, 1, &mut batch);
        let remote = Some(IpAddr::from([10, 0, 0, 1]));
        encode(&batch.get(0, input), Origin { client: ConnId(1), remote, scheme })
    }

    #[test]
    fn the_upstream_learns_who_asks_and_how() {
        let input = b"GET /api/x HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: gopher\r\n\
                      Forwarded: for=10.0.0.8;proto=gopher\r\nforwarded: host=gopher\r\n\
                      X-Forwarded-Host: gopher\r\nX_Forwarded_Proto: gopher\r\n\
                      X-Real-Ip: gopher\r\nX_Real-IP: gopher\r\nTransfer_Encoding: gopher\r\n\
                      X-Forwarded-For: 10.0.0.9\r\nX-Forwarded: 1\r\n\r\n";
        for scheme in [Scheme::Http, Scheme::Https] {
            let text = String::from_utf8(encoded(input, scheme)).unwrap();
            let expected = format!(
                "GET /api/x HTTP/1.1\r\nHost: a\r\nX-Forwarded: 1\r\n\
                 X-Forwarded-For: 10.0.0.9, 10.0.0.1\r\nX-Real-IP: 10.0.0.1\r\n\
                 X-Forwarded-Proto: {}\r\n\r\n",
                scheme.name()
            );
            assert_eq!(text, expected);
        }
    }

    /// The last hop that can be trusted must stay the last one, and a byte must stay that byte.
    #[test]
    fn every_forwarded_address_passes_in_order() {
        let line = |input: &[u8]| {
            let head = [b"GET /api/x HTTP/1.1\r\nHost: a\r\n", input, b"\r\n"].concat();
            let bytes = encoded(&head, Scheme::Http);
            let name = b"X-Forwarded-For: ";
            let lines: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
            let mut found = lines.iter().filter_map(|line| line.strip_prefix(name));
            let value = found.next().unwrap().trim_ascii_end().to_vec();
            assert!(found.next().is_none(), "one line");
            value
        };
        assert_eq!(line(b""), b"10.0.0.1");
        assert_eq!(line(b"X-Forwarded-For:\r\n"), b"10.0.0.1");
        let two = b"X-Forwarded-For: 6.6.6.6\r\nA: b\r\nx-forwarded-for: 203.0.113.7\r\n";
        assert_eq!(line(two), b"6.6.6.6, 203.0.113.7, 10.0.0.1");
        assert_eq!(line(b"X-Forwarded-For: \xff\xfe, a\r\n"), b"\xff\xfe, a, 10.0.0.1");
    }

    #[test]
    fn the_upstream_reads_the_path_that_was_routed() {
        for (sent, passed) in [
            ("/api/x?y=//z", "/api/x?y=//z"),
            ("//api//x", "/api//x"),
            ("/%61pi/%78%2f", "/api/%78%2f"),
            ("http://b/api/x", "/api/x"),
        ] {
            let input = format!("GET {sent} HTTP/1.1\r\nHost: b\r\n\r\n");
            let text = String::from_utf8(encoded(input.as_bytes(), Scheme::Http)).unwrap();
            assert!(text.starts_with(&format!("GET {passed} HTTP/1.1\r\n")), "{sent}: {text}");
        }
    }

    /// A connection whose answer is through has the next client's request before the first client
    /// has heard of it.
    #[test]
    fn a_client_has_no_power_over_another_ones_exchange() {
        let mut proxy = Proxy::new(None);
        let (first, second, upstream) = (ConnId(1), ConnId(2), ConnId(3));
        proxy.exchanges.insert(upstream, exchange(2));
        proxy.hold(first, upstream);
        assert!(proxy.held.is_empty() && !proxy.is_of(upstream, first));
        proxy.hold(second, upstream);
        assert!(proxy.held.contains(&upstream) && proxy.is_of(upstream, second));
    }
}
