//! Thousands of runs and crashes of a log on a failing disk, each from a seed.
//!
//! The promise: what `durable` covered is there after any power cut, in order and intact; and what
//! is there is a prefix of what was appended.

use std::sync::Arc;

use base::time::MonoNs;
use binlog::{
    Batch, Disk, FaultDisk, Faults, Log, Lsn, OpenError, Options, Scope, SyncPolicy, Tail,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::{Kept, Opened, open_from};

const SEEDS: u64 = 4000;
const LANES: usize = 3;

struct World {
    seed: u64,
    rng: SmallRng,
    disk: Arc<FaultDisk>,
    options: Options,
    /// What was appended and may still be there, in log order.
    history: Vec<Kept>,
    /// The newest snapshot.
    from: Lsn,
    /// The largest position that was ever called durable.
    promised: Lsn,
    /// What was written when only the process died: there was no power cut since.
    written: Option<Lsn>,
    now_ns: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    torn: u64,
    poisoned: u64,
    truncated: u64,
    survivors: u64,
    lost: u64,
    interrupted_recoveries: u64,
    killed: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let options = Options {
            segment_bytes: [8192, 12288][rng.random_range(0..2)],
            sync: [SyncPolicy::Always, SyncPolicy::Never][rng.random_range(0..2)],
            recycled_segments_max: rng.random_range(0..3),
            salt: 7,
            ..Options::default()
        };
        let direct = !seed.is_multiple_of(4);
        let disk = Arc::new(if direct { FaultDisk::new(seed) } else { FaultDisk::buffered(seed) });
        Self {
            seed,
            rng,
            disk,
            options,
            history: Vec::new(),
            from: Lsn(0),
            promised: Lsn(0),
            written: None,
            now_ns: 1,
        }
    }

    /// Opens the log; the power may go several times on the way.
    fn recover(&mut self, seen: &mut Seen) -> Arc<Log> {
        loop {
            let interrupted = self.rng.random_bool(0.3);
            if interrupted {
                let power_off_after = Some(self.rng.random_range(0..12));
                self.disk.set_faults(Faults { power_off_after, ..Faults::default() });
            }
            match open_from(&self.disk, self.options.clone(), LANES, self.from) {
                Ok(opened) => return self.check_recovered(opened, seen),
                Err(OpenError::Io { .. } | OpenError::Scan(_)) if interrupted => {
                    seen.interrupted_recoveries += 1;
                    self.cut_power();
                }
                Err(error) => panic!("seed {}: {error}", self.seed),
            }
        }
    }

    fn check_recovered(&mut self, opened: Opened, seen: &mut Seen) -> Arc<Log> {
        let (log, recovered, kept) = opened;
        let seed = self.seed;
        assert!(recovered.end >= self.promised, "seed {seed}: durable records are lost");
        assert!(Some(recovered.end) >= self.written.take(), "seed {seed}: written ones are lost");
        let history: Vec<Kept> =
            self.history.drain(..).filter(|record| record.start >= self.from).collect();
        assert!(kept.len() <= history.len(), "seed {seed}: records that were never appended");
        for (got, want) in kept.iter().zip(&history) {
            assert_eq!(got, want, "seed {seed}");
        }
        if let Some(first_lost) = history.get(kept.len()) {
            assert!(first_lost.end > recovered.end, "seed {seed}: a record is passed over");
        }
        assert_eq!(log.durable(), recovered.end, "seed {seed}");
        seen.survivors += kept.len() as u64;
        seen.lost += (history.len() - kept.len()) as u64;
        seen.torn += u64::from(matches!(recovered.tail, Tail::Torn { .. }));
        self.history = kept;
        self.promised = recovered.end;
        log
    }

    fn choose_faults(&mut self) -> Faults {
        let rng = &mut self.rng;
        let mut faults = Faults { short_write: rng.random_range(0.0..0.3), ..Faults::default() };
        match rng.random_range(0..5) {
            0 => faults.power_off_after = Some(rng.random_range(0..80)),
            1 => faults.write_error = 0.05,
            2 => faults.sync_error = 0.1,
            3 => faults.capacity_bytes = Some(rng.random_range(12_000..60_000)),
            _ => {}
        }
        faults
    }

    fn payload(&mut self) -> Vec<u8> {
        let length = match self.rng.random_range(0..40) {
            0 => self.rng.random_range(5000..20_000),
            1..=8 => self.rng.random_range(100..1000),
            // Few lengths, so that records of one history fit in the place of those of another.
            _ => 8 * self.rng.random_range(0..3),
        };
        let fill: u8 = self.rng.random();
        vec![fill; length]
    }

    fn append(&mut self, log: &Log) {
        let payload = self.payload();
        let lane = self.rng.random_range(0..LANES);
        let kind = self.rng.random_range(1..255);
        let start = log.next();
        match log.append(lane, kind, &payload) {
            Ok(end) => self.history.push(Kept { start, end, kind, payload }),
            Err(_) => assert!(log.poisoned().is_some(), "seed {}", self.seed),
        }
    }

    fn step(&mut self, log: &Log) {
        let frozen = log.poisoned().map(|_| log.durable());
        self.now_ns += self.rng.random_range(0..50_000_000);
        let now = MonoNs(self.now_ns);
        log.writer_step(&|| now);
        let (durable, written, next) = (log.durable(), log.written(), log.next());
        assert!(durable <= written && written <= next, "seed {}", self.seed);
        assert!(durable >= self.promised, "seed {}: durable goes back", self.seed);
        if let Some(frozen) = frozen {
            assert_eq!(durable, frozen, "seed {}: acknowledged after poison", self.seed);
        }
        self.promised = durable;
    }

    /// Takes a snapshot at a durable record's end.
    fn truncate(&mut self, log: &Log, seen: &mut Seen) {
        let durable = self.history.iter().filter(|record| record.end <= self.promised).count();
        if durable > 0 {
            self.from = self.history[self.rng.random_range(0..durable)].end.max(self.from);
            let before = log.stats().segments;
            // A failing disk may refuse; the log must stay whole all the same.
            log.truncate_before(self.from).ok();
            seen.truncated += (before - log.stats().segments) as u64;
        }
    }

    fn act(&mut self, log: &Arc<Log>, seen: &mut Seen) {
        match self.rng.random_range(0..20) {
            0..=8 => self.append(log),
            9..=11 => log.request_sync(log.next()),
            12 => log.request_write(),
            13 => self.truncate(log, seen),
            14 => drop(log.prepare_segment()),
            15 if self.rng.random_bool(0.2) => log.set_sync_policy(SyncPolicy::Always),
            _ => self.step(log),
        }
    }

    /// Everything durable can be read by a follower, also when the log is poisoned. Without power
    /// nothing can be read.
    fn check_follower(&self, log: &Arc<Log>) {
        let mut follower = log.follow(self.from, Scope::Durable).unwrap();
        let mut batch = Batch::new();
        let mut read = 0;
        while let Ok(true) = follower.next_batch(&mut batch) {
            read += batch.records().count();
        }
        let held = self.history.iter().filter(|record| record.start >= self.from);
        let durable = held.filter(|record| record.end <= log.durable()).count();
        assert!(read <= durable, "seed {}", self.seed);
        if follower.next_batch(&mut batch).is_ok() {
            assert_eq!(read, durable, "seed {}", self.seed);
        }
    }

    fn live_and_die(&mut self, seen: &mut Seen) {
        let log = self.recover(seen);
        let faults = self.choose_faults();
        self.disk.set_faults(faults);
        for _ in 0..self.rng.random_range(0..120) {
            self.act(&log, seen);
        }
        self.check_follower(&log);
        seen.poisoned += u64::from(log.poisoned().is_some());
        if self.rng.random_bool(0.2) {
            let now = MonoNs(self.now_ns);
            let closed = log.close(&|| now).is_ok();
            self.promised = log.durable();
            assert!(!closed || self.promised == log.next(), "seed {}", self.seed);
        }
        if self.rng.random_bool(0.3) {
            self.die_without_power_cut(&log, seen);
        } else {
            self.cut_power();
        }
    }

    fn cut_power(&mut self) {
        self.disk.power_cut();
        self.written = None;
    }

    /// The process is killed: the kernel still has all that was written.
    fn die_without_power_cut(&mut self, log: &Log, seen: &mut Seen) {
        self.disk.set_faults(Faults::default());
        if self.disk.list().is_err() {
            self.cut_power();
        } else if log.poisoned().is_none() {
            seen.killed += 1;
            self.written = Some(log.written());
        }
    }
}

fn run(seed: u64, seen: &mut Seen) {
    let mut world = World::new(seed);
    for _ in 0..world.rng.random_range(2..5) {
        world.live_and_die(seen);
    }
    world.recover(seen);
}

#[test]
fn durable_records_survive_every_death() {
    let mut seen = Seen::default();
    for seed in 0..SEEDS {
        run(seed, &mut seen);
    }
    // The net must not have holes: each thing that may happen did happen, often.
    assert!(seen.torn > 500, "{seen:?}");
    assert!(seen.poisoned > 500, "{seen:?}");
    assert!(seen.truncated > 500, "{seen:?}");
    assert!(seen.survivors > 10_000, "{seen:?}");
    assert!(seen.lost > 10_000, "{seen:?}");
    assert!(seen.interrupted_recoveries > 500, "{seen:?}");
    assert!(seen.killed > 500, "{seen:?}");
}
