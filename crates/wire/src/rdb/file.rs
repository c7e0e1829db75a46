//! Files: a header, then operations until the end.

use std::io::Read;

use super::error::RdbError;
use super::input::{Input, Limits};
use super::payload::end_payload;
use super::value::{Value, module_name, read_value, skip_module};
use super::version::Version;

/// A key with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub db: u64,
    pub key: Vec<u8>,
    pub value: Value,
    pub expires_unix_ms: Option<u64>,
    /// Seconds since the last access, if the writer evicted by that.
    pub idle_s: Option<u64>,
    /// Access counter, if the writer evicted by that.
    pub frequency: Option<u8>,
}

/// What a file has one after another.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// A fact about the file, such as `redis-ver`.
    Fact {
        name: Vec<u8>,
        value: Vec<u8>,
    },
    Entry(Box<Entry>),
    /// The source of a library of functions.
    Function(Vec<u8>),
    /// Data of a module that belongs to no key, which was skipped.
    ModuleData(String),
}

// Source: Redis 7.2 `rdb.h`, `RDB_OPCODE_*`; Valkey 9.0 `rdb.h` for those below 245
const SLOT_IMPORT: u8 = 243;
const SLOT_INFO: u8 = 244;
pub(super) const FUNCTION_2: u8 = 245;
pub(super) const FUNCTION_PRE_GA: u8 = 246;
const MODULE_AUX: u8 = 247;
const IDLE: u8 = 248;
const FREQUENCY: u8 = 249;
pub(super) const FACT: u8 = 250;
const RESIZE_DB: u8 = 251;
pub(super) const EXPIRES_MS: u8 = 252;
const EXPIRES_S: u8 = 253;
pub(super) const SELECT_DB: u8 = 254;
pub(super) const END: u8 = 255;

/// Capacity that the buffer of a payload keeps for the next one.
const PAYLOAD_BYTES_KEPT: usize = 1 << 20;

/// Reads a file, item by item. Memory: one value.
#[derive(Debug)]
pub struct FileReader<R> {
    input: Input<R>,
    version: Version,
    db: u64,
    is_ended: bool,
    limits: Limits,
    keeps_payloads: bool,
    payload: Vec<u8>,
    unread_key: Option<Vec<u8>>,
}

impl<R: Read> FileReader<R> {
    /// Reads the header. No byte beyond the end of the file's content will be read from `from`.
    // Source: Redis 7.2 `rdb.c`, `rdbLoadRioWithLoadingCtx`; Valkey 9.0 for the second magic
    pub fn new(from: R) -> Result<FileReader<R>, RdbError> {
        let mut input = Input::new(from);
        let header: [u8; 9] = input.array().map_err(|error| match error {
            RdbError::Truncated { .. } => RdbError::NoHeader,
            other => other,
        })?;
        let (magic, digits) = if header.starts_with(b"REDIS") {
            ("REDIS", &header[5..])
        } else if header.starts_with(b"VALKEY") {
            ("VALKEY", &header[6..])
        } else {
            return Err(RdbError::NoHeader);
        };
        let digits = std::str::from_utf8(digits).map_err(|_| RdbError::NoHeader)?;
        let number: u32 = digits.parse().map_err(|_| RdbError::NoHeader)?;
        let version = u16::try_from(number).ok().and_then(Version::of_number);
        let version = version.filter(|version| version.is_valkey() == (magic == "VALKEY"));
        let version = version.ok_or(RdbError::UnknownVersion { magic, number })?;
        Ok(FileReader {
            input,
            version,
            db: 0,
            is_ended: false,
            limits: Limits::NONE,
            keeps_payloads: false,
            payload: Vec::new(),
            unread_key: None,
        })
    }

    /// Limits each item: a key together with its value.
    #[must_use]
    pub fn limited(self, limits: Limits) -> FileReader<R> {
        FileReader { limits, ..self }
    }

    /// Keeps the bytes of each value, for [`FileReader::payload`].
    #[must_use]
    pub fn keeping_payloads(self) -> FileReader<R> {
        FileReader { keeps_payloads: true, ..self }
    }

    /// The value of the last entry as DUMP returns it.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The key whose value could not be read.
    pub fn unread_key(&self) -> Option<&[u8]> {
        self.unread_key.as_deref()
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// Bytes read so far.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// The next item. `None`: the end, and the checksum is right.
    // Source: Redis 7.2 `rdb.c`, `rdbLoadRioWithLoadingCtx`
    pub fn read_item(&mut self) -> Result<Option<Item>, RdbError> {
        if self.is_ended {
            return Ok(None);
        }
        self.input.limit(self.limits);
        let (mut expires_unix_ms, mut idle_s, mut frequency) = (None, None, None);
        loop {
            let input = &mut self.input;
            match input.byte()? {
                EXPIRES_S => {
                    let seconds = i32::from_le_bytes(input.array()?);
                    let seconds = u64::try_from(seconds).unwrap_or(0);
                    expires_unix_ms = Some(seconds * 1000);
                }
                EXPIRES_MS => {
                    let at = input.time_ms()?;
                    // Before 1970 is before now.
                    expires_unix_ms = Some(if at.cast_signed() < 0 { 0 } else { at });
                }
                IDLE => idle_s = Some(input.number()?),
                FREQUENCY => frequency = Some(input.byte()?),
                SELECT_DB => self.db = input.number()?,
                RESIZE_DB => drop((input.number()?, input.number()?)),
                SLOT_INFO => drop((input.number()?, input.number()?, input.number()?)),
                SLOT_IMPORT if self.version.is_valkey() => self.skip_slot_import()?,
                FACT => {
                    let (name, value) = (input.owned_string()?, input.owned_string()?);
                    return Ok(Some(Item::Fact { name, value }));
                }
                FUNCTION_2 => return Ok(Some(Item::Function(input.owned_string()?))),
                FUNCTION_PRE_GA => {
                    let what = "a function of a release candidate of Redis 7.0".to_owned();
                    return Err(input.unsupported(what));
                }
                MODULE_AUX => {
                    let id = input.number()?;
                    let (_opcode, _when) = (input.number()?, input.number()?);
                    skip_module(input)?;
                    return Ok(Some(Item::ModuleData(module_name(id))));
                }
                END => {
                    self.check_end()?;
                    self.is_ended = true;
                    return Ok(None);
                }
                kind @ 30.. => {
                    let what = "of a newer server, or of another product such as Redis Enterprise";
                    return Err(input.unsupported(format!("operation {kind} {what}")));
                }
                kind => {
                    let db = self.db;
                    let key = input.owned_string()?;
                    let value = match self.read_value(kind) {
                        Ok(value) => value,
                        Err(error) => {
                            self.unread_key = Some(key);
                            return Err(error);
                        }
                    };
                    let entry = Entry { db, key, value, expires_unix_ms, idle_s, frequency };
                    return Ok(Some(Item::Entry(Box::new(entry))));
                }
            }
        }
    }

    fn read_value(&mut self, kind: u8) -> Result<Value, RdbError> {
        if !self.keeps_payloads {
            return read_value(&mut self.input, kind, self.version);
        }
        let mut copy = std::mem::take(&mut self.payload);
        copy.clear();
        copy.shrink_to(PAYLOAD_BYTES_KEPT);
        copy.push(kind);
        self.input.begin_copy(copy);
        let value = read_value(&mut self.input, kind, self.version);
        self.payload = self.input.end_copy();
        end_payload(&mut self.payload, self.version);
        value
    }

    // Source: Valkey 9.0 `cluster_migrateslots.c`, `clusterRDBLoadSlotImport`
    fn skip_slot_import(&mut self) -> Result<(), RdbError> {
        self.input.owned_string()?;
        for _ in 0..self.input.number()? {
            self.input.number()?;
            self.input.number()?;
        }
        Ok(())
    }

    fn check_end(&mut self) -> Result<(), RdbError> {
        if !self.version.has_checksum() {
            return Ok(());
        }
        let computed = self.input.checksum();
        let written = u64::from_le_bytes(self.input.array()?);
        // Zero: the writer computed none (`rdbchecksum no`).
        if written == 0 || written == computed { Ok(()) } else { Err(RdbError::WrongChecksum) }
    }
}
