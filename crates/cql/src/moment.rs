//! Time and randomness of one statement.

use std::cell::{Cell, RefCell};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::error::CqlError;

/// Maximum bytes that functions, comparisons and changes of collections may process for one row of
/// a SELECT, or for a whole write. The reactor cannot pause within them. Processing a text of 16
/// MiB as JSON stays below it.
const WORK_BYTES_MAX: usize = 64 << 20;

/// Inputs of an evaluation other than the statement, its values and its rows.
#[derive(Debug)]
pub struct Moment {
    now_us: i64,
    /// How many time-based UUIDs were made: those of a statement are distinct.
    ticks: Cell<u64>,
    node: u64,
    chance: RefCell<SmallRng>,
    work_bytes: Cell<usize>,
}

impl Moment {
    /// `now_us`: microseconds since 1970; `seed`: of the random numbers.
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

    /// A different number at each call, from zero.
    pub(crate) fn tick(&self) -> u64 {
        self.ticks.replace(self.ticks.get() + 1)
    }

    /// A random number that is constant for the whole statement.
    pub(crate) fn node(&self) -> u64 {
        self.node
    }

    /// Accounts for `bytes` before they are processed. Fails if the statement takes too long.
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
