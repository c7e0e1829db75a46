//! The promotion of a replica whose master can be reached. The thread `crate::replica::promotion`
//! does it: the master first stops confirming writes by its replicas, and names the position up to
//! which it has confirmed them; the replica becomes a master when it has applied that.
//!
//! A replica that has not been connected since its start is promoted at once. A master that did not
//! answer is notified as soon as it can be reached.

use std::net::SocketAddr;

use base::time::MonoNs;
use parking_lot::MutexGuard;
use wire::replication::EpochId;

use super::{Link, LinkState, Replication, Role};
use crate::config::MasterAddress;
use crate::engine::pause::Pause;

/// The option of REPLCONF by which a replica that is promoted notifies its master. The value is the
/// newest epoch of both, and the reply the position up to which the master has confirmed writes.
pub(crate) const REPLACED: &str = "replaced-epoch";

/// A master that does not answer within this time has probably stopped.
pub(crate) const ANSWER_NS_MAX: u64 = 1_000_000_000;

/// Time in which a replica receives what its master has confirmed: that is in the buffers of the
/// link, or about to be sent.
const CATCH_UP_NS_MAX: u64 = 10_000_000_000;

/// Time in which a link that is down can be up again. It is tried each second.
const RECONNECT_NS_MAX: u64 = 3_000_000_000;

/// A promotion that has not ended.
#[derive(Debug, Clone)]
pub(crate) struct Promotion {
    /// The master, and where the link is connected to.
    pub(crate) master: MasterAddress,
    pub(crate) peer: SocketAddr,
    /// The newest epoch of both servers.
    pub(crate) epoch: EpochId,
    /// Of the link.
    pub(crate) generation: u64,
    /// The server is promoted then if the master has not answered.
    deadline: MonoNs,
    /// The position up to which the master has confirmed writes before it stopped that, and when it
    /// has answered.
    confirmed: Option<(u64, MonoNs)>,
}

/// A master that another server has replaced, and that may not have been notified of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OldMaster {
    pub(crate) address: MasterAddress,
    /// The newest epoch that this server had in common with it.
    pub(crate) epoch: EpochId,
}

impl Replication {
    /// Begins the promotion of a replica that has been connected to its master, and pauses writes.
    /// False if it has not.
    pub(crate) fn begin_promotion(&self, now: MonoNs, pause: &Pause) -> bool {
        let mut promotion = self.promotion.lock();
        let Link { source, peer, generation, .. } = self.link().clone();
        // One of an earlier link has been superseded.
        if promotion.as_ref().is_some_and(|begun| begun.generation == generation) {
            return true;
        }
        let epoch = self.history().epoch().map(|epoch| epoch.id);
        let (Some(master), Some(peer), Some(epoch), Role::Replica) =
            (source, peer, epoch, self.role())
        else {
            return false;
        };
        let deadline = MonoNs(now.0.saturating_add(ANSWER_NS_MAX));
        if promotion.is_none() {
            pause.begin_failover();
        }
        *promotion = Some(Promotion { master, peer, epoch, generation, deadline, confirmed: None });
        self.promotions.raise();
        true
    }

    pub(crate) fn promotion(&self) -> Option<Promotion> {
        self.promotion.lock().clone()
    }

    /// Notes that the master confirms nothing more, and up to where it has.
    pub(crate) fn note_confirmed(&self, confirmed: u64, now: MonoNs) {
        if let Some(promotion) = &mut *self.promotion.lock() {
            promotion.confirmed = Some((confirmed, now));
        }
    }

    /// Whether a replica can be promoted now: it has everything that its master has confirmed, or
    /// will hardly receive it.
    pub(crate) fn is_promotion_due(&self, promotion: &Promotion, now: MonoNs) -> bool {
        let (generation, state) = {
            let link = self.link();
            (link.generation, link.state)
        };
        if generation != promotion.generation {
            return true;
        }
        let Some((confirmed, at)) = promotion.confirmed else { return now >= promotion.deadline };
        let is_up = state == LinkState::Connected;
        let wait_ns = if is_up { CATCH_UP_NS_MAX } else { RECONNECT_NS_MAX };
        self.published() >= confirmed || now.since(at) >= wait_ns
    }

    /// Ends the promotion and its pause. `None`: there is none.
    pub(crate) fn end_promotion(&self, pause: &Pause) -> Option<Promotion> {
        let mut promotion = self.promotion.lock();
        let ended = promotion.take();
        if ended.is_some() {
            pause.end_failover();
        }
        ended
    }

    /// The master to notify that this server has replaced it.
    pub(crate) fn old_master(&self) -> MutexGuard<'_, Option<OldMaster>> {
        self.old_master.lock()
    }
}

impl Promotion {
    /// The number of positions that the master has confirmed and this server, which has applied
    /// the stream up to `applied`, lacks. `None`: unknown.
    pub(crate) fn missing(&self, applied: u64) -> Option<u64> {
        self.confirmed.map(|(confirmed, _)| confirmed.saturating_sub(applied))
    }
}
