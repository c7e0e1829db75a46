//! Statistics of varying figures: intervals, ratios, warm-ups, balance, scaling.
//!
//! All functions are pure: resampling uses a fixed seed, so the same rows always give the same
//! report.

mod balance;
mod estimate;
pub mod histogram;
mod scaling;
mod warmup;

pub use balance::{balls_in_bins, gini, max_over_mean};
pub use estimate::{Estimate, Ratio, mean_interval, median_interval, quantile, ratio_interval};
pub use scaling::{Scaling, fit_scaling};
pub use warmup::{is_steady, warmup_end};

/// Converts a count: exact below 2^53.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn real(count: usize) -> f64 {
    count as f64
}
