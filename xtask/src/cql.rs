//! `cargo xtask cql`: golden dialogues of the Cassandra query language against a server.
//!
//! Each file of `tests/cql` is one dialogue in its own keyspace; `tests/README.md` explains the
//! format. A run against Cassandra proves that the file matches Cassandra, a run against Myriad
//! that Myriad behaves the same.

pub(crate) mod bound;
pub(crate) mod client;
pub(crate) mod connection;
mod file;
pub(crate) mod show;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::{Server, Target};
use crate::tally::Tally;
use crate::transcript::files;
use connection::{Connection, Manner};
use file::{Script, Step};

/// Where the files are, below the repository's root.
const FOLDER: &str = "tests/cql";

/// The dialogue with a server that requires a login: see `AUTHENTICATOR` in
/// `scripts/peers/cassandra.sh`.
const ASKING: &str = "roles";

/// Cassandra's error while an index is being built.
const READ_FAILURE: &str = "error 1300";

/// Number and interval of attempts while an index is being built.
const INDEX_TRIES_MAX: u32 = 100;
const INDEX_PAUSE: Duration = Duration::from_millis(100);

/// The server to test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Peer {
    /// `target/release/myriad`, started by us.
    Myriad,
    /// A running Cassandra, at `host:port`: see `scripts/peers/cassandra.sh`.
    Cassandra(String),
}

impl Peer {
    fn name(&self) -> &'static str {
        match self {
            Self::Myriad => "myriad",
            Self::Cassandra(_) => "cassandra",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) peer: Peer,
    /// Only files whose name contains this.
    pub(crate) filter: Option<String>,
    /// Whether to write the server's answers into the files.
    pub(crate) update: bool,
}

/// Runs every file selected by the filter and prints the differences.
pub(crate) fn run_all(root: &Path, options: &Options) -> Result<Tally> {
    let files = files(&root.join(FOLDER), "cql", options.filter.as_deref())?;
    if files.is_empty() {
        bail!("no dialogue matches");
    }
    let (asking, others): (Vec<_>, Vec<_>) = files.into_iter().partition(|path| is_asking(path));
    let mut tally = Tally::default();
    for (files, is_asking) in [(others, false), (asking, true)] {
        if !files.is_empty() {
            tally += run_files(root, &files, is_asking, options)?;
        }
    }
    Ok(tally)
}

/// Whether the dialogue is with a server that requires a login.
fn is_asking(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem == ASKING)
}

fn run_files(root: &Path, files: &[PathBuf], is_asking: bool, options: &Options) -> Result<Tally> {
    let (address, _running) = match &options.peer {
        Peer::Cassandra(address) => (address.clone(), None),
        Peer::Myriad => {
            let server = if is_asking {
                Server::start_asking(root, "cassandra")?
            } else {
                Server::start(root, &Target::Myriad)?
            };
            (server.cql_address.clone().context("it listens for CQL")?, Some(server))
        }
    };
    let mut tally = Tally::default();
    for path in files {
        let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
        let passed = run_file(path, &name, &address, options).unwrap_or_else(|error| {
            println!("{name}: {error:#}");
            false
        });
        if passed { tally.passed += 1 } else { tally.failed += 1 }
    }
    Ok(tally)
}

fn run_file(path: &Path, name: &str, address: &str, options: &Options) -> Result<bool> {
    let text = fs::read_to_string(path)?;
    let script = file::parse(&text)?;
    let stem = path.file_stem().context("a file has a name")?.to_string_lossy().into_owned();
    let keyspace = stem.replace('-', "_");
    let mut connection = Connection::open(address)?;
    let peer = options.peer.name();
    connection.must(&format!("DROP KEYSPACE IF EXISTS {keyspace}"))?;
    connection.must(&format!(
        "CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
    ))?;
    connection.must(&format!("USE {keyspace}"))?;
    let mut is_same = true;
    let mut answers = Vec::new();
    for step in &script.steps {
        let actual = answer(&mut connection, step)?;
        let expected = step.expected(peer);
        if !file::is_match(expected, &actual, step.is_unordered) {
            is_same = false;
            if !options.update {
                println!("{name}:{}: {}", step.line, step.statement);
                for line in expected {
                    println!("  expected  {line}");
                }
                for line in &actual {
                    println!("  actual    {line}");
                }
            }
        }
        answers.push(actual);
    }
    connection.must(&format!("DROP KEYSPACE {keyspace}"))?;
    if options.update && !is_same {
        fs::write(path, update(&script, &text, peer, &answers))?;
        println!("{name}: answers written");
    }
    Ok(is_same || options.update)
}

/// The answer to a statement. A SELECT is also prepared and executed, with the same expected
/// answer.
fn answer(connection: &mut Connection, step: &Step) -> Result<Vec<String>> {
    let manner = Manner::paged(step.page_rows);
    let mut direct = connection.query(&step.statement, manner)?;
    for _ in 0..INDEX_TRIES_MAX {
        if !direct.iter().any(|line| line.starts_with(READ_FAILURE)) {
            break;
        }
        std::thread::sleep(INDEX_PAUSE);
        direct = connection.query(&step.statement, manner)?;
    }
    let is_select = step.statement.to_ascii_lowercase().starts_with("select");
    if is_select && !step.is_once && !direct.iter().any(|line| line.starts_with("error")) {
        let prepared = connection.prepare_and_execute(&step.statement, manner)?;
        if !file::is_match(&direct, &prepared, step.is_unordered) {
            bail!("line {}: prepared it gives {prepared:?}, else {direct:?}", step.line);
        }
    }
    Ok(direct)
}

/// The text with the answers inserted, except where they were written by hand.
fn update(script: &Script, text: &str, peer: &str, answers: &[Vec<String>]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (step, answer) in script.steps.iter().zip(answers).rev() {
        let expected = step.expected(peer);
        if step.is_by_hand(peer) || file::is_match(expected, answer, step.is_unordered) {
            continue;
        }
        let answer = answer.iter().map(|line| format!("< {line}"));
        lines.splice(step.answer_lines.clone(), answer);
    }
    lines.join("\n") + "\n"
}
