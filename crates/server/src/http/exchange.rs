//! One request and its answer.

use base::time::Now;
use store::Params;
use wire::http::{Method, Request, ResponseWriter, write_chunk, write_last_chunk};
use wire::resp::{OwnedArgs, Protocol, ReplyWriter};

use super::access::Refusal;
use super::cql::{PausedStatement, Statements};
use super::feeds::Feeds;
use super::pipeline::Pipeline;
use super::reply;
use super::session::Session;
use super::subscribe::Subscription;
use crate::config::Durability;
use crate::cql::CqlState;
use crate::engine::commit::Record;
use crate::engine::gate::Gate;
use crate::engine::pubsub::{self, Kind, Subscriptions};
use crate::engine::shared::Shared;
use crate::engine::worker::Worker;
use crate::resp;
use crate::resp::execute::{Executor, prepare};
use crate::resp::session::ReplyMode;
use binlog::Follower;
use reactor::{ConnId, Peer};

pub(super) const JSON: &str = "application/json";
pub(super) const TEXT: &str = "text/plain; charset=utf-8";
pub(super) const BYTES: &str = "application/octet-stream";

/// Buffers that grew beyond this for one answer are given back.
const SCRATCH_BYTES_KEPT_MAX: usize = 256 * 1024;

/// What the requests of one reactor share.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// Runs commands; made anew for each request.
    runner: resp::Session,
    pub(super) args: OwnedArgs,
    /// Replies of commands, as RESP2.
    pub(super) replies: Vec<u8>,
    /// The content of the answer.
    pub(crate) body: Vec<u8>,
    /// Whether there was no memory for a reply: an error stands in its place.
    pub(super) has_no_room: bool,
    pub(super) statements: Statements,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        let nobody = Peer { remote: None, local: None, listener: 0 };
        let mut runner = resp::Session::new(
            ConnId(0),
            &nobody,
            base::time::MonoNs::default(),
            true,
            Durability::default(),
        );
        runner.is_lent = true;
        let (replies, body) = (Vec::new(), Vec::new());
        Scratch {
            runner,
            args: OwnedArgs::new(),
            replies,
            body,
            has_no_room: false,
            statements: Statements::default(),
        }
    }

    /// Forgets the content of the last answer, and returns the memory of a large one.
    pub(crate) fn clear(&mut self) {
        for buffer in [&mut self.replies, &mut self.body] {
            buffer.clear();
            buffer.shrink_to(SCRATCH_BYTES_KEPT_MAX);
        }
    }

    /// Forgets the last request and prepares for one of this connection.
    pub(crate) fn begin(&mut self, session: &Session, worker: &mut Worker, durability: Durability) {
        self.clear();
        self.has_no_room = false;
        if self.args.memory_bytes() > SCRATCH_BYTES_KEPT_MAX {
            self.args = OwnedArgs::new();
        }
        let runner = &mut self.runner;
        worker.accounts.resp.unqueue(&mut runner.charges);
        runner.id = session.id;
        runner.protocol = Protocol::Resp2;
        runner.db = 0;
        runner.authenticated = true;
        runner.durability = durability;
        runner.reply_mode = ReplyMode::On;
        runner.closing = false;
        runner.last_gate = session.last_gate;
        runner.transaction = None;
        runner.watched = None;
        runner.wait = None;
        runner.details.remote = session.remote;
        runner.details.local = session.local;
    }
}

/// A request cannot be run now, and nothing of it was: the server is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Postponed;

/// What comes of a request, beside the content in [`Scratch::body`].
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: u16,
    pub(crate) media: &'static str,
    /// The log position that must be durable before the answer leaves; 0: none.
    pub(crate) gate: Gate,
    pub(crate) headers: Vec<(&'static str, String)>,
    /// What follows the content until the connection ends.
    pub(crate) follower: Option<Box<Follower>>,
    /// The same.
    pub(crate) subscription: Option<Box<Subscription>>,
    /// There is no answer yet: this statement continues in the next turn.
    pub(crate) paused: Option<Box<PausedStatement>>,
    /// Commands that are left: their results follow the content in later turns.
    pub(crate) pipeline: Option<Box<Pipeline>>,
    /// Whether the content continues an answer that was begun in an earlier turn.
    pub(crate) is_continuation: bool,
    /// Whether the answer is sent later, because the password was wrong.
    pub(crate) is_delayed: bool,
}

impl Outcome {
    pub(super) fn new(status: u16, media: &'static str) -> Outcome {
        Outcome {
            status,
            media,
            gate: Gate::OPEN,
            headers: Vec::new(),
            follower: None,
            subscription: None,
            paused: None,
            pipeline: None,
            is_continuation: false,
            is_delayed: false,
        }
    }

    /// There is no answer yet.
    pub(super) fn paused(statement: PausedStatement) -> Outcome {
        Outcome { paused: Some(Box::new(statement)), ..Outcome::new(200, JSON) }
    }

    /// An error in the words of the dialect; its content goes to `body`.
    pub(crate) fn error(status: u16, text: &str, body: &mut Vec<u8>) -> Outcome {
        body.clear();
        reply::write_error(text, body);
        let outcome = Outcome::new(status, JSON);
        if status == 503 { outcome.with("Retry-After", "1") } else { outcome }
    }

    /// Whether something follows the content until the connection ends.
    pub(crate) fn is_stream(&self) -> bool {
        self.follower.is_some() || self.subscription.is_some()
    }

    pub(super) fn gated(mut self, gate: Gate) -> Outcome {
        self.gate = gate;
        self
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Outcome {
        self.headers.push((name, value.into()));
        self
    }
}

pub(super) type Answered = Result<Outcome, Postponed>;

/// Everything that a request needs. Lives for one request.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) cql: &'a CqlState,
    pub(crate) feeds: &'a Feeds,
    pub(crate) params: &'a Params,
    pub(crate) worker: &'a mut Worker,
    pub(crate) record: &'a mut Record,
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) now: Now,
}

impl Exchange<'_> {
    /// Runs one command and appends its reply to [`Scratch::replies`]. Returns the log position that
    /// must be durable before the reply is shown. A reply that the memory does not suffice for becomes an
    /// error; the command has done its work.
    pub(super) fn run(&mut self, args: &OwnedArgs) -> Result<Gate, Postponed> {
        let Scratch { runner, replies, body, has_no_room, .. } = &mut *self.scratch;
        let mut executor = Executor {
            shared: self.shared,
            params: self.params,
            worker: self.worker,
            record: self.record,
            now: self.now,
        };
        let args = args.as_args();
        let start = replies.len();
        let prepared = prepare(self.shared, args, None);
        let gate_before = runner.last_gate;
        let gate = executor.request(runner, prepared, args, replies);
        if let Some(wait) = runner.wait.take() {
            replies.truncate(start);
            if wait == resp::session::Wait::Pause {
                return Err(Postponed);
            }
            let text = "ERR this command waits, which is not done by HTTP";
            ReplyWriter::new(replies, Protocol::Resp2).error(text);
            return Ok(Gate::OPEN);
        }
        if executor.is_lost(gate) {
            executor.reply_lost(runner, gate_before, start, replies);
            return Ok(Gate::OPEN);
        }
        let answer_bytes = body.len() + replies.len() - start;
        if let Err(reached) = self.worker.accounts.http.check_answer(answer_bytes) {
            replies.truncate(start);
            replies.shrink_to(SCRATCH_BYTES_KEPT_MAX);
            ReplyWriter::new(replies, Protocol::Resp2).error(&format!("OOM {reached}"));
            *has_no_room = true;
        }
        if replies.len() == start {
            // SHUTDOWN says nothing.
            ReplyWriter::new(replies, Protocol::Resp2).null();
        }
        Ok(gate)
    }

    /// What the request asks for instead of the server's own durability.
    pub(super) fn choose_durability(&mut self, durability: Durability) {
        self.scratch.runner.durability = durability;
    }

    pub(crate) fn durability(&self) -> Durability {
        self.scratch.runner.durability
    }

    /// Subscribes the connection that the request came by.
    pub(super) fn subscribe(
        &mut self,
        names: &mut Subscriptions,
        kind: Kind,
        name: &[u8],
    ) -> Result<bool, pubsub::Refusal> {
        self.worker.subscribe(self.shared, self.scratch.runner.id, names, kind, name)
    }

    /// Takes that back.
    pub(super) fn forget_subscriptions(&mut self, names: &Subscriptions) {
        self.worker.forget_subscriptions(self.shared, self.scratch.runner.id, names);
    }

    /// Whose request it is.
    pub(super) fn connection(&self) -> ConnId {
        self.scratch.runner.id
    }

    /// The address that the client has dialled.
    pub(super) fn local(&self) -> Option<std::net::SocketAddr> {
        self.scratch.runner.details.local
    }

    /// As [`Exchange::run`] for a command given as words.
    pub(super) fn run_words(&mut self, words: &[&[u8]]) -> Result<Gate, Postponed> {
        let mut args = std::mem::take(&mut self.scratch.args);
        args.clear();
        for word in words {
            args.push(word);
        }
        let gate = self.run(&args);
        self.scratch.args = args;
        gate
    }

    /// An answer that is an error, in the words of the dialect.
    pub(super) fn fail(&mut self, status: u16, text: &str) -> Outcome {
        Outcome::error(status, text, &mut self.scratch.body)
    }

    /// The answer to a client that may not use the route. `challenge`: how it could show the password.
    pub(super) fn refuse(&mut self, refusal: Refusal, challenge: &'static str) -> Outcome {
        match refusal {
            Refusal::Token | Refusal::WrongToken => {
                let outcome = self.fail(401, "WRONGPASS invalid or missing auth token");
                let is_delayed = refusal == Refusal::WrongToken;
                Outcome { is_delayed, ..outcome.with("WWW-Authenticate", challenge) }
            }
            Refusal::Stranger => self.fail(403, "NOPERM a page of another site made this request"),
        }
    }
}

/// The durability that a request asks for; none: it does not say. The text of the error is for its
/// sender.
pub(super) fn durability(request: &Request<'_>) -> Result<Option<Durability>, &'static str> {
    let Some(word) = request.header("myriad-durability") else { return Ok(None) };
    let known = Durability::ALL.iter().find(|one| one.word().as_bytes().eq_ignore_ascii_case(word));
    known.copied().map(Some).ok_or("ERR Myriad-Durability must be always, interval or never")
}

/// What holds for the answer to one request besides its content.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// The connection ends with the answer.
    pub(crate) closes: bool,
    /// Of the request. HTTP/1.0 does not know chunks, and is told when the connection stays open.
    minor_version: u8,
    /// HEAD: the answer has no body.
    is_head: bool,
}

impl Terms {
    pub(crate) fn of(request: &Request<'_>) -> Terms {
        Terms {
            closes: !request.keeps_alive(),
            minor_version: request.minor_version(),
            is_head: request.method() == Method::Head,
        }
    }

    /// The answer has no end but that of the connection.
    pub(crate) fn until_close(self) -> Terms {
        Terms { closes: true, ..self }
    }

    /// For answers to what is no request.
    pub(crate) const REFUSED: Terms = Terms { closes: true, minor_version: 0, is_head: false };

    /// What holds for an answer that follows in parts.
    pub(crate) fn for_parts(self) -> Terms {
        if self.knows_chunks() { self } else { self.until_close() }
    }

    fn knows_chunks(self) -> bool {
        self.minor_version > 0
    }

    /// Appends an answer.
    // Source: RFC 9110 6.6.1 (Date), 8.6 (no Content-Length in 204 and 304); RFC 9112 9.3 (Connection)
    pub(crate) fn write(self, outcome: &Outcome, body: &[u8], date: &str, out: &mut Vec<u8>) {
        if outcome.is_continuation {
            return self.write_part(outcome, body, out);
        }
        let mut head = ResponseWriter::new(out, outcome.status).header("Date", date.as_bytes());
        if self.closes {
            head = head.header("Connection", b"close");
        } else if self.minor_version == 0 {
            head = head.header("Connection", b"keep-alive");
        }
        for (name, value) in &outcome.headers {
            head = head.header(name, value.as_bytes());
        }
        if matches!(outcome.status, 204 | 304) {
            head.end();
            return;
        }
        head = head
            .header("Content-Type", outcome.media.as_bytes())
            .header("Cache-Control", b"no-store")
            .header("X-Content-Type-Options", b"nosniff");
        if outcome.is_stream() {
            head.end().extend_from_slice(body);
        } else if outcome.pipeline.is_some() {
            let out = if self.knows_chunks() { head.chunked() } else { head.end() };
            self.write_part(outcome, body, out);
        } else if self.is_head {
            head.length(body.len() as u64);
        } else {
            head.body(body);
        }
    }

    /// Appends a part of an answer without a length, and its end if nothing is left.
    fn write_part(self, outcome: &Outcome, body: &[u8], out: &mut Vec<u8>) {
        if !self.knows_chunks() {
            return out.extend_from_slice(body);
        }
        write_chunk(out, body);
        if outcome.pipeline.is_none() {
            write_last_chunk(out, &[]);
        }
    }
}
