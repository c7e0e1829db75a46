//! The handler of a worker's reactor: from requests to responses.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use base::time::{MonoNs, Now};
use foldhash::fast::RandomState;
use reactor::{
    ConnId, Connections, Context, Flow, Handler, Next, Output, Peer, Signal, Signals, Trigger,
    Watcher,
};
use wire::http::{CONTINUE, Limits, Request, RequestBatch};

use super::answer::{Answer, Opened, Sent, Site};
use super::client::{Client, ResponseOptions, Wait};
use super::disk::{Disk, Mail};
use super::intake::{Arrival, Finished, Intake, Round};
use super::log::{AccessLog, Ledger};
use super::memory::{Memory, return_free_memory};
use super::proxy::{Origin, Proxied, Proxy, Refused, UPSTREAM, Upstream};
use super::rejections::Rejections;
use super::resolver::Resolver;
use super::sending::{DiskQueueFull, Sending};
use super::{ACCEPT, LEAVE, READY, REOPEN, Source, Start, finished_by, status};
use crate::channel::{Channel, Received};
use crate::config::{Config, Mode};
use crate::counters::{Counters, Counts};
use crate::identity::ListenerTls;
use crate::scheme::Scheme;
use crate::table::{BEAT_NS, mono_now};

/// Requests of one connection that are processed in one turn.
const REQUESTS_MAX: usize = 64;
/// Output of one connection that is generated before it is sent.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// Other workers take over at every address.
const NOWHERE: Finished = Finished::These(Vec::new());
/// Maximum number of connections of the operator, per worker.
const STATUS_CONNECTIONS_MAX: usize = 16;
/// Token of the heartbeat timer. The others count from 0.
const BEAT_TIMER: u64 = u64::MAX;
/// Pause of accepting after a failure that would repeat immediately.
const REST_NS: u64 = 100_000_000;

/// Type of a connection.
#[derive(Debug)]
pub(super) enum Session {
    Client(Client),
    Upstream(Box<Upstream>),
}

/// Shutdown of the worker.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drain {
    /// Deadline for closing all connections.
    pub(super) until: MonoNs,
    pub(super) began: MonoNs,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) config: Config,
    pub(super) limits: Limits,
    pub(super) site: Site,
    /// Runs operations that may block on a disk.
    pub(super) disk: Disk,
    pub(super) intake: Intake,
    /// TLS configuration of the listeners, if any.
    tls: Option<ListenerTls>,
    signals: Option<Signals>,
    watcher: Watcher,
    batch: RequestBatch,
    pub(super) ledger: Ledger,
    pub(super) proxy: Proxy,
    pub(super) memory: Memory,
    /// Refusals since the last report in the log.
    pub(super) rejections: Rejections,
    /// Refusals before that.
    pub(super) refused: Rejections,
    /// Number of client connections.
    pub(super) clients: usize,
    /// Connections of the operator, which do not count for the limits of clients.
    status_clients: usize,
    /// Total number of accepted client connections.
    accepted: u64,
    counters: Counters,
    /// Row of its counters, and the last values written there.
    row: usize,
    published: Counts,
    addresses: HashMap<IpAddr, usize, RandomState>,
    pub(super) drain: Option<Drain>,
    /// Accepting is paused until then.
    pub(super) rests_until: Option<MonoNs>,
    /// More connections have timed out than the last sweep closed.
    pub(super) has_overdue: bool,
    is_timer_set: bool,
    /// Whether heartbeats have started, which is the case once it may accept.
    beats: bool,
    /// Token of the current timer; earlier timers were replaced by shorter ones.
    timer_token: u64,
    /// Dropped last: the master treats a closed channel as the end of the worker, and by then the
    /// log must be written.
    control: Channel,
}

impl Server {
    pub(super) fn new(
        start: Start,
        site: Site,
        disk: Disk,
        resolver: Resolver,
        log: Option<AccessLog>,
        signals: Option<Signals>,
        watcher: Watcher,
    ) -> Server {
        let Start { order, control, table, counters, mailbox, tls, listeners, mailboxes, .. } =
            start;
        let config = order.config;
        let intake = Intake::new(
            config.accept,
            config.accept_max,
            order.slot,
            listeners,
            mailbox,
            mailboxes,
            table,
            watcher.clone(),
        );
        Server {
            limits: config.wire_limits(),
            site,
            disk,
            intake,
            tls,
            control,
            signals,
            watcher,
            batch: RequestBatch::new(),
            ledger: Ledger::new(log),
            proxy: Proxy::new(&config, resolver),
            memory: Memory::new(&config),
            rejections: Rejections::default(),
            refused: Rejections::default(),
            clients: 0,
            status_clients: 0,
            accepted: 0,
            counters,
            row: order.row,
            published: Counts::default(),
            addresses: HashMap::default(),
            drain: None,
            rests_until: None,
            has_overdue: false,
            is_timer_set: false,
            beats: false,
            timer_token: 0,
            config,
        }
    }

    /// Number of connections of all kinds.
    pub(super) fn all_clients(&self) -> usize {
        self.clients + self.status_clients
    }

    /// Starts to poll all sources, and reports readiness to the master.
    pub(super) fn begin(&mut self) -> std::io::Result<()> {
        self.watcher.add(&self.control, Source::Control.number(), Trigger::Level)?;
        if let Some(signals) = &self.signals {
            self.watcher.add(signals, Source::Signals.number(), Trigger::Level)?;
        }
        self.intake.begin()?;
        Ok(self.control.send(READY, &[])?)
    }

    /// Processes the complete requests of one client.
    fn serve(
        &mut self,
        cx: &mut Context<'_, Mail>,
        id: ConnId,
        client: &mut Client,
        input: &[u8],
        out: &mut Output,
    ) -> Flow {
        if let Some(sending) = client.sending.take() {
            let sent = self.send_piece(id, client, sending, cx.now().mono, input.len(), out);
            // After the response has begun, a refusal cannot be sent any longer.
            return sent.unwrap_or_else(|DiskQueueFull| {
                self.rejections.files += 1;
                cx.reset(id);
                Flow { consumed: 0, next: Next::Pause }
            });
        }
        if client.wait == Wait::Disk {
            client.wait = Wait::Idle;
        }
        let mut batch = std::mem::take(&mut self.batch);
        let consumed = client.decoder.decode(input, &self.limits, REQUESTS_MAX, &mut batch);
        let flow = match self.answer_all(cx, id, client, input, &batch, out) {
            // The remaining requests are processed in its next turn.
            Some(flow) => {
                client.decoder.restart();
                flow
            }
            None => Flow {
                consumed,
                next: self.after_all(cx, client, input.len() - consumed, &batch, out),
            },
        };
        let is_busy = matches!(client.wait, Wait::Upstream | Wait::Disk);
        if !is_busy && client.sending.is_none() {
            client.note_wait(!batch.is_empty(), cx.now().mono);
        }
        self.batch = batch;
        flow
    }

    /// Processes the requests of a batch in order. If the last one processed is not the end of the
    /// batch, or no response may follow its own yet, returns where it ends and what happens next.
    fn answer_all(
        &mut self,
        cx: &mut Context<'_, Mail>,
        id: ConnId,
        client: &mut Client,
        input: &[u8],
        batch: &RequestBatch,
        out: &mut Output,
    ) -> Option<Flow> {
        let now = cx.now();
        let mut opened = client.opened.take();
        // A request that waited for its file began earlier.
        let mut asked = opened.is_some().then_some(client.since);
        for index in 0..batch.len() {
            let flow = |next| Some(Flow { consumed: batch.end(index), next });
            let before_bytes = if index == 0 { 0 } else { batch.end(index - 1) };
            let request = batch.get(index, input);
            let is_last = index + 1 == batch.len();
            let terms = ResponseOptions::of(&request, self.drain.is_some() && is_last);
            let opened: Option<Arc<Opened>> = opened.take();
            let began = asked.take().unwrap_or(now.mono);
            let head_start = out.buffer().len();
            let (answer, mut sent) =
                self.answer(client.scheme, &request, terms, now, opened.as_deref(), out.buffer());
            let mut stop = None;
            match answer {
                Answer::Done => {}
                Answer::File { file, offset, bytes } => {
                    let sending = Sending {
                        file,
                        offset,
                        end: offset + bytes,
                        request_bytes: batch.end(index) - before_bytes,
                        closes: terms.closes,
                        is_loaded: false,
                    };
                    let input_bytes = input.len() - before_bytes;
                    let sends = self.send_piece(id, client, sending, now.mono, input_bytes, out);
                    if let Ok(Flow { consumed, next }) = sends {
                        stop = Some(Flow { consumed: before_bytes + consumed, next });
                    } else {
                        self.rejections.files += 1;
                        out.buffer().truncate(head_start);
                        sent = self.site.words(503, terms, out.buffer()).1;
                    }
                }
                Answer::Upstream => {
                    let entry = self.ledger.entry(client.remote, &request, began);
                    let origin =
                        Origin { client: id, remote: client.remote, scheme: client.scheme };
                    match self.proxy.start(cx, origin, &request, terms, entry, &mut self.memory) {
                        Ok(()) => {
                            client.wait = Wait::Upstream;
                            return flow(Next::Pause);
                        }
                        Err(refused) => {
                            let status = match refused {
                                Refused::Status(status) => status,
                                Refused::Full => 503,
                            };
                            self.rejections.upstream += u64::from(refused == Refused::Full);
                            self.site.update_date(now);
                            sent = self.site.words(status, terms, out.buffer()).1;
                        }
                    }
                }
                Answer::Cold(lookup) => {
                    if self.disk.ask_file(lookup, id) {
                        client.wait = Wait::Disk;
                        client.since = began;
                        // It is processed again when its file is available.
                        return Some(Flow { consumed: before_bytes, next: Next::Pause });
                    }
                    self.rejections.files += 1;
                    sent = self.site.words(503, terms, out.buffer()).1;
                }
            }
            if client.scheme != Scheme::Status {
                self.ledger.note_request(client.remote, &request, began, sent, now);
            }
            if stop.is_some() {
                return stop;
            }
            if terms.closes {
                return flow(Next::Close);
            }
            if out.pending_bytes() > OUTPUT_BYTES_MAX {
                return flow(Next::Again);
            }
        }
        None
    }

    /// Appends the response to a request, which depends on the address that received it.
    fn answer(
        &mut self,
        scheme: Scheme,
        request: &Request<'_>,
        terms: ResponseOptions,
        now: Now,
        opened: Option<&Opened>,
        out: &mut Vec<u8>,
    ) -> (Answer, Sent) {
        let port = self.config.https_redirect_port;
        match scheme {
            Scheme::Status => {
                self.publish();
                self.site.update_date(now);
                let state = status::State {
                    counters: &self.counters,
                    slots: &self.intake.slots(),
                    now: mono_now(),
                    certificate_expiry_unix_s: self.tls.as_ref().and_then(|it| it.expiry_unix_s),
                };
                status::answer(&self.site, request, terms, &state, out)
            }
            Scheme::Http if port != 0 && request.path().starts_with(b"/") => {
                self.site.update_date(now);
                self.site.redirect_to_https(request, terms, port, out)
            }
            Scheme::Http | Scheme::Https => self.site.answer(request, terms, now, opened, out),
        }
    }

    /// Publishes the counters.
    pub(super) fn publish(&mut self) {
        let counts = self.counts();
        if counts != self.published {
            self.published = counts;
            if let Err(error) = self.counters.publish(self.row, &counts) {
                tracing::warn!(%error, "could not write the counters");
            }
        }
    }

    fn counts(&self) -> Counts {
        let mut refused = self.refused;
        refused.add(self.rejections);
        let number = |count: usize| count as u64;
        let cache = self.site.cache();
        let proxied = self.proxy.totals();
        let [_, responses_1xx, responses_2xx, responses_3xx, responses_4xx, responses_5xx] =
            self.ledger.responses;
        Counts {
            responses_1xx,
            responses_2xx,
            responses_3xx,
            responses_4xx,
            responses_5xx,
            response_body_bytes: self.ledger.body_bytes,
            connections_accepted: self.accepted,
            connections: number(self.clients),
            refused_connections: refused.connections,
            refused_addresses: refused.addresses,
            refused_descriptors: refused.descriptors,
            refused_files: refused.files,
            refused_upstream: refused.upstream,
            refused_memory: refused.memory,
            refused_timeouts: refused.queue_timeouts,
            upstream_requests: proxied.requests,
            upstream_failures: proxied.failures,
            upstream_connections: proxied.connections,
            upstream_active: number(self.proxy.active()),
            upstream_queued: number(self.proxy.queued()),
            upstream_idle: number(self.proxy.idle()),
            websockets: number(self.proxy.tunnels()),
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            cache_files: cache.files,
            cache_bytes: cache.bytes,
            log_lines_dropped: self.ledger.dropped_lines(),
            // The master counts those of its own process, which has the threads too.
            messages_lost: match self.config.mode {
                Mode::Process => base::messages::lost_lines(),
                Mode::Thread => 0,
            },
            // Counted by the master.
            restarts: 0,
        }
    }

    /// Returns the next action when all requests of a batch are processed and `rest_bytes` remain.
    fn after_all(
        &mut self,
        cx: &mut Context<'_, Mail>,
        client: &mut Client,
        rest_bytes: usize,
        batch: &RequestBatch,
        out: &mut Output,
    ) -> Next {
        if let Some(error) = batch.error() {
            let sent = self.site.refuse(error, cx.now(), out.buffer());
            self.ledger.note_no_request(client.remote, sent, cx.now());
            return Next::Close;
        }
        if batch.len() == REQUESTS_MAX {
            return Next::Again;
        }
        if client.decoder.is_inside() && self.memory.is_exhausted() {
            self.rejections.memory += 1;
            self.site.update_date(cx.now());
            let sent = self.site.words(503, ResponseOptions::REFUSED, out.buffer()).1;
            self.ledger.note_no_request(client.remote, sent, cx.now());
            return Next::Close;
        }
        if client.decoder.take_continue() {
            out.buffer().extend_from_slice(CONTINUE);
        }
        match client.decoder.needed() {
            0 => Next::Read { needed: 0 },
            missing => Next::Read { needed: rest_bytes + missing },
        }
    }

    /// Accounts for the input that a connection keeps, and for its new output.
    fn note_buffers(&mut self, client: &mut Client, rest_bytes: usize, next: Next, out: &Output) {
        let kept_bytes = match next {
            Next::Read { needed } => rest_bytes.max(needed),
            _ => rest_bytes,
        };
        let grown_bytes = kept_bytes.saturating_sub(client.kept_bytes);
        client.kept_bytes = kept_bytes;
        self.memory.note_growth(grown_bytes + out.pending_bytes());
    }

    /// Opens new connections, within the limits.
    fn admit(&mut self, cx: &mut Context<'_, Mail>, round: Round) {
        let mut clients = self.clients;
        let mut status_clients = self.status_clients;
        for arrival in round.arrivals {
            if arrival.scheme == Scheme::Status {
                if status_clients >= STATUS_CONNECTIONS_MAX {
                    Intake::refuse(&arrival);
                    continue;
                }
                status_clients += 1;
                self.adopt(cx, arrival);
                continue;
            }
            let address = arrival.remote.map(|remote| remote.ip());
            let of_address = address.and_then(|address| self.addresses.get(&address)).copied();
            let per_address_max = self.config.connections_per_address_max;
            let is_crowd = per_address_max != 0 && of_address.unwrap_or(0) >= per_address_max;
            if is_crowd || clients >= self.config.connections_max {
                self.rejections.addresses += u64::from(is_crowd);
                self.rejections.connections += u64::from(!is_crowd);
                Intake::refuse(&arrival);
                continue;
            }
            clients += 1;
            if let Some(address) = address.filter(|_| per_address_max != 0) {
                *self.addresses.entry(address).or_default() += 1;
            }
            self.adopt(cx, arrival);
        }
        // Immediately, so that other workers do not send more connections here.
        self.intake.publish(clients as u64);
        if round.must_rest {
            self.intake.pause_all();
            self.rests_until = Some(MonoNs(cx.now().mono.0 + REST_NS));
            self.set_earlier_timer(cx);
        } else if clients >= self.config.connections_max {
            self.intake.pause();
        }
    }

    fn adopt(&mut self, cx: &mut Context<'_, Mail>, arrival: Arrival) {
        let Arrival { socket, remote, scheme } = arrival;
        let peer = Peer { remote, local: None, listener: scheme.index() };
        match (scheme, &self.tls) {
            (Scheme::Http | Scheme::Status, _) => {
                cx.adopt(socket, peer, true);
            }
            (Scheme::Https, Some(listener)) => {
                if let Err(error) = cx.adopt_tls(socket, peer, &listener.tls) {
                    tracing::error!(%error, "could not start TLS on a connection");
                    self.forget_address(remote.map(|remote| remote.ip()));
                }
            }
            (Scheme::Https, None) => unreachable!("TLS listeners have a certificate"),
        }
    }

    /// Updates the per-address count when a connection ends.
    fn forget_address(&mut self, address: Option<IpAddr>) {
        if self.config.connections_per_address_max != 0
            && let Some(address) = address
            && let Some(count) = self.addresses.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                self.addresses.remove(&address);
            }
        }
    }

    /// Takes connections passed on by the master and other workers.
    pub(super) fn take_mail(&mut self, cx: &mut Context<'_, Mail>) {
        let round = self.intake.open_mail();
        self.admit(cx, round);
    }

    /// Resumes accepting when there is capacity.
    pub(super) fn resume_accepting(&mut self) {
        if self.rests_until.is_none()
            && self.clients < self.config.connections_max
            && let Err(error) = self.intake.resume()
        {
            tracing::error!(%error, "could not resume accepting");
        }
    }

    /// Executes the master's orders.
    fn execute_orders(&mut self, cx: &mut Context<'_, Mail>) {
        loop {
            match self.control.receive() {
                Ok(Received::Message(mut message)) => match message.bytes.as_slice() {
                    ACCEPT => {
                        if !std::mem::replace(&mut self.beats, true) {
                            self.beat(cx);
                        }
                        if let Err(error) = self.intake.open() {
                            tracing::error!(%error, "could not poll the listening sockets");
                            self.begin_drain(cx, &NOWHERE);
                        }
                    }
                    LEAVE => self.begin_drain(cx, &NOWHERE),
                    REOPEN => {
                        if let Some(file) = message.descriptors.pop() {
                            self.ledger.reopen(file);
                        }
                    }
                    other => {
                        if let Some(addresses) = finished_by(other) {
                            self.begin_drain(cx, &Finished::These(addresses));
                        } else {
                            tracing::warn!(bytes = other.len(), "malformed order from master");
                        }
                    }
                },
                Ok(Received::Empty) => return,
                Ok(Received::Closed) => {
                    // The master has exited: finish, so that another master can use the address.
                    if let Err(error) = self.watcher.remove(&self.control) {
                        tracing::warn!(%error, "could not stop polling the master");
                    }
                    return self.begin_drain(cx, &Finished::All);
                }
                Err(error) => return tracing::error!(%error, "could not receive from the master"),
            }
        }
    }

    fn begin_drain(&mut self, cx: &mut Context<'_, Mail>, finished: &Finished) {
        if self.drain.is_some() {
            return;
        }
        let began = cx.now().mono;
        let until = MonoNs(began.0 + self.config.drain_timeout_ms * 1_000_000);
        self.drain = Some(Drain { until, began });
        let arrivals = self.intake.end(finished);
        self.intake.publish(0);
        self.admit(cx, Round { arrivals, must_rest: false });
        self.set_earlier_timer(cx);
    }

    /// Sets an earlier timer if the current one may be too late.
    fn set_earlier_timer(&mut self, cx: &mut Context<'_, Mail>) {
        self.timer_token += 1;
        self.is_timer_set = false;
        self.set_timer(cx);
    }

    /// Publishes a heartbeat, and schedules the next one.
    fn beat(&mut self, cx: &mut Context<'_, Mail>) {
        let now = cx.now().mono;
        self.intake.beat(now);
        self.publish();
        return_free_memory();
        cx.set_timer(MonoNs(now.0 + BEAT_NS), BEAT_TIMER);
    }

    /// Sets the timer for the next sweep.
    fn set_timer(&mut self, cx: &mut Context<'_, Mail>) {
        if !std::mem::replace(&mut self.is_timer_set, true) {
            let at = cx.now().mono.0 + self.sweep_interval_ns();
            cx.set_timer(MonoNs(at), self.timer_token);
        }
    }
}

impl Handler for Server {
    type Session = Session;
    type Mail = Mail;

    fn open(
        &mut self,
        cx: &mut Context<'_, Mail>,
        id: ConnId,
        peer: &Peer,
        out: &mut Output,
    ) -> Session {
        if peer.listener == UPSTREAM {
            return Session::Upstream(Box::new(self.proxy.open(id, out)));
        }
        self.set_timer(cx);
        let scheme = Scheme::ALL.get(peer.listener).copied().unwrap_or(Scheme::Http);
        if scheme == Scheme::Status {
            self.status_clients += 1;
        } else {
            self.clients += 1;
            self.accepted += 1;
        }
        let remote = peer.remote.map(|remote| remote.ip());
        Session::Client(Client::new(remote, scheme, cx.now().mono))
    }

    fn data(
        &mut self,
        cx: &mut Context<'_, Mail>,
        id: ConnId,
        session: &mut Session,
        input: &[u8],
        out: &mut Output,
    ) -> Flow {
        match session {
            Session::Client(client) if client.wait == Wait::Tunnel => {
                self.memory.note_growth(input.len());
                self.proxy.pass_up(id, input, cx.now().mono)
            }
            Session::Client(client) => {
                let flow = self.serve(cx, id, client, input, out);
                self.note_buffers(client, input.len() - flow.consumed, flow.next, out);
                flow
            }
            Session::Upstream(upstream) => {
                self.site.update_date(cx.now());
                self.proxy.receive(cx, id, upstream, input, &self.site)
            }
        }
    }

    fn closed(&mut self, cx: &mut Context<'_, Mail>, id: ConnId, session: Session) {
        match session {
            Session::Client(client) => {
                self.proxy.abandon(cx, id);
                if client.scheme == Scheme::Status {
                    self.status_clients -= 1;
                    return;
                }
                self.clients -= 1;
                self.forget_address(client.remote);
                self.resume_accepting();
            }
            Session::Upstream(upstream) => self.proxy.closed(cx, id, *upstream),
        }
    }

    /// A half-closed client still receives its pending responses. Data from a half-closed upstream
    /// may still be waiting for its client.
    fn peer_left(&mut self, _: ConnId, _: &mut Session) -> bool {
        true
    }

    /// Handles a completed disk operation: resumes the clients that wait for it.
    fn mail(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
        mail: Mail,
    ) {
        let opened = match mail {
            Mail::Opened(opened) => opened,
            Mail::Piece { piece, is_there } => {
                return self.take_piece(cx, connections, &piece, is_there);
            }
            Mail::Resolved(address) => return self.proxy.resolved(address),
        };
        self.site.take(&opened, cx.now());
        for id in self.disk.waiting_for_file(&opened.lookup) {
            if let Some((Session::Client(client), _)) = connections.get_mut(id) {
                client.opened = Some(Arc::clone(&opened));
                cx.resume(id);
            }
        }
    }

    fn timer(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
        token: u64,
    ) {
        if token == BEAT_TIMER {
            return self.beat(cx);
        }
        if token != self.timer_token {
            return;
        }
        self.is_timer_set = false;
        self.sweep(cx, connections);
        let has_time =
            self.all_clients() != 0 || self.drain.is_some() || self.rests_until.is_some();
        if has_time || self.proxy.has_exchanges() {
            self.set_timer(cx);
        }
    }

    fn source(
        &mut self,
        cx: &mut Context<'_, Mail>,
        _: &mut Connections<'_, Session>,
        source: u32,
    ) {
        match Source::of(source) {
            Source::Control => self.execute_orders(cx),
            Source::Mailbox => self.take_mail(cx),
            Source::Signals => {
                while let Some(signal) = self.signals.as_ref().and_then(Signals::take) {
                    // The master handles the other signals.
                    if signal == Signal::Terminate {
                        self.begin_drain(cx, &NOWHERE);
                    }
                }
            }
            Source::Listener(index) => {
                let round = self.intake.accept(index, self.clients);
                self.admit(cx, round);
            }
        }
        self.set_timer(cx);
    }

    fn no_room(&mut self, _: &mut Context<'_, Mail>, id: ConnId, session: &mut Session) {
        match session {
            Session::Client(_) => self.proxy.hold(id),
            Session::Upstream(_) => self.proxy.hold_client(id),
        }
    }

    fn has_room(&mut self, cx: &mut Context<'_, Mail>, id: ConnId, session: &mut Session) {
        match session {
            Session::Client(_) => self.proxy.resume(cx, id),
            Session::Upstream(_) => self.proxy.resume_client(cx, id),
        }
    }

    fn before_wait(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        let proxied =
            Proxied { site: &mut self.site, ledger: &mut self.ledger, memory: &mut self.memory };
        self.proxy.deliver(cx, connections, proxied);
        self.limit_growth(cx, connections);
        self.intake.publish(self.clients as u64);
        self.end_if_drained(cx);
    }
}
