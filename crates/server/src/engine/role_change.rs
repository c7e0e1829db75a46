//! Changes of the role of this server, whose history is part of the data.

use std::io;
use std::sync::Arc;

use binlog::Lsn;
use store::{Mutation, Params, StoreError};
use wire::replication::EpochId;

use super::commit::{Record, Unit};
use super::gate::Gate;
use super::reactor_state::ReactorState;
use super::replication::{
    FailoverStage, History, Link, OldMaster, Replaced, Role, StoredRow, epoch_file, put, remove,
    stored, stored_hash,
};
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

/// By what a replica is promoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Promoter {
    /// REPLICAOF NO ONE, or a start without a master.
    Operator,
    /// REPLICAOF NO ONE, if the server still has the link of this generation.
    OperatorOnLink(u64),
    /// FAILOVER of its master.
    Master,
}

/// Makes a replica a master, which begins an epoch. The caller must have locked no stripe. Returns
/// the gate of the change of the history; `None` if the server is a master already.
pub(crate) fn promote(
    shared: &ServerState,
    reactor: &mut ReactorState,
    params: &Params,
    (id, promoter): (EpochId, Promoter),
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
    if let Promoter::OperatorOnLink(generation) = promoter
        && link.generation != generation
    {
        return Ok(None);
    }
    let mut history = replication.history();
    let mut promoted = history.clone();
    if promoted.own().is_none() {
        promoted.begin_epoch(id, shared.log.next(), *applied);
        replication.replicas().begin_at(*applied);
    }
    store(&mut unit, &promoted)?;
    if let (Promoter::Master, Some(master)) = (promoter, &link.source) {
        change_row(&mut unit, StoredRow::TakenOver, Some(master.to_string().as_bytes()))?;
    }
    let gate = unit.commit(reactor);
    let known = history.epoch().map(|epoch| epoch.id);
    if let (Some(address), Some(epoch)) = (link.source.take(), known) {
        *replication.old_master() = Some(OldMaster { address, epoch });
    }
    *history = promoted;
    *link = Link { generation: link.generation + 1, ..Link::default() };
    replication.replicas().lift_fence(None);
    replication.set_role(Role::Master);
    drop((applied, link, history));
    replication.signal.raise();
    replication.promotions.raise();
    // Replicas must learn the new epoch.
    shared.transfers.end_streams();
    set_option(shared, None);
    Ok(Some(gate))
}

/// Why a server does not give up confirming writes for another one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReplacedError {
    #[error("this server is not the master of that replica")]
    NotMaster,
}

/// Makes a master confirm no write by its replicas from now on, because one of them, whose newest
/// epoch is `epoch`, replaces it. Returns the position of the stream after which nothing was
/// confirmed.
///
/// The thread of promotions stores that soon after this ([`store_replaced`]).
pub(crate) fn replace(
    shared: &ServerState,
    epoch: &EpochId,
    why: Replaced,
) -> Result<u64, ReplacedError> {
    let replication = &shared.replication;
    let _applied = replication.applied();
    let history = replication.history();
    let is_common = history.epochs().iter().any(|known| known.id == *epoch);
    if history.own().is_none() || !is_common {
        return Err(ReplacedError::NotMaster);
    }
    drop(history);
    let confirmed = replication.replicas().fence(why, replication.end(&shared.log));
    replication.promotions.raise();
    Ok(confirmed)
}

/// Makes a master that another server has replaced confirm writes again. False if it does already.
pub(crate) fn reinstate(shared: &ServerState) -> bool {
    let is_reinstated = shared.replication.replicas().lift_fence(None);
    shared.replication.promotions.raise();
    is_reinstated
}

/// Notes that the replica of a failover is asked now to become the master. False if there is no
/// failover. A restart of this server, as the master of its configuration, must confirm nothing: the
/// replica may have been promoted. Blocking.
pub(crate) fn begin_request(shared: &ServerState) -> io::Result<bool> {
    let replication = &shared.replication;
    let stage = replication.failover().as_ref().map(|failover| failover.stage);
    if stage == Some(FailoverStage::Connecting) {
        store_replaced(shared)?;
    }
    Ok(replication.begin_request())
}

/// Ends what a failover that has failed has set: this server is the master that it was.
pub(crate) fn end_hand_over(shared: &ServerState) {
    shared.replication.replicas().lift_fence(Some(Replaced::HandsOver));
    shared.replication.promotions.raise();
}

/// Stores durably whether another server has replaced this one, or may have, so that a restart knows.
/// Blocking.
pub(crate) fn store_replaced(shared: &ServerState) -> io::Result<()> {
    let (replication, disk) = (&shared.replication, &*shared.snapshots.disk);
    let mut is_stored = replication.is_replaced_stored.lock();
    let epoch = {
        let history = replication.history();
        history.epoch().filter(|_| history.own().is_some()).map(|epoch| epoch.id)
    };
    match epoch.filter(|_| replication.replicas().is_fenced()) {
        Some(epoch) if !*is_stored => epoch_file::write(disk, epoch_file::REPLACED, &epoch, 0)?,
        None if *is_stored => epoch_file::remove(disk, epoch_file::REPLACED)?,
        _ => return Ok(()),
    }
    *is_stored = !*is_stored;
    Ok(())
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
/// False if it has, or is a master.
pub(crate) fn resume(shared: &ServerState) -> bool {
    let replication = &shared.replication;
    // No record is applied while this is locked.
    let applied = replication.applied();
    if replication.history().own().is_none() || replication.role() != Role::Replica {
        return false;
    }
    let mut link = replication.link();
    *link = Link { generation: link.generation + 1, ..Link::default() };
    replication.set_role(Role::Master);
    drop((applied, link));
    set_option(shared, None);
    true
}

/// Removes the option `replicaof`: a promotion has begun.
pub(crate) fn forget_source_option(shared: &ServerState) {
    set_option(shared, None);
}

/// Sets the option `replicaof` again: a promotion has failed.
pub(crate) fn restore_source_option(shared: &ServerState, master: MasterAddress) {
    set_option(shared, Some(master));
}

/// Sets the option `replicaof`, so that CONFIG REWRITE stores it.
fn set_option(shared: &ServerState, master: Option<MasterAddress>) {
    let mut config = shared.config.lock();
    config.set_master(ReplicaOf(master));
    shared.settings.store(Arc::new(config.settings().clone()));
}

/// Begins the epoch that a reader of the stream needs: the first one of a master that gets its first
/// replica, or the one that [unsynced](crate::engine::replication::unsynced) records of an earlier
/// run require. The change is part of `unit`, which has locked no stripe.
pub(crate) fn ensure_epoch(
    shared: &ServerState,
    unit: &mut Unit<'_>,
    id: EpochId,
) -> Result<(), StoreError> {
    let replication = &shared.replication;
    let is_due = || replication.history().is_empty() || replication.unsynced.lost_from().is_some();
    if replication.role() != Role::Master || !is_due() {
        return Ok(());
    }
    let _applied = replication.applied();
    lock_stored(unit);
    if replication.role() != Role::Master {
        return Ok(());
    }
    let mut history = replication.history();
    let mut begun = history.clone();
    if begun.is_empty() {
        begun.begin_epoch(id, Lsn(0), 0);
    } else if let Some(lost_from) = replication.unsynced.lost_from() {
        begun.continue_in_epoch(id, lost_from);
    } else {
        return Ok(());
    }
    store(unit, &begun)?;
    replication.unsynced.reset();
    *history = begun;
    Ok(())
}

/// Begins the epoch that is due after an earlier run. `is_needed` decides at the end of the stream.
pub(crate) fn begin_lost_epoch(
    shared: &ServerState,
    reactor: &mut ReactorState,
    params: &Params,
    id: EpochId,
    is_needed: impl Fn(u64) -> bool,
) -> Result<(), StoreError> {
    let replication = &shared.replication;
    let _applied = replication.applied();
    let mut record = Record::default();
    let locked = shared.keyspace.lock(std::iter::once(stored_hash()), params);
    let mut unit = Unit::of_server(shared, reactor, &mut record, locked);
    let mut history = replication.history();
    let end = history.position(shared.log.next());
    let lost_from = replication.unsynced.lost_from();
    let Some(lost_from) = lost_from.filter(|_| end.is_some_and(is_needed)) else {
        return Ok(());
    };
    let mut begun = history.clone();
    begun.continue_in_epoch(id, lost_from);
    store(&mut unit, &begun)?;
    unit.commit(reactor);
    replication.unsynced.reset();
    *history = begun;
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
        let taken_over = {
            let locked = shared.keyspace.lock_one(stored_hash(), params);
            stored(&locked, StoredRow::TakenOver)
        };
        let is_outdated = taken_over.is_some_and(|option| option == master.to_string().as_bytes());
        replication.set_source(master);
        replication.link().is_outdated = is_outdated;
    } else if is_of_replica {
        replication.set_role(Role::Replica);
        promote(shared, reactor, params, (id, Promoter::Operator))?;
    }
    if replication.unsynced.must_begin_at_once() {
        begin_lost_epoch(shared, reactor, params, id, |_| true)?;
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
    change_row(unit, StoredRow::TakenOver, None)?;
    shared.replication.replicas().begin_at(position);
    shared.replication.unsynced.reset();
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
    change_row(unit, StoredRow::History, Some(&history.encode()))
}

/// Stores a row, or removes it if it is there.
fn change_row(
    unit: &mut Unit<'_>,
    row: StoredRow,
    contents: Option<&[u8]>,
) -> Result<(), StoreError> {
    lock_stored(unit);
    let mut encoded = Vec::new();
    let mut add = |mutation: &Mutation<'_>| {
        mutation.encode(&mut encoded);
        Ok(())
    };
    match contents {
        Some(contents) => put(unit, row, contents, add)?,
        None if stored(unit, row).is_some() => remove(unit, row, &mut add)?,
        None => {}
    }
    unit.change_encoded(&encoded)
}

/// Locks the stripe of the stored history.
fn lock_stored(unit: &mut Unit<'_>) {
    let is_locked = unit.add_unless(stored_hash(), |_| false);
    assert!(is_locked, "it never gives up");
}
