//! The servers of a replication as drivers of CQL see them: rows of `system.local` and
//! `system.peers`, and the events of which drivers are notified.
//!
//! A replica announces its endpoint to its master, and the master sends the list to its replicas.
//! Reactor 0 compares the connected servers with the ones that drivers know, `hz` times a second. A
//! server that disappears keeps its row for a while, so that drivers do not notice a short
//! interruption.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use base::time::MonoNs;
use parking_lot::Mutex;
use uuid::Uuid;
use wire::cql::NodeEvent;
use wire::replication::{CqlEndpoint, MEMBERS_MAX, Member};

/// Time without a server after which drivers are notified that it is down. Cassandra's failure
/// detector needs about as long.
const DOWN_NS: u64 = 10_000_000_000;
/// Time without a server after which drivers forget it.
const REMOVED_NS: u64 = 60_000_000_000;
/// A demoted master waits this long for the list of its new master, so that drivers that read the
/// new roles find all servers.
const LIST_WAIT_NS: u64 = 10_000_000_000;
/// Times after a change of roles at which drivers are notified that all servers are up: they have
/// read the new roles by then, but some open connections to a server only after this event.
const REMINDERS_NS: [u64; 3] = [2_000_000_000, 5_000_000_000, 10_000_000_000];

/// A server that drivers know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) member: Member,
    pub(crate) is_up: bool,
}

impl Peer {
    /// Its address for clients with or without TLS; `None`: it serves no such clients.
    pub(crate) fn address(&self, is_tls: bool) -> Option<SocketAddr> {
        let CqlEndpoint { ip, port, tls_port } = self.member.cql;
        let port = if is_tls { tls_port } else { port };
        ip.filter(|_| port != 0).map(|ip| SocketAddr::new(ip, port))
    }
}

/// What drivers see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// Grows with each change.
    pub(crate) number: u64,
    /// This server, if it serves CQL.
    pub(crate) own: Option<Member>,
    pub(crate) peers: Vec<Peer>,
}

impl View {
    /// Whether clients of this address of the server use TLS.
    pub(crate) fn is_tls(&self, local: SocketAddr) -> bool {
        self.own.is_some_and(|own| own.cql.tls_port == local.port() && own.cql.tls_port != 0)
    }

    /// The list for a replica: first this server. Empty if it does not serve CQL.
    pub(super) fn list(&self) -> Vec<Member> {
        let Some(own) = self.own else { return Vec::new() };
        let peers = self.peers.iter().filter(|peer| peer.is_up).map(|peer| peer.member);
        std::iter::once(own).chain(peers).take(MEMBERS_MAX).collect()
    }
}

/// The identity of a server that drivers see. It depends on the role: some drivers read the data
/// center of a node only once, and take a server with a new role for another node.
pub(crate) fn visible_host(member: &Member) -> Uuid {
    let host = u128::from_be_bytes(member.host);
    Uuid::from_u128(if member.is_master { host } else { host ^ 1 })
}

/// Whether drivers can connect to an address.
pub(crate) fn is_usable(ip: IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !ip.is_unspecified() && !ip.is_multicast() && !is_broadcast
}

/// The servers that are connected now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Present {
    /// `None`: this server does not serve CQL.
    pub(crate) own: Option<([u8; 16], CqlEndpoint)>,
    pub(crate) has_master: bool,
    /// The generation of the link to the master, if that is connected.
    pub(crate) link: Option<u64>,
    pub(crate) replicas: Vec<Member>,
}

/// What an update has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Update {
    /// `None`: this server.
    pub(crate) events: Vec<(NodeEvent, Option<Peer>)>,
    /// Roles have changed: drivers must read all rows again.
    pub(crate) has_new_roles: bool,
    /// Replicas must be sent the new list.
    pub(crate) is_new: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Members {
    /// The permanent identity of this server.
    host: OnceLock<[u8; 16]>,
    /// The last list of the master, and the generation of the link.
    received: Mutex<(u64, Vec<Member>)>,
    view: ArcSwap<View>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// `None`: before the first update.
    is_master: Option<bool>,
    /// Since when the server has another role than drivers see.
    demoted: Option<MonoNs>,
    /// When the roles have changed, and how many reminders have been sent since.
    changed: Option<(MonoNs, usize)>,
    seen: BTreeMap<[u8; 16], Seen>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    peer: Peer,
    at: MonoNs,
}

impl Members {
    /// The permanent identity of this server, which `find` reads.
    pub(crate) fn host(&self, find: impl FnOnce() -> Option<Uuid>) -> Option<[u8; 16]> {
        if self.host.get().is_none() {
            let _is_new = self.host.set(find()?.into_bytes());
        }
        self.host.get().copied()
    }

    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Notes the list that the master has sent. `master`: the address of the link.
    pub(crate) fn receive(&self, generation: u64, mut list: Vec<Member>, master: IpAddr) {
        if let Some(first) = list.first_mut() {
            first.cql.ip.get_or_insert(master);
        }
        list.retain(|member| member.cql.ip.is_some_and(is_usable));
        *self.received.lock() = (generation, list);
    }

    /// Compares the connected servers with the ones that drivers know.
    pub(crate) fn update(&self, now: MonoNs, present: &Present) -> Update {
        let mut known = self.known.lock();
        let mut members = present.replicas.clone();
        let received = self.received.lock().clone();
        if present.link == Some(received.0) {
            members.extend(received.1);
        }
        let own = present.own;
        members.retain(|member| {
            own.is_none_or(|(host, cql)| {
                member.host != host && (member.cql.ip != cql.ip || member.cql.port != cql.port)
            })
        });
        let mut update = Update {
            has_new_roles: known.follow_role(now, present.has_master, &members),
            ..Update::default()
        };
        for member in members {
            known.see(now, member, &mut update);
        }
        known.forget(now, &mut update.events);
        let before = self.view.load();
        let peers: Vec<Peer> = known.seen.values().map(|seen| seen.peer).collect();
        if update.has_new_roles {
            // These make the Python driver read all rows, which it does not do at the end of an idle
            // connection. The Java driver takes both events of a server for one.
            let removed = before.peers.iter().map(|peer| (NodeEvent::Removed, Some(*peer)));
            let new = peers.iter().map(|peer| (NodeEvent::New, Some(*peer)));
            update.events = removed.chain(new).collect();
            known.changed = Some((now, 0));
        }
        known.remind(now, &mut update.events);
        let own =
            own.map(|(host, cql)| Member { host, is_master: known.is_master.unwrap_or(true), cql });
        update.is_new = before.own != own || before.peers != peers;
        if update.is_new {
            self.view.store(Arc::new(View { number: before.number + 1, own, peers }));
        }
        update
    }
}

impl Known {
    /// Changes the role that drivers see. Returns whether it has changed.
    fn follow_role(&mut self, now: MonoNs, has_master: bool, members: &[Member]) -> bool {
        let before = self.is_master;
        if before == Some(!has_master) {
            self.demoted = None;
            return false;
        }
        if before == Some(true) {
            let since = *self.demoted.get_or_insert(now);
            let has_list = members.iter().any(|member| member.is_master);
            if !has_list && now.since(since) < LIST_WAIT_NS {
                return false;
            }
        }
        self.demoted = None;
        self.is_master = Some(!has_master);
        if before.is_some() {
            self.seen.clear();
        }
        before.is_some()
    }

    /// Notes that a server is connected.
    fn see(&mut self, now: MonoNs, member: Member, update: &mut Update) {
        let is_same_place = |seen: &Seen| {
            let (one, other) = (seen.peer.member.cql, member.cql);
            seen.peer.member.host != member.host
                && (one.ip, one.port, one.tls_port) == (other.ip, other.port, other.tls_port)
        };
        let peer = Peer { member, is_up: true };
        // Drivers cannot distinguish servers with one address: the one that is up counts.
        let other = self.seen.values().find(|seen| is_same_place(seen)).copied();
        if let Some(other) = other {
            if other.peer.is_up && other.at == now {
                return;
            }
            self.seen.remove(&other.peer.member.host);
            update.events.push((NodeEvent::Removed, Some(other.peer)));
        }
        if self.seen.len() >= MEMBERS_MAX && !self.seen.contains_key(&member.host) {
            return;
        }
        let before = self.seen.insert(member.host, Seen { peer, at: now }).map(|seen| seen.peer);
        match before {
            Some(before) if before.member.is_master != member.is_master => {
                update.has_new_roles = true;
            }
            Some(before) if before.member.cql != member.cql => {
                let events = [(NodeEvent::Removed, before), (NodeEvent::New, peer)];
                update.events.extend(events.map(|(event, peer)| (event, Some(peer))));
                update.events.push((NodeEvent::Up, Some(peer)));
            }
            Some(before) if before.is_up => {}
            Some(_) => update.events.push((NodeEvent::Up, Some(peer))),
            None => {
                let events = [NodeEvent::New, NodeEvent::Up];
                update.events.extend(events.map(|event| (event, Some(peer))));
            }
        }
    }

    /// Marks servers as down, or removes them, that have not been connected for a while.
    fn forget(&mut self, now: MonoNs, events: &mut Vec<(NodeEvent, Option<Peer>)>) {
        self.seen.retain(|_, Seen { peer, at }| {
            let absent_ns = now.since(*at);
            if peer.is_up && absent_ns >= DOWN_NS {
                peer.is_up = false;
                events.push((NodeEvent::Down, Some(*peer)));
            }
            let is_gone = absent_ns >= REMOVED_NS;
            if is_gone {
                events.push((NodeEvent::Removed, Some(*peer)));
            }
            !is_gone
        });
    }

    fn remind(&mut self, now: MonoNs, events: &mut Vec<(NodeEvent, Option<Peer>)>) {
        let Some((at, sent)) = &mut self.changed else { return };
        let Some(due_ns) = REMINDERS_NS.get(*sent) else {
            self.changed = None;
            return;
        };
        if now.since(*at) < *due_ns {
            return;
        }
        *sent += 1;
        let up = self.seen.values().filter(|seen| seen.peer.is_up).map(|seen| Some(seen.peer));
        events.extend(std::iter::once(None).chain(up).map(|peer| (NodeEvent::Up, peer)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn member(number: u8, is_master: bool) -> Member {
        let ip = Some(IpAddr::from([10, 0, 0, number]));
        Member { host: [number; 16], is_master, cql: CqlEndpoint { ip, port: 9042, tls_port: 0 } }
    }

    fn own(number: u8) -> Option<([u8; 16], CqlEndpoint)> {
        let Member { host, cql, .. } = member(number, true);
        Some((host, cql))
    }

    fn master_with(replicas: &[u8]) -> Present {
        let replicas = replicas.iter().map(|number| member(*number, false)).collect();
        Present { own: own(1), has_master: false, link: None, replicas }
    }

    /// The events of one update, as text.
    fn events(members: &Members, second: u64, present: &Present) -> String {
        let update = members.update(MonoNs(second * SECOND), present);
        let name = |(event, peer): &(NodeEvent, Option<Peer>)| {
            let host = peer.map_or(0, |peer| peer.member.host[0]);
            format!("{event:?} {host}")
        };
        let mut names: Vec<String> = update.events.iter().map(name).collect();
        names.extend(update.has_new_roles.then(|| "roles".to_owned()));
        names.join(", ")
    }

    fn peers(members: &Members) -> Vec<(u8, bool)> {
        let view = members.view();
        view.peers.iter().map(|peer| (peer.member.host[0], peer.is_up)).collect()
    }

    #[test]
    fn a_replica_that_returns_soon_is_no_event() {
        let members = Members::default();
        assert_eq!(events(&members, 1, &master_with(&[])), "");
        assert_eq!(events(&members, 2, &master_with(&[2])), "New 2, Up 2");
        assert_eq!(events(&members, 3, &master_with(&[])), "");
        assert_eq!(events(&members, 11, &master_with(&[])), "");
        assert_eq!(peers(&members), [(2, true)]);
        assert_eq!(events(&members, 11, &master_with(&[2])), "");
    }

    #[test]
    fn a_replica_that_stays_away_is_down_then_removed() {
        let members = Members::default();
        events(&members, 1, &master_with(&[2, 3]));
        assert_eq!(events(&members, 11, &master_with(&[3])), "Down 2");
        assert_eq!(peers(&members), [(2, false), (3, true)]);
        assert_eq!(events(&members, 12, &master_with(&[3])), "");
        assert_eq!(events(&members, 13, &master_with(&[2, 3])), "Up 2");
        assert_eq!(events(&members, 23, &master_with(&[3])), "Down 2");
        assert_eq!(events(&members, 73, &master_with(&[3])), "Removed 2");
        assert_eq!(peers(&members), [(3, true)]);
    }

    #[test]
    fn a_demoted_master_waits_for_the_list_of_the_new_one() {
        let members = Members::default();
        events(&members, 1, &master_with(&[2]));
        let demoted =
            Present { own: own(1), has_master: true, link: Some(7), replicas: Vec::new() };
        assert_eq!(events(&members, 2, &demoted), "");
        assert!(members.view().own.unwrap().is_master);
        // The new master does not know its role yet.
        members.receive(7, vec![member(2, false)], IpAddr::from([10, 0, 0, 9]));
        assert_eq!(events(&members, 3, &demoted), "");
        members.receive(7, vec![member(2, true), member(1, false)], IpAddr::from([10, 0, 0, 9]));
        assert_eq!(events(&members, 4, &demoted), "Removed 2, New 2, roles");
        assert!(!members.view().own.unwrap().is_master);
        assert_eq!(members.view().peers[0].member, member(2, true));
        assert_eq!(events(&members, 5, &demoted), "");
        assert_eq!(events(&members, 6, &demoted), "Up 0, Up 2");
        assert_eq!(events(&members, 9, &demoted), "Up 0, Up 2");
        assert_eq!(events(&members, 14, &demoted), "Up 0, Up 2");
        assert_eq!(events(&members, 15, &demoted), "");
        // Of another link.
        let other = Present { link: Some(8), ..demoted };
        assert_eq!(events(&members, 25, &other), "Down 2");
    }

    #[test]
    fn a_demoted_master_without_a_list_changes_its_role_after_a_while() {
        let members = Members::default();
        events(&members, 1, &master_with(&[]));
        let demoted = Present { own: own(1), has_master: true, ..Present::default() };
        assert_eq!(events(&members, 2, &demoted), "");
        assert_eq!(events(&members, 12, &demoted), "roles");
        // The promotion is visible at once.
        assert_eq!(events(&members, 13, &master_with(&[])), "roles");
    }

    #[test]
    fn members_of_wrong_addresses_are_not_listed() {
        let members = Members::default();
        let at = |number: u8, ip: [u8; 4]| {
            let mut member = member(number, false);
            member.cql.ip = Some(IpAddr::from(ip));
            member
        };
        let list = vec![
            Member { cql: CqlEndpoint { ip: None, ..member(2, true).cql }, ..member(2, true) },
            at(3, [0, 0, 0, 0]),
            at(4, [224, 0, 0, 1]),
            at(5, [10, 0, 0, 1]),
            at(6, [255, 255, 255, 255]),
            member(1, false),
            at(7, [10, 0, 0, 7]),
            at(8, [10, 0, 0, 7]),
        ];
        members.receive(1, list, IpAddr::from([10, 0, 0, 2]));
        let replica = Present { own: own(1), has_master: true, link: Some(1), replicas: vec![] };
        assert_eq!(events(&members, 1, &replica), "New 2, Up 2, New 7, Up 7");
        assert_eq!(members.view().peers[0].member, member(2, true), "the address of the link");
    }

    #[test]
    fn a_moved_member_is_removed_and_new() {
        let members = Members::default();
        events(&members, 1, &master_with(&[2]));
        let mut moved = master_with(&[2]);
        moved.replicas[0].cql.port = 9999;
        assert_eq!(events(&members, 2, &moved), "Removed 2, New 2, Up 2");
        // A server with another identity takes over the address of one that has gone.
        let mut other = master_with(&[3]);
        other.replicas[0].cql = moved.replicas[0].cql;
        assert_eq!(events(&members, 3, &other), "Removed 2, New 3, Up 3");
    }

    #[test]
    fn the_identity_depends_on_the_role() {
        let [one, other] = [true, false].map(|role| visible_host(&member(2, role)));
        assert_ne!(one, other);
        assert_eq!(one.into_bytes(), [2; 16]);
    }
}
