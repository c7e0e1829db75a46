//! FAILOVER: hands the role of the master over to a replica, without losing a write.
//!
//! The command has paused writes, and this server takes no more of them. When a replica has everything on its
//! disk, this server becomes its replica, and requests its promotion together with the stream.

use std::time::Duration;

use super::link::LinkError;
use super::{EndOfLink, pass_fence};
use crate::config::MasterAddress;
use crate::engine::clock;
use crate::engine::replication::{Failover, FailoverStage, Replaced, Replica};
use crate::engine::role_change;
use crate::engine::server_state::ServerState;

/// Time between two checks of whether a replica has everything.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Why the role was not handed over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Reason {
    #[error("it was aborted")]
    Aborted,
    #[error("no replica had all records in time")]
    Late,
    #[error("another server has replaced this master")]
    Replaced,
    #[error("the server is stopping")]
    Stopping,
}

/// Waits until a replica has everything, and makes this server its replica. Does nothing if no
/// failover was requested.
pub(super) fn begin(shared: &ServerState) {
    let failover = shared.replication.failover().clone();
    let Some(failover) = failover.filter(|one| one.stage <= FailoverStage::Aborted) else { return };
    match wait_for_replica(shared, &failover) {
        Ok(target) => hand_over(shared, target),
        Err(reason) => abort(shared, &reason),
    }
}

/// Makes this server confirm no write by its replicas, and a replica of its target.
pub(crate) fn hand_over(shared: &ServerState, target: MasterAddress) {
    tracing::info!(%target, "handing over to a replica");
    if let Some(epoch) = shared.replication.epochs().0
        && let Err(error) = role_change::replace(shared, &epoch.id, Replaced::HandsOver)
    {
        tracing::warn!(%error, "handing over without its own stream");
    }
    role_change::set_source(shared, target);
}

/// Takes no more writes, and waits until a replica has all of them. Returns its address.
fn wait_for_replica(shared: &ServerState, failover: &Failover) -> Result<MasterAddress, Reason> {
    let replication = &shared.replication;
    let is_late = || clock::mono_now() >= failover.deadline;
    replication.refuse_writes();
    let is_over = || replication.signal.is_over() || replication.is_failover_aborted() || is_late();
    let is_quiet = pass_fence(shared, &is_over);
    let position = replication.note_own_position(&shared.log);
    shared.log.request_sync(shared.log.next());
    let position = position.filter(|_| is_quiet);
    loop {
        if let Some(step) = next_step(shared, failover, position, is_late()) {
            return step;
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
}

/// Whether a failover hands over now, and to which replica. `None`: it waits. `position`: that of all
/// writes, which have ended.
pub(crate) fn next_step(
    shared: &ServerState,
    failover: &Failover,
    position: Option<u64>,
    is_late: bool,
) -> Option<Result<MasterAddress, Reason>> {
    let replication = &shared.replication;
    if replication.signal.is_over() {
        return Some(Err(Reason::Stopping));
    }
    let has_all =
        |replica: &Replica| replica.is_online && position.is_some_and(|all| replica.durable >= all);
    let is_target = |replica: &Replica| match &failover.target {
        Some(target) => *target == replica.place(),
        None => replica.port != 0,
    };
    let replicas = replication.replicas().list();
    let found = replicas.iter().find(|one| is_target(one) && has_all(one)).map(Replica::place);
    let forced = failover.target.clone().filter(|_| failover.is_forced && is_late);
    if let Some(target) = found.or(forced) {
        // The next step cannot be aborted: the replica may have been promoted.
        let has_begun = replication.begin_hand_over();
        return Some(if has_begun { Ok(target) } else { Err(Reason::Aborted) });
    }
    if replication.is_failover_aborted() {
        return Some(Err(Reason::Aborted));
    }
    if replication.replicas().is_fenced() {
        return Some(Err(Reason::Replaced));
    }
    is_late.then_some(Err(Reason::Late))
}

/// Ends a failover whose replica is the master now: it has sent its stream.
pub(crate) fn complete(shared: &ServerState) {
    if shared.replication.end_failover(&shared.pause).is_some() {
        tracing::info!("the failover is complete");
        wake_all(shared);
    }
}

/// Ends a failover if the replica cannot have been promoted. Otherwise this server requests it again
/// as soon as it can be reached.
pub(super) fn consider_failure(shared: &ServerState, error: &EndOfLink) {
    if shared.replication.failover().is_none() {
        return;
    }
    let is_refused = matches!(error, EndOfLink::Link(LinkError::Refused { .. }));
    if shared.replication.note_broken_failover(is_refused) {
        abort(shared, error);
    } else {
        shared.pause.end_failover();
        wake_all(shared);
    }
}

/// Makes this server the master that it was.
pub(crate) fn abort(shared: &ServerState, reason: &dyn std::fmt::Display) {
    tracing::warn!(%reason, "the failover has failed: this server stays the master");
    role_change::end_hand_over(shared);
    role_change::resume(shared);
    shared.replication.end_failover(&shared.pause);
    wake_all(shared);
}

/// Resumes the clients that the failover has paused.
fn wake_all(shared: &ServerState) {
    shared.links().wakers().for_each(|waker| waker.wake());
}
