//! Items that are lines of a file or of standard input.
//!
//! One thread reads ahead of the executors. A line is kept until the collector has its result, so
//! that it can be sent again; the memory for lines is limited, and a full one stops the reader.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sha2::{Digest, Sha256};

use crate::task::{ITEM_BYTES_MAX, Ids, append_item};

/// Maximum size of the lines that are held, and of their ends.
const HELD_BYTES_MAX: usize = 64 << 20;
const READ_BYTES: usize = 64 << 10;
/// Interval at which a waiting reader checks whether the run has ended.
const END_CHECK: Duration = Duration::from_millis(50);

const _: () = assert!(HELD_BYTES_MAX > 2 * (ITEM_BYTES_MAX + READ_BYTES));

/// An opened input.
#[derive(Debug)]
pub struct Input {
    file: File,
    name: String,
    /// Identifies the content of a regular file; `None` for a pipe or a terminal.
    version: Option<Version>,
}

/// What changes when a file is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    bytes: u64,
    changed: Option<Duration>,
}

impl Version {
    fn of(metadata: &Metadata) -> Self {
        let changed = metadata.modified().ok();
        let changed = changed.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        Self { bytes: metadata.len(), changed }
    }
}

impl Input {
    /// Opens a file, or standard input if the path is `-`.
    pub fn open(path: &Path) -> Result<Self> {
        let is_stdin = path == Path::new("-");
        let file = if is_stdin {
            io::stdin().as_fd().try_clone_to_owned().map(File::from)
        } else {
            File::open(path)
        };
        let name = if is_stdin { "standard input".into() } else { path.display().to_string() };
        let file = file.with_context(|| format!("open the input {name}"))?;
        let metadata = file.metadata().with_context(|| format!("read the size of {name}"))?;
        if metadata.is_dir() {
            bail!("the input {name} is a directory; list its files, for example with find");
        }
        let version = (metadata.is_file() && !is_stdin).then(|| Version::of(&metadata));
        Ok(Self { file, name, version })
    }

    /// Identifies the items: a restarted generator must have the same. That of a pipe is random,
    /// because it cannot be read again.
    pub fn fingerprint(&self) -> u64 {
        let Some(version) = self.version else { return rand::random() };
        let mut hasher = Sha256::new();
        hasher.update(self.name.as_bytes());
        hasher.update(version.bytes.to_be_bytes());
        hasher.update(version.changed.unwrap_or_default().as_nanos().to_be_bytes());
        let digest: [u8; 32] = hasher.finalize().into();
        u64::from_be_bytes(*digest.first_chunk().expect("32 bytes are more than 8"))
    }

    fn check_version(&self) -> Result<()> {
        let now =
            self.file.metadata().with_context(|| format!("read the size of {}", self.name))?;
        if self.version.is_some_and(|version| version != Version::of(&now)) {
            bail!("the input {} was changed during the run", self.name);
        }
        Ok(())
    }

    /// Waits until a read does not block, at most for [`END_CHECK`].
    fn is_readable(&self) -> Result<bool> {
        let timeout = Timespec::try_from(END_CHECK).context("wait for the input")?;
        let mut end = [PollFd::new(&self.file, PollFlags::IN)];
        match poll(&mut end, Some(&timeout)) {
            Ok(count) => Ok(count > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error).with_context(|| format!("wait for {}", self.name)),
        }
    }
}

/// Consecutive lines that were read at once.
#[derive(Debug)]
struct Block {
    first: u64,
    bytes: Vec<u8>,
    /// End of each line in `bytes`; without line ends.
    ends: Vec<u32>,
}

impl Block {
    fn end(&self) -> u64 {
        self.first + u64::try_from(self.ends.len()).expect("64 bits")
    }

    fn held_bytes(&self) -> usize {
        size_of::<Block>() + self.bytes.capacity() + size_of::<u32>() * self.ends.capacity()
    }

    fn line(&self, id: u64) -> &[u8] {
        let at = usize::try_from(id - self.first).expect("inside the block");
        let offset = |end: u32| usize::try_from(end).expect("32 bits fit");
        let start = at.checked_sub(1).map_or(0, |before| offset(self.ends[before]));
        &self.bytes[start..offset(self.ends[at])]
    }
}

#[derive(Debug, Default)]
struct State {
    blocks: VecDeque<Block>,
    held_bytes: usize,
    /// Lines below this id have been read.
    read_end: u64,
    read_bytes: u64,
    /// No line below this id is needed.
    needed_from: u64,
    is_complete: bool,
}

/// The lines of an input, shared by its reader and the threads that send them.
#[derive(Debug)]
pub(super) struct LineSource {
    input: std::sync::Arc<Input>,
    state: Mutex<State>,
    has_space: Condvar,
}

impl LineSource {
    /// Lines below `needed_from` are read and dropped.
    pub(super) fn new(input: std::sync::Arc<Input>, needed_from: u64) -> Self {
        let state = Mutex::new(State { needed_from, ..State::default() });
        Self { input, state, has_space: Condvar::new() }
    }

    /// Reads to the end. Calls `notify` after each step. Returns early when the run has ended.
    pub(super) fn read(&self, is_over: impl Fn() -> bool, notify: impl Fn()) -> Result<()> {
        let mut rest = Vec::new();
        let mut chunk = vec![0; READ_BYTES];
        loop {
            if is_over() {
                return Ok(());
            }
            if !self.waits_for_space() || !self.input.is_readable()? {
                continue;
            }
            let count = match (&self.input.file).read(&mut chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.with_context(|| format!("read {}", self.input.name))?,
            };
            if count == 0 {
                break;
            }
            self.add_chunk(&chunk[..count], &mut rest)?;
            notify();
        }
        if !rest.is_empty() {
            self.add_chunk(b"\n", &mut rest)?;
        }
        self.input.check_version()?;
        self.state.lock().is_complete = true;
        notify();
        Ok(())
    }

    /// Returns whether there is space, after a wait of at most [`END_CHECK`].
    fn waits_for_space(&self) -> bool {
        let mut state = self.state.lock();
        if state.held_bytes >= HELD_BYTES_MAX {
            self.has_space.wait_for(&mut state, END_CHECK);
        }
        state.held_bytes < HELD_BYTES_MAX
    }

    /// Adds all complete lines. `rest` is the incomplete one, before and after.
    fn add_chunk(&self, chunk: &[u8], rest: &mut Vec<u8>) -> Result<()> {
        let (mut bytes, mut ends) = (Vec::with_capacity(rest.len() + chunk.len()), Vec::new());
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            let line = piece.strip_suffix(b"\n");
            rest.extend_from_slice(line.unwrap_or(piece));
            if rest.len() > ITEM_BYTES_MAX {
                let first = self.state.lock().read_end;
                let number = first + u64::try_from(ends.len()).expect("64 bits") + 1;
                let name = &self.input.name;
                bail!("line {number} of {name} is longer than {ITEM_BYTES_MAX} bytes");
            }
            if line.is_some() {
                bytes.append(rest);
                ends.push(u32::try_from(bytes.len()).expect("a chunk and a line fit"));
            }
        }
        let mut state = self.state.lock();
        let block = Block { first: state.read_end, bytes, ends };
        state.read_end = block.end();
        state.read_bytes += u64::try_from(chunk.len()).expect("64 bits");
        if block.end() > state.needed_from.max(block.first) {
            state.held_bytes += block.held_bytes();
            state.blocks.push_back(block);
        }
        Ok(())
    }

    /// Lines below this id can be sent.
    pub(super) fn read_end(&self) -> u64 {
        self.state.lock().read_end
    }

    /// Returns the number of lines when all have been read.
    pub(super) fn total(&self) -> Option<u64> {
        let state = self.state.lock();
        state.is_complete.then_some(state.read_end)
    }

    /// Estimates the number of lines; `None` if the size of the input is unknown.
    pub(super) fn expected(&self) -> Option<u64> {
        let state = self.state.lock();
        if state.is_complete {
            return Some(state.read_end);
        }
        let input_bytes = self.input.version?.bytes;
        let lines = u128::from(state.read_end) * u128::from(input_bytes);
        u64::try_from(lines.checked_div(u128::from(state.read_bytes))?).ok()
    }

    /// Drops lines that are not needed.
    pub(super) fn drop_below(&self, needed_from: u64) {
        let mut state = self.state.lock();
        state.needed_from = state.needed_from.max(needed_from);
        while state.blocks.front().is_some_and(|block| block.end() <= needed_from) {
            let block = state.blocks.pop_front();
            state.held_bytes -= block.map_or(0, |block| block.held_bytes());
        }
        drop(state);
        self.has_space.notify_all();
    }

    /// Writes these lines as the inputs of a batch. Returns `false` if one has been dropped, because
    /// its result has arrived.
    pub(super) fn copy(&self, ids: Ids, inputs: &mut Vec<u8>) -> bool {
        inputs.clear();
        let state = self.state.lock();
        let mut at = state.blocks.partition_point(|block| block.end() <= ids.first);
        for id in ids.iter() {
            while state.blocks.get(at).is_some_and(|block| block.end() <= id) {
                at += 1;
            }
            match state.blocks.get(at) {
                Some(block) if block.first <= id => append_item(block.line(id), inputs),
                _ => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use proptest::prelude::*;

    fn source() -> LineSource {
        let file = tempfile_with(b"");
        let input = Input { file, name: "test".to_owned(), version: None };
        LineSource::new(Arc::new(input), 0)
    }

    fn tempfile_with(content: &[u8]) -> File {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pipeline-source-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, content).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file
    }

    fn lines(source: &LineSource, ids: Ids) -> Option<Vec<u8>> {
        let mut inputs = Vec::new();
        source.copy(ids, &mut inputs).then_some(inputs)
    }

    fn items(lines: &[&[u8]]) -> Vec<u8> {
        let mut inputs = Vec::new();
        for line in lines {
            append_item(line, &mut inputs);
        }
        inputs
    }

    #[test]
    fn a_line_is_kept_until_it_is_not_needed() {
        let source = source();
        let mut rest = Vec::new();
        source.add_chunk(b"a\n\nbc", &mut rest).unwrap();
        source.add_chunk(b"d\ne\n", &mut rest).unwrap();
        assert_eq!(source.read_end(), 4);
        let ids = |first, count| Ids { first, count };
        assert_eq!(lines(&source, ids(1, 2)), Some(items(&[b"", b"bcd"])));
        source.drop_below(2);
        assert_eq!(lines(&source, ids(1, 2)), None);
        assert_eq!(lines(&source, ids(2, 2)), Some(items(&[b"bcd", b"e"])));
        assert_eq!(lines(&source, ids(3, 2)), None);
        source.drop_below(4);
        assert_eq!(source.state.lock().held_bytes, 0);
    }

    #[test]
    fn a_full_source_stops_its_reader() {
        let source = source();
        let line = vec![b'x'; ITEM_BYTES_MAX];
        let mut rest = Vec::new();
        while source.waits_for_space() {
            source.add_chunk(&line, &mut rest).unwrap();
            source.add_chunk(b"\n", &mut rest).unwrap();
        }
        let held = source.state.lock().held_bytes;
        assert!(held < HELD_BYTES_MAX + 2 * ITEM_BYTES_MAX, "{held}");
        source.drop_below(2);
        assert!(source.waits_for_space());
        source.add_chunk(&line, &mut rest).unwrap();
        let error = source.add_chunk(b"x", &mut rest).unwrap_err().to_string();
        let number = source.read_end() + 1;
        assert_eq!(error, format!("line {number} of test is longer than 1000000 bytes"));
    }

    #[test]
    fn a_file_is_read_to_its_end() {
        let file = tempfile_with(b"one\ntwo");
        let version = Some(Version::of(&file.metadata().unwrap()));
        let input = Input { file, name: "test".to_owned(), version };
        let source = LineSource::new(Arc::new(input), 1);
        source.read(|| false, || {}).unwrap();
        assert_eq!((source.total(), source.expected()), (Some(2), Some(2)));
        assert_eq!(lines(&source, Ids { first: 1, count: 1 }), Some(items(&[b"two"])));
        let other = Version { bytes: 8, changed: None };
        let input = Input { version: Some(other), ..Arc::into_inner(source.input).unwrap() };
        let changed = LineSource::new(Arc::new(input), 0).read(|| false, || {}).unwrap_err();
        assert_eq!(changed.to_string(), "the input test was changed during the run");
    }

    proptest! {
        /// Lines are the same from every split of the input.
        #[test]
        fn chunks_make_no_difference(
            given in proptest::collection::vec("[a-z]{0,9}", 1..40),
            cuts in proptest::collection::vec(1..30_usize, 1..40),
        ) {
            let source = source();
            let text = given.join("\n") + "\n";
            let (mut left, mut rest) = (text.as_bytes(), Vec::new());
            for cut in cuts.into_iter().cycle() {
                let (chunk, more) = left.split_at(cut.min(left.len()));
                source.add_chunk(chunk, &mut rest).unwrap();
                left = more;
                if left.is_empty() {
                    break;
                }
            }
            let ids = Ids { first: 0, count: u32::try_from(given.len()).unwrap() };
            prop_assert_eq!(source.read_end(), ids.end());
            let expected: Vec<&[u8]> = given.iter().map(String::as_bytes).collect();
            prop_assert_eq!(lines(&source, ids), Some(items(&expected)));
        }
    }
}
