//! Whether all servers have the same data: keys by their digests and expiry times, rows with their timestamps.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::Findings;
use super::cql_client::READS;
use super::ledger::Ledger;
use super::server::{CLOCK_DIFFERENCE_MAX, Server};
use crate::cql::connection::{Connection as CqlConnection, Manner};
use crate::resp::{Connection, Value};

const DATABASES: [&str; 2] = ["0", "3"];
/// Time for all servers to become equal after the last disturbance.
const SETTLE_TIMEOUT: Duration = Duration::from_mins(2);
/// Shared keys, fields and cells with a TTL have expired after this time, by the same clock.
const TTL_MAX: Duration = Duration::from_secs(4);
const POLL: Duration = Duration::from_millis(200);
/// Differences that are shown of each server.
const SHOWN_MAX: usize = 8;

/// Waits until what has a short TTL has expired, and all servers have the same data.
pub(super) fn settle(servers: &[Server], findings: &mut Findings) {
    std::thread::sleep(TTL_MAX + CLOCK_DIFFERENCE_MAX);
    wait_until_equal(servers, findings);
}

pub(super) fn wait_until_equal(servers: &[Server], findings: &mut Findings) {
    let started = Instant::now();
    loop {
        // A replica that copies refuses to answer.
        let digests: Result<Vec<_>> = servers.iter().map(summary).collect();
        if let Ok(digests) = &digests
            && digests.iter().all(|digest| *digest == digests[0])
        {
            println!("chaos: equal after {:.1} s", started.elapsed().as_secs_f64());
            findings.expect(true, String::new);
            return;
        }
        if started.elapsed() > SETTLE_TIMEOUT {
            let error = digests.err().map_or_else(String::new, |error| format!(": {error:#}"));
            findings
                .expect(false, || format!("the servers differ after {SETTLE_TIMEOUT:?}{error}"));
            return;
        }
        std::thread::sleep(POLL);
    }
}

fn summary(server: &Server) -> Result<(Value, Vec<String>)> {
    Ok((server.ask(&["DEBUG", "DIGEST"])?, rows(server)?))
}

/// All rows of all tables.
fn rows(server: &Server) -> Result<Vec<String>> {
    let mut connection = CqlConnection::open(&server.addresses.cql)?;
    let mut rows = Vec::new();
    for statement in READS {
        let found = connection.query(statement, Manner::default())?;
        if let Some(error) = found.first().filter(|line| line.starts_with("error")) {
            bail!("{statement}: {error}");
        }
        rows.extend(found.iter().map(|row| format!("{statement}: {row}")));
    }
    Ok(rows)
}

/// All keys of a database with their digests and expiry times.
fn keys(server: &Server, db: &str) -> Result<Vec<String>> {
    let mut connection = Connection::open(&server.addresses.resp)?;
    connection.call(&["SELECT", db])?;
    let Value::Array(Some(names)) = connection.call(&["KEYS", "*"])? else {
        bail!("KEYS does not return an array")
    };
    let mut keys = Vec::new();
    for name in names {
        let Value::Bulk(Some(name)) = name else { bail!("a name is not a string") };
        let value = connection.call(&[&b"DEBUG"[..], b"DIGEST-VALUE", &name])?;
        let Value::Array(Some(digests)) = value else {
            bail!("DEBUG DIGEST-VALUE is answered {value:?}")
        };
        let [Value::Simple(digest) | Value::Bulk(Some(digest))] = &digests[..] else {
            bail!("DEBUG DIGEST-VALUE is answered {digests:?}")
        };
        let digest = String::from_utf8_lossy(digest);
        let expiry = connection.call(&[&b"PEXPIRETIME"[..], &name])?;
        let name = name.escape_ascii();
        keys.push(format!("database {db}: {name} {digest}, expires at {expiry:?}"));
    }
    Ok(keys)
}

fn contents(server: &Server) -> Result<BTreeSet<String>> {
    let mut contents: BTreeSet<String> = rows(server)?.into_iter().collect();
    for db in DATABASES {
        contents.extend(keys(server, db)?);
    }
    Ok(contents)
}

/// Compares the servers key by key and row by row.
pub(super) fn check_equal(servers: &[Server], findings: &mut Findings) -> Result<()> {
    let expected = contents(&servers[0])?;
    println!("chaos: {} keys and rows", expected.len());
    for server in &servers[1..] {
        let found = contents(server)?;
        let show = |here: &BTreeSet<String>, there: &BTreeSet<String>| -> Vec<String> {
            here.difference(there).take(SHOWN_MAX).cloned().collect()
        };
        findings.expect(expected == found, || {
            let (missing, extra) = (show(&expected, &found), show(&found, &expected));
            let id = server.id();
            format!("server {id} differs from 1: it lacks {missing:#?}, and has {extra:#?}")
        });
    }
    Ok(())
}

/// Compares the data of a server with what writers know. `is_complete`: whether it must have all
/// acknowledged writes of a writer.
pub(super) fn check_ledgers(
    server: &Server,
    ledgers: &[Ledger],
    is_complete: impl Fn(&Ledger) -> bool,
    findings: &mut Findings,
) -> Result<()> {
    for ledger in ledgers {
        let mut client = ledger.account.connect(&server.addresses)?;
        let faults = ledger.check(&mut *client, is_complete(ledger))?;
        let id = server.id();
        let faults: Vec<String> =
            faults.into_iter().map(|fault| format!("server {id}: {fault}")).collect();
        findings.expect_none(&faults);
    }
    Ok(())
}

/// What the writers saw, and what the servers logged.
pub(super) fn check_faults(
    servers: &[Server],
    ledgers: &[Ledger],
    findings: &mut Findings,
) -> Result<()> {
    for ledger in ledgers {
        findings.expect_none(&ledger.faults);
        findings.expect(ledger.acknowledged > 0, || format!("{} wrote nothing", ledger.name()));
        println!("chaos: {}: {} acknowledged requests", ledger.name(), ledger.acknowledged);
    }
    for server in servers {
        findings.expect_none(&server.errors()?);
    }
    Ok(())
}
