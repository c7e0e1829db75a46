//! A disk in memory that loses what a real one may lose.
//!
//! It has two states: what reads return (the page cache) and what survives (stable storage). A
//! write changes the first; a sync moves a file's sectors, a directory sync moves names, to the
//! second. A power cut keeps, loses or tears each sector that was not synced, and keeps or loses
//! each change of a name, as the seed determines. After a failed sync the dirty sectors count as
//! clean, stored or not, as on Linux: repeating the sync succeeds and proves nothing.
//!
//! Files for direct writes accept only whole, aligned blocks, as a real disk does. They lose as
//! much as other files: a direct write reaches the disk, but only its cache.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::aligned::{BLOCK_BYTES, is_aligned};
use crate::disk::{Disk, DiskFile};
use crate::to_usize;

/// Bytes that a disk writes atomically or, at worst, tears once.
const SECTOR_BYTES: usize = 512;
type Sector = [u8; SECTOR_BYTES];

/// How often and when the disk fails. Probabilities are from 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Faults {
    pub write_error: f64,
    pub sync_error: f64,
    pub short_write: f64,
    /// Most bytes of all files together.
    pub capacity_bytes: Option<u64>,
    /// The power fails during the change with this number, counted from now; then every call fails
    /// until [`FaultDisk::power_cut`].
    pub power_off_after: Option<u64>,
}

/// A directory in memory, with faults. All choices follow from the seed and the calls.
#[derive(Debug)]
pub struct FaultDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    rng: SmallRng,
    faults: Faults,
    /// Block size of files for direct writes.
    direct_block_bytes: usize,
    power_is_off: bool,
    /// Files opened before the last power cut are invalid.
    life: u64,
    files: BTreeMap<u64, Inode>,
    next_inode: u64,
    names: BTreeMap<String, u64>,
    stable_names: BTreeMap<String, u64>,
    unsynced_names: Vec<NameChange>,
}

#[derive(Debug, Default)]
struct Inode {
    seen: Vec<u8>,
    stable: Vec<u8>,
    /// All contents of each sector since the last sync: the disk may have kept any of them.
    dirty: BTreeMap<usize, Vec<Sector>>,
}

#[derive(Debug)]
enum NameChange {
    Create(String, u64),
    Rename(String, String),
    Remove(String),
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Create(name, inode) => {
                names.insert(name.clone(), *inode);
            }
            Self::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
            Self::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

impl FaultDisk {
    /// An empty directory without faults, which takes direct writes.
    pub fn new(seed: u64) -> Self {
        Self::with_blocks(seed, BLOCK_BYTES)
    }

    /// A directory that accepts no direct writes: all files are as from [`Disk::create`].
    pub fn buffered(seed: u64) -> Self {
        Self::with_blocks(seed, 1)
    }

    fn with_blocks(seed: u64, direct_block_bytes: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            rng: SmallRng::seed_from_u64(seed),
            faults: Faults::default(),
            direct_block_bytes,
            power_is_off: false,
            life: 0,
            files: BTreeMap::new(),
            next_inode: 1,
            names: BTreeMap::new(),
            stable_names: BTreeMap::new(),
            unsynced_names: Vec::new(),
        })))
    }

    pub fn set_faults(&self, faults: Faults) {
        self.0.lock().faults = faults;
    }

    /// Cuts the power and restores it: only what was stable is certain to remain. Open files become
    /// invalid, and faults are removed.
    pub fn power_cut(&self) {
        let mut state = self.0.lock();
        let State { rng, files, names, stable_names, unsynced_names, .. } = &mut *state;
        for inode in files.values_mut() {
            inode.power_cut(rng);
        }
        // A journal loses only the newest changes; a disk without one may lose any of them.
        let journaled = rng.random_bool(0.5);
        let kept = rng.random_range(0..=unsynced_names.len());
        for (index, change) in unsynced_names.drain(..).enumerate() {
            if if journaled { index < kept } else { rng.random_bool(0.5) } {
                change.apply(stable_names);
            }
        }
        names.clone_from(stable_names);
        files.retain(|inode, _| names.values().any(|named| named == inode));
        state.faults = Faults::default();
        state.power_is_off = false;
        state.life += 1;
    }

    /// Inverts bits of a stored byte, as a failing medium does. False if there is no such byte.
    pub fn damage(&self, name: &str, offset: u64, bits: u8) -> bool {
        let mut state = self.0.lock();
        let State { files, names, .. } = &mut *state;
        let Some(inode) = names.get(name).and_then(|inode| files.get_mut(inode)) else {
            return false;
        };
        let at = to_usize(offset);
        let (Some(seen), Some(stable)) = (inode.seen.get_mut(at), inode.stable.get_mut(at)) else {
            return false;
        };
        *seen ^= bits;
        *stable ^= bits;
        true
    }

    /// A copy of what reads of a file return; `None` if no file has that name.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.0.lock();
        state.names.get(name).and_then(|inode| state.files.get(inode)).map(|i| i.seen.clone())
    }

    /// Creates a file with this content, all of it stable.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut state = self.0.lock();
        let number = state.next_inode;
        state.next_inode += 1;
        let (seen, stable) = (bytes.to_vec(), bytes.to_vec());
        state.files.insert(number, Inode { seen, stable, dirty: BTreeMap::new() });
        state.names.insert(name.into(), number);
        state.stable_names.insert(name.into(), number);
    }
}

impl Inode {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len();
        if self.seen.len() < end {
            self.seen.resize(end, 0);
        }
        self.seen[offset..end].copy_from_slice(bytes);
        for sector in offset / SECTOR_BYTES..=(end - 1) / SECTOR_BYTES {
            let content = sector_of(&self.seen, sector);
            self.dirty.entry(sector).or_default().push(content);
        }
    }

    fn sync(&mut self) {
        let dirty = std::mem::take(&mut self.dirty);
        self.stable.resize(self.seen.len(), 0);
        for sector in dirty.into_keys() {
            let content = sector_of(&self.seen, sector);
            put_sector(&mut self.stable, sector, &content);
        }
    }

    /// The dirty sectors are marked clean, whether they were stored or not.
    fn fail_sync(&mut self, rng: &mut SmallRng) {
        self.store_some(rng);
        self.dirty.clear();
    }

    fn power_cut(&mut self, rng: &mut SmallRng) {
        self.store_some(rng);
        self.dirty.clear();
        self.seen.clone_from(&self.stable);
    }

    fn store_some(&mut self, rng: &mut SmallRng) {
        if rng.random_bool(0.5) {
            self.stable.resize(self.seen.len(), 0);
        }
        // Sometimes nearly all changes survive, sometimes nearly none.
        let kept = [0.02, 0.5, 0.98][rng.random_range(0..3)];
        for (&sector, versions) in &self.dirty {
            if !rng.random_bool(kept) {
                continue;
            }
            let mut content = versions[rng.random_range(0..versions.len())];
            if rng.random_bool(0.1) {
                let torn_at = rng.random_range(0..SECTOR_BYTES);
                let old = sector_of(&self.stable, sector);
                content[torn_at..].copy_from_slice(&old[torn_at..]);
            }
            put_sector(&mut self.stable, sector, &content);
        }
    }
}

/// A sector's content; zeros where the file has ended.
fn sector_of(bytes: &[u8], sector: usize) -> Sector {
    let mut content = [0; SECTOR_BYTES];
    let start = (sector * SECTOR_BYTES).min(bytes.len());
    let end = (start + SECTOR_BYTES).min(bytes.len());
    content[..end - start].copy_from_slice(&bytes[start..end]);
    content
}

/// Stores a sector, cut off at the file's size.
fn put_sector(bytes: &mut [u8], sector: usize, content: &Sector) {
    let start = (sector * SECTOR_BYTES).min(bytes.len());
    let end = (start + SECTOR_BYTES).min(bytes.len());
    bytes[start..end].copy_from_slice(&content[..end - start]);
}

fn power_is_off() -> io::Error {
    io::Error::other("the power is off")
}

fn device_error() -> io::Error {
    io::Error::other("device error")
}

impl State {
    fn block_bytes(&self, direct: bool) -> usize {
        if direct { self.direct_block_bytes } else { 1 }
    }

    fn check_power(&self) -> io::Result<()> {
        if self.power_is_off { Err(power_is_off()) } else { Ok(()) }
    }

    /// Called before each change. False: the power fails during it.
    fn has_power_for_change(&mut self) -> io::Result<bool> {
        self.check_power()?;
        match &mut self.faults.power_off_after {
            Some(0) => {
                self.power_is_off = true;
                Ok(false)
            }
            Some(left) => {
                *left -= 1;
                Ok(true)
            }
            None => Ok(true),
        }
    }

    fn change_name(&mut self, change: NameChange) -> io::Result<()> {
        let has_power = self.has_power_for_change()?;
        change.apply(&mut self.names);
        self.unsynced_names.push(change);
        if has_power { Ok(()) } else { Err(power_is_off()) }
    }

    fn inode_of(&self, name: &str) -> io::Result<u64> {
        self.names.get(name).copied().ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// `None` if the size of the disk is not limited.
    fn free(&self) -> Option<usize> {
        let capacity = self.faults.capacity_bytes?;
        let named = self.names.values().filter_map(|named| self.files.get(named));
        let used: usize = named.map(|file| file.seen.len()).sum();
        Some(to_usize(capacity).saturating_sub(used))
    }

    /// Bytes that a write of `count` at `offset` may still take.
    fn space_for(&self, inode: u64, offset: usize, count: usize) -> usize {
        let Some(free) = self.free() else { return count };
        let size = self.files.get(&inode).map_or(0, |file| file.seen.len());
        count.min(size.saturating_sub(offset).saturating_add(free))
    }

    fn write(
        &mut self,
        inode: u64,
        offset: u64,
        bytes: &[u8],
        block_bytes: usize,
    ) -> io::Result<usize> {
        if !is_aligned(offset, bytes, block_bytes) {
            return Err(ErrorKind::InvalidInput.into());
        }
        let has_power = self.has_power_for_change()?;
        let offset = to_usize(offset);
        let space = self.space_for(inode, offset, bytes.len());
        let mut count = space - space % block_bytes;
        if count == 0 && !bytes.is_empty() {
            return Err(ErrorKind::StorageFull.into());
        }
        let fails = !has_power || self.rng.random_bool(self.faults.write_error);
        if fails {
            count = self.rng.random_range(0..=count);
        } else if count > block_bytes && self.rng.random_bool(self.faults.short_write) {
            count = self.rng.random_range(block_bytes..=count);
        }
        // A direct write may end after any sector, if it is not whole.
        count -= count % block_bytes.min(SECTOR_BYTES);
        let file = self.files.get_mut(&inode).ok_or(ErrorKind::NotFound)?;
        file.write(offset, &bytes[..count]);
        match (has_power, fails) {
            (false, _) => Err(power_is_off()),
            (true, true) => Err(device_error()),
            (true, false) => Ok(count),
        }
    }

    fn sync(&mut self, inode: u64) -> io::Result<()> {
        let has_power = self.has_power_for_change()?;
        let fails = self.rng.random_bool(self.faults.sync_error);
        let Self { rng, files, .. } = self;
        let file = files.get_mut(&inode).ok_or(ErrorKind::NotFound)?;
        if !has_power {
            return Err(power_is_off());
        }
        if fails {
            file.fail_sync(rng);
            return Err(device_error());
        }
        file.sync();
        Ok(())
    }
}

impl FaultDisk {
    fn file(&self, state: &State, inode: u64, block_bytes: usize) -> Arc<dyn DiskFile> {
        Arc::new(FaultFile { disk: Arc::clone(&self.0), inode, life: state.life, block_bytes })
    }

    fn create_with(&self, name: &str, direct: bool) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.0.lock();
        state.check_power()?;
        if state.names.contains_key(name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let inode = state.next_inode;
        state.next_inode += 1;
        state.files.insert(inode, Inode::default());
        state.change_name(NameChange::Create(name.into(), inode))?;
        Ok(self.file(&state, inode, state.block_bytes(direct)))
    }

    fn open_with(&self, name: &str, direct: bool) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.0.lock();
        state.check_power()?;
        let inode = state.inode_of(name)?;
        Ok(self.file(&state, inode, state.block_bytes(direct)))
    }
}

impl Disk for FaultDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.0.lock();
        state.check_power()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.create_with(name, false)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.open_with(name, false)
    }

    fn create_direct(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.create_with(name, true)
    }

    fn open_direct(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.open_with(name, true)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        state.inode_of(from)?;
        state.change_name(NameChange::Rename(from.into(), to.into()))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        state.inode_of(name)?;
        state.change_name(NameChange::Remove(name.into()))
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        if !state.has_power_for_change()? {
            return Err(power_is_off());
        }
        let fails = state.faults.sync_error;
        if state.rng.random_bool(fails) {
            return Err(device_error());
        }
        let State { names, stable_names, unsynced_names, .. } = &mut *state;
        stable_names.clone_from(names);
        unsynced_names.clear();
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        let state = self.0.lock();
        state.check_power()?;
        Ok(state.free().map(|free| free as u64))
    }
}

#[derive(Debug)]
struct FaultFile {
    disk: Arc<Mutex<State>>,
    inode: u64,
    life: u64,
    block_bytes: usize,
}

impl FaultFile {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.lock();
        state.check_power()?;
        if state.life != self.life {
            return Err(power_is_off());
        }
        act(&mut state)
    }
}

impl DiskFile for FaultFile {
    fn size(&self) -> io::Result<u64> {
        self.with(|state| {
            let file = state.files.get(&self.inode).ok_or(ErrorKind::NotFound)?;
            Ok(file.seen.len() as u64)
        })
    }

    fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.with(|state| {
            let file = state.files.get(&self.inode).ok_or(ErrorKind::NotFound)?;
            let start = to_usize(offset).min(file.seen.len());
            let count = bytes.len().min(file.seen.len() - start);
            bytes[..count].copy_from_slice(&file.seen[start..start + count]);
            Ok(count)
        })
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.with(|state| state.write(self.inode, offset, bytes, self.block_bytes))
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|state| state.sync(self.inode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aligned::AlignedBuffer;
    use crate::disk::write_all_at;

    #[test]
    fn only_what_was_synced_is_sure_to_survive() {
        let mut lost = 0;
        for seed in 0..50 {
            let disk = FaultDisk::new(seed);
            let file = disk.create("a").unwrap();
            file.write_at(0, &[1; 1000]).unwrap();
            file.sync().unwrap();
            disk.sync_dir().unwrap();
            file.write_at(0, &[2; 1000]).unwrap();
            disk.create("b").unwrap();
            disk.power_cut();
            assert!(file.size().is_err(), "files opened before the cut are dead");
            let bytes = disk.contents("a").unwrap();
            assert_eq!(bytes.len(), 1000);
            assert!(bytes.iter().all(|byte| [1, 2].contains(byte)));
            lost += usize::from(bytes.contains(&1)) + usize::from(disk.contents("b").is_none());
        }
        assert!(lost > 20, "a power cut must lose things, but lost only {lost}");
    }

    #[test]
    fn a_sync_after_a_failed_sync_proves_nothing() {
        let survived = |seed| {
            let disk = FaultDisk::new(seed);
            let file = disk.create("a").unwrap();
            disk.sync_dir().unwrap();
            file.write_at(0, b"x").unwrap();
            disk.set_faults(Faults { sync_error: 1.0, ..Faults::default() });
            file.sync().unwrap_err();
            disk.set_faults(Faults::default());
            file.sync().unwrap();
            disk.power_cut();
            disk.contents("a").unwrap() == b"x"
        };
        assert!((0..50).any(|seed| !survived(seed)));
    }

    #[test]
    fn direct_files_refuse_what_is_not_aligned() {
        let disk = FaultDisk::new(1);
        let file = disk.create_direct("a").unwrap();
        let mut buffer = AlignedBuffer::new(3 * BLOCK_BYTES);
        buffer.fill(9);
        let block = BLOCK_BYTES as u64;
        assert_eq!(file.write_at(block, &buffer).unwrap(), 3 * BLOCK_BYTES);
        for (offset, from, to) in [(512, 0, BLOCK_BYTES), (0, 0, 512), (0, 1, 1 + BLOCK_BYTES)] {
            let refused = file.write_at(offset, &buffer[from..to]).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{offset} {from}..{to}");
        }
        assert_eq!(file.size().unwrap(), 4 * block, "what is refused changes nothing");
        let mut bytes = [0; 10];
        assert_eq!(file.read_at(block + 3, &mut bytes).unwrap(), 10);
        assert_eq!((bytes, file.block_bytes()), ([9; 10], BLOCK_BYTES));
        let buffered = FaultDisk::buffered(1).create_direct("a").unwrap();
        assert_eq!((buffered.block_bytes(), buffered.write_at(5, b"x").unwrap()), (1, 1));
        assert_eq!(disk.open("a").unwrap().write_at(5, b"x").unwrap(), 1, "not opened as direct");
    }

    #[test]
    fn short_direct_writes_are_continued_at_a_block() {
        for seed in 0..200 {
            let disk = FaultDisk::new(seed);
            let file = disk.create_direct("a").unwrap();
            disk.set_faults(Faults { short_write: 0.9, ..Faults::default() });
            let mut buffer = AlignedBuffer::new(8 * BLOCK_BYTES);
            for (index, byte) in buffer.iter_mut().enumerate() {
                *byte = u8::try_from(index % 251).unwrap();
            }
            write_all_at(&*file, 0, &buffer).unwrap();
            assert_eq!(disk.contents("a").unwrap(), &buffer[..]);
        }
    }

    #[test]
    fn a_full_disk_takes_what_fits() {
        let disk = FaultDisk::new(1);
        let file = disk.create("a").unwrap();
        disk.set_faults(Faults { capacity_bytes: Some(10), ..Faults::default() });
        assert_eq!(file.write_at(0, &[1; 15]).unwrap(), 10);
        assert_eq!(file.write_at(10, &[1; 5]).unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(file.write_at(2, &[2; 5]).unwrap(), 5, "inside the file there is room");
    }
}
