//! Follows the rows of a run while they are written.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::report::{Measurement, parse_measurements};

/// Maximum size of one read; the next poll continues.
const BYTES_PER_POLL_MAX: u64 = 64 << 20;

/// The measurements of one `rows.jsonl`, and the current read position.
#[derive(Debug)]
pub(crate) struct Follower {
    path: PathBuf,
    offset: u64,
    pub(crate) measurements: Vec<Measurement>,
}

impl Follower {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { path: folder.join("rows.jsonl"), offset: 0, measurements: Vec::new() }
    }

    pub(crate) fn is_of(&self, folder: &Path) -> bool {
        self.path.parent() == Some(folder)
    }

    /// Reads newly written complete lines. A file that has become shorter belongs to another run,
    /// and is read from its start.
    pub(crate) fn poll(&mut self) -> Result<()> {
        let mut file = match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            opened => opened.with_context(|| format!("read {}", self.path.display()))?,
        };
        let length = file.metadata().with_context(|| self.path.display().to_string())?.len();
        if length < self.offset {
            self.offset = 0;
            self.measurements.clear();
        }
        if length == self.offset {
            return Ok(());
        }
        file.seek(SeekFrom::Start(self.offset))?;
        let mut text = Vec::new();
        file.take(BYTES_PER_POLL_MAX)
            .read_to_end(&mut text)
            .with_context(|| format!("read {}", self.path.display()))?;
        let complete = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines = std::str::from_utf8(&text[..complete])
            .with_context(|| format!("{} is not valid UTF-8", self.path.display()))?;
        let found = parse_measurements(lines)
            .with_context(|| format!("{} after byte {}", self.path.display(), self.offset))?;
        self.measurements.extend(found);
        self.offset += u64::try_from(complete).expect("lengths fit in 64 bits");
        Ok(())
    }
}
