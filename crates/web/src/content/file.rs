//! One open file, with its state at the time of opening.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use rustix::fs::{FileType, MemfdFlags, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{Errno, ReadWriteFlags};

use super::encoding::{COMPRESSED_BYTES_MIN, Coding, gzip};
use super::long::LongFile;
use super::media::{self, Media};

/// Maximum size of files whose content is cached in memory.
pub(crate) const KEPT_BYTES_MAX: u64 = 64 * 1024;
/// Maximum size of files that are compressed: a bundle of this size takes a thread 0.2 s, and the
/// result is cached.
const PACKED_BYTES_MAX: u64 = 4 << 20;

/// Reason why a name has no content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenError {
    /// The name does not exist, or is not a regular file.
    NotFound,
    /// The file is not readable, or is outside the root.
    Forbidden,
    /// It is a directory.
    Directory,
    /// Descriptors or memory ran out.
    Overload,
    /// Not available without blocking: it requires disk access. Only returned to callers that must
    /// not block.
    Cold,
}

/// Whether opening a file may block on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// It may block.
    MayBlock,
    /// Only cached data is used; everything else is [`OpenError::Cold`].
    CachedOnly,
}

impl OpenError {
    // Source: openat2(2), open(2), "Errors"
    fn of(error: Errno) -> OpenError {
        match error {
            Errno::ACCESS | Errno::PERM | Errno::XDEV | Errno::LOOP => OpenError::Forbidden,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => OpenError::Overload,
            _ => OpenError::NotFound,
        }
    }

    /// Maps the error of a nonblocking call.
    // Source: openat2(2), RESOLVE_CACHED (EAGAIN; EINVAL before Linux 5.12); readv(2), RWF_NOWAIT
    // (EAGAIN; EOPNOTSUPP where the file system does not support it)
    fn of_nonblocking(error: Errno, look: OpenMode) -> OpenError {
        match (look, error) {
            (OpenMode::CachedOnly, Errno::AGAIN | Errno::INVAL | Errno::OPNOTSUPP) => {
                OpenError::Cold
            }
            _ => OpenError::of(error),
        }
    }
}

/// Storage of the bytes.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    Kept(Arc<[u8]>),
    Open(Arc<LongFile>),
}

/// The bytes of a file, unencoded or in a coding.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    pub(crate) body: Body,
    pub(crate) bytes: u64,
    /// How much of them this program keeps in memory.
    kept_bytes: usize,
    /// Including its quotes.
    pub(crate) etag: String,
}

/// Identifies a version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    inode: u64,
    bytes: u64,
    modified_ns: u128,
}

/// A file with its codings.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) media: Media,
    pub(crate) modified: SystemTime,
    /// `modified` in header format.
    pub(crate) modified_text: String,
    pub(crate) plain: Content,
    codings: Vec<(Coding, Content)>,
    /// Whether [`File::pack`] may add gzip.
    is_packable: bool,
    mark: Mark,
    /// Precompressed files next to it, by coding.
    precompressed: [Option<Mark>; Coding::ALL.len()],
}

impl File {
    /// Opens the file `name` below `root`, and its precompressed variants.
    ///
    /// The kernel resolves the name and refuses every step out of the root, by `..` or by a
    /// symbolic link, during resolution. There is no race between a check and the opening.
    pub(crate) fn open(
        root: &OwnedFd,
        name: &[u8],
        compress: bool,
        look: OpenMode,
    ) -> Result<File, OpenError> {
        let (fd, stat) = open_below(root, name, look)?;
        let media = media::of(name);
        let mark = Mark::of(&stat);
        let plain = Content::read(fd, mark, "", look)?;
        let (mut codings, mut precompressed) = (Vec::new(), [None; Coding::ALL.len()]);
        if media.is_compressible {
            for (coding, precompressed) in Coding::ALL.into_iter().zip(&mut precompressed) {
                if let Some((fd, stat)) = open_precompressed(root, name, coding, look)? {
                    *precompressed = Some(Mark::of(&stat));
                    let content = Content::read(fd, Mark::of(&stat), coding.name(), look)?;
                    codings.push((coding, content));
                }
            }
        }
        let has_gzip = codings.iter().any(|(coding, _)| *coding == Coding::Gzip);
        let is_packable =
            compress && media.is_compressible && !has_gzip && plain.is_worth_packing();
        let modified = mark.modified();
        #[expect(clippy::disallowed_methods, reason = "within the years of headers")]
        let modified_text = httpdate::fmt_http_date(modified);
        Ok(File {
            media,
            modified,
            modified_text,
            plain,
            codings,
            is_packable,
            mark,
            precompressed,
        })
    }

    /// Adds its content in gzip, if that is shorter. Takes as long as a disk access, and a long file
    /// much longer: at most one thread at a time, which holds `long`, compresses one, so that the
    /// others open files. If that is another thread, or the system lacks descriptors or memory, the
    /// file stays as it is, and can be served.
    pub(crate) fn pack(&mut self, long: &Mutex<()>) {
        if !self.is_packable {
            return;
        }
        let _long = match &self.plain.body {
            Body::Kept(_) => None,
            Body::Open(_) => match long.try_lock() {
                Ok(guard) => Some(guard),
                Err(_) => return,
            },
        };
        match self.plain.pack(self.mark.etag("gzip")) {
            Ok(packed) => {
                self.codings.extend(packed.map(|content| (Coding::Gzip, content)));
                self.is_packable = false;
            }
            Err(error) => tracing::warn!(%error, "could not compress a file"),
        }
    }

    /// Whether the name still refers to the same version, with the same precompressed variants.
    pub(crate) fn is_current(
        &self,
        root: &OwnedFd,
        name: &[u8],
        look: OpenMode,
    ) -> Result<bool, OpenError> {
        if !is_same(&open_below(root, name, look), self.mark)? {
            return Ok(false);
        }
        if self.media.is_compressible {
            for (coding, before) in Coding::ALL.into_iter().zip(self.precompressed) {
                let found = open_precompressed(root, name, coding, look)?;
                if found.map(|(_, stat)| Mark::of(&stat)) != before {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    pub(crate) fn has(&self, coding: Coding) -> bool {
        self.coded(coding).is_some()
    }

    /// Whether the bytes depend on the codings that a client accepts.
    pub(crate) fn varies(&self) -> bool {
        self.is_packable || !self.codings.is_empty()
    }

    pub(crate) fn is_packable(&self) -> bool {
        self.is_packable
    }

    pub(crate) fn coded(&self, coding: Coding) -> Option<&Content> {
        self.codings.iter().find(|(found, _)| *found == coding).map(|(_, content)| content)
    }

    /// Returns the number of bytes kept in memory.
    pub(crate) fn kept_bytes(&self) -> usize {
        let contents = std::iter::once(&self.plain).chain(self.codings.iter().map(|(_, one)| one));
        contents.map(|content| content.kept_bytes).sum()
    }
}

impl Content {
    fn read(fd: OwnedFd, mark: Mark, variant: &str, look: OpenMode) -> Result<Content, OpenError> {
        let etag = mark.etag(variant);
        if mark.bytes > KEPT_BYTES_MAX {
            let body = Body::Open(Arc::new(LongFile::new(fd, mark.bytes)));
            return Ok(Content { body, bytes: mark.bytes, kept_bytes: 0, etag });
        }
        let mut bytes = vec![0; usize::try_from(mark.bytes).unwrap_or(0)];
        let mut filled = 0;
        let flags = match look {
            OpenMode::MayBlock => ReadWriteFlags::empty(),
            OpenMode::CachedOnly => ReadWriteFlags::NOWAIT,
        };
        while filled < bytes.len() {
            let mut parts = [IoSliceMut::new(&mut bytes[filled..])];
            match rustix::io::preadv2(&fd, &mut parts, filled as u64, flags) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(OpenError::of_nonblocking(error, look)),
            }
        }
        // The file may have been truncated; the next check detects a new version.
        bytes.truncate(filled);
        Ok(Content::kept(bytes, etag))
    }

    fn kept(bytes: Vec<u8>, etag: String) -> Content {
        let kept_bytes = bytes.len();
        Content { bytes: kept_bytes as u64, kept_bytes, body: Body::Kept(bytes.into()), etag }
    }

    fn is_worth_packing(&self) -> bool {
        (COMPRESSED_BYTES_MIN as u64..=PACKED_BYTES_MAX).contains(&self.bytes)
    }

    /// Compresses the content with gzip; `None` if the result is not shorter.
    fn pack(&self, etag: String) -> rustix::io::Result<Option<Content>> {
        let packed = match &self.body {
            Body::Kept(bytes) => gzip(bytes),
            Body::Open(long) => gzip(&long.read_all()?),
        };
        let Some(packed) = packed else { return Ok(None) };
        if packed.len() as u64 <= KEPT_BYTES_MAX {
            return Ok(Some(Content::kept(packed, etag)));
        }
        // The kernel sends it like any other long file, so it is not copied for each client.
        let file = in_memory_file(&packed)?;
        let (bytes, kept_bytes) = (packed.len() as u64, packed.len());
        let body = Body::Open(Arc::new(LongFile::new(file, bytes)));
        Ok(Some(Content { body, bytes, kept_bytes, etag }))
    }
}

/// Returns a file without a name that the kernel keeps in memory.
fn in_memory_file(mut bytes: &[u8]) -> rustix::io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create("myriad-web-gzip", MemfdFlags::CLOEXEC)?;
    while !bytes.is_empty() {
        match rustix::io::write(&file, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(file)
}

impl Mark {
    #[expect(clippy::cast_sign_loss, reason = "times before 1970 only need to be distinct")]
    fn of(stat: &Stat) -> Mark {
        let seconds = u128::from(stat.st_mtime.max(0) as u64);
        let modified_ns = seconds * 1_000_000_000 + u128::from(stat.st_mtime_nsec);
        Mark { inode: stat.st_ino, bytes: stat.st_size.max(0) as u64, modified_ns }
    }

    fn modified(self) -> SystemTime {
        /// The last second of the year 9999: headers have no later ones.
        const SECONDS_MAX: u64 = 253_402_300_799;
        let seconds = u64::try_from(self.modified_ns / 1_000_000_000).unwrap_or(0);
        // In whole seconds, the resolution of headers.
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.min(SECONDS_MAX))
    }

    fn etag(self, variant: &str) -> String {
        let dash = if variant.is_empty() { "" } else { "-" };
        format!("\"{:x}-{:x}{dash}{variant}\"", self.modified_ns, self.bytes)
    }
}

/// Whether the opened file is this version; an error if this cannot be determined without blocking.
fn is_same(found: &Result<(OwnedFd, Stat), OpenError>, mark: Mark) -> Result<bool, OpenError> {
    match found {
        Ok((_, stat)) => Ok(Mark::of(stat) == mark),
        Err(OpenError::Cold) => Err(OpenError::Cold),
        Err(_) => Ok(false),
    }
}

/// Opens the precompressed variant of `name` in this coding, if it exists and is readable.
fn open_precompressed(
    root: &OwnedFd,
    name: &[u8],
    coding: Coding,
    look: OpenMode,
) -> Result<Option<(OwnedFd, Stat)>, OpenError> {
    match open_below(root, &[name, coding.extension()].concat(), look) {
        Ok(found) => Ok(Some(found)),
        Err(error @ (OpenError::Cold | OpenError::Overload)) => Err(error),
        Err(_) => Ok(None),
    }
}

fn open_below(root: &OwnedFd, name: &[u8], look: OpenMode) -> Result<(OwnedFd, Stat), OpenError> {
    let name = if name.is_empty() { b"." } else { name };
    // NONBLOCK: opening a FIFO in the tree must not block the worker.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    if look == OpenMode::CachedOnly {
        resolve |= ResolveFlags::CACHED;
    }
    let fd = rustix::fs::openat2(root, name, flags, Mode::empty(), resolve)
        .map_err(|error| OpenError::of_nonblocking(error, look))?;
    let stat = rustix::fs::fstat(&fd).map_err(OpenError::of)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok((fd, stat)),
        FileType::Directory => Err(OpenError::Directory),
        _ => Err(OpenError::NotFound),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of this many bytes of text.
    fn text_file(name: &str, bytes: usize) -> File {
        let folder = std::env::temp_dir().join(format!("myriad-web-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("a.txt"), "a".repeat(bytes)).unwrap();
        let root = OwnedFd::from(std::fs::File::open(&folder).unwrap());
        let file = File::open(&root, b"a.txt", true, OpenMode::MayBlock).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        file
    }

    #[test]
    fn a_file_that_cannot_be_compressed_is_served() {
        let mut file = text_file("broken", 100_000);
        let path = std::env::current_exe().unwrap();
        let unreadable = rustix::fs::open(path, OFlags::PATH, Mode::empty()).unwrap();
        file.plain.body = Body::Open(Arc::new(LongFile::new(unreadable, 100_000)));
        file.pack(&Mutex::new(()));
        assert!(!file.has(Coding::Gzip) && file.is_packable() && file.varies());
        assert_eq!(file.plain.bytes, 100_000);
    }

    #[test]
    fn one_long_file_is_compressed_at_a_time() {
        let long = Mutex::new(());
        let (mut longer, mut short) = (text_file("longer", 100_000), text_file("short", 1_000));
        let other = long.lock().unwrap();
        longer.pack(&long);
        short.pack(&long);
        assert!(!longer.has(Coding::Gzip) && short.has(Coding::Gzip));
        drop(other);
        longer.pack(&long);
        assert!(longer.has(Coding::Gzip) && !longer.is_packable());
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "tests its range")]
    fn the_time_of_any_file_fits_a_header() {
        for (modified_ns, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (1_000_000_000, "Thu, 01 Jan 1970 00:00:01 GMT"),
            (253_402_300_800_000_000_000, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (u128::from(u64::MAX) * 1_000_000_000, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            let mark = Mark { inode: 1, bytes: 1, modified_ns };
            assert_eq!(httpdate::fmt_http_date(mark.modified()), text, "{modified_ns}");
        }
    }
}
