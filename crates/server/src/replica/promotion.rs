//! Promotes this server without losing what its master has confirmed, and notifies a master that
//! this server has replaced it: such a master confirms no write by its replicas any more.

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use base::time::Now;
use rand::RngCore as _;
use wire::replication::EpochId;

use super::link::{Link, LinkError};
use super::mono_now;
use crate::engine::clock;
use crate::engine::gate::Gate;
use crate::engine::mail::{Mail, send_patiently};
use crate::engine::reactor_state::ReactorState;
use crate::engine::replication::{OldMaster, Promotion, REPLACED, Role, epoch_id};
use crate::engine::role_change::{self, Promoter};
use crate::engine::server_state::ServerState;
use crate::handler::State;

/// Time between two checks of whether a replica has what its master has confirmed.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Time between the first two attempts to notify a master that was replaced. It doubles with each.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// The reply of a promotion that another command has ended.
const SUPERSEDED: &str = "ERR another REPLICAOF has ended the promotion";
const FAILED: &str = "ERR could not promote this server; its log has the reason";

/// The thread that promotes this server.
#[derive(Debug)]
pub(crate) struct Promotions(JoinHandle<()>);

/// Starts the thread.
pub(crate) fn start_promotions(state: &State) -> io::Result<Promotions> {
    let shared = state.shared.clone();
    let run = move || {
        let mut retry = RETRY_MIN;
        let mut is_running = true;
        while is_running {
            if let Some(promotion) = shared.replication.promotion() {
                promote(&shared, &promotion);
                retry = RETRY_MIN;
            }
            let is_stored = role_change::store_replaced(&shared);
            if let Err(error) = &is_stored {
                tracing::error!(%error, "could not store whether another server replaces this one");
            }
            let signal = &shared.replication.promotions;
            let is_done = notify_old_master(&shared, retry == RETRY_MIN) && is_stored.is_ok();
            is_running = if is_done {
                retry = RETRY_MIN;
                signal.wait()
            } else {
                let waited = signal.wait_for(retry);
                retry = (2 * retry).min(RETRY_MAX);
                waited
            };
        }
    };
    std::thread::Builder::new().name("promotion".to_owned()).spawn(run).map(Promotions)
}

impl Promotions {
    pub(crate) fn stop(self, shared: &ServerState) {
        shared.replication.promotions.end();
        if self.0.join().is_err() {
            tracing::error!("the thread of promotions panicked");
        }
    }
}

/// Makes the master confirm nothing more, waits for what it has confirmed, and promotes this server.
fn promote(shared: &ServerState, promotion: &Promotion) {
    let replication = &shared.replication;
    let is_due = || {
        let current = replication.promotion();
        let current = current.as_ref().unwrap_or(promotion);
        replication.promotions.is_over() || replication.is_promotion_due(current, mono_now())
    };
    let Promotion { master, peer, epoch, .. } = promotion;
    match Link::replace_master(shared, master, Some(*peer), epoch, &is_due) {
        Ok(confirmed) => {
            replication.note_confirmed(confirmed, mono_now());
            while !is_due() {
                std::thread::sleep(CHECK_INTERVAL);
            }
        }
        Err(error) => {
            tracing::warn!(%master, %error, "promoting without an answer of the master, which may have \
                                             confirmed writes that this server lacks");
        }
    }
    if !replication.promotions.is_over() {
        end_promotion(shared, clock::now(), epoch_id(|| rand::rng().next_u64()));
    }
}

/// Promotes this server, unless REPLICAOF has ended the promotion, and replies to the clients that
/// wait for it.
pub(crate) fn end_promotion(shared: &ServerState, now: Now, id: EpochId) {
    let replication = &shared.replication;
    let Some(promotion) = replication.promotion() else { return };
    let mut reactor = ReactorState::of_link(shared);
    let params = reactor.begin_off_reactor(shared, now);
    let promoter = Promoter::OperatorOnLink(promotion.generation);
    let promoted = role_change::promote(shared, &mut reactor, &params, (id, promoter));
    reactor.end_off_reactor(shared);
    reactor.accounts.flush();
    let mut gate = Gate::OPEN;
    let error = match promoted {
        Ok(Some(of_epoch)) => {
            gate = of_epoch;
            shared.log.request_sync(gate.lsn().unwrap_or_default());
            note_promoted(shared, &promotion);
            None
        }
        Ok(None) if replication.role() == Role::Master => None,
        Ok(None) => Some(SUPERSEDED),
        Err(error) => {
            tracing::error!(%error, "could not promote this server");
            role_change::restore_source_option(shared, promotion.master.clone());
            Some(FAILED)
        }
    };
    replication.end_promotion(&shared.pause);
    for mailbox in shared.links().mailboxes() {
        // The mail also resumes the clients that were paused.
        send_patiently(mailbox, Mail::Promoted { error, gate }, &replication.promotions);
    }
}

fn note_promoted(shared: &ServerState, promotion: &Promotion) {
    let (applied, master) = (shared.replication.published(), &promotion.master);
    match promotion.missing(applied) {
        Some(0) => {
            tracing::info!(%master, applied, "the server is a master, by REPLICAOF NO ONE");
            // It has answered.
            *shared.replication.old_master() = None;
        }
        missing => tracing::warn!(
            %master,
            applied,
            missing,
            "the server is a master, by REPLICAOF NO ONE; it may lack writes that its old master \
             has confirmed"
        ),
    }
}

/// Notifies the master that this server has replaced. True if there is none, or it is notified.
fn notify_old_master(shared: &ServerState, is_first: bool) -> bool {
    let replication = &shared.replication;
    let Some(old) = replication.old_master().clone() else { return true };
    let is_over = || {
        let is_current = replication.old_master().as_ref() == Some(&old);
        replication.promotions.is_over() || !is_current
    };
    let OldMaster { address, epoch } = &old;
    match Link::replace_master(shared, address, None, epoch, &is_over) {
        Ok(_) => tracing::info!(master = %address, "the old master confirms no more writes"),
        // It is not a master, or a program that does not know the request.
        Err(LinkError::Refused { request: REPLACED, reply }) => {
            tracing::info!(master = %address, reply, "the old master was notified");
        }
        Err(error) => {
            if is_first && !is_over() {
                tracing::warn!(master = %address, %error, "could not notify the old master that this \
                                                           server has replaced it; trying again");
            }
            return is_over();
        }
    }
    let mut current = replication.old_master();
    if current.as_ref() == Some(&old) {
        *current = None;
    }
    true
}
