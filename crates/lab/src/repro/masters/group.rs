//! Some masters and a hub, started for an experiment and stopped on drop.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use wire::resp::Reply;

use super::connection::Connection;
use crate::repro::web::Bench;
use crate::repro::web::host::{self, Host};

/// Limit until all servers have what was written.
const PATIENCE: Duration = Duration::from_mins(2);
/// Precedes the address in the line that reports readiness.
const LABEL: &str = "resp=";
/// The number of the hub. Masters have those from 1 on.
const HUB: u16 = 9;

#[derive(Debug)]
pub(super) struct Group {
    masters: Vec<Host>,
    hub: Host,
    durability: &'static str,
}

/// The halted hub. It continues on drop.
#[derive(Debug)]
pub(super) struct HaltedHub(u32);

impl Drop for HaltedHub {
    fn drop(&mut self) {
        // Only fails if the process has exited, which the next request to it reports.
        let _ = host::signal(self.0, Signal::CONT);
    }
}

/// What the hub has counted of its masters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    pub(super) received: u64,
    pub(super) lost: u64,
    pub(super) conflicts: u64,
}

impl Group {
    /// Starts this number of masters and a hub; none follows another one yet.
    pub(super) fn start(
        bench: &Bench<'_>,
        masters: usize,
        durability: &'static str,
    ) -> Result<Self> {
        let start = |command: &str, number: u16| {
            let words = words(command, "127.0.0.1:0", number, durability);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            Host::start_on(bench, &words, LABEL, &[]).with_context(|| format!("server {number}"))
        };
        let hub = start("hub", HUB)?;
        let masters = (0..masters).map(|at| start("serve", number(at)?));
        Ok(Self { masters: masters.collect::<Result<_>>()?, hub, durability })
    }

    /// The number of masters.
    pub(super) fn masters(&self) -> usize {
        self.masters.len()
    }

    /// Kills a master, and starts it again with its data and its address. Returns the time until it
    /// was ready.
    pub(super) fn kill_and_restart(&mut self, bench: &Bench<'_>, at: usize) -> Result<Duration> {
        let address = self.address(at).to_string();
        let words = words("serve", &address, number(at)?, self.durability);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.masters[at].kill_and_restart(bench, &words, LABEL, &[])
    }

    pub(super) fn halt_hub(&self) -> Result<HaltedHub> {
        host::signal(self.hub.master(), Signal::STOP)?;
        Ok(HaltedHub(self.hub.master()))
    }

    pub(super) fn address(&self, at: usize) -> SocketAddr {
        self.masters[at].address()
    }

    pub(super) fn master(&self, at: usize) -> Result<Connection> {
        Connection::open(self.address(at))
    }

    pub(super) fn hub(&self) -> Result<Connection> {
        Connection::open(self.hub.address())
    }

    /// Connections to all masters, then to the hub.
    pub(super) fn connections(&self) -> Result<Vec<Connection>> {
        (0..self.masters()).map(|at| self.master(at)).chain([self.hub()]).collect()
    }

    /// Makes the hub follow a master.
    pub(super) fn follow_master(&self, at: usize) -> Result<()> {
        add(&mut self.hub()?, number(at)?, &self.masters[at])
    }

    /// Makes all masters follow the hub.
    pub(super) fn follow_hub(&self) -> Result<()> {
        (0..self.masters()).try_for_each(|at| add(&mut self.master(at)?, HUB, &self.hub))
    }

    /// Waits until the hub has received this number of values of each of these masters.
    pub(super) fn wait_for_values(&self, bench: &Bench<'_>, wanted: &[(usize, u64)]) -> Result<()> {
        let mut hub = self.hub()?;
        bench.wait_for("the hub has all values", PATIENCE, || {
            for (at, values) in wanted {
                if counts(&mut hub, number(*at)?)?.received < *values {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
    }

    /// What the hub has counted, of all masters together.
    pub(super) fn counts(&self) -> Result<Counts> {
        let mut hub = self.hub()?;
        let mut sum = Counts::default();
        for at in 0..self.masters() {
            let Counts { received, lost, conflicts } = counts(&mut hub, number(at)?)?;
            sum.received += received;
            sum.lost += lost;
            sum.conflicts += conflicts;
        }
        Ok(sum)
    }

    /// Values that a master has received from the hub since its start.
    pub(super) fn received(&self, at: usize) -> Result<u64> {
        Ok(counts(&mut self.master(at)?, HUB)?.received)
    }

    /// Waits until all masters have received this number of values from the hub.
    pub(super) fn wait_for_masters(&self, bench: &Bench<'_>, values: u64) -> Result<()> {
        for at in 0..self.masters() {
            let mut master = self.master(at)?;
            bench.wait_for("a master has all values", PATIENCE, || {
                Ok((counts(&mut master, HUB)?.received >= values).then_some(()))
            })?;
        }
        Ok(())
    }
}

fn number(at: usize) -> Result<u16> {
    u16::try_from(at + 1).context("too many masters")
}

fn words(command: &str, listen: &str, number: u16, durability: &str) -> Vec<String> {
    let number = number.to_string();
    let mut words = vec![command, "--dir", "data", "--resp", listen, "--server-id", &number];
    words.extend(["--reactors", "1", "--durability", durability]);
    // Digests cover all keys.
    words.extend(["--elements-per-command-max", "0"]);
    words.into_iter().map(str::to_owned).collect()
}

fn add(connection: &mut Connection, server: u16, host: &Host) -> Result<()> {
    let address = host.address();
    connection.ask(&format!("HUB ADD {server} {} {}", address.ip(), address.port()))?;
    Ok(())
}

/// What a server has counted of a peer.
fn counts(connection: &mut Connection, peer: u16) -> Result<Counts> {
    let Reply::Bulk(text) = connection.ask("INFO hub")? else { bail!("INFO without a text") };
    let text = String::from_utf8_lossy(&text).into_owned();
    parsed(&text, peer).with_context(|| format!("no peer {peer} in {text:?}"))
}

fn parsed(info: &str, peer: u16) -> Option<Counts> {
    let name = format!("hub_peer{peer}:");
    let fields = info.lines().find_map(|line| line.strip_prefix(&name))?;
    let field = |name: &str| {
        let named = |pair: &str| Some(pair.strip_prefix(name)?.strip_prefix('=')?.to_owned());
        fields.split(',').find_map(named)?.parse().ok()
    };
    Some(Counts {
        received: field("received")?,
        lost: field("lost")?,
        conflicts: field("conflicts")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_a_peer_are_those_of_its_line() {
        let info = "# Hub\r\nhub_conflicts:9\r\n\
                    hub_peer1:host=a,port=1,state=up,received=7,lost=2,conflicts=1\r\n\
                    hub_peer12:host=a,port=1,state=up,received=8,lost=0,conflicts=0\r\n";
        assert_eq!(parsed(info, 1), Some(Counts { received: 7, lost: 2, conflicts: 1 }));
        assert_eq!(parsed(info, 12).map(|counts| counts.received), Some(8));
        assert_eq!(parsed(info, 2), None);
    }
}
