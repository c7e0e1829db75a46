//! Decoder of requests.

use super::envelope::{self, Flags, Opcode, Version};
use super::limits::{MalformedBody, TooLong};
use super::notation::{BytesMap, Encoded, Notation as _, Reader, Value};

type Result<T> = std::result::Result<T, MalformedBody>;

/// A request, borrowed from its body.
#[derive(Debug, Clone, PartialEq)]
pub enum Request<'a> {
    /// The first request of a connection, with its options.
    Startup(Vec<(&'a str, &'a str)>),
    Options,
    Query {
        statement: &'a str,
        parameters: Parameters<'a>,
    },
    Prepare {
        statement: &'a str,
        /// Version 5 on.
        keyspace: Option<&'a str>,
    },
    Execute {
        id: &'a [u8],
        /// Version 5 on: identifies the result metadata that the client has.
        result_metadata_id: Option<&'a [u8]>,
        parameters: Parameters<'a>,
    },
    Batch(Batch<'a>),
    /// The kinds of events that the client subscribes to.
    Register(Vec<&'a str>),
    AuthResponse(Option<&'a [u8]>),
}

/// How many replicas must acknowledge.
// Source: native_protocol_v5.spec 3 "[consistency]"
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Consistency {
    Any = 0,
    One = 1,
    Two = 2,
    Three = 3,
    Quorum = 4,
    All = 5,
    LocalQuorum = 6,
    EachQuorum = 7,
    Serial = 8,
    LocalSerial = 9,
    LocalOne = 10,
}

impl Consistency {
    const ALL_LEVELS: [Self; 11] = [
        Self::Any,
        Self::One,
        Self::Two,
        Self::Three,
        Self::Quorum,
        Self::All,
        Self::LocalQuorum,
        Self::EachQuorum,
        Self::Serial,
        Self::LocalSerial,
        Self::LocalOne,
    ];

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let code = reader.short()?;
        let found = Self::ALL_LEVELS.get(usize::from(code));
        found.copied().ok_or(MalformedBody::UnknownConsistency(code))
    }
}

/// Parameters of a statement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters<'a> {
    pub consistency: Consistency,
    pub values: Values<'a>,
    /// Whether the client already has the metadata of the result.
    pub skip_metadata: bool,
    /// Rows per page.
    pub page_size: Option<i32>,
    /// Position where the last page ended.
    pub paging_state: Option<&'a [u8]>,
    pub serial_consistency: Option<Consistency>,
    /// Microseconds since the Unix epoch.
    pub timestamp: Option<i64>,
    /// Version 5 on.
    pub keyspace: Option<&'a str>,
    /// Version 5 on: the time that expiry is computed from.
    pub now_in_seconds: Option<i32>,
}

impl Parameters<'_> {
    /// Without values, and with an unpaged result.
    pub fn new(consistency: Consistency) -> Self {
        Parameters {
            consistency,
            values: Values::default(),
            skip_metadata: false,
            page_size: None,
            paging_state: None,
            serial_consistency: None,
            timestamp: None,
            keyspace: None,
            now_in_seconds: None,
        }
    }
}

/// The values of a statement. They were checked when the request was decoded, and are read again,
/// without a copy, by the code that binds them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Values<'a> {
    bytes: &'a [u8],
    count: u16,
    named: bool,
    /// In version 3 every negative length is null; "unset" does not exist.
    has_null_only: bool,
}

impl<'a> Values<'a> {
    fn read(reader: &mut Reader<'a>, named: bool, version: Version) -> Result<Self> {
        let count = reader.short()?;
        let has_null_only = version == Version::V3;
        let before = reader.rest();
        for _ in 0..count {
            if named {
                reader.string()?;
            }
            read_value(reader, has_null_only)?;
        }
        let bytes = &before[..before.len() - reader.rest().len()];
        Ok(Values { bytes, count, named, has_null_only })
    }

    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the values have the names of their markers.
    pub fn are_named(&self) -> bool {
        self.named
    }

    /// The values with their names, if they have names.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&'a str>, Value<'a>)> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        let Values { named, has_null_only, .. } = *self;
        (0..self.count).map(move |_| {
            let name = named.then(|| reader.string().expect("was checked"));
            (name, read_value(&mut reader, has_null_only).expect("was checked"))
        })
    }
}

/// Values of a statement from a source other than a CQL request.
#[derive(Debug, Clone, Default)]
pub struct OwnedValues {
    bytes: Vec<u8>,
    count: u16,
}

impl OwnedValues {
    /// Adds the value of the next marker; none: null.
    pub fn push(&mut self, value: Option<&[u8]>) -> Encoded {
        let count = usize::from(self.count) + 1;
        self.count = u16::try_from(count).map_err(|_| TooLong { count, bits: 16 })?;
        self.bytes.put_value(value.map_or(Value::Null, Value::Bytes))
    }

    pub fn as_values(&self) -> Values<'_> {
        let OwnedValues { bytes, count } = self;
        Values { bytes, count: *count, named: false, has_null_only: false }
    }

    /// Memory used, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

fn read_value<'a>(reader: &mut Reader<'a>, has_null_only: bool) -> Result<Value<'a>> {
    if has_null_only {
        return Ok(reader.bytes()?.map_or(Value::Null, Value::Bytes));
    }
    reader.value()
}

/// Statements that are executed together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Batch<'a> {
    pub kind: BatchKind,
    pub statements: Statements<'a>,
    pub consistency: Consistency,
    pub serial_consistency: Option<Consistency>,
    pub timestamp: Option<i64>,
    pub keyspace: Option<&'a str>,
    pub now_in_seconds: Option<i32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum BatchKind {
    Logged = 0,
    Unlogged = 1,
    Counter = 2,
}

/// The statements of a batch, checked when the request was decoded.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Statements<'a> {
    bytes: &'a [u8],
    count: u16,
    version: Option<Version>,
}

/// One statement of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BatchStatement<'a> {
    Text(&'a str),
    Prepared(&'a [u8]),
}

impl<'a> Statements<'a> {
    fn read(reader: &mut Reader<'a>, version: Version) -> Result<Self> {
        let count = reader.short()?;
        let before = reader.rest();
        for _ in 0..count {
            read_statement(reader, version)?;
        }
        let bytes = &before[..before.len() - reader.rest().len()];
        Ok(Statements { bytes, count, version: Some(version) })
    }

    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = (BatchStatement<'a>, Values<'a>)> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        let version = self.version.unwrap_or(Version::GREATEST);
        (0..self.count).map(move |_| read_statement(&mut reader, version).expect("was checked"))
    }
}

fn read_statement<'a>(
    reader: &mut Reader<'a>,
    version: Version,
) -> Result<(BatchStatement<'a>, Values<'a>)> {
    let statement = match reader.byte()? {
        0 => BatchStatement::Text(reader.long_string()?),
        1 => BatchStatement::Prepared(reader.short_bytes()?),
        other => return Err(MalformedBody::UnknownStatementKind(other)),
    };
    Ok((statement, Values::read(reader, false, version)?))
}

// Source: native_protocol_v5.spec 4.1.4 "QUERY", flags
pub(super) const VALUES: u32 = 0x01;
pub(super) const SKIP_METADATA: u32 = 0x02;
pub(super) const PAGE_SIZE: u32 = 0x04;
pub(super) const PAGING_STATE: u32 = 0x08;
pub(super) const SERIAL_CONSISTENCY: u32 = 0x10;
pub(super) const TIMESTAMP: u32 = 0x20;
pub(super) const NAMES: u32 = 0x40;
pub(super) const KEYSPACE: u32 = 0x80;
pub(super) const NOW_IN_SECONDS: u32 = 0x100;

/// Fields before the request in a body.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extras<'a> {
    /// Names and values that this protocol does not interpret.
    pub custom_payload: BytesMap<'a>,
}

/// Decodes a body, already decompressed.
// Source: native_protocol_v5.spec 4.1 "Requests"
pub fn decode_request<'a>(
    header: &envelope::Header,
    body: &'a [u8],
) -> Result<(Request<'a>, Extras<'a>)> {
    let version = header.version;
    let mut reader = Reader::new(body);
    let mut extras = Extras::default();
    if header.flags.has(Flags::CUSTOM_PAYLOAD) {
        extras.custom_payload = reader.bytes_map()?;
    }
    let request = match Opcode::from_byte(header.opcode)? {
        Opcode::Startup => Request::Startup(reader.string_map()?),
        Opcode::Options => Request::Options,
        Opcode::Query => Request::Query {
            statement: reader.long_string()?,
            parameters: Parameters::read(&mut reader, version)?,
        },
        Opcode::Prepare => read_prepare(&mut reader, version)?,
        Opcode::Execute => Request::Execute {
            id: reader.short_bytes()?,
            result_metadata_id: match version {
                Version::V5 => Some(reader.short_bytes()?),
                Version::V3 | Version::V4 => None,
            },
            parameters: Parameters::read(&mut reader, version)?,
        },
        Opcode::Batch => Request::Batch(Batch::read(&mut reader, version)?),
        Opcode::Register => Request::Register(reader.string_list()?),
        Opcode::AuthResponse => Request::AuthResponse(reader.bytes()?),
        _ => return Err(MalformedBody::WrongSide),
    };
    // Bytes after the body are ignored, and so are flags that no version defines.
    // Source: Cassandra 5.0.9, QueryMessage.codec, QueryOptions.Codec.decode: they are not read
    Ok((request, extras))
}

fn read_flags(reader: &mut Reader<'_>, version: Version) -> Result<u32> {
    Ok(match version {
        Version::V5 => u32::from_be_bytes(reader.int()?.to_be_bytes()),
        // Flags that exist only in version 5 are ignored here.
        Version::V3 | Version::V4 => u32::from(reader.byte()?) & !KEYSPACE,
    })
}

fn read_prepare<'a>(reader: &mut Reader<'a>, version: Version) -> Result<Request<'a>> {
    let statement = reader.long_string()?;
    let mut keyspace = None;
    if version == Version::V5 {
        let flags = u32::from_be_bytes(reader.int()?.to_be_bytes());
        if flags & 1 != 0 {
            keyspace = Some(reader.string()?);
        }
    }
    Ok(Request::Prepare { statement, keyspace })
}

impl<'a> Parameters<'a> {
    fn read(reader: &mut Reader<'a>, version: Version) -> Result<Self> {
        let mut parameters = Parameters::new(Consistency::read(reader)?);
        let flags = read_flags(reader, version)?;
        parameters.skip_metadata = flags & SKIP_METADATA != 0;
        if flags & VALUES != 0 {
            parameters.values = Values::read(reader, flags & NAMES != 0, version)?;
        }
        if flags & PAGE_SIZE != 0 {
            parameters.page_size = Some(reader.int()?);
        }
        if flags & PAGING_STATE != 0 {
            parameters.paging_state = reader.bytes()?;
        }
        if flags & SERIAL_CONSISTENCY != 0 {
            parameters.serial_consistency = Some(Consistency::read(reader)?);
        }
        if flags & TIMESTAMP != 0 {
            parameters.timestamp = Some(reader.long()?);
        }
        if flags & KEYSPACE != 0 {
            parameters.keyspace = Some(reader.string()?);
        }
        if flags & NOW_IN_SECONDS != 0 {
            parameters.now_in_seconds = Some(reader.int()?);
        }
        Ok(parameters)
    }
}

impl<'a> Batch<'a> {
    // Source: native_protocol_v5.spec 4.1.7 "BATCH"
    fn read(reader: &mut Reader<'a>, version: Version) -> Result<Self> {
        let kind = match reader.byte()? {
            0 => BatchKind::Logged,
            1 => BatchKind::Unlogged,
            2 => BatchKind::Counter,
            other => return Err(MalformedBody::UnknownBatchKind(other)),
        };
        let statements = Statements::read(reader, version)?;
        let consistency = Consistency::read(reader)?;
        let mut batch = Batch {
            kind,
            statements,
            consistency,
            serial_consistency: None,
            timestamp: None,
            keyspace: None,
            now_in_seconds: None,
        };
        let flags = read_flags(reader, version)?;
        if flags & NAMES != 0 {
            return Err(MalformedBody::NamedBatch);
        }
        if flags & SERIAL_CONSISTENCY != 0 {
            batch.serial_consistency = Some(Consistency::read(reader)?);
        }
        if flags & TIMESTAMP != 0 {
            batch.timestamp = Some(reader.long()?);
        }
        if flags & KEYSPACE != 0 {
            batch.keyspace = Some(reader.string()?);
        }
        if flags & NOW_IN_SECONDS != 0 {
            batch.now_in_seconds = Some(reader.int()?);
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests;
