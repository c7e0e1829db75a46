//! Frequently accessed keys, found by sampling commands.
//!
//! A reactor samples one command in [`COMMANDS_PER_SAMPLE`] on average. The samples of a window of
//! several seconds are kept for [`KEYS_MAX`] keys: a new key replaces the least frequent one and
//! inherits its count, so that a frequent key stays regardless of the other keys. The last complete
//! window is shown; older ones are discarded.
// Source: Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k Elements in Data Streams

use std::cmp::Reverse;

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use smallvec::SmallVec;
use uuid::Uuid;

/// Commands per sample, on average: the cost of a lock and a few hundred comparisons is then some
/// nanoseconds per command.
const COMMANDS_PER_SAMPLE: u32 = 64;
/// Longest distance between two samples; the shortest is 1.
const STEP_MAX: u32 = 2 * COMMANDS_PER_SAMPLE - 1;

/// Keys of one window. Any key with more than one in this many samples is among them.
const KEYS_MAX: usize = 64;
/// Bytes of a key that are kept for display. The hash of all bytes identifies a key.
const KEY_BYTES_MAX: usize = 64;
/// Keys of both windows of one reactor, in bytes.
const WINDOWS_BYTES_MAX: usize = 32 << 10;
const _: () = assert!(2 * KEYS_MAX * size_of::<HotKey>() <= WINDOWS_BYTES_MAX);

/// A key with fewer samples may be in the window by chance.
const SAMPLES_MIN: u64 = 2;
/// A key with less than this fraction of the samples is not hot.
const PART_MIN: u64 = 100;

/// Chooses the commands to sample. Its steps are random, because a periodic load could be in step
/// with fixed ones.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// Commands until the next sample; never 0.
    left: u32,
    random: SmallRng,
}

impl Sampler {
    pub(crate) fn new(seed: u64) -> Sampler {
        let mut sampler = Sampler { left: 1, random: SmallRng::seed_from_u64(seed) };
        sampler.begin_step();
        sampler
    }

    /// Whether to sample this command. Called once per command.
    #[inline]
    pub(crate) fn is_due(&mut self) -> bool {
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        self.begin_step();
        true
    }

    #[cold]
    fn begin_step(&mut self) {
        self.left = 1 + self.random.next_u32() % STEP_MAX;
    }

    /// Chooses one of `count` items at random, if there are any.
    pub(crate) fn choose(&mut self, count: usize) -> Option<usize> {
        let nth = self.random.next_u64().checked_rem(count as u64)?;
        usize::try_from(nth).ok()
    }
}

/// Keyspace that contains a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    Database(u8),
    /// The key is a partition key, as text.
    Table(Uuid),
}

#[derive(Debug, Clone)]
pub(crate) struct HotKey {
    pub(crate) space: Space,
    hash: u64,
    /// First bytes of the key.
    pub(crate) name: SmallVec<[u8; KEY_BYTES_MAX]>,
    /// True if the key is longer than `name`.
    pub(crate) is_cut: bool,
    samples: u64,
    /// Upper bound on the samples inherited from replaced keys.
    inherited: u64,
}

impl HotKey {
    /// Samples that are certainly of this key.
    pub(crate) fn samples(&self) -> u64 {
        self.samples - self.inherited
    }

    fn is(&self, space: Space, hash: u64) -> bool {
        self.hash == hash && self.space == space
    }
}

/// Samples of one period of several seconds.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// Sampled commands, including those without a key.
    pub(crate) samples: u64,
    keys: Vec<HotKey>,
}

impl Window {
    fn note(&mut self, space: Space, hash: u64, key: &[u8]) {
        self.samples += 1;
        if let Some(known) = self.keys.iter_mut().find(|known| known.is(space, hash)) {
            known.samples += 1;
            return;
        }
        let shown = &key[..key.len().min(KEY_BYTES_MAX)];
        let mut new = HotKey {
            space,
            hash,
            name: SmallVec::from_slice(shown),
            is_cut: shown.len() < key.len(),
            samples: 1,
            inherited: 0,
        };
        if self.keys.len() < KEYS_MAX {
            self.keys.push(new);
            return;
        }
        let rarest = self.keys.iter_mut().min_by_key(|known| known.samples);
        let rarest = rarest.expect("the window is full");
        new.inherited = rarest.samples;
        new.samples += rarest.samples;
        *rarest = new;
    }

    /// Adds the samples of another reactor.
    pub(crate) fn add(&mut self, other: &Window) {
        self.samples += other.samples;
        for key in &other.keys {
            match self.keys.iter_mut().find(|known| known.is(key.space, key.hash)) {
                None => self.keys.push(key.clone()),
                Some(known) => {
                    known.samples += key.samples;
                    known.inherited += key.inherited;
                }
            }
        }
    }

    /// Returns the hot keys, most frequent first.
    pub(crate) fn hottest(&self) -> Vec<&HotKey> {
        let stands_out = |key: &&HotKey| {
            let samples = key.samples();
            samples >= SAMPLES_MIN && samples.saturating_mul(PART_MIN) >= self.samples
        };
        let mut hottest: Vec<&HotKey> = self.keys.iter().filter(stands_out).collect();
        hottest.sort_by_key(|key| Reverse(key.samples()));
        hottest
    }
}

/// The windows of one reactor.
#[derive(Debug, Default)]
pub(crate) struct HotKeys {
    /// The window in progress.
    current: Window,
    last: Window,
}

impl HotKeys {
    /// Records that a sampled command names this key. `hash`: of all its bytes.
    pub(crate) fn note(&mut self, space: Space, hash: u64, key: &[u8]) {
        self.current.note(space, hash, key);
    }

    /// Records that a sampled command names no key.
    pub(crate) fn note_keyless(&mut self) {
        self.current.samples += 1;
    }

    /// Ends the window and discards the previous one.
    pub(crate) fn end_window(&mut self) {
        std::mem::swap(&mut self.last, &mut self.current);
        self.current.samples = 0;
        self.current.keys.clear();
    }

    /// The last complete window.
    pub(crate) fn last(&self) -> &Window {
        &self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const COMMANDS: u32 = 640_000;
    const FIRST: Space = Space::Database(0);

    /// Names and samples of the hot keys.
    fn hottest(window: &Window) -> Vec<(String, u64)> {
        let name = |key: &HotKey| String::from_utf8(key.name.to_vec()).unwrap();
        window.hottest().into_iter().map(|key| (name(key), key.samples())).collect()
    }

    #[test]
    fn one_command_in_64_is_looked_at_in_steps_of_all_lengths() {
        let mut sampler = Sampler::new(1);
        let (mut steps, mut step) = (Vec::new(), 0);
        for _ in 0..COMMANDS {
            step += 1;
            if sampler.is_due() {
                steps.push(step);
                step = 0;
            }
        }
        assert!((9_500..10_500).contains(&steps.len()), "{}", steps.len());
        let lengths: BTreeSet<u32> = steps.into_iter().collect();
        assert_eq!(lengths.into_iter().collect::<Vec<_>>(), (1..=STEP_MAX).collect::<Vec<_>>());
    }

    #[test]
    fn a_load_with_a_period_is_seen_as_it_is() {
        let mut sampler = Sampler::new(2);
        let (mut samples, mut of_one_key) = (0, 0);
        for command in 0..COMMANDS {
            if sampler.is_due() {
                samples += 1;
                of_one_key += u32::from(command % COMMANDS_PER_SAMPLE == 0);
            }
        }
        let expected = samples / COMMANDS_PER_SAMPLE;
        assert!((expected / 2..2 * expected).contains(&of_one_key), "{of_one_key} of {samples}");
    }

    #[test]
    fn one_of_several_is_chosen() {
        let mut sampler = Sampler::new(3);
        assert_eq!(sampler.choose(0), None);
        assert_eq!(sampler.choose(1), Some(0));
        let chosen: BTreeSet<_> = (0..100).map(|_| sampler.choose(3)).collect();
        assert_eq!(chosen, BTreeSet::from([Some(0), Some(1), Some(2)]));
    }

    #[test]
    fn a_hot_key_is_found_among_many_others() {
        let mut window = Window::default();
        for n in 0..10_000 {
            match n % 10 {
                0..3 => window.note(FIRST, u64::MAX, b"hot"),
                3 => window.note(Space::Database(1), u64::MAX, b"hot elsewhere"),
                _ => window.note(FIRST, n, format!("cold {n}").as_bytes()),
            }
        }
        assert_eq!(window.samples, 10_000);
        let expected = [("hot".to_owned(), 3_000), ("hot elsewhere".to_owned(), 1_000)];
        assert_eq!(hottest(&window), expected);
    }

    #[test]
    fn a_key_that_comes_late_is_found_too() {
        let mut window = Window::default();
        for n in 0..5_000 {
            window.note(FIRST, n, format!("cold {n}").as_bytes());
        }
        for _ in 0..5_000 {
            window.note(FIRST, u64::MAX, b"hot");
        }
        assert_eq!(hottest(&window), [("hot".to_owned(), 5_000)]);
    }

    #[test]
    fn keys_that_never_come_again_take_no_more_memory() {
        let mut window = Window::default();
        for n in 0..100_000_u64 {
            let key = [&n.to_be_bytes()[..], &[b'x'; 1_000]].concat();
            window.note(FIRST, n, &key);
        }
        assert_eq!((window.samples, window.keys.len()), (100_000, KEYS_MAX));
        assert!(window.keys.iter().all(|key| !key.name.spilled() && key.is_cut));
        assert_eq!(hottest(&window), [], "no key is hot");
    }

    #[test]
    fn long_keys_with_the_same_beginning_are_two() {
        let mut window = Window::default();
        let long = "k".repeat(KEY_BYTES_MAX);
        for hash in [1, 2, 1] {
            window.note(FIRST, hash, format!("{long}{hash}").as_bytes());
        }
        window.note(FIRST, 3, long.as_bytes());
        assert_eq!(
            window.keys.iter().map(|key| key.is_cut).collect::<Vec<_>>(),
            [true, true, false]
        );
        assert_eq!(hottest(&window), [(long, 2)]);
    }

    #[test]
    fn counts_of_reactors_are_added() {
        let (mut sum, mut one, mut other) = <(Window, Window, Window)>::default();
        for (window, keys) in [(&mut one, &[1, 1, 2][..]), (&mut other, &[2, 2, 1, 2][..])] {
            for hash in keys {
                window.note(FIRST, *hash, hash.to_string().as_bytes());
            }
        }
        sum.add(&one);
        sum.add(&other);
        assert_eq!(sum.samples, 7);
        assert_eq!(hottest(&sum), [("2".to_owned(), 4), ("1".to_owned(), 3)]);
    }

    #[test]
    fn old_counts_are_dropped() {
        let mut keys = HotKeys::default();
        keys.note(FIRST, 1, b"a");
        keys.note(FIRST, 1, b"a");
        keys.note_keyless();
        assert_eq!(hottest(keys.last()), [], "the window has not ended");
        keys.end_window();
        assert_eq!((keys.last().samples, hottest(keys.last())), (3, vec![("a".to_owned(), 2)]));
        keys.end_window();
        assert_eq!((keys.last().samples, hottest(keys.last())), (0, vec![]));
    }
}
