//! Two writes of each key, by different masters, which reach the hub in either order.

use std::time::Duration;

use anyhow::Result;
use wire::resp::{Reply, encode_request};

use super::connection::Connection;
use super::group::Group;
use super::{DURABILITY, MASTERS, real};
use crate::repro::finding::FindingRow;
use crate::repro::web::Bench;

/// Time between the two writes of a key: they are in different seconds, which the source compares.
const BETWEEN: Duration = Duration::from_millis(1_100);
const OLDER: &str = "older";
const NEWER: &str = "newer";

/// The outcome of the writes.
#[derive(Debug, Clone)]
pub(super) struct Order {
    /// Of half of them, the older write reaches the hub first.
    pub(super) keys: u64,
    /// Values that the hub received and did not store.
    pub(super) dropped: u64,
    pub(super) conflicts: u64,
    /// Keys that have another value than the newer one, of all three servers.
    pub(super) wrong: u64,
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<Order> {
    let half = bench.pick(1_000, 10_000);
    let group = Group::start(bench, MASTERS, DURABILITY)?;
    let mut masters = [group.master(0)?, group.master(1)?];
    // The names of the keys: whose write is the older one.
    for (master, name) in masters.iter_mut().zip(["first", "second"]) {
        write_all(master, name, half, OLDER)?;
    }
    bench.pause(BETWEEN)?;
    for (master, name) in masters.iter_mut().zip(["second", "first"]) {
        write_all(master, name, half, NEWER)?;
    }
    let of_master = 2 * half;
    group.follow_master(0)?;
    group.wait_for_values(bench, &[(0, of_master)])?;
    group.follow_master(1)?;
    group.wait_for_values(bench, &[(0, of_master), (1, of_master)])?;
    let counts = group.counts()?;
    group.follow_hub()?;
    group.wait_for_masters(bench, of_master)?;
    let mut wrong = 0;
    for server in [&mut group.hub()?, &mut group.master(0)?, &mut group.master(1)?] {
        for name in ["first", "second"] {
            wrong += wrong_keys(server, name, half)?;
        }
    }
    Ok(Order { keys: of_master, dropped: counts.lost, conflicts: counts.conflicts, wrong })
}

fn key(name: &str, number: u64) -> String {
    format!("{name}:{number}")
}

fn write_all(master: &mut Connection, name: &str, count: u64, value: &str) -> Result<()> {
    let mut requests = Vec::new();
    for number in 0..count {
        let key = key(name, number);
        encode_request(&[b"SET", key.as_bytes(), value.as_bytes()], &mut requests);
    }
    master.send(&requests, usize::try_from(count)?)
}

/// Counts the keys without the newer value.
fn wrong_keys(server: &mut Connection, name: &str, count: u64) -> Result<u64> {
    let mut wrong = 0;
    for number in 0..count {
        let value = server.ask(&format!("GET {}", key(name, number)))?;
        wrong += u64::from(value != Reply::Bulk(NEWER.into()));
    }
    Ok(wrong)
}

impl Order {
    /// Whether each older write was dropped or replaced, by all servers, and counted.
    pub(super) fn keeps_the_newer(&self) -> bool {
        // The other half was stored, then replaced.
        self.wrong == 0 && self.dropped == self.keys / 2 && self.conflicts == self.keys
    }

    pub(super) fn rows(&self) -> [FindingRow; 2] {
        let Order { keys, dropped, conflicts, wrong } = *self;
        let note =
            format!("{conflicts} conflicts counted, {wrong} wrong keys on the three servers");
        let row = |role: &str, value: u64, note| {
            let target = Some(real(keys / 2));
            FindingRow {
                target,
                ..FindingRow::once("two writes of a key", role, real(value), "keys", note)
            }
        };
        let replaced = conflicts.saturating_sub(dropped);
        [
            row("older first: replaced", replaced, String::new()),
            row("newer first: older dropped", dropped, note),
        ]
    }
}
