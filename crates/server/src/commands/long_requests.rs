//! Runs requests that process more elements than `elements-per-command-max`: see
//! [`crate::engine::long_requests`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use base::time::Now;
use wire::resp::{Args, ReplyRoom};

use super::blocking::NEVER;
use super::command::{Done, Flags};
use super::context::CommandContext;
use super::fail::Fail;
use super::registry::{Entry, REGISTRY};
use super::session::{Requests, Wait};
use crate::engine::blocked::{BlockedClient, BlockedRequest, Claim};
use crate::engine::clock;
use crate::engine::commit::Record;
use crate::engine::context::ReactorContext;
use crate::engine::reactor_state::ReactorState;
use crate::engine::reply_reservation::reply_room;
use crate::engine::server_state::ServerState;
use crate::protocol::ClientProtocol;

/// Time between two attempts to run a request whose data another thread holds, or that may not
/// write yet.
const REST: Duration = Duration::from_millis(1);

/// Starts the threads.
pub(crate) fn start(shared: &Arc<ServerState>) -> io::Result<()> {
    for number in 0..shared.long_requests.threads_max {
        let of_thread = Arc::clone(shared);
        let run = move || work(&of_thread, number);
        shared.long_requests.threads.start(format!("long{number}"), run)?;
    }
    Ok(())
}

fn work(shared: &ServerState, number: usize) {
    let mut runner = Runner::new(shared, number);
    while let Some(client) = shared.long_requests.pop() {
        while !runner.run(&client, clock::now()) && !shared.long_requests.is_over() {
            std::thread::sleep(REST);
        }
    }
}

/// Runs the waiting requests on a test's own thread. Returns whether one has run.
#[cfg(test)]
pub(crate) fn run_waiting(shared: &ServerState, now: Now) -> bool {
    let mut has_run = false;
    for client in shared.long_requests.take() {
        if Runner::new(shared, 0).run(&client, now) {
            has_run = true;
        } else {
            assert!(shared.long_requests.push(&client), "as many have waited before");
        }
    }
    has_run
}

/// The state of one thread.
#[derive(Debug)]
struct Runner<'a> {
    shared: &'a ServerState,
    number: usize,
    reactor: ReactorState,
    record: Record,
    replies: ReplyRoom,
}

impl<'a> Runner<'a> {
    fn new(shared: &'a ServerState, number: usize) -> Runner<'a> {
        Runner {
            shared,
            number,
            reactor: ReactorState::of_long_requests(shared),
            record: Record::default(),
            replies: reply_room(&shared.memory, ClientProtocol::Resp),
        }
    }

    /// Runs a request. False if it has to be tried again later.
    fn run(&mut self, client: &Arc<BlockedClient>, now: Now) -> bool {
        let Runner { shared, reactor, record, replies, .. } = self;
        let is_write = REGISTRY.entry(client.request.id).command.flags.has(Flags::WRITE);
        if is_write && shared.is_lane_full(reactor.lane) {
            return false;
        }
        let writing = is_write.then(|| shared.long_requests.begin_write());
        if is_write && shared.pause.at(now.mono).is_some() {
            return false;
        }
        if client.claim() != Claim::Granted {
            return true; // the client has disconnected
        }
        let params = reactor.begin_off_reactor(shared, now);
        shared.running_scripts.begin_long(self.number, reactor.stamp);
        let mut context = ReactorContext {
            shared,
            params: &params,
            reactor,
            record,
            now,
            replies: Some(replies),
        };
        let ran = context.run_again(Arc::clone(client), NEVER);
        shared.running_scripts.end_long(self.number);
        shared.activities.end(reactor.index);
        drop(writing);
        reactor.publish_some(shared);
        reactor.end_off_reactor(shared);
        ran.is_ok()
    }
}

impl CommandContext<'_> {
    /// Whether a thread can run the request in place of this reactor: a single request of a
    /// connection that has changed nothing, and needs some of the stripes.
    pub(super) fn may_hand_over(&self) -> bool {
        !self.in_exec
            && self.session.source_of_requests == Requests::Client
            && !self.command.flags.has(Flags::RUNS_SCRIPT)
            && !self.locked.is_all()
            && !self.locked.has_written()
            && self.shared.long_requests.threads_max > 0
    }

    /// Waits until the log has room for the next record of a long request. Other requests are admitted
    /// only if there is room.
    pub(super) fn await_room(&self) {
        // A test's own thread writes the log.
        let waits = self.reactor.runs_long_requests && !cfg!(test);
        while waits && self.shared.is_lane_full(self.reactor.lane) {
            if self.shared.long_requests.is_over() {
                return;
            }
            std::thread::sleep(REST);
        }
    }

    /// Makes a thread run the request, and its client wait for the reply. Refuses a request that
    /// must run here.
    #[cold]
    pub(super) fn hand_over(&mut self, entry: &Entry, args: Args<'_>) -> Done {
        if !self.may_hand_over() {
            return Err(Fail::TooManyElements);
        }
        self.charge_wait(args, &[])?;
        let request = BlockedRequest { id: entry.id, args: args.to_owned(), keys: Vec::new() };
        let client = self.shared.blocked.add(self.blocked_connection(), request, NEVER);
        if !self.shared.long_requests.push(&client) {
            self.shared.blocked.remove(client.ticket);
            self.reactor.accounts.resp().unqueue(&mut self.session.charges);
            return Err(Fail::text("ERR too many requests that process many elements are waiting"));
        }
        self.is_blocked = true;
        self.session.wait = Some(Wait::LongRequest);
        self.session.details.rare().blocked = Some(client);
        Ok(())
    }
}
