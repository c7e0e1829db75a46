//! Following other servers. `peers` follows those of a group of masters, by `merge`. The rest of
//! this page is about following a master: a thread that connects to it, applies its stream, and acknowledges what is
//! on the disk. `link` is the connection, `apply` puts the stream into the data and the log,
//! `acknowledge` reports how far the log is durable.
//!
//! The thread of the link reads and applies in one place, so that a slow replica slows its master's
//! stream by the flow control of TCP and holds one frame in memory.

mod acknowledge;
mod apply;
mod channel;
mod failover;
mod link;
mod merge;
mod peers;
mod problem;
mod promotion;
mod reload;
mod set_aside;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::time::MonoNs;
use rand::RngCore as _;
use store::StoreError;
use wire::replication::{Header, Kind, Opening, take_members};

use crate::config::MasterAddress;
use crate::engine::clock;
use crate::engine::mail::{Fence, Mail};
use crate::engine::reactor_state::ReactorState;
use crate::engine::replication::{LinkState, Role, epoch_id};
use crate::engine::role_change;
use crate::engine::server_state::{ServerState, params};
use crate::handler::State;
use acknowledge::Acknowledger;
pub(crate) use apply::is_of_source_alone;
#[cfg(test)]
pub(crate) use apply::{Applied, Applier as StreamApplier};
use apply::{Applier, ApplyError};
#[cfg(test)]
pub(crate) use failover::{abort, complete, hand_over, next_step};
pub(crate) use link::{Link, LinkError, Login, PROGRAM};
#[cfg(test)]
pub(crate) use merge::Merger;
pub(crate) use peers::start_pulling;
use problem::Past;
#[cfg(test)]
pub(crate) use promotion::end_promotion;
pub(crate) use promotion::start_promotions;
use set_aside::set_aside;

/// Time between two attempts to reach the master.
const RETRY: Duration = Duration::from_secs(1);
/// Time between two checks of whether the log has room.
const ROOM_INTERVAL: Duration = Duration::from_micros(200);
/// Time between two checks of whether all reactors have finished their writes.
const FENCE_INTERVAL: Duration = Duration::from_millis(1);

/// Sets the role of the server before it serves clients: that of the option `replicaof`.
pub(crate) fn begin(shared: &ServerState) -> anyhow::Result<()> {
    let (now, settings) = (clock::unix_now(), shared.settings.load_full());
    let params = params(&settings, now, shared.keyspace.seed(), 0);
    let mut reactor = ReactorState::new(shared, 0);
    let id = epoch_id(|| rand::rng().next_u64());
    role_change::begin(shared, settings.replicaof.0.clone(), &mut reactor, &params, id)?;
    if shared.replication.role() == Role::Copying && settings.replicaof.0.is_none() {
        tracing::warn!(
            dir = %settings.dir.display(),
            "the copy of a master's data never completed, and replicaof is not set; no data is \
             served before REPLICAOF has completed it"
        );
    }
    Ok(())
}

/// The thread that follows a master.
#[derive(Debug)]
pub(crate) struct Follower(JoinHandle<()>);

/// Starts the thread.
pub(crate) fn start(state: &State) -> io::Result<Follower> {
    let state = state.clone();
    let run = move || {
        let mut past = Past::default();
        while state.shared.replication.signal.wait() {
            follow_masters(&state, &mut past);
        }
    };
    std::thread::Builder::new().name("replica".to_owned()).spawn(run).map(Follower)
}

impl Follower {
    pub(crate) fn stop(self, shared: &ServerState) {
        shared.replication.signal.end();
        if self.0.join().is_err() {
            tracing::error!("the replication thread panicked");
        }
    }
}

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
enum EndOfLink {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error("could not store the history of replication: {0}")]
    Store(StoreError),
    #[error("could not set aside the writes that the master does not have: {0}")]
    SetAside(io::Error),
}

/// Follows the current master, and each one that replaces it, until there is none.
fn follow_masters(state: &State, past: &mut Past) {
    let replication = &state.shared.replication;
    loop {
        failover::begin(&state.shared);
        let link = replication.link().clone();
        let (Some(master), generation) = (link.source, link.generation) else { return };
        let is_current = || replication.link().generation == generation;
        let ended = follow(state, &master, generation, past);
        if replication.signal.is_over() {
            return;
        }
        if is_current() {
            if let Err(error) = ended {
                if matches!(error, EndOfLink::Apply(ApplyError::Circle)) {
                    keep_taken_role(&state.shared);
                } else {
                    past.must_copy |= matches!(error, EndOfLink::Apply(_));
                }
                let problem = format!("{master} {error}");
                if let Some(unlogged) = past.last_problem.note(problem, Instant::now()) {
                    tracing::warn!(%master, %error, unlogged, "the link to the master ended");
                }
                failover::consider_failure(&state.shared, &error);
            }
            let mut link = replication.link();
            (link.state, link.heard) = (LinkState::Connecting, clock::mono_now());
            drop(link);
            if !replication.signal.wait_for(RETRY) {
                return;
            }
        }
    }
}

fn follow(
    state: &State,
    master: &MasterAddress,
    generation: u64,
    past: &mut Past,
) -> Result<(), EndOfLink> {
    let shared = &state.shared;
    let is_over = || {
        shared.replication.signal.is_over() || shared.replication.link().generation != generation
    };
    if !pass_fence(shared, &is_over) {
        return Ok(());
    }
    end_mastership(shared);
    end_own_writes(shared).map_err(EndOfLink::Store)?;
    let mut applier = Applier::new(state, generation);
    let request = if past.must_copy { None } else { applier.request() };
    let mut link = Link::open(shared, master, request, &is_over)?;
    let acknowledger = Acknowledger::start(shared, link.writer()?).map_err(LinkError::Io)?;
    let link = (master, generation, &mut link);
    let ended = apply_stream(shared, link, &mut applier, &acknowledger, past, &is_over);
    if let Err(error) = applier.leave(clock::now()) {
        tracing::debug!(%error, "could not log the position in the stream");
    }
    ended
}

/// Applies what a link receives until it ends.
fn apply_stream(
    shared: &ServerState,
    (master, generation, link): (&MasterAddress, u64, &mut Link),
    applier: &mut Applier<'_>,
    acknowledger: &Acknowledger,
    past: &mut Past,
    is_over: &dyn Fn() -> bool,
) -> Result<(), EndOfLink> {
    let peer = link.peer().map_err(LinkError::Io)?;
    loop {
        let Some(frame) = link.read_frame(is_over)? else { return Ok(()) };
        let Header { kind, base, end, .. } = frame.header;
        if kind == Kind::Members {
            let list = take_members(frame.contents).map_err(LinkError::Stream)?;
            shared.replication.members.receive(generation, list, peer.ip().to_canonical());
            continue;
        }
        if matches!(kind, Kind::Copy | Kind::Resume) {
            let opening = Opening::decode(&frame).map_err(LinkError::Stream)?;
            if kind == Kind::Copy {
                set_aside(shared, &opening.epochs, base, is_over).map_err(EndOfLink::SetAside)?;
            }
            let program = opening.program;
            tracing::info!(%master, program, position = base, "the stream of the master begins");
            let mut current = shared.replication.link();
            if current.generation == generation {
                (current.source_program, current.peer) = (program, Some(peer));
            }
        }
        while !applier.has_room() {
            if is_over() {
                return Ok(());
            }
            std::thread::sleep(ROOM_INTERVAL);
        }
        let applied = applier.apply(clock::now(), &frame)?;
        past.worked();
        failover::complete(shared);
        acknowledger.note(applied);
        let mut current = shared.replication.link();
        if current.generation == generation {
            current.heard = clock::mono_now();
            current.state = applier.link_state();
            current.source_position = current.source_position.max(end);
            let copied = if applier.is_copying() { frame.contents.len() as u64 } else { 0 };
            current.copied_bytes += copied;
        }
    }
}

/// Makes a server the master that FAILOVER has made it, if only its configuration, which is of the time
/// before, makes it a replica of its own replica.
pub(crate) fn keep_taken_role(shared: &ServerState) {
    if shared.replication.link().is_outdated && role_change::resume(shared) {
        tracing::warn!(
            "the configured master follows this server since FAILOVER: this server stays the master; \
             CONFIG REWRITE stores that"
        );
    }
}

/// Separates what this server has written as a master from what its next master may have of an
/// earlier run. If it has written nothing, it continues there.
pub(crate) fn end_own_writes(shared: &ServerState) -> Result<(), StoreError> {
    if shared.replication.unsynced.lost_from().is_none() {
        return Ok(());
    }
    let mut reactor = ReactorState::of_link(shared);
    let params = reactor.begin_off_reactor(shared, clock::now());
    let id = epoch_id(|| rand::rng().next_u64());
    let lost_from = shared.replication.unsynced.lost_from();
    let has_written = |end| Some(end) > lost_from;
    let stored = role_change::begin_lost_epoch(shared, &mut reactor, &params, id, has_written);
    reactor.end_off_reactor(shared);
    reactor.accounts.flush();
    stored
}

/// Ends what clients wait for at this server as a master.
fn end_mastership(shared: &ServerState) {
    if std::mem::take(&mut shared.replication.link().was_master) {
        for mailbox in shared.links().mailboxes() {
            if mailbox.send(Mail::Demoted).is_err() {
                tracing::warn!("could not notify a reactor of the change to a replica");
            }
        }
    }
}

/// Waits until every reactor, and every thread of long requests, has ended the writes that it began
/// at a master. False if the link has ended before.
fn pass_fence(shared: &ServerState, is_over: &dyn Fn() -> bool) -> bool {
    let fence = Fence::new(shared.links().mailboxes().len());
    for mailbox in shared.links().mailboxes() {
        while mailbox.send(Mail::Fence(Arc::clone(&fence))).is_err() {
            if is_over() {
                return false;
            }
            std::thread::sleep(FENCE_INTERVAL);
        }
    }
    while !fence.is_passed() || shared.long_requests.is_writing() {
        if is_over() {
            return false;
        }
        std::thread::sleep(FENCE_INTERVAL);
    }
    true
}

/// Monotonic time, as the log's functions take it.
fn mono_now() -> MonoNs {
    clock::mono_now()
}
