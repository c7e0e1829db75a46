//! A disk whose power can be cut, mounted with FUSE.

mod disk;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use parking_lot::{Mutex, MutexGuard};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use self::disk::{Disk, ROOT, Refusal, SECTOR_BYTES};
use super::subject::Process;

const DEVICE: &str = "/dev/fuse";
/// A sync takes up to this long, so that power fails during syncs too.
const SYNC_MAX: Duration = Duration::from_millis(8);
/// Requests that are served at once: syncs of several files and the writes next to them.
const THREADS: usize = 6;
/// Attributes are not cached: the next mount shows other ones.
const TTL: Duration = Duration::ZERO;

/// A mounted disk. Unmounted when dropped.
#[derive(Debug)]
pub(crate) struct PowerDisk {
    disk: Arc<Mutex<Disk>>,
    at: PathBuf,
    seed: u64,
    mounts: u64,
    /// None: the power is off.
    session: Option<BackgroundSession>,
}

/// Why there is no power-cut test on this machine.
pub(crate) type Missing = String;

impl PowerDisk {
    /// Mounts an empty disk on the directory `at`.
    pub(crate) fn mount(at: &Path, seed: u64) -> Result<Result<Self, Missing>> {
        if !Path::new(DEVICE).exists() {
            return Ok(Err(format!("{DEVICE} is missing")));
        }
        let disk = Arc::new(Mutex::new(Disk::new()));
        let mut mounted = Self { disk, at: at.to_owned(), seed, mounts: 0, session: None };
        match mounted.power_on() {
            Ok(()) => Ok(Ok(mounted)),
            // Neither root nor fusermount3, or a container without the right to mount.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound
                ) =>
            {
                Ok(Err(format!("a file system cannot be mounted here: {error}")))
            }
            Err(error) => Err(error).context("mount the disk"),
        }
    }

    fn power_on(&mut self) -> io::Result<()> {
        self.mounts += 1;
        let random = Mutex::new(StdRng::seed_from_u64(self.seed ^ self.mounts));
        let handler = Handler { disk: Arc::clone(&self.disk), random };
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("powercut".to_owned())];
        config.n_threads = Some(THREADS);
        self.session = Some(fuser::spawn_mount(handler, &self.at, &config)?);
        Ok(())
    }

    /// Cuts the power under the server that runs on this disk, or, without one, while nothing runs.
    /// Afterwards the disk has power again, and shows what has survived.
    pub(crate) fn cut(&mut self, server: Option<Process>, random: &mut StdRng) -> Result<()> {
        {
            // From here on no request is served: no sync ends, so none is acknowledged.
            let mut disk = self.disk.lock();
            match server {
                None => disk.is_dead = true,
                // The process cannot see the errors that end its requests: it is being killed.
                Some(server) => server.kill_and(|| {
                    disk.is_dead = true;
                    MutexGuard::unlock_fair(disk);
                })?,
            }
        }
        if let Some(session) = self.session.take() {
            unmount(session).context("unmount the disk")?;
        }
        self.disk.lock().cut(random);
        self.power_on().context("mount the disk again")
    }
}

impl Drop for PowerDisk {
    fn drop(&mut self) {
        if let Some(session) = self.session.take()
            && let Err(error) = unmount(session)
        {
            println!("powercut: {} stays mounted: {error}", self.at.display());
        }
    }
}

/// Unmounts, and waits for the threads that serve the kernel's requests. The kernel ends a read of
/// requests with ENODEV or, while it tears the mount down, with ECONNABORTED; `fuser` only expects
/// the former.
fn unmount(session: BackgroundSession) -> io::Result<()> {
    match session.umount_and_join() {
        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
        result => result,
    }
}

/// Serves the kernel's requests.
struct Handler {
    disk: Arc<Mutex<Disk>>,
    random: Mutex<StdRng>,
}

type Served<T> = Result<T, Errno>;

impl From<Refusal> for Errno {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoSuchFile => Self::ENOENT,
            Refusal::Exists => Self::EEXIST,
            Refusal::NotADirectory => Self::ENOTDIR,
            Refusal::IsADirectory => Self::EISDIR,
            Refusal::NotEmpty => Self::ENOTEMPTY,
            Refusal::OtherDirectory => Self::EXDEV,
        }
    }
}

impl Handler {
    /// The disk, if it has power.
    fn disk(&self) -> Served<MutexGuard<'_, Disk>> {
        let disk = self.disk.lock();
        if disk.is_dead { Err(Errno::EIO) } else { Ok(disk) }
    }

    fn sync(&self, node: INodeNo) -> Served<()> {
        let sync = self.disk()?.begin_sync(node.0)?;
        let longest_us = u64::try_from(SYNC_MAX.as_micros()).expect("some milliseconds");
        let delay_us = self.random.lock().random_range(0..=longest_us);
        thread::sleep(Duration::from_micros(delay_us));
        self.disk()?.end_sync(sync);
        Ok(())
    }

    fn entry(&self, find: impl FnOnce(&mut Disk) -> Result<u64, Refusal>) -> Served<FileAttr> {
        let mut disk = self.disk()?;
        let node = find(&mut disk)?;
        Ok(attributes(&disk, node)?)
    }
}

fn attributes(disk: &Disk, node: u64) -> Result<FileAttr, Refusal> {
    let size = disk.size(node)?;
    let bytes = size.unwrap_or(0);
    let (kind, perm) = match size {
        Some(_) => (FileType::RegularFile, 0o600),
        None => (FileType::Directory, 0o700),
    };
    let time = SystemTime::UNIX_EPOCH;
    Ok(FileAttr {
        ino: INodeNo(node),
        size: bytes as u64,
        blocks: bytes.div_ceil(SECTOR_BYTES) as u64,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind,
        perm,
        nlink: 1,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    })
}

fn position(offset: u64) -> Served<usize> {
    usize::try_from(offset).map_err(|_| Errno::EFBIG)
}

fn send_entry(reply: ReplyEntry, served: Served<FileAttr>) {
    match served {
        Ok(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
        Err(error) => reply.error(error),
    }
}

fn send_attributes(reply: ReplyAttr, served: Served<FileAttr>) {
    match served {
        Ok(attributes) => reply.attr(&TTL, &attributes),
        Err(error) => reply.error(error),
    }
}

fn send_empty(reply: ReplyEmpty, served: Served<()>) {
    match served {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Handler {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        send_entry(reply, self.entry(|disk| disk.lookup(parent.0, name)));
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        send_attributes(reply, self.entry(|_| Ok(node.0)));
    }

    fn setattr(
        &self,
        _: &Request,
        node: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let size = size.map(position).transpose();
        send_attributes(
            reply,
            size.and_then(|size| {
                self.entry(|disk| {
                    size.map_or(Ok(()), |size| disk.resize(node.0, size))?;
                    Ok(node.0)
                })
            }),
        );
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        send_entry(reply, self.entry(|disk| disk.create_directory(parent.0, name)));
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        match self.entry(|disk| disk.create_file(parent.0, name)) {
            Ok(attributes) => {
                let handle = FileHandle(0);
                reply.created(&TTL, &attributes, Generation(0), handle, FopenFlags::empty());
            }
            Err(error) => reply.error(error),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let unlink = |mut disk: MutexGuard<'_, Disk>| Ok(disk.unlink(parent.0, name)?);
        send_empty(reply, self.disk().and_then(unlink));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.unlink(request, parent, name, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let (from, to) = ((parent.0, name), (new_parent.0, new_name));
        let rename = |mut disk: MutexGuard<'_, Disk>| Ok(disk.rename(from, to)?);
        send_empty(reply, self.disk().and_then(rename));
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = || -> Served<Vec<u8>> {
            let (offset, size) = (position(offset)?, position(size.into())?);
            Ok(self.disk()?.read(node.0, offset, size)?.to_vec())
        };
        match read() {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let write = || -> Served<()> {
            let offset = position(offset)?;
            Ok(self.disk()?.write(node.0, offset, bytes)?)
        };
        match write() {
            Ok(()) => reply.written(u32::try_from(bytes.len()).expect("FUSE writes are small")),
            Err(error) => reply.error(error),
        }
    }

    /// Closing a file makes nothing durable.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, node: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        send_empty(reply, self.sync(node));
    }

    fn fsyncdir(&self, _: &Request, node: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        send_empty(reply, self.sync(node));
    }

    fn readdir(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let list = || -> Served<Vec<(std::ffi::OsString, u64, FileType)>> {
            let mut disk = self.disk()?;
            let mut entries = vec![
                (".".into(), node.0, FileType::Directory),
                ("..".into(), ROOT, FileType::Directory),
            ];
            for (name, node) in disk.list(node.0)? {
                let kind = match disk.size(node)? {
                    Some(_) => FileType::RegularFile,
                    None => FileType::Directory,
                };
                entries.push((name, node, kind));
            }
            Ok(entries)
        };
        match list() {
            Ok(entries) => {
                let entries = entries.into_iter().zip(1..).skip(position(offset).unwrap_or(0));
                for ((name, node, kind), next) in entries {
                    if reply.add(INodeNo(node), next, kind, name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(error),
        }
    }

    /// Only what extends a file, as `posix_fallocate` does.
    fn fallocate(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode != 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let extend = || -> Served<()> {
            let end = position(offset.saturating_add(length))?;
            let mut disk = self.disk()?;
            if disk.size(node.0)?.is_some_and(|size| size < end) {
                disk.resize(node.0, end)?;
            }
            Ok(())
        };
        send_empty(reply, extend());
    }
}
