//! The files below a root, with the recent ones at hand.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use base::time::MonoNs;
use foldhash::fast::RandomState;
use indexmap::IndexMap;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::file::{File, OpenError};

/// A file is looked at again this long after the last look.
const FRESH_NS: u64 = 1_000_000_000;
/// Files at hand, each with up to four descriptors.
const ENTRIES_MAX: usize = 1024;
/// Memory for contents, per worker.
const KEPT_BYTES_MAX: usize = 64 << 20;

#[derive(Debug)]
struct Entry {
    file: Arc<File>,
    looked_at: MonoNs,
}

/// Opens files and keeps the recent ones: their bytes if they are short, else their descriptors.
///
/// Opening and reading may wait for a disk, and the worker with it; what was served within the last
/// second costs no system call.
#[derive(Debug)]
pub(crate) struct Files {
    root: OwnedFd,
    compress: bool,
    entries: IndexMap<Vec<u8>, Entry, RandomState>,
    kept_bytes: usize,
    /// Where the next entry is dropped when there are too many.
    hand: usize,
}

impl Files {
    pub(crate) fn open(root: &Path, compress: bool) -> anyhow::Result<Files> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(root, flags, Mode::empty())
            .with_context(|| format!("open the root {}", root.display()))?;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&fd, ".", flags, Mode::empty(), resolve)
            .context("files are opened by openat2, which needs Linux 5.6")?;
        let entries = IndexMap::with_hasher(RandomState::default());
        Ok(Files { root: fd, compress, entries, kept_bytes: 0, hand: 0 })
    }

    /// The file of this name, at most a second old.
    pub(crate) fn get(&mut self, name: &[u8], now: MonoNs) -> Result<Arc<File>, OpenError> {
        if let Some(entry) = self.entries.get_mut(name) {
            if now.since(entry.looked_at) < FRESH_NS {
                return Ok(Arc::clone(&entry.file));
            }
            if entry.file.is_current(&self.root, name) {
                entry.looked_at = now;
                return Ok(Arc::clone(&entry.file));
            }
            self.forget(name);
        }
        let opened = match File::open(&self.root, name, self.compress) {
            Err(OpenError::Overload) if !self.entries.is_empty() => {
                // Descriptors ran out: ours may be the ones.
                self.entries.clear();
                self.kept_bytes = 0;
                File::open(&self.root, name, self.compress)
            }
            opened => opened,
        };
        let file = Arc::new(opened?);
        self.keep(name, &file, now);
        Ok(file)
    }

    fn keep(&mut self, name: &[u8], file: &Arc<File>, now: MonoNs) {
        let bytes = file.kept_bytes();
        while self.entries.len() >= ENTRIES_MAX
            || (self.kept_bytes + bytes > KEPT_BYTES_MAX && !self.entries.is_empty())
        {
            let index = self.hand % self.entries.len();
            self.hand = index + 1;
            if let Some((_, entry)) = self.entries.swap_remove_index(index) {
                self.kept_bytes -= entry.file.kept_bytes();
            }
        }
        self.kept_bytes += bytes;
        self.entries.insert(name.to_vec(), Entry { file: Arc::clone(file), looked_at: now });
    }

    fn forget(&mut self, name: &[u8]) {
        if let Some(entry) = self.entries.swap_remove(name) {
            self.kept_bytes -= entry.file.kept_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::super::encoding::Coding;
    use super::super::file::Body;
    use super::*;

    /// A root with a neighbour that nobody may reach.
    struct Tree {
        folder: PathBuf,
    }

    impl Tree {
        fn new(name: &str) -> Tree {
            let folder =
                std::env::temp_dir().join(format!("myriad-web-{name}-{}", std::process::id()));
            fs::create_dir_all(folder.join("root/sub")).unwrap();
            fs::write(folder.join("secret.txt"), "secret").unwrap();
            fs::write(folder.join("root/a.txt"), "content").unwrap();
            Tree { folder }
        }

        fn files(&self) -> Files {
            Files::open(&self.folder.join("root"), true).unwrap()
        }

        fn write(&self, name: &str, content: &[u8]) {
            fs::write(self.folder.join("root").join(name), content).unwrap();
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.folder).unwrap();
        }
    }

    fn kept(file: &File) -> Vec<u8> {
        match &file.plain.body {
            Body::Kept(bytes) => bytes.to_vec(),
            Body::Open(_) => panic!("not kept"),
        }
    }

    #[test]
    fn nothing_outside_the_root_is_opened() {
        let tree = Tree::new("outside");
        let root = tree.folder.join("root");
        symlink("../secret.txt", root.join("up.txt")).unwrap();
        symlink(tree.folder.join("secret.txt"), root.join("absolute.txt")).unwrap();
        symlink("..", root.join("parent")).unwrap();
        symlink("a.txt", root.join("inside.txt")).unwrap();
        symlink("loop.txt", root.join("loop.txt")).unwrap();
        let mut files = tree.files();
        for name in ["up.txt", "absolute.txt", "parent/secret.txt", "../secret.txt", "loop.txt"] {
            let error = files.get(name.as_bytes(), MonoNs(0)).unwrap_err();
            assert_eq!(error, OpenError::Forbidden, "{name}");
        }
        assert_eq!(kept(&files.get(b"inside.txt", MonoNs(0)).unwrap()), b"content");
        assert_eq!(files.get(b"none.txt", MonoNs(0)).unwrap_err(), OpenError::NotFound);
        assert_eq!(files.get(b"sub", MonoNs(0)).unwrap_err(), OpenError::Directory);
        assert_eq!(files.get(b"", MonoNs(0)).unwrap_err(), OpenError::Directory);
        assert_eq!(files.get(b"a.txt/b", MonoNs(0)).unwrap_err(), OpenError::NotFound);
    }

    #[test]
    fn a_change_is_seen_after_a_second() {
        let tree = Tree::new("change");
        let mut files = tree.files();
        let first = files.get(b"a.txt", MonoNs(0)).unwrap();
        tree.write("a.txt", b"other content");
        assert_eq!(kept(&files.get(b"a.txt", MonoNs(FRESH_NS - 1)).unwrap()), b"content");
        let second = files.get(b"a.txt", MonoNs(FRESH_NS)).unwrap();
        assert_eq!(kept(&second), b"other content");
        assert_ne!(first.plain.etag, second.plain.etag);
        assert_eq!(files.kept_bytes, b"other content".len());
    }

    #[test]
    fn long_files_stay_open_and_text_is_packed() {
        let tree = Tree::new("long");
        tree.write("long.bin", &vec![7; 100_000]);
        tree.write("page.html", &b"<p>text</p>".repeat(500));
        tree.write("packed.css", &b"p { }".repeat(500));
        tree.write("packed.css.br", b"brotli");
        let mut files = tree.files();
        let long = files.get(b"long.bin", MonoNs(0)).unwrap();
        assert!(matches!(long.plain.body, Body::Open(_)));
        assert_eq!((long.plain.bytes, long.varies()), (100_000, false));
        let page = files.get(b"page.html", MonoNs(0)).unwrap();
        assert!(page.coded(Coding::Gzip).unwrap().bytes < 500);
        assert!(!page.has(Coding::Brotli));
        let packed = files.get(b"packed.css", MonoNs(0)).unwrap();
        assert!(packed.has(Coding::Brotli) && packed.has(Coding::Gzip));
        assert_ne!(packed.coded(Coding::Brotli).unwrap().etag, packed.plain.etag);
    }

    #[test]
    fn what_is_at_hand_is_bounded() {
        let tree = Tree::new("many");
        let mut files = tree.files();
        for number in 0..ENTRIES_MAX + 10 {
            let name = format!("{number}.bin");
            tree.write(&name, &[1; 10]);
            files.get(name.as_bytes(), MonoNs(0)).unwrap();
        }
        assert_eq!(files.entries.len(), ENTRIES_MAX);
        assert_eq!(files.kept_bytes, ENTRIES_MAX * 10);
    }
}
