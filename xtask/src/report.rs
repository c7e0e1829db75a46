//! `cargo xtask report`: a browser opens the lab's pages, made of rows that tests invent.
//!
//! Pictures of them are left in `target/report`, for people to look at.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::steps;
use crate::tally::Tally;

/// The test that leaves a run folder with its page, and that folder.
const FIXTURE_TEST: &str = "report::a_run_of_every_kind_becomes_one_page";
const FIXTURE_FOLDER: &str = "target/tmp/report";

/// A browser that takes longer hangs.
const BROWSER_TIMEOUT_S: &str = "120";

/// Makes the pages and looks at them in headless Chromium.
pub(crate) fn run(root: &Path) -> Result<Tally> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let test = ["test", "--quiet", "-p", "lab", "--test", "it", "--", "--exact", FIXTURE_TEST];
    steps::run_plain(Command::new(cargo).current_dir(root).args(test))?;
    let page = root.join(FIXTURE_FOLDER).join("report.html");
    if !page.is_file() {
        bail!("{} is missing: {FIXTURE_TEST} makes it", page.display());
    }
    let counted = steps::run_counted(
        Command::new("timeout")
            .args(["--kill-after=10", BROWSER_TIMEOUT_S, "node"])
            .arg(root.join("tests/browser/check.mjs"))
            .arg(root.join("target/report"))
            .arg(format!("report=file://{}", page.display())),
    )?;
    if counted == Tally::default() {
        bail!("the browser's checks counted nothing");
    }
    println!("pictures: {}", root.join("target/report").display());
    Ok(counted)
}
