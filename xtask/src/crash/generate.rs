//! Random steps of one client, from a seed.
//!
//! A client has general keys, which any operation may use (mostly each kind of operation its own
//! keys, sometimes others, to test that types are checked), and published keys: all of them contain
//! the same increasing version, written atomically, for observers to read.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::Bytes;
use super::op::{Op, Step};

/// Kinds of general keys: strings, counters, hashes, lists, sets, sorted sets.
pub(crate) const KINDS: usize = 6;
/// Counters that clients share.
pub(crate) const SHARED_COUNTERS: usize = 3;
/// Number of possible hash fields and of members of sets and sorted sets: about half of them exist
/// at a time, which is above and below the limits of compact encodings.
const MEMBERS: u32 = 280;
/// Far enough in the future that no key expires, in seconds of Unix time.
const EXPIRY_SECONDS: std::ops::Range<u64> = 4_000_000_000..4_100_000_000;
/// Values that are larger than the smallest segment of the log.
pub(crate) const HUGE_VALUES: HugeValues = HugeValues { odds: 0.0005, bytes_max: 150_000 };
const HUGE_VALUE_BYTES_MIN: usize = 50_000;

/// Keys with a version, by the way in which it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Published {
    /// Strings that one MSET writes.
    MSet(u8),
    /// Written by one transaction: a string, a field of a hash, a member of a sorted set.
    String,
    Field,
    Score,
}

impl Published {
    /// Written by one MSET.
    pub(crate) const BY_MSET: [Self; 3] = [Self::MSet(0), Self::MSet(1), Self::MSet(2)];
    /// Written by one transaction.
    pub(crate) const BY_TRANSACTION: [Self; 3] = [Self::String, Self::Field, Self::Score];
    /// The field or member that holds the version.
    pub(crate) const NAME: &[u8] = b"version";

    /// The key of the client whose keys begin with `prefix`.
    pub(crate) fn key(self, prefix: &str) -> Bytes {
        match self {
            Self::MSet(number) => format!("{prefix}published:m{number}"),
            Self::String => format!("{prefix}published:s"),
            Self::Field => format!("{prefix}published:h"),
            Self::Score => format!("{prefix}published:z"),
        }
        .into_bytes()
    }
}

/// The probability and the maximum size of huge values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HugeValues {
    pub(crate) odds: f64,
    pub(crate) bytes_max: usize,
}

/// The composition of a client's steps.
#[derive(Debug, Clone)]
pub(crate) struct Habits {
    /// All keys of the client begin with this.
    pub(crate) prefix: String,
    /// General keys.
    pub(crate) keys: usize,
    /// Probability of FLUSHDB; above 0 only for a client with its own database.
    pub(crate) flush_odds: f64,
    /// Whether the client increments the shared counters.
    pub(crate) shares: bool,
    pub(crate) huge: HugeValues,
}

/// A source of steps.
#[derive(Debug)]
pub(crate) struct Generator {
    habits: Habits,
    random: StdRng,
    /// The last published version; never reused, even if a crash lost it.
    version: u64,
}

impl Generator {
    pub(crate) fn new(habits: Habits) -> Self {
        Self { habits, random: StdRng::seed_from_u64(0), version: 0 }
    }

    /// Starts a round's sequence; versions continue.
    pub(crate) fn reseed(&mut self, seed: u64) {
        self.random = StdRng::seed_from_u64(seed);
    }

    /// How many steps to send before reading replies: mostly few, sometimes many.
    pub(crate) fn depth(&mut self, depth_max: usize) -> usize {
        match self.random.random_range(0..4) {
            0 => 1,
            1 => self.random.random_range(1..=8.min(depth_max)),
            _ => self.random.random_range(1..=depth_max),
        }
    }

    /// The next step.
    pub(crate) fn step(&mut self) -> Step {
        if self.habits.flush_odds > 0.0 && self.random.random_bool(self.habits.flush_odds) {
            return Step::Single(Op::FlushDb);
        }
        match self.random.random_range(0..100) {
            0..10 => self.publish_by_mset(),
            10..20 => self.publish_by_transaction(),
            20..27 => {
                let count = self.random.random_range(1..6);
                Step::Transaction((0..count).map(|_| self.op()).collect())
            }
            27..32 if self.habits.shares => {
                Step::Share(self.random.random_range(0..SHARED_COUNTERS))
            }
            _ => Step::Single(self.op()),
        }
    }

    fn publish_by_mset(&mut self) -> Step {
        let version = self.next_version();
        let text = version.to_string().into_bytes();
        let keys = Published::BY_MSET.map(|place| place.key(&self.habits.prefix));
        Step::Single(Op::MSet { pairs: keys.map(|key| (key, text.clone())).into() })
    }

    fn publish_by_transaction(&mut self) -> Step {
        let version = self.next_version();
        let text = version.to_string().into_bytes();
        let score = i64::try_from(version).expect("versions are counted one by one");
        let [string, hash, zset] =
            Published::BY_TRANSACTION.map(|place| place.key(&self.habits.prefix));
        let name = Published::NAME.to_vec();
        Step::Transaction(vec![
            Op::Set { key: string, value: text.clone() },
            Op::HSet { key: hash, fields: vec![(name.clone(), text)] },
            Op::ZAdd { key: zset, members: vec![(name, score)] },
        ])
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// One operation on general keys.
    fn op(&mut self) -> Op {
        match self.random.random_range(0..100) {
            0..10 => Op::Set { key: self.key(0), value: self.value() },
            10..16 => Op::Get { key: self.key(0) },
            16..18 => Op::StrLen { key: self.key(0) },
            18..23 => Op::Append { key: self.key(0), value: self.word() },
            23..30 => Op::Incr { key: self.key(1) },
            30..38 => Op::HSet { key: self.key(2), fields: self.pairs(Self::value) },
            38..44 => Op::HDel { key: self.key(2), fields: self.members() },
            44..49 => Op::LPush { key: self.key(3), elements: self.members() },
            49..60 => Op::RPop { key: self.key(3) },
            60..66 => Op::SAdd { key: self.key(4), members: self.members() },
            66..72 => Op::SRem { key: self.key(4), members: self.members() },
            72..76 => Op::ZAdd { key: self.key(5), members: self.pairs(Self::score) },
            76..80 => Op::ZIncrBy { key: self.key(5), member: self.member(), by: self.score() },
            80..85 => Op::ExpireAt {
                key: self.any_key(),
                seconds: self.random.random_range(EXPIRY_SECONDS),
            },
            85..88 => Op::Persist { key: self.any_key() },
            88..92 => {
                let count = self.random.random_range(2..6);
                Op::MSet { pairs: (0..count).map(|_| (self.key(0), self.value())).collect() }
            }
            92..96 => {
                // Within one kind, so that the types do not converge over time.
                let kind = self.random.random_range(0..KINDS);
                Op::Rename { from: self.key(kind), to: self.key(kind) }
            }
            _ => {
                let count = self.random.random_range(1..3);
                Op::Del { keys: (0..count).map(|_| self.any_key()).collect() }
            }
        }
    }

    /// A key for operations of one kind: keys with that remainder, and one time in 50 any key.
    fn key(&mut self, kind: usize) -> Bytes {
        if self.random.random_bool(0.02) {
            return self.any_key();
        }
        let rows = self.habits.keys / KINDS;
        let row = self.random.random_range(0..rows);
        self.numbered_key(row * KINDS + kind)
    }

    fn any_key(&mut self) -> Bytes {
        let number = self.random.random_range(0..self.habits.keys);
        self.numbered_key(number)
    }

    fn numbered_key(&self, number: usize) -> Bytes {
        format!("{}{number}", self.habits.prefix).into_bytes()
    }

    /// Numbers, words, binary of all sizes.
    fn value(&mut self) -> Bytes {
        let HugeValues { odds, bytes_max } = self.habits.huge;
        if self.random.random_bool(odds) {
            let length = self.random.random_range(HUGE_VALUE_BYTES_MIN..bytes_max);
            return self.binary(length);
        }
        match self.random.random_range(0..20) {
            0..8 => self.word(),
            8..14 => self.random.random_range(-1_000_000..1_000_000).to_string().into_bytes(),
            14 => Bytes::new(),
            15..19 => {
                let length = self.random.random_range(0..200);
                self.binary(length)
            }
            _ => {
                let length = self.random.random_range(200..6_000);
                self.binary(length)
            }
        }
    }

    /// Never a number, so that no sequence of appends makes one.
    fn word(&mut self) -> Bytes {
        let mut word = b"w".to_vec();
        let length = self.random.random_range(0..24);
        word.extend(
            (0..length).map(|_| *b"abcdefgh-\r\n\0".choose(&mut self.random).expect("not empty")),
        );
        word
    }

    fn binary(&mut self, length: usize) -> Bytes {
        let mut bytes = vec![0; length];
        self.random.fill(&mut bytes[..]);
        bytes
    }

    fn score(&mut self) -> i64 {
        self.random.random_range(-1_000..1_000)
    }

    /// A number, for sets that are kept as integers, or a word.
    fn member(&mut self) -> Bytes {
        let number = self.random.random_range(0..MEMBERS);
        if number % 4 == 0 { format!("member-{number}") } else { number.to_string() }.into_bytes()
    }

    fn members(&mut self) -> Vec<Bytes> {
        let count = self.random.random_range(1..4);
        (0..count).map(|_| self.member()).collect()
    }

    fn pairs<V>(&mut self, mut value: impl FnMut(&mut Self) -> V) -> Vec<(Bytes, V)> {
        let count = self.random.random_range(1..4);
        (0..count).map(|_| (self.member(), value(self))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(seed: u64) -> Vec<Step> {
        let prefix = "c:".to_owned();
        let huge = HUGE_VALUES;
        let habits = Habits { prefix, keys: KINDS, flush_odds: 0.1, shares: true, huge };
        let mut generator = Generator::new(habits);
        generator.reseed(seed);
        (0..500).map(|_| generator.step()).collect()
    }

    #[test]
    fn a_seed_gives_one_sequence() {
        assert_eq!(steps(7), steps(7));
        assert_ne!(steps(7), steps(8));
    }

    #[test]
    fn every_kind_of_step_comes_up() {
        let steps = steps(7);
        assert!(steps.contains(&Step::Single(Op::FlushDb)));
        assert!(steps.iter().any(|step| matches!(step, Step::Share(_))));
        assert!(steps.iter().any(|step| matches!(step, Step::Transaction(_))));
    }
}
