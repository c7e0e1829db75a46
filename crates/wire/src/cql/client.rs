//! The client's side: decodes responses.

use super::envelope::{Flags, Header, Opcode, Version};
use super::limits::MalformedBody;
use super::notation::{BytesMap, Reader};
use super::types::ColumnType;

type Result<T> = std::result::Result<T, MalformedBody>;

/// A response, borrowed from its body.
#[derive(Debug, Clone, PartialEq)]
pub enum Response<'a> {
    Error {
        code: i32,
        message: &'a str,
        /// Details of the code other than the message, undecoded.
        details: &'a [u8],
    },
    Ready,
    Authenticate(&'a str),
    Supported(Vec<(&'a str, Vec<&'a str>)>),
    Void,
    Rows(Rows<'a>),
    SetKeyspace(&'a str),
    Prepared(PreparedReply<'a>),
    /// Change, target and names.
    SchemaChange(Vec<&'a str>),
    /// Kind, and the bytes after it, undecoded.
    Event(&'a str, &'a [u8]),
    AuthChallenge(Option<&'a [u8]>),
    AuthSuccess(Option<&'a [u8]>),
}

/// A page of rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows<'a> {
    pub metadata: Metadata<'a>,
    pub count: usize,
    cells: &'a [u8],
}

impl<'a> Rows<'a> {
    /// All cells, row after row.
    pub fn cells(&self) -> impl Iterator<Item = Option<&'a [u8]>> + use<'a> {
        let mut reader = Reader::new(self.cells);
        let count = self.count * self.metadata.columns;
        (0..count).map(move |_| reader.bytes().expect("was checked"))
    }
}

/// Description of columns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata<'a> {
    pub columns: usize,
    pub paging_state: Option<&'a [u8]>,
    pub new_metadata_id: Option<&'a [u8]>,
    /// Keyspace, table, name, type; empty if the server was asked to omit them.
    pub specs: Vec<(&'a str, &'a str, &'a str, ColumnType)>,
    /// Of a prepared statement: the positions of the partition key's markers.
    pub partition_key: Vec<u16>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PreparedReply<'a> {
    pub id: &'a [u8],
    pub result_metadata_id: Option<&'a [u8]>,
    pub markers: Metadata<'a>,
    pub result: Metadata<'a>,
}

/// Fields before the response in a body.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ResponseNotes<'a> {
    pub tracing_id: Option<[u8; 16]>,
    pub warnings: Vec<&'a str>,
    pub custom_payload: BytesMap<'a>,
}

/// Decodes a body, already decompressed.
// Source: native_protocol_v5.spec 4.2 "Responses"
pub fn decode_response<'a>(
    header: &Header,
    body: &'a [u8],
) -> Result<(Response<'a>, ResponseNotes<'a>)> {
    let mut reader = Reader::new(body);
    let mut notes = ResponseNotes::default();
    if header.flags.has(Flags::TRACING) {
        notes.tracing_id = Some(reader.uuid()?);
    }
    if header.flags.has(Flags::WARNING) {
        notes.warnings = reader.string_list()?;
    }
    if header.flags.has(Flags::CUSTOM_PAYLOAD) {
        notes.custom_payload = reader.bytes_map()?;
    }
    let response = match Opcode::from_byte(header.opcode)? {
        Opcode::Error => Response::Error {
            code: reader.int()?,
            message: reader.string()?,
            details: take_rest(&mut reader)?,
        },
        Opcode::Ready => Response::Ready,
        Opcode::Authenticate => Response::Authenticate(reader.string()?),
        Opcode::Supported => Response::Supported(reader.string_multimap()?),
        Opcode::Result => read_result(&mut reader, header.version)?,
        Opcode::Event => Response::Event(reader.string()?, take_rest(&mut reader)?),
        Opcode::AuthChallenge => Response::AuthChallenge(reader.bytes()?),
        Opcode::AuthSuccess => Response::AuthSuccess(reader.bytes()?),
        _ => return Err(MalformedBody::WrongSide),
    };
    reader.finish()?;
    Ok((response, notes))
}

fn take_rest<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8]> {
    reader.raw(reader.rest().len())
}

fn read_result<'a>(reader: &mut Reader<'a>, version: Version) -> Result<Response<'a>> {
    match reader.int()? {
        1 => Ok(Response::Void),
        2 => {
            let metadata = Metadata::read(reader, false)?;
            let count = count(reader)?;
            let before = reader.rest();
            // Without columns, a large count would be cheap to send.
            let cells = count.checked_mul(metadata.columns).ok_or(MalformedBody::Truncated)?;
            if metadata.columns == 0 && count != 0 {
                return Err(MalformedBody::Truncated);
            }
            for _ in 0..cells {
                reader.bytes()?;
            }
            let cells = &before[..before.len() - reader.rest().len()];
            Ok(Response::Rows(Rows { metadata, count, cells }))
        }
        3 => Ok(Response::SetKeyspace(reader.string()?)),
        4 => Ok(Response::Prepared(PreparedReply {
            id: reader.short_bytes()?,
            result_metadata_id: match version {
                Version::V5 => Some(reader.short_bytes()?),
                Version::V3 | Version::V4 => None,
            },
            markers: Metadata::read(reader, version >= Version::V4)?,
            result: Metadata::read(reader, false)?,
        })),
        5 => {
            let mut names = vec![reader.string()?, reader.string()?];
            let count = if names[1] == "KEYSPACE" { 1 } else { 2 };
            for _ in 0..count {
                names.push(reader.string()?);
            }
            Ok(Response::SchemaChange(names))
        }
        other => Err(MalformedBody::UnknownResultKind(other)),
    }
}

fn count(reader: &mut Reader<'_>) -> Result<usize> {
    usize::try_from(reader.int()?).map_err(|_| MalformedBody::NegativeLength)
}

impl<'a> Metadata<'a> {
    fn read(reader: &mut Reader<'a>, has_partition_key: bool) -> Result<Self> {
        let flags = reader.int()?;
        let columns = count(reader)?;
        let mut metadata = Metadata { columns, ..Metadata::default() };
        if has_partition_key {
            let count = count(reader)?;
            for _ in 0..count {
                metadata.partition_key.push(reader.short()?);
            }
        }
        if flags & 0x02 != 0 {
            metadata.paging_state = reader.bytes()?;
        }
        if flags & 0x08 != 0 {
            metadata.new_metadata_id = Some(reader.short_bytes()?);
        }
        if flags & 0x04 != 0 {
            return Ok(metadata);
        }
        let is_global = flags & 0x01 != 0;
        let table = if is_global { Some((reader.string()?, reader.string()?)) } else { None };
        for _ in 0..columns {
            let (keyspace, table) = match table {
                Some(table) => table,
                None => (reader.string()?, reader.string()?),
            };
            let name = reader.string()?;
            metadata.specs.push((keyspace, table, name, ColumnType::decode(reader)?));
        }
        Ok(metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::super::compression::Compression;
    use super::super::envelope::{Direction, HEADER_BYTES};
    use super::super::limits::{Limits, TooLong};
    use super::super::notation::Encoded;
    use super::super::request::Consistency;
    use super::super::response::{
        Column, Columns, ErrorKind, NodeEvent, Notes, Prepared, ResponseEncoder, RowsMetadata,
        SchemaChange, SchemaTarget,
    };
    use super::*;

    const VERSIONS: [Version; 3] = [Version::V3, Version::V4, Version::V5];

    /// Decodes the output of `encode` in every version and compares it with `expected`; every
    /// prefix is rejected.
    fn check(
        encode: impl Fn(&ResponseEncoder<'_>, &mut Vec<u8>) -> Encoded,
        expected: &Response<'_>,
    ) {
        for version in VERSIONS {
            check_in(version, &encode, expected);
        }
    }

    fn check_in(
        version: Version,
        encode: impl Fn(&ResponseEncoder<'_>, &mut Vec<u8>) -> Encoded,
        expected: &Response<'_>,
    ) {
        let notes = Notes {
            tracing_id: Some([9; 16]),
            warnings: &["careful"],
            custom_payload: &[("p", Some(b"v"))],
        };
        let mut out = Vec::new();
        encode(&ResponseEncoder { version, compression: None, notes }, &mut out).unwrap();
        let header = decode_header(&out);
        let body = &out[HEADER_BYTES..];
        let (response, found) = decode_response(&header, body).unwrap();
        assert_eq!(response, *expected, "{version}");
        assert_eq!(found.tracing_id, Some([9; 16]));
        assert_eq!(found.warnings, ["careful"]);
        assert_eq!(found.custom_payload, [("p", Some(&b"v"[..]))]);
        let has_open_end = matches!(expected, Response::Error { .. } | Response::Event(..));
        for cut in 0..body.len() {
            let refused = decode_response(&header, &body[..cut]).is_err();
            assert!(refused || has_open_end, "{version}, cut at {cut}");
        }
        for compression in [Compression::Lz4, Compression::Snappy] {
            let mut out = Vec::new();
            let compression = Some(compression);
            let to = ResponseEncoder { version, compression, notes: Notes::default() };
            encode(&to, &mut out).unwrap();
            let header = decode_header(&out);
            let body = super::super::decompress_body(
                &header,
                &out[HEADER_BYTES..],
                compression,
                &Limits::DEFAULT,
            );
            assert_eq!(decode_response(&header, &body.unwrap()).unwrap().0, *expected);
        }
    }

    fn decode_header(out: &[u8]) -> Header {
        let header = Header::decode(out, Direction::Response, None, &Limits::DEFAULT);
        let header = header.unwrap().unwrap();
        assert_eq!(header.envelope_bytes(), out.len());
        header
    }

    fn columns() -> Vec<Column> {
        vec![
            Column { name: "k".into(), column_type: ColumnType::Text },
            Column { name: "v".into(), column_type: ColumnType::Duration },
        ]
    }

    #[test]
    fn plain_responses_are_read_back() {
        check(|to, out| to.ready(1, out), &Response::Ready);
        check(|to, out| to.void(1, out), &Response::Void);
        check(|to, out| to.auth_success(1, out), &Response::AuthSuccess(None));
        check(|to, out| to.authenticate(1, "class", out), &Response::Authenticate("class"));
        check(|to, out| to.set_keyspace(1, "ks", out), &Response::SetKeyspace("ks"));
        check(
            |to, out| to.supported(1, &[("COMPRESSION", &["lz4"])], out),
            &Response::Supported(vec![("COMPRESSION", vec!["lz4"])]),
        );
    }

    #[test]
    fn errors_carry_their_details() {
        for (kind, details) in [
            (ErrorKind::Server, &b""[..]),
            (
                ErrorKind::Unavailable { consistency: Consistency::Two, required: 2, alive: 1 },
                b"\0\x02\0\0\0\x02\0\0\0\x01",
            ),
            (ErrorKind::AlreadyExists { keyspace: "k", table: "" }, b"\0\x01k\0\0"),
            (ErrorKind::Unprepared { id: b"id" }, b"\0\x02id"),
            (
                ErrorKind::FunctionFailure {
                    keyspace: "k",
                    function: "f",
                    arguments: &["int".to_owned()],
                },
                b"\0\x01k\0\x01f\0\x01\0\x03int",
            ),
        ] {
            let expected = Response::Error { code: kind.code(), message: "why", details };
            let encode = |to: &ResponseEncoder<'_>, out: &mut Vec<u8>| {
                to.error(1, kind, "why", out);
                Ok(())
            };
            check(encode, &expected);
        }
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let mut out = Vec::new();
        let message = "ä".repeat(40_000);
        ResponseEncoder::plain(Version::V4).error(1, ErrorKind::Syntax, &message, &mut out);
        let (response, _) = decode_response(&decode_header(&out), &out[HEADER_BYTES..]).unwrap();
        let Response::Error { message: found, .. } = response else { panic!("{response:?}") };
        assert_eq!(found.len(), 65_534);
    }

    #[test]
    fn a_message_that_does_not_fit_is_removed() {
        let to = ResponseEncoder::plain(Version::V4);
        let long = "x".repeat(70_000);
        let mut out = b"before".to_vec();
        assert_eq!(to.set_keyspace(1, &long, &mut out), Err(TooLong { count: 70_000, bits: 16 }));
        let wide = ColumnType::Tuple(vec![ColumnType::Int; 70_000]);
        let class = ColumnType::Custom(long.clone());
        for column_type in [wide, class] {
            let columns = [Column { name: "v".into(), column_type }];
            let columns = Columns { keyspace: "k", table: "t", columns: &columns };
            let metadata = RowsMetadata {
                columns,
                skip_columns: false,
                paging_state: None,
                new_metadata_id: None,
            };
            let mut rows = to.rows(1, &metadata, &mut out);
            rows.cell(None);
            rows.end_row();
            assert_eq!(rows.finish(), Err(TooLong { count: 70_000, bits: 16 }));
            let prepared = Prepared {
                id: b"id",
                result_metadata_id: b"",
                markers: Columns { columns: &[], ..columns },
                partition_key: &[],
                result: Some(columns),
            };
            assert!(to.prepared(1, &prepared, &mut out).is_err());
        }
        assert_eq!(out, b"before");
        let kind = ErrorKind::AlreadyExists { keyspace: &long, table: "" };
        let mut out = Vec::new();
        to.error(1, kind, "there", &mut out);
        let (response, _) = decode_response(&decode_header(&out), &out[HEADER_BYTES..]).unwrap();
        assert_eq!(response, Response::Error { code: 0, message: "there", details: b"" });
    }

    #[test]
    fn warnings_are_cut_to_what_fits() {
        let long = "ä".repeat(40_000);
        let warnings = vec![&long[..]; 70_000];
        let payload: &[(&str, Option<&[u8]>)] = &[(&long, None)];
        let notes = Notes { tracing_id: None, warnings: &warnings, custom_payload: payload };
        let mut out = Vec::new();
        let to = ResponseEncoder { version: Version::V4, compression: None, notes };
        to.void(1, &mut out).unwrap();
        let (response, notes) =
            decode_response(&decode_header(&out), &out[HEADER_BYTES..]).unwrap();
        assert_eq!(response, Response::Void);
        assert_eq!(notes.warnings, vec![&long[..65_534]; 64]);
        assert!(notes.custom_payload.is_empty());
    }

    #[test]
    fn schema_changes_are_read_back() {
        let table = SchemaTarget::Table { keyspace: "k", name: "t" };
        let change = SchemaChange { change: "CREATED", target: table };
        let expected = Response::SchemaChange(vec!["CREATED", "TABLE", "k", "t"]);
        check(|to, out| to.schema_changed(1, &change, out), &expected);
        let dropped = SchemaChange { change: "DROPPED", target: SchemaTarget::Keyspace("k") };
        let expected = Response::SchemaChange(vec!["DROPPED", "KEYSPACE", "k"]);
        check(|to, out| to.schema_changed(1, &dropped, out), &expected);
        let event = Response::Event("SCHEMA_CHANGE", b"\0\x07DROPPED\0\x08KEYSPACE\0\x01k");
        check(|to, out| to.schema_event(&dropped, out), &event);
        let nodes: [(_, _, &[u8]); 4] = [
            (NodeEvent::New, "10.0.0.2:9042", b"\0\x08NEW_NODE\x04\x0a\0\0\x02\0\0\x23\x52"),
            (NodeEvent::Removed, "0.0.0.1:1", b"\0\x0cREMOVED_NODE\x04\0\0\0\x01\0\0\0\x01"),
            (NodeEvent::Up, "[::2]:3", b"\0\x02UP\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\x03"),
            (NodeEvent::Down, "0.0.0.1:1", b"\0\x04DOWN\x04\0\0\0\x01\0\0\0\x01"),
        ];
        for (event, node, rest) in nodes {
            let node = node.parse().unwrap();
            let kind = if event.is_topology() { "TOPOLOGY_CHANGE" } else { "STATUS_CHANGE" };
            check(|to, out| to.node_event(event, node, out), &Response::Event(kind, rest));
        }
    }

    #[test]
    fn rows_are_read_back_with_and_without_metadata() {
        for version in VERSIONS {
            for skip_columns in [false, true] {
                let columns = columns();
                let table = Columns { keyspace: "ks", table: "t", columns: &columns };
                let new_metadata_id = (version == Version::V5).then_some(&b"new"[..]);
                let metadata = RowsMetadata {
                    columns: table,
                    skip_columns,
                    paging_state: Some(b"more"),
                    new_metadata_id,
                };
                let encode = |to: &ResponseEncoder<'_>, out: &mut Vec<u8>| {
                    let mut rows = to.rows(1, &metadata, out);
                    rows.cell(Some(b"a"));
                    rows.cell(None);
                    rows.end_row();
                    rows.cell(Some(b"bc"));
                    rows.cell(Some(b""));
                    rows.end_row();
                    rows.finish()
                };
                let mut out = Vec::new();
                encode(&ResponseEncoder::plain(version), &mut out).unwrap();
                let header = decode_header(&out);
                let (response, _) = decode_response(&header, &out[HEADER_BYTES..]).unwrap();
                let Response::Rows(rows) = &response else { panic!("{response:?}") };
                let cells: Vec<_> = rows.cells().collect();
                assert_eq!(cells, [Some(&b"a"[..]), None, Some(b"bc"), Some(b"")]);
                assert_eq!(rows.metadata.paging_state, Some(&b"more"[..]));
                assert_eq!(rows.metadata.new_metadata_id, new_metadata_id);
                let specs = if skip_columns { 0 } else { 2 };
                assert_eq!((rows.metadata.columns, rows.metadata.specs.len()), (2, specs));
                check_in(version, encode, &response);
            }
        }
    }

    #[test]
    fn prepared_statements_are_read_back() {
        for version in VERSIONS {
            let columns = columns();
            let table = Columns { keyspace: "ks", table: "t", columns: &columns };
            let none = Columns { columns: &[], ..table };
            for (markers, result) in [(table, None), (none, Some(table)), (table, Some(table))] {
                let prepared = Prepared {
                    id: b"0123456789abcdef",
                    result_metadata_id: b"meta",
                    markers,
                    partition_key: if markers.columns.is_empty() { &[] } else { &[0] },
                    result,
                };
                let mut out = Vec::new();
                ResponseEncoder::plain(version).prepared(1, &prepared, &mut out).unwrap();
                let header = decode_header(&out);
                let (response, _) = decode_response(&header, &out[HEADER_BYTES..]).unwrap();
                let Response::Prepared(found) = &response else { panic!("{response:?}") };
                assert_eq!(found.id, prepared.id);
                assert_eq!(found.markers.specs.len(), markers.columns.len());
                assert_eq!(found.result.columns, result.map_or(0, |result| result.columns.len()));
                if version >= Version::V4 {
                    assert_eq!(found.markers.partition_key, prepared.partition_key);
                }
                check_in(version, |to, out| to.prepared(1, &prepared, out), &response);
            }
        }
    }

    #[test]
    fn false_counts_are_found() {
        let mut out = Vec::new();
        ResponseEncoder::plain(Version::V4).void(1, &mut out).unwrap();
        let header = decode_header(&out);
        // Rows: no metadata, no columns, two billion rows.
        let body = [0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff];
        assert_eq!(decode_response(&header, &body), Err(MalformedBody::Truncated));
        let body = [0, 0, 0, 9];
        assert_eq!(decode_response(&header, &body), Err(MalformedBody::UnknownResultKind(9)));
    }
}
