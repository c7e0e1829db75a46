//! Temporary directories that are removed on drop.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Several labs may run concurrently, but not this many.
const NAMES_MAX: usize = 10_000;

/// A new directory; removed with its content on drop.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates `<parent>/myriad-lab-<process>-<number>`.
    pub(crate) fn new(parent: &Path) -> io::Result<Self> {
        /// Names are never reused, so that checks for removed directories are reliable.
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        for _ in 0..NAMES_MAX {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
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

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A leftover directory is not worth failing a completed measurement.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::process::Command;

    use super::*;

    /// Creates an executable file with this script. Another process writes it: a child that is
    /// forked concurrently inherits open file descriptors until it calls exec, and in this time
    /// executing the file fails with "text file busy".
    pub(crate) fn write_program(scratch: &Scratch, name: &str, script: &str) -> PathBuf {
        let text = scratch.path().join(format!("{name}.text"));
        let program = scratch.path().join(name);
        fs::write(&text, script).unwrap();
        let copy = Command::new("install").args(["-m", "755"]).args([&text, &program]).status();
        assert!(copy.unwrap().success());
        program
    }

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
