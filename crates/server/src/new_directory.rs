//! A new data directory that is made by a tool.
//!
//! Everything is made in a directory next to the new one, which gets its name when it is complete:
//! an interruption leaves no directory that a server would accept.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// Makes the directory `dir`, which `fill` fills under another name: that with `.suffix` appended.
pub(crate) fn make<T>(
    dir: &Path,
    suffix: &str,
    fill: impl FnOnce(&Path) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    check_new(dir)?;
    let work = beside(dir, suffix)?;
    DirBuilder::new().mode(0o700).create(&work).with_context(|| {
        let work = work.display();
        format!("could not create {work}; if an attempt was interrupted, remove this directory")
    })?;
    let made = fill(&work).and_then(|filled| {
        name(&work, dir).with_context(|| format!("could not rename {}", work.display()))?;
        Ok(filled)
    });
    if made.is_err()
        && let Err(error) = fs::remove_dir_all(&work)
    {
        tracing::warn!(dir = %work.display(), %error, "could not remove the unfinished directory");
    }
    made
}

/// Checks that there is no data that the new directory would replace.
pub(crate) fn check_new(dir: &Path) -> anyhow::Result<()> {
    match fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("could not read {}", dir.display())),
        Ok(mut files) => match files.next() {
            None => Ok(()),
            Some(_) => bail!("{} is not empty: it must be a new directory", dir.display()),
        },
    }
}

/// The name of the unfinished directory.
fn beside(dir: &Path, suffix: &str) -> anyhow::Result<PathBuf> {
    let name = dir.file_name().with_context(|| format!("{} has no name", dir.display()))?;
    let name: OsString = [name, ".".as_ref(), suffix.as_ref()].into_iter().collect();
    Ok(dir.with_file_name(name))
}

fn name(work: &Path, dir: &Path) -> std::io::Result<()> {
    // An empty directory of this name is replaced.
    fs::rename(work, dir)?;
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
