//! Two masters and a hub, started for an experiment and stopped on drop.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use wire::resp::Reply;

use super::connection::Connection;
use crate::repro::web::Bench;
use crate::repro::web::host::Host;

/// Limit until all servers have what was written.
const PATIENCE: Duration = Duration::from_mins(2);
/// The numbers of the servers; the last one is the hub.
pub(super) const MASTERS: [u16; 2] = [1, 2];
const HUB: u16 = 9;

#[derive(Debug)]
pub(super) struct Group {
    masters: [Host; 2],
    hub: Host,
}

/// What the hub has counted of its masters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) received: u64,
    pub(super) lost: u64,
    pub(super) conflicts: u64,
}

impl Group {
    /// Starts the servers; no one follows another one yet.
    pub(super) fn start(bench: &Bench<'_>) -> Result<Self> {
        let start = |command: &str, number: u16| {
            let number = number.to_string();
            let mut words = vec![command, "--dir", "data", "--resp", "127.0.0.1:0"];
            words.extend(["--server-id", &number, "--reactors", "1"]);
            // The source never syncs; a stream has synced records only.
            words.extend(["--durability", "interval"]);
            Host::start_on(bench, &words, "resp=", &[]).with_context(|| format!("server {number}"))
        };
        let [first, second] = MASTERS;
        let masters = [start("serve", first)?, start("serve", second)?];
        Ok(Self { masters, hub: start("hub", HUB)? })
    }

    /// A connection to the master at this place of [`MASTERS`].
    pub(super) fn master(&self, at: usize) -> Result<Connection> {
        Connection::open(self.masters[at].address())
    }

    pub(super) fn hub(&self) -> Result<Connection> {
        Connection::open(self.hub.address())
    }

    /// Makes the hub follow a master.
    pub(super) fn follow_master(&self, at: usize) -> Result<()> {
        add(&mut self.hub()?, MASTERS[at], &self.masters[at])
    }

    /// Makes both masters follow the hub.
    pub(super) fn follow_hub(&self) -> Result<()> {
        (0..MASTERS.len()).try_for_each(|at| add(&mut self.master(at)?, HUB, &self.hub))
    }

    /// Waits until the hub has received this number of values of each of these masters.
    pub(super) fn wait_for_values(&self, bench: &Bench<'_>, wanted: &[(usize, u64)]) -> Result<()> {
        let mut hub = self.hub()?;
        bench.wait_for("the hub has all values", PATIENCE, || {
            for (at, values) in wanted {
                if counts(&mut hub, MASTERS[*at])?.received < *values {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
    }

    /// What the hub has counted, of both masters together.
    pub(super) fn counts(&self) -> Result<Counts> {
        let mut hub = self.hub()?;
        let [first, second] = [counts(&mut hub, MASTERS[0])?, counts(&mut hub, MASTERS[1])?];
        Ok(Counts {
            received: first.received + second.received,
            lost: first.lost + second.lost,
            conflicts: first.conflicts + second.conflicts,
        })
    }

    /// Waits until both masters have received this number of values from the hub.
    pub(super) fn wait_for_masters(&self, bench: &Bench<'_>, values: u64) -> Result<()> {
        for at in 0..MASTERS.len() {
            let mut master = self.master(at)?;
            bench.wait_for("a master has all values", PATIENCE, || {
                Ok((counts(&mut master, HUB)?.received >= values).then_some(()))
            })?;
        }
        Ok(())
    }
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
