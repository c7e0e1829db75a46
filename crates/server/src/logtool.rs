//! `myriad log dump` and `myriad log verify`: inspect a data directory, even while a server is
//! using it.

use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, bail};
use binlog::{FileDisk, Lsn, Tail};
use store::Mutation;

use crate::engine::records;

/// Prints every record from position `from`, one per line.
pub fn dump(dir: &Path, from: Option<u64>) -> anyhow::Result<()> {
    let disk =
        FileDisk::read_only(dir).with_context(|| format!("could not open {}", dir.display()))?;
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

/// Checks the whole log and prints a summary. Fails if durable records are missing.
pub fn verify(dir: &Path) -> anyhow::Result<()> {
    let disk =
        FileDisk::read_only(dir).with_context(|| format!("could not open {}", dir.display()))?;
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
