//! The seam to the disk: a directory of files, blocking and narrow.
//!
//! Two implementations: [`FileDisk`] is a real directory, [`FaultDisk`](crate::FaultDisk) is in
//! memory and loses what a power cut would lose.

use std::fmt::Debug;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use crate::aligned::{AlignedBuffer, BLOCK_BYTES};

/// One directory. Names are plain file names without a slash.
pub trait Disk: Send + Sync + Debug {
    /// All names in the directory, in any order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Creates an empty file; `AlreadyExists` if the name is taken.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// An existing file.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// As [`Disk::create`], but writes go past the page cache where the directory can do that:
    /// then they must be whole blocks, see [`DiskFile::block_bytes`].
    fn create_direct(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// As [`Disk::open`], with writes as in [`Disk::create_direct`].
    fn open_direct(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Renames a file, replacing any file with the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals so far survive a power cut.
    fn sync_dir(&self) -> io::Result<()>;
    /// Bytes that new files may take up; `None` if unknown. Other programs may use them first.
    fn free_bytes(&self) -> io::Result<Option<u64>>;
}

/// One open file. It stays readable after a rename or removal.
pub trait DiskFile: Send + Sync + Debug {
    fn size(&self) -> io::Result<u64>;
    /// Writes must start and end at multiples of this, a power of two, and use memory that starts
    /// at one. 1: any write is accepted. Reads may start anywhere, and return what was written.
    fn block_bytes(&self) -> usize;
    /// Reads at `offset`; may be short, 0 at or after the end of the file.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;
    /// Writes at `offset` and grows the file if necessary; may be short.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize>;
    /// Makes all bytes written so far, and the size needed to read them, survive a power cut.
    fn sync(&self) -> io::Result<()>;
}

/// Writes everything. A short write is continued, from the last whole block on: only an error means
/// that a write failed.
pub fn write_all_at(file: &dyn DiskFile, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match file.write_at(offset + done as u64, &bytes[done..]) {
            Ok(count) => match count - count % file.block_bytes() {
                0 => return Err(ErrorKind::WriteZero.into()),
                whole => done += whole,
            },
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
    /// Whether the directory accepts writes past the page cache; determined once.
    direct: bool,
}

/// The file that the process with the directory locks. Its contents have no meaning.
pub const LOCK_NAME: &str = "LOCK";
/// The files hold the data of all users, and hashes of passwords.
const FILE_MODE: u32 = 0o600;
/// Mode bits of users other than the owner.
const OTHERS_MODE: u32 = 0o077;
/// Mode of a directory that is created here. An existing one keeps its mode.
const DIRECTORY_MODE: u32 = 0o700;

/// Time to wait for a lock. A process that this one starts on another thread has its files until it
/// executes its program, even if they are closed here meanwhile.
const LOCK_WAIT: Duration = Duration::from_millis(500);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Tries to lock for [`LOCK_WAIT`].
fn lock_soon(lock: impl Fn() -> Result<(), TryLockError>) -> Result<(), TryLockError> {
    let started = Instant::now();
    loop {
        match lock() {
            Err(TryLockError::WouldBlock) if started.elapsed() < LOCK_WAIT => {
                thread::sleep(LOCK_PAUSE);
            }
            outcome => return outcome,
        }
    }
}

impl FileDisk {
    /// Opens the directory for writing and makes it if it is missing. Writes of the log go past the
    /// page cache if a first one into the `LOCK` file does; otherwise through it.
    ///
    /// Errors: `WouldBlock` if another process holds the directory.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let mut disk = Self::open_buffered(path)?;
        match write_direct(&disk.path.join(LOCK_NAME)) {
            Ok(()) => disk.direct = true,
            Err(error) => {
                let path = disk.path.display();
                tracing::info!(%path, %error, "the log is written through the page cache");
            }
        }
        Ok(disk)
    }

    /// As [`FileDisk::open`], with all writes through the page cache.
    pub fn open_buffered(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        if !path.is_dir() {
            DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(&path)?;
            sync_parent(&path)?;
        }
        let mut lock = OpenOptions::new();
        let lock = lock.write(true).create(true).truncate(true).mode(FILE_MODE);
        let lock = lock.open(path.join(LOCK_NAME))?;
        match lock_soon(|| lock.try_lock()) {
            Ok(()) => Ok(Self { path, lock: Some(lock), direct: false }),
            Err(TryLockError::WouldBlock) => Err(io::Error::new(
                ErrorKind::WouldBlock,
                format!("{} is in use by another process", path.display()),
            )),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Opens an existing directory for reading only, also while another process writes to it.
    pub fn read_only(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        fs::read_dir(&path)?;
        Ok(Self { path, lock: None, direct: false })
    }

    /// Whether a process holds the directory for writing. Changes nothing, and holds nothing itself.
    pub fn is_held(path: &Path) -> io::Result<bool> {
        let lock = match File::open(path.join(LOCK_NAME)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            opened => opened?,
        };
        match lock_soon(|| lock.try_lock_shared()) {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn writable(&self) -> io::Result<()> {
        match self.lock {
            Some(_) => Ok(()),
            None => Err(ErrorKind::ReadOnlyFilesystem.into()),
        }
    }

    fn create_new(&self, name: &str) -> io::Result<File> {
        self.writable()?;
        let mut file = OpenOptions::new();
        let file = file.read(true).write(true).create_new(true).mode(FILE_MODE);
        file.open(self.path.join(name))
    }

    fn open_existing(&self, name: &str) -> io::Result<File> {
        let write = self.lock.is_some();
        let file = OpenOptions::new().read(true).write(write).open(self.path.join(name))?;
        if write {
            hide(&file)?;
        }
        Ok(file)
    }

    fn with_direct_writes(&self, name: &str, buffered: File) -> io::Result<Arc<dyn DiskFile>> {
        let direct = if self.direct { Some(open_direct(&self.path.join(name))?) } else { None };
        Ok(Arc::new(RealFile { buffered, direct }))
    }
}

/// Removes the permissions of other users from a file: an earlier version, or a copy, may have
/// granted them.
fn hide(file: &File) -> io::Result<()> {
    if file.metadata()?.permissions().mode() & OTHERS_MODE == 0 {
        return Ok(());
    }
    match file.set_permissions(Permissions::from_mode(FILE_MODE)) {
        // The directory belongs to another user, and its mode is up to that user.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        changed => changed,
    }
}

fn open_direct(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)?;
    OpenOptions::new().write(true).custom_flags(flags).open(path)
}

/// Writes one block past the page cache. The contents of the `LOCK` file have no meaning.
fn write_direct(path: &Path) -> io::Result<()> {
    let count = open_direct(path)?.write_at(&AlignedBuffer::new(BLOCK_BYTES), 0)?;
    if count == BLOCK_BYTES { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
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
            // The log never creates a name that is not valid UTF-8.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile { buffered: self.create_new(name)?, direct: None }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile { buffered: self.open_existing(name)?, direct: None }))
    }

    fn create_direct(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.with_direct_writes(name, self.create_new(name)?)
    }

    fn open_direct(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.with_direct_writes(name, self.open_existing(name)?)
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

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        let found = rustix::fs::statvfs(&self.path)?;
        // Some network file systems do not know their size.
        let is_known = found.f_blocks > 0;
        Ok(is_known.then(|| found.f_bavail.saturating_mul(found.f_frsize)))
    }
}

/// Reads always go through the page cache: they may start anywhere, and the kernel drops from the
/// cache what a direct write replaces.
#[derive(Debug)]
struct RealFile {
    buffered: File,
    direct: Option<File>,
}

impl RealFile {
    fn writing(&self) -> &File {
        self.direct.as_ref().unwrap_or(&self.buffered)
    }
}

impl DiskFile for RealFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.buffered.metadata()?.len())
    }

    fn block_bytes(&self) -> usize {
        if self.direct.is_some() { BLOCK_BYTES } else { 1 }
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.buffered.read_at(bytes, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.writing().write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.writing().sync_data()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("binlog-disk-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn a_directory_that_refuses_direct_writes_is_written_through_the_cache() {
        let path = directory("refuses");
        // A device that accepts writes, but no direct ones.
        symlink("/dev/null", path.join(LOCK_NAME)).unwrap();
        let disk = loop {
            match FileDisk::open(&path) {
                // The device is shared: another run of this test may be using it.
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                opened => break opened.unwrap(),
            }
        };
        let file = disk.create_direct("a").unwrap();
        assert_eq!((disk.direct, file.block_bytes()), (false, 1));
        write_all_at(&*file, 3, b"anywhere").unwrap();
        file.sync().unwrap();
        assert_eq!(fs::read(path.join("a")).unwrap(), b"\0\0\0anywhere");
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn files_and_new_directories_are_for_their_owner_only() {
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let parent = directory("modes");
        let path = parent.join("new");
        let disk = FileDisk::open(&path).unwrap();
        assert_eq!(mode(&path), DIRECTORY_MODE);
        disk.create("a").unwrap();
        disk.create_direct("b").unwrap();
        for name in ["a", "b", LOCK_NAME] {
            assert_eq!(mode(&path.join(name)), FILE_MODE, "{name}");
        }
        // A writer removes the permissions of other users; a reader does not.
        fs::set_permissions(path.join("a"), Permissions::from_mode(0o644)).unwrap();
        FileDisk::read_only(&path).unwrap().open("a").unwrap();
        assert_eq!(mode(&path.join("a")), 0o644);
        disk.open("a").unwrap();
        assert_eq!(mode(&path.join("a")), FILE_MODE);
        fs::set_permissions(&path, Permissions::from_mode(0o750)).unwrap();
        drop(disk);
        FileDisk::open(&path).unwrap();
        assert_eq!(mode(&path), 0o750, "an existing directory is its owner's");
        fs::remove_dir_all(&parent).unwrap();
    }

    #[test]
    fn reads_see_what_was_written_past_the_cache() {
        let path = directory("coherent");
        let disk = FileDisk::open(&path).unwrap();
        let writing = disk.create_direct("a").unwrap();
        let reading = FileDisk::read_only(&path).unwrap().open_direct("a").unwrap();
        let mut block = AlignedBuffer::new(BLOCK_BYTES);
        for round in 0..100_u8 {
            // The block grows as the last one of a log does; each read leaves it in the cache.
            block[usize::from(round)] = round + 1;
            write_all_at(&*writing, 0, &block).unwrap();
            let mut seen = [0; BLOCK_BYTES];
            assert_eq!(read_full_at(&*reading, 0, &mut seen).unwrap(), BLOCK_BYTES);
            assert_eq!(seen[..], block[..], "round {round}");
        }
        fs::remove_dir_all(&path).unwrap();
    }
}
