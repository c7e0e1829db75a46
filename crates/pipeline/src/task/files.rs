//! Checksums of all files below a directory: a use of the pipeline beyond the exercise, and an
//! example of a [`BatchTask`].
//!
//! Task n is the n-th file in name order. Every part lists the directory itself, so all parts must
//! see the same content. The fingerprint of the list is the seed of the plan, and a part whose list
//! differs refuses to participate.

use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use base::hex::hex;
use sha2::{Digest, Sha256};

use crate::task::input::mix;
use crate::task::{BatchTask, Ids, TaskError};

/// Maximum number of files in one run.
pub const FILES_MAX: usize = 10_000_000;
/// Only the id: the executor has the names.
const INPUT_BYTES: usize = 8;
/// Id (u64), length (u64), whether the file was read (u8), SHA-256.
const OUTPUT_BYTES: usize = 8 + 8 + 1 + 32;
const CHUNK_BYTES: usize = 64 << 10;

/// The files below one directory; symbolic links are not followed.
#[derive(Debug)]
pub struct FileSums {
    dir: PathBuf,
    /// Relative to the directory, sorted.
    names: Vec<PathBuf>,
}

impl FileSums {
    /// Lists the directory. Fails if a part of it cannot be read, or if it contains too many files.
    pub fn list(dir: &Path) -> Result<Self> {
        let mut names = Vec::new();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            let path = dir.join(&folder);
            let entries =
                fs::read_dir(&path).with_context(|| format!("list {}", path.display()))?;
            for entry in entries {
                let entry = entry.with_context(|| format!("list {}", path.display()))?;
                let kind = entry.file_type().with_context(|| path.display().to_string())?;
                let name = folder.join(entry.file_name());
                if kind.is_dir() {
                    folders.push(name);
                } else if kind.is_file() {
                    names.push(name);
                }
            }
            if names.len() > FILES_MAX {
                bail!("{} has more than {FILES_MAX} files", dir.display());
            }
        }
        names.sort_unstable();
        Ok(Self { dir: dir.to_owned(), names })
    }

    /// Returns a hash of all names, used as the seed of a plan over these files.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = Sha256::new();
        for name in &self.names {
            hasher.update(name.as_os_str().as_encoded_bytes());
            hasher.update([0]);
        }
        let digest: [u8; 32] = hasher.finalize().into();
        u64::from_be_bytes(*digest.first_chunk().expect("32 bytes are more than 8"))
    }

    fn name(&self, id: u64) -> Result<&Path, TaskError> {
        let name = usize::try_from(id).ok().and_then(|at| self.names.get(at));
        name.map(PathBuf::as_path).ok_or(TaskError::Input { id })
    }

    /// Computes the result of one file. An unreadable file has a result that records this, so that
    /// it does not end the run.
    fn sum(&self, id: u64) -> Result<[u8; OUTPUT_BYTES], TaskError> {
        let path = self.dir.join(self.name(id)?);
        let mut record = [0; OUTPUT_BYTES];
        record[..8].copy_from_slice(&id.to_be_bytes());
        match hash_file(&path) {
            Ok((length, digest)) => {
                record[8..16].copy_from_slice(&length.to_be_bytes());
                record[16] = 1;
                record[17..].copy_from_slice(&digest);
            }
            Err(error) => tracing::warn!(path = %path.display(), %error, "could not read file"),
        }
        Ok(record)
    }
}

fn hash_file(path: &Path) -> std::io::Result<(u64, [u8; 32])> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut length = 0_u64;
    loop {
        let count = file.read(&mut chunk)?;
        if count == 0 {
            return Ok((length, hasher.finalize().into()));
        }
        length += u64::try_from(count).expect("64 bits");
        hasher.update(&chunk[..count]);
    }
}

impl BatchTask for FileSums {
    fn total(&self) -> Option<u64> {
        Some(u64::try_from(self.names.len()).expect("64 bits"))
    }

    fn input_bytes_max(&self) -> usize {
        INPUT_BYTES
    }

    fn output_bytes_max(&self) -> usize {
        OUTPUT_BYTES
    }

    fn generate(&self, ids: Ids, inputs: &mut [u8]) -> Result<usize, TaskError> {
        for (id, input) in ids.iter().zip(inputs.as_chunks_mut::<INPUT_BYTES>().0) {
            *input = id.to_be_bytes();
        }
        Ok(ids.len() * INPUT_BYTES)
    }

    fn run(&self, ids: Ids, inputs: &[u8], outputs: &mut [u8]) -> Result<usize, TaskError> {
        let given = inputs.as_chunks::<INPUT_BYTES>().0.iter().map(|id| u64::from_be_bytes(*id));
        if !given.eq(ids.iter()) {
            return Err(TaskError::Input { id: ids.first });
        }
        for (id, output) in ids.iter().zip(outputs.as_chunks_mut::<OUTPUT_BYTES>().0) {
            *output = self.sum(id)?;
        }
        Ok(ids.len() * OUTPUT_BYTES)
    }

    fn inspect(&self, ids: Ids, outputs: &[u8]) -> Result<u64, TaskError> {
        let (records, rest) = outputs.as_chunks::<OUTPUT_BYTES>();
        if records.len() != ids.len() || !rest.is_empty() {
            return Err(TaskError::Shape { count: ids.count, bytes: outputs.len() });
        }
        let mut sum = 0_u64;
        for (id, record) in ids.iter().zip(records) {
            if record[..8] != id.to_be_bytes() {
                return Err(TaskError::Input { id });
            }
            let words = record
                .chunks(8)
                .map(|bytes| bytes.iter().fold(0_u64, |word, byte| word << 8 | u64::from(*byte)));
            sum = sum.wrapping_add(words.fold(1, |hash, word| mix(hash ^ word)));
        }
        Ok(sum)
    }

    fn record(&self, outputs: &[u8], index: u32) -> Option<Range<usize>> {
        let start = usize::try_from(index).ok()?.checked_mul(OUTPUT_BYTES)?;
        let end = start.checked_add(OUTPUT_BYTES)?;
        (end <= outputs.len()).then_some(start..end)
    }

    /// Reads the file again. A file that has changed since counts as wrong.
    fn verify(&self, record: &[u8]) -> Result<bool, TaskError> {
        let id = record.first_chunk().map(|id| u64::from_be_bytes(*id));
        let id = id.ok_or(TaskError::Shape { count: 1, bytes: record.len() })?;
        Ok(self.sum(id)? == record)
    }

    /// Formats a line as `sha256sum` does, so that `sha256sum --check` accepts it.
    fn describe(&self, record: &[u8]) -> String {
        let id = record.first_chunk().map_or(u64::MAX, |id| u64::from_be_bytes(*id));
        let name = self.name(id).map_or_else(|_| "?".into(), Path::to_string_lossy);
        if record.get(16) != Some(&1) {
            return format!("# not read: {name}");
        }
        hex(&record[17..]) + "  " + &name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("pipeline-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("b/c")).unwrap();
        fs::write(dir.join("a"), "").unwrap();
        fs::write(dir.join("b/c/d"), "abc").unwrap();
        dir
    }

    #[test]
    fn sums_are_those_of_sha256sum() {
        let dir = tree("sums");
        let task = FileSums::list(&dir).unwrap();
        assert_eq!(task.total(), Some(2));
        let ids = Ids { first: 0, count: 2 };
        let (mut inputs, mut outputs) = ([0; 16], [0; 2 * OUTPUT_BYTES]);
        task.generate(ids, &mut inputs).unwrap();
        assert_eq!(task.run(ids, &inputs, &mut outputs), Ok(2 * OUTPUT_BYTES));
        let lines: Vec<String> =
            outputs.chunks(OUTPUT_BYTES).map(|record| task.describe(record)).collect();
        assert_eq!(
            lines,
            [
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a",
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  b/c/d",
            ]
        );
        let sum = task.inspect(ids, &outputs).unwrap();
        assert_eq!(task.verify(&outputs[OUTPUT_BYTES..]), Ok(true));
        fs::write(dir.join("b/c/d"), "abd").unwrap();
        assert_eq!(task.verify(&outputs[OUTPUT_BYTES..]), Ok(false));
        outputs[OUTPUT_BYTES + 20] ^= 1;
        assert_ne!(task.inspect(ids, &outputs), Ok(sum));
        fs::remove_file(dir.join("a")).unwrap();
        task.run(ids, &inputs, &mut outputs).unwrap();
        assert_eq!(task.describe(&outputs[..OUTPUT_BYTES]), "# not read: a");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn another_list_has_another_fingerprint() {
        let dir = tree("list");
        let before = FileSums::list(&dir).unwrap().fingerprint();
        assert_eq!(FileSums::list(&dir).unwrap().fingerprint(), before);
        fs::write(dir.join("e"), "").unwrap();
        assert_ne!(FileSums::list(&dir).unwrap().fingerprint(), before);
        fs::remove_dir_all(&dir).unwrap();
    }
}
