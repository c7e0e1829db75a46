//! SHA-256, ten times, of many tasks at once, by the fastest kernel that is correct on this
//! machine.

use std::fmt;
use std::str::FromStr;
use std::time::Instant;

use sha2::{Digest, Sha256};

use crate::task::SpecError;

pub(crate) const DIGEST_BYTES: usize = 32;
/// Number of hash iterations per task.
pub(crate) const LINKS: u64 = 10;
/// Chains passed to a kernel at once: the width of the widest kernel. With more, it would sort them
/// in memory that it allocates, and would not be faster (79 and 82 ns per task).
pub(crate) const LANES: usize = 32;

const LENGTHS: [u64; LANES] = [LINKS; LANES];
const SHORT_LENGTHS: [u64; LANES] = [LINKS - 1; LANES];

/// Number of chains that calibration computes with each kernel per round.
const CALIBRATION_CHAINS: usize = 256;
const CALIBRATION_ROUNDS: usize = 8;

/// An implementation of the hash chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// Many chains interleaved, one per SIMD lane: the crate `tape-sha256`.
    Lanes,
    /// One chain after the other: the crate `sha2`, which also verifies. Runs everywhere.
    Serial,
}

/// Result of [`Kernel::calibrate`]: nanoseconds per task for each correct kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    pub best: Kernel,
    /// `None` for a kernel that computed a wrong digest, which is not used.
    pub ns_per_task: Vec<(Kernel, Option<f64>)>,
}

impl Kernel {
    pub const ALL: [Self; 2] = [Self::Lanes, Self::Serial];

    /// Returns the instruction set that it uses on this machine.
    pub fn instructions(self) -> &'static str {
        match self {
            Self::Lanes => tape_sha256::backend(),
            Self::Serial => "sha2",
        }
    }

    /// Hashes each seed ten times, in place.
    #[inline]
    pub(crate) fn chains(
        self,
        seeds: &[[u8; DIGEST_BYTES]; LANES],
        ends: &mut [[u8; DIGEST_BYTES]; LANES],
    ) {
        match self {
            Self::Lanes => tape_sha256::hash_chains(seeds, &LENGTHS, ends),
            Self::Serial => {
                for (seed, end) in seeds.iter().zip(ends) {
                    *end = serial_chain(*seed, LINKS);
                }
            }
        }
    }

    /// Hashes each message once, and its digest nine times.
    pub(crate) fn messages(
        self,
        messages: &[&[u8]; LANES],
        ends: &mut [[u8; DIGEST_BYTES]; LANES],
    ) {
        match self {
            Self::Lanes => {
                let mut first = [[0; DIGEST_BYTES]; LANES];
                tape_sha256::hash_many(messages, &mut first);
                tape_sha256::hash_chains(&first, &SHORT_LENGTHS, ends);
            }
            Self::Serial => {
                for (message, end) in messages.iter().zip(ends) {
                    *end = serial_chain(Sha256::digest(message).into(), LINKS - 1);
                }
            }
        }
    }

    /// Compares the kernels on one batch and chooses the fastest that agrees with the serial one.
    /// Takes a millisecond.
    pub fn calibrate() -> Calibration {
        let mut ns_per_task = Vec::with_capacity(Self::ALL.len());
        for kernel in Self::ALL {
            let is_right = kernel.agrees_with_serial();
            ns_per_task.push((kernel, is_right.then(|| kernel.time())));
        }
        let measured = ns_per_task.iter().filter_map(|(kernel, ns)| Some((*kernel, (*ns)?)));
        let best = measured.min_by(|a, b| a.1.total_cmp(&b.1));
        let (best, _) = best.expect("the serial kernel agrees with itself");
        Calibration { best, ns_per_task }
    }

    fn agrees_with_serial(self) -> bool {
        let seeds = sample_seeds();
        let mut ends = [[0; DIGEST_BYTES]; LANES];
        self.chains(&seeds, &mut ends);
        let texts: Vec<&[u8]> =
            seeds.iter().enumerate().map(|(at, seed)| &seed[..=at % 20]).collect();
        let texts: [&[u8]; LANES] = texts.try_into().expect("one per seed");
        let mut text_ends = [[0; DIGEST_BYTES]; LANES];
        self.messages(&texts, &mut text_ends);
        (0..LANES).all(|lane| {
            let first = Sha256::digest(texts[lane]).into();
            ends[lane] == serial_chain(seeds[lane], LINKS)
                && text_ends[lane] == serial_chain(first, LINKS - 1)
        })
    }

    /// Returns the shortest of several rounds: the first one powers up the wide vector units, and
    /// interruptions by other programs distort single rounds.
    fn time(self) -> f64 {
        let seeds = sample_seeds();
        let mut ends = [[0; DIGEST_BYTES]; LANES];
        let rounds = CALIBRATION_CHAINS / LANES;
        let mut run = || {
            let started = Instant::now();
            for _ in 0..rounds {
                self.chains(std::hint::black_box(&seeds), &mut ends);
                std::hint::black_box(&ends);
            }
            started.elapsed().as_secs_f64()
        };
        let shortest_s = (0..CALIBRATION_ROUNDS).map(|_| run()).fold(f64::INFINITY, f64::min);
        let chains = u32::try_from(CALIBRATION_CHAINS).expect("a small constant");
        shortest_s * 1e9 / f64::from(chains)
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Lanes => "lanes",
            Self::Serial => "serial",
        })
    }
}

impl FromStr for Kernel {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Self::ALL
            .into_iter()
            .find(|kernel| kernel.to_string() == text)
            .ok_or_else(|| SpecError::Kernel(text.to_owned()))
    }
}

pub(crate) fn serial_chain(seed: [u8; DIGEST_BYTES], links: u64) -> [u8; DIGEST_BYTES] {
    (0..links).fold(seed, |digest, _| Sha256::digest(digest).into())
}

fn sample_seeds() -> [[u8; DIGEST_BYTES]; LANES] {
    let mut byte = 0_u8;
    [[0; DIGEST_BYTES]; LANES].map(|seed| {
        seed.map(|_| {
            byte = byte.wrapping_mul(13).wrapping_add(41);
            byte
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calibration_finds_both_kernels_right() {
        let found = Kernel::calibrate();
        assert_eq!(found.ns_per_task.len(), Kernel::ALL.len());
        for (kernel, ns) in found.ns_per_task {
            assert!(ns.is_some_and(|ns| ns > 0.0), "{kernel}");
        }
    }

    #[test]
    fn names_are_read_back() {
        for kernel in Kernel::ALL {
            assert_eq!(kernel.to_string().parse(), Ok(kernel));
        }
        assert!("fast".parse::<Kernel>().is_err());
    }
}
