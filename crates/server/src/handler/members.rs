//! Notifies drivers of CQL of changes of the servers of the replication.

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::sync::Arc;

use reactor::{Connections, Context};

use super::{ReactorHandler, Session};
use crate::engine::mail::Mail;
use crate::engine::replication::{LinkState, Present, Replica, SILENCE_NS_MAX, Update};
use crate::statements::stored_schema::cql_identity;

impl ReactorHandler {
    /// Compares the connected servers with the ones that drivers know.
    pub(super) fn follow_members(&self) {
        let replication = &self.shared.replication;
        let mut replicas = replication.replicas().list();
        replicas.retain(|one| one.is_available(self.now.mono, SILENCE_NS_MAX));
        replicas.sort_by_key(|one| Reverse(one.heard));
        let link = replication.link();
        let present = Present {
            own: None,
            has_master: link.source.is_some(),
            link: (link.source.is_some() && link.state != LinkState::Connecting)
                .then_some(link.generation),
            replicas: replicas.iter().filter_map(Replica::member).collect(),
        };
        drop(link);
        let present = Present { own: cql_identity(&self.shared, &self.params), ..present };
        let update = replication.members.update(self.now.mono, &present);
        if update.is_new {
            self.shared.transfers.wake();
        }
        if update.has_new_roles || !update.events.is_empty() {
            self.shared.broadcast(&Mail::MembersChanged(Arc::new(update)));
        }
    }

    /// Sends events to the clients that have registered for them. After a change of roles it
    /// disconnects these clients, too: drivers connect again, and then they read all rows, which no
    /// event makes all of them do.
    pub(super) fn send_node_events(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
        update: &Update,
    ) {
        let view = self.shared.replication.members.view();
        for (id, _, session, out) in connections.iter() {
            let Some(session) = session.as_cql().filter(|one| one.events.wants_nodes()) else {
                continue;
            };
            if update.has_new_roles {
                cx.close(id);
            }
            let Some(local) = session.client.local else { continue };
            let own = SocketAddr::new(local.ip().to_canonical(), local.port());
            for (event, peer) in &update.events {
                let node = match peer {
                    None => Some(own),
                    Some(peer) => view.address(peer, Some(local)),
                };
                if let Some(node) = node.filter(|_| session.events.wants_node(*event)) {
                    self.cql.send_node_event(session, *event, node, out);
                }
            }
        }
    }
}
