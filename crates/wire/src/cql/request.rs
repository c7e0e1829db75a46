//! What clients ask: bodies to requests and back.

use super::compression::Compression;
use super::envelope::{self, Direction, Flags, Opcode, Version};
use super::limits::MalformedBody;
use super::notation::{BytesMap, Notation, Reader, Value};

type Result<T> = std::result::Result<T, MalformedBody>;

/// A request, borrowed from its body.
#[derive(Debug, Clone, PartialEq)]
pub enum Request<'a> {
    /// The first one of a connection, with its options.
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
        /// Version 5 on: which metadata of the result the client has.
        result_metadata_id: Option<&'a [u8]>,
        parameters: Parameters<'a>,
    },
    Batch(Batch<'a>),
    /// The kinds of events that the client wants.
    Register(Vec<&'a str>),
    AuthResponse(Option<&'a [u8]>),
}

/// How many replicas must agree.
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

/// What goes with a statement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters<'a> {
    pub consistency: Consistency,
    pub values: Values<'a>,
    /// The client has the metadata of the result already.
    pub skip_metadata: bool,
    /// Rows per page.
    pub page_size: Option<i32>,
    /// Where the last page ended.
    pub paging_state: Option<&'a [u8]>,
    pub serial_consistency: Option<Consistency>,
    /// Microseconds since the Unix epoch.
    pub timestamp: Option<i64>,
    /// Version 5 on.
    pub keyspace: Option<&'a str>,
    /// Version 5 on: the time that expiry is reckoned from.
    pub now_in_seconds: Option<i32>,
}

impl Parameters<'_> {
    /// No values, one answer, nothing else.
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
/// without any copy, by whoever binds them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Values<'a> {
    bytes: &'a [u8],
    count: u16,
    named: bool,
    /// Version 3 knows no "unset": every negative length is null.
    knows_null_only: bool,
}

impl<'a> Values<'a> {
    fn read(reader: &mut Reader<'a>, named: bool, version: Version) -> Result<Self> {
        let count = reader.short()?;
        let knows_null_only = version == Version::V3;
        let before = reader.rest();
        for _ in 0..count {
            if named {
                reader.string()?;
            }
            read_value(reader, knows_null_only)?;
        }
        let bytes = &before[..before.len() - reader.rest().len()];
        Ok(Values { bytes, count, named, knows_null_only })
    }

    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether values say which marker they are for.
    pub fn are_named(&self) -> bool {
        self.named
    }

    /// The values with their names, if they have any.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&'a str>, Value<'a>)> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        let Values { named, knows_null_only, .. } = *self;
        (0..self.count).map(move |_| {
            let name = named.then(|| reader.string().expect("was checked"));
            (name, read_value(&mut reader, knows_null_only).expect("was checked"))
        })
    }
}

fn read_value<'a>(reader: &mut Reader<'a>, knows_null_only: bool) -> Result<Value<'a>> {
    if knows_null_only {
        return Ok(reader.bytes()?.map_or(Value::Null, Value::Bytes));
    }
    reader.value()
}

/// Statements that are carried out together.
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
const VALUES: u32 = 0x01;
const SKIP_METADATA: u32 = 0x02;
const PAGE_SIZE: u32 = 0x04;
const PAGING_STATE: u32 = 0x08;
const SERIAL_CONSISTENCY: u32 = 0x10;
const TIMESTAMP: u32 = 0x20;
const NAMES: u32 = 0x40;
const KEYSPACE: u32 = 0x80;
const NOW_IN_SECONDS: u32 = 0x100;

/// What stands in front of the request in a body.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extras<'a> {
    /// Names and values that mean nothing to this protocol.
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
    reader.finish()?;
    Ok((request, extras))
}

fn read_flags(reader: &mut Reader<'_>, version: Version) -> Result<u32> {
    let (flags, known) = match version {
        Version::V5 => (u32::from_be_bytes(reader.int()?.to_be_bytes()), 0x1FF),
        Version::V3 | Version::V4 => (u32::from(reader.byte()?), 0x7F),
    };
    if flags & !known == 0 { Ok(flags) } else { Err(MalformedBody::UnknownFlags(flags & !known)) }
}

fn read_prepare<'a>(reader: &mut Reader<'a>, version: Version) -> Result<Request<'a>> {
    let statement = reader.long_string()?;
    let mut keyspace = None;
    if version == Version::V5 {
        let flags = u32::from_be_bytes(reader.int()?.to_be_bytes());
        if flags & !1 != 0 {
            return Err(MalformedBody::UnknownFlags(flags & !1));
        }
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

/// Appends requests: the client's side.
#[derive(Debug, Clone, Copy)]
pub struct RequestEncoder {
    pub version: Version,
    /// What bodies are compressed with, in versions 3 and 4.
    pub compression: Option<Compression>,
}

/// A statement of a batch and its values, to be sent.
pub type StatementToSend<'a> = (BatchStatement<'a>, &'a [Value<'a>]);

/// What goes with a statement, to be sent: the same as [`Parameters`], with values in a list.
#[derive(Debug, Clone, Copy)]
pub struct ParametersToSend<'a> {
    pub parameters: Parameters<'a>,
    /// Either all have names or none.
    pub values: &'a [(Option<&'a str>, Value<'a>)],
}

impl RequestEncoder {
    pub fn startup(self, stream: i16, options: &[(&str, &str)], out: &mut Vec<u8>) {
        // Never compressed: it is what agrees on the compression.
        let plain = RequestEncoder { compression: None, ..self };
        plain.message(stream, Opcode::Startup, out, |body| body.put_string_map(options));
    }

    pub fn options(self, stream: i16, out: &mut Vec<u8>) {
        let plain = RequestEncoder { compression: None, ..self };
        plain.message(stream, Opcode::Options, out, |_| {});
    }

    pub fn auth_response(self, stream: i16, token: &[u8], out: &mut Vec<u8>) {
        self.message(stream, Opcode::AuthResponse, out, |body| body.put_bytes(token));
    }

    pub fn register(self, stream: i16, events: &[&str], out: &mut Vec<u8>) {
        self.message(stream, Opcode::Register, out, |body| body.put_string_list(events));
    }

    pub fn query(
        self,
        stream: i16,
        statement: &str,
        with: &ParametersToSend<'_>,
        out: &mut Vec<u8>,
    ) {
        self.message(stream, Opcode::Query, out, |body| {
            body.put_long_string(statement);
            self.put_parameters(with, body);
        });
    }

    pub fn prepare(self, stream: i16, statement: &str, keyspace: Option<&str>, out: &mut Vec<u8>) {
        self.message(stream, Opcode::Prepare, out, |body| {
            body.put_long_string(statement);
            if self.version == Version::V5 {
                body.put_int(i32::from(keyspace.is_some()));
                if let Some(keyspace) = keyspace {
                    body.put_string(keyspace);
                }
            }
        });
    }

    /// `result_metadata_id` is sent in version 5 only.
    pub fn execute(
        self,
        stream: i16,
        id: &[u8],
        result_metadata_id: &[u8],
        with: &ParametersToSend<'_>,
        out: &mut Vec<u8>,
    ) {
        self.message(stream, Opcode::Execute, out, |body| {
            body.put_short_bytes(id);
            if self.version == Version::V5 {
                body.put_short_bytes(result_metadata_id);
            }
            self.put_parameters(with, body);
        });
    }

    pub fn batch(
        self,
        stream: i16,
        kind: BatchKind,
        statements: &[StatementToSend<'_>],
        with: &Parameters<'_>,
        out: &mut Vec<u8>,
    ) {
        self.message(stream, Opcode::Batch, out, |body| {
            body.put_byte(kind as u8);
            body.put_short_count(statements.len());
            for (statement, values) in statements {
                match statement {
                    BatchStatement::Text(text) => {
                        body.put_byte(0);
                        body.put_long_string(text);
                    }
                    BatchStatement::Prepared(id) => {
                        body.put_byte(1);
                        body.put_short_bytes(id);
                    }
                }
                body.put_short_count(values.len());
                for value in *values {
                    body.put_value(*value);
                }
            }
            body.put_short(with.consistency as u16);
            self.put_flags(with.flags() & !(SKIP_METADATA | PAGE_SIZE | PAGING_STATE), body);
            self.put_tail(with, body);
        });
    }

    fn put_parameters(self, with: &ParametersToSend<'_>, body: &mut Vec<u8>) {
        let parameters = &with.parameters;
        let is_named = with.values.iter().any(|(name, _)| name.is_some());
        let mut flags = parameters.flags();
        if !with.values.is_empty() {
            flags |= VALUES | if is_named { NAMES } else { 0 };
        }
        body.put_short(parameters.consistency as u16);
        self.put_flags(flags, body);
        if !with.values.is_empty() {
            body.put_short_count(with.values.len());
            for (name, value) in with.values {
                if is_named {
                    body.put_string(name.unwrap_or_default());
                }
                body.put_value(*value);
            }
        }
        if let Some(page_size) = parameters.page_size {
            body.put_int(page_size);
        }
        if let Some(paging_state) = parameters.paging_state {
            body.put_bytes(paging_state);
        }
        self.put_tail(parameters, body);
    }

    fn put_flags(self, flags: u32, body: &mut Vec<u8>) {
        match self.version {
            Version::V5 => body.put(&flags.to_be_bytes()),
            // The rest is of version 5.
            Version::V3 | Version::V4 => body.put_byte(flags.to_be_bytes()[3] & 0x7F),
        }
    }

    /// What queries and batches end with.
    fn put_tail(self, parameters: &Parameters<'_>, body: &mut Vec<u8>) {
        if let Some(consistency) = parameters.serial_consistency {
            body.put_short(consistency as u16);
        }
        if let Some(timestamp) = parameters.timestamp {
            body.put_long(timestamp);
        }
        if self.version == Version::V5 {
            if let Some(keyspace) = parameters.keyspace {
                body.put_string(keyspace);
            }
            if let Some(now) = parameters.now_in_seconds {
                body.put_int(now);
            }
        }
    }

    fn message(
        self,
        stream: i16,
        opcode: Opcode,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let flags = Flags::default();
        let start = envelope::begin(out, Direction::Request, self.version, flags, stream, opcode);
        write(out);
        super::compress_body(out, start, self.compression);
        envelope::end(out, start);
    }
}

impl Parameters<'_> {
    /// The flags of what is there, but for the values.
    fn flags(&self) -> u32 {
        let parts = [
            (SKIP_METADATA, self.skip_metadata),
            (PAGE_SIZE, self.page_size.is_some()),
            (PAGING_STATE, self.paging_state.is_some()),
            (SERIAL_CONSISTENCY, self.serial_consistency.is_some()),
            (TIMESTAMP, self.timestamp.is_some()),
            (KEYSPACE, self.keyspace.is_some()),
            (NOW_IN_SECONDS, self.now_in_seconds.is_some()),
        ];
        parts.iter().filter(|(_, is_there)| *is_there).map(|(flag, _)| flag).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::envelope::{HEADER_BYTES, Header};
    use super::super::limits::Limits;
    use super::*;

    const VERSIONS: [Version; 3] = [Version::V3, Version::V4, Version::V5];

    fn check(
        version: Version,
        encode: impl Fn(&RequestEncoder, &mut Vec<u8>),
        expected: &Request<'_>,
    ) {
        let mut out = Vec::new();
        encode(&RequestEncoder { version, compression: None }, &mut out);
        let header = Header::decode(&out, Direction::Request, None, &Limits::DEFAULT);
        let header = header.unwrap().unwrap();
        assert_eq!(header.envelope_bytes(), out.len());
        let body = &out[HEADER_BYTES..];
        assert_eq!(decode_request(&header, body).unwrap().0, *expected, "{version}");
        for cut in 0..body.len() {
            assert!(decode_request(&header, &body[..cut]).is_err(), "{version}, cut at {cut}");
        }
        let longer = [body, b"x"].concat();
        assert_eq!(decode_request(&header, &longer), Err(MalformedBody::Trailing(1)));
    }

    fn full_parameters(version: Version) -> Parameters<'static> {
        let is_v5 = version == Version::V5;
        Parameters {
            consistency: Consistency::LocalQuorum,
            values: Values::default(),
            skip_metadata: true,
            page_size: Some(5000),
            paging_state: Some(b"state"),
            serial_consistency: Some(Consistency::LocalSerial),
            timestamp: Some(-3),
            keyspace: is_v5.then_some("ks"),
            now_in_seconds: is_v5.then_some(7),
        }
    }

    #[test]
    fn plain_requests_come_back() {
        for version in VERSIONS {
            check(version, |to, out| to.options(1, out), &Request::Options);
            check(
                version,
                |to, out| to.startup(1, &[("CQL_VERSION", "3.0.0")], out),
                &Request::Startup(vec![("CQL_VERSION", "3.0.0")]),
            );
            check(
                version,
                |to, out| to.register(1, &["SCHEMA_CHANGE"], out),
                &Request::Register(vec!["SCHEMA_CHANGE"]),
            );
            check(
                version,
                |to, out| to.auth_response(1, b"\0u\0p", out),
                &Request::AuthResponse(Some(b"\0u\0p")),
            );
            let keyspace = (version == Version::V5).then_some("ks");
            check(
                version,
                |to, out| to.prepare(1, "SELECT", Some("ks"), out),
                &Request::Prepare { statement: "SELECT", keyspace },
            );
        }
    }

    #[test]
    fn statements_come_back_with_all_that_goes_with_them() {
        for version in VERSIONS {
            for named in [false, true] {
                let name = |text: &'static str| named.then_some(text);
                let values = [
                    (name("a"), Value::Bytes(b"1")),
                    (name("b"), Value::Null),
                    (name("c"), Value::Bytes(b"")),
                ];
                let with =
                    ParametersToSend { parameters: full_parameters(version), values: &values };
                let mut out = Vec::new();
                RequestEncoder { version, compression: None }.query(1, "Q", &with, &mut out);
                let header = Header::decode(&out, Direction::Request, None, &Limits::DEFAULT);
                let (request, _) =
                    decode_request(&header.unwrap().unwrap(), &out[HEADER_BYTES..]).unwrap();
                let Request::Query { statement: "Q", parameters } = request else {
                    panic!("{request:?}")
                };
                assert_eq!(parameters.values.iter().collect::<Vec<_>>(), values);
                assert_eq!(parameters.values.are_named(), named);
                let rest = Parameters { values: Values::default(), ..parameters };
                assert_eq!(rest, full_parameters(version));
                check(version, |to, out| to.query(1, "Q", &with, out), &request);
                let execute = Request::Execute {
                    id: b"id",
                    result_metadata_id: (version == Version::V5).then_some(b"meta"),
                    parameters,
                };
                check(version, |to, out| to.execute(1, b"id", b"meta", &with, out), &execute);
            }
        }
    }

    #[test]
    fn unset_is_null_in_version_3() {
        for (version, expected) in [(Version::V3, Value::Null), (Version::V4, Value::Unset)] {
            let mut out = Vec::new();
            let with = ParametersToSend {
                parameters: Parameters::new(Consistency::One),
                values: &[(None, Value::Unset)],
            };
            RequestEncoder { version, compression: None }.query(1, "Q", &with, &mut out);
            let header = Header::decode(&out, Direction::Request, None, &Limits::DEFAULT);
            let header = header.unwrap().unwrap();
            let (request, _) = decode_request(&header, &out[HEADER_BYTES..]).unwrap();
            let Request::Query { parameters, .. } = request else { panic!("{request:?}") };
            assert_eq!(parameters.values.iter().collect::<Vec<_>>(), [(None, expected)]);
        }
    }

    #[test]
    fn batches_come_back() {
        for version in VERSIONS {
            let values = [Value::Bytes(b"1"), Value::Null];
            let statements =
                [(BatchStatement::Text("A"), &values[..]), (BatchStatement::Prepared(b"id"), &[])];
            let with = full_parameters(version);
            let mut out = Vec::new();
            let encoder = RequestEncoder { version, compression: None };
            encoder.batch(1, BatchKind::Unlogged, &statements, &with, &mut out);
            let header = Header::decode(&out, Direction::Request, None, &Limits::DEFAULT);
            let header = header.unwrap().unwrap();
            let (request, _) = decode_request(&header, &out[HEADER_BYTES..]).unwrap();
            let Request::Batch(batch) = request.clone() else { panic!("{request:?}") };
            let found: Vec<(BatchStatement<'_>, Vec<Value<'_>>)> = batch
                .statements
                .iter()
                .map(|(statement, values)| (statement, values.iter().map(|(_, v)| v).collect()))
                .collect();
            let expected: Vec<_> = statements
                .iter()
                .map(|(statement, values)| (*statement, values.to_vec()))
                .collect();
            assert_eq!(found, expected);
            assert_eq!((batch.timestamp, batch.kind), (Some(-3), BatchKind::Unlogged));
            assert_eq!(batch.keyspace, with.keyspace);
            check(
                version,
                |to, out| to.batch(1, BatchKind::Unlogged, &statements, &with, out),
                &request,
            );
        }
    }

    #[test]
    fn faults_have_their_own_names() {
        let header = |opcode: Opcode| Header {
            version: Version::V4,
            flags: Flags::default(),
            stream: 0,
            opcode: opcode as u8,
            body_bytes: 0,
        };
        let check = |opcode, body: &[u8], expected| {
            assert_eq!(decode_request(&header(opcode), body), Err(expected));
        };
        check(Opcode::Ready, b"", MalformedBody::WrongSide);
        check(Opcode::Query, b"\0\0\0\x01Q\0\x0b\0", MalformedBody::UnknownConsistency(11));
        check(Opcode::Query, b"\0\0\0\x01Q\0\x01\x80", MalformedBody::UnknownFlags(0x80));
        check(Opcode::Batch, b"\x03", MalformedBody::UnknownBatchKind(3));
        check(Opcode::Batch, b"\0\0\x01\x02", MalformedBody::UnknownStatementKind(2));
        check(Opcode::Batch, b"\0\0\0\0\x01\x40", MalformedBody::NamedBatch);
    }
}
