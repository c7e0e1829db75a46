//! The files of an import, in their order.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};

/// Bytes of a file that are read at once.
const READ_BYTES: usize = 1 << 20;
const MANIFEST_END: &str = ".manifest";

/// Whether a file that begins so is an RDB file, or an append-only file that begins with one.
pub(super) fn is_rdb(start: &[u8]) -> bool {
    start.starts_with(b"REDIS") || start.starts_with(b"VALKEY")
}

/// Whether these bytes after an RDB part begin the commands of an append-only file: with one of
/// them, or with a comment.
fn is_commands(start: &[u8]) -> bool {
    matches!(start.first(), Some(b'*' | b'#'))
}

/// The files that are not open yet.
#[derive(Debug)]
pub(super) struct Source {
    paths: VecDeque<PathBuf>,
    total_bytes: u64,
    opened_bytes: u64,
}

/// A file that is being read.
#[derive(Debug)]
pub(super) struct Opened {
    path: PathBuf,
    pub(super) reader: BufReader<File>,
    /// Bytes of the files before it, and of all files.
    pub(super) before_bytes: u64,
    pub(super) total_bytes: u64,
}

impl Opened {
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Skips what follows an RDB part, such as the end of a line or the mark of a transfer, unless it
    /// is commands.
    pub(super) fn skip_to_commands(&mut self) -> io::Result<Skipped> {
        let mut skipped = Skipped::default();
        if is_commands(self.reader.fill_buf()?) {
            return Ok(skipped);
        }
        // How much of `*3\r\n$` the last bytes are.
        let mut matched = 0;
        loop {
            let bytes = self.reader.fill_buf()?;
            if bytes.is_empty() {
                return Ok(skipped);
            }
            for byte in bytes {
                matched = match (matched, byte) {
                    (_, b'*') => 1,
                    (1 | 2, b'0'..=b'9') => 2,
                    (2, b'\r') => 3,
                    (3, b'\n') => 4,
                    (4, b'$') => 5,
                    _ => 0,
                };
                skipped.has_command |= matched == 5;
            }
            let count = bytes.len();
            skipped.bytes += count as u64;
            self.reader.consume(count);
        }
    }
}

/// What was skipped after an RDB part.
#[derive(Debug, Default)]
pub(super) struct Skipped {
    pub(super) bytes: u64,
    /// A command begins there: the file is an append-only file with damage before it.
    pub(super) has_command: bool,
}

impl Source {
    /// Finds the files that `from` stands for.
    pub(super) fn find(from: &Path) -> anyhow::Result<Source> {
        let paths = if from.is_dir() {
            of_manifest(&manifest_in(from)?)?
        } else if from.as_os_str().to_string_lossy().ends_with(MANIFEST_END) {
            of_manifest(from)?
        } else {
            vec![from.to_path_buf()]
        };
        let mut total_bytes = 0;
        for path in &paths {
            let reading = || format!("could not read {}", path.display());
            total_bytes += fs::metadata(path).with_context(reading)?.len();
        }
        Ok(Source { paths: paths.into(), total_bytes, opened_bytes: 0 })
    }

    pub(super) fn has_more(&self) -> bool {
        !self.paths.is_empty()
    }

    pub(super) fn open_next(&mut self) -> anyhow::Result<Option<Opened>> {
        let Some(path) = self.paths.pop_front() else { return Ok(None) };
        let file =
            File::open(&path).with_context(|| format!("could not open {}", path.display()))?;
        let (before_bytes, total_bytes) = (self.opened_bytes, self.total_bytes);
        self.opened_bytes += file.metadata()?.len();
        let reader = BufReader::with_capacity(READ_BYTES, file);
        Ok(Some(Opened { path, reader, before_bytes, total_bytes }))
    }
}

/// The only manifest in a directory.
fn manifest_in(dir: &Path) -> anyhow::Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("could not read {}", dir.display()))? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(MANIFEST_END) {
            found.push(path);
        }
    }
    match <[PathBuf; 1]>::try_from(found) {
        Ok([manifest]) => Ok(manifest),
        Err(found) => bail!(
            "{} has {} files that end in {MANIFEST_END}: name the RDB file or the manifest instead",
            dir.display(),
            found.len()
        ),
    }
}

/// The files that a manifest names, in the order in which a server loads them.
// Source: Redis 7.2 `aof.c`, `aofLoadManifestFromFile`: pairs of key and value in each line
fn of_manifest(manifest: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let reading = || format!("could not read {}", manifest.display());
    let text = fs::read_to_string(manifest).with_context(reading)?;
    let mut files = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let file = parse_line(line)
            .with_context(|| format!("malformed line {} of {}", index + 1, manifest.display()))?;
        // History: replaced by a newer base, and about to be deleted.
        if file.kind != "h" {
            files.push((file.kind != "b", file.sequence, manifest.with_file_name(file.name)));
        }
    }
    ensure!(!files.is_empty(), "{} names no files", manifest.display());
    files.sort();
    Ok(files.into_iter().map(|(.., path)| path).collect())
}

struct Line {
    name: String,
    sequence: u64,
    kind: String,
}

fn parse_line(line: &str) -> Option<Line> {
    let words = words(line)?;
    let value = |key: &str| {
        let pair = words.chunks_exact(2).find(|pair| pair[0] == key)?;
        Some(pair[1].clone())
    };
    let name = value("file").filter(|name| !name.contains('/'))?;
    Some(Line { name, sequence: value("seq")?.parse().ok()?, kind: value("type")? })
}

/// Words at blanks; one in quotes may have blanks.
fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    Some(words)
}
