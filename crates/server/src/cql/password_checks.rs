//! Queues logins whose passwords wait to be checked, and schedules them fairly.
//!
//! A check takes tens of milliseconds, and any client can request one. So addresses take turns, and
//! each role of an address takes turns with its other roles; all unknown names share one turn. The
//! newest login of a role and address is checked first, and when too many wait, the oldest of them
//! is refused. A flood of wrong passwords therefore does not delay logins from other addresses or
//! of other roles, and does not block those of the same role and address.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use super::pool::Call;

/// Limit of waiting logins of one role and address.
const OF_PARTY_MAX: usize = 8;

/// Limit of all waiting logins: a minute of work for one thread.
const WAITING_MAX: usize = 1024;

/// The address and role that a login counts toward.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Party {
    peer: Option<IpAddr>,
    /// `None`: no role has the name.
    role: Option<Box<str>>,
}

impl Party {
    /// IPv6 addresses count by their network, because one machine can own the whole network.
    pub(crate) fn new(peer: Option<IpAddr>, role: Option<&str>) -> Party {
        const NETWORK: u128 = !0 << 64;
        let peer = peer.map(|address| match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6((u128::from(address) & NETWORK).into()),
            address @ IpAddr::V4(_) => address,
        });
        Party { peer, role: role.map(Into::into) }
    }
}

/// Waiting logins of one address.
#[derive(Debug, Default)]
struct Peer {
    by_role: HashMap<Option<Box<str>>, VecDeque<Call>>,
    /// Roles with waiting logins; the first one's turn is next.
    turns: VecDeque<Option<Box<str>>>,
}

/// The waiting logins: see the module.
#[derive(Debug, Default)]
pub(super) struct PasswordChecks {
    peers: HashMap<Option<IpAddr>, Peer>,
    /// Addresses with waiting logins; the first one's turn is next.
    turns: VecDeque<Option<IpAddr>>,
    len: usize,
}

impl PasswordChecks {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a login. If too many wait, returns the login that is refused instead.
    pub(super) fn push(&mut self, party: Party, call: Call) -> Option<Call> {
        let Party { peer: address, role } = party;
        let waiting = self
            .peers
            .get(&address)
            .and_then(|peer| peer.by_role.get(&role))
            .map_or(0, VecDeque::len);
        if waiting == 0 && self.len >= WAITING_MAX {
            return Some(call);
        }
        let turns = &mut self.turns;
        let peer = self.peers.entry(address).or_insert_with(|| {
            turns.push_back(address);
            Peer::default()
        });
        if waiting == 0 {
            peer.turns.push_back(role.clone());
        }
        let calls = peer.by_role.entry(role).or_default();
        calls.push_back(call);
        self.len += 1;
        let is_over = waiting >= OF_PARTY_MAX || self.len > WAITING_MAX;
        let refused = if is_over { calls.pop_front() } else { None };
        self.len -= usize::from(refused.is_some());
        refused
    }

    /// Removes the next login to check.
    pub(super) fn pop(&mut self) -> Option<Call> {
        let address = self.turns.pop_front()?;
        let peer = self.peers.get_mut(&address)?;
        let role = peer.turns.pop_front()?;
        let calls = peer.by_role.get_mut(&role)?;
        let call = calls.pop_back()?;
        self.len -= 1;
        if calls.is_empty() {
            peer.by_role.remove(&role);
        } else {
            peer.turns.push_back(role);
        }
        if peer.turns.is_empty() {
            self.peers.remove(&address);
        } else {
            self.turns.push_back(address);
        }
        Some(call)
    }
}

#[cfg(test)]
mod tests {
    use wire::cql::{Header, Limits, Opcode, Version};

    use super::*;
    use crate::config::Durability;
    use crate::statements::executor::ClientState;
    use reactor::ConnId;

    fn call(id: u64) -> Call {
        let client = ClientState {
            keyspace: None,
            access: None,
            durability: Durability::default(),
            local: None,
        };
        let header = Header {
            version: Version::V5,
            flags: wire::cql::Flags::default(),
            stream: 0,
            opcode: Opcode::AuthResponse as u8,
            body_bytes: 0,
        };
        let limits = Limits { body_bytes_max: 0 };
        Call {
            reactor_index: 0,
            id: ConnId(id),
            header,
            body: Vec::new(),
            compression: None,
            limits,
            client,
        }
    }

    fn party(address: &str, role: Option<&str>) -> Party {
        Party::new(Some(address.parse().unwrap()), role)
    }

    #[test]
    fn a_flood_from_one_address_delays_no_other() {
        let mut checks = PasswordChecks::default();
        let mut refused = Vec::new();
        for id in 0..1_100 {
            refused.extend(
                checks.push(party("10.0.0.1", Some("admin")), call(id)).map(|one| one.id.0),
            );
        }
        assert_eq!(refused, (0..1_100 - OF_PARTY_MAX as u64).collect::<Vec<_>>(), "the oldest");
        assert!(checks.push(party("10.0.0.2", Some("admin")), call(5_000)).is_none());
        assert!(checks.push(party("10.0.0.1", Some("app")), call(6_000)).is_none());
        let order: Vec<_> = (0..4).filter_map(|_| checks.pop()).map(|call| call.id.0).collect();
        assert_eq!(order, [1_099, 5_000, 6_000, 1_098], "the newest, and in turns");
    }

    #[test]
    fn unknown_names_share_a_turn() {
        let mut checks = PasswordChecks::default();
        let refused = (0..100).filter(|id| checks.push(party("::1", None), call(*id)).is_some());
        assert_eq!(refused.count(), 100 - OF_PARTY_MAX);
        checks.push(party("::2", Some("app")), call(1_000));
        checks.pop();
        assert_eq!(checks.pop().unwrap().id.0, 1_000, "the same network, but a known role");
        while checks.pop().is_some() {}
        assert_eq!((checks.len(), checks.peers.len(), checks.turns.len()), (0, 0, 0));
    }

    #[test]
    fn waiting_logins_are_bounded() {
        let mut checks = PasswordChecks::default();
        let address = |number: usize| format!("10.0.{}.{}", number / 256, number % 256);
        for number in 0..WAITING_MAX {
            assert!(checks.push(party(&address(number), Some("app")), call(0)).is_none());
        }
        let one_more = checks.push(party("192.0.2.1", Some("app")), call(7));
        assert_eq!(one_more.map(|call| call.id.0), Some(7));
        let displaced = checks.push(party(&address(0), Some("app")), call(8));
        assert_eq!(
            displaced.map(|call| call.id.0),
            Some(0),
            "the newest of one that waits already"
        );
        assert_eq!(checks.len(), WAITING_MAX);
    }
}
