//! Directories that end with the value that holds them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Other labs may run at the same time; beyond this many names something else is wrong.
const NAMES_MAX: usize = 10_000;

/// A new directory; removed with all it holds when dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes `<parent>/myriad-lab-<process>-<number>`.
    pub fn new(parent: &Path) -> io::Result<Self> {
        for number in 0..NAMES_MAX {
            let path = parent.join(format!("myriad-lab-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path: path.canonicalize()? }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("no free name for a directory in {}", parent.display()),
        ))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A left-over directory is not worth failing a finished measurement.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_new_and_go_away() {
        let parent = Scratch::new(&std::env::temp_dir()).unwrap();
        let first = Scratch::new(parent.path()).unwrap();
        let second = Scratch::new(parent.path()).unwrap();
        assert_ne!(first.path(), second.path());
        fs::write(first.path().join("a"), "b").unwrap();
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists());
        assert!(second.path().exists());
    }
}
