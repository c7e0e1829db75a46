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
    fn address(&self, is_tls: bool) -> Option<SocketAddr> {
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
    /// The address of a peer for the clients of this address of the server; `None`: they cannot
    /// connect to it.
    pub(crate) fn address(&self, peer: &Peer, local: Option<SocketAddr>) -> Option<SocketAddr> {
        let address = peer.address(local.is_some_and(|local| self.is_tls(local)))?;
        let is_remote = local.is_some_and(|local| !local.ip().to_canonical().is_loopback());
        (!is_remote || !address.ip().is_loopback()).then_some(address)
    }

    /// Whether clients of this address of the server use TLS.
    fn is_tls(&self, local: SocketAddr) -> bool {
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

/// Whether drivers cannot distinguish two endpoints. One of the ports is enough: a driver knows a
/// server by the address that it connects to.
fn is_same_place(one: CqlEndpoint, other: CqlEndpoint) -> bool {
    let is_same_port = one.port != 0 && one.port == other.port;
    let is_same_tls_port = one.tls_port != 0 && one.tls_port == other.tls_port;
    one.ip.is_some() && one.ip == other.ip && (is_same_port || is_same_tls_port)
}

/// The servers that are connected now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Present {
    /// `None`: this server does not serve CQL.
    pub(crate) own: Option<([u8; 16], CqlEndpoint)>,
    pub(crate) has_master: bool,
    /// The generation of the link to the master, if that is connected.
    pub(crate) link: Option<u64>,
    /// First the one that was heard last.
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
        // A loopback address is one of the machine that announced it.
        let is_reachable =
            |ip: IpAddr| is_usable(ip) && (master.is_loopback() || !ip.is_loopback());
        list.retain(|member| member.cql.ip.is_some_and(is_reachable));
        *self.received.lock() = (generation, list);
    }

    /// Compares the connected servers with the ones that drivers know.
    pub(crate) fn update(&self, now: MonoNs, present: &Present) -> Update {
        let mut known = self.known.lock();
        let received = self.received.lock().clone();
        let mut members = if present.link == Some(received.0) { received.1 } else { Vec::new() };
        members.extend(&present.replicas);
        let own = present.own;
        members.retain(|member| {
            own.is_none_or(|(host, cql)| member.host != host && !is_same_place(member.cql, cql))
        });
        let master = members.iter().find(|member| member.is_master).map(|member| member.host);
        members.retain(|member| !member.is_master || Some(member.host) == master);
        let mut update = Update {
            has_new_roles: known.follow_role(now, present.has_master, &members),
            ..Update::default()
        };
        for member in known.one_per_host(members).into_values() {
            known.see(now, member, &mut update);
        }
        if let Some(master) = master {
            known.forget_other_masters(master, &mut update.events);
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

    /// Keeps one member of each host: servers whose data directories are copies have one identity,
    /// and a lost connection is noticed late. The list of the master is first and decides about
    /// roles. Otherwise the member that drivers know stays: they must not be notified of each turn.
    fn one_per_host(&self, members: Vec<Member>) -> BTreeMap<[u8; 16], Member> {
        let mut kept = BTreeMap::new();
        for member in members {
            let one = kept.entry(member.host).or_insert(member);
            let is_known =
                self.seen.get(&member.host).is_some_and(|seen| seen.peer.member == member);
            if is_known && one.is_master == member.is_master {
                *one = member;
            }
        }
        kept
    }

    /// Notes that a server is connected.
    fn see(&mut self, now: MonoNs, member: Member, update: &mut Update) {
        let is_other = |seen: &&Seen| {
            let other = seen.peer.member;
            other.host != member.host && is_same_place(other.cql, member.cql)
        };
        let peer = Peer { member, is_up: true };
        // Drivers cannot distinguish servers with one address: the one that is up counts.
        let others: Vec<Seen> = self.seen.values().filter(is_other).copied().collect();
        if others.iter().any(|other| other.peer.is_up && other.at == now) {
            return;
        }
        for other in others {
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

    /// Removes the lost master when another one has replaced it: all tokens belong to one master.
    fn forget_other_masters(
        &mut self,
        master: [u8; 16],
        events: &mut Vec<(NodeEvent, Option<Peer>)>,
    ) {
        self.seen.retain(|host, Seen { peer, .. }| {
            let is_other = peer.member.is_master && *host != master;
            if is_other {
                events.push((NodeEvent::Removed, Some(*peer)));
            }
            !is_other
        });
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

    fn own(number: u8) -> ([u8; 16], CqlEndpoint) {
        let Member { host, cql, .. } = member(number, true);
        (host, cql)
    }

    fn master_with(replicas: &[u8]) -> Present {
        let replicas = replicas.iter().map(|number| member(*number, false)).collect();
        Present { own: Some(own(1)), has_master: false, link: None, replicas }
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
            Present { own: Some(own(1)), has_master: true, link: Some(7), replicas: Vec::new() };
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
        let demoted = Present { own: Some(own(1)), has_master: true, ..Present::default() };
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
        let replica =
            Present { own: Some(own(1)), has_master: true, link: Some(1), replicas: vec![] };
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
    fn two_connections_of_one_host_are_one_member() {
        let members = Members::default();
        let mut other = member(2, false);
        other.cql.port = 9999;
        let both = |first, second| Present { replicas: vec![first, second], ..master_with(&[]) };
        assert_eq!(events(&members, 1, &both(other, member(2, false))), "New 2, Up 2");
        assert_eq!(members.view().peers[0].member, other, "the one that was heard last");
        assert_eq!(events(&members, 2, &both(member(2, false), other)), "");
        assert_eq!(events(&members, 3, &both(other, member(2, false))), "");
        assert_eq!(members.view().peers[0].member, other);
        assert_eq!(events(&members, 4, &master_with(&[2])), "Removed 2, New 2, Up 2");
    }

    #[test]
    fn the_list_of_the_master_decides_about_roles() {
        let members = Members::default();
        let ip = IpAddr::from([10, 0, 0, 2]);
        members.receive(1, vec![member(2, true), member(3, false)], ip);
        let replicas = vec![member(2, false), member(3, false)];
        let present = Present { own: Some(own(1)), has_master: true, link: Some(1), replicas };
        assert_eq!(events(&members, 1, &present), "New 2, Up 2, New 3, Up 3");
        assert!(members.view().peers[0].member.is_master);
        assert_eq!(events(&members, 2, &present), "");
        assert_eq!(events(&members, 3, &present), "");
    }

    #[test]
    fn a_new_master_replaces_the_lost_one_at_once() {
        let members = Members::default();
        let present =
            Present { own: Some(own(1)), has_master: true, link: Some(1), replicas: vec![] };
        members.receive(1, vec![member(2, true)], IpAddr::from([10, 0, 0, 2]));
        assert_eq!(events(&members, 1, &present), "New 2, Up 2");
        // It does not know its role yet.
        members.receive(2, vec![member(3, false)], IpAddr::from([10, 0, 0, 3]));
        let present = Present { link: Some(2), ..present };
        assert_eq!(events(&members, 2, &present), "New 3, Up 3");
        members.receive(2, vec![member(3, true)], IpAddr::from([10, 0, 0, 3]));
        assert_eq!(events(&members, 3, &present), "Removed 2, Removed 3, New 3, roles");
        assert_eq!(peers(&members), [(3, true)]);
        // One that was not known before, in a list that still has the lost one.
        members.receive(2, vec![member(4, true), member(3, true)], IpAddr::from([10, 0, 0, 4]));
        assert_eq!(events(&members, 4, &present), "New 4, Up 4, Removed 3");
        assert_eq!(peers(&members), [(4, true)]);
        assert_eq!(events(&members, 5, &present), "Up 0, Up 4", "the first reminder");
    }

    #[test]
    fn one_common_port_is_the_same_place() {
        let at = |ip: Option<u8>, port, tls_port| {
            let ip = ip.map(|number| IpAddr::from([10, 0, 0, number]));
            CqlEndpoint { ip, port, tls_port }
        };
        let check = |one, other, expected| {
            assert_eq!(is_same_place(one, other), expected, "{one:?} {other:?}");
            assert_eq!(is_same_place(other, one), expected, "{other:?} {one:?}");
        };
        check(at(Some(1), 9042, 0), at(Some(1), 9042, 9142), true);
        check(at(Some(1), 9042, 9142), at(Some(1), 9043, 9142), true);
        check(at(Some(1), 9042, 0), at(Some(1), 0, 9142), false);
        check(at(Some(1), 9042, 0), at(Some(1), 9043, 0), false);
        check(at(Some(1), 0, 9142), at(Some(1), 0, 9143), false);
        check(at(Some(1), 9042, 0), at(Some(2), 9042, 0), false);
        check(at(None, 9042, 0), at(None, 9042, 0), false);
    }

    #[test]
    fn loopback_addresses_stay_on_their_machine() {
        let members = Members::default();
        let mut local = member(3, false);
        local.cql.ip = Some(IpAddr::from([127, 0, 0, 3]));
        let present =
            Present { own: Some(own(1)), has_master: true, link: Some(1), replicas: vec![] };
        members.receive(1, vec![member(2, true), local], IpAddr::from([10, 0, 0, 2]));
        assert_eq!(events(&members, 1, &present), "New 2, Up 2");
        members.receive(1, vec![member(2, true), local], IpAddr::from([127, 0, 0, 1]));
        assert_eq!(events(&members, 2, &present), "New 3, Up 3");
        let view = members.view();
        let shown = |ip: [u8; 4]| {
            let local = Some(SocketAddr::from((ip, 9042)));
            view.peers.iter().filter(|peer| view.address(peer, local).is_some()).count()
        };
        assert_eq!(shown([127, 0, 0, 1]), 2);
        assert_eq!(shown([10, 0, 0, 1]), 1);
    }

    #[test]
    fn the_identity_depends_on_the_role() {
        let [one, other] = [true, false].map(|role| visible_host(&member(2, role)));
        assert_ne!(one, other);
        assert_eq!(one.into_bytes(), [2; 16]);
    }
}
