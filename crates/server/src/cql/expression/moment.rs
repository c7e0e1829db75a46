//! Time and chance of one statement.

use std::cell::{Cell, RefCell};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// All that evaluation does not find in the statement, its values and its rows.
#[derive(Debug)]
pub struct Moment {
    now_us: i64,
    /// How many time-based UUIDs were made: no two of a statement are the same.
    ticks: Cell<u64>,
    node: u64,
    chance: RefCell<SmallRng>,
}

impl Moment {
    /// Microseconds since 1970, and where random numbers begin.
    pub fn new(now_us: i64, seed: u64) -> Self {
        let mut chance = SmallRng::seed_from_u64(seed);
        let node = chance.random();
        Moment { now_us, ticks: Cell::new(0), node, chance: RefCell::new(chance) }
    }

    /// Microseconds since 1970.
    pub fn now_us(&self) -> i64 {
        self.now_us
    }

    /// Another number at each call, from zero.
    pub fn tick(&self) -> u64 {
        self.ticks.replace(self.ticks.get() + 1)
    }

    /// A random number that is the same for the whole statement.
    pub fn node(&self) -> u64 {
        self.node
    }

    pub fn random(&self) -> u128 {
        self.chance.borrow_mut().random()
    }
}
