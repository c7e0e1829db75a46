//! A disk with modified syncs: omitted or slow.

use std::io;
use std::sync::Arc;

use binlog::{Disk, DiskFile, FaultDisk};

/// The function that syncs a file.
type SyncBy = fn(&dyn DiskFile) -> io::Result<()>;

#[derive(Debug)]
pub(super) struct SyncDisk {
    disk: Arc<FaultDisk>,
    sync: SyncBy,
}

#[derive(Debug)]
struct SyncFile {
    file: Arc<dyn DiskFile>,
    sync: SyncBy,
}

impl SyncDisk {
    pub(super) fn new(disk: &Arc<FaultDisk>, sync: SyncBy) -> SyncDisk {
        SyncDisk { disk: Arc::clone(disk), sync }
    }

    /// Reports syncs without performing them: a canary for everything that depends on syncs.
    pub(super) fn lying(disk: &Arc<FaultDisk>) -> SyncDisk {
        SyncDisk::new(disk, |_| Ok(()))
    }

    fn wrap(&self, file: io::Result<Arc<dyn DiskFile>>) -> io::Result<Arc<dyn DiskFile>> {
        let sync = self.sync;
        file.map(|file| Arc::new(SyncFile { file, sync }) as Arc<dyn DiskFile>)
    }
}

impl Disk for SyncDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.wrap(self.disk.create(name))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.wrap(self.disk.open(name))
    }

    fn create_direct(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.wrap(self.disk.create_direct(name))
    }

    fn open_direct(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.wrap(self.disk.open_direct(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        self.disk.free_bytes()
    }
}

impl DiskFile for SyncFile {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn block_bytes(&self) -> usize {
        self.file.block_bytes()
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, bytes)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(offset, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        (self.sync)(&*self.file)
    }
}
