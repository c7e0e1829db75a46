//! When, or how often, a key was used: 24 bits per entry, read by eviction and by OBJECT.
//!
//! Source: Redis's `evict.c`, whose LRU clock (seconds, 24 bits) and LFU counter (minutes in 16
//! bits, logarithmic counter in 8) users tune with `lfu-log-factor` and `lfu-decay-time`.

#![expect(
    clippy::cast_possible_truncation,
    reason = "the clock is cut to 24 and 16 bits on purpose"
)]

use std::cell::Cell;

use base::time::UnixMs;

use crate::entry::EntryRef;

const LRU_BITS: u32 = 24;
const LRU_MASK: u32 = (1 << LRU_BITS) - 1;
const LFU_START: u32 = 5;
const LFU_COUNTER_MAX: u32 = 255;
const LFU_COUNTER_BITS: u32 = 8;
const LFU_MINUTES_BITS: u32 = 16;
const LFU_MINUTES_MASK: u64 = (1 << LFU_MINUTES_BITS) - 1;

const _: () = assert!(LFU_COUNTER_MAX == (1 << LFU_COUNTER_BITS) - 1);
const _: () = assert!(LFU_START < LFU_COUNTER_MAX, "a new key's counter can rise");
const _: () = assert!(LFU_MINUTES_BITS + LFU_COUNTER_BITS == LRU_BITS, "both clocks fill the word");

/// What an access records in the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessRule {
    Lru,
    Lfu { log_factor: u32, decay_minutes: u32 },
}

/// The rule, and the time of this turn.
#[derive(Debug, Clone)]
pub struct AccessClock {
    rule: AccessRule,
    seconds: u32,
    minutes: u32,
    random: Cell<u64>,
    is_held: Cell<bool>,
}

impl AccessClock {
    /// `seed` feeds the probabilistic increments of the LFU counter.
    pub fn new(rule: AccessRule, now: UnixMs, seed: u64) -> AccessClock {
        let seconds = now.0 / 1000;
        AccessClock {
            rule,
            seconds: (seconds & u64::from(LRU_MASK)) as u32,
            minutes: ((seconds / 60) & LFU_MINUTES_MASK) as u32,
            random: Cell::new(seed | 1),
            is_held: Cell::new(false),
        }
    }

    pub fn rule(&self) -> AccessRule {
        self.rule
    }

    /// While held, reads do not update the access word of a key.
    #[inline]
    pub fn hold(&self, is_held: bool) {
        self.is_held.set(is_held);
    }

    #[inline]
    pub(crate) fn touch(&self, entry: EntryRef<'_>) {
        if self.is_held.get() {
            return;
        }
        match self.rule {
            AccessRule::Lru => entry.set_access(self.seconds),
            AccessRule::Lfu { log_factor, .. } => {
                let counter = self.increment(self.frequency(entry.access()), log_factor);
                entry.set_access(self.minutes << LFU_COUNTER_BITS | counter);
            }
        }
    }

    /// The access word of a new key.
    pub(crate) fn fresh(&self) -> u32 {
        match self.rule {
            AccessRule::Lru => self.seconds,
            AccessRule::Lfu { .. } => self.minutes << LFU_COUNTER_BITS | LFU_START,
        }
    }

    /// The access word of a key that another server had: by the seconds since its last use under
    /// LRU, by its counter under LFU. `None`: unknown under this rule.
    pub(crate) fn moved(&self, idle_seconds: Option<u64>, counter: Option<u8>) -> Option<u32> {
        match self.rule {
            AccessRule::Lru => {
                let idle = idle_seconds?.min(u64::from(LRU_MASK)) as u32;
                Some(self.seconds.wrapping_sub(idle) & LRU_MASK)
            }
            AccessRule::Lfu { .. } => Some(self.minutes << LFU_COUNTER_BITS | u32::from(counter?)),
        }
    }

    /// Seconds since the last access, under LRU.
    pub(crate) fn idle_seconds(&self, access: u32) -> u64 {
        u64::from(self.seconds.wrapping_sub(access) & LRU_MASK)
    }

    /// The LFU counter of an access word, after its decay.
    pub(crate) fn frequency(&self, access: u32) -> u32 {
        let AccessRule::Lfu { decay_minutes, .. } = self.rule else { return 0 };
        let minutes = access >> LFU_COUNTER_BITS;
        let elapsed = self.minutes.wrapping_sub(minutes) & LFU_MINUTES_MASK as u32;
        let steps = elapsed.checked_div(decay_minutes).unwrap_or(0);
        (access & LFU_COUNTER_MAX).saturating_sub(steps)
    }

    fn increment(&self, counter: u32, log_factor: u32) -> u32 {
        if counter >= LFU_COUNTER_MAX {
            return LFU_COUNTER_MAX;
        }
        let base = f64::from(counter.saturating_sub(LFU_START));
        let chance = 1.0 / (base * f64::from(log_factor) + 1.0);
        if self.next_random() < chance { counter + 1 } else { counter }
    }

    /// A number in 0..1 from a xorshift generator: one per access, so it must be cheap.
    fn next_random(&self) -> f64 {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        f64::from((x >> 32) as u32) / f64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Entry;

    fn at(seconds: u64, rule: AccessRule) -> AccessClock {
        AccessClock::new(rule, UnixMs(seconds * 1000), 42)
    }

    #[test]
    fn idle_time_survives_the_wrap_of_the_clock() {
        let entry = Entry::string(b"k", b"v", None);
        let before = u64::from(LRU_MASK) - 3;
        at(before, AccessRule::Lru).touch(entry.as_ref());
        assert_eq!(at(before + 10, AccessRule::Lru).idle_seconds(entry.as_ref().access()), 10);
    }

    #[test]
    fn a_moved_key_keeps_its_idle_time_or_its_counter() {
        let lru = at(5, AccessRule::Lru);
        for idle in [0, 4, 6, u64::from(LRU_MASK)] {
            let word = lru.moved(Some(idle), Some(9)).unwrap();
            assert_eq!(lru.idle_seconds(word), idle);
        }
        assert_eq!(lru.moved(Some(u64::MAX), None), lru.moved(Some(u64::from(LRU_MASK)), None));
        assert_eq!(lru.moved(None, Some(9)), None);
        let lfu = at(600, AccessRule::Lfu { log_factor: 10, decay_minutes: 1 });
        assert_eq!(lfu.frequency(lfu.moved(Some(3), Some(200)).unwrap()), 200);
        assert_eq!(lfu.moved(Some(3), None), None);
    }

    #[test]
    fn a_held_clock_leaves_no_trace() {
        let entry = Entry::string(b"k", b"v", None);
        at(100, AccessRule::Lru).touch(entry.as_ref());
        let clock = at(200, AccessRule::Lru);
        clock.hold(true);
        clock.touch(entry.as_ref());
        assert_eq!(clock.idle_seconds(entry.as_ref().access()), 100);
        clock.hold(false);
        clock.touch(entry.as_ref());
        assert_eq!(clock.idle_seconds(entry.as_ref().access()), 0);
    }

    #[test]
    fn frequency_grows_with_use_and_decays_with_time() {
        let rule = AccessRule::Lfu { log_factor: 10, decay_minutes: 1 };
        let entry = Entry::string(b"k", b"v", None);
        let clock = at(6000, rule);
        entry.as_ref().set_access(clock.fresh());
        for _ in 0..1000 {
            clock.touch(entry.as_ref());
        }
        let grown = clock.frequency(entry.as_ref().access());
        assert!(grown > LFU_START && grown < 100, "{grown}");
        let later = at(6000 + 60 * u64::from(grown), rule);
        assert_eq!(later.frequency(entry.as_ref().access()), 0);
        let frozen = at(6000 + 600, AccessRule::Lfu { log_factor: 10, decay_minutes: 0 });
        assert_eq!(frozen.frequency(entry.as_ref().access()), grown);
    }
}
