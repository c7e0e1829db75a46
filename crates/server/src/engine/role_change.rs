//! Changes of the role of this server, whose history is part of the data.

use std::sync::Arc;

use binlog::Lsn;
use store::{Params, StoreError};
use wire::replication::EpochId;

use super::commit::{Record, Unit};
use super::gate::Gate;
use super::reactor_state::ReactorState;
use super::replication::{History, Link, Role, put, stored_hash};
use super::server_state::ServerState;
use crate::config::{MasterAddress, ReplicaOf};

/// Why a replica cannot become a master.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PromoteError {
    #[error(
        "the copy of the master's data is incomplete; let it finish, choose another master, or \
         remove the data directory"
    )]
    Incomplete,
    #[error("could not store the history of replication: {0}")]
    Store(#[from] StoreError),
}

/// Makes a replica a master, which begins an epoch. The caller must have locked no stripe. Returns
/// the gate of the change of the history; `None` if the server is a master already.
pub(crate) fn promote(
    shared: &ServerState,
    reactor: &mut ReactorState,
    params: &Params,
    id: EpochId,
) -> Result<Option<Gate>, PromoteError> {
    let replication = &shared.replication;
    // No record is applied while this is locked, so the log does not grow.
    let applied = replication.applied();
    match replication.role() {
        Role::Master => return Ok(None),
        Role::Copying => return Err(PromoteError::Incomplete),
        Role::Replica => {}
    }
    // Before the first write of a client: recovery must know that this server assigns its position.
    let mut record = Record::default();
    // Stripes are locked before the link and the history: commands that read these have locked some.
    let locked = shared.keyspace.lock(std::iter::once(stored_hash()), params);
    let mut unit = Unit::of_server(shared, reactor, &mut record, locked);
    let mut link = replication.link();
    let mut history = replication.history();
    let mut promoted = history.clone();
    if promoted.own().is_none() {
        promoted.begin_epoch(id, shared.log.next(), *applied);
    }
    store(&mut unit, &promoted)?;
    let gate = unit.commit(reactor);
    *history = promoted;
    *link = Link { generation: link.generation + 1, ..Link::default() };
    replication.set_role(Role::Master);
    drop((applied, link, history));
    replication.signal.raise();
    // Replicas must learn the new epoch.
    shared.transfers.end_streams();
    set_option(shared, None);
    Ok(Some(gate))
}

/// Makes the server a replica of another one, and stores that as an option. False if it is that
/// already.
pub(crate) fn set_source(shared: &ServerState, master: MasterAddress) -> bool {
    let is_new = shared.replication.set_source(master.clone());
    if is_new {
        set_option(shared, Some(master));
    }
    is_new
}

/// Makes a server the master that it was: it refused writes, but has applied no record of another.
pub(crate) fn resume(shared: &ServerState) {
    let replication = &shared.replication;
    // No record is applied while this is locked.
    let applied = replication.applied();
    if replication.history().own().is_none() || replication.role() != Role::Replica {
        return;
    }
    let mut link = replication.link();
    *link = Link { generation: link.generation + 1, ..Link::default() };
    replication.set_role(Role::Master);
    drop((applied, link));
    set_option(shared, None);
}

/// Sets the option `replicaof`, so that CONFIG REWRITE stores it.
fn set_option(shared: &ServerState, master: Option<MasterAddress>) {
    let mut config = shared.config.lock();
    config.set_master(ReplicaOf(master));
    shared.settings.store(Arc::new(config.settings().clone()));
}

/// Begins the first epoch of a master that gets its first replica. The change is part of `unit`,
/// which has locked no stripe.
pub(crate) fn ensure_history(
    shared: &ServerState,
    unit: &mut Unit<'_>,
    id: EpochId,
) -> Result<(), StoreError> {
    let is_first = || shared.replication.history().is_empty();
    if shared.replication.role() != Role::Master || !is_first() {
        return Ok(());
    }
    let _applied = shared.replication.applied();
    lock_stored(unit);
    let mut history = shared.replication.history();
    if shared.replication.role() == Role::Master && history.is_empty() {
        let mut first = History::default();
        first.begin_epoch(id, Lsn(0), 0);
        store(unit, &first)?;
        *history = first;
    }
    Ok(())
}

/// Sets the role at the start of the server: a replica of `master`, or a master, which begins an
/// epoch if the data is that of a replica.
pub(crate) fn begin(
    shared: &ServerState,
    master: Option<MasterAddress>,
    reactor: &mut ReactorState,
    params: &Params,
    id: EpochId,
) -> Result<(), PromoteError> {
    let replication = &shared.replication;
    let is_of_replica = replication.history().own().is_none() && !replication.history().is_empty();
    if let Some(master) = master {
        replication.set_source(master);
    } else if is_of_replica {
        replication.set_role(Role::Replica);
        promote(shared, reactor, params, id)?;
    }
    Ok(())
}

/// Sets what a replica follows from now on, and the position that it has applied. The change is
/// part of `unit`. An empty history: its data is incomplete.
pub(crate) fn follow(
    shared: &ServerState,
    unit: &mut Unit<'_>,
    history: History,
    applied: &mut u64,
    position: u64,
) -> Result<(), StoreError> {
    store(unit, &history)?;
    unit.follow(position);
    *applied = position;
    let role = if history.is_empty() { Role::Copying } else { Role::Replica };
    if role == Role::Copying {
        shared.replication.note_given_up();
    }
    shared.replication.set_role(role);
    *shared.replication.history() = history;
    Ok(())
}

fn store(unit: &mut Unit<'_>, history: &History) -> Result<(), StoreError> {
    lock_stored(unit);
    let mut encoded = Vec::new();
    put(unit, history, |mutation| {
        mutation.encode(&mut encoded);
        Ok(())
    })?;
    unit.change_encoded(&encoded)
}

/// Locks the stripe of the stored history.
fn lock_stored(unit: &mut Unit<'_>) {
    let is_locked = unit.add_unless(stored_hash(), |_| false);
    assert!(is_locked, "it never gives up");
}
