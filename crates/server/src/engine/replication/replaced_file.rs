//! The file by which a restart of a master knows that another server has replaced it. A record of
//! the log cannot say so: it would be a write that the new master lacks, for which this server would
//! need a copy of all data.
//!
//! The file contains the newest epoch of the history of the master, and is out of date in any other
//! epoch.

use std::io;

use binlog::{Disk, read_full_at, write_all_at};
use wire::replication::EpochId;

const NAME: &str = "replaced";
const TEMPORARY_NAME: &str = "replaced.tmp";

/// Stores durably that the master of an epoch is replaced. Blocking.
pub(crate) fn write(disk: &dyn Disk, epoch: &EpochId) -> io::Result<()> {
    remove_if_present(disk, TEMPORARY_NAME)?;
    let file = disk.create(TEMPORARY_NAME)?;
    write_all_at(&*file, 0, epoch)?;
    file.sync()?;
    disk.rename(TEMPORARY_NAME, NAME)?;
    disk.sync_dir()
}

/// Whether the master of an epoch is replaced.
pub(crate) fn names(disk: &dyn Disk, epoch: &EpochId) -> io::Result<bool> {
    if !disk.list()?.iter().any(|name| name == NAME) {
        return Ok(false);
    }
    let mut stored = [0; size_of::<EpochId>()];
    let count = read_full_at(&*disk.open(NAME)?, 0, &mut stored)?;
    Ok(count == stored.len() && stored == *epoch)
}

/// Forgets durably that this server is replaced. Blocking.
pub(crate) fn remove(disk: &dyn Disk) -> io::Result<()> {
    remove_if_present(disk, NAME)?;
    disk.sync_dir()
}

fn remove_if_present(disk: &dyn Disk, name: &str) -> io::Result<()> {
    if disk.list()?.iter().any(|known| known == name) {
        disk.remove(name)?;
    }
    Ok(())
}
