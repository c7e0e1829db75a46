//! Progress events of a run.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::row::Row;

/// Receiver of progress events.
pub trait Progress {
    fn report(&mut self, news: &News<'_>);
}

/// Ignores all events.
impl Progress for () {
    fn report(&mut self, _: &News<'_>) {}
}

/// All progress events.
#[derive(Debug)]
pub enum News<'a> {
    Started {
        folder: &'a Path,
        /// Of the whole run, including completed ones.
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

/// Position in a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Number of completed measurements, and of all.
    pub number: usize,
    pub count: usize,
    pub cell: usize,
    pub cells: usize,
    pub repeat: usize,
    /// `starting`, `phase 1`, `measuring`, `waiting for ...`.
    pub phase: String,
    pub parameters: BTreeMap<String, serde_json::Value>,
    /// Estimated remaining time.
    pub left_s: u64,
}
