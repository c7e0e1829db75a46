//! `myriad restore`: makes a data directory from a backup, as of a position of the stream.
//!
//! The data is made as the server makes it at its start: a backup is the blocks of a snapshot, each
//! with its own position, and the records of a log. All files are checked first, so that nothing is
//! made from a damaged backup.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use binlog::{Disk, FileDisk};
use store::{Keyspace, Mutation, Params, STRIPES, SnapshotBlock};
use wire::replication::{Copied, Header, Kind, Opening, take_block, take_record};

use crate::backup::Report;
use crate::backup::archive::{self, Chain};
use crate::config::Settings;
use crate::engine::clock;
use crate::engine::records::{self, Progress};
use crate::engine::server_state::params;
use crate::engine::snapshot_taker::write_whole;
use crate::new_directory::{check_new, make};
use crate::replica::is_of_source_alone;

/// Where to end: before the first record that ends after this position. `None`: at the end.
pub type Target = Option<u64>;

/// Makes the new data directory `to` from the backup in `dir`.
pub fn restore(dir: &Path, to: &Path, target: Target, out: &mut dyn Write) -> anyhow::Result<()> {
    check_new(to)?;
    let (chain, summary) = choose(dir, target)?;
    let position = make(to, "restoring", |work| {
        let replay = replay(&chain, &summary, target)?;
        let disk = FileDisk::open_buffered(work).context("could not open the new directory")?;
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let progress = Progress { newest_timestamp: replay.newest_timestamp, stream_position: 0 };
        let keys = write_whole(&disk, &replay.keyspace, 0, progress);
        let keys = keys.context("could not write snapshot")?;
        writeln!(out, "{keys} keys and partitions")?;
        Ok(target.unwrap_or(summary.end))
    })?;
    writeln!(
        out,
        "restored up to position {position}; start the server with --dir {}",
        to.display()
    )?;
    Ok(())
}

/// Replays the backup in `dir` in memory, and reports what it contains.
pub fn verify(dir: &Path, target: Target, out: &mut dyn Write) -> anyhow::Result<()> {
    for chain in archive::chains(dir)? {
        let Summary { reach, end, bytes } = summarize(&chain)?;
        let files = chain.len();
        writeln!(
            out,
            "files: {files}, {bytes} bytes: can be restored at positions {reach} to {end}"
        )?;
    }
    let (chain, summary) = choose(dir, target)?;
    let replay = replay(&chain, &summary, target)?;
    let position = target.unwrap_or(summary.end);
    let mut block = SnapshotBlock { stripe: 0, lsn: 0, keys: 0, bytes: Vec::new() };
    let mut keys = 0;
    for stripe in 0..STRIPES {
        replay.keyspace.snapshot_stripe(stripe, || 0, &mut block);
        keys += block.keys;
    }
    writeln!(
        out,
        "the backup is intact: {} records replayed up to position {position}, {keys} keys and partitions",
        replay.records
    )?;
    Ok(())
}

/// What the files of a chain contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Summary {
    /// The data is consistent from this position on.
    reach: u64,
    end: u64,
    bytes: u64,
}

/// Checks all files of a chain.
fn summarize(chain: &Chain) -> anyhow::Result<Summary> {
    let (mut is_begun, mut position, mut reach) = (false, 0, None);
    for file in chain {
        file.read(&mut |header, payload| {
            match header.kind {
                Kind::Copy if is_begun => bail!("a second copy"),
                Kind::Copy => (is_begun, position) = (true, header.base),
                _ if !is_begun => bail!("a frame of kind {:?} before the copy", header.kind),
                Kind::Block if reach.is_some() => bail!("a block after the end of the copy"),
                Kind::Copied => reach = Some(Copied::decode(payload)?.reach),
                Kind::Resume | Kind::Records | Kind::Heartbeat if header.base != position => {
                    bail!("a frame begins at position {}, not at {position}", header.base)
                }
                Kind::Records | Kind::Heartbeat => position = header.end,
                Kind::Block | Kind::Resume => {}
            }
            Ok(())
        })?;
    }
    let last = chain.last().context("a chain has a file")?.path.display();
    let reach = reach.filter(|reach| *reach <= position);
    let reach = reach.with_context(|| format!("{last} ends before the copy is complete"))?;
    let bytes = chain.iter().map(|file| file.end.bytes).sum();
    Ok(Summary { reach, end: position, bytes })
}

/// The newest chain that contains the target.
fn choose(dir: &Path, target: Target) -> anyhow::Result<(Chain, Summary)> {
    let mut ranges = Vec::new();
    for chain in archive::chains(dir)?.into_iter().rev() {
        let summary = summarize(&chain)?;
        if target.is_none_or(|target| (summary.reach..=summary.end).contains(&target)) {
            return Ok((chain, summary));
        }
        ranges.push(format!("{} to {}", summary.reach, summary.end));
    }
    match target {
        None => bail!("{} has no files of a backup", dir.display()),
        Some(target) => bail!(
            "the backup cannot be restored at position {target}, only at {}",
            ranges.join(" and ")
        ),
    }
}

/// Data that is being made from a backup.
#[derive(Debug)]
struct Replay {
    keyspace: Keyspace,
    /// Position of each stripe: the blocks contain the records before it.
    floors: Vec<u64>,
    params: Params,
    /// Keys and partitions of the blocks.
    keys: u64,
    newest_timestamp: i64,
    records: u64,
}

impl Replay {
    fn new(seed: u64) -> Replay {
        let params = params(&Settings::default(), clock::unix_now(), seed, rand::random());
        let (keyspace, floors) = (Keyspace::new(seed), vec![0; STRIPES]);
        Replay { keyspace, floors, params, keys: 0, newest_timestamp: 0, records: 0 }
    }

    /// Applies a frame, without the records that end after `target`.
    fn apply(&mut self, header: &Header, payload: &[u8], target: u64) -> anyhow::Result<()> {
        match header.kind {
            Kind::Copy => *self = Replay::new(Opening::decode(payload)?.seed),
            Kind::Block => self.apply_block(header, payload)?,
            Kind::Copied => {
                let copied = Copied::decode(payload)?;
                if copied.keys != self.keys {
                    bail!("the copy has {} keys instead of {}", self.keys, copied.keys);
                }
                self.newest_timestamp = self.newest_timestamp.max(copied.newest_timestamp);
            }
            Kind::Records => self.apply_records(header, payload, target)?,
            Kind::Resume | Kind::Heartbeat => {}
        }
        Ok(())
    }

    fn apply_block(&mut self, header: &Header, payload: &[u8]) -> anyhow::Result<()> {
        let (stripe, mut mutations) = take_block(payload)?;
        let stripe = usize::try_from(stripe)?;
        *self.floors.get_mut(stripe).context("a block of an unknown stripe")? = header.end;
        while !mutations.is_empty() {
            self.keys += 1;
            self.change(&mut mutations, 0)?;
        }
        Ok(())
    }

    fn apply_records(
        &mut self,
        header: &Header,
        payload: &[u8],
        target: u64,
    ) -> anyhow::Result<()> {
        let (mut input, mut last) = (payload, header.base);
        while let Some(record) = take_record(header, &mut input)? {
            if record.end < last {
                bail!("the ends of records shrink");
            }
            last = record.end;
            let contents = records::parse(record.kind, record.payload);
            let contents = contents.context("unknown kind of record")?;
            if record.end > target {
                return Ok(());
            }
            self.newest_timestamp = self.newest_timestamp.max(contents.stamp.unwrap_or(i64::MIN));
            self.records += 1;
            let mut mutations = contents.mutations;
            while !mutations.is_empty() {
                self.change(&mut mutations, record.end)?;
            }
        }
        Ok(())
    }

    /// Applies the next mutation of a record that ends at `end`, or of a block, whose end is 0.
    fn change(&mut self, mutations: &mut &[u8], end: u64) -> anyhow::Result<()> {
        let keyspace = &self.keyspace;
        let mutation = Mutation::decode(mutations, |key| keyspace.hash(key));
        let mutation = mutation.ok().context("malformed mutation")?;
        if is_of_source_alone(&mutation) {
            return Ok(());
        }
        let is_contained = |stripe: usize| end > 0 && end <= self.floors[stripe];
        Ok(keyspace.replay(&mutation, &self.params, is_contained)?)
    }
}

fn replay(chain: &Chain, summary: &Summary, target: Target) -> anyhow::Result<Replay> {
    let target = target.unwrap_or(summary.end);
    let mut replay = Replay::new(0);
    let (mut report, mut bytes) = (Report::new(target), 0);
    for file in chain.iter().take_while(|file| file.header.base <= target) {
        file.read(&mut |header, payload| {
            replay.apply(header, payload, target)?;
            bytes += payload.len() as u64;
            report.note(bytes, header.end.min(target));
            Ok(())
        })?;
    }
    Ok(replay)
}
