//! Where a backup is: a directory, or objects of S3 with the feature `s3`.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context as _;
use server::backup::storage::{Directory, Storage};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BackupPlace {
    Directory(PathBuf),
    /// The address of a bucket and a prefix.
    Bucket(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// By this process alone.
    Write,
}

impl From<OsString> for BackupPlace {
    fn from(place: OsString) -> BackupPlace {
        match place.to_str() {
            Some(address) if address.starts_with("s3://") => {
                BackupPlace::Bucket(address.to_owned())
            }
            _ => BackupPlace::Directory(PathBuf::from(place)),
        }
    }
}

impl BackupPlace {
    pub(crate) fn open(&self, access: Access) -> anyhow::Result<Box<dyn Storage>> {
        match self {
            BackupPlace::Directory(path) => {
                let opened = match access {
                    Access::Read => Directory::to_read(path),
                    Access::Write => Directory::to_write(path),
                };
                let opened =
                    opened.with_context(|| format!("could not open {}", path.display()))?;
                Ok(Box::new(opened))
            }
            BackupPlace::Bucket(address) => open_bucket(address, access),
        }
    }
}

#[cfg(feature = "s3")]
fn open_bucket(address: &str, access: Access) -> anyhow::Result<Box<dyn Storage>> {
    let opened = match access {
        Access::Read => objects::Bucket::to_read(address)?,
        Access::Write => objects::Bucket::to_write(address)?,
    };
    Ok(Box::new(opened))
}

#[cfg(not(feature = "s3"))]
fn open_bucket(address: &str, _: Access) -> anyhow::Result<Box<dyn Storage>> {
    anyhow::bail!("could not open {address}: this program was built without the feature s3")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_directory_or_the_address_of_a_bucket() {
        let place = |text: &str| BackupPlace::from(OsString::from(text));
        assert_eq!(place("s3"), BackupPlace::Directory(PathBuf::from("s3")));
        assert_eq!(place("s3://b/p"), BackupPlace::Bucket("s3://b/p".to_owned()));
        let error = place("s3://").open(Access::Read).unwrap_err().to_string();
        let expected = if cfg!(feature = "s3") { "names no bucket" } else { "the feature s3" };
        assert!(error.contains(expected), "{error}");
    }
}
