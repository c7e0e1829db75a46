//! Reduces the statements while the difference remains.

use anyhow::Result;

use super::{Difference, Pair, Step};

/// Maximum number of tries, each of which creates a table; then the remaining statements are shown.
const TRIES_MAX: u32 = 60;

/// Removes unnecessary steps, in ever smaller groups. The last step is the one that differs.
pub(super) fn shrink(
    pair: &mut Pair,
    steps: &[Step],
    first: Difference,
) -> Result<(Vec<Step>, Difference)> {
    let mut found = first;
    // Reads change no data.
    let (last, before) = steps.split_last().expect("something differs");
    let mut steps: Vec<Step> = before.iter().filter(|step| step.is_change).cloned().collect();
    steps.push(last.clone());
    let mut tries = 0;
    let mut piece = steps.len() / 2;
    while piece > 0 && tries < TRIES_MAX {
        let mut start = 0;
        while start + 1 < steps.len() && tries < TRIES_MAX {
            let end = (start + piece).min(steps.len() - 1);
            let fewer = [&steps[..start], &steps[end..]].concat();
            tries += 1;
            let mut differences = pair.replay(&fewer, |it| it.kind() == found.kind())?;
            match differences.pop().filter(|it| it.kind() == found.kind()) {
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
