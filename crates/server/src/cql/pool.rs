//! Requests that run on pool threads instead of on the reactor that read them.
//!
//! Requests with passwords take tens of milliseconds and always run on a pool. The experiment
//! `reply` pool runs all statements on a second pool, at the cost of a queue that all reactors and
//! threads share, a copy of each request, and a message to the reactor for each response.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use wire::cql::{Compression, Header, Limits, Opcode};

use super::password_checks::{Party, PasswordChecks};
use super::processor::Processor;
use super::requests::Requests;
use super::state::CqlState;
use crate::engine::clock;
use crate::engine::mail::{CqlReply, Mail};
use crate::engine::reactor_state::ReactorState;
use crate::engine::server_state::ServerState;
use crate::engine::threads::Threads;
use crate::statements::executor::ClientState;
use reactor::ConnId;

/// A request for a pool thread.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) reactor_index: usize,
    pub(crate) id: ConnId,
    pub(crate) header: Header,
    /// As received.
    pub(crate) body: Vec<u8>,
    pub(crate) compression: Option<Compression>,
    pub(crate) limits: Limits,
    pub(crate) client: ClientState,
}

/// A queue and its threads.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    queue: Mutex<Queue>,
    filled: Condvar,
    threads: Threads,
}

#[derive(Debug, Default)]
struct Queue {
    calls: VecDeque<Call>,
    logins: PasswordChecks,
    /// Whether the last call taken was a login: calls and logins take turns.
    was_login: bool,
    is_closed: bool,
}

impl Queue {
    fn pop(&mut self) -> Option<Call> {
        let call = if self.was_login { self.calls.pop_front() } else { None };
        if call.is_some() {
            self.was_login = false;
            return call;
        }
        let login = self.logins.pop();
        self.was_login = login.is_some();
        login.or_else(|| self.calls.pop_front())
    }
}

impl Pool {
    /// Starts the threads of one of the server's pools.
    pub(crate) fn start(
        shared: &Arc<ServerState>,
        cql: &Arc<CqlState>,
        pool: fn(&CqlState) -> &Pool,
        name: &str,
        threads: usize,
    ) -> std::io::Result<()> {
        for number in 0..threads {
            let (shared, of_thread) = (Arc::clone(shared), Arc::clone(cql));
            let run = move || work(&shared, &of_thread, pool(&of_thread), number);
            pool(cql).threads.start(format!("{name}{number:02}"), run)?;
        }
        Ok(())
    }

    /// Stops the pool after the queued calls have run.
    pub(crate) fn stop(&self) {
        self.queue.lock().is_closed = true;
        self.filled.notify_all();
        self.threads.join();
    }

    /// Queues a call. Returns false and drops the call if `calls_max` are waiting.
    pub(crate) fn push(&self, call: Call, calls_max: usize) -> bool {
        let mut queue = self.queue.lock();
        if queue.calls.len() >= calls_max || queue.is_closed {
            return false;
        }
        queue.calls.push_back(call);
        drop(queue);
        self.filled.notify_one();
        true
    }

    /// Adds a login whose password is to be checked. If too many wait, returns the login that is
    /// refused instead.
    pub(crate) fn push_login(&self, party: Party, call: Call) -> Option<Call> {
        let mut queue = self.queue.lock();
        let refused = if queue.is_closed { Some(call) } else { queue.logins.push(party, call) };
        drop(queue);
        self.filled.notify_one();
        refused
    }

    /// Removes the next call, waiting for one if needed. Returns `None` when the pool has stopped.
    fn pop(&self) -> Option<Call> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(call) = queue.pop() {
                return Some(call);
            }
            if queue.is_closed {
                return None;
            }
            self.filled.wait(&mut queue);
        }
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        let queue = self.queue.lock();
        queue.calls.len() + queue.logins.len()
    }
}

/// Runs the waiting calls on a test's own thread.
#[cfg(test)]
pub(crate) fn run_waiting(shared: &ServerState, cql: &CqlState) {
    let mut reactor = ReactorState::new(shared, 0);
    let mut processor = Processor::default();
    loop {
        let calls = [
            #[cfg(feature = "experiments")]
            &cql.pool,
            &cql.password_pool,
        ];
        let call = calls.iter().find_map(|pool| pool.queue.lock().pop());
        let Some(call) = call else { return };
        let (reactor_index, reply) = run(shared, cql, &mut reactor, &mut processor, call);
        let sent = shared.links().mailboxes()[reactor_index].send(Mail::CqlReply(Box::new(reply)));
        assert!(sent.is_ok(), "the mailbox is full");
    }
}

/// Runs calls until the pool stops. Log records are written to the lane of a reactor.
fn work(shared: &ServerState, cql: &CqlState, pool: &Pool, number: usize) {
    let mut reactor = ReactorState::off_reactor(shared, number % shared.reactors.regular);
    let mut processor = Processor::default();
    while let Some(call) = pool.pop() {
        let (reactor_index, reply) = run(shared, cql, &mut reactor, &mut processor, call);
        let mail = Mail::CqlReply(Box::new(reply));
        if shared.links().mailboxes()[reactor_index].send(mail).is_err() {
            tracing::warn!(reactor = reactor_index, "could not deliver a response to its reactor");
        }
    }
}

fn run(
    shared: &ServerState,
    cql: &CqlState,
    reactor: &mut ReactorState,
    processor: &mut Processor,
    call: Call,
) -> (usize, CqlReply) {
    let Call { reactor_index, id, header, body, compression, limits, mut client } = call;
    let now = clock::now();
    let params = reactor.begin_off_reactor(shared, now);
    let before = client.keyspace.clone();
    let mut message = Vec::new();
    let mut requests = Requests {
        shared,
        cql,
        params: &params,
        reactor,
        limits,
        connection: id,
        overload_odds: 0.0,
        now,
        allows_expensive: true,
    };
    let gate = requests.run_call(&mut client, processor, &header, &body, compression, &mut message);
    reactor.end_off_reactor(shared);
    let durability = client.durability;
    let keyspace = (client.keyspace != before).then_some(client.keyspace).flatten();
    let access = client.access.filter(|_| header.opcode == Opcode::AuthResponse as u8);
    (reactor_index, CqlReply { id, header, gate, message, durability, keyspace, access })
}
