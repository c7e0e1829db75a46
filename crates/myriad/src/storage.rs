//! Where a backup is: a directory, or objects of S3 with the feature `s3`.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context as _;
use server::backup::storage::{Directory, Storage};

const SCHEME: &str = "s3://";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BackupPlace {
    Directory(PathBuf),
    #[cfg(feature = "s3")]
    Bucket(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// By this process alone.
    Write,
}

impl BackupPlace {
    /// Parses a directory or the address of a bucket.
    pub(crate) fn parse(place: OsString) -> Result<BackupPlace, &'static str> {
        match place.to_str() {
            #[cfg(feature = "s3")]
            Some(address) if address.starts_with(SCHEME) => {
                Ok(BackupPlace::Bucket(address.to_owned()))
            }
            #[cfg(not(feature = "s3"))]
            Some(address) if address.starts_with(SCHEME) => {
                Err("this program was built without the feature s3")
            }
            _ => Ok(BackupPlace::Directory(PathBuf::from(place))),
        }
    }

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
            #[cfg(feature = "s3")]
            BackupPlace::Bucket(address) => {
                let opened = match access {
                    Access::Read => objects::Bucket::to_read(address)?,
                    Access::Write => objects::Bucket::to_write(address)?,
                };
                Ok(Box::new(opened))
            }
        }
    }
}
