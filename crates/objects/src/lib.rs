//! Files of backups as objects of S3, or of storage that is compatible with it.
//!
//! `myriad` contains this crate when it is built with the feature `s3`. Requests run on one thread
//! of the bucket; its methods block. A request that fails is repeated for half a minute.

mod lock;

use std::error::Error as _;
use std::fmt::{self, Debug, Formatter};
use std::future::Future;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::{Buf as _, Bytes};
use futures_util::stream::{BoxStream, StreamExt as _, TryStreamExt as _};
use nix::sys::signal::SigSet;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::buffered::BufWriter;
use object_store::list::{PaginatedListOptions, PaginatedListStore as _};
use object_store::path::Path;
use object_store::{ObjectStoreExt as _, RetryConfig};
use server::backup::storage::{NewFile, Storage};
use tokio::io::AsyncWriteExt as _;
use tokio::runtime::Runtime;

use lock::Lock;

/// Bytes of a part of an upload. S3 takes up to 10,000 parts, so a file has up to 156 GiB. Some
/// compatible services require that all parts have one size.
const PART_BYTES: usize = 16 << 20;
/// Parts that are sent at a time; as many bytes are in memory.
const PARTS_AT_A_TIME: usize = 2;
/// Time for which a request is repeated. The source of a backup gives up a reader that stops reading
/// for a minute.
const PATIENCE: Duration = Duration::from_secs(30);
/// Limit for the pages of a listing, each of which has up to 1,000 names: of objects, or of
/// prefixes below this one.
const PAGES_MAX: usize = 1000;
/// More than fit into that time, with their pauses.
const RETRIES_MAX: usize = 1000;

/// The objects of a bucket whose names begin with a prefix.
pub struct Bucket {
    runtime: Runtime,
    store: Arc<AmazonS3>,
    prefix: Path,
    address: String,
    lock: Option<Lock>,
}

impl Debug for Bucket {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        // The rest may contain credentials.
        write!(out, "Bucket({})", self.address)
    }
}

impl Bucket {
    /// Opens `s3://BUCKET/PREFIX` for reading. Credentials, region and endpoint are those of the
    /// variables `AWS_...` of the environment, or of the service that the machine runs in.
    pub fn to_read(address: &str) -> anyhow::Result<Bucket> {
        let (bucket, prefix) = parse(address)?;
        // The process may have a provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let retry =
            RetryConfig { retry_timeout: PATIENCE, max_retries: RETRIES_MAX, ..Default::default() };
        let store = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_retry(retry)
            // Used only if the address of the endpoint begins with it.
            .with_allow_http(true)
            .build()
            .with_context(|| format!("could not use {address}"))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("objects")
            // Signals are for the thread that takes the backup.
            .on_thread_start(|| SigSet::all().thread_block().expect("the mask is valid"))
            .enable_all()
            .build()
            .context("could not start a thread")?;
        let prefix = Path::parse(prefix).with_context(|| format!("invalid address {address}"))?;
        let address = address.trim_end_matches('/').to_owned();
        Ok(Bucket { runtime, store: Arc::new(store), prefix, address, lock: None })
    }

    /// The same for writing, by this process alone: an object `LOCK` names it.
    pub fn to_write(address: &str) -> anyhow::Result<Bucket> {
        let mut bucket = Bucket::to_read(address)?;
        let store = Arc::clone(&bucket.store) as _;
        let (path, place) = (bucket.path(lock::NAME), bucket.place(lock::NAME));
        let lock = bucket.wait(lock::take(store, path, place))?;
        bucket.lock = Some(lock);
        Ok(bucket)
    }

    fn path(&self, name: &str) -> Path {
        self.prefix.clone().join(name)
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        if let Some(lock) = self.lock.take()
            && let Err(error) = self.wait(lock.release())
        {
            let place = self.place(lock::NAME);
            // Standard error may be closed.
            let _ = writeln!(io::stderr(), "myriad: could not remove {place}: {error}");
        }
    }
}

/// An error with its cause, once: the texts of its sources repeat each other.
#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes values")]
fn plain(error: object_store::Error) -> io::Error {
    let mut text = error.to_string();
    let mut root = error.source();
    while let Some(next) = root.and_then(std::error::Error::source) {
        root = Some(next);
    }
    if let Some(root) = root.map(ToString::to_string).filter(|root| !text.contains(root)) {
        text = format!("{text}: {root}");
    }
    io::Error::other(text)
}

/// The bucket and the prefix of an address.
fn parse(address: &str) -> anyhow::Result<(&str, &str)> {
    let place = address.strip_prefix("s3://").context("the address of a bucket is s3://BUCKET")?;
    let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
    if bucket.is_empty() {
        bail!("{address} names no bucket: s3://BUCKET/PREFIX");
    }
    Ok((bucket, prefix.trim_matches('/')))
}

impl Storage for Bucket {
    fn place(&self, name: &str) -> String {
        if name.is_empty() { self.address.clone() } else { format!("{}/{name}", self.address) }
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let prefix = match self.prefix.as_ref() {
            "" => None,
            prefix => Some(format!("{prefix}/")),
        };
        let (mut files, mut page_token) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let options = PaginatedListOptions {
                delimiter: Some("/".into()),
                page_token,
                ..PaginatedListOptions::default()
            };
            let page =
                self.wait(self.store.list_paginated(prefix.as_deref(), options)).map_err(plain)?;
            files.extend(
                page.result.objects.into_iter().filter_map(|object| {
                    Some((object.location.filename()?.to_owned(), object.size))
                }),
            );
            page_token = page.page_token;
            if page_token.is_none() {
                return Ok(files);
            }
        }
        Err(io::Error::other(format!(
            "the listing of {} has more than {PAGES_MAX} pages: choose another prefix",
            self.address
        )))
    }

    fn read_at(&self, name: &str, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let end = at + bytes.len() as u64;
        let path = self.path(name);
        let found = self.wait(self.store.get_range(&path, at..end)).map_err(plain)?;
        if found.len() != bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.copy_from_slice(&found);
        Ok(())
    }

    fn open<'s>(&'s self, name: &str) -> io::Result<Box<dyn Read + 's>> {
        let path = self.path(name);
        let found = self.wait(self.store.get(&path)).map_err(plain)?;
        let stream = found.into_stream().map_err(plain).boxed();
        Ok(Box::new(Download { bucket: self, stream, unread: Bytes::new() }))
    }

    fn create<'s>(&'s self, name: &str) -> io::Result<Box<dyn NewFile + 's>> {
        let store = Arc::clone(&self.store);
        let writer = BufWriter::with_capacity(store, self.path(name), PART_BYTES)
            .with_max_concurrency(PARTS_AT_A_TIME);
        Ok(Box::new(Upload { bucket: self, writer, is_open: true }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        self.wait(self.store.delete(&path)).map_err(plain)
    }
}

struct Download<'b> {
    bucket: &'b Bucket,
    stream: BoxStream<'static, io::Result<Bytes>>,
    unread: Bytes,
}

impl Read for Download<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.unread.is_empty() {
            match self.bucket.wait(self.stream.next()) {
                Some(bytes) => self.unread = bytes?,
                None => return Ok(0),
            }
        }
        let length = out.len().min(self.unread.len());
        self.unread.copy_to_slice(&mut out[..length]);
        Ok(length)
    }
}

/// An object that is being written. It exists only when it is complete.
#[derive(Debug)]
struct Upload<'b> {
    bucket: &'b Bucket,
    writer: BufWriter,
    is_open: bool,
}

impl Write for Upload<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Parts of it are sent meanwhile, by the thread of the bucket.
        self.bucket.wait(self.writer.put(Bytes::copy_from_slice(bytes))).map_err(plain)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NewFile for Upload<'_> {
    fn finish(mut self: Box<Self>) -> io::Result<()> {
        if self.bucket.lock.as_ref().is_some_and(Lock::is_lost) {
            return Err(io::Error::other("another process may have taken over the backup"));
        }
        self.is_open = false;
        let ended = self.bucket.wait(self.writer.shutdown());
        // Only errors of its own are not of the store.
        ended.map_err(|error| error.downcast::<object_store::Error>().map_or_else(|own| own, plain))
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        if self.is_open
            && let Err(error) = self.bucket.wait(self.writer.abort()).map_err(plain)
        {
            // Standard error may be closed.
            let place = self.bucket.place("");
            let _ = writeln!(io::stderr(), "myriad: could not end an upload to {place}: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_a_bucket_and_a_prefix() {
        assert_eq!(parse("s3://b").unwrap(), ("b", ""));
        assert_eq!(parse("s3://b/").unwrap(), ("b", ""));
        assert_eq!(parse("s3://b/one/two/").unwrap(), ("b", "one/two"));
        for address in ["s3://", "s3:///a", "b", "S3://b"] {
            assert!(parse(address).is_err(), "{address}");
        }
    }
}
