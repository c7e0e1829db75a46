//! `cargo xtask console`: a browser opens a server's console and puts load on the server, which
//! has conflicts with a second one.
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
    let start = |number: &str| Server::start_with(root, &Target::Myriad, &["--server-id", number]);
    let (server, peer) = (start("1")?, start("2")?);
    let process_id = server.process_id().context("it was started here")?;
    let folder = root.join("target/console");
    let counted = steps::run_counted(
        Command::new("timeout")
            .args(["--kill-after=10", BROWSER_TIMEOUT_S])
            .arg(root.join("tests/browser/run.sh"))
            .arg("console.mjs")
            .arg(&folder)
            .arg(url(&server)?)
            // Stopped for some seconds: the page must report that the server does not answer.
            .arg(process_id.to_string())
            // Has other values of some keys: the page must show these conflicts.
            .arg(url(&peer)?),
    )?;
    if counted == Tally::default() {
        bail!("the browser's checks counted nothing");
    }
    println!("pictures: {}", folder.display());
    Ok(counted)
}

fn url(server: &Server) -> Result<String> {
    let address = server.http_address.as_deref().context("it listens for HTTP")?;
    Ok(format!("http://{address}"))
}
