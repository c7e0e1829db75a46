//! Replies that wait for replicas: those of writes at the durability `replicated`, of WAIT and of
//! WAITAOF.

use base::time::MonoNs;
use binlog::Lsn;
use reactor::{ConnId, Connections, Context, Level};
use wire::resp::ReplyWriter;

use super::gates::close_held_replies;
use super::{ReactorHandler, Session};
use crate::commands;
use crate::commands::session::{Wait, WaitReply};
use crate::engine::gate::Gate;
use crate::engine::mail::Mail;

/// Replies wait for this long without any progress of the replicas. Source: Redis 7.2 `config.c`,
/// default of `repl-timeout`.
const WAIT_NS_MAX: u64 = 60_000_000_000;

/// Source: Redis 7.2 `blocked.c`, `disconnectOrRedirectAllBlockedClients`
const NO_LONGER_MASTER: &str = "UNBLOCKED force unblock from blocking operation, instance state \
                                changed (master -> replica?)";

/// What a reactor waits for.
#[derive(Debug, Default)]
pub(super) struct ReplicaWaits {
    /// Connections that wait in WAIT or WAITAOF.
    pub(super) clients: Vec<ConnId>,
    /// The number under which the reactor is registered to be woken.
    registration: Option<u64>,
    /// The position that was confirmed last, and since when.
    progress: (Lsn, MonoNs),
}

impl ReactorHandler {
    /// Opens the gates that replicas have confirmed, and makes the next confirmation wake this
    /// reactor if something waits for it.
    pub(super) fn settle_with_replicas(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        cx.set_level(Level::Remote, self.reactor.replicated.0);
        if !self.waits_for_replicas() {
            return;
        }
        let shared = self.shared.clone();
        let replicas = shared.replication.replicas();
        if self.replica_waits.registration == Some(replicas.wakes()) {
            return;
        }
        self.replica_waits.registration = Some(replicas.register(self.reactor.index));
        // A confirmation before the registration has not woken this reactor.
        self.reactor.refresh_positions(&self.shared);
        cx.set_level(Level::Remote, self.reactor.replicated.0);
        self.end_waits_for_replicas(cx, connections);
    }

    fn waits_for_replicas(&self) -> bool {
        !self.replica_waits.clients.is_empty() || self.has_unconfirmed()
    }

    fn has_unconfirmed(&self) -> bool {
        !self.reactor.replicated_gate_max.is_open_at(self.reactor.replicated)
    }

    /// Sends the replies of WAIT and WAITAOF for which there are enough confirmations.
    fn end_waits_for_replicas(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        let shared = self.shared.clone();
        let mut clients = std::mem::take(&mut self.replica_waits.clients);
        clients.retain(|id| {
            let Some((session, out)) = connections.get_mut(*id) else { return false };
            let Some(session) = session.as_resp() else { return false };
            let Some(Wait::Until { reply: WaitReply::Replicas(wait), .. }) = session.wait else {
                return false;
            };
            if wait.is_over(&shared.replication) {
                let write = |writer: &mut ReplyWriter<'_>| wait.write(writer, &shared.replication);
                self.end_wait(cx, session, write, out);
                return false;
            }
            true
        });
        self.replica_waits.clients = clients;
    }

    /// Forgets that a client waits in WAIT or WAITAOF.
    pub(super) fn forget_replica_wait(&mut self, session: &commands::Session) {
        if let Some(Wait::Until { reply: WaitReply::Replicas(_), .. }) = session.wait {
            self.replica_waits.clients.retain(|id| *id != session.id);
        }
    }

    /// Closes the connections whose replies have waited for replicas for too long.
    pub(super) fn limit_waits_for_replicas(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        let (position, since) = self.replica_waits.progress;
        let (now, replicated) = (self.now.mono, self.reactor.replicated);
        if !self.has_unconfirmed() || position != replicated {
            self.replica_waits.progress = (replicated, now);
        } else if now.since(since) > WAIT_NS_MAX {
            let closed = close_held_replies(cx, connections, Level::Remote);
            if closed > 0 {
                tracing::warn!(closed, "no replica has confirmed writes for 60 s");
            }
            self.reactor.replicated_gate_max = Gate::OPEN;
        }
    }

    /// Ends what waits for this server as a master: it becomes a replica, and its writes that no
    /// replica has confirmed may be lost.
    pub(super) fn leave_mastership(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        close_held_replies(cx, connections, Level::Remote);
        self.reactor.replicated_gate_max = Gate::OPEN;
        let blocked = connections.list().filter(|(_, session)| session.is_blocked());
        let blocked: Vec<ConnId> = blocked.map(|(info, _)| info.id).collect();
        for id in blocked {
            self.unblock(cx, connections, id, Some(NO_LONGER_MASTER));
        }
    }
}
