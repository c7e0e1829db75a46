//! `cargo xtask console`: a browser opens a server's console and puts load on the server.
//!
//! Screenshots of the pages are stored in `target/console`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{Server, Target};
use crate::steps;
use crate::tally::Tally;

/// A browser that takes longer hangs.
const BROWSER_TIMEOUT_S: &str = "900";

pub(crate) fn run(root: &Path) -> Result<Tally> {
    let server = Server::start(root, &Target::Myriad)?;
    let address = server.http_address.as_deref().context("it listens for HTTP")?;
    let folder = root.join("target/console");
    let counted = steps::run_counted(
        Command::new("timeout")
            .args(["--kill-after=10", BROWSER_TIMEOUT_S])
            .arg(root.join("tests/browser/run.sh"))
            .arg("console.mjs")
            .arg(&folder)
            .arg(format!("http://{address}"))
            // Stopped for some seconds: the page must report that the server does not answer.
            .args(server.process_id().map(|id| id.to_string())),
    )?;
    if counted == Tally::default() {
        bail!("the browser's checks counted nothing");
    }
    println!("pictures: {}", folder.display());
    Ok(counted)
}
