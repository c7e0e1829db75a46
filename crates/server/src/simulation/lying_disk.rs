//! A disk that says that it has synced, and has not: the canary of everything that depends on it.

use std::io;
use std::sync::Arc;

use binlog::{Disk, DiskFile, FaultDisk};

#[derive(Debug)]
pub(super) struct LyingDisk(pub(super) Arc<FaultDisk>);

#[derive(Debug)]
struct LyingFile(Arc<dyn DiskFile>);

fn lying(file: io::Result<Arc<dyn DiskFile>>) -> io::Result<Arc<dyn DiskFile>> {
    file.map(|file| Arc::new(LyingFile(file)) as Arc<dyn DiskFile>)
}

impl Disk for LyingDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        lying(self.0.create(name))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        lying(self.0.open(name))
    }

    fn create_direct(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        lying(self.0.create_direct(name))
    }

    fn open_direct(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        lying(self.0.open_direct(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.0.sync_dir()
    }
}

impl DiskFile for LyingFile {
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn block_bytes(&self) -> usize {
        self.0.block_bytes()
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(offset, bytes)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_at(offset, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
