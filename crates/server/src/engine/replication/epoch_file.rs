//! Small files of the data directory that a master writes about its own epoch. They are not rows of
//! the data: such a record would be a write that other servers lack, for which they, or this server,
//! would need a copy of all data.
//!
//! The contents: the newest epoch (40 bytes), a value (8 bytes, little-endian), and the CRC32C of both
//! (4 bytes). A file about the epoch of another author is out of date.

use std::io;

use binlog::{Disk, read_full_at, write_all_at};
use wire::replication::EpochId;

/// Another server has replaced this master. The value is 0.
pub(crate) const REPLACED: &str = "replaced";

/// Records are sent before they are on the disk of this master. The value is the position of the
/// stream from which on a power cut has lost some; `u64::MAX` while it is not known.
pub(crate) const UNSYNCED: &str = "unsynced";

const EPOCH_BYTES: usize = size_of::<EpochId>();
const BYTES: usize = EPOCH_BYTES + size_of::<u64>() + size_of::<u32>();

/// Stores a file durably. Blocking.
pub(crate) fn write(disk: &dyn Disk, name: &str, epoch: &EpochId, value: u64) -> io::Result<()> {
    let temporary_name = format!("{name}.tmp");
    remove_if_present(disk, &temporary_name)?;
    let file = disk.create(&temporary_name)?;
    let mut bytes = epoch.to_vec();
    bytes.extend_from_slice(&value.to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    write_all_at(&*file, 0, &bytes)?;
    file.sync()?;
    disk.rename(&temporary_name, name)?;
    disk.sync_dir()
}

/// The epoch and the value of a file; `None` if there is none. A damaged file is an error.
pub(crate) fn read(disk: &dyn Disk, name: &str) -> io::Result<Option<(EpochId, u64)>> {
    if !disk.list()?.iter().any(|known| known == name) {
        return Ok(None);
    }
    let mut bytes = [0; BYTES];
    let count = read_full_at(&*disk.open(name)?, 0, &mut bytes)?;
    let (contents, crc) = bytes.split_last_chunk().expect("longer");
    if count < bytes.len() || crc32c::crc32c(contents) != u32::from_le_bytes(*crc) {
        let problem = format!(
            "the file `{name}` is damaged; remove it, and copy the data of the master to its \
             replicas again"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    let (epoch, value) = contents.split_first_chunk().expect("longer");
    let value = value.try_into().expect("eight bytes");
    Ok(Some((*epoch, u64::from_le_bytes(value))))
}

/// Removes a file durably, if there is one. Blocking.
pub(crate) fn remove(disk: &dyn Disk, name: &str) -> io::Result<()> {
    remove_if_present(disk, name)?;
    disk.sync_dir()
}

fn remove_if_present(disk: &dyn Disk, name: &str) -> io::Result<()> {
    if disk.list()?.iter().any(|known| known == name) {
        disk.remove(name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use binlog::FaultDisk;

    use super::*;

    #[test]
    fn a_damaged_file_is_an_error() {
        let disk = FaultDisk::new(1);
        let epoch = [b'a'; EPOCH_BYTES];
        assert_eq!(read(&disk, UNSYNCED).unwrap(), None);
        write(&disk, UNSYNCED, &epoch, 7).unwrap();
        assert_eq!(read(&disk, UNSYNCED).unwrap(), Some((epoch, 7)));
        let file = disk.open(UNSYNCED).unwrap();
        for at in [0, 39, 40, 47, 48, 51] {
            let mut byte = [0];
            read_full_at(&*file, at, &mut byte).unwrap();
            write_all_at(&*file, at, &[byte[0] ^ 1]).unwrap();
            assert_eq!(read(&disk, UNSYNCED).unwrap_err().kind(), io::ErrorKind::InvalidData);
            write_all_at(&*file, at, &byte).unwrap();
        }
        remove(&disk, UNSYNCED).unwrap();
        assert_eq!(read(&disk, UNSYNCED).unwrap(), None);
    }
}
