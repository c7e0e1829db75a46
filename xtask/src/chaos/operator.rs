//! The operator of a master and its replicas: starts servers in their roles, hands the role of the
//! master over, and replaces a master that is lost.

use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail};
use rand::Rng;
use rand::rngs::SmallRng;

use super::network::Network;
use super::server::Server;
use super::writer::Place;
use crate::resp::Info;

/// Time for a failover to end one way or the other, when all servers run and reach each other.
const RESOLVE_TIMEOUT: Duration = Duration::from_mins(1);
/// A server that asks a replica to take over, and does not know whether it has, asks repeatedly.
/// If it cannot connect to the replica, it gives up sooner.
const UNCERTAIN_TIME: Duration = Duration::from_secs(7);
/// A request for a promotion that was on its way when its sender was killed has arrived.
const ARRIVAL_TIME: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(100);
/// A replica that has applied nothing for this long has applied all that it has received.
const QUIET_TIME: Duration = Duration::from_millis(300);
const QUIET_ATTEMPTS: usize = 10;

/// Refusals of FAILOVER: a replica has lost its connection since it was checked.
const NO_TARGET: [&str; 3] =
    ["requires connected replicas", "is not a replica", "target replica is not online"];
/// Refusals of FAILOVER ABORT: it has already ended, or cannot be undone.
const TOO_LATE: [&str; 2] = ["No failover in progress", "the replica may have been promoted"];

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) failovers: u32,
    /// Those after which the master was another one.
    pub(super) handed_over: u32,
    pub(super) promotions: u32,
    /// Promotions that were not tried because a replica was not up to date.
    pub(super) skipped: u32,
}

pub(super) struct Group<'a> {
    pub(super) servers: Vec<Server>,
    pub(super) network: &'a Network,
    pub(super) place: &'a Place,
    pub(super) master: usize,
    pub(super) counts: Counts,
    /// Whether masters are lost. Otherwise no durability may lose a write.
    pub(super) has_promotions: bool,
}

/// The way in which a master is lost.
#[derive(Debug, Clone, Copy)]
enum Loss {
    Cut,
    Killed,
    Halted,
}

impl Loss {
    fn random(random: &mut SmallRng) -> Loss {
        [Loss::Cut, Loss::Killed, Loss::Halted][random.random_range(0..3)]
    }
}

fn pause(random: &mut SmallRng, ms_max: u64) {
    std::thread::sleep(Duration::from_millis(random.random_range(0..=ms_max)));
}

/// Accepts an error that has one of the texts.
fn expect_refusal(error: Error, texts: &[&str]) -> Result<()> {
    let shown = format!("{error:#}");
    if texts.iter().any(|text| shown.contains(text)) { Ok(()) } else { Err(error) }
}

fn is_master(info: &Info) -> bool {
    info.get("role") == Some("master")
}

impl Group<'_> {
    pub(super) fn random_replica(&self, random: &mut SmallRng) -> usize {
        (self.master + random.random_range(1..self.servers.len())) % self.servers.len()
    }

    fn replicas(&self) -> impl Iterator<Item = usize> + use<> {
        let master = self.master;
        (0..self.servers.len()).filter(move |number| *number != master)
    }

    /// Makes all other servers replicas of the first master.
    pub(super) fn begin(&self) -> Result<()> {
        self.replicas().try_for_each(|number| self.follow(number, self.master))
    }

    /// Starts a server that was killed in its role.
    pub(super) fn launch(&mut self, number: usize) -> Result<()> {
        let master = self.servers[self.master].address.clone();
        self.servers[number].launch((number != self.master).then_some(&master))
    }

    fn follow(&self, number: usize, master: usize) -> Result<()> {
        let address = &self.servers[master].address;
        self.servers[number].ask(&["REPLICAOF", &address.host, &address.port]).map(drop)
    }

    fn replication(&self, number: usize) -> Result<Info> {
        self.servers[number].info("replication")
    }

    /// Waits until all replicas follow the master. False if they do not in time.
    pub(super) fn wait_for_links(&self, timeout: Duration) -> bool {
        let is_up = |info: Info| info.get("master_link_status") == Some("up");
        let started = Instant::now();
        while started.elapsed() < timeout {
            if self.replicas().all(|number| self.replication(number).is_ok_and(is_up)) {
                return true;
            }
            std::thread::sleep(POLL);
        }
        false
    }

    /// Ends all disturbances.
    pub(super) fn repair(&mut self) -> Result<()> {
        self.network.heal()?;
        for number in 0..self.servers.len() {
            self.servers[number].resume()?;
            if !self.servers[number].is_running() {
                self.launch(number)?;
            }
        }
        Ok(())
    }

    /// FAILOVER, which may be disturbed. Afterwards there is one master.
    pub(super) fn fail_over(&mut self, random: &mut SmallRng) -> Result<()> {
        let (old, target) = (self.master, self.random_replica(random));
        let address = self.servers[target].address.clone();
        let timeout_ms = random.random_range(1..2000).to_string();
        let mut request = vec!["FAILOVER"];
        if random.random_bool(0.5) {
            request.extend(["TO", &address.host, &address.port]);
        }
        if random.random_bool(0.5) {
            request.extend(["TIMEOUT", &timeout_ms]);
        }
        self.place.begin_change();
        if let Err(error) = self.servers[old].ask(&request) {
            return expect_refusal(error, &NO_TARGET);
        }
        self.counts.failovers += 1;
        pause(random, 20);
        match random.random_range(0..12) {
            0 => {
                if let Err(error) = self.servers[old].ask(&["FAILOVER", "ABORT"]) {
                    expect_refusal(error, &TOO_LATE)?;
                }
            }
            1 => self.servers[target].kill()?,
            2 => self.servers[old].kill()?,
            3 => self.network.cut(target)?,
            4 => self.network.cut_between(old, target)?,
            5 => self.servers[target].halt()?,
            6 => self.servers[old].halt()?,
            _ => {}
        }
        pause(random, 1500);
        self.resolve()?;
        self.counts.handed_over += u32::from(self.master != old);
        Ok(())
    }

    /// Repairs everything, and finds out which server is the master.
    fn resolve(&mut self) -> Result<()> {
        let old = self.master;
        self.network.heal()?;
        self.servers.iter().try_for_each(Server::resume)?;
        if !self.servers[old].is_running() {
            self.master = self.find_promoted()?.unwrap_or(old);
            self.launch(old)?;
        }
        for number in 0..self.servers.len() {
            if !self.servers[number].is_running() {
                self.launch_target(old, number)?;
            }
        }
        self.master = self.wait_for_master()?;
        for number in self.replicas() {
            self.follow(number, self.master)?;
        }
        self.place.set(self.master);
        Ok(())
    }

    /// The replica that has been promoted, if any.
    fn find_promoted(&self) -> Result<Option<usize>> {
        std::thread::sleep(ARRIVAL_TIME);
        for number in self.replicas() {
            if is_master(&self.replication(number)?) {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// Starts a replica that was killed during a failover: as the master, if it may have become it.
    fn launch_target(&mut self, old: usize, number: usize) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < UNCERTAIN_TIME {
            let info = self.replication(old)?;
            if info.get("master_failover_state") == Some("no-failover") && !is_master(&info) {
                // It follows the new master, which may be this one.
                let host = &self.servers[number].address.host;
                let is_this = info.get("master_host") == Some(host);
                let other = (0..self.servers.len()).find(|it| *it != old && *it != number);
                let other = other.context("there are three servers")?;
                let master = self.servers[other].address.clone();
                return self.servers[number].launch((!is_this).then_some(&master));
            }
            if is_master(&info) {
                let master = self.servers[old].address.clone();
                return self.servers[number].launch(Some(&master));
            }
            std::thread::sleep(POLL);
        }
        self.servers[number].launch(None)
    }

    /// Waits until there is one master, and no failover.
    fn wait_for_master(&self) -> Result<usize> {
        let started = Instant::now();
        loop {
            let infos = (0..self.servers.len()).map(|number| self.replication(number));
            let infos: Vec<Info> = infos.collect::<Result<_>>()?;
            let is_done =
                infos.iter().all(|it| it.get("master_failover_state") == Some("no-failover"));
            let masters: Vec<usize> =
                (0..infos.len()).filter(|number| is_master(&infos[*number])).collect();
            if let ([master], true) = (masters.as_slice(), is_done) {
                return Ok(*master);
            }
            if started.elapsed() > RESOLVE_TIMEOUT {
                bail!("a failover does not end with one master: {infos:#?}");
            }
            std::thread::sleep(POLL);
        }
    }

    /// Replaces a master that is lost, as docs/operate/replication.md describes.
    pub(super) fn promote(&mut self, random: &mut SmallRng) -> Result<()> {
        let old = self.master;
        let epoch = self.replication(old)?;
        let epoch = epoch.get("master_replid").context("INFO has no master_replid")?;
        self.place.begin_change();
        let loss = Loss::random(random);
        match loss {
            Loss::Cut => self.network.cut(old)?,
            Loss::Killed => self.servers[old].kill()?,
            Loss::Halted => self.servers[old].halt()?,
        }
        pause(random, 300);
        let Some(new) = self.most_advanced(epoch)? else {
            self.counts.skipped += 1;
            return self.repair();
        };
        self.servers[new].ask(&["REPLICAOF", "NO", "ONE"])?;
        for number in self.replicas().filter(|number| *number != new) {
            self.follow(number, new)?;
        }
        self.counts.promotions += 1;
        // Some clients still write to the old master.
        pause(random, 1000);
        self.master = new;
        self.place.set(new);
        pause(random, 1500);
        self.place.begin_change();
        match loss {
            Loss::Killed => return self.launch(old),
            Loss::Cut if random.random_bool(0.5) => {
                self.follow(old, new)?;
                return self.network.heal();
            }
            Loss::Cut => self.network.heal()?,
            Loss::Halted => self.servers[old].resume()?,
        }
        pause(random, 300);
        self.follow(old, new)
    }

    /// The replica with the greatest position. None: one of them has not followed the master, or
    /// has not all data, so that no position can be compared with its own.
    fn most_advanced(&self, epoch: &str) -> Result<Option<usize>> {
        let mut best = None;
        for number in self.replicas() {
            let Some(position) = self.last_position(number, epoch)? else { return Ok(None) };
            best = best.max(Some((position, number)));
        }
        Ok(best.map(|(_, number)| number))
    }

    /// The position of a replica when it has applied all that it has received.
    fn last_position(&self, number: usize, epoch: &str) -> Result<Option<u64>> {
        let mut last = None;
        for _ in 0..QUIET_ATTEMPTS {
            let info = self.replication(number)?;
            let is_whole = info.get("master_sync_in_progress") == Some("0");
            if is_master(&info) || !is_whole || info.get("master_replid") != Some(epoch) {
                return Ok(None);
            }
            let position = Some(info.number("slave_repl_offset")?);
            if position == last {
                return Ok(position);
            }
            last = position;
            std::thread::sleep(QUIET_TIME);
        }
        Ok(None)
    }
}
