//! `myriad log dump`, `tail` and `verify`: inspect a data directory, even while a server is using
//! it.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::bail;
use binlog::{Lsn, Record, Tail};
use store::Mutation;

use crate::data_directory;
use crate::engine::change_json::{Hidden, Limits, Names};
use crate::engine::records;

/// Prints every record from position `from`, one per line, for reading: keys and values are cut.
pub fn dump(dir: &Path, from: Option<u64>) -> anyhow::Result<()> {
    let disk = data_directory::read(dir)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    binlog::dump(&disk, Lsn(from.unwrap_or(0)), &mut |record| {
        write!(out, "{} kind={} bytes={}", record.start, record.kind, record.payload.len())?;
        let contents = records::contents(&record);
        if let Some(stamp) = contents.and_then(|contents| contents.stamp) {
            write!(out, " newest={stamp}")?;
        }
        if let Some(position) = contents.and_then(|contents| contents.position) {
            write!(out, " stream={position}")?;
        }
        let mut input = contents.map_or(&[][..], |contents| contents.mutations);
        while !input.is_empty() {
            match Mutation::decode(&mut input, |_| 0) {
                Ok(mutation) => write!(out, " {mutation}")?,
                Err(error) => {
                    write!(out, " ({error})")?;
                    break;
                }
            }
        }
        writeln!(out)
    })?;
    out.flush()?;
    Ok(())
}

/// Time between two checks of the directory.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(250);

/// Age of a file after which another change of it gets another time of modification.
const SETTLED: Duration = Duration::from_millis(100);

/// Whether `tail` ends with the last record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    No,
    /// Prints new records until the process is ended.
    Yes,
}

/// Prints every record from position `from` as a line of JSON with all keys and values.
pub fn tail(dir: &Path, from: Option<u64>, follow: Follow) -> anyhow::Result<()> {
    let disk = data_directory::read(dir)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    // The schema at the time of a record is not known here.
    let names = Names::default();
    let mut next = Lsn(from.unwrap_or(0));
    let (mut seen, mut is_continued) = (None, false);
    loop {
        // Before the records are read, so that a later change is noticed.
        let changed = last_change(dir)?;
        if seen != Some(changed) {
            let is_settled = changed.elapsed().is_ok_and(|age| age > SETTLED);
            seen = is_settled.then_some(changed);
            binlog::dump(&disk, next, &mut |record| {
                if is_continued && record.start != next {
                    let text = format!("positions {next} to {} were removed", record.start);
                    return Err(std::io::Error::other(text));
                }
                (next, is_continued) = (record.end, true);
                put_line(&record, &names, &mut out)
            })?;
            out.flush()?;
        }
        if follow == Follow::No {
            return Ok(());
        }
        std::thread::sleep(FOLLOW_INTERVAL);
    }
}

/// When a file of the directory was last written.
fn last_change(dir: &Path) -> std::io::Result<SystemTime> {
    let mut newest = SystemTime::UNIX_EPOCH;
    for entry in std::fs::read_dir(dir)? {
        match entry?.metadata().and_then(|metadata| metadata.modified()) {
            Ok(modified) => newest = newest.max(modified),
            // Removed in the meantime.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(newest)
}

/// Writes a record as a line of JSON, from which its data can be recovered: all keys and values are
/// complete.
pub(crate) fn put_line(
    record: &Record<'_>,
    names: &Names,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let Some(contents) = records::contents(record) else {
        // Marks of the log.
        return Ok(());
    };
    let mut line = format!("{{\"position\":{},\"end\":{},", record.start, record.end).into_bytes();
    if let Some(stamp) = contents.stamp {
        write!(line, "\"timestamp_us\":{stamp},")?;
    }
    if let Some(position) = contents.position {
        write!(line, "\"stream_position\":{position},")?;
    }
    Limits::NONE.put_changes(contents.mutations, Hidden::Nothing, names, &mut line);
    line.extend_from_slice(b"}\n");
    out.write_all(&line)
}

/// Checks the whole log and prints a summary. Fails if durable records are missing.
pub fn verify(dir: &Path) -> anyhow::Result<()> {
    let disk = data_directory::read(dir)?;
    let report = binlog::verify(&disk)?;
    let mut out = std::io::stdout().lock();
    for segment in &report.segments {
        let (base, end) = (segment.base, segment.end);
        writeln!(out, "{} base={base} end={end} records={}", segment.file, segment.records)?;
    }
    writeln!(
        out,
        "{} segments, {} records, positions {} to {}",
        report.segments.len(),
        report.records,
        report.first,
        report.end
    )?;
    match report.tail {
        Tail::Clean => writeln!(out, "the log is intact")?,
        Tail::Torn { file, offset, lsn } => writeln!(
            out,
            "torn tail in {file} at offset {offset} (position {lsn}): an incomplete group that \
             was never acknowledged; the next start removes it"
        )?,
        Tail::Damaged(damage) => bail!("{damage}"),
    }
    Ok(())
}
