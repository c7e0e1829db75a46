//! Log output for the operator, on standard error. It excludes requests: see
//! [`crate::worker::log`].

use anyhow::Context as _;
use base::messages;

/// Installs the logger of a process. Events are written by a thread of their own, which inherits
/// the mask of signals and the privileges. Further calls have no effect.
pub(crate) fn install() -> anyhow::Result<()> {
    let sink = messages::redirect_standard_error(messages::report_lost_lines)
        .context("could not start the thread that writes messages")?;
    let builder = tracing_subscriber::fmt().with_target(false).with_ansi(false);
    // Fails if a logger is already installed, which is then used.
    let _ = builder.with_writer(move || sink.clone()).log_internal_errors(false).try_init();
    Ok(())
}
