//! An RDB file of the running server, made part by part while the data changes.
//!
//! Each stripe is copied under its lock, as for a snapshot, and encoded after that: a client waits
//! for a stripe no longer than while a snapshot copies it. So every key is as it was at one moment,
//! but the moments of two stripes differ. A point in time for all of them would need the old values
//! of everything that changes while the file is read, which have no limit.

use std::cell::LazyCell;

use store::{Change, Keyspace, Mutation, Params, STRIPES, SnapshotBlock};
use wire::rdb::{FileEncoder, Version, Written, put_string};

use super::functions;
use super::gate::Gate;
use super::rdb::{put_value, written_type};

/// Bytes of a part, if the file has as many.
const PART_BYTES: usize = 512 * 1024;
/// Buffers that grew beyond this are freed after a stripe with large values.
const BUFFER_BYTES_KEPT: usize = 8 << 20;

/// What a client requested by REPLCONF `rdb-filter-only`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FileContents {
    #[default]
    Everything,
    Functions,
    /// A file without entries.
    Nothing,
}

/// A part of a file.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) bytes: Vec<u8>,
    /// The position of the newest write that the file contains so far.
    pub(crate) gate: Gate,
    pub(crate) is_last: bool,
}

/// Memory for encoding that all files share.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// Holds one collection at a time, to read its elements. Many files need none.
    keyspace: LazyCell<Keyspace>,
    pub(super) block: SnapshotBlock,
}

impl Default for Scratch {
    fn default() -> Scratch {
        let block = SnapshotBlock { stripe: 0, lsn: 0, keys: 0, bytes: Vec::new() };
        Scratch { keyspace: LazyCell::new(|| Keyspace::new(0)), block }
    }
}

/// A file that is being made.
#[derive(Debug)]
pub(crate) struct RdbFile {
    contents: FileContents,
    /// Of the data that it is made of.
    pub(super) data_number: u64,
    /// Of the header.
    version: Version,
    /// `None` when the file is complete.
    encoder: Option<FileEncoder>,
    /// Encoded bytes, and how many of them are parts already.
    bytes: Vec<u8>,
    taken: usize,
    next_stripe: usize,
    gate: Gate,
    /// Follows the file, whose length is unknown in advance.
    mark: Vec<u8>,
    pub(crate) counts: Counts,
}

/// The keys of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) keys: u64,
    /// Keys of types that Redis does not have.
    pub(crate) omitted: u64,
}

/// A hash has fields that expire, for which the version at the beginning of the file has no form:
/// the first of them got its TTL after that.
#[derive(Debug, thiserror::Error)]
#[error("fields of hashes got a TTL after the file began in the form of Redis 7.0")]
pub(crate) struct LateTimes;

/// The oldest version that has a form for all keys.
pub(crate) fn version_for(keyspace: &Keyspace, params: &Params) -> Version {
    if keyspace.has_timed_fields(params.now()) {
        Version::WRITTEN_WITH_TIMES
    } else {
        Version::WRITTEN
    }
}

/// Begins a file: its header and the libraries of functions.
pub(crate) fn begin_file(version: Version, libraries: &[(Vec<u8>, Vec<u8>)]) -> FileEncoder {
    let mut encoder = FileEncoder::new(version);
    encoder.put_fact("redis-bits", "64");
    encoder.put_fact("myriad-ver", env!("CARGO_PKG_VERSION"));
    for (_, source) in libraries {
        encoder.put_function(source);
    }
    encoder
}

impl RdbFile {
    /// `mark`: 40 random bytes, which the client recognizes as the end.
    // Source: Redis 7.2 `replication.c`, `RDB_EOF_MARK_SIZE`
    pub(crate) fn new(contents: FileContents, data_number: u64, mark: &[u8]) -> RdbFile {
        RdbFile {
            contents,
            data_number,
            version: Version::WRITTEN,
            encoder: None,
            bytes: [b"$EOF:", mark, b"\r\n"].concat(),
            taken: 0,
            next_stripe: 0,
            gate: Gate::OPEN,
            mark: mark.to_vec(),
            counts: Counts::default(),
        }
    }

    /// The next bytes: a header, the file and the mark. Reads stripes until there are enough.
    /// `position`: the position of the next write.
    pub(crate) fn next_part(
        &mut self,
        keyspace: &Keyspace,
        params: &Params,
        position: &dyn Fn() -> Gate,
        scratch: &mut Scratch,
    ) -> Result<Part, LateTimes> {
        while self.bytes.len() - self.taken < PART_BYTES && self.next_stripe <= STRIPES {
            self.step(keyspace, params, position, scratch)?;
        }
        let end = self.bytes.len().min(self.taken + PART_BYTES);
        let bytes = self.bytes[self.taken..end].to_vec();
        self.taken = end;
        if self.taken > self.bytes.len() / 2 {
            self.bytes.drain(..self.taken);
            self.bytes.shrink_to(BUFFER_BYTES_KEPT);
            self.taken = 0;
        }
        let is_last = self.next_stripe > STRIPES && self.bytes.is_empty();
        Ok(Part { bytes, gate: self.gate, is_last })
    }

    /// Encodes the beginning with the first stripe, and the end after the last one.
    fn step(
        &mut self,
        keyspace: &Keyspace,
        params: &Params,
        position: &dyn Fn() -> Gate,
        scratch: &mut Scratch,
    ) -> Result<(), LateTimes> {
        let mut encoder = match self.encoder.take() {
            Some(encoder) => encoder,
            None => self.begin(keyspace, params, position),
        };
        if self.contents != FileContents::Everything {
            self.next_stripe = STRIPES;
        }
        if self.next_stripe == STRIPES {
            self.bytes.extend_from_slice(&encoder.finish());
            self.bytes.extend_from_slice(&self.mark);
            self.next_stripe += 1;
            return Ok(());
        }
        let Scratch { keyspace: of_one, block } = scratch;
        keyspace.snapshot_stripe(self.next_stripe, || position().position(), block);
        if block.keys > 0 {
            self.gate = self.gate.max(Gate::from_store(block.lsn));
        }
        let has_times = put_block(&mut encoder, &block.bytes, of_one, params, &mut self.counts);
        if has_times && self.version != Version::WRITTEN_WITH_TIMES {
            return Err(LateTimes);
        }
        block.bytes.clear();
        block.bytes.shrink_to(BUFFER_BYTES_KEPT);
        self.bytes.extend_from_slice(&encoder.take());
        self.next_stripe += 1;
        self.encoder = Some(encoder);
        Ok(())
    }

    fn begin(
        &mut self,
        keyspace: &Keyspace,
        params: &Params,
        position: &dyn Fn() -> Gate,
    ) -> FileEncoder {
        if self.contents == FileContents::Nothing {
            return begin_file(self.version, &[]);
        }
        let libraries = functions::stored(keyspace, params);
        if !libraries.is_empty() {
            self.gate = position();
        }
        if self.contents == FileContents::Everything {
            self.version = version_for(keyspace, params);
        }
        begin_file(self.version, &libraries)
    }
}

/// Encodes the keys of a stripe that have not expired, and counts them. Returns whether a field of
/// a hash expires.
fn put_block(
    encoder: &mut FileEncoder,
    mut block: &[u8],
    scratch: &Keyspace,
    params: &Params,
    counts: &mut Counts,
) -> bool {
    let mut has_times = false;
    while !block.is_empty() {
        let mutation = Mutation::decode(&mut block, |bytes| scratch.hash(bytes));
        let mutation = mutation.expect("a stripe encodes itself as mutations");
        let Mutation::Key { db, key, change } = mutation else { continue };
        let (Change::Set { expiry, .. } | Change::Put { expiry, .. }) = change else { continue };
        if expiry.is_some_and(|at| at <= params.now()) {
            continue;
        }
        let expires_unix_ms = expiry.map(|at| at.0);
        let change = match change {
            Change::Set { value, .. } => {
                let out = encoder.put_key(db, key.bytes, expires_unix_ms, Written::String);
                put_string(out, value);
                counts.keys += 1;
                continue;
            }
            Change::Put { kind, encoded, .. } => Change::Put { kind, encoded, expiry: None },
            other => other,
        };
        let apply = |change| {
            let applied = scratch.replay(&Mutation::Key { db, key, change }, params, |_| false);
            applied.expect("a stripe encodes valid values");
        };
        apply(change);
        if let Some(value) = scratch.lock_one(key.hash, params).get(db, key) {
            if let Some(kind) = written_type(&value) {
                has_times |= kind == Written::TimedHash;
                put_value(encoder.put_key(db, key.bytes, expires_unix_ms, kind), &value);
                counts.keys += 1;
            } else {
                counts.omitted += 1;
            }
        }
        apply(Change::Delete);
    }
    has_times
}
