//! `myriad restore`: makes a data directory from a backup, as of a position of the stream or a time.
//!
//! The data is made as the server makes it at its start: a backup is the blocks of a snapshot, each
//! with its own position, and the records of a log. All files are checked first, so that nothing is
//! made from a damaged backup.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use binlog::{Disk, FileDisk};
use store::{Keyspace, Mutation, Params, STRIPES};
use wire::replication::{
    Copied, Frame, Header, Kind, Opening, Time, take_block, take_record, take_times,
};

use crate::backup::Report;
use crate::backup::archive::{self, Chain};
use crate::backup::moments::Search;
use crate::backup::storage::Storage;
use crate::config::Settings;
use crate::engine::clock;
use crate::engine::contents::Contents;
use crate::engine::records::{self, Progress};
use crate::engine::server_state::params;
use crate::engine::snapshot_taker::write_whole;
use crate::new_directory::{check_new, make};
use crate::replica::is_of_source_alone;

/// Where to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// After everything that the backup has.
    End,
    /// Before the first record that ends after this position.
    Position(u64),
    /// Before the first record that was not durable at this time: microseconds since the Unix
    /// epoch.
    Time(i64),
}

impl Target {
    /// Parses a position, or a time of RFC 3339 with a time zone.
    pub fn parse(text: &str) -> Option<Target> {
        if let Ok(position) = text.parse() {
            return Some(Target::Position(position));
        }
        let time: jiff::Timestamp = text.parse().ok()?;
        Some(Target::Time(time.as_microsecond()))
    }
}

fn shown_time(unix_us: i64) -> String {
    let time = jiff::Timestamp::from_microsecond(unix_us);
    time.map_or_else(|_| format!("{unix_us} us"), |time| time.to_string())
}

/// Makes the new data directory `to` from a backup.
pub fn restore(
    backup: &dyn Storage,
    to: &Path,
    target: Target,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    check_new(to)?;
    let (chain, position) = choose(backup, target)?;
    make(to, "restoring", |work| {
        let replay = replay(&chain, position)?;
        let disk = FileDisk::open_buffered(work).context("could not open the new directory")?;
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let progress = Progress { newest_timestamp: replay.newest_timestamp, stream_position: 0 };
        write_whole(&disk, &replay.keyspace, 0, progress).context("could not write snapshot")?;
        writeln!(out, "{}", Contents::of(&replay.keyspace, &replay.params))?;
        Ok(())
    })?;
    writeln!(
        out,
        "restored up to position {position}; start the server with --dir {}",
        to.display()
    )?;
    Ok(())
}

/// Replays a backup in memory, and reports what it contains.
pub fn verify(backup: &dyn Storage, target: Target, out: &mut dyn Write) -> anyhow::Result<()> {
    for chain in archive::chains(backup)? {
        let summary = summarize(&chain, target)?;
        let (files, bytes) = (chain.len(), summary.bytes);
        writeln!(out, "files: {files}, {bytes} bytes: can be restored at {}", summary.range())?;
    }
    let (chain, position) = choose(backup, target)?;
    let replay = replay(&chain, position)?;
    let contents = Contents::of(&replay.keyspace, &replay.params);
    writeln!(
        out,
        "the backup is intact: {} records replayed up to position {position}, {contents}",
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
    /// The first and the last time at which it can be restored.
    times: Option<(i64, i64)>,
    /// The position of the target.
    position: Option<u64>,
}

impl Summary {
    /// The positions and times at which the chain can be restored.
    fn range(&self) -> String {
        let positions = format!("positions {} to {}", self.reach, self.end);
        match self.times {
            Some((first, last)) => {
                format!("{positions}, times {} to {}", shown_time(first), shown_time(last))
            }
            None => positions,
        }
    }
}

/// The times of a chain.
#[derive(Debug)]
struct Times {
    first: Option<i64>,
    last: Option<i64>,
    search: Option<Search>,
}

impl Times {
    fn note(&mut self, time: Time, reach: Option<u64>) {
        if reach.is_some_and(|reach| time.position >= reach) {
            self.first = self.first.or(Some(time.unix_us));
            self.last = self.last.max(Some(time.unix_us - 1));
        }
        if let Some(search) = &mut self.search {
            search.note(time);
        }
    }
}

/// Checks all files of a chain.
fn summarize(chain: &Chain, target: Target) -> anyhow::Result<Summary> {
    let (mut is_begun, mut position, mut reach) = (false, 0, None);
    let search = if let Target::Time(time) = target { Some(Search::new(time)) } else { None };
    let mut times = Times { first: None, last: None, search };
    for file in chain {
        file.read(&mut |frame| {
            let Frame { header, contents, .. } = frame;
            match header.kind {
                Kind::Copy if is_begun => bail!("a second copy"),
                Kind::Copy => (is_begun, position) = (true, header.base),
                _ if !is_begun => bail!("a frame of kind {:?} before the copy", header.kind),
                Kind::Block if reach.is_some() => bail!("a block after the end of the copy"),
                Kind::Copied => reach = Some(Copied::decode(contents)?.reach),
                Kind::Resume | Kind::Records | Kind::Heartbeat if header.base != position => {
                    bail!("a frame begins at position {}, not at {position}", header.base)
                }
                Kind::Records | Kind::Heartbeat => position = header.end,
                Kind::Times => {
                    let all = take_times(header, contents)?;
                    for time in all {
                        times.note(time, reach);
                    }
                }
                kind @ (Kind::States | Kind::Members) => {
                    bail!("a frame of kind {kind:?}, which archives do not have")
                }
                Kind::Block | Kind::Resume => {}
            }
            Ok(())
        })?;
    }
    let last = chain.last().context("a chain has a file")?.place();
    let reach = reach.filter(|reach| *reach <= position);
    let reach = reach.with_context(|| format!("{last} ends before the copy is complete"))?;
    let bytes = chain.iter().map(|file| file.end.bytes).sum();
    let found = match target {
        Target::End => Some(position),
        Target::Position(target) => Some(target),
        Target::Time(_) => times.search.and_then(|search| search.found()),
    };
    Ok(Summary {
        reach,
        end: position,
        bytes,
        times: times.first.zip(times.last).filter(|(first, last)| first <= last),
        position: found.filter(|found| (reach..=position).contains(found)),
    })
}

/// The newest chain that contains the target, and the position of the target.
fn choose(backup: &dyn Storage, target: Target) -> anyhow::Result<(Chain<'_>, u64)> {
    let mut ranges = Vec::new();
    for chain in archive::chains(backup)?.into_iter().rev() {
        let summary = summarize(&chain, target)?;
        if let Some(position) = summary.position {
            return Ok((chain, position));
        }
        ranges.push(summary.range());
    }
    if ranges.is_empty() {
        bail!("{} has no files of a backup", backup.place(""));
    }
    let place = match target {
        Target::End => "its end".to_owned(),
        Target::Position(position) => format!("position {position}"),
        Target::Time(unix_us) => format!("time {}", shown_time(unix_us)),
    };
    bail!("the backup cannot be restored at {place}, only at {}", ranges.join(" and "))
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
    fn apply(&mut self, frame: &Frame<'_>, target: u64) -> anyhow::Result<()> {
        let Frame { header, contents: payload, .. } = frame;
        match header.kind {
            Kind::Copy => *self = Replay::new(Opening::decode(frame)?.seed),
            Kind::Block => self.apply_block(header, payload)?,
            Kind::Copied => {
                let copied = Copied::decode(payload)?;
                if copied.keys != self.keys {
                    bail!("the copy has {} keys instead of {}", self.keys, copied.keys);
                }
                self.newest_timestamp = self.newest_timestamp.max(copied.newest_timestamp);
            }
            Kind::Records => self.apply_records(header, payload, target)?,
            Kind::Resume | Kind::Heartbeat | Kind::Times => {}
            kind @ (Kind::States | Kind::Members) => {
                bail!("a frame of kind {kind:?}, which archives do not have")
            }
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

fn replay(chain: &Chain, target: u64) -> anyhow::Result<Replay> {
    let mut replay = Replay::new(0);
    let (mut report, mut bytes) = (Report::new(target), 0);
    for file in chain.iter().take_while(|file| file.header.base <= target) {
        file.read(&mut |frame| {
            replay.apply(frame, target)?;
            bytes += frame.contents.len() as u64;
            report.note(bytes, frame.header.end.min(target));
            Ok(())
        })?;
    }
    Ok(replay)
}
