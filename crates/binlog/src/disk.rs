//! The seam to the disk: a directory of files, blocking and narrow.
//!
//! Two implementations: [`FileDisk`] is a real directory, [`FaultDisk`](crate::FaultDisk) lives in
//! memory and loses what a power cut would lose.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One directory. Names are plain file names without a slash.
pub trait Disk: Send + Sync + Debug {
    /// All names in the directory, in any order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// A new empty file; `AlreadyExists` if the name is taken.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// An existing file.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Gives a file another name, replacing what had that name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals so far survive a power cut.
    fn sync_dir(&self) -> io::Result<()>;
}

/// One open file. It stays readable after a rename or removal.
pub trait DiskFile: Send + Sync + Debug {
    fn size(&self) -> io::Result<u64>;
    /// Reads at `offset`; may be short, 0 at or after the end of the file.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;
    /// Writes at `offset`, growing the file if need be; may be short.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize>;
    /// Makes all bytes written so far, and the size needed to read them, survive a power cut.
    fn sync(&self) -> io::Result<()>;
}

/// Writes everything. A short write is continued: only an error means that a write failed.
pub fn write_all_at(file: &dyn DiskFile, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match file.write_at(offset + done as u64, &bytes[done..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until `bytes` is full or the file ends; returns how many bytes were read.
pub fn read_full_at(file: &dyn DiskFile, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(offset + done as u64, &mut bytes[done..]) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// A real directory. Only one process at a time may hold it for writing.
#[derive(Debug)]
pub struct FileDisk {
    path: PathBuf,
    /// Holds the lock on the directory's `LOCK` file; None when opened for reading only.
    lock: Option<File>,
}

const LOCK_NAME: &str = "LOCK";

impl FileDisk {
    /// Opens the directory for writing and makes it if it is missing.
    ///
    /// Errors: `WouldBlock` if another process holds the directory.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        if !path.is_dir() {
            fs::create_dir_all(&path)?;
            sync_parent(&path)?;
        }
        let lock = File::create(path.join(LOCK_NAME))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, lock: Some(lock) }),
            Err(TryLockError::WouldBlock) => Err(io::Error::new(
                ErrorKind::WouldBlock,
                format!("{} is in use by another process", path.display()),
            )),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Opens an existing directory for reading only; works beside the process that writes it.
    pub fn read_only(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        fs::read_dir(&path)?;
        Ok(Self { path, lock: None })
    }

    fn writable(&self) -> io::Result<()> {
        match self.lock {
            Some(_) => Ok(()),
            None => Err(ErrorKind::ReadOnlyFilesystem.into()),
        }
    }
}

/// A new directory survives a power cut only once its parent is synced.
fn sync_parent(path: &Path) -> io::Result<()> {
    let absolute = fs::canonicalize(path)?;
    absolute.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

impl Disk for FileDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // A name that is not UTF-8 is none of ours.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.writable()?;
        let path = self.path.join(name);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let write = self.lock.is_some();
        let file = OpenOptions::new().read(true).write(write).open(self.path.join(name))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.writable()?;
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.writable()?;
        fs::remove_file(self.path.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.writable()?;
        File::open(&self.path)?.sync_all()
    }
}

#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(bytes, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}
