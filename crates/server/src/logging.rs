//! Where events go: text or JSON, to a file or to standard error.

use std::fs::OpenOptions;
use std::sync::Mutex;

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, Settings};

/// Installs the logger of the process. Fails when there is one already, or when the file cannot be
/// opened.
pub(crate) fn install(settings: &Settings) -> anyhow::Result<()> {
    let filter = EnvFilter::new(settings.log_level.word());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_target(false);
    let json = settings.log_format == LogFormat::Json;
    let installed = if settings.log_file.as_os_str().is_empty() {
        let builder = builder.with_writer(std::io::stderr).with_ansi(false);
        if json { builder.json().try_init() } else { builder.try_init() }
    } else {
        let path = &settings.log_file;
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .with_context(|| format!("opening the log file {}", path.display()))?;
        let builder = builder.with_writer(Mutex::new(file)).with_ansi(false);
        if json { builder.json().try_init() } else { builder.try_init() }
    };
    installed.map_err(|error| anyhow::anyhow!("installing the logger: {error}"))
}
