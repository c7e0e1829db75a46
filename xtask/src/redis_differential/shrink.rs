//! Reduces a sequence while the difference remains.

use anyhow::Result;

use super::pair::{Difference, Pair};
use super::sequence::Step;

/// Maximum number of tries; then the remaining steps are shown.
const TRIES_MAX: u32 = 600;

/// Removes unnecessary steps, in ever smaller groups. The last step is the one that differs.
pub(super) fn shrink(
    pair: &mut Pair,
    steps: &[Step],
    first: Difference,
) -> Result<(Vec<Step>, Difference)> {
    let mut steps = steps[..=first.at].to_vec();
    let mut found = first;
    let mut tries = 0;
    let mut piece = steps.len() / 2;
    while piece > 0 && tries < TRIES_MAX {
        let mut start = 0;
        while start + 1 < steps.len() && tries < TRIES_MAX {
            let end = (start + piece).min(steps.len() - 1);
            let fewer = [&steps[..start], &steps[end..]].concat();
            tries += 1;
            match pair.replay(&fewer)?.filter(|it| it.kind == found.kind) {
                Some(difference) => {
                    steps = fewer[..=difference.at].to_vec();
                    found = difference;
                }
                None => start = end,
            }
        }
        piece /= 2;
    }
    Ok((steps, found))
}
