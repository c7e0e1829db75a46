//! Time and chance of one statement.

use std::cell::{Cell, RefCell};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::error::CqlError;

/// Bytes that functions, comparisons and changes of collections may process for one row of a SELECT, or for
/// all of a write. The reactor cannot pause within them. A text of 16 MiB as JSON takes less.
const WORK_BYTES_MAX: usize = 64 << 20;

/// All that evaluation does not find in the statement, its values and its rows.
#[derive(Debug)]
pub struct Moment {
    now_us: i64,
    /// How many time-based UUIDs were made: no two of a statement are the same.
    ticks: Cell<u64>,
    node: u64,
    chance: RefCell<SmallRng>,
    work_bytes: Cell<usize>,
}

impl Moment {
    /// Microseconds since 1970, and where random numbers begin.
    pub fn new(now_us: i64, seed: u64) -> Self {
        let mut chance = SmallRng::seed_from_u64(seed);
        let node = chance.random();
        Moment {
            now_us,
            ticks: Cell::new(0),
            node,
            chance: RefCell::new(chance),
            work_bytes: Cell::new(0),
        }
    }

    /// Microseconds since 1970.
    pub fn now_us(&self) -> i64 {
        self.now_us
    }

    /// Another number at each call, from zero.
    pub(crate) fn tick(&self) -> u64 {
        self.ticks.replace(self.ticks.get() + 1)
    }

    /// A random number that is the same for the whole statement.
    pub(crate) fn node(&self) -> u64 {
        self.node
    }

    /// Before so many bytes are processed. Refuses what takes too long.
    #[inline]
    pub fn spend(&self, bytes: usize) -> Result<(), CqlError> {
        let spent = self.work_bytes.get().saturating_add(bytes);
        self.work_bytes.set(spent);
        if spent <= WORK_BYTES_MAX {
            return Ok(());
        }
        Err(CqlError::invalid(format!(
            "A row of the result, or the write, processes more than {WORK_BYTES_MAX} bytes"
        )))
    }

    /// Bytes processed since the last call.
    pub fn take_work(&self) -> usize {
        self.work_bytes.take()
    }

    pub(crate) fn random(&self) -> u128 {
        self.chance.borrow_mut().random()
    }
}
