//! Steps 2, 12 and 16: ownership of the hasher, its lifetime, and the instructions it uses.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::repro::ablation::work::{self, DIGEST_BYTES, LINKS};
use crate::repro::ablation::{Ablation, Expects, Role, Sample, Variant, join, per_second, real};
use pipeline::collector::Reservoir;
use pipeline::task::Kernel;

/// Tasks between two clock reads.
const CHUNK: u64 = 32;
/// Number of results that are checked per window, as in the source.
const SAMPLE: usize = 100;
const SHARING_THREADS: usize = 4;
/// One task in this many yields between two calls to the hasher. Preemption there would occur by
/// itself, but rarely; this makes it occur on every machine.
const INTERRUPTED: u16 = 16;
/// Number of chains that the widest kernel takes at once.
const LANES_MAX: usize = 32;

pub(super) const D02: Ablation = Ablation {
    name: "d02",
    title: "A hasher that threads share",
    unit: "% wrong",
    expects: Expects::Less,
    source: "a fifth of the samples was wrong, until every calculation had its own hasher",
    conclusion: "Each call to the hasher is safe by itself, but a calculation of several calls is \
              not: bytes of another thread can be mixed in (here a sixteenth of the tasks yields, \
              so that it happens on any machine). Nothing crashes and everything is counted; only \
              checking results with other code reveals it.",
    deviation_reason: "the threads never collided in the hasher.",
    variants: || {
        vec![
            Variant::new(Role::Naive, "one hasher, locked per call", |time| {
                let hasher = Mutex::new(Sha256::new());
                wrong(time, |x, y| {
                    let mut bytes = work::message(x, y);
                    for link in 0..LINKS {
                        Digest::update(&mut *hasher.lock(), bytes);
                        if link == 0 && x.is_multiple_of(INTERRUPTED) {
                            thread::yield_now();
                        }
                        bytes = hasher.lock().finalize_reset().into();
                    }
                    bytes
                })
            }),
            Variant::new(Role::Right, "a hasher per calculation", |time| wrong(time, work::digest)),
        ]
    },
};

pub(super) const D12: Ablation = Ablation {
    name: "d12",
    title: "A hasher per task, or one that is reset",
    unit: "tasks/s",
    expects: Expects::More,
    source: "1,300,000 to 1,500,000 per second",
    conclusion: "Objects created for each task are paid for by each task. The cost depends on what \
              creation means: in the original, a search by name, an object and its garbage \
              collection; here, a search by name and an allocation, next to ten hashes.",
    deviation_reason: "a hasher is a hundred bytes here that no collector of garbage has to find again: \
                making one costs some twenty nanoseconds of a task of several hundred, less than \
                repeats differ.",
    variants: || {
        vec![
            Variant::new(Role::Naive, "found by name and made per task", |time| {
                let known = registry();
                Ok(hashed(time, |id| {
                    let make = known.get("SHA-256").expect("it is put in here");
                    let mut hasher = make();
                    hash_ten_times(&mut *hasher, id)
                }))
            }),
            Variant::new(Role::Right, "made once, reset per task", |time| {
                let known = registry();
                let make = known.get("SHA-256").expect("it is put in here");
                let mut hasher = make();
                Ok(hashed(time, |id| hash_ten_times(&mut *hasher, id)))
            }),
            Variant::new(Role::Other, "on the stack, per hash", |time| {
                Ok(hashed(time, |id| {
                    let (x, y) = work::input(id);
                    work::digest(x, y)
                }))
            }),
        ]
    },
};

pub(super) const D16: Ablation = Ablation {
    name: "d16",
    title: "Instructions used for hashing",
    unit: "tasks/s of one core",
    expects: Expects::More,
    source: "170 Mb/s with one version of the run-time library, 240 Mb/s (the wire) with a later one",
    conclusion: "Same program, same machine: the hashing code decides. SHA-256 instructions beat \
              plain ones; hashing many tasks in parallel beats both, because one chain is \
              dependent from its first step to its last.",
    deviation_reason: "this processor has neither SHA-256 instructions nor wide vectors.",
    variants: || {
        let mut variants = vec![
            Variant::new(Role::Naive, "plain instructions, one chain", |time| {
                let links = u64::try_from(LINKS).expect("ten");
                Ok(chained(time, 1, |seeds, ends| {
                    ends[0] = tape_sha256::backends::chain_portable(&seeds[0], links);
                }))
            }),
            Variant::new(Role::Other, "sha2, one chain", |time| {
                Ok(chained(time, 1, |seeds, ends| {
                    ends[0] = (0..LINKS).fold(seeds[0], |bytes, _| Sha256::digest(bytes).into());
                }))
            }),
        ];
        for lanes in [1, 4, 8, 16, LANES_MAX] {
            let role = if lanes == LANES_MAX { Role::Right } else { Role::Other };
            let name = format!("{}, {lanes} chains at once", Kernel::Lanes.instructions());
            variants.push(Variant::new(role, name, move |time| {
                let lengths = [u64::try_from(LINKS).expect("ten"); LANES_MAX];
                Ok(chained(time, lanes, |seeds, ends| {
                    tape_sha256::hash_chains(seeds, &lengths[..lanes], ends);
                }))
            }));
        }
        variants
    },
};

/// Returns the share of wrong results, and the number of them in a sample.
fn wrong(
    time: Duration,
    digest: impl Fn(u16, u16) -> [u8; DIGEST_BYTES] + Sync,
) -> anyhow::Result<Sample> {
    let started = Instant::now();
    let results: Vec<Vec<bool>> = thread::scope(|scope| {
        let digest = &digest;
        let check = move |thread: usize| {
            let mut results = Vec::new();
            let mut id = u64::try_from(thread).expect("64 bits") << 40;
            // Do at least one chunk, even if the thread was not scheduled in time.
            while results.is_empty() || started.elapsed() < time {
                for _ in 0..CHUNK {
                    let (x, y) = work::input(id);
                    let found = digest(x, y);
                    results.push(found == work::digest(x, y));
                    id += 1;
                }
            }
            results
        };
        let threads: Vec<_> =
            (0..SHARING_THREADS).map(|thread| scope.spawn(move || check(thread))).collect();
        threads.into_iter().map(join).collect()
    });
    let results = results.concat();
    let wrong = results.iter().filter(|is_right| !**is_right).count();
    let results: Vec<u8> = results.into_iter().map(u8::from).collect();
    let mut reservoir = Reservoir::new(SAMPLE, 1);
    let count = u32::try_from(results.len())?;
    reservoir.offer(count, |index| {
        let at = usize::try_from(index).ok()?;
        results.get(at..=at)
    });
    let (sample, _) = reservoir.take();
    let found = sample.iter().filter(|record| record.first() == Some(&0)).count();
    Ok(Sample::with_note(
        real(u64::try_from(wrong)?) / real(u64::from(count.max(1))) * 100.0,
        format!("{found} of a sample of {} are wrong", sample.len()),
    ))
}

/// Interface of libraries with many hash functions.
trait Hasher {
    fn update(&mut self, bytes: &[u8]);
    fn finish(&mut self) -> [u8; DIGEST_BYTES];
}

impl Hasher for Sha256 {
    fn update(&mut self, bytes: &[u8]) {
        Digest::update(self, bytes);
    }

    fn finish(&mut self) -> [u8; DIGEST_BYTES] {
        self.finalize_reset().into()
    }
}

type Make = fn() -> Box<dyn Hasher>;

fn registry() -> BTreeMap<&'static str, Make> {
    let make: Make = || Box::new(Sha256::new());
    BTreeMap::from([("SHA-1", make), ("SHA-256", make), ("SHA-512", make)])
}

fn hash_ten_times(hasher: &mut dyn Hasher, id: u64) -> [u8; DIGEST_BYTES] {
    let (x, y) = work::input(id);
    let mut bytes = work::message(x, y);
    for _ in 0..LINKS {
        hasher.update(&bytes);
        bytes = hasher.finish();
    }
    bytes
}

fn hashed(time: Duration, mut digest: impl FnMut(u64) -> [u8; DIGEST_BYTES]) -> Sample {
    let started = Instant::now();
    let mut id = 0;
    while started.elapsed() < time {
        for _ in 0..CHUNK {
            black_box(digest(id));
            id += 1;
        }
    }
    Sample::new(per_second(id, started.elapsed()))
}

fn chained(
    time: Duration,
    lanes: usize,
    run: impl Fn(&[[u8; DIGEST_BYTES]], &mut [[u8; DIGEST_BYTES]]),
) -> Sample {
    let mut seeds = [[7; DIGEST_BYTES]; LANES_MAX];
    let mut ends = [[0; DIGEST_BYTES]; LANES_MAX];
    let started = Instant::now();
    let mut tasks = 0;
    while started.elapsed() < time {
        for _ in 0..CHUNK {
            run(black_box(&seeds[..lanes]), &mut ends[..lanes]);
            seeds = ends;
        }
        tasks += CHUNK * u64::try_from(lanes).expect("64 bits");
    }
    let rate = per_second(tasks, started.elapsed());
    Sample::with_note(rate, format!("{:.1} ns per task", 1e9 / rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_variants_compute_the_same_digest() {
        let mut hasher = registry()["SHA-256"]();
        for id in 0..20 {
            let (x, y) = work::input(id);
            assert_eq!(hash_ten_times(&mut *hasher, id), work::digest(x, y));
            let seed = work::message(x, y);
            assert_eq!(tape_sha256::backends::chain_portable(&seed, 10), work::digest(x, y));
        }
    }

    #[test]
    fn wrong_results_are_counted() {
        let of_all = |digest: fn(u16, u16) -> [u8; DIGEST_BYTES]| {
            wrong(Duration::from_millis(2), digest).unwrap().value
        };
        assert!(of_all(work::digest).abs() < f64::EPSILON);
        assert!((of_all(|_, _| [0; DIGEST_BYTES]) - 100.0).abs() < f64::EPSILON);
    }
}
