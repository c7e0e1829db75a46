//! One HTTP request and its response.

use std::sync::Arc;

use wire::http::{Method, Request, ResponseWriter, write_chunk, write_last_chunk};
use wire::resp::{
    Args, JsonReply, JsonResults, JsonStrings, OwnedArgs, Protocol, ReplyRoom, ReplyWriter,
};

use super::access::Refusal;
use super::cql::{PausedStatement, Statements};
use super::feeds::Feeds;
use super::pipeline::Pipeline;
use super::reply;
use super::session::Session;
use super::subscribe::Subscription;
use crate::commands::context::CommandContext;
use crate::commands::execute::{Deferred, Prepared, prepare};
use crate::commands::fail::Fail;
use crate::commands::registry::REGISTRY;
use crate::commands::{self, SELECT, acl, database};
use crate::config::{DATABASES, Durability};
use crate::engine::acl::{Acl, Identity};
use crate::engine::context::ReactorContext;
use crate::engine::gate::Gate;
use crate::engine::pubsub::{self, Kind, Subscriptions};
use crate::protocol::ClientProtocol;
use crate::statements::StatementState;
use binlog::Follower;
use reactor::{ConnId, Peer};

pub(super) const JSON: &str = "application/json";
pub(super) const TEXT: &str = "text/plain; charset=utf-8";
pub(super) const BYTES: &str = "application/octet-stream";

/// Capacity above which buffers are shrunk after a response.
const SCRATCH_BYTES_KEPT_MAX: usize = 256 * 1024;

/// Buffers that the requests of one reactor share.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(super) args: OwnedArgs,
    /// The content of the response.
    pub(crate) body: Vec<u8>,
    json: JsonReply,
    pub(super) statements: Statements,
}

impl Scratch {
    /// Removes the content of the last response, and frees the memory of a large one.
    pub(crate) fn clear(&mut self) {
        self.body.clear();
        self.body.shrink_to(SCRATCH_BYTES_KEPT_MAX);
        if self.args.memory_bytes() > SCRATCH_BYTES_KEPT_MAX {
            self.args = OwnedArgs::new();
        }
    }
}

/// The encoding of a command's reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyForm {
    Json(JsonStrings),
    /// `Upstash-Response-Format: resp2`
    Resp2,
}

/// The outcome of a command that ran or was rejected. Its reply is in [`Scratch::body`].
#[derive(Debug)]
pub(super) struct CommandReply {
    /// The log position that must be durable before the reply is sent.
    pub(super) gate: Gate,
    /// The HTTP status of the reply.
    pub(super) status: u16,
}

/// The outcome of a request, except the content in [`Scratch::body`].
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) media: &'static str,
    /// The log position that must be durable before the response is sent.
    pub(crate) gate: Gate,
    pub(crate) headers: Vec<(&'static str, String)>,
    /// Change feed that follows the content until the connection closes.
    pub(crate) follower: Option<Box<Follower>>,
    /// Subscription that follows the content until the connection closes.
    pub(crate) subscription: Option<Box<Subscription>>,
    /// A statement that continues in the next turn; there is no response yet.
    pub(crate) paused: Option<Box<PausedStatement>>,
    /// Remaining commands, whose results follow the content in later turns.
    pub(crate) pipeline: Option<Box<Pipeline>>,
    /// Whether the content continues a response from an earlier turn.
    pub(crate) is_continuation: bool,
    /// Whether the response is delayed because of a wrong password.
    pub(crate) is_delayed: bool,
}

impl Response {
    pub(super) fn new(status: u16, media: &'static str) -> Response {
        Response {
            status,
            media,
            gate: Gate::OPEN,
            headers: if status == 503 { vec![("Retry-After", "1".to_owned())] } else { vec![] },
            follower: None,
            subscription: None,
            paused: None,
            pipeline: None,
            is_continuation: false,
            is_delayed: false,
        }
    }

    /// Returns the outcome of a request whose statement is paused.
    pub(super) fn paused(statement: PausedStatement) -> Response {
        Response { paused: Some(Box::new(statement)), ..Response::new(200, JSON) }
    }

    /// Returns an error with its text in the JSON error format. The content is written to `body`.
    pub(crate) fn error(status: u16, text: &str, body: &mut Vec<u8>) -> Response {
        body.clear();
        reply::write_error(text, body);
        Response::new(status, JSON)
    }

    /// Whether a stream follows the content until the connection closes.
    pub(crate) fn is_stream(&self) -> bool {
        self.follower.is_some() || self.subscription.is_some()
    }

    pub(super) fn gated(mut self, gate: Gate) -> Response {
        self.gate = gate;
        self
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Response {
        self.headers.push((name, value.into()));
        self
    }
}

pub(super) type Answered = Result<Response, Deferred>;

/// One request and the reactor state that it borrows.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    pub(crate) context: ReactorContext<'a>,
    pub(crate) statements: &'a StatementState,
    pub(crate) feeds: &'a Feeds,
    pub(crate) scratch: &'a mut Scratch,
    /// Output that has not been sent to the client yet.
    pub(crate) pending_bytes: usize,
    /// The session in which the request's commands run.
    pub(crate) client: commands::Session,
}

/// Creates the session for the commands of one request: database 0, the connection's addresses, and
/// no state from earlier requests.
///
/// The user is that of the last request until the route has determined this one's.
pub(crate) fn client_of(
    session: &mut Session,
    acl: &Acl,
    durability: Durability,
) -> commands::Session {
    let identity = session.identity.take().unwrap_or_else(|| Identity::newcomer(acl));
    let peer = Peer { remote: session.remote, local: session.local, listener: 0 };
    let opened = base::time::MonoNs::default();
    let mut client = commands::Session::new(session.id, &peer, opened, identity, durability);
    client.source_of_requests = commands::session::Requests::Lent;
    client.last_gate = session.last_gate;
    client
}

impl Exchange<'_> {
    /// Runs the request as this user. `None`: the default user, without a password.
    pub(super) fn become_user(&mut self, identity: Option<Identity>) {
        let acl = &self.context.shared.acl;
        if let Some(identity) = identity {
            self.client.identity = identity;
            return;
        }
        // Usually it was so before; then no counter is changed that other reactors change, too.
        let current = &self.client.identity;
        let is_default = Arc::ptr_eq(current.user(), acl.users().default_user());
        if !is_default || !current.is_authenticated() {
            self.client.identity = Identity::newcomer(acl);
        }
    }

    /// Whether the user may run a command with these arguments. Otherwise the text is for the
    /// client.
    pub(super) fn permits<'n>(
        &self,
        name: &'static str,
        names: impl Iterator<Item = &'n [u8]>,
    ) -> Result<(), String> {
        let args: OwnedArgs = std::iter::once(name.as_bytes()).chain(names).collect();
        let id = REGISTRY.find(name.as_bytes()).expect("a command of the table");
        let user = self.client.identity.user();
        acl::check(user, id, args.as_args()).map_err(|denied| {
            let text = denied.text(user, REGISTRY.entry(id));
            format!("NOPERM {}", String::from_utf8_lossy(&text))
        })
    }

    /// Finds the command of a request.
    pub(super) fn prepare(&self, args: &OwnedArgs) -> Prepared {
        prepare(self.context.shared, args.as_args())
    }

    /// Runs one command and appends its reply to the content.
    pub(super) fn run(
        &mut self,
        prepared: Prepared,
        args: &OwnedArgs,
        form: ReplyForm,
    ) -> Result<CommandReply, Deferred> {
        self.run_with(form, JsonResults::One, |context, client, reply| {
            context.request(client, prepared, args.as_args(), reply)
        })
    }

    /// Runs commands in a transaction, and appends an array of their replies or a single error to
    /// the content.
    pub(super) fn run_transaction(
        &mut self,
        commands: &[OwnedArgs],
        strings: JsonStrings,
    ) -> Result<CommandReply, Deferred> {
        self.run_with(ReplyForm::Json(strings), JsonResults::Elements, |context, client, reply| {
            context.transaction(client, commands, reply)
        })
    }

    fn run_with(
        &mut self,
        form: ReplyForm,
        results: JsonResults,
        run: impl FnOnce(&mut ReactorContext<'_>, &mut commands::Session, ReplyWriter<'_>) -> Gate,
    ) -> Result<CommandReply, Deferred> {
        let gate_before = self.client.last_gate;
        let Scratch { body, json, .. } = &mut *self.scratch;
        let context = &mut self.context;
        let mut reply = match form {
            ReplyForm::Resp2 => ReplyWriter::new(body, Protocol::Resp2),
            ReplyForm::Json(strings) => {
                json.begin(strings, results);
                ReplyWriter::json(body, json)
            }
        }
        .within(context.replies);
        let start = reply.mark();
        let mut gate = run(context, &mut self.client, reply.reborrow());
        if let Some(wait) = self.client.wait.take() {
            reply.rewind(start);
            match wait {
                commands::session::Wait::Pause => return Err(Deferred::Paused),
                commands::session::Wait::Room => return Err(Deferred::Room),
                commands::session::Wait::Keys => return Err(Deferred::Contended),
                _ => {}
            }
            reply.error("ERR blocking commands are not supported over HTTP");
            return Ok(CommandReply { gate: Gate::OPEN, status: 400 });
        }
        let refusal = context.replies.and_then(ReplyRoom::release);
        // An error of a transaction replaces the results of all its commands.
        let refusal =
            refusal.filter(|_| results == JsonResults::Elements || reply.is_error_since(start));
        if context.is_lost(gate) {
            context.reply_lost(&mut self.client, gate_before, start, &mut reply);
            gate = Gate::OPEN;
        } else if let Some(reason) = refusal.or_else(|| {
            let buffers = context.reactor.accounts.buffers(ClientProtocol::Http);
            Some(buffers.check_answer(reply.out.len()).err()?.to_string())
        }) {
            // The command took effect, so its gate still applies.
            reply.rewind(start);
            reply.out.shrink_to(SCRATCH_BYTES_KEPT_MAX);
            reply.error(&format!("OOM {reason}"));
            return Ok(CommandReply { gate, status: 503 });
        } else if reply.since(start).is_empty() {
            // SHUTDOWN has no reply.
            reply.null();
        }
        reply.finish();
        Ok(CommandReply { gate, status: if reply.is_error_since(start) { 400 } else { 200 } })
    }

    /// Runs `body` in place of a command's function: see [`ReactorContext::run_as`]. The output of
    /// `body` is the content of the response.
    pub(super) fn run_as<T>(
        &mut self,
        words: &[&[u8]],
        body: impl FnOnce(&mut CommandContext<'_>, Args<'_>) -> Result<T, Fail>,
    ) -> Result<(Result<T, Fail>, Gate), Deferred> {
        let Scratch { args, body: content, .. } = &mut *self.scratch;
        args.clear();
        for word in words {
            args.push(word);
        }
        let reply = ReplyWriter::new(content, Protocol::Resp2).within(self.context.replies);
        self.context.run_as(&mut self.client, args.as_args(), reply, body)
    }

    /// Applies the database that the request specifies, if any. The error text is meant for the
    /// client.
    pub(super) fn choose_database(&mut self, request: &Request<'_>) -> Result<(), String> {
        let Some(number) = request.header("myriad-database") else { return Ok(()) };
        let index = str::from_utf8(number).ok().and_then(|number| number.parse().ok());
        let Some(db) = index.and_then(database) else {
            let last = DATABASES - 1;
            return Err(format!(
                "ERR Myriad-Database must be the number of a database, 0 to {last}"
            ));
        };
        self.permits(SELECT.name, std::iter::once(number))?;
        self.client.db = db;
        Ok(())
    }

    /// Sets the durability that the request specifies in place of the server's.
    pub(super) fn choose_durability(&mut self, durability: Durability) {
        self.client.durability = durability;
    }

    /// Subscribes the request's connection.
    pub(super) fn subscribe(
        &mut self,
        names: &mut Subscriptions,
        kind: Kind,
        name: &[u8],
    ) -> Result<bool, pubsub::Refusal> {
        self.context.reactor.subscribe(self.context.shared, self.client.id, names, kind, name)
    }

    /// Reverts [`Self::subscribe`].
    pub(super) fn forget_subscriptions(&mut self, names: &Subscriptions) {
        self.context.reactor.forget_subscriptions(self.context.shared, self.client.id, names);
    }

    /// Returns the connection of the request.
    pub(super) fn connection(&self) -> ConnId {
        self.client.id
    }

    /// Returns the server address that the client connected to.
    pub(super) fn local(&self) -> Option<std::net::SocketAddr> {
        self.client.details.local
    }

    /// Returns an error with its text in the JSON error format.
    pub(super) fn fail(&mut self, status: u16, text: &str) -> Response {
        Response::error(status, text, &mut self.scratch.body)
    }

    /// Returns the response to a client that is not authorized for the route. `challenge`: the
    /// authentication scheme to offer.
    pub(super) fn refuse(&mut self, refusal: Refusal, challenge: &'static str) -> Response {
        match refusal {
            Refusal::Token | Refusal::WrongToken => {
                if refusal == Refusal::WrongToken {
                    self.context.note_failed_login(&self.client, b"http", b"");
                }
                let response = self.fail(401, "WRONGPASS invalid or missing auth token");
                let is_delayed = refusal == Refusal::WrongToken;
                Response { is_delayed, ..response.with("WWW-Authenticate", challenge) }
            }
            Refusal::CrossSite => self.fail(403, "NOPERM a page of another site made this request"),
            Refusal::HostName => {
                let text = "NOPERM without a password the Host must be an IP address or a local \
                            name: set requirepass, or protected-mode to no";
                self.fail(403, text)
            }
            Refusal::NotPermitted => self.fail(403, "NOPERM the user may not use this route"),
        }
    }
}

/// Returns the durability that a request specifies, if any. The error text is meant for the client.
pub(super) fn durability(request: &Request<'_>) -> Result<Option<Durability>, &'static str> {
    let Some(word) = request.header("myriad-durability") else { return Ok(None) };
    let known = Durability::ALL.iter().find(|one| one.word().as_bytes().eq_ignore_ascii_case(word));
    known.copied().map(Some).ok_or("ERR Myriad-Durability must be always, interval or never")
}

/// Options of the response to one request, apart from its content.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseOptions {
    /// Whether the connection closes after the response.
    pub(crate) closes: bool,
    /// HTTP minor version of the request. HTTP/1.0 does not support chunked transfer coding, and
    /// needs an explicit `keep-alive`.
    minor_version: u8,
    /// Whether the request is HEAD, whose response has no body.
    is_head: bool,
}

impl ResponseOptions {
    pub(crate) fn of(request: &Request<'_>) -> ResponseOptions {
        ResponseOptions {
            closes: !request.keeps_alive(),
            minor_version: request.minor_version(),
            is_head: request.method() == Method::Head,
        }
    }

    /// Returns the options for a response that is delimited by the end of the connection.
    pub(crate) fn until_close(self) -> ResponseOptions {
        ResponseOptions { closes: true, ..self }
    }

    /// Options for responses to malformed requests.
    pub(crate) const REFUSED: ResponseOptions =
        ResponseOptions { closes: true, minor_version: 0, is_head: false };

    /// Returns the options for a response that is sent in parts.
    pub(crate) fn for_parts(self) -> ResponseOptions {
        if self.supports_chunks() { self } else { self.until_close() }
    }

    fn supports_chunks(self) -> bool {
        self.minor_version > 0
    }

    /// Appends a response.
    // Source: RFC 9110 6.6.1 (Date), 8.6 (no Content-Length in 204 and 304); RFC 9112 9.3 (Connection)
    pub(crate) fn write(self, response: &Response, body: &[u8], date: &str, out: &mut Vec<u8>) {
        if response.is_continuation {
            return self.write_part(response, body, out);
        }
        let mut head = ResponseWriter::new(out, response.status).header("Date", date.as_bytes());
        if self.closes {
            head = head.header("Connection", b"close");
        } else if self.minor_version == 0 {
            head = head.header("Connection", b"keep-alive");
        }
        for (name, value) in &response.headers {
            head = head.header(name, value.as_bytes());
        }
        if matches!(response.status, 204 | 304) {
            head.end();
            return;
        }
        head = head
            .header("Content-Type", response.media.as_bytes())
            .lines("Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n");
        if response.is_stream() {
            head.end().extend_from_slice(body);
        } else if response.pipeline.is_some() {
            let out = if self.supports_chunks() { head.chunked() } else { head.end() };
            self.write_part(response, body, out);
        } else if self.is_head {
            head.length(body.len() as u64);
        } else {
            head.body(body);
        }
    }

    /// Appends a part of a response without a length, and its end if nothing is left.
    fn write_part(self, response: &Response, body: &[u8], out: &mut Vec<u8>) {
        if !self.supports_chunks() {
            return out.extend_from_slice(body);
        }
        write_chunk(out, body);
        if response.pipeline.is_none() {
            write_last_chunk(out, &[]);
        }
    }
}
