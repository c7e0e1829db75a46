//! Writes values and files, with the encodings that every version reads.

use std::ops::Deref;

use super::checksum::Checksum;
use super::file::{END, EXPIRES_MS, FACT, SELECT_DB};
use super::payload::put_function;
use super::value::{HASH, LIST, SET, STREAM_LISTPACKS_2, STRING, VALKEY_HASH_2, ZSET_2};
use super::version::Version;

/// The type byte of a value that this program writes; what follows it is in the comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Written {
    /// [`put_string`]
    String = STRING,
    /// [`put_strings`]
    List = LIST,
    /// [`put_strings`]
    Set = SET,
    /// [`put_pairs`]
    Hash = HASH,
    /// [`put_timed_pairs`]; only in what has the version [`Version::WRITTEN_WITH_TIMES`].
    TimedHash = VALKEY_HASH_2,
    /// [`put_scored`]
    ZSet = ZSET_2,
    /// [`put_stream`](super::put_stream)
    Stream = STREAM_LISTPACKS_2,
}

/// Appends a length or a number of elements.
// Source: Redis 7.2 `rdb.c`, `rdbSaveLen`
pub fn put_length(out: &mut Vec<u8>, length: u64) {
    const LONG: u8 = 0x80;
    const LONGER: u8 = 0x81;
    match length {
        0..0x40 => out.push(length.to_le_bytes()[0]),
        0x40..0x4000 => {
            let [low, high, ..] = length.to_le_bytes();
            out.extend_from_slice(&[0x40 | high, low]);
        }
        _ => {
            if let Ok(length) = u32::try_from(length) {
                out.push(LONG);
                out.extend_from_slice(&length.to_be_bytes());
            } else {
                out.push(LONGER);
                out.extend_from_slice(&length.to_be_bytes());
            }
        }
    }
}

/// Appends a string.
// Source: Redis 7.2 `rdb.c`, `rdbSaveRawString`
pub fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    put_length(out, string.len() as u64);
    out.extend_from_slice(string);
}

/// Appends the elements of a list or set. `count`: how many.
// Source: Redis 7.2 `rdb.c`, `rdbSaveObject`
pub fn put_strings<'a>(out: &mut Vec<u8>, count: usize, items: impl Iterator<Item = &'a [u8]>) {
    put_length(out, count as u64);
    items.for_each(|item| put_string(out, item));
}

/// Appends a hash: field, value, field, value ... `count`: of fields.
// Source: Redis 7.2 `rdb.c`, `rdbSaveObject`
pub fn put_pairs<'a>(out: &mut Vec<u8>, count: usize, parts: impl Iterator<Item = &'a [u8]>) {
    put_strings(out, count, parts);
}

/// Appends a hash with the expiry times of its fields. `count`: of fields.
// Source: Valkey 9.0 `rdb.c`, `rdbSaveObject`
pub fn put_timed_pairs<B: Deref<Target = [u8]>>(
    out: &mut Vec<u8>,
    count: usize,
    fields: impl Iterator<Item = (B, B, Option<u64>)>,
) {
    const NEVER: u64 = u64::MAX;
    put_length(out, count as u64);
    for (field, value, expires_unix_ms) in fields {
        put_string(out, &field);
        put_string(out, &value);
        out.extend_from_slice(&expires_unix_ms.unwrap_or(NEVER).to_le_bytes());
    }
}

/// Appends a sorted set.
// Source: Redis 7.2 `rdb.c`, `rdbSaveObject`
pub fn put_scored<'a>(
    out: &mut Vec<u8>,
    count: usize,
    members: impl Iterator<Item = (f64, &'a [u8])>,
) {
    put_length(out, count as u64);
    for (score, member) in members {
        put_string(out, member);
        out.extend_from_slice(&score.to_le_bytes());
    }
}

/// Encodes a file, part by part: the caller takes the bytes whenever there are enough.
#[derive(Debug)]
pub struct FileEncoder {
    out: Vec<u8>,
    checksum: Checksum,
    db: Option<u8>,
}

impl Written {
    /// The version of a payload with a value of this type.
    pub fn version(self) -> Version {
        match self {
            Written::TimedHash => Version::WRITTEN_WITH_TIMES,
            _ => Version::WRITTEN,
        }
    }
}

impl FileEncoder {
    /// Begins with the header.
    // Source: Redis 7.2 `rdb.c`, `rdbSaveRio`
    pub fn new(version: Version) -> FileEncoder {
        let out = version.magic().into_bytes();
        FileEncoder { out, checksum: Checksum::new(), db: None }
    }

    /// Adds a fact about the file; readers ignore unknown facts.
    // Source: Redis 7.2 `rdb.c`, `rdbSaveAuxField`
    pub fn put_fact(&mut self, name: &str, value: &str) {
        self.out.push(FACT);
        put_string(&mut self.out, name.as_bytes());
        put_string(&mut self.out, value.as_bytes());
    }

    /// Adds the source of a library of functions.
    // Source: Redis 7.2 `rdb.c`, `rdbSaveFunctions`
    pub fn put_function(&mut self, source: &[u8]) {
        put_function(&mut self.out, source);
    }

    /// Adds a key up to its value, which the caller appends to the returned buffer.
    // Source: Redis 7.2 `rdb.c`, `rdbSaveKeyValuePair`
    pub fn put_key(
        &mut self,
        db: u8,
        key: &[u8],
        expires_unix_ms: Option<u64>,
        kind: Written,
    ) -> &mut Vec<u8> {
        if self.db.replace(db) != Some(db) {
            self.out.push(SELECT_DB);
            put_length(&mut self.out, u64::from(db));
        }
        if let Some(at) = expires_unix_ms {
            self.out.push(EXPIRES_MS);
            self.out.extend_from_slice(&at.to_le_bytes());
        }
        self.out.push(kind as u8);
        put_string(&mut self.out, key);
        &mut self.out
    }

    /// Bytes that were encoded and not taken.
    pub fn pending_bytes(&self) -> usize {
        self.out.len()
    }

    /// The bytes encoded since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        self.checksum.update(&self.out);
        std::mem::take(&mut self.out)
    }

    /// The rest of the file.
    // Source: Redis 7.2 `rdb.c`, `rdbSaveRio`
    pub fn finish(mut self) -> Vec<u8> {
        self.out.push(END);
        let mut rest = self.take();
        rest.extend_from_slice(&self.checksum.value().to_le_bytes());
        rest
    }
}
