//! `cargo xtask clients`: suites that test a server with widely used client libraries.
//!
//! Each is a script `tests/clients/<name>/run.sh`: it downloads the versions pinned in its folder,
//! runs against `ADDR`, `CQL_ADDR` (`CQL_ASKING_ADDR`: a server that requires a login) or
//! `HTTP_ADDR`, and prints `N passed, N failed` at its end.

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::process::{MYRIAD, Server, Target};
use crate::steps;
use crate::tally::Tally;

/// The suites of the Redis protocol, quickest first.
const SUITES: [&str; 5] = ["redis-tools", "go", "node", "python", "java"];

/// The suites of CQL, for servers that support it.
const CQL_SUITES: [&str; 4] = ["cql-go", "cql-rust", "cql-java", "cql-python"];

/// The programs of `examples`, which use all protocols.
const EXAMPLES: &str = "examples";

/// The suites of HTTP.
const HTTP_SUITES: [&str; 2] = ["http-python", "http-node"];

/// Applications.
const APP_SUITES: [&str; 4] = ["apps-node", "apps-python", "apps-go", "apps-http"];

/// The suite of cluster clients.
const CLUSTER_SUITE: &str = "cluster";

/// The suite that also connects to a server that requires a login, and the password of its
/// superuser.
const ASKED_SUITE: &str = "cql-python";
const ASKING_PASSWORD: &str = "first";

/// Suites that start their own servers: with certificates, on data of Redis and Valkey, as the target
/// of an import from them or from a Cassandra, with replicas that clients of both protocols follow,
/// observed by Prometheus, and stored in a bucket.
const OWN_SUITES: [&str; 8] = [
    "tls",
    "rdb",
    "import",
    "import-cassandra",
    "sentinel",
    "cql-replicas",
    "monitoring",
    "backup",
];

/// A suite that takes longer hangs. The first run spends most of its time on downloads and builds.
const SUITE_TIMEOUT_S: &str = "1800";

/// Number of suites that run at the same time: most of them wait, for clients or for a timeout.
const LANES: usize = 3;

/// Runs the suites named by `only`, or all; each against its own server.
pub(crate) fn run(root: &Path, target: &Target, only: &[String]) -> Result<Tally> {
    let mut names: Vec<&str> = SUITES.to_vec();
    if *target != Target::Redis {
        names.extend(CQL_SUITES.iter().chain(&HTTP_SUITES).chain(&APP_SUITES).chain([&EXAMPLES]));
    }
    if *target == Target::Myriad {
        // They take the longest, so they begin first.
        names.splice(..0, OWN_SUITES);
        names.push(CLUSTER_SUITE);
    }
    if let Some(unknown) = only.iter().find(|name| !names.contains(&name.as_str())) {
        bail!("no suite {unknown:?}: there are {}", names.join(", "));
    }
    names.retain(|name| only.is_empty() || only.iter().any(|wanted| wanted == name));
    steps::run_lanes(LANES, names, |name| {
        let (mut output, mut tally) = (Vec::new(), Tally::default());
        for options in servers(target, name) {
            tally += run_suite(root, target, name, options, &mut output)?;
        }
        Ok((output, tally))
    })
}

/// The options of each server that a suite runs against.
fn servers(target: &Target, name: &str) -> &'static [&'static [&'static str]] {
    match name {
        // ScyllaDB's driver uses shards.
        "cql-rust" => &[&["--placement", "source-port"]],
        CLUSTER_SUITE => &[
            &["--reactors", "1", "--cluster-view", "yes"],
            &["--reactors", "4", "--cluster-view", "yes"],
        ],
        name if APP_SUITES.contains(&name) && *target == Target::Myriad => {
            &[&["--reactors", "1"], &["--reactors", "4"]]
        }
        _ => &[&[]],
    }
}

/// Runs one suite; appends its output.
fn run_suite(
    root: &Path,
    target: &Target,
    name: &str,
    options: &[&str],
    output: &mut Vec<u8>,
) -> Result<Tally> {
    let server = Server::start_with(root, target, options)?;
    let folder = root.join("tests/clients").join(name);
    let needs_password = *target == Target::Myriad && name == ASKED_SUITE;
    let server_with_password =
        needs_password.then(|| Server::start_asking(root, ASKING_PASSWORD)).transpose()?;
    let server_with_password =
        server_with_password.as_ref().and_then(|server| server.cql_address.as_deref());
    let started = Instant::now();
    let counted = steps::run_counted_to(
        Command::new("timeout")
            .args(["--kill-after=10", SUITE_TIMEOUT_S, "bash", "-c", "exec bash \"$0\" 2>&1"])
            .arg(folder.join("run.sh"))
            .current_dir(&folder)
            .env("ADDR", &server.address)
            .env("CQL_ADDR", server.cql_address.as_deref().unwrap_or_default())
            .env("HTTP_ADDR", server.http_address.as_deref().unwrap_or_default())
            .env("CQL_ASKING_ADDR", server_with_password.unwrap_or_default())
            .env("CQL_ASKING_PASSWORD", ASKING_PASSWORD)
            .env("MYRIAD", root.join(MYRIAD))
            .env("DIALECT", server.dialect.name()),
        output,
    )?;
    let took_s = started.elapsed().as_secs_f64();
    writeln!(output, "clients: {name}: {counted} ({took_s:.1} s)")?;
    if counted == Tally::default() {
        bail!("suite {name} counted nothing:\n{}", String::from_utf8_lossy(output));
    }
    Ok(counted)
}
