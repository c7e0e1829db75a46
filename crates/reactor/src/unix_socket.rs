//! The file of a listening Unix socket.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Bytes of the longest path to which every client can connect. Source: unix(7), `sun_path` with its
/// final zero.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// A file that was made by binding a socket. Dropping it removes the file, unless another file has
/// taken its place.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// Fails if a socket cannot be bound to `path` because another process listens there, or because
/// the file is not a socket. A stale socket file, which no process listens on, is not an obstacle.
pub fn check_socket_path(path: &Path) -> io::Result<()> {
    is_stale(path).map(|_| ())
}

/// Whether `path` is a socket that a process has left behind.
fn is_stale(path: &Path) -> io::Result<bool> {
    let file_type = match path.symlink_metadata() {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if !file_type.is_socket() {
        let text = "the file exists and is not a socket";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    match rustix::net::connect(&socket()?, &SocketAddrUnix::new(path)?) {
        // The second: its queue of connections is full.
        Ok(()) | Err(Errno::AGAIN) => {
            let text = "another process listens on this socket";
            Err(io::Error::new(io::ErrorKind::AddrInUse, text))
        }
        Err(Errno::CONNREFUSED) => Ok(true),
        // Its owner has ended meanwhile, and removed it.
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

impl SocketFile {
    /// Makes a socket that listens on `path`, in place of a stale one. `mode`: permissions of the
    /// file; by default the process's mask applies.
    pub(crate) fn listen(
        path: &Path,
        mode: Option<u32>,
        backlog: i32,
    ) -> io::Result<(OwnedFd, SocketFile)> {
        if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let address = SocketAddrUnix::new(path)?;
        if is_stale(path)? {
            std::fs::remove_file(path)?;
        }
        let socket = socket()?;
        rustix::net::bind(&socket, &address)?;
        let metadata = path.symlink_metadata()?;
        let (device, inode) = (metadata.dev(), metadata.ino());
        let file = SocketFile { path: path.to_owned(), device, inode };
        // No client can connect before the socket listens, so none sees the file with permissions
        // that are too wide.
        if let Some(mode) = mode {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        }
        rustix::net::listen(&socket, backlog)?;
        Ok((socket, file))
    }

    fn is_in_place(&self) -> bool {
        let found = self.path.symlink_metadata();
        found.is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_in_place()
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            let path = self.path.display();
            tracing::warn!(%path, %error, "could not remove the socket file");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    /// A directory that is removed at the end.
    struct Directory(PathBuf);

    impl Directory {
        fn make(name: &str) -> Directory {
            let name = format!("myriad-socket-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir(&path).unwrap();
            Directory(path)
        }

        fn socket(&self) -> PathBuf {
            self.0.join("s")
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_socket_has_its_permissions_and_is_removed_at_the_end() {
        let directory = Directory::make("mode");
        let path = directory.socket();
        let (socket, file) = SocketFile::listen(&path, Some(0o600), 1).unwrap();
        assert_eq!(mode(&path), 0o600);
        UnixStream::connect(&path).unwrap();
        drop((socket, file));
        assert!(!path.exists());
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let directory = Directory::make("stale");
        let path = directory.socket();
        check_socket_path(&path).unwrap();
        let left_behind = UnixListener::bind(&path).unwrap();
        let error = check_socket_path(&path).unwrap_err();
        assert_eq!(error.to_string(), "another process listens on this socket");
        assert_eq!(
            SocketFile::listen(&path, None, 1).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
        drop(left_behind);
        assert!(path.exists());
        let (_socket, _file) = SocketFile::listen(&path, None, 1).unwrap();
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn only_a_socket_is_replaced() {
        let directory = Directory::make("file");
        let path = directory.socket();
        std::fs::write(&path, "data").unwrap();
        let error = SocketFile::listen(&path, None, 1).unwrap_err();
        assert_eq!(error.to_string(), "the file exists and is not a socket");
        assert_eq!(std::fs::read(&path).unwrap(), b"data");
    }

    #[test]
    fn the_file_of_a_successor_stays() {
        let directory = Directory::make("successor");
        let path = directory.socket();
        let first = SocketFile::listen(&path, None, 1).unwrap();
        let moved = directory.0.join("moved");
        std::fs::rename(&path, &moved).unwrap();
        let _second = SocketFile::listen(&path, None, 1).unwrap();
        drop(first);
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn a_path_that_is_too_long_is_refused() {
        let directory = Directory::make("long");
        let bytes = directory.0.as_os_str().len() + 1;
        let of_length = |length: usize| directory.0.join("x".repeat(length - bytes));
        SocketFile::listen(&of_length(SOCKET_PATH_BYTES_MAX), None, 1).unwrap();
        SocketFile::listen(&of_length(SOCKET_PATH_BYTES_MAX + 1), None, 1).unwrap_err();
    }
}
