//! What the target knows of imports: which ranges were copied, and which importer is at work.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{anyhow, bail};
use wire::cql::Value;

use super::failure::Failure;
use super::session::Session;
use super::table::Part;
use crate::import::wait::Wait;

pub(super) const KEYSPACE: &str = "myriad_import";
const CREATE: [&str; 3] = [
    "CREATE KEYSPACE IF NOT EXISTS myriad_import \
     WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE IF NOT EXISTS myriad_import.ranges (import text, part text, after bigint, \
     copied_until bigint, PRIMARY KEY (import, part, after))",
    "CREATE TABLE IF NOT EXISTS myriad_import.importer (id int PRIMARY KEY, owner uuid)",
];
/// One importer at a time writes to a target: it compares lists and counters with what is there. The
/// claim of one that was killed ends after this time.
const CLAIM_S: i32 = 10;
pub(super) const CLAIM_INTERVAL: Duration = Duration::from_secs(2);
const CLAIM_WAIT_MAX: Duration = Duration::from_secs(15);
const CLAIM_RETRY: Duration = Duration::from_millis(200);

/// A claim on the target.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    owner: [u8; 16],
}

impl Claim {
    /// Waits until no other importer is at work.
    pub(super) fn take(target: &mut Session<'_>) -> Result<Claim, Failure> {
        for statement in CREATE {
            target.execute(statement, &[])?;
        }
        let claim = Claim { owner: rand::random() };
        let (mut wait, mut err) = (Wait::new(CLAIM_WAIT_MAX), std::io::stderr());
        while !claim.renew(target)? {
            let other = format!(
                "another import into the target, which is running or ended less than {CLAIM_S} s ago"
            );
            if !wait.may_continue(&other, &mut err) {
                return Err(anyhow!("another import into the target is running").into());
            }
            std::thread::sleep(CLAIM_RETRY);
        }
        wait.end(&mut err);
        Ok(claim)
    }

    /// Returns whether the target belongs to this importer.
    pub(super) fn renew(&self, target: &mut Session<'_>) -> Result<bool, Failure> {
        let ttl = CLAIM_S.to_be_bytes();
        let (ttl, owner) = (Value::Bytes(&ttl), Value::Bytes(&self.owner));
        let renew = "UPDATE myriad_import.importer USING TTL ? SET owner = ? WHERE id = 0 \
                     IF owner = ?";
        if target.is_applied(renew, &[ttl, owner, owner])? {
            return Ok(true);
        }
        let take = "INSERT INTO myriad_import.importer (id, owner) VALUES (0, ?) IF NOT EXISTS \
                    USING TTL ?";
        target.is_applied(take, &[owner, ttl])
    }

    pub(super) fn release(&self, target: &mut Session<'_>) -> Result<(), Failure> {
        let owner = Value::Bytes(&self.owner);
        let release = "DELETE FROM myriad_import.importer WHERE id = 0 IF owner = ?";
        target.is_applied(release, &[owner]).map(|_| ())
    }
}

/// The ranges that an unfinished import has copied: the last token by part and first token.
pub(super) type Copied = BTreeMap<(String, i64), i64>;

/// Reads how far an earlier run of the same import is with these parts.
pub(super) fn read(
    import: &str,
    parts: &[Part],
    target: &mut Session<'_>,
) -> Result<Copied, Failure> {
    let statement = "SELECT part, after, copied_until FROM myriad_import.ranges WHERE import = ?";
    let rows = target.list(statement, &[Value::Bytes(import.as_bytes())])?;
    let names: BTreeSet<String> = parts.iter().map(Part::progress_name).collect();
    let mut found = Copied::new();
    for row in rows {
        let (part, after, until) = decode(&row)?;
        if names.contains(&part) {
            found.insert((part, after), until);
        }
    }
    Ok(found)
}

fn decode(row: &[Option<Vec<u8>>]) -> anyhow::Result<(String, i64, i64)> {
    let [Some(part), Some(after), Some(until)] = row else {
        bail!("a row of {KEYSPACE}.ranges has no value");
    };
    let number = |bytes: &[u8]| Ok::<_, anyhow::Error>(i64::from_be_bytes(bytes.try_into()?));
    Ok((String::from_utf8(part.clone())?, number(after)?, number(until)?))
}

/// Stores that the rows after one token, and up to another, were copied.
pub(super) fn store(
    import: &str,
    part: &str,
    (after, until): (i64, i64),
    target: &mut Session<'_>,
) -> Result<(), Failure> {
    let (after, until) = (after.to_be_bytes(), until.to_be_bytes());
    let values = [import.as_bytes(), part.as_bytes(), &after, &until].map(Value::Bytes);
    let statement = "INSERT INTO myriad_import.ranges (import, part, after, copied_until) \
                     VALUES (?, ?, ?, ?)";
    target.execute(statement, &values)
}

/// Removes the progress of an import that is complete, and the tables, if they are empty.
pub(super) fn remove(import: &str, claim: Claim, target: &mut Session<'_>) -> Result<(), Failure> {
    let statement = "DELETE FROM myriad_import.ranges WHERE import = ?";
    target.execute(statement, &[Value::Bytes(import.as_bytes())])?;
    if target.list("SELECT import FROM myriad_import.ranges LIMIT 1", &[])?.is_empty() {
        return target.execute("DROP KEYSPACE myriad_import", &[]);
    }
    claim.release(target)
}
