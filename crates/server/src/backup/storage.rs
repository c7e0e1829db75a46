//! Where the files of a backup are: a directory, or what another crate implements.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use binlog::{Disk as _, DiskFile, FileDisk, LOCK_NAME, write_all_at};

/// The end of the names of files with data.
pub(super) const FILE_END: &str = ".myb";
const TEMPORARY_NAME: &str = "backup.tmp";
/// What an interrupted first backup leaves, and what a file system has in its root.
const OTHER_NAMES: [&str; 3] = [LOCK_NAME, TEMPORARY_NAME, "lost+found"];
/// Bytes that are written before they are synced, so that the end of a file takes no time.
const SYNC_BYTES: u64 = 64 << 20;

/// Files by their names. A file has its name only when it is complete, and then survives a crash of
/// this machine.
pub trait Storage: Debug + Send + Sync {
    /// Where a file is, for messages; with an empty name, where all of them are.
    fn place(&self, name: &str) -> String;
    /// The names and the sizes in bytes of all files, in any order. Other files may be among them.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;
    /// Fills `bytes` from a file, from byte `at` on.
    fn read_at(&self, name: &str, at: u64, bytes: &mut [u8]) -> io::Result<()>;
    /// Reads a file from its beginning.
    fn open<'s>(&'s self, name: &str) -> io::Result<Box<dyn Read + 's>>;
    /// Begins a file, which replaces one of the same name. Dropped before its end, it never gets
    /// its name.
    fn create<'s>(&'s self, name: &str) -> io::Result<Box<dyn NewFile + 's>>;
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// A file that is being written.
pub trait NewFile: Write + Debug {
    /// Gives the file its name.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// The files are in a directory.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    disk: FileDisk,
}

impl Directory {
    /// Opens a directory for reading.
    pub fn to_read(path: &Path) -> io::Result<Directory> {
        Ok(Directory { path: path.to_owned(), disk: FileDisk::read_only(path)? })
    }

    /// Opens a directory for this process alone. It is made if it is missing; one with other files
    /// and no backup is refused.
    pub fn to_write(path: &Path) -> io::Result<Directory> {
        check(path)?;
        Ok(Directory { path: path.to_owned(), disk: FileDisk::open_buffered(path)? })
    }
}

impl Storage for Directory {
    fn place(&self, name: &str) -> String {
        self.path.join(name).display().to_string().trim_end_matches('/').to_owned()
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for name in self.disk.list()? {
            match self.path.join(&name).metadata() {
                Ok(metadata) => files.push((name, metadata.len())),
                // A running backup has renamed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(files)
    }

    fn read_at(&self, name: &str, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        File::open(self.path.join(name))?.read_exact_at(bytes, at)
    }

    fn open<'s>(&'s self, name: &str) -> io::Result<Box<dyn Read + 's>> {
        Ok(Box::new(File::open(self.path.join(name))?))
    }

    fn create<'s>(&'s self, name: &str) -> io::Result<Box<dyn NewFile + 's>> {
        if self.path.join(TEMPORARY_NAME).exists() {
            self.disk.remove(TEMPORARY_NAME)?;
        }
        let file = self.disk.create(TEMPORARY_NAME)?;
        Ok(Box::new(Draft { disk: &self.disk, name: name.to_owned(), file, written: 0, synced: 0 }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)?;
        self.disk.sync_dir()
    }
}

/// Checks that a directory is new, empty, or has a backup.
fn check(path: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    let mut other = None;
    for entry in entries {
        let name = entry?.file_name();
        if name.as_encoded_bytes().ends_with(FILE_END.as_bytes()) {
            return Ok(());
        }
        if !OTHER_NAMES.iter().any(|own| name == *own) {
            other = Some(name);
        }
    }
    other.map_or(Ok(()), |other| {
        let other = other.display();
        Err(io::Error::other(format!(
            "it is not a directory of backups: it has {other}, and no backup"
        )))
    })
}

#[derive(Debug)]
struct Draft<'d> {
    disk: &'d FileDisk,
    name: String,
    file: Arc<dyn DiskFile>,
    written: u64,
    synced: u64,
}

impl Write for Draft<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write_all_at(&*self.file, self.written, bytes)?;
        self.written += bytes.len() as u64;
        if self.written - self.synced >= SYNC_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.sync()?;
        self.synced = self.written;
        Ok(())
    }
}

impl NewFile for Draft<'_> {
    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.flush()?;
        self.disk.rename(TEMPORARY_NAME, &self.name)?;
        self.disk.sync_dir()
    }
}
