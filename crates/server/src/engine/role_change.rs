//! Changes of the role of this server, whose history is part of the data.

use binlog::Lsn;
use store::StoreError;
use wire::replication::EpochId;

use super::commit::Unit;
use super::replication::{History, Link, Role, put, stored_hash};
use super::server_state::ServerState;
use crate::config::MasterAddress;

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

/// Makes a replica a master, which begins an epoch. The change of the history is part of `unit`,
/// which has locked no stripe. False if the server is a master already.
pub(crate) fn promote(
    shared: &ServerState,
    unit: &mut Unit<'_>,
    id: EpochId,
) -> Result<bool, PromoteError> {
    let replication = &shared.replication;
    // No record is applied while this is locked, so the log does not grow.
    let applied = replication.applied();
    match replication.role() {
        Role::Master => return Ok(false),
        Role::Copying => return Err(PromoteError::Incomplete),
        Role::Replica => {}
    }
    let mut link = replication.link();
    let mut history = replication.history();
    let mut promoted = history.clone();
    if promoted.own().is_none() {
        promoted.begin_epoch(id, shared.log.next(), *applied);
    }
    store(unit, &promoted)?;
    *history = promoted;
    *link = Link { generation: link.generation + 1, ..Link::default() };
    replication.set_role(Role::Master);
    drop((applied, link, history));
    replication.signal.raise();
    // Replicas must learn the new epoch.
    shared.rdb_transfers.end_streams();
    Ok(true)
}

/// Begins the first epoch of a master that gets its first replica. The change is part of `unit`,
/// which has locked no stripe.
pub(crate) fn ensure_history(
    shared: &ServerState,
    unit: &mut Unit<'_>,
    id: EpochId,
) -> Result<(), StoreError> {
    let _applied = shared.replication.applied();
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
/// epoch by `unit` if the data is that of a replica.
pub(crate) fn begin(
    shared: &ServerState,
    master: Option<MasterAddress>,
    unit: &mut Unit<'_>,
    id: EpochId,
) -> Result<(), PromoteError> {
    let replication = &shared.replication;
    let is_of_replica = replication.history().own().is_none() && !replication.history().is_empty();
    if let Some(master) = master {
        replication.set_source(master);
    } else if is_of_replica {
        replication.set_role(Role::Replica);
        promote(shared, unit, id)?;
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
    shared.replication.set_role(role);
    *shared.replication.history() = history;
    Ok(())
}

fn store(unit: &mut Unit<'_>, history: &History) -> Result<(), StoreError> {
    let is_locked = unit.add_unless(stored_hash(), || false);
    assert!(is_locked, "it never gives up");
    let mut encoded = Vec::new();
    put(unit, history, |mutation| {
        mutation.encode(&mut encoded);
        Ok(())
    })?;
    unit.change_encoded(&encoded)
}
