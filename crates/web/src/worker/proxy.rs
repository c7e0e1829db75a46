//! Forwards requests to the upstream, and its responses back.
//!
//! A request is sent when it has been received completely. A response is forwarded as it arrives,
//! but no faster than the client reads it. Upstream connections are reused. Requests above the
//! limit wait in a queue. If a client requests a WebSocket and the upstream agrees, the connection
//! becomes a tunnel, which forwards bytes in both directions until one side ends.
//!
//! The client's connection is the key of all tables: an upstream connection serves different
//! clients over time, so its id does not identify a client.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use base::time::MonoNs;
use foldhash::fast::RandomState;
use reactor::{ConnId, Connections, Context, Flow, Next, Output, Peer};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use wire::http::{
    Event, Limits, Method, Request, ResponseDecoder, ResponseHead, ResponseWriter, encode_request,
    write_chunk, write_last_chunk,
};

use super::answer::{Sent, Site, UPSTREAM_FOLDER};
use super::client::{ResponseOptions, Wait};
use super::disk::Mail;
use super::failures::{Failure, Failures};
use super::log::{Entry, Ledger};
use super::memory::Memory;
use super::packing::{self, PACKED_PER_TURN_BYTES, Packing, Packings};
use super::resolver::Resolver;
use super::server::Session;
use crate::config::Config;
use crate::content::path::{self, Below};
use crate::scheme::Scheme;

/// The `listener` of connections to the upstream.
pub(super) const UPSTREAM: usize = usize::MAX - 1;
/// Longer requests are not kept after they are sent. They are never sent over a reused connection,
/// which might turn out to be closed, so they need not be resent.
const RESENT_BYTES_MAX: usize = 64 << 10;
/// Logged status of a request whose client left before the response; never sent.
const CLIENT_LEFT: u16 = 499;
/// Header lines that concern a single connection and are not forwarded.
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
    /// A response announced the end of the connection.
    is_last: bool,
}

/// Origin of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    pub(super) client: ConnId,
    pub(super) remote: Option<IpAddr>,
    pub(super) scheme: Scheme,
}

/// Reason why a request is not forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// Respond with this status.
    Status(u16),
    /// The limit is reached: 503.
    Full,
}

/// How the body of a response is forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passing {
    /// The head has not arrived yet.
    Head,
    /// Unchanged: its length is known, or the client's connection ends with it.
    Plain,
    Chunked,
}

/// Location of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// In the queue, under this number.
    Queued(u64),
    /// At the upstream, on this connection.
    Sent { upstream: ConnId, is_reused: bool },
}

/// A request that the upstream answers.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact about the request")]
struct Exchange {
    stage: Stage,
    terms: ResponseOptions,
    is_head: bool,
    is_websocket: bool,
    /// The request may be sent twice.
    is_idempotent: bool,
    accepts_packed: bool,
    /// The complete request: to be sent, or to be resent if a reused connection turns out to be
    /// closed. Only its first line if it was sent and is too long to be resent.
    request: Vec<u8>,
    passing: Passing,
    /// The body is compressed.
    packing: Option<Packing>,
    closes: bool,
    sent: Sent,
    entry: Entry,
    /// When it was queued or sent, or when a part of its response last arrived.
    last_received: MonoNs,
    /// Status for the client if no response arrives.
    failure: u16,
}

/// A connection that has become a WebSocket.
#[derive(Debug)]
struct Tunnel {
    upstream: ConnId,
    last_moved: MonoNs,
    /// Bytes sent to the client.
    body_bytes: u64,
    entry: Entry,
}

/// Use of an upstream connection, and the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Exchange(ConnId),
    Tunnel(ConnId),
}

/// What happens to the client after these bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientAction {
    More,
    /// The response is complete.
    Complete,
    /// The response is complete, and the connection ends.
    Close,
    /// The response will never be complete.
    Abort,
    /// Nothing was sent: respond with this status.
    Fail(u16),
    /// The connection becomes a tunnel.
    Tunnel,
}

/// Bytes for a client, sent at the end of the turn.
#[derive(Debug)]
struct Delivery {
    client: ConnId,
    terms: ResponseOptions,
    bytes: Vec<u8>,
    then: ClientAction,
    /// For the log, at the end.
    noted: Option<(Entry, Sent)>,
}

/// Limits of one worker.
#[derive(Debug, Clone, Copy)]
struct ProxyLimits {
    connections: usize,
    idle: usize,
    queue: usize,
    queue_ns: u64,
    silence_ns: u64,
    websockets: usize,
    websocket_idle_ns: u64,
}

impl ProxyLimits {
    fn of(config: &Config) -> ProxyLimits {
        let ns = |ms: u64| ms.saturating_mul(1_000_000);
        ProxyLimits {
            connections: config.upstream_connections_max,
            idle: config.upstream_idle_max,
            queue: config.upstream_queue_max,
            queue_ns: ns(config.upstream_queue_timeout_ms),
            silence_ns: ns(config.upstream_timeout_ms),
            websockets: config.websockets_max,
            websocket_idle_ns: ns(config.websocket_idle_timeout_ms),
        }
    }
}

/// Parts of the worker that deliveries use.
#[derive(Debug)]
pub(super) struct Proxied<'a> {
    pub(super) site: &'a mut Site,
    pub(super) ledger: &'a mut Ledger,
    pub(super) memory: &'a mut Memory,
}

#[derive(Debug)]
pub(super) struct Proxy {
    resolver: Resolver,
    limits: ProxyLimits,
    packings: Packings,
    failures: Failures,
    /// By client, including queued requests.
    exchanges: HashMap<ConnId, Exchange, RandomState>,
    /// By client.
    tunnels: HashMap<ConnId, Tunnel, RandomState>,
    /// By upstream connection; idle connections have no entry.
    uses: HashMap<ConnId, Use, RandomState>,
    idle: Vec<ConnId>,
    /// Clients with queued requests, in order of arrival.
    queue: BTreeMap<u64, ConnId>,
    next_ticket: u64,
    /// Requests for connections that are already open.
    outbox: Vec<ConnId>,
    /// Bytes sent by the clients of tunnels.
    tunnel_input: Vec<(ConnId, Vec<u8>)>,
    inbox: Vec<Delivery>,
    /// Requests that ended without a response.
    unanswered: Vec<(Entry, Sent)>,
    /// Connections that are not read because the other side does not accept more now.
    held: HashSet<ConnId, RandomState>,
    /// Requests that waited too long since the last query.
    timed_out: u64,
    totals: Totals,
}

/// Totals since the start.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    /// Requests sent to the upstream.
    pub(super) requests: u64,
    /// Requests without a complete response from the upstream.
    pub(super) failures: u64,
    /// Connections opened to the upstream.
    pub(super) connections: u64,
}

impl Proxy {
    pub(super) fn new(config: &Config, resolver: Resolver) -> Proxy {
        Proxy {
            resolver,
            limits: ProxyLimits::of(config),
            packings: Packings::new(config.upstream_compress),
            failures: Failures::default(),
            exchanges: HashMap::default(),
            tunnels: HashMap::default(),
            uses: HashMap::default(),
            idle: Vec::new(),
            queue: BTreeMap::new(),
            next_ticket: 0,
            outbox: Vec::new(),
            tunnel_input: Vec::new(),
            inbox: Vec::new(),
            unanswered: Vec::new(),
            held: HashSet::default(),
            timed_out: 0,
            totals: Totals::default(),
        }
    }

    pub(super) fn has_exchanges(&self) -> bool {
        !self.exchanges.is_empty() || !self.tunnels.is_empty()
    }

    pub(super) fn resolved(&mut self, address: SocketAddr) {
        self.resolver.set(address);
    }

    /// Returns the number of requests at the upstream.
    pub(super) fn active(&self) -> usize {
        self.uses.len() - self.tunnels.len()
    }

    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn idle(&self) -> usize {
        self.idle.len()
    }

    pub(super) fn tunnels(&self) -> usize {
        self.tunnels.len()
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns the number of requests that waited too long since the last call.
    pub(super) fn take_timed_out(&mut self) -> u64 {
        std::mem::take(&mut self.timed_out)
    }

    /// Sends a client's request to the upstream or queues it, unless it is refused.
    pub(super) fn start(
        &mut self,
        cx: &mut Context<'_, Mail>,
        origin: Origin,
        request: &Request<'_>,
        terms: ResponseOptions,
        entry: Entry,
        memory: &mut Memory,
    ) -> Result<(), Refused> {
        if matches!(request.method(), Method::Connect | Method::Trace) {
            return Err(Refused::Status(501));
        }
        if path::has_dot_segments(request.path()) {
            return Err(Refused::Status(400));
        }
        let is_websocket = asks_for_websocket(request);
        if is_websocket && self.tunnels.len() >= self.limits.websockets {
            return Err(Refused::Full);
        }
        let encoded = encode(request, origin, entry.id(), is_websocket);
        // Some of the queued requests are sent in this turn.
        let ahead = self.active() + self.queue.len();
        let is_queue_full = ahead >= self.limits.connections.saturating_add(self.limits.queue);
        if is_queue_full || !memory.admit_request(encoded.len()) {
            return Err(Refused::Full);
        }
        let is_idempotent = matches!(
            request.method(),
            Method::Get | Method::Head | Method::Put | Method::Delete | Method::Options
        );
        self.next_ticket += 1;
        let exchange = Exchange {
            stage: Stage::Queued(self.next_ticket),
            terms,
            is_head: request.method() == Method::Head,
            is_websocket,
            is_idempotent: is_idempotent && !is_websocket,
            accepts_packed: self.packings.is_enabled() && packing::is_accepted(request),
            request: encoded,
            passing: Passing::Head,
            packing: None,
            closes: terms.closes,
            sent: Sent { status: 502, body_bytes: 0 },
            entry,
            last_received: cx.now().mono,
            failure: 502,
        };
        // Requests that can be sent leave the queue in this turn: see `deliver`.
        self.queue.insert(self.next_ticket, origin.client);
        self.exchanges.insert(origin.client, exchange);
        Ok(())
    }

    /// Sends queued requests while the limit permits.
    fn pump(&mut self, cx: &mut Context<'_, Mail>) {
        while self.active() < self.limits.connections
            && let Some((_, client)) = self.queue.pop_first()
        {
            let Some(mut exchange) = self.exchanges.remove(&client) else { continue };
            exchange.entry.note_upstream(cx.now().mono);
            self.totals.requests += 1;
            exchange.last_received = cx.now().mono;
            let may_reuse = exchange.request.len() <= RESENT_BYTES_MAX;
            if let Some(upstream) = self.idle.pop_if(|_| may_reuse) {
                self.outbox.push(upstream);
                self.uses.insert(upstream, Use::Exchange(client));
                exchange.stage = Stage::Sent { upstream, is_reused: true };
                self.exchanges.insert(client, exchange);
            } else {
                self.connect(cx, client, exchange);
            }
        }
    }

    /// Sends a request over a new connection.
    fn connect(&mut self, cx: &mut Context<'_, Mail>, client: ConnId, mut exchange: Exchange) {
        let Some(address) = self.resolver.address() else {
            self.resolver.request_lookup();
            let reason = "the name is not resolved".to_owned();
            return self.fail(client, exchange, Vec::new(), reason, cx.now().mono);
        };
        match begin_connecting(address) {
            Ok(socket) => {
                let peer = Peer { remote: Some(address), local: None, listener: UPSTREAM };
                let upstream = cx.adopt(socket, peer, false);
                self.totals.connections += 1;
                self.uses.insert(upstream, Use::Exchange(client));
                exchange.stage = Stage::Sent { upstream, is_reused: false };
                self.exchanges.insert(client, exchange);
            }
            Err(error) => {
                let reason = std::io::Error::from(error).to_string();
                self.fail(client, exchange, Vec::new(), reason, cx.now().mono);
            }
        }
    }

    /// Handles a new connection to the upstream: its request is the first output.
    pub(super) fn open(&mut self, upstream: ConnId, out: &mut Output) -> Upstream {
        let mut opened = Upstream::default();
        let Some(Use::Exchange(client)) = self.uses.get(&upstream) else { return opened };
        let Some(exchange) = self.exchanges.get_mut(client) else { return opened };
        opened.decoder.expect_to_head(exchange.is_head);
        if exchange.request.len() > RESENT_BYTES_MAX && out.buffer().is_empty() {
            let line_end = exchange.request.iter().position(|&byte| byte == b'\r').unwrap_or(0);
            let line = exchange.request[..line_end].to_vec();
            *out.buffer() = std::mem::replace(&mut exchange.request, line);
        } else {
            out.buffer().extend_from_slice(&exchange.request);
        }
        opened
    }

    /// Returns the memory of requests that are kept, to be sent or resent.
    pub(super) fn kept_request_bytes(&self) -> usize {
        self.exchanges.values().map(|exchange| exchange.request.capacity()).sum()
    }

    /// Returns the client of the tunnel of an upstream connection.
    pub(super) fn tunnel_of(&self, upstream: ConnId) -> Option<(ConnId, Option<IpAddr>)> {
        let Some(Use::Tunnel(client)) = self.uses.get(&upstream) else { return None };
        let tunnel = self.tunnels.get(client)?;
        Some((*client, tunnel.entry.remote()))
    }

    fn exchange_of(&self, upstream: ConnId) -> Option<&Exchange> {
        match self.uses.get(&upstream) {
            Some(Use::Exchange(client)) => self.exchanges.get(client),
            Some(Use::Tunnel(_)) | None => None,
        }
    }

    /// Handles bytes from the upstream.
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
        let now = cx.now().mono;
        // An unsolicited response: the connection cannot be used any longer.
        let useless = Flow { consumed: input.len(), next: Next::Abort };
        let client = match self.uses.get(&id) {
            Some(Use::Exchange(client)) => *client,
            Some(Use::Tunnel(client)) => {
                let client = *client;
                return if self.pass_down(client, input, now) {
                    Flow::read(input.len())
                } else {
                    useless
                };
            }
            None => return useless,
        };
        let Some(exchange) = self.exchanges.get_mut(&client) else { return useless };
        exchange.last_received = now;
        let (mut consumed, mut bytes) = (0, Vec::new());
        let is_cut = exchange.may_pack() && input.len() > PACKED_PER_TURN_BYTES;
        let part = if is_cut { &input[..PACKED_PER_TURN_BYTES] } else { input };
        let outcome = loop {
            match upstream.decoder.decode(&part[consumed..], &Limits::DEFAULT) {
                Ok((0, Event::Unfinished)) => break Ok(Progress::More),
                Ok((used, event)) => {
                    consumed += used;
                    match event {
                        Event::Unfinished => {}
                        Event::Head(head) if head.status == 101 => {
                            if !exchange.is_websocket || !names_websocket(head.headers()) {
                                break Err("unexpected protocol switch".to_owned());
                            }
                            exchange.entry.note_head(now);
                            write_switch(&head, &mut bytes);
                            break Ok(Progress::Switched);
                        }
                        Event::Head(head) if (100..=199).contains(&head.status) => {}
                        Event::Head(head) => {
                            upstream.is_last |= !head.keeps_alive;
                            exchange.entry.note_head(now);
                            exchange.pass_head(&head, site, &self.packings, &mut bytes);
                        }
                        Event::Body(body) => exchange.pass_body(body, &mut bytes),
                        Event::End => break Ok(Progress::Done),
                    }
                }
                Err(error) => break Err(error.to_string()),
            }
        };
        if let Ok(Progress::More) = outcome {
            if !is_cut {
                exchange.flush_packing(&mut bytes);
            }
            if !bytes.is_empty() {
                let delivery = exchange.delivery(client, bytes, ClientAction::More);
                self.inbox.push(delivery);
            }
            let must_continue = is_cut && consumed != 0;
            let next = if must_continue { Next::Again } else { Next::Read { needed: 0 } };
            return Flow { consumed, next };
        }
        let exchange = self.exchanges.remove(&client).expect("present above");
        self.uses.remove(&id);
        match outcome {
            Ok(Progress::Switched) => {
                self.begin_tunnel(id, client, exchange, bytes, consumed, input, now)
            }
            Ok(_) => {
                self.finish(client, exchange, bytes);
                if !upstream.is_last
                    && consumed == input.len()
                    && self.idle.len() < self.limits.idle
                {
                    self.idle.push(id);
                    return Flow::read(consumed);
                }
                Flow { consumed, next: Next::Abort }
            }
            Err(error) => {
                self.fail(client, exchange, bytes, format!("invalid response: {error}"), now);
                Flow { consumed, next: Next::Abort }
            }
        }
    }

    /// Turns the connections into a tunnel, after the upstream has agreed to a WebSocket. `bytes`
    /// is the head for the client, and the rest of `input` is the first tunnel data.
    #[expect(clippy::too_many_arguments, reason = "two connections and the input of one")]
    fn begin_tunnel(
        &mut self,
        id: ConnId,
        client: ConnId,
        exchange: Exchange,
        mut bytes: Vec<u8>,
        consumed: usize,
        input: &[u8],
        now: MonoNs,
    ) -> Flow {
        if self.tunnels.len() >= self.limits.websockets {
            self.refuse(client, exchange);
            return Flow { consumed: input.len(), next: Next::Abort };
        }
        let rest = &input[consumed..];
        bytes.extend_from_slice(rest);
        let delivery = exchange.delivery(client, bytes, ClientAction::Tunnel);
        self.inbox.push(delivery);
        let body_bytes = rest.len() as u64;
        let tunnel = Tunnel { upstream: id, last_moved: now, body_bytes, entry: exchange.entry };
        self.tunnels.insert(client, tunnel);
        self.uses.insert(id, Use::Tunnel(client));
        Flow::read(input.len())
    }

    /// Forwards tunnel bytes to the client. Returns false if there is no tunnel.
    fn pass_down(&mut self, client: ConnId, input: &[u8], now: MonoNs) -> bool {
        let Some(tunnel) = self.tunnels.get_mut(&client) else { return false };
        tunnel.last_moved = now;
        tunnel.body_bytes += input.len() as u64;
        let (bytes, then) = (input.to_vec(), ClientAction::More);
        self.inbox.push(Delivery {
            client,
            terms: ResponseOptions::REFUSED,
            bytes,
            then,
            noted: None,
        });
        true
    }

    /// Forwards tunnel bytes to the upstream.
    pub(super) fn pass_up(&mut self, client: ConnId, input: &[u8], now: MonoNs) -> Flow {
        if self.held.contains(&client) {
            return Flow { consumed: 0, next: Next::Pause };
        }
        let Some(tunnel) = self.tunnels.get_mut(&client) else {
            return Flow { consumed: input.len(), next: Next::Close };
        };
        tunnel.last_moved = now;
        self.tunnel_input.push((tunnel.upstream, input.to_vec()));
        Flow::read(input.len())
    }

    /// Handles the end of a complete response.
    fn finish(&mut self, client: ConnId, mut exchange: Exchange, mut bytes: Vec<u8>) {
        if let Some(packing) = exchange.packing.take() {
            exchange.put_body(&packing.finish(), &mut bytes);
        }
        if exchange.passing == Passing::Chunked {
            write_last_chunk(&mut bytes, &[]);
        }
        let then = if exchange.closes { ClientAction::Close } else { ClientAction::Complete };
        let mut delivery = exchange.delivery(client, bytes, then);
        delivery.noted = Some((exchange.entry, exchange.sent));
        self.inbox.push(delivery);
    }

    /// Ends a request because a limit is reached.
    fn refuse(&mut self, client: ConnId, mut exchange: Exchange) {
        exchange.failure = 503;
        self.end_without_response(client, exchange, Vec::new());
    }

    /// Handles a response that does not arrive, or is incomplete.
    fn fail(
        &mut self,
        client: ConnId,
        exchange: Exchange,
        bytes: Vec<u8>,
        reason: String,
        now: MonoNs,
    ) {
        self.totals.failures += 1;
        let address = self.resolver.address();
        let failure = Failure::new(address, &exchange.request, exchange.failure, reason);
        self.failures.note(failure, now);
        self.end_without_response(client, exchange, bytes);
    }

    fn end_without_response(&mut self, client: ConnId, mut exchange: Exchange, bytes: Vec<u8>) {
        let then = if exchange.passing == Passing::Head {
            exchange.sent.status = exchange.failure;
            ClientAction::Fail(exchange.failure)
        } else {
            ClientAction::Abort
        };
        let mut delivery = exchange.delivery(client, bytes, then);
        delivery.noted = Some((exchange.entry, exchange.sent));
        self.inbox.push(delivery);
    }

    /// Handles the end of a connection to the upstream.
    pub(super) fn closed(
        &mut self,
        cx: &mut Context<'_, Mail>,
        id: ConnId,
        mut upstream: Upstream,
    ) {
        // Its remaining output is delivered at the end of a turn, possibly after the delivery of
        // this turn.
        cx.poll();
        self.held.remove(&id);
        let client = match self.uses.remove(&id) {
            None => return self.idle.retain(|idle| *idle != id),
            Some(Use::Exchange(client)) => client,
            Some(Use::Tunnel(client)) => {
                if let Some(tunnel) = self.tunnels.remove(&client) {
                    self.held.remove(&client);
                    let (terms, bytes, then) =
                        (ResponseOptions::REFUSED, Vec::new(), ClientAction::Close);
                    let noted = Some((tunnel.entry, sent_through(tunnel.body_bytes)));
                    self.inbox.push(Delivery { client, terms, bytes, then, noted });
                }
                return;
            }
        };
        let Some(exchange) = self.exchanges.remove(&client) else { return };
        let has_head = exchange.passing != Passing::Head;
        if has_head && upstream.decoder.end_of_input().is_ok_and(|is_complete| is_complete) {
            return self.finish(client, exchange, Vec::new());
        }
        let is_reused = matches!(exchange.stage, Stage::Sent { is_reused: true, .. });
        let is_silent = !has_head && !upstream.decoder.is_inside();
        if is_silent && !is_reused {
            self.resolver.request_lookup();
        }
        if is_silent && is_reused && exchange.is_idempotent && exchange.failure != 504 {
            // The upstream had closed an idle connection: use a new one.
            return self.connect(cx, client, exchange);
        }
        let reason = match cx.failure() {
            _ if exchange.failure == 504 => "no response in time".to_owned(),
            Some(error) => error.to_string(),
            None if upstream.decoder.is_inside() => {
                "the connection was closed inside the response".to_owned()
            }
            None => "the connection was closed before the response".to_owned(),
        };
        self.fail(client, exchange, Vec::new(), reason, cx.now().mono);
    }

    /// Handles the end of a client connection.
    pub(super) fn abandon(&mut self, cx: &mut Context<'_, Mail>, client: ConnId) {
        if let Some(tunnel) = self.tunnels.remove(&client) {
            self.held.remove(&client);
            self.held.remove(&tunnel.upstream);
            self.uses.remove(&tunnel.upstream);
            self.unanswered.push((tunnel.entry, sent_through(tunnel.body_bytes)));
            // Bytes that the client has sent are still forwarded.
            return cx.close(tunnel.upstream);
        }
        let Some(mut exchange) = self.exchanges.remove(&client) else { return };
        match exchange.stage {
            Stage::Queued(ticket) => {
                self.queue.remove(&ticket);
            }
            Stage::Sent { upstream, .. } => {
                self.uses.remove(&upstream);
                self.held.remove(&upstream);
                cx.abort(upstream);
            }
        }
        if exchange.passing == Passing::Head {
            exchange.sent.status = CLIENT_LEFT;
        }
        self.unanswered.push((exchange.entry, exchange.sent));
        cx.poll();
    }

    /// Returns the upstream connection of a client.
    fn upstream_of(&self, client: ConnId) -> Option<ConnId> {
        if let Some(tunnel) = self.tunnels.get(&client) {
            return Some(tunnel.upstream);
        }
        match self.exchanges.get(&client)?.stage {
            Stage::Sent { upstream, .. } => Some(upstream),
            Stage::Queued(_) => None,
        }
    }

    /// Stops reading from the upstream while the client does not accept more.
    pub(super) fn hold(&mut self, client: ConnId) {
        self.held.extend(self.upstream_of(client));
    }

    /// Resumes reading when the client accepts more.
    pub(super) fn resume(&mut self, cx: &mut Context<'_, Mail>, client: ConnId) {
        if let Some(upstream) = self.upstream_of(client)
            && self.held.remove(&upstream)
        {
            cx.resume(upstream);
        }
    }

    /// Stops reading from the client of a tunnel while the upstream does not accept more.
    pub(super) fn hold_client(&mut self, upstream: ConnId) {
        if let Some(Use::Tunnel(client)) = self.uses.get(&upstream) {
            self.held.insert(*client);
        }
    }

    /// Resumes reading when the upstream accepts more.
    pub(super) fn resume_client(&mut self, cx: &mut Context<'_, Mail>, upstream: ConnId) {
        if let Some(Use::Tunnel(client)) = self.uses.get(&upstream)
            && self.held.remove(client)
        {
            cx.resume(*client);
        }
    }

    /// Ends requests whose upstream is silent for too long, requests that have waited for too long,
    /// and idle tunnels.
    pub(super) fn sweep(&mut self, cx: &mut Context<'_, Mail>) {
        let now = cx.now().mono;
        self.failures.sweep(now);
        for exchange in self.exchanges.values_mut() {
            let Stage::Sent { upstream, .. } = exchange.stage else { continue };
            // If reading is stopped, the client causes the silence.
            let is_silent = now.since(exchange.last_received) > self.limits.silence_ns;
            if is_silent && !self.held.contains(&upstream) {
                exchange.failure = 504;
                cx.abort(upstream);
            }
        }
        while let Some((_, client)) = self.queue.first_key_value() {
            let client = *client;
            let waited = self.exchanges.get(&client).map(|one| now.since(one.last_received));
            if waited.is_some_and(|waited_ns| waited_ns <= self.limits.queue_ns) {
                break;
            }
            self.queue.pop_first();
            if let Some(exchange) = self.exchanges.remove(&client) {
                self.timed_out += 1;
                self.refuse(client, exchange);
            }
        }
        for (client, tunnel) in &self.tunnels {
            if now.since(tunnel.last_moved) > self.limits.websocket_idle_ns {
                cx.abort(*client);
            }
        }
    }

    /// Delivers the results of the turn in both directions.
    pub(super) fn deliver(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
        proxied: Proxied<'_>,
    ) {
        let Proxied { site, ledger, memory } = proxied;
        for (upstream, bytes) in std::mem::take(&mut self.tunnel_input) {
            if let Some((_, out)) = connections.get_mut(upstream) {
                out.buffer().extend_from_slice(&bytes);
            }
        }
        for (entry, sent) in std::mem::take(&mut self.unanswered) {
            ledger.note(&entry, sent, cx.now());
        }
        loop {
            self.pump(cx);
            self.send_over_open_ones(cx, connections);
            if self.inbox.is_empty() {
                return;
            }
            // A request that fails immediately frees capacity for the next one.
            for mut delivery in std::mem::take(&mut self.inbox) {
                site.update_date(cx.now());
                memory.note_growth(delivery.bytes.len());
                let noted = delivery.noted.take();
                let failure = delivery.append_delivery(cx, connections, site);
                if let Some((entry, sent)) = noted {
                    ledger.note(&entry, failure.unwrap_or(sent), cx.now());
                }
            }
        }
    }

    /// Sends requests that were assigned to open connections.
    fn send_over_open_ones(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        for id in std::mem::take(&mut self.outbox) {
            let Some(exchange) = self.exchange_of(id) else { continue };
            if let Some((Session::Upstream(upstream), out)) = connections.get_mut(id) {
                upstream.decoder.expect_to_head(exchange.is_head);
                out.buffer().extend_from_slice(&exchange.request);
                continue;
            }
            // The connection was closed in the turn in which it was chosen; nothing was sent.
            if let Some(Use::Exchange(client)) = self.uses.remove(&id)
                && let Some(exchange) = self.exchanges.remove(&client)
            {
                self.connect(cx, client, exchange);
            }
        }
    }
}

/// Progress of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    More,
    Done,
    /// The connection becomes a tunnel.
    Switched,
}

fn sent_through(body_bytes: u64) -> Sent {
    Sent { status: 101, body_bytes }
}

impl Delivery {
    /// Appends a delivery to the client's output. Returns the locally generated response if the
    /// upstream has failed.
    fn append_delivery(
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
            ClientAction::More => return None,
            ClientAction::Abort => {
                cx.reset(self.client);
                return None;
            }
            ClientAction::Tunnel => {
                client.wait = Wait::Tunnel;
                cx.resume(self.client);
                return None;
            }
            ClientAction::Fail(status) => {
                failure = Some(site.words(status, self.terms, out.buffer()).1);
                self.terms.closes
            }
            ClientAction::Complete => false,
            ClientAction::Close => true,
        };
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
    /// Appends the client's head, derived from the upstream's.
    // Source: RFC 9110 7.6 (message forwarding), RFC 9112 6.3
    fn pass_head(
        &mut self,
        head: &ResponseHead<'_>,
        site: &Site,
        packings: &Packings,
        out: &mut Vec<u8>,
    ) {
        let has_body = !self.is_head && !matches!(head.status, 204 | 304);
        let is_packable = packings.is_enabled() && packing::is_packable(head);
        if is_packable && has_body && self.accepts_packed {
            self.packing = packings.begin();
        }
        // HEAD gets the lines that GET would get.
        let is_packed =
            self.packing.is_some() || is_packable && self.is_head && self.accepts_packed;
        let content_length = head.content_length.filter(|_| !is_packed);
        let is_chunked = has_body && content_length.is_none() && !self.terms.is_old;
        if has_body && content_length.is_none() && self.terms.is_old {
            self.closes = true;
        }
        let terms = ResponseOptions {
            closes: self.closes,
            announces_keep_alive: self.terms.announces_keep_alive && !self.closes,
            ..self.terms
        };
        let has_date = head.headers().get("date").is_some();
        let mut writer = if has_date {
            Site::head_without_date(head.status, terms, out)
        } else {
            site.head(head.status, terms, out)
        };
        for (name, value) in passed(head.headers()) {
            if !is_packed {
                writer = writer.header(name, value);
            } else if let Some(value) = packing::packed_line(name, value, &mut Vec::new()) {
                writer = writer.header(name, value);
            }
        }
        if is_packed {
            writer = writer.header("Content-Encoding", b"gzip");
        }
        if is_packable && packing::lacks_vary(&head.headers()) {
            writer = writer.header("Vary", b"Accept-Encoding");
        }
        self.sent.status = head.status;
        self.passing = if is_chunked { Passing::Chunked } else { Passing::Plain };
        match content_length {
            _ if is_chunked => drop_out(writer.chunked()),
            Some(length) if head.status != 204 => drop_out(writer.length(length)),
            _ => drop_out(writer.end()),
        }
    }

    fn pass_body(&mut self, body: &[u8], out: &mut Vec<u8>) {
        match &mut self.packing {
            Some(packing) => packing.add(body),
            None => self.put_body(body, out),
        }
    }

    /// Whether the next bytes of the response may have to be compressed.
    fn may_pack(&self) -> bool {
        self.packing.is_some() || self.accepts_packed && self.passing == Passing::Head
    }

    /// Appends all of the compressed body so far.
    fn flush_packing(&mut self, out: &mut Vec<u8>) {
        if let Some(packed) = self.packing.as_mut().map(Packing::flush) {
            self.put_body(&packed, out);
        }
    }

    fn put_body(&mut self, body: &[u8], out: &mut Vec<u8>) {
        self.sent.body_bytes += body.len() as u64;
        match self.passing {
            Passing::Chunked => write_chunk(out, body),
            Passing::Plain | Passing::Head => out.extend_from_slice(body),
        }
    }

    fn delivery(&self, client: ConnId, bytes: Vec<u8>, then: ClientAction) -> Delivery {
        Delivery { client, terms: self.terms, bytes, then, noted: None }
    }
}

/// Used where the buffer is reused elsewhere.
fn drop_out(_: &mut Vec<u8>) {}

/// Whether a list in header lines of this name contains a token.
pub(super) fn has_token(headers: wire::http::Fields<'_>, name: &str, token: &[u8]) -> bool {
    let mut tokens = headers.get_all(name).flat_map(|line| line.split(|&byte| byte == b','));
    tokens.any(|found| found.trim_ascii().eq_ignore_ascii_case(token))
}

fn names_websocket(headers: wire::http::Fields<'_>) -> bool {
    has_token(headers.clone(), "connection", b"upgrade")
        && has_token(headers, "upgrade", b"websocket")
}

/// Whether a request asks for a WebSocket. Other protocols are not supported: with `h2c`, this
/// server could not inspect the requests.
// Source: RFC 6455 4.1 (opening handshake); RFC 9110 7.8 (Upgrade)
fn asks_for_websocket(request: &Request<'_>) -> bool {
    request.method() == Method::Get
        && request.minor_version() >= 1
        && request.body().is_empty()
        && names_websocket(request.headers())
}

/// Writes the head that turns the client's connection into a WebSocket.
fn write_switch(head: &ResponseHead<'_>, out: &mut Vec<u8>) {
    let mut writer = ResponseWriter::new(out, 101)
        .header("Connection", b"Upgrade")
        .header("Upgrade", b"websocket");
    for (name, value) in passed(head.headers()) {
        writer = writer.header(name, value);
    }
    drop_out(writer.end());
}

/// Returns the header lines to forward: excludes hop-by-hop lines, including the lines that
/// `Connection` lists.
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

/// Whether a line has this lowercase name. CGI-style programs treat `_` and `-` in names as equal,
/// so a client must not be able to bypass the filter with the other spelling.
fn is_line(name: &str, known: &str) -> bool {
    let letter = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.len() == known.len() && name.bytes().map(letter).eq(known.bytes())
}

/// Whether a line describes the origin of a request. Only this server knows it, and the upstream
/// trusts it, so the client's own values are removed: any `X-Forwarded-*`, `X-Real-IP`, and
/// `Forwarded`, which has the same meaning.
// Source: RFC 7239 5.4, 8.1
fn is_about_origin(name: &str) -> bool {
    const FAMILY: &str = "x-forwarded-";
    name.get(..FAMILY.len()).is_some_and(|start| is_line(start, FAMILY))
        || ["forwarded", "x-real-ip"].iter().any(|known| is_line(name, known))
}

/// Returns the addresses that a request passed through: the content of its `X-Forwarded-For` lines
/// in order, then its client. Every hop appends, possibly as a separate line, and the upstream
/// trusts the last ones.
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

/// Encodes the request for the upstream. The folder is written in its canonical form, so that both
/// servers interpret the same path.
// Source: RFC 9110 7.6 (message forwarding); RFC 9112 3.2.1 (origin-form)
fn encode(request: &Request<'_>, origin: Origin, id: &[u8], is_websocket: bool) -> Vec<u8> {
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
    let is_ours = |name: &str| {
        is_line(name, "host") || is_line(name, "x-request-id") || is_about_origin(name)
    };
    let mut lines: Vec<(&str, &[u8])> = vec![("Host", request.host().unwrap_or_default())];
    lines.extend(passed(request.headers()).filter(|(name, _)| !is_ours(name)));
    if let (Some(forwarded), Some(real)) = (&forwarded, &real) {
        lines.push(("X-Forwarded-For", forwarded));
        lines.push(("X-Real-IP", real.as_bytes()));
    }
    lines.push(("X-Forwarded-Proto", origin.scheme.name().as_bytes()));
    lines.push(("X-Request-ID", id));
    if is_websocket {
        lines.push(("Connection", b"Upgrade"));
        lines.push(("Upgrade", b"websocket"));
    }
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

/// Returns the upstream's input for a request of an arbitrary client.
pub(crate) fn encode_for_check(request: &Request<'_>) -> Vec<u8> {
    let remote = Some(IpAddr::from([10, 0, 0, 1]));
    let origin = Origin { client: ConnId(1), remote, scheme: Scheme::Http };
    encode(request, origin, b"id-1", asks_for_websocket(request))
}

/// Creates a socket that connects to the upstream.
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

    /// Returns the upstream's input for a request of 10.0.0.1.
    fn encoded(input: &[u8], scheme: Scheme) -> Vec<u8> {
        let mut batch = RequestBatch::new();
        RequestDecoder::new().decode(input, &Limits::DEFAULT, 1, &mut batch);
        let remote = Some(IpAddr::from([10, 0, 0, 1]));
        let origin = Origin { client: ConnId(1), remote, scheme };
        encode(&batch.get(0, input), origin, b"id-1", false)
    }

    #[test]
    fn the_upstream_receives_the_origin() {
        let input = b"GET /api/x HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: gopher\r\n\
                      Forwarded: for=10.0.0.8;proto=gopher\r\nforwarded: host=gopher\r\n\
                      X-Forwarded-Host: gopher\r\nX_Forwarded_Proto: gopher\r\n\
                      X-Real-Ip: gopher\r\nX_Real-IP: gopher\r\nTransfer_Encoding: gopher\r\n\
                      X-Forwarded-For: 10.0.0.9\r\nX-Forwarded: 1\r\n\
                      X-Request-Id: 7\r\n\r\n";
        for scheme in [Scheme::Http, Scheme::Https] {
            let text = String::from_utf8(encoded(input, scheme)).unwrap();
            let expected = format!(
                "GET /api/x HTTP/1.1\r\nHost: a\r\nX-Forwarded: 1\r\n\
                 X-Forwarded-For: 10.0.0.9, 10.0.0.1\r\nX-Real-IP: 10.0.0.1\r\n\
                 X-Forwarded-Proto: {}\r\nX-Request-ID: id-1\r\n\r\n",
                scheme.name()
            );
            assert_eq!(text, expected);
        }
    }

    /// The last trusted hop must remain the last one, and bytes must remain unchanged.
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

    #[test]
    fn only_websockets_are_tunnels() {
        let asks = |lines: &str| {
            let input = format!("GET /api/x HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
            let mut batch = RequestBatch::new();
            RequestDecoder::new().decode(input.as_bytes(), &Limits::DEFAULT, 1, &mut batch);
            asks_for_websocket(&batch.get(0, input.as_bytes()))
        };
        assert!(asks("Connection: Upgrade\r\nUpgrade: websocket\r\n"));
        assert!(asks("Connection: keep-alive, UPGRADE\r\nUpgrade: WebSocket\r\n"));
        assert!(!asks("Connection: Upgrade\r\nUpgrade: h2c\r\n"));
        assert!(!asks("Connection: keep-alive\r\nUpgrade: websocket\r\n"));
        assert!(!asks("Upgrade: websocket\r\n"));
        let with_body = "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n\r\nx";
        assert!(!asks(with_body));
    }
}
