//! Random choices per request: keys, sizes, numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution as _, StandardNormal, Zipf};

use super::spec::{Distribution, Keys, Sizes, SocketWork};

/// Digits of the number in a key.
pub(crate) const KEY_DIGITS: usize = 12;
/// Limit of keys that these digits can distinguish.
pub(crate) const KEYS_MAX: u64 = 1_000_000_000_000;

/// Counters shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct SharedDraws {
    /// The next key of [`Distribution::Sequential`], or the next one written by
    /// [`Distribution::Latest`].
    next_key: AtomicU64,
    next_operation: AtomicU64,
}

/// The random choices of one thread.
#[derive(Debug)]
pub(crate) struct Draws {
    random: SmallRng,
    shared: Arc<SharedDraws>,
    keys: KeyDraws,
    keys_count: u64,
    sizes: Sizes,
    /// Every value is a prefix of this.
    filler: Arc<[u8]>,
}

#[derive(Debug)]
enum KeyDraws {
    Uniform,
    Zipfian(Zipf<f64>),
    Latest(Zipf<f64>),
    Gaussian,
    Sequential,
}

impl Draws {
    /// `stream` distinguishes threads with the same seed.
    pub(crate) fn new(
        work: &SocketWork,
        shared: Arc<SharedDraws>,
        filler: Arc<[u8]>,
        seed: u64,
        stream: u64,
    ) -> Draws {
        // An odd factor spreads small seeds and streams over all 64 bits without collisions.
        let seed = seed.wrapping_add(stream.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Draws {
            random: SmallRng::seed_from_u64(seed),
            shared,
            keys: KeyDraws::new(&work.keys),
            keys_count: work.keys.count,
            sizes: work.value_bytes,
            filler,
        }
    }

    /// Draws the number of the next key. `writes` is whether the operation stores a value.
    #[inline]
    pub(crate) fn key(&mut self, writes: bool) -> u64 {
        let count = self.keys_count;
        match &self.keys {
            KeyDraws::Uniform => self.random.random_range(0..count),
            KeyDraws::Gaussian => bell(count, self.random.sample(StandardNormal)),
            KeyDraws::Zipfian(zipf) => rank(zipf, &mut self.random).min(count - 1),
            KeyDraws::Sequential => self.shared.next_key.fetch_add(1, Ordering::Relaxed) % count,
            KeyDraws::Latest(_) if writes => {
                self.shared.next_key.fetch_add(1, Ordering::Relaxed) % count
            }
            KeyDraws::Latest(zipf) => {
                let back = rank(zipf, &mut self.random).min(count - 1);
                let written = self.shared.next_key.load(Ordering::Relaxed) % count;
                (written + count - 1 - back) % count
            }
        }
    }

    /// Draws a uniform number below the number of keys.
    pub(crate) fn number(&mut self) -> u64 {
        self.random.random_range(0..self.keys_count)
    }

    pub(crate) fn operation(&mut self) -> u64 {
        self.shared.next_operation.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn value(&mut self) -> &[u8] {
        let bytes = match self.sizes {
            Sizes::Fixed(bytes) => bytes,
            Sizes::Between(least, most) => self.random.random_range(least..=most),
        };
        &self.filler[..bytes]
    }

    /// Draws from 0 to 1, excluding 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        self.random.random()
    }
}

impl KeyDraws {
    fn new(keys: &Keys) -> KeyDraws {
        match keys.distribution {
            Distribution::Uniform => KeyDraws::Uniform,
            Distribution::Zipfian { exponent } => KeyDraws::Zipfian(zipf(keys.count, exponent)),
            Distribution::Latest { exponent } => KeyDraws::Latest(zipf(keys.count, exponent)),
            Distribution::Gaussian => KeyDraws::Gaussian,
            Distribution::Sequential => KeyDraws::Sequential,
        }
    }
}

#[allow(clippy::cast_precision_loss)] // at most KEYS_MAX, which a double holds exactly
fn zipf(count: u64, exponent: f64) -> Zipf<f64> {
    Zipf::new(count as f64, exponent).expect("count and exponent were checked")
}

/// Returns the key at this many deviations from the middle, clamped to the range.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most KEYS_MAX; below 0 is 0"
)]
fn bell(count: u64, deviations: f64) -> u64 {
    let half = (count - 1) as f64 / 2.0;
    ((half + deviations * half / 3.0).round() as u64).min(count - 1)
}

/// Draws a rank; 0 is the most popular.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // from 1 to KEYS_MAX
fn rank(zipf: &Zipf<f64>, random: &mut SmallRng) -> u64 {
    zipf.sample(random) as u64 - 1
}

/// Returns letters and digits from a seed, with the length of the longest value.
pub(crate) fn filler(sizes: Sizes, seed: u64) -> Arc<[u8]> {
    let mut random = SmallRng::seed_from_u64(seed);
    (0..longest(sizes)).map(|_| random.sample(rand::distr::Alphanumeric)).collect()
}

pub(crate) fn longest(sizes: Sizes) -> usize {
    match sizes {
        Sizes::Fixed(bytes) => bytes,
        Sizes::Between(_, most) => most,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::load::spec::tests::work;

    pub(crate) fn draws(work: &SocketWork) -> Draws {
        Draws::new(work, Arc::default(), filler(work.value_bytes, 1), 7, 0)
    }

    fn with(distribution: Distribution, count: u64) -> Draws {
        let mut work = work();
        work.keys.count = count;
        work.keys.distribution = distribution;
        draws(&work)
    }

    fn counts(draws: &mut Draws, count: u64, of: u64) -> Vec<u64> {
        let mut seen = vec![0; usize::try_from(count).unwrap()];
        for _ in 0..of {
            seen[usize::try_from(draws.key(false)).unwrap()] += 1;
        }
        seen
    }

    #[test]
    fn uniform_keys_come_equally_often() {
        let seen = counts(&mut with(Distribution::Uniform, 10), 10, 100_000);
        // Six standard deviations of a binomial with these numbers.
        assert!(seen.iter().all(|count| count.abs_diff(10_000) < 570), "{seen:?}");
    }

    #[test]
    #[allow(clippy::cast_precision_loss)]
    fn zipfian_keys_come_as_often_as_their_rank_says() {
        for exponent in [0.5, 0.99, 1.0, 1.5] {
            let seen = counts(&mut with(Distribution::Zipfian { exponent }, 100), 100, 200_000);
            let weights: Vec<f64> = (1..=100).map(|k| f64::from(k).powf(-exponent)).collect();
            let sum: f64 = weights.iter().sum();
            for (rank, weight) in weights.iter().enumerate().take(20) {
                let expected = 200_000.0 * weight / sum;
                let difference = (seen[rank] as f64 - expected).abs();
                assert!(difference < 6.0 * expected.sqrt(), "{exponent} {rank} {expected}");
            }
        }
    }

    #[test]
    fn gaussian_keys_crowd_in_the_middle() {
        assert_eq!(
            [-9.0, -3.0, 0.0, 1.5, 3.0, 9.0].map(|at| bell(101, at)),
            [0, 0, 50, 75, 100, 100]
        );
        assert_eq!(bell(1, 2.0), 0);
        let seen = counts(&mut with(Distribution::Gaussian, 300), 300, 100_000);
        // Within one deviation: 68.3 %, plus or minus six deviations of a binomial.
        let near: u64 = seen[100..200].iter().sum();
        assert!(near.abs_diff(68_300) < 1_100, "{near}");
    }

    #[test]
    fn sequential_keys_leave_none_out() {
        let mut draws = with(Distribution::Sequential, 5);
        let keys: Vec<u64> = (0..7).map(|_| draws.key(false)).collect();
        assert_eq!(keys, [0, 1, 2, 3, 4, 0, 1]);
    }

    #[test]
    fn the_latest_key_is_read_most() {
        let mut draws = with(Distribution::Latest { exponent: 1.2 }, 100);
        for expected in 0..42 {
            assert_eq!(draws.key(true), expected);
        }
        let seen = counts(&mut draws, 100, 20_000);
        let most = (0..100).max_by_key(|&key| seen[key]).unwrap();
        assert_eq!(most, 41);
        assert!(seen[40] > seen[39] && seen[39] > seen[20]);
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let mut work = work();
        work.value_bytes = Sizes::Between(3, 9);
        let draw = |stream| {
            let filler = filler(work.value_bytes, 1);
            let mut draws = Draws::new(&work, Arc::default(), filler, 7, stream);
            (0..20).map(|_| (draws.key(false), draws.value().to_vec())).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert!(draw(3).iter().all(|(_, value)| (3..=9).contains(&value.len())));
    }
}
