//! Which reactor a new connection goes to.

use std::hash::BuildHasher as _;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use crate::balance::Load;
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
    /// `(hash(remote address and port) + accepted % modulus) % reactors`: the rule of the original,
    /// for comparison. Hashing leaves reactors empty, 16 connections reach about 10 of 16. The
    /// port is another one for each connection, so the modulus does not change how many.
    Hash { modulus: u32 },
    /// By the peer's port: whoever chooses its port chooses its reactor.
    SourcePort,
}

/// The acceptor's memory for placing.
#[derive(Debug, Default)]
pub(crate) struct Placer {
    next: usize,
    /// Connections placed by `Hash`.
    accepted: u64,
    /// Per reactor: the window last seen, and what was placed since.
    placed: Vec<(u64, u64)>,
}

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
            Placement::Hash { modulus } => self.hash(remote, modulus, count),
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
                load: station.load(),
                connections: station.connections.load(Ordering::Relaxed) as u64,
                placed: placed.1,
            });
        }
        let index = least_loaded(&candidates);
        self.placed[index].1 += 1;
        index
    }

    fn hash(&mut self, remote: Option<SocketAddr>, modulus: u32, count: usize) -> usize {
        // All peers of a Unix socket are one.
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
}

/// The one with the fewest connections of those that are no busier than the least busy one, by one
/// measure of [`Load`] or the other.
fn least_loaded(candidates: &[Candidate]) -> usize {
    let busy = similar(candidates, |load| u64::from(load.busy_ppm));
    let used = similar(candidates, |load| u64::from(load.used_ppm));
    let equally_good = candidates.iter().enumerate().filter(|(_, one)| busy(one) || used(one));
    equally_good.min_by_key(|(index, one)| (one.connections, *index)).map_or(0, |(index, _)| index)
}

/// Who is about as busy as the least busy one. Connections that the measured load does not show yet
/// are counted with the average load of a connection, so that a burst does not land on one reactor.
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
    fn hashing_leaves_reactors_empty_whatever_the_modulus() {
        for modulus in [1, 8, 64] {
            let counts = place_many(Placement::Hash { modulus }, 16, 16);
            assert_eq!(counts.iter().sum::<usize>(), 16);
            assert!(counts.contains(&0), "{counts:?}");
            // The more come the more even it gets.
            let counts = place_many(Placement::Hash { modulus }, 16, 4_000);
            assert!(counts.iter().all(|count| (150..350).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn the_modulus_tells_connections_of_one_peer_apart() {
        // As by a Unix socket, where no port does.
        let commons = commons(16);
        let mut placer = Placer::default();
        let mut place = || placer.place(Placement::Hash { modulus: 4 }, &commons, None);
        let first: Vec<usize> = (0..4).map(|_| place()).collect();
        let steps: Vec<usize> = first.windows(2).map(|two| (two[1] + 16 - two[0]) % 16).collect();
        assert_eq!(steps, [1, 1, 1]);
        assert_eq!((0..4).map(|_| place()).collect::<Vec<usize>>(), first);
    }

    #[test]
    fn busy_reactors_get_nothing_until_the_others_are_expected_to_be_as_busy() {
        let commons = commons(2);
        commons.stations[0].publish_load(Load { busy_ppm: 500_000, used_ppm: 500_000 });
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

    #[test]
    fn who_only_waits_for_a_core_is_not_busier() {
        let busy = |busy_ppm, used_ppm, connections| Candidate {
            load: Load { busy_ppm, used_ppm },
            connections,
            placed: 0,
        };
        // All on one core: connections decide.
        let shared = [busy(900_000, 60_000, 3), busy(400_000, 60_000, 4), busy(200_000, 65_000, 4)];
        assert_eq!(least_loaded(&shared), 0);
        // The second shares its core with another program, and is as busy as it can be.
        assert_eq!(least_loaded(&[busy(950_000, 950_000, 3), busy(950_000, 450_000, 4)]), 0);
        assert_eq!(least_loaded(&[busy(950_000, 950_000, 3), busy(200_000, 100_000, 9)]), 1);
    }
}
