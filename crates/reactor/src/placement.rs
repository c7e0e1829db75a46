//! The choice of a reactor for a new connection.

use std::hash::BuildHasher as _;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use base::time::MonoNs;

use crate::balance::Load;
use crate::context::{GroupState, ReactorSlot};

/// Reactors whose load is within this distance of the least busy one are equally good: 5 %.
const SIMILAR_PPM: u64 = 50_000;
/// Expected cost of a connection before it is measured: 0.1 %.
const LOAD_PER_CONNECTION_PPM: u64 = 1_000;

/// How reactors are chosen for new connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// The least busy reactor, and among similarly busy ones the one with the fewest connections.
    /// Connections move away from reactors that stay overloaded.
    #[default]
    LeastLoaded,
    /// In turn.
    RoundRobin,
    /// `(hash(remote address and port) + accepted % modulus) % reactors`: the rule of the original,
    /// for comparison. Hashing leaves reactors empty: 16 connections reach about 10 of 16. Each
    /// connection has a different port, so the modulus does not change that number.
    Hash { modulus: u32 },
    /// By the peer's port: a client that chooses its port chooses its reactor.
    SourcePort,
}

/// State of the acceptor's placement decisions.
#[derive(Debug, Default)]
pub(crate) struct Placer {
    next: usize,
    /// Connections placed by `Hash`.
    accepted: u64,
    /// Per reactor: the last window read, and the connections placed since.
    placed: Vec<(u64, u64)>,
}

impl Placer {
    pub(crate) fn place(
        &mut self,
        placement: Placement,
        group_state: &GroupState,
        remote: Option<SocketAddr>,
        now: MonoNs,
    ) -> usize {
        let regular = group_state.regular();
        let count = regular.len();
        match placement {
            Placement::LeastLoaded => self.least_loaded(regular, now),
            Placement::RoundRobin => {
                let next = self.next;
                let in_turn = || (0..count).map(|after| (next + after) % count);
                let index = in_turn().find(|&index| !regular[index].is_stalled(now));
                let index = index.unwrap_or(next % count);
                self.next = index + 1;
                index
            }
            Placement::Hash { modulus } => self.hash(remote, modulus, count),
            Placement::SourcePort => remote.map_or(0, |remote| usize::from(remote.port()) % count),
        }
    }

    fn least_loaded(&mut self, regular: &[ReactorSlot], now: MonoNs) -> usize {
        self.placed.resize(regular.len(), (0, 0));
        let mut candidates = Vec::with_capacity(regular.len());
        for (slot, placed) in regular.iter().zip(&mut self.placed) {
            let windows = slot.windows.load(Ordering::Relaxed);
            if placed.0 != windows {
                *placed = (windows, 0);
            }
            candidates.push(Candidate {
                load: slot.load(),
                connections: slot.connections.load(Ordering::Relaxed) as u64,
                placed: placed.1,
                is_stalled: slot.is_stalled(now),
            });
        }
        let index = least_loaded(&candidates);
        self.placed[index].1 += 1;
        index
    }

    fn hash(&mut self, remote: Option<SocketAddr>, modulus: u32, count: usize) -> usize {
        // All peers of a Unix socket have the same address.
        let remote = remote.unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
        let hash = foldhash::quality::FixedState::default().hash_one(remote);
        let number = self.accepted % u64::from(modulus.max(1));
        self.accepted = self.accepted.wrapping_add(1);
        usize::try_from(hash.wrapping_add(number) % count as u64).unwrap_or(0)
    }
}

/// A reactor as the acceptor sees it.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    load: Load,
    connections: u64,
    /// Connections placed since the load was measured.
    placed: u64,
    /// It does not publish its load.
    is_stalled: bool,
}

/// The candidate with the fewest connections among the least busy ones, by either measure of
/// [`Load`].
fn least_loaded(candidates: &[Candidate]) -> usize {
    let busy = similar(candidates, |load| u64::from(load.busy_ppm));
    let used = similar(candidates, |load| u64::from(load.used_ppm));
    let is_best = |one: &Candidate| !one.is_stalled && (busy(one) || used(one));
    let rank = |(index, one): &(usize, &Candidate)| {
        (one.is_stalled, !is_best(one), one.connections, *index)
    };
    candidates.iter().enumerate().min_by_key(rank).map_or(0, |(index, _)| index)
}

/// Candidates about as busy as the least busy one. Connections not yet included in the measured
/// load are counted with the average load of a connection, so that a burst is not placed on one
/// reactor.
fn similar(
    candidates: &[Candidate],
    measure: impl Fn(Load) -> u64 + Copy,
) -> impl Fn(&Candidate) -> bool {
    let load: u64 = candidates.iter().map(|one| measure(one.load)).sum();
    let measured: u64 =
        candidates.iter().map(|one| one.connections.saturating_sub(one.placed)).sum();
    let each = (load / measured.max(1)).max(LOAD_PER_CONNECTION_PPM);
    let expected = move |one: &Candidate| measure(one.load) + one.placed * each;
    let least = candidates.iter().map(expected).min().unwrap_or(0);
    move |one: &Candidate| expected(one) <= least + SIMILAR_PPM
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::limits::Limits;
    use crate::mailbox::Waker;

    fn group_state(reactors: usize) -> GroupState {
        let wakers = (0..reactors).map(|_| Waker::simulated()).collect();
        GroupState::new(Arc::new(Limits::default()), wakers, false)
    }

    fn place_many(placement: Placement, reactors: usize, count: u32) -> Vec<usize> {
        let group_state = group_state(reactors);
        let mut placer = Placer::default();
        let mut counts = vec![0; reactors];
        for number in 0..count {
            let port = u16::try_from(40_000 + number).unwrap();
            let remote = SocketAddr::from(([10, 0, 0, (number % 4) as u8], port));
            let index = placer.place(placement, &group_state, Some(remote), MonoNs(0));
            group_state.connection_opened(index);
            counts[index] += 1;
        }
        counts
    }

    #[test]
    fn idle_connections_spread_evenly() {
        assert_eq!(place_many(Placement::LeastLoaded, 16, 16), [1; 16]);
        let counts = place_many(Placement::LeastLoaded, 16, 1600);
        assert!(counts.iter().all(|&count| (99..=101).contains(&count)), "{counts:?}");
        assert_eq!(place_many(Placement::RoundRobin, 4, 8), [2; 4]);
        assert_eq!(place_many(Placement::SourcePort, 3, 5), [1, 2, 2], "40,000 is 1 of 3");
    }

    #[test]
    fn hashing_leaves_reactors_empty_whatever_the_modulus() {
        for modulus in [1, 8, 64] {
            let counts = place_many(Placement::Hash { modulus }, 16, 16);
            assert_eq!(counts.iter().sum::<usize>(), 16);
            assert!(counts.contains(&0), "{counts:?}");
            // The more connections, the more even the distribution.
            let counts = place_many(Placement::Hash { modulus }, 16, 4_000);
            assert!(counts.iter().all(|count| (150..350).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn the_modulus_separates_connections_of_one_peer() {
        // As for a Unix socket, which has no port.
        let group_state = group_state(16);
        let mut placer = Placer::default();
        let mut place =
            || placer.place(Placement::Hash { modulus: 4 }, &group_state, None, MonoNs(0));
        let first: Vec<usize> = (0..4).map(|_| place()).collect();
        let steps: Vec<usize> = first.windows(2).map(|two| (two[1] + 16 - two[0]) % 16).collect();
        assert_eq!(steps, [1, 1, 1]);
        assert_eq!((0..4).map(|_| place()).collect::<Vec<usize>>(), first);
    }

    #[test]
    fn busy_reactors_get_nothing_until_the_others_are_expected_to_be_as_busy() {
        let group_state = group_state(2);
        group_state.slots[0].publish_load(Load { busy_ppm: 500_000, used_ppm: 500_000 });
        for _ in 0..5 {
            group_state.connection_opened(0);
        }
        let mut placer = Placer::default();
        let mut placed = [0; 2];
        for _ in 0..20 {
            let index = placer.place(Placement::LeastLoaded, &group_state, None, MonoNs(0));
            group_state.connection_opened(index);
            placed[index] += 1;
        }
        // The first goes to the idle reactor, but a burst is spread.
        assert!(placed[1] > placed[0]);
        assert!(placed[0] > 0);
    }

    #[test]
    fn stalled_reactors_get_nothing_while_others_are_not() {
        const MS: u64 = 1_000_000;
        let group_state = group_state(3);
        group_state.slots[0].publish_turn(Some(MonoNs(MS)));
        for _ in 0..5 {
            group_state.connection_opened(2);
        }
        let place = |placement, at_ms: u64| {
            let mut placer = Placer::default();
            let mut place = || placer.place(placement, &group_state, None, MonoNs(at_ms * MS));
            [place(), place(), place()]
        };
        assert_eq!(place(Placement::RoundRobin, 10), [0, 1, 2]);
        assert_eq!(place(Placement::RoundRobin, 30), [1, 2, 1]);
        assert_eq!(place(Placement::LeastLoaded, 10)[0], 0);
        assert_eq!(place(Placement::LeastLoaded, 30)[0], 1);
        group_state.slots[1].publish_turn(Some(MonoNs(MS)));
        assert_eq!(place(Placement::LeastLoaded, 30)[0], 2, "although it has more connections");
        group_state.slots[2].publish_turn(Some(MonoNs(MS)));
        assert_eq!(place(Placement::LeastLoaded, 30)[0], 0);
        assert_eq!(place(Placement::RoundRobin, 30), [0, 1, 2]);
        group_state.slots[0].publish_turn(None);
        assert_eq!(place(Placement::RoundRobin, 30), [0, 0, 0]);
    }

    #[test]
    fn stalled_reactors_get_no_load_of_others() {
        const MS: u64 = 1_000_000;
        let group_state = group_state(2);
        let busy = Load { busy_ppm: 400_000, used_ppm: 400_000 };
        group_state.slots[0].publish_load(busy);
        let decide = |at_ms: u64| {
            let loads = group_state.loads(0, MonoNs(at_ms * MS));
            crate::balance::Balance::default().decide(0, &loads)
        };
        group_state.slots[1].publish_turn(Some(MonoNs(MS)));
        assert_eq!(decide(10), crate::balance::Decision::Measure);
        assert_eq!(decide(30), crate::balance::Decision::Nothing);
        // It is in a turn itself while it decides.
        group_state.slots[0].publish_turn(Some(MonoNs(MS)));
        assert_eq!(group_state.loads(0, MonoNs(30 * MS)), [Some(busy), None]);
    }

    #[test]
    fn waiting_for_a_core_is_not_being_busier() {
        let busy = |busy_ppm, used_ppm, connections| Candidate {
            load: Load { busy_ppm, used_ppm },
            connections,
            placed: 0,
            is_stalled: false,
        };
        // All on one core: the number of connections decides.
        let shared = [busy(900_000, 60_000, 3), busy(400_000, 60_000, 4), busy(200_000, 65_000, 4)];
        assert_eq!(least_loaded(&shared), 0);
        // The second shares its core with another program, and cannot be busier.
        assert_eq!(least_loaded(&[busy(950_000, 950_000, 3), busy(950_000, 450_000, 4)]), 0);
        assert_eq!(least_loaded(&[busy(950_000, 950_000, 3), busy(200_000, 100_000, 9)]), 1);
    }
}
