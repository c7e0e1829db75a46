//! Which reactor a new connection goes to.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;

use crate::context::Commons;

/// Reactors within this much of the least busy one are equally good: 5 %.
const SIMILAR_PPM: u64 = 50_000;
/// What a connection is expected to cost before anything is known: 0.1 %.
const LOAD_PER_CONNECTION_PPM: u64 = 1_000;

/// How reactors are chosen for new connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// The least busy reactor, and among similarly busy ones that with the fewest connections.
    /// Reactors that stay overloaded give connections away.
    #[default]
    LeastLoaded,
    /// One after the other.
    RoundRobin,
    /// `hash(remote address, how many came from it % connections_per_remote)`: the rule of the
    /// original, for comparison. Hashing leaves reactors empty: 16 connections reach about 10
    /// of 16.
    Hash { connections_per_remote: u32 },
    /// By the peer's port: whoever chooses its port chooses its reactor.
    SourcePort,
}

/// The acceptor's memory for placing.
#[derive(Debug, Default)]
pub(crate) struct Placer {
    next: usize,
    /// Accepted per remote address; only for `Hash`. Bounded by `REMOTES_MAX`.
    accepted: HashMap<IpAddr, u32>,
    /// Per reactor: the window last seen, and what was placed since.
    placed: Vec<(u64, u64)>,
}

/// Remote addresses counted for `Hash`; beyond it counting starts anew.
const REMOTES_MAX: usize = 64 * 1024;

impl Placer {
    pub(crate) fn place(
        &mut self,
        placement: Placement,
        commons: &Commons,
        remote: Option<SocketAddr>,
    ) -> usize {
        let count = commons.stations.len();
        match placement {
            Placement::LeastLoaded => self.least_loaded(commons),
            Placement::RoundRobin => {
                let index = self.next % count;
                self.next = index + 1;
                index
            }
            Placement::Hash { connections_per_remote } => {
                self.hash(remote.map(|it| it.ip()), connections_per_remote, count)
            }
            Placement::SourcePort => remote.map_or(0, |remote| usize::from(remote.port()) % count),
        }
    }

    fn least_loaded(&mut self, commons: &Commons) -> usize {
        self.placed.resize(commons.stations.len(), (0, 0));
        let mut candidates = Vec::with_capacity(commons.stations.len());
        for (station, placed) in commons.stations.iter().zip(&mut self.placed) {
            let windows = station.windows.load(Ordering::Relaxed);
            if placed.0 != windows {
                *placed = (windows, 0);
            }
            candidates.push(Candidate {
                load_ppm: u64::from(station.load_ppm.load(Ordering::Relaxed)),
                connections: station.connections.load(Ordering::Relaxed) as u64,
                placed: placed.1,
            });
        }
        let index = least_loaded(&candidates);
        self.placed[index].1 += 1;
        index
    }

    fn hash(&mut self, remote: Option<IpAddr>, per_remote: u32, count: usize) -> usize {
        let remote = remote.unwrap_or(IpAddr::from([0, 0, 0, 0]));
        if self.accepted.len() >= REMOTES_MAX {
            self.accepted.clear();
        }
        let accepted = self.accepted.entry(remote).or_default();
        let number = *accepted % per_remote.max(1);
        *accepted = accepted.wrapping_add(1);
        let hash = std::hash::BuildHasher::hash_one(
            &foldhash::quality::FixedState::default(),
            (remote, number),
        );
        usize::try_from(hash % count as u64).unwrap_or(0)
    }
}

/// A reactor as the acceptor sees it.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    load_ppm: u64,
    connections: u64,
    /// Connections placed since the load was measured.
    placed: u64,
}

/// Connections that the measured load does not show yet are counted with the average load of a
/// connection, so that a burst does not land on one reactor.
fn least_loaded(candidates: &[Candidate]) -> usize {
    let load: u64 = candidates.iter().map(|one| one.load_ppm).sum();
    let measured: u64 =
        candidates.iter().map(|one| one.connections.saturating_sub(one.placed)).sum();
    let each = (load / measured.max(1)).max(LOAD_PER_CONNECTION_PPM);
    let expected = |one: &Candidate| one.load_ppm + one.placed * each;
    let least = candidates.iter().map(expected).min().unwrap_or(0);
    let similar =
        candidates.iter().enumerate().filter(|(_, one)| expected(one) <= least + SIMILAR_PPM);
    similar.min_by_key(|(index, one)| (one.connections, *index)).map_or(0, |(index, _)| index)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::limits::Limits;
    use crate::mailbox::Waker;

    fn commons(reactors: usize) -> Commons {
        let wakers = (0..reactors).map(|_| Waker::simulated()).collect();
        Commons::new(Arc::new(Limits::default()), wakers)
    }

    fn place_many(placement: Placement, reactors: usize, count: u32) -> Vec<usize> {
        let commons = commons(reactors);
        let mut placer = Placer::default();
        let mut counts = vec![0; reactors];
        for number in 0..count {
            let port = u16::try_from(40_000 + number).unwrap();
            let remote = SocketAddr::from(([10, 0, 0, (number % 4) as u8], port));
            let index = placer.place(placement, &commons, Some(remote));
            commons.connection_opened(index);
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
    fn hashing_leaves_reactors_empty_but_is_bounded_per_remote() {
        let counts = place_many(Placement::Hash { connections_per_remote: 4 }, 16, 64);
        assert_eq!(counts.iter().sum::<usize>(), 64);
        assert!(counts.contains(&0));
        let counts = place_many(Placement::Hash { connections_per_remote: 1 }, 16, 64);
        assert!(counts.iter().filter(|&&count| count > 0).count() <= 4);
    }

    #[test]
    fn busy_reactors_get_nothing_until_the_others_are_expected_to_be_as_busy() {
        let commons = commons(2);
        commons.stations[0].load_ppm.store(500_000, Ordering::Relaxed);
        for _ in 0..5 {
            commons.connection_opened(0);
        }
        let mut placer = Placer::default();
        let mut placed = [0; 2];
        for _ in 0..20 {
            let index = placer.place(Placement::LeastLoaded, &commons, None);
            commons.connection_opened(index);
            placed[index] += 1;
        }
        // The first goes to the idle reactor, and a burst does not go there as a whole.
        assert!(placed[1] > placed[0]);
        assert!(placed[0] > 0);
    }
}
