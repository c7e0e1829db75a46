//! What a run says while it goes on.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::row::Row;

/// Who listens to a run.
pub trait Progress {
    fn tell(&mut self, news: &News<'_>);
}

/// For runs that nobody watches.
impl Progress for () {
    fn tell(&mut self, _: &News<'_>) {}
}

/// Everything that a run has to say.
#[derive(Debug)]
pub enum News<'a> {
    Started {
        folder: &'a Path,
        /// Of the whole run, with those that are done.
        measurements: usize,
        done: usize,
    },
    Phase(&'a Step),
    /// Of the last window.
    Rate {
        operations_per_second: f64,
    },
    Row(&'a Row),
    Ended {
        is_complete: bool,
    },
}

/// Where a run stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Measurements that are done, and all.
    pub number: usize,
    pub count: usize,
    pub cell: usize,
    pub cells: usize,
    pub repeat: usize,
    /// `starting`, `phase 1`, `measuring`, `waiting for ...`.
    pub phase: String,
    pub parameters: BTreeMap<String, serde_json::Value>,
    /// What the rest should take.
    pub left_s: u64,
}
