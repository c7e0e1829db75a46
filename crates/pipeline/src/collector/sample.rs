//! A uniform sample of each window: every record of the window has the same probability, regardless
//! of its position.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::uniform::{self, CLASSES};

/// Maximum number of records kept per window.
pub const SAMPLE_MAX: usize = 100_000;

/// A reservoir that receives record numbers and selects from them, so a batch without a selected
/// record costs one comparison.
// Source: K.-H. Li: Reservoir-Sampling Algorithms of Time Complexity O(n(1+log(N/n))) (1994), L
#[derive(Debug)]
pub struct Reservoir {
    random: SmallRng,
    size: usize,
    records: Vec<Vec<u8>>,
    /// Positions of the kept records in this window.
    positions: Vec<u64>,
    /// Records offered in this window.
    seen: u64,
    /// Position, in this window, of the next record to keep.
    next_kept: u64,
    weight: f64,
}

impl Reservoir {
    /// # Panics
    /// If the size is above [`SAMPLE_MAX`].
    pub fn new(size: usize, seed: u64) -> Self {
        assert!(size <= SAMPLE_MAX);
        let random = SmallRng::seed_from_u64(seed);
        let mut reservoir = Self {
            random,
            size,
            records: Vec::with_capacity(size),
            positions: Vec::with_capacity(size),
            seen: 0,
            next_kept: 0,
            weight: 1.0,
        };
        reservoir.begin();
        reservoir
    }

    fn begin(&mut self) {
        self.seen = 0;
        self.positions.clear();
        self.next_kept = if self.size == 0 { u64::MAX } else { 0 };
        self.weight = 1.0;
    }

    /// Offers `count` more records. `record` returns a record by its index in the batch.
    pub fn offer<'a>(&mut self, count: u32, mut record: impl FnMut(u32) -> Option<&'a [u8]>) {
        let end = self.seen + u64::from(count);
        while self.next_kept < end {
            let index = u32::try_from(self.next_kept - self.seen).expect("inside the batch");
            if let Some(bytes) = record(index) {
                self.keep(bytes);
            }
            self.choose_next();
        }
        self.seen = end;
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.records.len() < self.size {
            self.records.push(bytes.to_vec());
            self.positions.push(self.next_kept);
            return;
        }
        let victim = self.random.random_range(0..self.size);
        self.positions[victim] = self.next_kept;
        self.records[victim].clear();
        self.records[victim].extend_from_slice(bytes);
    }

    /// Keeps every record until the sample is full; then skips increasingly many.
    fn choose_next(&mut self) {
        if self.next_kept + 1 < u64::try_from(self.size).expect("64 bits") {
            self.next_kept += 1;
            return;
        }
        let size = f64::from(u32::try_from(self.size).expect("checked at the start"));
        self.weight *= (self.uniform().ln() / size).exp();
        let skipped = (self.uniform().ln() / (-self.weight).ln_1p()).floor();
        // A skip of 2^53 records means never: no window is that large.
        #[expect(clippy::cast_possible_truncation, reason = "clamped to what a u64 holds")]
        #[expect(clippy::cast_sign_loss, reason = "a quotient of two logarithms below one")]
        let skipped = skipped.clamp(0.0, 9e15) as u64;
        self.next_kept = self.next_kept.saturating_add(skipped).saturating_add(1);
    }

    /// Returns a random number above zero, so that its logarithm is finite.
    fn uniform(&mut self) -> f64 {
        1.0 - self.random.random::<f64>()
    }

    /// Counts the kept records by their part of the window so far; `None` for a small window.
    pub fn classes(&self) -> Option<[u64; CLASSES]> {
        if self.seen < uniform::WINDOW_TASKS_MIN {
            return None;
        }
        let mut counts = [0; CLASSES];
        for position in &self.positions {
            counts[uniform::class(*position, self.seen)] += 1;
        }
        Some(counts)
    }

    /// Whether no record has been offered in this window.
    pub fn is_empty(&self) -> bool {
        self.seen == 0
    }

    /// Returns the kept records and the number offered, and begins a new window.
    pub fn take(&mut self) -> (Vec<Vec<u8>>, u64) {
        let seen = self.seen;
        let records = std::mem::replace(&mut self.records, Vec::with_capacity(self.size));
        self.begin();
        (records, seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples the numbers 0 to `total`, offered in batches of these sizes in turn.
    fn sampled(seed: u64, size: usize, total: u64, batches: &[u32]) -> Vec<u64> {
        let mut reservoir = Reservoir::new(size, seed);
        let numbers: Vec<[u8; 8]> = (0..total).map(u64::to_be_bytes).collect();
        let mut rest = &numbers[..];
        for count in batches.iter().cycle() {
            let (batch, after) = rest.split_at(rest.len().min(usize::try_from(*count).unwrap()));
            reservoir.offer(u32::try_from(batch.len()).unwrap(), |index| {
                batch.get(usize::try_from(index).unwrap()).map(|bytes| &bytes[..])
            });
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        let (records, seen) = reservoir.take();
        assert_eq!(seen, total);
        let number = |bytes: &Vec<u8>| u64::from_be_bytes(bytes[..].try_into().unwrap());
        records.iter().map(number).collect()
    }

    #[test]
    fn a_small_window_is_kept_whole() {
        let mut numbers = sampled(1, 100, 70, &[1, 13]);
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..70));
        assert!(sampled(1, 0, 70, &[9]).is_empty());
    }

    #[test]
    fn no_record_is_sampled_twice() {
        let mut numbers = sampled(3, 100, 10_000, &[512]);
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 100);
    }

    /// 20 classes of positions over 200 windows: 19 degrees of freedom, above 43.8 once in a
    /// thousand.
    #[test]
    fn positions_are_uniform() {
        let mut counts = [0_u32; 20];
        for seed in 0..200 {
            for number in sampled(seed, 100, 4_000, &[1, 64, 500]) {
                counts[usize::try_from(number / 200).unwrap()] += 1;
            }
        }
        let expected = 200.0 * 100.0 / 20.0;
        let chi_square: f64 =
            counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
        assert!(chi_square < 43.8, "{chi_square} {counts:?}");
    }

    /// Every kept record is counted by its position; the classes are uniform as above.
    #[test]
    fn classes_are_those_of_the_positions() {
        let mut sums = [0; CLASSES];
        for seed in 0..50 {
            let mut reservoir = Reservoir::new(100, seed);
            let bytes = [7_u8];
            reservoir.offer(19_999, |_| Some(&bytes));
            assert_eq!(reservoir.classes(), None);
            reservoir.offer(80_001, |_| Some(&bytes));
            let counts = reservoir.classes().unwrap();
            assert_eq!(counts.iter().sum::<u64>(), 100);
            assert!(!reservoir.is_empty());
            reservoir.take();
            assert!(reservoir.is_empty() && reservoir.positions.is_empty());
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        assert!(uniform::chi_square(&sums).unwrap() < uniform::CHI_SQUARE_MAX, "{sums:?}");
    }

    #[test]
    fn windows_restart_empty() {
        let mut reservoir = Reservoir::new(2, 1);
        let bytes = [7_u8];
        reservoir.offer(5, |_| Some(&bytes));
        assert_eq!(reservoir.take().1, 5);
        reservoir.offer(1, |_| Some(&bytes));
        assert_eq!(reservoir.take(), (vec![vec![7]], 1));
    }
}
