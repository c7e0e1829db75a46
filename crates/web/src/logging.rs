//! What the operator is told, on standard error. Requests are not: see [`crate::worker::log`].

/// Installs the logger of a process. A second call changes nothing.
pub(crate) fn install() {
    let builder = tracing_subscriber::fmt().with_target(false).with_ansi(false);
    // Fails when there is a logger already, and then that one is used.
    let _ = builder.with_writer(std::io::stderr).try_init();
}
