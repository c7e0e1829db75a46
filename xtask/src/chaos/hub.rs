//! Three masters and their hub: clients write to all masters at once.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::client::{Account, Protocol};
use super::compare::{check_equal, check_faults, check_ledgers, settle, wait_until_equal};
use super::cql_client::create_tables;
use super::ledger::Ledger;
use super::network::Network;
use super::server::{Addresses, Server};
use super::writer::{Place, Scene, write};
use super::{Findings, Options};
use crate::process::TempDir;
use crate::tally::Tally;

/// The hub is the last one.
const SERVERS: usize = 4;
const HUB: usize = SERVERS - 1;

fn start(root: &Path, network: &Network, data: &Path, number: usize) -> Result<Server> {
    let role = if number == HUB { "hub" } else { "serve" };
    let id = (number + 1).to_string();
    let arguments = [role, "--reactors", "1", "--server-id", &id].map(str::to_owned);
    Server::start(root, network, number, data, &arguments)
}

fn follow(server: &Server, other: &Server) -> Result<()> {
    let id = other.id().to_string();
    server.ask(&["HUB", "ADD", &id, &other.address.host, &other.address.port]).map(drop)
}

pub(super) fn run(root: &Path, options: &Options) -> Result<Tally> {
    let mut random = SmallRng::seed_from_u64(options.seed);
    let network = Network::enter(SERVERS)?;
    let data = TempDir::new("chaos")?;
    let mut servers = (0..SERVERS)
        .map(|number| start(root, &network, data.path(), number))
        .collect::<Result<Vec<Server>>>()?;
    create_tables(&servers[0].addresses.cql)?;
    for master in 0..HUB {
        follow(&servers[HUB], &servers[master])?;
        follow(&servers[master], &servers[HUB])?;
    }
    let mut findings = Findings::default();
    wait_until_equal(&servers, &mut findings);
    let addresses: Vec<Addresses> = servers.iter().map(|server| server.addresses.clone()).collect();
    let places: Vec<Place> = (0..HUB).map(Place::at).collect();
    let is_over = AtomicBool::new(false);
    let (disturbed, ledgers) = std::thread::scope(|scope| {
        let mut writers = Vec::new();
        for (master, place) in places.iter().enumerate() {
            for (protocol, offset) in [(Protocol::Resp, 1), (Protocol::Cql, 1 + HUB)] {
                let number = (master + offset) as u64;
                let account = Account { number, protocol, durability: "always" };
                let scene = Scene { servers: &addresses, place, is_over: &is_over };
                let random = SmallRng::seed_from_u64(random.random());
                writers.push(scope.spawn(move || write(account, scene, random)));
            }
        }
        let disturbed = disturb(&network, &mut servers, options, &mut random);
        is_over.store(true, Ordering::Relaxed);
        let ledgers = writers.into_iter().map(|writer| writer.join().expect("it does not panic"));
        (disturbed, ledgers.collect::<Vec<Ledger>>())
    });
    network.heal()?;
    disturbed?;
    settle(&servers, &mut findings);
    check(&servers, &ledgers, &mut findings)?;
    Ok(findings.0)
}

/// Kills servers, and cuts and slows their links, until the time has passed.
fn disturb(
    network: &Network,
    servers: &mut [Server],
    options: &Options,
    random: &mut SmallRng,
) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let (mut kills, mut halts, mut cuts, mut slow_links) = (0, 0, 0, 0);
    while Instant::now() < end {
        let number = random.random_range(0..SERVERS);
        let ended = servers[number].has_ended()?;
        ensure!(!ended, "server {} has ended by itself", number + 1);
        match random.random_range(0..12) {
            0..=3 => {
                servers[number].kill()?;
                servers[number].launch(None)?;
                kills += 1;
            }
            4..=6 => {
                network.cut(number)?;
                cuts += 1;
            }
            7 => {
                network.slow(number, random.random_range(1..200))?;
                slow_links += 1;
            }
            8 => {
                servers[number].halt()?;
                std::thread::sleep(Duration::from_millis(random.random_range(0..3000)));
                servers[number].resume()?;
                halts += 1;
            }
            _ => network.heal()?,
        }
        std::thread::sleep(Duration::from_millis(random.random_range(0..2500)));
    }
    println!("chaos: {kills} kills, {halts} halts, {cuts} cuts, {slow_links} slow links");
    Ok(())
}

fn check(servers: &[Server], ledgers: &[Ledger], findings: &mut Findings) -> Result<()> {
    check_equal(servers, findings)?;
    for server in servers {
        check_ledgers(server, ledgers, |_| true, findings)?;
    }
    check_faults(servers, ledgers, findings)?;
    for server in servers {
        let info = server.info("hub")?;
        println!("chaos: server {}: {} conflicts", server.id(), info.number("hub_conflicts")?);
    }
    Ok(())
}
