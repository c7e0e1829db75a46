//! Batches of results that wait for an earlier one: in memory, and beyond a limit in an unlinked
//! temporary file, so that one line may take any time while all others complete.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::task::Ids;

/// Maximum bytes in memory.
pub(super) const MEMORY_BYTES_MAX: usize = 64 << 20;

#[derive(Debug)]
pub(super) struct Waiting {
    /// By their first ids.
    batches: BTreeMap<u64, Batch>,
    memory_bytes: usize,
    memory_bytes_max: usize,
    /// The file is created in this folder when it is needed.
    folder: PathBuf,
    file: Option<File>,
    /// Its length, and the number of batches in it. It is truncated when it has none.
    file_bytes: u64,
    in_file: usize,
}

#[derive(Debug)]
struct Batch {
    count: u32,
    outputs: Outputs,
}

#[derive(Debug)]
enum Outputs {
    InMemory(Vec<u8>),
    InFile { at: u64, bytes: usize },
}

impl Waiting {
    pub(super) fn new(folder: &Path, memory_bytes_max: usize) -> Self {
        Self {
            batches: BTreeMap::new(),
            memory_bytes: 0,
            memory_bytes_max,
            folder: folder.to_owned(),
            file: None,
            file_bytes: 0,
            in_file: 0,
        }
    }

    /// Adds a batch; each is added once.
    pub(super) fn add(&mut self, ids: Ids, outputs: &[u8]) -> Result<()> {
        let fits = self.memory_bytes + outputs.len() <= self.memory_bytes_max;
        let outputs = if fits {
            self.memory_bytes += outputs.len();
            Outputs::InMemory(outputs.to_vec())
        } else {
            self.append(outputs).with_context(|| {
                format!("store results that wait for an earlier one in {}", self.folder.display())
            })?
        };
        self.batches.insert(ids.first, Batch { count: ids.count, outputs });
        Ok(())
    }

    /// Removes the batch that begins with this id.
    pub(super) fn remove(&mut self, first: u64) -> Result<Option<(Ids, Vec<u8>)>> {
        let Some(batch) = self.batches.remove(&first) else { return Ok(None) };
        let ids = Ids { first, count: batch.count };
        match batch.outputs {
            Outputs::InMemory(outputs) => {
                self.memory_bytes -= outputs.len();
                Ok(Some((ids, outputs)))
            }
            Outputs::InFile { at, bytes } => {
                let outputs = self.read(at, bytes).context("read results that have waited")?;
                Ok(Some((ids, outputs)))
            }
        }
    }

    /// Removes the batch with the lowest ids.
    pub(super) fn remove_first(&mut self) -> Result<Option<(Ids, Vec<u8>)>> {
        match self.batches.keys().next() {
            Some(&first) => self.remove(first),
            None => Ok(None),
        }
    }

    fn append(&mut self, outputs: &[u8]) -> io::Result<Outputs> {
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(create_unlinked(&self.folder)?),
        };
        let at = self.file_bytes;
        file.write_all_at(outputs, at)?;
        self.file_bytes += u64::try_from(outputs.len()).expect("64 bits");
        self.in_file += 1;
        Ok(Outputs::InFile { at, bytes: outputs.len() })
    }

    fn read(&mut self, at: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let file = self.file.as_ref().expect("it has this batch");
        let mut outputs = vec![0; bytes];
        file.read_exact_at(&mut outputs, at)?;
        self.in_file -= 1;
        if self.in_file == 0 {
            file.set_len(0)?;
            self.file_bytes = 0;
        }
        Ok(outputs)
    }
}

/// The kernel frees its space when this process ends, even if it is killed.
fn create_unlinked(folder: &Path) -> io::Result<File> {
    let path = folder.join(format!(".myriad-waiting-{:016x}", rand::random::<u64>()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Each batch is returned once, as it was, whether it was in memory or in the file.
        #[test]
        fn batches_are_returned(
            sizes in prop::collection::vec(0_usize..3_000, 1..40),
            order in prop::collection::vec(any::<prop::sample::Index>(), 40),
        ) {
            let mut waiting = Waiting::new(&std::env::temp_dir(), 4_000);
            let outputs = |number: usize| {
                let byte = u8::try_from(number).unwrap();
                vec![byte; sizes[number]]
            };
            let ids = |number: usize| Ids { first: u64::try_from(number).unwrap() * 10, count: 10 };
            // Some are removed while others are added.
            let mut left = Vec::new();
            for (number, index) in (0..sizes.len()).zip(&order) {
                waiting.add(ids(number), &outputs(number)).unwrap();
                left.push(number);
                if number % 3 == 2 {
                    let one = left.swap_remove(index.index(left.len()));
                    let found = waiting.remove(ids(one).first).unwrap();
                    prop_assert_eq!(found, Some((ids(one), outputs(one))));
                }
                prop_assert!(waiting.memory_bytes <= 4_000);
            }
            left.sort_unstable();
            for number in left {
                let found = waiting.remove_first().unwrap();
                prop_assert_eq!(found, Some((ids(number), outputs(number))));
            }
            prop_assert_eq!(waiting.remove_first().unwrap(), None);
            prop_assert_eq!((waiting.memory_bytes, waiting.in_file, waiting.file_bytes), (0, 0, 0));
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let mut waiting = Waiting::new(Path::new("/no/such/folder"), 1);
        let error = waiting.add(Ids { first: 1, count: 1 }, b"two").unwrap_err();
        assert!(format!("{error:#}").contains("in /no/such/folder: No such file"), "{error:#}");
    }
}
