//! The events of a round, derived from the seed. The clock determines only how far the load gets
//! before the end, not the verdict.

use std::fmt;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::subject::Settings;

/// Small segments rotate within a round; the large one never does.
const SEGMENT_BYTES: [u64; 4] = [64 << 10, 256 << 10, 1 << 20, 16 << 20];
const POWER_SEGMENT_BYTES: [u64; 4] = [64 << 10, 256 << 10, 512 << 10, 1 << 20];
/// From several snapshots in a round to none.
const SNAPSHOT_LOG_BYTES: [u64; 4] = [256 << 10, 1 << 20, 4 << 20, 1 << 30];

/// How a round ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// SIGKILL: acknowledged steps must survive.
    Kill,
    /// SIGTERM: every answered step must survive, whatever the durability.
    Terminate,
}

/// One round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Settings of the server during the round's load.
    pub(crate) settings: Settings,
    pub(crate) load_ms: u64,
    pub(crate) ending: Ending,
    /// Time between the start of a snapshot and the end.
    pub(crate) snapshot_lead_us: Option<u64>,
    /// Restarts that are killed after this many milliseconds, before the final one.
    pub(crate) recovery_kills_ms: Vec<u64>,
}

impl Plan {
    /// For rounds that end with a power cut: files are small, so that many are created, renamed and
    /// removed.
    pub(crate) fn of_power_cut(seed: u64, round: u64) -> Self {
        let mut plan = Self::new(seed, round);
        let mut random = StdRng::seed_from_u64(mix(seed, round, u64::MAX));
        plan.settings.segment_bytes = *POWER_SEGMENT_BYTES.choose(&mut random).expect("not empty");
        plan
    }

    pub(crate) fn new(seed: u64, round: u64) -> Self {
        let mut random = StdRng::seed_from_u64(mix(seed, round, 0));
        let mut choose = |from: &[u64]| *from.choose(&mut random).expect("the lists are not empty");
        let segment_bytes = choose(&SEGMENT_BYTES);
        let snapshot_log_bytes = choose(&SNAPSHOT_LOG_BYTES);
        let reactors = random.random_range(1..=4);
        let is_kill = random.random_bool(0.85);
        let recovery_kills = if random.random_bool(0.25) { random.random_range(1..3) } else { 0 };
        Self {
            settings: Settings { reactors, segment_bytes, snapshot_log_bytes },
            load_ms: random.random_range(50..350),
            ending: if is_kill { Ending::Kill } else { Ending::Terminate },
            snapshot_lead_us: random.random_bool(0.35).then(|| random.random_range(0..20_000)),
            recovery_kills_ms: (0..recovery_kills).map(|_| random.random_range(0..25)).collect(),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { reactors, segment_bytes, snapshot_log_bytes } = self.settings;
        let (segment, log) = (segment_bytes >> 10, snapshot_log_bytes >> 10);
        let ending = match self.ending {
            Ending::Kill => "killed",
            Ending::Terminate => "terminated",
        };
        write!(
            formatter,
            "{reactors} reactors, segments of {segment} KiB, snapshots at {log} KiB, "
        )?;
        write!(formatter, "{ending} after {} ms", self.load_ms)?;
        if self.snapshot_lead_us.is_some() {
            formatter.write_str(" in a snapshot")?;
        }
        if !self.recovery_kills_ms.is_empty() {
            write!(formatter, " and {} times in recovery", self.recovery_kills_ms.len())?;
        }
        Ok(())
    }
}

/// A separate seed for each part of each round: splitmix64 over the three.
pub(crate) fn mix(seed: u64, round: u64, part: u64) -> u64 {
    [round, part].iter().fold(seed, |state, word| {
        let mut bits = state.wrapping_add(*word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_plan() {
        assert_eq!(Plan::new(1, 2), Plan::new(1, 2));
        assert_ne!(Plan::new(1, 2), Plan::new(1, 3));
        assert_ne!(Plan::new(1, 2), Plan::new(2, 2));
    }

    #[test]
    fn every_kind_of_round_comes_up_in_a_short_run() {
        let plans: Vec<Plan> = (0..20).map(|round| Plan::new(1, round)).collect();
        assert!(plans.iter().any(|plan| plan.ending == Ending::Kill));
        assert!(plans.iter().any(|plan| plan.ending == Ending::Terminate));
        assert!(plans.iter().any(|plan| plan.snapshot_lead_us.is_some()));
        assert!(plans.iter().any(|plan| !plan.recovery_kills_ms.is_empty()));
    }
}
