//! A part of `run --processes` ends with the process that has started it, even if that is killed:
//! otherwise it would hold the log that the next run continues.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// The variable with the number of the process that has started a part.
pub(crate) const PARENT: &str = "MYRIAD_PIPELINE_PARENT";

/// Has this process sent SIGTERM when its parent ends, if that has started it as a part.
// Source: prctl(2), PR_SET_PDEATHSIG
pub(crate) fn end_with_parent() -> Result<()> {
    let Ok(parent) = std::env::var(PARENT) else { return Ok(()) };
    let parent: i32 = parent.parse().with_context(|| format!("{PARENT} is not a process"))?;
    set_parent_process_death_signal(Some(Signal::TERM))
        .context("could not observe the process that has started this one")?;
    // It may have ended before.
    if getppid() != Pid::from_raw(parent) {
        bail!("the process that has started this one has ended");
    }
    Ok(())
}
