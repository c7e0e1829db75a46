//! `cargo xtask hub-chaos`: three masters and their hub, each in a network namespace of its own.
//! Clients write to all masters while links are cut and delayed, and servers are killed. Afterwards
//! all servers must have the same keys with the same values, and every acknowledged write of a key
//! that one master alone writes.
//!
//! Needs root, and `ip` of iproute2. Each server has two links: by one it reaches the other servers,
//! by the other one clients reach it, so that a server that is cut off still takes writes.

mod load;
mod network;

use std::collections::BTreeSet;
use std::fs::{File, create_dir};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::process::{MYRIAD, TempDir};
use crate::resp::{Connection, Value};
use crate::tally::Tally;
use load::{Counts, write};
use network::Network;

/// The hub is the last one.
const SERVERS: usize = 4;
const HUB: usize = SERVERS - 1;
const DATABASES: [&str; 2] = ["0", "3"];
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// Time for all servers to become equal after the last disturbance.
const SETTLE_TIMEOUT: Duration = Duration::from_mins(2);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    pub(crate) seconds: u64,
    pub(crate) seed: u64,
}

/// A server in a namespace. Ends with the value.
struct Server {
    number: usize,
    namespace: String,
    directory: PathBuf,
    /// Where clients reach it.
    address: String,
    child: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if the process has already ended, which is the goal.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(root: &Path, namespace: &str, number: usize, directory: &Path) -> Result<Child> {
    let binary = root.join(MYRIAD);
    ensure!(binary.exists(), "{} is missing: cargo build --release -p myriad", binary.display());
    let log = File::options().create(true).append(true).open(directory.join("server.log"))?;
    Command::new("ip")
        .args(["netns", "exec", namespace])
        .arg(binary)
        .arg(if number == HUB { "hub" } else { "serve" })
        .args(["--resp", "0.0.0.0:6379", "--protected-mode", "no", "--reactors", "1"])
        .args(["--enable-debug-command", "yes", "--server-id"])
        .arg((number + 1).to_string())
        .arg("--dir")
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .context("start a server")
}

impl Server {
    fn start(root: &Path, network: &Network, number: usize, data: &Path) -> Result<Server> {
        let directory = data.join(number.to_string());
        create_dir(&directory)?;
        let namespace = network.namespace(number);
        let child = spawn(root, &namespace, number, &directory)?;
        let address = network.client_address(number);
        let server = Server { number, namespace, directory, address, child };
        server.wait()?;
        Ok(server)
    }

    /// Kills the process and starts it again on its data.
    fn restart(&mut self, root: &Path) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.child = spawn(root, &self.namespace, self.number, &self.directory)?;
        self.wait()
    }

    fn wait(&self) -> Result<()> {
        let started = Instant::now();
        while self.ask(&["PING"]).is_err() {
            if started.elapsed() > START_TIMEOUT {
                bail!("server {} did not answer within {START_TIMEOUT:?}", self.number + 1);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn ask(&self, request: &[&str]) -> Result<Value> {
        match Connection::open(&self.address)?.call(request)? {
            Value::Error(text) => bail!("{request:?}: {}", String::from_utf8_lossy(&text)),
            reply => Ok(reply),
        }
    }

    fn follow(&self, network: &Network, other: usize) -> Result<()> {
        let (id, host) = ((other + 1).to_string(), network.server_address(other));
        self.ask(&["HUB", "ADD", &id, &host, "6379"]).map(drop)
    }

    /// All keys of a database with their values.
    fn contents(&self, db: &str) -> Result<BTreeSet<(Vec<u8>, String)>> {
        let mut connection = Connection::open(&self.address)?;
        connection.call(&["SELECT", db])?;
        let Value::Array(Some(names)) = connection.call(&["KEYS", "*"])? else {
            bail!("KEYS does not return an array")
        };
        let mut contents = BTreeSet::new();
        for name in names {
            let Value::Bulk(Some(name)) = name else { bail!("a name is not a string") };
            let value = connection.call(&[&b"DEBUG"[..], b"DIGEST-VALUE", &name])?;
            contents.insert((name, format!("{value:?}")));
        }
        Ok(contents)
    }
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<Tally> {
    println!("hub-chaos: {} seconds, seed {}", options.seconds, options.seed);
    let mut random = SmallRng::seed_from_u64(options.seed);
    let network = Network::new(SERVERS)?;
    let data = TempDir::new("hub-chaos")?;
    let start = |number| Server::start(root, &network, number, data.path());
    let mut servers: Vec<Server> = (0..SERVERS).map(start).collect::<Result<_>>()?;
    for master in 0..HUB {
        servers[HUB].follow(&network, master)?;
        servers[master].follow(&network, HUB)?;
    }
    let is_over = AtomicBool::new(false);
    let addresses: Vec<String> = servers.iter().map(|server| server.address.clone()).collect();
    let seeds: Vec<u64> = (0..HUB).map(|_| random.random()).collect();
    let (disturbed, counts) = std::thread::scope(|scope| {
        let start = |(master, seed): (usize, &u64)| {
            let (address, is_over, random) =
                (&addresses[master], &is_over, SmallRng::seed_from_u64(*seed));
            scope.spawn(move || write(master + 1, address, random, is_over))
        };
        let writers: Vec<_> = seeds.iter().enumerate().map(start).collect();
        let disturbed = disturb(root, &network, &mut servers, options, &mut random);
        is_over.store(true, Ordering::Relaxed);
        let counts = writers.into_iter().map(|writer| writer.join().expect("it does not panic"));
        (disturbed, counts.collect::<Vec<Counts>>())
    });
    network.heal()?;
    disturbed?;
    settle(&servers)?;
    check(&servers, &counts)
}

/// Kills servers, and cuts and delays their links, until the time has passed.
fn disturb(
    root: &Path,
    network: &Network,
    servers: &mut [Server],
    options: &Options,
    random: &mut SmallRng,
) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let (mut kills, mut cuts, mut delays) = (0, 0, 0);
    while Instant::now() < end {
        let number = random.random_range(0..SERVERS);
        match random.random_range(0..10) {
            0..=3 => {
                servers[number].restart(root)?;
                kills += 1;
            }
            4..=6 => {
                network.cut(number)?;
                cuts += 1;
            }
            7 => delays += u32::from(network.delay(number, random.random_range(1..200))?),
            _ => network.heal()?,
        }
        std::thread::sleep(Duration::from_millis(random.random_range(0..2500)));
    }
    println!("hub-chaos: {kills} kills, {cuts} cuts, {delays} delays");
    Ok(())
}

/// Waits until all servers have the same data.
fn settle(servers: &[Server]) -> Result<()> {
    let started = Instant::now();
    loop {
        let digests = servers.iter().map(|server| server.ask(&["DEBUG", "DIGEST"]));
        let digests = digests.collect::<Result<Vec<Value>>>()?;
        if digests.iter().all(|digest| *digest == digests[0]) {
            println!("hub-chaos: equal after {:.1} s", started.elapsed().as_secs_f64());
            return Ok(());
        }
        if started.elapsed() > SETTLE_TIMEOUT {
            println!("hub-chaos: the servers differ: {digests:?}");
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Compares the servers key by key, and the keys of one writer with its acknowledged writes.
fn check(servers: &[Server], counts: &[Counts]) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut expect = |is_right: bool, what: String| {
        if is_right {
            tally.passed += 1;
        } else {
            tally.failed += 1;
            println!("hub-chaos: {what}");
        }
    };
    for db in DATABASES {
        let expected = servers[0].contents(db)?;
        println!("hub-chaos: {} keys in database {db}", expected.len());
        for server in &servers[1..] {
            let found = server.contents(db)?;
            let differing: Vec<String> = expected
                .symmetric_difference(&found)
                .map(|(name, value)| format!("{} {value}", name.escape_ascii()))
                .collect();
            let number = server.number + 1;
            expect(differing.is_empty(), format!("server {number} differs: {differing:?}"));
        }
    }
    for (counts, master) in counts.iter().zip(1..) {
        let counter = format!("counter{master}");
        for server in servers {
            let Value::Bulk(value) = server.ask(&["GET", &counter])? else {
                bail!("{counter} is not a string")
            };
            let value = String::from_utf8(value.unwrap_or_default())?.parse().unwrap_or(0);
            let is_right = (counts.acknowledged..=counts.sent).contains(&value);
            let number = server.number + 1;
            expect(is_right, format!("{counter} is {value} on server {number}, not {counts:?}"));
        }
    }
    let written: u64 = counts.iter().map(|counts| counts.acknowledged).sum();
    println!("hub-chaos: {written} acknowledged increments");
    ensure!(written > 0, "no write was acknowledged");
    for server in servers {
        let (Value::Verbatim(text) | Value::Bulk(Some(text))) = server.ask(&["INFO", "hub"])?
        else {
            bail!("INFO does not return a text")
        };
        let text = String::from_utf8_lossy(&text);
        let conflicts = text.lines().find(|line| line.starts_with("hub_conflicts:"));
        println!("hub-chaos: server {}: {}", server.number + 1, conflicts.unwrap_or("none"));
    }
    Ok(tally)
}
