//! Log output for the operator, on standard error. It excludes requests: see
//! [`crate::worker::log`].

/// Installs the logger of a process. Further calls have no effect.
pub(crate) fn install() {
    let builder = tracing_subscriber::fmt().with_target(false).with_ansi(false);
    // Fails if a logger is already installed, which is then used.
    let _ = builder.with_writer(std::io::stderr).try_init();
}
