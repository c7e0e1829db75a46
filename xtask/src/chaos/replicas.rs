//! A master with two replicas: clients write to the master, at the durability `replicated` or
//! `always`, and the role of the master moves, planned or not.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::client::{Account, Protocol};
use super::compare::{check_equal, check_faults, check_ledgers, settle};
use super::cql_client::create_tables;
use super::ledger::Ledger;
use super::network::Network;
use super::operator::{Counts, Group};
use super::server::{Addresses, Server};
use super::writer::{Place, Scene, write};
use super::{Findings, Options};
use crate::process::TempDir;
use crate::tally::Tally;

const SERVERS: usize = 3;
const WRITERS: [(Protocol, &str); 5] = [
    (Protocol::Resp, REPLICATED),
    (Protocol::Resp, "always"),
    (Protocol::Cql, REPLICATED),
    (Protocol::Cql, "always"),
    (Protocol::Resp, REPLICATED),
];
const REPLICATED: &str = "replicated";
/// Time for replicas to follow before the master changes.
const LINK_TIMEOUT: Duration = Duration::from_secs(15);
/// Time after the end of a run for changes of the master that were not reached.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(30);
/// Memory that a master uses at most, whatever its replicas do: the data takes a small part.
const MEMORY_BYTES_MAX: u64 = 128 << 20;

pub(super) fn run(root: &Path, options: &Options) -> Result<Tally> {
    let mut random = SmallRng::seed_from_u64(options.seed);
    let network = Network::enter(SERVERS)?;
    let data = TempDir::new("chaos")?;
    // Small, so that replicas find that the log no longer has what they need.
    let snapshot_bytes = (1_u64 << random.random_range(20..28)).to_string();
    let arguments = ["serve", "--reactors", "2", "--snapshot-log-bytes", &snapshot_bytes];
    let arguments: Vec<String> =
        arguments.into_iter().chain(["--log-segment-bytes", "1mb"]).map(str::to_owned).collect();
    let servers = (0..SERVERS)
        .map(|number| Server::start(root, &network, number, data.path(), &arguments))
        .collect::<Result<Vec<Server>>>()?;
    create_tables(&servers[0].addresses.cql)?;
    let addresses: Vec<Addresses> = servers.iter().map(|server| server.addresses.clone()).collect();
    let place = Place::at(0);
    let counts = Counts::default();
    let (place, network) = (&place, &network);
    let mut group = Group { servers, network, place, master: 0, counts, has_promotions: false };
    group.begin()?;
    ensure!(group.wait_for_links(LINK_TIMEOUT), "the replicas do not copy the data");
    let is_over = AtomicBool::new(false);
    let (disturbed, ledgers) = std::thread::scope(|scope| {
        let mut writers = Vec::new();
        for ((protocol, durability), number) in WRITERS.into_iter().zip(1..) {
            let account = Account { number, protocol, durability };
            let scene = Scene { servers: &addresses, place, is_over: &is_over };
            let random = SmallRng::seed_from_u64(random.random());
            writers.push(scope.spawn(move || write(account, scene, random)));
        }
        let disturbed = disturb(&mut group, options, &mut random);
        is_over.store(true, Ordering::Relaxed);
        let ledgers = writers.into_iter().map(|writer| writer.join().expect("it does not panic"));
        (disturbed, ledgers.collect::<Vec<Ledger>>())
    });
    let memory_bytes_max = disturbed?;
    group.repair()?;
    let mut findings = Findings::default();
    settle(&group.servers, &mut findings);
    check(&group, &ledgers, memory_bytes_max, &mut findings)?;
    Ok(findings.0)
}

/// Disturbs the servers until the time has passed. Returns the most memory that a master has used.
fn disturb(group: &mut Group<'_>, options: &Options, random: &mut SmallRng) -> Result<u64> {
    let end = Instant::now() + Duration::from_secs(options.seconds);
    group.has_promotions = random.random_bool(0.7);
    let (mut others, mut memory_bytes_max) = (0, 0);
    while Instant::now() < end {
        for server in &mut group.servers {
            let ended = server.has_ended()?;
            ensure!(!ended, "server {} has ended by itself", server.id());
        }
        let action = random.random_range(0..17);
        match action {
            0..=2 if prepare(group)? => group.fail_over(random).context("during FAILOVER")?,
            3 | 4 if group.has_promotions && prepare(group)? => {
                group.promote(random).context("during a promotion")?;
            }
            _ => {
                disturb_once(group, action, random)?;
                others += 1;
            }
        }
        let memory = group.servers[group.master].info("memory");
        // It does not answer while it is halted.
        if let Ok(info) = memory {
            memory_bytes_max = info.number("used_memory")?.max(memory_bytes_max);
        }
        std::thread::sleep(Duration::from_millis(random.random_range(0..2500)));
    }
    complete(group, random)?;
    let Counts { failovers, handed_over, promotions, skipped } = group.counts;
    println!(
        "chaos: {failovers} failovers ({handed_over} to another master), {promotions} promotions \
         ({skipped} skipped), {others} other disturbances"
    );
    Ok(memory_bytes_max)
}

/// Changes the master in each way that has not yet succeeded: a short run, or one on a slow machine,
/// may have reached none.
fn complete(group: &mut Group<'_>, random: &mut SmallRng) -> Result<()> {
    let end = Instant::now() + COMPLETION_TIMEOUT;
    while Instant::now() < end {
        let needs_promotion = group.has_promotions && group.counts.promotions == 0;
        if group.counts.handed_over > 0 && !needs_promotion {
            return Ok(());
        }
        if !prepare(group)? {
            continue;
        }
        if needs_promotion {
            group.promote(random).context("during a promotion")?;
        } else {
            group.fail_over(random).context("during FAILOVER")?;
        }
    }
    Ok(())
}

/// Makes the replicas follow, so that one can take over. False if they do not.
fn prepare(group: &mut Group<'_>) -> Result<bool> {
    group.repair()?;
    Ok(group.wait_for_links(LINK_TIMEOUT))
}

fn disturb_once(group: &mut Group<'_>, action: u32, random: &mut SmallRng) -> Result<()> {
    let number = random.random_range(0..SERVERS);
    match action {
        5..=7 => {
            group.servers[number].kill()?;
            std::thread::sleep(Duration::from_millis(random.random_range(0..1500)));
            group.launch(number)?;
        }
        8 => {
            for server in &mut group.servers {
                server.kill()?;
            }
            group.repair()?;
        }
        9 => group.network.cut(number)?,
        10 => group.network.cut_between(number, (number + 1) % SERVERS)?,
        11 => group.network.slow(number, random.random_range(1..200))?,
        12 | 13 => {
            group.servers[number].halt()?;
            std::thread::sleep(Duration::from_millis(random.random_range(0..4000)));
            group.servers[number].resume()?;
        }
        _ => group.network.heal()?,
    }
    Ok(())
}

fn check(
    group: &Group<'_>,
    ledgers: &[Ledger],
    memory_bytes_max: u64,
    findings: &mut Findings,
) -> Result<()> {
    let counts = &group.counts;
    // Only one of them must happen, so that a slow machine does not fail: a disturbed or late
    // FAILOVER leaves the master as it was.
    findings.expect(counts.handed_over + counts.promotions > 0, || {
        "the master has not changed: run it for longer".to_owned()
    });
    findings.expect(!group.has_promotions || counts.promotions > 0, || {
        "no replica was promoted: run it for longer".to_owned()
    });
    let lost_nothing = group.counts.promotions == 0;
    let is_complete = |ledger: &Ledger| lost_nothing || ledger.account.durability == REPLICATED;
    check_equal(&group.servers, findings)?;
    for server in &group.servers {
        check_ledgers(server, ledgers, is_complete, findings)?;
    }
    if !lost_nothing {
        println!(
            "chaos: {} places lack writes that were acknowledged at always",
            count_lost(group, ledgers)?
        );
    }
    check_faults(&group.servers, ledgers, findings)?;
    let set_aside: usize = group.servers.iter().map(Server::set_aside).sum::<Result<usize>>()?;
    let memory_mb = memory_bytes_max >> 20;
    println!("chaos: {set_aside} files of writes set aside, masters used up to {memory_mb} MiB");
    findings.expect(memory_bytes_max < MEMORY_BYTES_MAX, || {
        format!("a master used {memory_bytes_max} bytes of memory")
    });
    Ok(())
}

/// The places that lack writes whose loss was allowed: promotions lose what no replica had.
fn count_lost(group: &Group<'_>, ledgers: &[Ledger]) -> Result<usize> {
    let mut lost = 0;
    for ledger in ledgers.iter().filter(|ledger| ledger.account.durability != REPLICATED) {
        let mut client = ledger.account.connect(&group.servers[group.master].addresses)?;
        lost += ledger.check(&mut *client, true)?.len();
    }
    Ok(lost)
}
