//! The replicas of this server, and what they have confirmed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base::time::MonoNs;
use parking_lot::Mutex;
use reactor::ConnId;
use wire::replication::{CqlEndpoint, Member};

use super::history::Era;
use crate::config::{MasterAddress, ReplicaRules};
use crate::engine::client_address::ClientAddress;

/// Why a master confirms nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replaced {
    /// It hands its role over by FAILOVER, which may fail.
    HandsOver,
    /// A replica was promoted.
    ByReplica,
}

/// A replica that has been silent for this long is no longer up for drivers of CQL.
pub(crate) const SILENCE_NS_MAX: u64 = 10_000_000_000;

/// The name of a process: 40 hexadecimal digits.
pub(crate) type RunId = [u8; 40];

/// The version of a program, as it states it: text without spaces. Empty: unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ProgramVersion([u8; PROGRAM_BYTES_MAX]);

const PROGRAM_BYTES_MAX: usize = 32;

impl ProgramVersion {
    /// `None`: it is not a version.
    pub(crate) fn parse(text: &[u8]) -> Option<ProgramVersion> {
        let is_shown = |byte: &u8| byte.is_ascii_alphanumeric() || b".-+_".contains(byte);
        let mut bytes = [0; PROGRAM_BYTES_MAX];
        bytes.get_mut(..text.len())?.copy_from_slice(text);
        text.iter().all(is_shown).then_some(ProgramVersion(bytes))
    }
}

impl std::fmt::Display for ProgramVersion {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let used = self.0.iter().position(|byte| *byte == 0).unwrap_or(PROGRAM_BYTES_MAX);
        out.write_str(std::str::from_utf8(&self.0[..used]).unwrap_or_default())
    }
}

/// A replica of this server.
#[derive(Debug, Clone)]
pub(crate) struct Replica {
    pub(crate) address: ClientAddress,
    /// The host that it has announced instead of its address.
    pub(crate) announced_host: Option<Box<str>>,
    /// The port on which it serves clients; 0: unknown.
    pub(crate) port: u16,
    /// `None`: unknown.
    pub(crate) run_id: Option<RunId>,
    pub(crate) program: ProgramVersion,
    /// Its identity and endpoint for clients of CQL, if it serves them.
    pub(crate) cql: Option<([u8; 16], CqlEndpoint)>,
    /// Whether it has a complete copy.
    pub(crate) is_online: bool,
    /// The position of the stream up to which its own log is durable.
    pub(crate) durable: u64,
    pub(crate) heard: MonoNs,
}

impl Replica {
    pub(crate) fn host(&self) -> String {
        if let Some(host) = &self.announced_host {
            return host.to_string();
        }
        self.address.internet().map_or_else(String::new, |address| address.ip().to_string())
    }

    /// Where clients, and other servers, reach it.
    pub(crate) fn place(&self) -> MasterAddress {
        MasterAddress { host: self.host(), port: self.port }
    }

    /// The replica as drivers of CQL see it.
    pub(crate) fn member(&self) -> Option<Member> {
        let (host, mut cql) = self.cql?;
        let remote = self.address.internet().map(|remote| remote.ip().to_canonical());
        cql.ip = cql.ip.or(remote);
        // A loopback address is one of the replica's own machine.
        let is_elsewhere = remote.is_some_and(|remote| !remote.is_loopback());
        let ip = cql.ip.filter(|ip| !is_elsewhere || !ip.is_loopback());
        ip.map(|_| Member { host, is_master: false, cql })
    }

    /// Whether another connection was made by the same server: by the same process, or by an
    /// earlier one. A copy of a data directory has the same identity, but another address.
    pub(crate) fn is_same_server(&self, other: &Replica) -> bool {
        let is_same_place = || self.member().is_some_and(|own| other.member() == Some(own));
        (self.run_id.is_some() && self.run_id == other.run_id) || is_same_place()
    }

    /// Whether it has a complete copy, and has been silent for no longer than this.
    pub(crate) fn is_available(&self, now: MonoNs, silence_ns_max: u64) -> bool {
        self.is_online && now.since(self.heard) <= silence_ns_max
    }
}

#[derive(Debug, Default)]
struct Table {
    all: BTreeMap<ConnId, Replica>,
    /// The highest position of the stream that any replica has acknowledged. What is after it was
    /// confirmed to no client.
    acknowledged: u64,
    /// Another server has replaced this one as the master, or is about to: no position after this
    /// one counts as confirmed.
    fence: Option<u64>,
    fenced_by: Option<Replaced>,
}

/// The replicas that are connected.
///
/// Reactors that wait for a confirmation register themselves, and are woken by the next one: it
/// takes the registered reactors after the change, and they look again after they have registered.
#[derive(Debug, Default)]
pub(crate) struct Replicas {
    table: Mutex<Table>,
    /// Number of replicas that count for `min-replicas-to-write`. 0 while this server is replaced.
    available: AtomicUsize,
    /// The position of the local log up to which enough replicas have had the records on disk. It
    /// does not fall when replicas disconnect.
    confirmed: AtomicU64,
    /// How often the reactors that wait have been taken.
    wakes: AtomicU64,
    waiting: Mutex<Vec<usize>>,
}

impl Replicas {
    /// `acknowledged`: where the stream ends. A replica may have acknowledged that in an earlier run
    /// of the server.
    pub(crate) fn new(acknowledged: u64) -> Replicas {
        let table = Table { acknowledged, ..Table::default() };
        Replicas { table: Mutex::new(table), ..Replicas::default() }
    }

    /// Changes the replicas. `era`: how their positions are related to the local log, if this
    /// server assigns them.
    pub(crate) fn change(
        &self,
        era: Option<Era>,
        rules: ReplicaRules,
        now: MonoNs,
        change: impl FnOnce(&mut BTreeMap<ConnId, Replica>),
    ) {
        let mut table = self.table.lock();
        change(&mut table.all);
        let highest = table.all.values().map(|replica| replica.durable).max().unwrap_or(0);
        table.acknowledged = table.acknowledged.max(highest);
        if table.fence.is_some() {
            return;
        }
        let available = table
            .all
            .values()
            .filter(|replica| replica.is_available(now, rules.silence_ns_max))
            .count();
        self.available.store(available, Ordering::Relaxed);
        if let Some(era) = era {
            let mut durable: Vec<u64> = online(&table.all).map(|replica| replica.durable).collect();
            durable.sort_unstable_by(|left, right| right.cmp(left));
            let common = durable.get(rules.needed.max(1) - 1).copied().unwrap_or(0);
            if let Some(bytes) = common.checked_sub(era.stream) {
                self.confirmed.fetch_max(era.log.0 + bytes, Ordering::SeqCst);
            }
        }
    }

    /// Returns the reactors to wake after a change.
    pub(crate) fn take_waiting(&self) -> Vec<usize> {
        let mut waiting = self.waiting.lock();
        self.wakes.fetch_add(1, Ordering::SeqCst);
        std::mem::take(&mut *waiting)
    }

    /// Makes the next confirmation wake a reactor. Returns [`Replicas::wakes`]: as long as that
    /// stays the same, the reactor is registered.
    pub(crate) fn register(&self, reactor: usize) -> u64 {
        let mut waiting = self.waiting.lock();
        waiting.push(reactor);
        self.wakes()
    }

    pub(crate) fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::SeqCst)
    }

    pub(crate) fn confirmed(&self) -> u64 {
        self.confirmed.load(Ordering::SeqCst)
    }

    pub(crate) fn available(&self) -> usize {
        self.available.load(Ordering::Relaxed)
    }

    /// Number of replicas whose logs are durable up to a position of the stream.
    pub(crate) fn count(&self, position: u64) -> usize {
        let table = self.table.lock();
        if table.fence.is_some_and(|fence| position > fence) {
            return 0;
        }
        online(&table.all).filter(|replica| replica.durable >= position).count()
    }

    pub(crate) fn list(&self) -> Vec<Replica> {
        self.table.lock().all.values().cloned().collect()
    }

    /// Begins again at a position of the stream: the history is another one.
    pub(crate) fn begin_at(&self, position: u64) {
        let mut table = self.table.lock();
        table.acknowledged = position;
        (table.fence, table.fenced_by) = (None, None);
    }

    /// Confirms nothing more from now on. `end`: of the stream. Returns the position after which
    /// nothing was confirmed to any client.
    pub(crate) fn fence(&self, why: Replaced, end: u64) -> u64 {
        let mut table = self.table.lock();
        let fence = table.fence.unwrap_or(table.acknowledged.min(end));
        table.fence = Some(fence);
        // A replica that was promoted is not forgotten when a failover fails.
        if table.fenced_by != Some(Replaced::ByReplica) {
            table.fenced_by = Some(why);
        }
        self.available.store(0, Ordering::Relaxed);
        fence
    }

    /// Confirms writes again, as soon as a replica is heard.
    pub(crate) fn lift_fence(&self, only: Option<Replaced>) -> bool {
        let mut table = self.table.lock();
        let is_lifted = table.fence.is_some() && (only.is_none() || only == table.fenced_by);
        if is_lifted {
            (table.fence, table.fenced_by) = (None, None);
        }
        is_lifted
    }

    /// Whether another server has replaced this one as the master, or is about to.
    pub(crate) fn is_fenced(&self) -> bool {
        self.table.lock().fence.is_some()
    }
}

fn online(all: &BTreeMap<ConnId, Replica>) -> impl Iterator<Item = &Replica> {
    all.values().filter(|replica| replica.is_online)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use binlog::Lsn;

    use super::*;

    const ERA: Era = Era { log: Lsn(1000), stream: 5000, is_own: true };

    const RULES: ReplicaRules = ReplicaRules { needed: 1, silence_ns_max: u64::MAX };

    fn replica(durable: u64) -> Replica {
        Replica {
            address: ClientAddress::default(),
            announced_host: None,
            port: 0,
            run_id: None,
            program: ProgramVersion::default(),
            cql: None,
            is_online: true,
            durable,
            heard: MonoNs(0),
        }
    }

    fn set(replicas: &Replicas, id: u64, durable: u64, needed: usize) {
        replicas.change(Some(ERA), ReplicaRules { needed, ..RULES }, MonoNs(0), |all| {
            all.insert(ConnId(id), replica(durable));
        });
    }

    #[test]
    fn enough_replicas_confirm_a_position() {
        let replicas = Replicas::default();
        set(&replicas, 1, 5100, 2);
        assert_eq!(replicas.confirmed(), 0, "one of two");
        set(&replicas, 2, 5050, 2);
        assert_eq!(replicas.confirmed(), 1050);
        set(&replicas, 3, 5080, 2);
        assert_eq!(replicas.confirmed(), 1080);
        replicas.change(Some(ERA), RULES, MonoNs(0), BTreeMap::clear);
        assert_eq!(replicas.confirmed(), 1080, "what was confirmed stays so");
        assert_eq!(replicas.available(), 0);
    }

    #[test]
    fn positions_before_the_era_confirm_nothing() {
        let replicas = Replicas::default();
        set(&replicas, 1, 4999, 1);
        assert_eq!((replicas.confirmed(), replicas.count(4999)), (0, 1));
        replicas.change(None, RULES, MonoNs(0), BTreeMap::clear);
        assert_eq!(replicas.confirmed(), 0);
    }

    #[test]
    fn a_replaced_master_confirms_nothing_more() {
        let replicas = Replicas::default();
        set(&replicas, 1, 5080, 1);
        set(&replicas, 2, 5100, 2);
        assert_eq!(
            replicas.fence(Replaced::ByReplica, u64::MAX),
            5100,
            "WAIT may have counted the fastest replica"
        );
        set(&replicas, 1, 5200, 1);
        assert_eq!((replicas.confirmed(), replicas.available()), (1080, 0));
        assert_eq!((replicas.count(5080), replicas.count(5101)), (2, 0));
        assert_eq!(replicas.fence(Replaced::ByReplica, u64::MAX), 5100);
        assert!(!replicas.lift_fence(Some(Replaced::HandsOver)));
        assert!(replicas.lift_fence(None));
        set(&replicas, 1, 5200, 1);
        assert_eq!((replicas.confirmed(), replicas.available()), (1200, 2));
        assert_eq!(replicas.count(5101), 1);
    }

    #[test]
    fn a_silent_replica_is_not_available() {
        let replicas = Replicas::default();
        set(&replicas, 1, 5100, 1);
        assert_eq!(replicas.available(), 1);
        let rules = ReplicaRules { silence_ns_max: 7, ..RULES };
        replicas.change(Some(ERA), rules, MonoNs(7), |_| {});
        assert_eq!(replicas.available(), 1);
        replicas.change(Some(ERA), rules, MonoNs(8), |_| {});
        assert_eq!((replicas.available(), replicas.count(5100)), (0, 1));
    }

    #[test]
    fn a_server_is_known_by_its_process_or_by_its_identity_and_place() {
        let at = |ip: [u8; 4], run_id, host: u8| {
            let cql = CqlEndpoint { ip: Some(ip.into()), port: 9042, tls_port: 0 };
            Replica { run_id: Some([run_id; 40]), cql: Some(([host; 16], cql)), ..replica(0) }
        };
        let one = at([10, 0, 0, 1], 1, 1);
        let check = |other: &Replica, expected| {
            assert_eq!(one.is_same_server(other), expected, "{other:?}");
            assert_eq!(other.is_same_server(&one), expected, "{other:?}");
        };
        check(&at([10, 0, 0, 1], 2, 1), true);
        check(&at([10, 0, 0, 2], 1, 2), true);
        check(&at([10, 0, 0, 2], 2, 1), false);
        check(&at([10, 0, 0, 1], 2, 2), false);
        assert!(!replica(0).is_same_server(&replica(0)), "nothing is known of them");
    }

    #[test]
    fn a_replica_on_another_machine_has_no_loopback_address() {
        let ip = |remote: [u8; 4], announced: Option<[u8; 4]>| {
            let cql = CqlEndpoint { ip: announced.map(Into::into), port: 9042, tls_port: 0 };
            let address = ClientAddress::Internet(SocketAddr::from((remote, 40_000)));
            let member = Replica { address, cql: Some(([1; 16], cql)), ..replica(0) }.member();
            member.and_then(|member| member.cql.ip).map(|ip| ip.to_string())
        };
        assert_eq!(ip([10, 0, 0, 2], Some([127, 0, 0, 1])), None);
        assert_eq!(ip([127, 0, 0, 1], Some([127, 0, 0, 1])).unwrap(), "127.0.0.1");
        assert_eq!(ip([10, 0, 0, 2], Some([10, 0, 0, 3])).unwrap(), "10.0.0.3");
        assert_eq!(ip([10, 0, 0, 2], None).unwrap(), "10.0.0.2");
    }

    #[test]
    fn reactors_stay_registered_until_they_are_taken() {
        let replicas = Replicas::default();
        let registered = replicas.register(3);
        assert_eq!(registered, replicas.wakes());
        assert_eq!(replicas.take_waiting(), [3]);
        assert_ne!(registered, replicas.wakes());
        assert!(replicas.take_waiting().is_empty());
    }
}
