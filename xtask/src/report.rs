//! `cargo xtask report`: a browser opens the lab's pages, generated from invented rows, and the
//! monitor of a running pipeline.
//!
//! Screenshots of them are stored in `target/report`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::process::{KilledOnDrop, MYRIAD, TEST_LAB};
use crate::steps;
use crate::tally::Tally;

/// The test that generates a run folder with its page, and that folder.
const FIXTURE_TEST: &str = "report::a_run_of_every_kind_becomes_one_page";
const FIXTURE_FOLDER: &str = "target/tmp/report";

/// A browser that takes longer hangs.
const BROWSER_TIMEOUT_S: &str = "900";

/// Generates the pages and checks them in headless Chromium.
pub(crate) fn run(root: &Path) -> Result<Tally> {
    // With all packages, as built for the tests: building one package alone would recompile many.
    let test = ["test", "--quiet", "--workspace", "--test", "it", "--", "--exact", FIXTURE_TEST];
    steps::run_plain(&mut steps::cargo(root, &test))?;
    let page = root.join(FIXTURE_FOLDER).join("report.html");
    if !page.is_file() {
        bail!("{} is missing: {FIXTURE_TEST} makes it", page.display());
    }
    let live = LiveView::start(root)?;
    let monitor = Monitor::start(root)?;
    let counted = steps::run_counted(
        Command::new("timeout")
            .args(["--kill-after=10", BROWSER_TIMEOUT_S])
            .arg(root.join("tests/browser/run.sh"))
            .arg("check.mjs")
            .arg(root.join("target/report"))
            .arg(format!("report=file://{}", page.display()))
            .arg(format!("live={}", live.url))
            .arg(format!("monitor={}", monitor.url)),
    )?;
    if counted == Tally::default() {
        bail!("the browser's checks counted nothing");
    }
    println!("pictures: {}", root.join("target/report").display());
    Ok(counted)
}

/// `myriad-lab serve` of the same folder; ends with the value.
struct LiveView {
    child: KilledOnDrop,
    url: String,
}

impl LiveView {
    fn start(root: &Path) -> Result<Self> {
        let binary = root.join(TEST_LAB);
        let child = Command::new(&binary)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .arg(root.join(FIXTURE_FOLDER))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}: cargo test --no-run", binary.display()))?;
        let mut view = Self { child: KilledOnDrop(child), url: String::new() };
        let stdout = view.child.0.stdout.take().context("stdout was asked for as a pipe")?;
        BufReader::new(stdout).read_line(&mut view.url)?;
        view.url.truncate(view.url.trim_end().len());
        if view.url.is_empty() {
            bail!("myriad-lab serve ended: {}", view.child.0.wait()?);
        }
        Ok(view)
    }
}

/// `myriad pipeline monitor`, and a pipeline that reports to it; both end with the value.
struct Monitor {
    children: Vec<KilledOnDrop>,
    url: String,
}

impl Monitor {
    fn start(root: &Path) -> Result<Self> {
        let mut monitor = Self { children: Vec::new(), url: String::new() };
        let listen = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
        let stdout = monitor.spawn(root, "monitor", &listen, Stdio::piped())?;
        let mut lines = BufReader::new(stdout.context("stdout was asked for as a pipe")?);
        lines.read_line(&mut monitor.url)?;
        monitor.url.truncate(monitor.url.trim_end().len());
        let mut reports = String::new();
        lines.read_line(&mut reports)?;
        let reports = reports.trim_end().strip_prefix("reports to ");
        let address = reports.context("the monitor does not print the address for reports")?;
        let run = ["--rate", "50k", "--monitor", address];
        monitor.spawn(root, "run", &run, Stdio::null())?;
        Ok(monitor)
    }

    fn spawn(
        &mut self,
        root: &Path,
        command: &str,
        options: &[&str],
        stdout: Stdio,
    ) -> Result<Option<ChildStdout>> {
        let mut child = Command::new(root.join(MYRIAD))
            .args(["pipeline", command])
            .args(options)
            .stdin(Stdio::null())
            .stdout(stdout)
            .spawn()
            .with_context(|| format!("start pipeline {command}: cargo build --release"))?;
        let stdout = child.stdout.take();
        self.children.push(KilledOnDrop(child));
        Ok(stdout)
    }
}
