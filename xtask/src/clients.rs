//! `cargo xtask clients`: suites that test a server with widely used client libraries.
//!
//! Each is a script `tests/clients/<name>/run.sh`: it downloads the versions pinned in its folder,
//! runs against `ADDR`, `CQL_ADDR` (`CQL_ASKING_ADDR`: a server that requires a login) or
//! `HTTP_ADDR`, and prints `N passed, N failed` at its end.

use std::io::{Write, stdout};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow, bail};

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

/// Applications, which run with each of these numbers of reactors.
const APP_SUITES: [&str; 4] = ["apps-node", "apps-python", "apps-go", "apps-http"];
const APP_REACTORS: [&str; 2] = ["1", "4"];

/// The suite of cluster clients, with `cluster-view` and each of these numbers of reactors.
const CLUSTER_SUITE: &str = "cluster";

/// The suite that also connects to a server that requires a login, and the password of its
/// superuser.
const ASKED_SUITE: &str = "cql-python";
const ASKING_PASSWORD: &str = "first";

/// Suites that start their own servers: with certificates, on data of Redis and Valkey, as the target
/// of an import from them or from a Cassandra, with replicas that clients of both protocols follow, and
/// observed by Prometheus.
const OWN_SUITES: [&str; 7] =
    ["tls", "rdb", "import", "import-cassandra", "sentinel", "cql-replicas", "monitoring"];

/// A suite that takes longer hangs. The first run spends most of its time on downloads and builds.
const SUITE_TIMEOUT_S: &str = "1800";

/// Runs the suites named by `only`, or all; each against its own server.
pub(crate) fn run(root: &Path, target: &Target, only: &[String]) -> Result<Tally> {
    let others = CQL_SUITES.iter().chain(&HTTP_SUITES).chain(&APP_SUITES).chain([&EXAMPLES]);
    let others = others.filter(|_| *target != Target::Redis);
    let cluster = [&CLUSTER_SUITE].into_iter().filter(|_| *target == Target::Myriad);
    let mut suites: Vec<&str> = SUITES.iter().chain(others).chain(cluster).copied().collect();
    let mut own: Vec<&str> = OWN_SUITES.to_vec();
    own.retain(|_| *target == Target::Myriad);
    let exists = |name: &str| suites.iter().chain(&own).any(|suite| *suite == name);
    if let Some(unknown) = only.iter().find(|name| !exists(name)) {
        suites.extend(own);
        bail!("no suite {unknown:?}: there are {}", suites.join(", "));
    }
    for list in [&mut suites, &mut own] {
        list.retain(|name| only.is_empty() || only.iter().any(|wanted| wanted == name));
    }
    // At the same time as the others: all of them mostly wait, for clients or for a timeout.
    let (tally, own) = thread::scope(|scope| {
        let own = scope.spawn(|| run_suites(root, target, &own));
        let tally = run_suites(root, target, &suites);
        let own = own.join().unwrap_or_else(|_| Err(anyhow!("the thread of suites panicked")));
        (tally, own)
    });
    let mut tally = tally?;
    tally += own?;
    Ok(tally)
}

/// Runs these suites, one after the other.
fn run_suites(root: &Path, target: &Target, names: &[&str]) -> Result<Tally> {
    let mut tally = Tally::default();
    for name in names.iter().copied() {
        println!("clients: {name}");
        let has_cluster_view = name == CLUSTER_SUITE;
        if (has_cluster_view || APP_SUITES.contains(&name)) && *target == Target::Myriad {
            for reactors in APP_REACTORS {
                let options = ["--reactors", reactors, "--cluster-view", "yes"];
                let count = if has_cluster_view { 4 } else { 2 };
                tally += run_suite(root, target, name, &options[..count])?;
            }
            continue;
        }
        // ScyllaDB's driver uses shards.
        let options: &[&str] =
            if name == "cql-rust" { &["--placement", "source-port"] } else { &[] };
        tally += run_suite(root, target, name, options)?;
    }
    Ok(tally)
}

fn run_suite(root: &Path, target: &Target, name: &str, options: &[&str]) -> Result<Tally> {
    let server = Server::start_with(root, target, options)?;
    let folder = root.join("tests/clients").join(name);
    let needs_password = *target == Target::Myriad && name == ASKED_SUITE;
    let server_with_password =
        needs_password.then(|| Server::start_asking(root, ASKING_PASSWORD)).transpose()?;
    let server_with_password =
        server_with_password.as_ref().and_then(|server| server.cql_address.as_deref());
    let started = Instant::now();
    // Shown at once at the end: suites run at the same time.
    let mut output = Vec::new();
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
        &mut output,
    )?;
    let took_s = started.elapsed().as_secs_f64();
    writeln!(output, "clients: {name}: {counted} ({took_s:.1} s)")?;
    stdout().write_all(&output)?;
    if counted == Tally::default() {
        bail!("suite {name} counted nothing");
    }
    Ok(counted)
}
