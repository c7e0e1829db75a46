//! Small files of the data directory that a master writes about its own epoch. They are not rows of
//! the data: such a record would be a write that other servers lack, for which they, or this server,
//! would need a copy of all data.
//!
//! A file counts as long as its epoch is the newest one of the history.

use std::io;

use binlog::{Disk, read_full_at, write_all_at};
use wire::replication::EpochId;

/// Another server has replaced this master. The value is 0.
pub(crate) const REPLACED: &str = "replaced";

/// Records are sent before they are on the disk of this master. The value is the position of the
/// stream from which on a power cut has lost some; `u64::MAX` while it is not known.
pub(crate) const UNSYNCED: &str = "unsynced";

const EPOCH_BYTES: usize = size_of::<EpochId>();

/// Stores a file durably. Blocking.
pub(crate) fn write(disk: &dyn Disk, name: &str, epoch: &EpochId, value: u64) -> io::Result<()> {
    let temporary_name = format!("{name}.tmp");
    remove_if_present(disk, &temporary_name)?;
    let file = disk.create(&temporary_name)?;
    let mut bytes = epoch.to_vec();
    bytes.extend_from_slice(&value.to_le_bytes());
    write_all_at(&*file, 0, &bytes)?;
    file.sync()?;
    disk.rename(&temporary_name, name)?;
    disk.sync_dir()
}

/// The value of a file about this epoch.
pub(crate) fn read(disk: &dyn Disk, name: &str, epoch: &EpochId) -> io::Result<Option<u64>> {
    if !disk.list()?.iter().any(|known| known == name) {
        return Ok(None);
    }
    let mut bytes = [0; EPOCH_BYTES + size_of::<u64>()];
    let count = read_full_at(&*disk.open(name)?, 0, &mut bytes)?;
    let (stored, value) = bytes.split_at(EPOCH_BYTES);
    let is_current = count == bytes.len() && stored == epoch;
    let value = value.try_into().expect("eight bytes");
    Ok(is_current.then(|| u64::from_le_bytes(value)))
}

/// Removes a file durably. Blocking.
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
