//! A file system that loses what was not synced. Pure state: the file operations are in [`super`].
//!
//! A sync makes content durable that was written before the sync began: for a file its bytes and its
//! size, for a directory the names in it. At a power cut, each sector of 512 bytes that was written
//! since keeps any of its contents since the last sync, the size of a file is any of its sizes since
//! then, and of the changes to a directory any subset survives. Only changes to the same name keep
//! their order, and a rename is atomic. No real file system loses more.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

use rand::Rng;
use rand::rngs::StdRng;

/// The unit that a disk writes atomically.
pub(super) const SECTOR_BYTES: usize = 512;
pub(super) const ROOT: u64 = 1;

type Sector = [u8; SECTOR_BYTES];

/// Why an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    NoSuchFile,
    Exists,
    NotADirectory,
    IsADirectory,
    NotEmpty,
    OtherDirectory,
}

/// All files and directories.
#[derive(Debug)]
pub(super) struct Disk {
    nodes: BTreeMap<u64, Node>,
    next: u64,
    syncs: u64,
    /// The power is off: every operation fails.
    pub(super) is_dead: bool,
}

#[derive(Debug)]
enum Node {
    File(File),
    Directory(Directory),
}

#[derive(Debug, Default)]
struct File {
    bytes: Vec<u8>,
    /// Since the last sync began.
    dirty: Generation,
    /// Of syncs that have begun and not ended, oldest first.
    syncing: Vec<(u64, Generation)>,
}

/// What one sync makes durable: the content of each changed sector before the first change, and the
/// size before the first change of the size.
#[derive(Debug, Default)]
struct Generation {
    sectors: BTreeMap<usize, Box<Sector>>,
    size: Option<usize>,
}

#[derive(Debug, Default)]
struct Directory {
    names: BTreeMap<OsString, u64>,
    durable: BTreeMap<OsString, u64>,
    /// Changes since the last sync ended, in their order, with their numbers.
    changes: Vec<(u64, Change)>,
    changes_seen: u64,
}

#[derive(Debug, Clone)]
enum Change {
    Link { name: OsString, node: u64 },
    Unlink { name: OsString },
    Rename { from: OsString, to: OsString, node: u64 },
}

/// A sync that has begun.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sync {
    node: u64,
    number: u64,
}

impl Change {
    fn names(&self) -> impl Iterator<Item = &OsString> {
        let (first, second) = match self {
            Self::Link { name, .. } | Self::Unlink { name } => (name, None),
            Self::Rename { from, to, .. } => (from, Some(to)),
        };
        std::iter::once(first).chain(second)
    }

    fn apply(&self, names: &mut BTreeMap<OsString, u64>) {
        match self {
            Self::Link { name, node } => drop(names.insert(name.clone(), *node)),
            Self::Unlink { name } => drop(names.remove(name)),
            Self::Rename { from, to, node } => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }
}

impl Directory {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.names);
        self.changes_seen += 1;
        self.changes.push((self.changes_seen, change));
    }

    fn end_sync(&mut self, number: u64) {
        let later = self.changes.partition_point(|(at, _)| *at <= number);
        for (_, change) in self.changes.drain(..later) {
            change.apply(&mut self.durable);
        }
    }

    /// A change survives with this chance, unless an earlier one to the same name was lost.
    fn cut(&mut self, random: &mut StdRng, survival: f64) {
        let mut lost = BTreeSet::new();
        for (_, change) in std::mem::take(&mut self.changes) {
            if random.random_bool(survival) && change.names().all(|name| !lost.contains(name)) {
                change.apply(&mut self.durable);
            } else {
                lost.extend(change.names().cloned());
            }
        }
        self.names.clone_from(&self.durable);
    }
}

impl File {
    fn sector(&self, number: usize) -> Box<Sector> {
        let mut sector = Box::new([0; SECTOR_BYTES]);
        let begin = number * SECTOR_BYTES;
        if let Some(rest) = self.bytes.get(begin..) {
            let bytes = &rest[..rest.len().min(SECTOR_BYTES)];
            sector[..bytes.len()].copy_from_slice(bytes);
        }
        sector
    }

    /// Remembers the content of the sectors that these bytes are in.
    fn keep(&mut self, begin: usize, end: usize) {
        for number in begin / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES) {
            if !self.dirty.sectors.contains_key(&number) {
                let sector = self.sector(number);
                self.dirty.sectors.insert(number, sector);
            }
        }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        self.keep(offset, end);
        if end > self.bytes.len() {
            self.resize(end);
        }
        self.bytes[offset..end].copy_from_slice(bytes);
    }

    fn resize(&mut self, size: usize) {
        let before = self.bytes.len();
        if size < before {
            self.keep(size, before);
        }
        self.dirty.size.get_or_insert(before);
        self.bytes.resize(size, 0);
    }

    fn begin_sync(&mut self, number: u64) {
        self.syncing.push((number, std::mem::take(&mut self.dirty)));
    }

    /// Everything that was written before this sync began is durable.
    fn end_sync(&mut self, number: u64) {
        self.syncing.retain(|(at, _)| *at > number);
    }

    fn cut(&mut self, random: &mut StdRng, survival: f64) {
        let mut generations: Vec<Generation> =
            std::mem::take(&mut self.syncing).into_iter().map(|(_, it)| it).collect();
        generations.push(std::mem::take(&mut self.dirty));
        let mut sizes: Vec<usize> = generations.iter().filter_map(|it| it.size).collect();
        sizes.push(self.bytes.len());
        let size = pick(random, survival, &sizes);
        let mut contents: BTreeMap<usize, Vec<Box<Sector>>> = BTreeMap::new();
        for (number, sector) in generations.into_iter().flat_map(|it| it.sectors) {
            contents.entry(number).or_default().push(sector);
        }
        for (number, list) in &mut contents {
            list.push(self.sector(*number));
        }
        self.bytes.resize(size, 0);
        for (number, list) in contents {
            let sector = pick(random, survival, &list);
            let begin = number * SECTOR_BYTES;
            if let Some(rest) = self.bytes.get_mut(begin..) {
                let length = rest.len().min(SECTOR_BYTES);
                rest[..length].copy_from_slice(&sector[..length]);
            }
        }
    }
}

/// The newest with the chance `survival`, otherwise an older one; the oldest, which is durable, if
/// nothing else survives.
fn pick<T: Clone>(random: &mut StdRng, survival: f64, oldest_first: &[T]) -> T {
    let newest = oldest_first.len() - 1;
    let at = if random.random_bool(survival) {
        newest
    } else if survival > 0.0 {
        random.random_range(0..=newest)
    } else {
        0
    };
    oldest_first[at].clone()
}

impl Disk {
    pub(super) fn new() -> Self {
        let nodes = BTreeMap::from([(ROOT, Node::Directory(Directory::default()))]);
        Self { nodes, next: ROOT + 1, syncs: 0, is_dead: false }
    }

    fn file(&mut self, node: u64) -> Result<&mut File, Refusal> {
        match self.nodes.get_mut(&node) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Directory(_)) => Err(Refusal::IsADirectory),
            None => Err(Refusal::NoSuchFile),
        }
    }

    fn directory(&mut self, node: u64) -> Result<&mut Directory, Refusal> {
        match self.nodes.get_mut(&node) {
            Some(Node::Directory(directory)) => Ok(directory),
            Some(Node::File(_)) => Err(Refusal::NotADirectory),
            None => Err(Refusal::NoSuchFile),
        }
    }

    /// The size of a file; `None`: a directory.
    pub(super) fn size(&self, node: u64) -> Result<Option<usize>, Refusal> {
        match self.nodes.get(&node) {
            Some(Node::File(file)) => Ok(Some(file.bytes.len())),
            Some(Node::Directory(_)) => Ok(None),
            None => Err(Refusal::NoSuchFile),
        }
    }

    pub(super) fn lookup(&mut self, parent: u64, name: &OsStr) -> Result<u64, Refusal> {
        self.directory(parent)?.names.get(name).copied().ok_or(Refusal::NoSuchFile)
    }

    pub(super) fn list(&mut self, node: u64) -> Result<Vec<(OsString, u64)>, Refusal> {
        let names = self.directory(node)?.names.iter();
        Ok(names.map(|(name, node)| (name.clone(), *node)).collect())
    }

    fn create(&mut self, parent: u64, name: &OsStr, new: Node) -> Result<u64, Refusal> {
        let node = self.next;
        let directory = self.directory(parent)?;
        if directory.names.contains_key(name) {
            return Err(Refusal::Exists);
        }
        directory.change(Change::Link { name: name.to_owned(), node });
        self.nodes.insert(node, new);
        self.next += 1;
        Ok(node)
    }

    pub(super) fn create_file(&mut self, parent: u64, name: &OsStr) -> Result<u64, Refusal> {
        self.create(parent, name, Node::File(File::default()))
    }

    pub(super) fn create_directory(&mut self, parent: u64, name: &OsStr) -> Result<u64, Refusal> {
        self.create(parent, name, Node::Directory(Directory::default()))
    }

    /// Removes the name of a file or of an empty directory. The file stays: its name may return at a
    /// power cut.
    pub(super) fn unlink(&mut self, parent: u64, name: &OsStr) -> Result<(), Refusal> {
        let node = self.lookup(parent, name)?;
        if self.directory(node).is_ok_and(|directory| !directory.names.is_empty()) {
            return Err(Refusal::NotEmpty);
        }
        self.directory(parent)?.change(Change::Unlink { name: name.to_owned() });
        Ok(())
    }

    pub(super) fn rename(
        &mut self,
        (parent, from): (u64, &OsStr),
        (new_parent, to): (u64, &OsStr),
    ) -> Result<(), Refusal> {
        if parent != new_parent {
            return Err(Refusal::OtherDirectory);
        }
        let node = self.lookup(parent, from)?;
        let change = Change::Rename { from: from.to_owned(), to: to.to_owned(), node };
        self.directory(parent)?.change(change);
        Ok(())
    }

    pub(super) fn read(
        &mut self,
        node: u64,
        offset: usize,
        count: usize,
    ) -> Result<&[u8], Refusal> {
        let bytes = &self.file(node)?.bytes;
        let begin = offset.min(bytes.len());
        Ok(&bytes[begin..offset.saturating_add(count).min(bytes.len())])
    }

    pub(super) fn write(&mut self, node: u64, offset: usize, bytes: &[u8]) -> Result<(), Refusal> {
        self.file(node)?.write(offset, bytes);
        Ok(())
    }

    pub(super) fn resize(&mut self, node: u64, size: usize) -> Result<(), Refusal> {
        self.file(node)?.resize(size);
        Ok(())
    }

    /// A sync covers what was done before it began, and nothing until it has ended.
    pub(super) fn begin_sync(&mut self, node: u64) -> Result<Sync, Refusal> {
        self.syncs += 1;
        let syncs = self.syncs;
        let number = match self.nodes.get_mut(&node) {
            Some(Node::File(file)) => {
                file.begin_sync(syncs);
                syncs
            }
            Some(Node::Directory(directory)) => directory.changes_seen,
            None => return Err(Refusal::NoSuchFile),
        };
        Ok(Sync { node, number })
    }

    pub(super) fn end_sync(&mut self, sync: Sync) {
        match self.nodes.get_mut(&sync.node) {
            Some(Node::File(file)) => file.end_sync(sync.number),
            Some(Node::Directory(directory)) => directory.end_sync(sync.number),
            None => {}
        }
    }

    /// The power is off and on again. One cut in four keeps nothing that was not synced, one in eight
    /// keeps everything, the others a random part.
    pub(super) fn cut(&mut self, random: &mut StdRng) {
        let survival = match random.random_range(0..8) {
            0 | 1 => 0.0,
            2 => 1.0,
            _ => random.random_range(0.0..1.0),
        };
        for node in self.nodes.values_mut() {
            match node {
                Node::File(file) => file.cut(random, survival),
                Node::Directory(directory) => directory.cut(random, survival),
            }
        }
        let mut reachable = BTreeSet::new();
        let mut open = vec![ROOT];
        while let Some(node) = open.pop() {
            reachable.insert(node);
            if let Some(Node::Directory(directory)) = self.nodes.get(&node) {
                open.extend(directory.names.values());
            }
        }
        self.nodes.retain(|node, _| reachable.contains(node));
        self.is_dead = false;
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn name(text: &str) -> &OsStr {
        OsStr::new(text)
    }

    /// The outcomes of many cuts of the disk that `make` leaves.
    fn outcomes<T: Ord>(make: impl Fn(&mut Disk), look: impl Fn(&mut Disk) -> T) -> BTreeSet<T> {
        let cut = |seed| {
            let mut disk = Disk::new();
            make(&mut disk);
            disk.cut(&mut StdRng::seed_from_u64(seed));
            look(&mut disk)
        };
        (0..300).map(cut).collect()
    }

    fn sync(disk: &mut Disk, node: u64) {
        let sync = disk.begin_sync(node).unwrap();
        disk.end_sync(sync);
    }

    fn content(disk: &mut Disk) -> Option<Vec<u8>> {
        let node = disk.lookup(ROOT, name("f")).ok()?;
        Some(disk.read(node, 0, usize::MAX).unwrap().to_vec())
    }

    #[test]
    fn synced_data_survives() {
        let found = outcomes(
            |disk| {
                let file = disk.create_file(ROOT, name("f")).unwrap();
                disk.write(file, 3, b"abc").unwrap();
                sync(disk, file);
                sync(disk, ROOT);
            },
            content,
        );
        assert_eq!(found, BTreeSet::from([Some(b"\0\0\0abc".to_vec())]));
    }

    #[test]
    fn a_name_needs_a_sync_of_its_directory() {
        let found = outcomes(
            |disk| {
                let file = disk.create_file(ROOT, name("f")).unwrap();
                disk.write(file, 0, b"abc").unwrap();
                sync(disk, file);
            },
            content,
        );
        assert_eq!(found, BTreeSet::from([None, Some(b"abc".to_vec())]));
    }

    /// A sector is old or new, whatever happened to its neighbors; the size too.
    #[test]
    fn sectors_are_lost_one_by_one() {
        let found = outcomes(
            |disk| {
                let file = disk.create_file(ROOT, name("f")).unwrap();
                disk.write(file, 0, &[1; 2 * SECTOR_BYTES]).unwrap();
                sync(disk, file);
                sync(disk, ROOT);
                disk.write(file, 0, &[2; 3 * SECTOR_BYTES]).unwrap();
            },
            |disk| {
                let bytes = content(disk).unwrap();
                bytes.iter().step_by(SECTOR_BYTES).copied().collect::<Vec<u8>>()
            },
        );
        let expected = [1, 2].into_iter().flat_map(|a| [1, 2].map(|b| [a, b]));
        let mut all: BTreeSet<Vec<u8>> = BTreeSet::new();
        for [a, b] in expected {
            all.extend([vec![a, b], vec![a, b, 0], vec![a, b, 2]]);
        }
        assert_eq!(found, all);
    }

    /// What is written while a sync runs is not covered by it.
    #[test]
    fn a_sync_covers_what_was_written_before_it_began() {
        let write_and_sync = |disk: &mut Disk, ends: bool| {
            let file = disk.create_file(ROOT, name("f")).unwrap();
            sync(disk, ROOT);
            disk.write(file, 0, b"1").unwrap();
            let sync = disk.begin_sync(file).unwrap();
            disk.write(file, 0, b"2").unwrap();
            if ends {
                disk.end_sync(sync);
            }
        };
        let ended = outcomes(|disk| write_and_sync(disk, true), content);
        assert_eq!(ended, BTreeSet::from([Some(b"1".to_vec()), Some(b"2".to_vec())]));
        let running = outcomes(|disk| write_and_sync(disk, false), content);
        assert!(running.contains(&Some(Vec::new())) && running.contains(&Some(b"2".to_vec())));
    }

    /// A rename is atomic: the name has the old content or the new one.
    #[test]
    fn a_rename_replaces_or_does_not() {
        let found = outcomes(
            |disk| {
                for (file, bytes) in [("f", b"old"), ("new", b"new")] {
                    let node = disk.create_file(ROOT, name(file)).unwrap();
                    disk.write(node, 0, bytes).unwrap();
                    sync(disk, node);
                }
                sync(disk, ROOT);
                disk.rename((ROOT, name("new")), (ROOT, name("f"))).unwrap();
            },
            |disk| (content(disk), disk.lookup(ROOT, name("new")).is_ok()),
        );
        let expected = [(Some(b"old".to_vec()), true), (Some(b"new".to_vec()), false)];
        assert_eq!(found, BTreeSet::from(expected));
    }

    #[test]
    fn a_removed_name_may_return_with_its_file() {
        let found = outcomes(
            |disk| {
                let file = disk.create_file(ROOT, name("f")).unwrap();
                disk.write(file, 0, b"abc").unwrap();
                sync(disk, file);
                sync(disk, ROOT);
                disk.unlink(ROOT, name("f")).unwrap();
            },
            content,
        );
        assert_eq!(found, BTreeSet::from([None, Some(b"abc".to_vec())]));
    }

    #[test]
    fn truncated_bytes_may_return() {
        let found = outcomes(
            |disk| {
                let file = disk.create_file(ROOT, name("f")).unwrap();
                disk.write(file, 0, b"abcdef").unwrap();
                sync(disk, file);
                sync(disk, ROOT);
                disk.resize(file, 3).unwrap();
            },
            content,
        );
        assert!(
            found.contains(&Some(b"abc".to_vec())) && found.contains(&Some(b"abcdef".to_vec()))
        );
    }
}
