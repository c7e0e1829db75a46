//! A cache of the files below a root.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use base::time::MonoNs;
use foldhash::fast::RandomState;
use indexmap::IndexMap;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::file::{File, OpenError, OpenMode};

/// A cached file is checked again after this time.
const FRESH_NS: u64 = 1_000_000_000;
/// Maximum number of cached files, each with up to four descriptors.
const ENTRIES_MAX: usize = 1024;
/// Memory limit for contents, per worker.
const KEPT_BYTES_MAX: usize = 64 << 20;

#[derive(Debug)]
struct Entry {
    file: Arc<File>,
    looked_at: MonoNs,
}

/// What a client waits for: work on a file that may block.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Lookup {
    pub(crate) name: Vec<u8>,
    /// Whether the file is also compressed.
    pub(crate) packs: bool,
}

/// Opens files, and blocks for the disk if necessary.
#[derive(Debug, Clone)]
pub(crate) struct Opener {
    root: Arc<OwnedFd>,
    compress: bool,
    /// See [`File::pack`].
    long: Arc<Mutex<()>>,
}

impl Opener {
    pub(crate) fn open(&self, lookup: &Lookup) -> Result<Arc<File>, OpenError> {
        let mut file = File::open(&self.root, &lookup.name, self.compress, OpenMode::MayBlock)?;
        if lookup.packs {
            file.pack(&self.long);
        }
        Ok(Arc::new(file))
    }
}

/// Opens the directory whose files are served.
pub(crate) fn open_root(root: &Path) -> anyhow::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(root, flags, Mode::empty())
        .with_context(|| format!("root: could not open directory {}", root.display()))?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(&fd, ".", flags, Mode::empty(), resolve)
        .context("root: could not use openat2, which requires Linux 5.6")?;
    Ok(fd)
}

/// Opens files and caches recent ones: the content of short files, the descriptors of others.
///
/// A file that was served within the last second costs no system call. Data in the page cache is
/// opened immediately; the rest is [`OpenError::Cold`], for an [`Opener`] on another thread.
#[derive(Debug)]
pub(crate) struct Files {
    root: Arc<OwnedFd>,
    compress: bool,
    long: Arc<Mutex<()>>,
    entries: IndexMap<Vec<u8>, Entry, RandomState>,
    kept_bytes: usize,
    /// Position of the next eviction.
    hand: usize,
    hits: u64,
    misses: u64,
}

/// Size and hit rate of a file cache.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CacheStats {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

impl Files {
    /// Creates a cache for the files below `root`, which [`open_root`] has opened.
    pub(crate) fn below(root: OwnedFd, compress: bool) -> Files {
        let entries = IndexMap::with_hasher(RandomState::default());
        Files {
            root: Arc::new(root),
            compress,
            long: Arc::default(),
            entries,
            kept_bytes: 0,
            hand: 0,
            hits: 0,
            misses: 0,
        }
    }

    /// Returns the file of this name, at most a second old, if this is possible without blocking.
    pub(crate) fn cached(&mut self, name: &[u8], now: MonoNs) -> Result<Arc<File>, OpenError> {
        if let Some(entry) = self.entries.get_mut(name) {
            if now.since(entry.looked_at) < FRESH_NS {
                self.hits += 1;
                return Ok(Arc::clone(&entry.file));
            }
            if entry.file.is_current(&self.root, name, OpenMode::CachedOnly)? {
                entry.looked_at = now;
                self.hits += 1;
                return Ok(Arc::clone(&entry.file));
            }
            self.forget(name);
        }
        self.misses += 1;
        let opened = match File::open(&self.root, name, self.compress, OpenMode::CachedOnly) {
            Err(OpenError::Overload) if !self.entries.is_empty() => {
                // Descriptors are exhausted: free those of the cache.
                self.entries.clear();
                self.kept_bytes = 0;
                File::open(&self.root, name, self.compress, OpenMode::CachedOnly)
            }
            opened => opened,
        };
        let file = Arc::new(opened?);
        self.keep(name, &file, now);
        Ok(file)
    }

    pub(crate) fn stats(&self) -> CacheStats {
        let (files, bytes) = (self.entries.len() as u64, self.kept_bytes as u64);
        CacheStats { hits: self.hits, misses: self.misses, files, bytes }
    }

    pub(crate) fn opener(&self) -> Opener {
        Opener {
            root: Arc::clone(&self.root),
            compress: self.compress,
            long: Arc::clone(&self.long),
        }
    }

    /// Replaces a cached file with the result of an [`Opener`].
    pub(crate) fn take(&mut self, name: &[u8], opened: &Result<Arc<File>, OpenError>, now: MonoNs) {
        self.forget(name);
        match opened {
            Ok(file) => self.keep(name, file, now),
            // Descriptors are exhausted: free those of the cache.
            Err(OpenError::Overload) => {
                self.entries.clear();
                self.kept_bytes = 0;
            }
            Err(_) => {}
        }
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

    /// A root with a sibling that must not be accessible.
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
            Files::below(open_root(&self.folder.join("root")).unwrap(), true)
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

    fn get(files: &mut Files, name: &str, now: MonoNs) -> Result<Arc<File>, OpenError> {
        match files.cached(name.as_bytes(), now) {
            Err(OpenError::Cold) => open(files, name, false, now),
            found => found,
        }
    }

    /// Opens a file as another thread does.
    fn open(
        files: &mut Files,
        name: &str,
        packs: bool,
        now: MonoNs,
    ) -> Result<Arc<File>, OpenError> {
        let opened = files.opener().open(&Lookup { name: name.into(), packs });
        files.take(name.as_bytes(), &opened, now);
        opened
    }

    fn found(files: &mut Files, name: &str, now: MonoNs) -> Arc<File> {
        get(files, name, now).unwrap()
    }

    fn packed(files: &mut Files, name: &str) -> Arc<File> {
        open(files, name, true, MonoNs(0)).unwrap()
    }

    #[track_caller]
    fn check_error(files: &mut Files, name: &str, expected: OpenError) {
        assert_eq!(get(files, name, MonoNs(0)).unwrap_err(), expected, "{name}");
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
            check_error(&mut files, name, OpenError::Forbidden);
        }
        assert_eq!(kept(&found(&mut files, "inside.txt", MonoNs(0))), b"content");
        check_error(&mut files, "none.txt", OpenError::NotFound);
        check_error(&mut files, "sub", OpenError::Directory);
        check_error(&mut files, "", OpenError::Directory);
        check_error(&mut files, "a.txt/b", OpenError::NotFound);
    }

    #[test]
    fn a_change_is_detected_after_a_second() {
        let tree = Tree::new("change");
        let mut files = tree.files();
        let first = found(&mut files, "a.txt", MonoNs(0));
        tree.write("a.txt", b"other content");
        assert_eq!(kept(&found(&mut files, "a.txt", MonoNs(FRESH_NS - 1))), b"content");
        let second = found(&mut files, "a.txt", MonoNs(FRESH_NS));
        assert_eq!(kept(&second), b"other content");
        assert_ne!(first.plain.etag, second.plain.etag);
        assert_eq!(files.kept_bytes, b"other content".len());
    }

    /// A site is replaced file by file: precompressed variants may change after the file itself.
    #[test]
    fn a_change_of_a_precompressed_file_is_detected() {
        let tree = Tree::new("beside");
        let mut files = tree.files();
        let brotli = |files: &mut Files, now| {
            let file = found(files, "a.txt", now);
            file.coded(Coding::Brotli).map(|content| match &content.body {
                Body::Kept(bytes) => bytes.to_vec(),
                Body::Open(_) => panic!("not kept"),
            })
        };
        assert_eq!(brotli(&mut files, MonoNs(0)), None);
        tree.write("a.txt.br", b"packed");
        assert_eq!(brotli(&mut files, MonoNs(FRESH_NS)).unwrap(), b"packed");
        tree.write("a.txt.br", b"packed anew");
        assert_eq!(brotli(&mut files, MonoNs(2 * FRESH_NS)).unwrap(), b"packed anew");
        fs::remove_file(tree.folder.join("root/a.txt.br")).unwrap();
        assert_eq!(brotli(&mut files, MonoNs(3 * FRESH_NS)), None);
    }

    #[test]
    fn files_are_compressed_when_a_client_accepts_it() {
        let tree = Tree::new("cold");
        tree.write("page.html", &b"<p>text</p>".repeat(500));
        let mut files = tree.files();
        let plain = found(&mut files, "page.html", MonoNs(0));
        assert!(plain.is_packable() && plain.varies() && !plain.has(Coding::Gzip));
        assert!(packed(&mut files, "page.html").has(Coding::Gzip));
        let cached = files.cached(b"page.html", MonoNs(FRESH_NS - 1)).unwrap();
        assert!(cached.has(Coding::Gzip) && !cached.is_packable());
    }

    #[test]
    fn long_files_stay_open_and_text_is_packed() {
        let tree = Tree::new("long");
        tree.write("long.bin", &vec![7; 100_000]);
        tree.write("page.html", &b"<p>text</p>".repeat(500));
        tree.write("packed.css", &b"p { }".repeat(500));
        tree.write("packed.css.br", b"brotli");
        let mut files = tree.files();
        let long = found(&mut files, "long.bin", MonoNs(0));
        assert!(matches!(long.plain.body, Body::Open(_)));
        assert_eq!((long.plain.bytes, long.varies()), (100_000, false));
        let page = packed(&mut files, "page.html");
        assert!(page.coded(Coding::Gzip).unwrap().bytes < 500);
        assert!(!page.has(Coding::Brotli));
        let both = packed(&mut files, "packed.css");
        assert!(both.has(Coding::Brotli) && both.has(Coding::Gzip));
        assert_ne!(both.coded(Coding::Brotli).unwrap().etag, both.plain.etag);
    }

    /// A bundle of an ordinary application.
    #[test]
    fn long_text_is_packed_once_and_counted() {
        let tree = Tree::new("bundle");
        let bundle: Vec<u8> = (0..60_000_u32)
            .flat_map(|number| format!("f{};", number.wrapping_mul(2_654_435_761)).into_bytes())
            .collect();
        assert!(bundle.len() > 500_000);
        tree.write("bundle.js", &bundle);
        tree.write("huge.js", &bundle.repeat(8));
        let mut files = tree.files();
        let file = packed(&mut files, "bundle.js");
        let content = file.coded(Coding::Gzip).unwrap();
        assert!(content.bytes < 400_000, "{}", content.bytes);
        let Body::Open(long) = &content.body else { panic!("it is copied for each client") };
        let mut unpacked = Vec::new();
        let packed_bytes = long.read_all().unwrap();
        let mut decoder = flate2::read::GzDecoder::new(packed_bytes.as_slice());
        std::io::Read::read_to_end(&mut decoder, &mut unpacked).unwrap();
        assert!(unpacked == bundle);
        assert_eq!(files.kept_bytes, packed_bytes.len());
        let again = files.cached(b"bundle.js", MonoNs(FRESH_NS - 1)).unwrap();
        assert!(again.has(Coding::Gzip));
        assert!(!packed(&mut files, "huge.js").varies(), "above 4 MiB");
    }

    #[test]
    fn the_cache_is_bounded() {
        let tree = Tree::new("many");
        let mut files = tree.files();
        for number in 0..ENTRIES_MAX + 10 {
            let name = format!("{number}.bin");
            tree.write(&name, &[1; 10]);
            found(&mut files, &name, MonoNs(0));
        }
        assert_eq!(files.entries.len(), ENTRIES_MAX);
        assert_eq!(files.kept_bytes, ENTRIES_MAX * 10);
    }
}
