//! RESP: bytes to requests, batches of them to replies, in order.

use super::Server;
use super::pubsub::catch_up;
use crate::engine::mail::Mail;
use crate::engine::requests::RequestId;
use crate::resp::execute::{Executor, prepare};
use crate::resp::registry::REGISTRY;
use crate::resp::session::{Session, Wait};
use reactor::{Context, Flow, Next, Output};
use wire::resp::{Limits, ReplyWriter};

/// Requests decoded at a time. More do not fit the first-level cache together with their keys.
const BATCH_REQUESTS_MAX: usize = 64;

impl Server {
    /// Serves what one read of a connection brought.
    pub(super) fn serve_resp(
        &mut self,
        cx: &mut Context<'_, Mail>,
        session: &mut Session,
        input: &[u8],
        out: &mut Output,
    ) -> Flow {
        let started = self.begin_read(cx);
        if session.subscriptions.is_some()
            && !catch_up(&self.shared, &mut self.worker, session, out)
        {
            return Flow { consumed: 0, next: Next::Abort };
        }
        let mut decode_start = started;
        let mut consumed = 0;
        let next = loop {
            if !self.shared.log.has_room(self.worker.index) {
                session.wait = Some(Wait::Room);
                self.roomless.push(session.id);
                self.shared.log.request_write();
                break Next::Pause;
            }
            let rest = &input[consumed..];
            let limits = self.limits(session);
            // One by one before AUTH, as the limits change with it.
            let requests_max = if session.authenticated { BATCH_REQUESTS_MAX } else { 1 };
            let taken = session.decoder.decode(rest, &limits, requests_max, &mut self.batch);
            self.prepare(session, rest);
            self.worker.stamp = self.worker.clock.now();
            let parse_ns = self.worker.clock.delta_ns(decode_start, self.worker.stamp);
            self.worker.tally.parsed(parse_ns / (self.batch.len().max(1) as u64));
            let left_at = self
                .run_batch(session, rest, started, out)
                .filter(|count| *count < self.batch.len())
                .map(|count| count.checked_sub(1).map_or(0, |last| self.batch.end(last)));
            if left_at.is_some() {
                session.decoder.restart();
            }
            consumed += left_at.unwrap_or(taken);
            if session.subscriptions.as_ref().is_some_and(|all| all.is_cut) {
                break Next::Abort;
            }
            if session.closing {
                break Next::Close;
            }
            if session.wait.is_some() {
                self.begin_wait(cx, session);
                break Next::Pause;
            }
            if self.worker.has_new_settings {
                self.derive_params();
            }
            // The peer has to take its replies before it gets more, and other clients want to be served.
            let has_had_its_share = out.pending_bytes() > self.output_pause_bytes()
                || self.worker.has_served_its_share(started)
                || self.worker.backlog.is_some();
            if left_at.is_some() {
                if has_had_its_share {
                    break Next::Again;
                }
                continue;
            }
            if let Some(error) = self.batch.error() {
                let text = format!("ERR {error}");
                ReplyWriter::new(out.buffer(), session.protocol).error(&text);
                self.worker.tally.error(None, &text);
                session.closing = true;
                break Next::Close;
            }
            if self.batch.len() < requests_max || consumed == input.len() {
                break Next::Read { needed: unread_needed(session, input.len() - consumed) };
            }
            if has_had_its_share {
                break Next::Again;
            }
            decode_start = self.worker.stamp;
        };
        let next = self.charge_resp(session, input.len() - consumed, out).unwrap_or(next);
        let now = self.now.mono;
        self.worker.publish(&self.shared, session.id, |row| session.update_row(row, now));
        Flow { consumed, next }
    }

    fn limits(&self, session: &Session) -> Limits {
        if session.authenticated {
            let bulk_bytes_max = self.worker.settings.proto_max_bulk_len_bytes;
            let bulk_bytes_max = usize::try_from(bulk_bytes_max).unwrap_or(usize::MAX);
            Limits { bulk_bytes_max, ..Limits::DEFAULT }
        } else {
            Limits::UNAUTHENTICATED
        }
    }

    /// Finds commands and keys of the batch, and has the keys' memory loaded while it does so: three
    /// passes, because each address is known only when the one before has arrived.
    fn prepare(&mut self, session: &Session, input: &[u8]) {
        self.prepared.clear();
        let keyspace = &self.shared.keyspace;
        let mut known = None;
        for index in 0..self.batch.len() {
            let args = self.batch.get(index, input);
            let prepared = prepare(&self.shared, args, known);
            // A subcommand has its container's name, which says nothing of the next one.
            let is_whole = |id: &RequestId| REGISTRY.entry(*id).parent.is_none();
            known = prepared.id.filter(is_whole).map(|id| (args.get(0), id));
            if let Some(hash) = prepared.hash {
                keyspace.prefetch_stripe(hash);
            }
            self.prepared.push(prepared);
        }
        if self.prepared.len() < 2 {
            return;
        }
        let hashes = || self.prepared.iter().filter_map(|prepared| prepared.hash);
        hashes().for_each(|hash| keyspace.prefetch_bucket(session.db, hash));
        hashes().for_each(|hash| keyspace.prefetch_entry(session.db, hash));
    }

    /// Pending output above which the next request waits: a batch of short requests can ask for
    /// gigabytes.
    pub(super) fn output_pause_bytes(&self) -> usize {
        usize::try_from(self.worker.settings.internals.output_pause_bytes()).unwrap_or(usize::MAX)
    }

    /// Runs the decoded batch. Returns how many requests were run, if the rest has to wait or must
    /// be prepared anew.
    fn run_batch(
        &mut self,
        session: &mut Session,
        input: &[u8],
        started: u64,
        out: &mut Output,
    ) -> Option<usize> {
        let pause_bytes = self.output_pause_bytes();
        let mut executor = Executor {
            shared: &self.shared,
            params: &self.params,
            worker: &mut self.worker,
            record: &mut self.record,
            now: self.now,
        };
        for (index, prepared) in self.prepared.iter().enumerate() {
            let args = self.batch.get(index, input);
            let gate_before = session.last_gate;
            let mut reply = ReplyWriter::new(out.buffer(), session.protocol);
            let start = reply.mark();
            let gate = executor.request(session, *prepared, args, reply.reborrow());
            if executor.is_lost(gate) {
                executor.reply_lost(session, gate_before, &start, &mut reply);
                out.hold(0);
            } else if !gate.is_open_at(executor.worker.durable) {
                executor.worker.note_gate(gate, session.last_command);
                out.hold(gate.position());
            } else {
                out.hold(0);
            }
            if session.wait == Some(Wait::Pause) {
                return Some(index);
            }
            // What it has published itself comes behind the reply to that, as what others have.
            if session.subscriptions.is_some()
                && !catch_up(executor.shared, executor.worker, session, out)
            {
                return Some(index + 1);
            }
            let goes_on = !session.closing && session.wait.is_none();
            let worker = &executor.worker;
            let has_had_its_share = out.pending_bytes() > pause_bytes
                || worker.has_served_its_share(started)
                || worker.backlog.is_some();
            if !goes_on || has_had_its_share || worker.has_new_settings {
                return Some(index + 1);
            }
        }
        None
    }

    /// Charges the connection for what it keeps. Closes it when there is no memory for its input.
    fn charge_resp(
        &mut self,
        session: &mut Session,
        unread: usize,
        out: &mut Output,
    ) -> Option<Next> {
        let pending = out.pending_bytes();
        let reached =
            self.worker.accounts.resp.charge(&mut session.charges, unread, pending).err()?;
        let text = format!("OOM {reached}");
        ReplyWriter::new(out.buffer(), session.protocol).error(&text);
        self.worker.tally.error(None, &text);
        session.closing = true;
        Some(Next::Close)
    }
}

/// Unread bytes that must be there before the unfinished request can be complete; 0: unknown.
fn unread_needed(session: &Session, unread: usize) -> usize {
    match session.decoder.needed() {
        0 => 0,
        more => unread + more,
    }
}
