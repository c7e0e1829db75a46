//! Encoder of responses.

use std::net::{IpAddr, SocketAddr};

use super::compression::Compression;
use super::envelope::{self, Direction, Flags, Opcode, Version};
use super::limits::TooLong;
use super::notation::{Encoded, Notation, Value};
use super::request::Consistency;
use super::types::ColumnType;

/// The stream of events, which answer no request.
pub const EVENT_STREAM: i16 = -1;

/// Fields before the response in its body.
#[derive(Debug, Clone, Copy, Default)]
pub struct Notes<'a> {
    /// Present if the request asked for tracing.
    pub tracing_id: Option<[u8; 16]>,
    pub warnings: &'a [&'a str],
    pub custom_payload: &'a [(&'a str, Option<&'a [u8]>)],
}

/// Why a request failed, with the details that its code requires in addition to the message.
// Source: native_protocol_v5.spec 8 "Error codes"
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind<'a> {
    Server,
    Protocol,
    BadCredentials,
    Unavailable {
        consistency: Consistency,
        required: i32,
        alive: i32,
    },
    Overloaded,
    Syntax,
    Unauthorized,
    Invalid,
    Config,
    /// The table is empty if the keyspace already exists.
    AlreadyExists {
        keyspace: &'a str,
        table: &'a str,
    },
    Unprepared {
        id: &'a [u8],
    },
    /// The names of the arguments' types.
    FunctionFailure {
        keyspace: &'a str,
        function: &'a str,
        arguments: &'a [String],
    },
}

impl ErrorKind<'_> {
    pub fn code(self) -> i32 {
        match self {
            Self::Server => 0x0000,
            Self::Protocol => 0x000A,
            Self::BadCredentials => 0x0100,
            Self::Unavailable { .. } => 0x1000,
            Self::Overloaded => 0x1001,
            Self::Syntax => 0x2000,
            Self::Unauthorized => 0x2100,
            Self::Invalid => 0x2200,
            Self::Config => 0x2300,
            Self::AlreadyExists { .. } => 0x2400,
            Self::Unprepared { .. } => 0x2500,
            Self::FunctionFailure { .. } => 0x1400,
        }
    }
}

/// A change of the schema, as a result and as an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaChange<'a> {
    /// `CREATED`, `UPDATED` or `DROPPED`.
    pub change: &'a str,
    pub target: SchemaTarget<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaTarget<'a> {
    Keyspace(&'a str),
    Table { keyspace: &'a str, name: &'a str },
    Type { keyspace: &'a str, name: &'a str },
}

impl SchemaChange<'_> {
    // Source: native_protocol_v5.spec 4.2.5.5 "Schema_change"
    fn encode(&self, body: &mut Vec<u8>) -> Encoded {
        body.put_string(self.change)?;
        let parts: &[&str] = match self.target {
            SchemaTarget::Keyspace(keyspace) => &["KEYSPACE", keyspace],
            SchemaTarget::Table { keyspace, name } => &["TABLE", keyspace, name],
            SchemaTarget::Type { keyspace, name } => &["TYPE", keyspace, name],
        };
        parts.iter().try_for_each(|part| body.put_string(part))
    }
}

/// A change of a node of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeEvent {
    New,
    Removed,
    Up,
    Down,
}

impl NodeEvent {
    /// Whether clients register for it as `TOPOLOGY_CHANGE`; else as `STATUS_CHANGE`.
    pub fn is_topology(self) -> bool {
        matches!(self, NodeEvent::New | NodeEvent::Removed)
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            NodeEvent::New => ("TOPOLOGY_CHANGE", "NEW_NODE"),
            NodeEvent::Removed => ("TOPOLOGY_CHANGE", "REMOVED_NODE"),
            NodeEvent::Up => ("STATUS_CHANGE", "UP"),
            NodeEvent::Down => ("STATUS_CHANGE", "DOWN"),
        }
    }
}

/// A column of a result, or a marker of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub column_type: ColumnType,
}

/// The description of a table's columns for clients.
#[derive(Debug, Clone, Copy)]
pub struct Columns<'a> {
    pub keyspace: &'a str,
    pub table: &'a str,
    pub columns: &'a [Column],
}

impl Columns<'_> {
    /// Names and types, with the table written once.
    fn encode(&self, version: Version, body: &mut Vec<u8>) -> Encoded {
        body.put_string(self.keyspace)?;
        body.put_string(self.table)?;
        self.columns.iter().try_for_each(|column| {
            body.put_string(&column.name)?;
            column.column_type.encode(version, body)
        })
    }
}

/// The description of a prepared statement for the client that prepared it.
#[derive(Debug, Clone, Copy)]
pub struct Prepared<'a> {
    pub id: &'a [u8],
    /// Sent in version 5.
    pub result_metadata_id: &'a [u8],
    pub markers: Columns<'a>,
    /// The markers that make up the partition key, in key order; empty if a part is not a marker.
    pub partition_key: &'a [u16],
    /// None for statements without rows as a result.
    pub result: Option<Columns<'a>>,
}

// Source: native_protocol_v5.spec 4.2.5.2 "Rows", flags of metadata
const GLOBAL_TABLE: i32 = 0x01;
const HAS_MORE_PAGES: i32 = 0x02;
const NO_METADATA: i32 = 0x04;
const METADATA_CHANGED: i32 = 0x08;

/// The header of a result with rows.
#[derive(Debug, Clone, Copy)]
pub struct RowsMetadata<'a> {
    pub columns: Columns<'a>,
    /// Whether the client already has the columns: only their number is sent.
    pub skip_columns: bool,
    /// Start of the next page, if there is one.
    pub paging_state: Option<&'a [u8]>,
    /// Version 5: the client's metadata is outdated; this is the new id.
    pub new_metadata_id: Option<&'a [u8]>,
}

/// Appends responses to one buffer.
#[derive(Debug, Clone, Copy)]
pub struct ResponseEncoder<'a> {
    pub version: Version,
    /// The algorithm that compresses bodies, in versions 3 and 4.
    pub compression: Option<Compression>,
    pub notes: Notes<'a>,
}

// Source: native_protocol_v5.spec 4.2 "Responses"
impl ResponseEncoder<'_> {
    /// An encoder without fields before the response and without compression.
    pub fn plain(version: Version) -> Self {
        ResponseEncoder { version, compression: None, notes: Notes::default() }
    }

    /// Appends an error. Its message is truncated to what fits; an error whose details do not fit
    /// becomes a server error with the same message.
    pub fn error(&self, stream: i16, kind: ErrorKind<'_>, message: &str, out: &mut Vec<u8>) {
        let encoded = self.message(stream, Opcode::Error, out, |body| {
            body.put_int(kind.code());
            body.put_string(cut(message))?;
            match kind {
                ErrorKind::Unavailable { consistency, required, alive } => {
                    body.put_short(consistency as u16);
                    body.put_int(required);
                    body.put_int(alive);
                    Ok(())
                }
                ErrorKind::AlreadyExists { keyspace, table } => {
                    body.put_string(keyspace)?;
                    body.put_string(table)
                }
                ErrorKind::Unprepared { id } => body.put_short_bytes(id),
                ErrorKind::FunctionFailure { keyspace, function, arguments } => {
                    body.put_string(keyspace)?;
                    body.put_string(function)?;
                    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                    body.put_string_list(&arguments)
                }
                _ => Ok(()),
            }
        });
        if encoded.is_err() {
            self.error(stream, ErrorKind::Server, message, out);
        }
    }

    pub fn ready(&self, stream: i16, out: &mut Vec<u8>) -> Encoded {
        self.message(stream, Opcode::Ready, out, |_| Ok(()))
    }

    /// `authenticator` is a class name that drivers know.
    pub fn authenticate(&self, stream: i16, authenticator: &str, out: &mut Vec<u8>) -> Encoded {
        self.message(stream, Opcode::Authenticate, out, |body| body.put_string(authenticator))
    }

    pub fn auth_success(&self, stream: i16, out: &mut Vec<u8>) -> Encoded {
        self.message(stream, Opcode::AuthSuccess, out, |body| body.put_value(Value::Null))
    }

    pub fn supported(
        &self,
        stream: i16,
        options: &[(&str, &[&str])],
        out: &mut Vec<u8>,
    ) -> Encoded {
        self.message(stream, Opcode::Supported, out, |body| body.put_string_multimap(options))
    }

    pub fn void(&self, stream: i16, out: &mut Vec<u8>) -> Encoded {
        self.message(stream, Opcode::Result, out, |body| {
            body.put_int(1);
            Ok(())
        })
    }

    pub fn set_keyspace(&self, stream: i16, keyspace: &str, out: &mut Vec<u8>) -> Encoded {
        self.message(stream, Opcode::Result, out, |body| {
            body.put_int(3);
            body.put_string(keyspace)
        })
    }

    pub fn schema_changed(
        &self,
        stream: i16,
        change: &SchemaChange<'_>,
        out: &mut Vec<u8>,
    ) -> Encoded {
        self.message(stream, Opcode::Result, out, |body| {
            body.put_int(5);
            change.encode(body)
        })
    }

    pub fn schema_event(&self, change: &SchemaChange<'_>, out: &mut Vec<u8>) -> Encoded {
        self.message(EVENT_STREAM, Opcode::Event, out, |body| {
            body.put_string("SCHEMA_CHANGE")?;
            change.encode(body)
        })
    }

    // Source: native_protocol_v5.spec 4.2.6 "EVENT"
    pub fn node_event(&self, event: NodeEvent, node: SocketAddr, out: &mut Vec<u8>) -> Encoded {
        let (kind, change) = event.names();
        self.message(EVENT_STREAM, Opcode::Event, out, |body| {
            body.put_string(kind)?;
            body.put_string(change)?;
            match node.ip() {
                IpAddr::V4(ip) => {
                    body.put_byte(4);
                    body.put(&ip.octets());
                }
                IpAddr::V6(ip) => {
                    body.put_byte(16);
                    body.put(&ip.octets());
                }
            }
            body.put_int(node.port().into());
            Ok(())
        })
    }

    // Source: native_protocol_v5.spec 4.2.5.4 "Prepared"
    pub fn prepared(&self, stream: i16, prepared: &Prepared<'_>, out: &mut Vec<u8>) -> Encoded {
        self.message(stream, Opcode::Result, out, |body| {
            body.put_int(4);
            body.put_short_bytes(prepared.id)?;
            if self.version == Version::V5 {
                body.put_short_bytes(prepared.result_metadata_id)?;
            }
            let markers = prepared.markers;
            body.put_int(if markers.columns.is_empty() { 0 } else { GLOBAL_TABLE });
            body.put_count(markers.columns.len())?;
            if self.version >= Version::V4 {
                body.put_count(prepared.partition_key.len())?;
                for &index in prepared.partition_key {
                    body.put_short(index);
                }
            }
            if !markers.columns.is_empty() {
                markers.encode(self.version, body)?;
            }
            match prepared.result {
                None => {
                    body.put_int(NO_METADATA);
                    body.put_int(0);
                    Ok(())
                }
                Some(columns) => {
                    body.put_int(GLOBAL_TABLE);
                    body.put_count(columns.columns.len())?;
                    columns.encode(self.version, body)
                }
            }
        })
    }

    /// Begins a result with rows; the caller appends its cells to the [`RowsEncoder`], whose
    /// [`finish`](RowsEncoder::finish) reports whether a part did not fit.
    pub fn rows<'o>(
        &self,
        stream: i16,
        metadata: &RowsMetadata<'_>,
        out: &'o mut Vec<u8>,
    ) -> RowsEncoder<'o> {
        let start = self.begin(stream, Opcode::Result, out);
        let encoded = self.put_rows_metadata(metadata, out);
        let count_at = out.len();
        out.put_int(0);
        RowsEncoder { out, start, count_at, rows: 0, compression: self.compression, encoded }
    }

    fn put_rows_metadata(&self, metadata: &RowsMetadata<'_>, out: &mut Vec<u8>) -> Encoded {
        out.put_int(2);
        let new_id = metadata.new_metadata_id.filter(|_| self.version == Version::V5);
        let flags = [
            (GLOBAL_TABLE, !metadata.skip_columns),
            (HAS_MORE_PAGES, metadata.paging_state.is_some()),
            (NO_METADATA, metadata.skip_columns),
            (METADATA_CHANGED, new_id.is_some()),
        ];
        out.put_int(flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag).sum());
        out.put_count(metadata.columns.columns.len())?;
        if let Some(paging_state) = metadata.paging_state {
            out.put_bytes(paging_state)?;
        }
        if let Some(id) = new_id {
            out.put_short_bytes(id)?;
        }
        if !metadata.skip_columns {
            metadata.columns.encode(self.version, out)?;
        }
        Ok(())
    }

    /// Appends one message, or nothing if it does not fit.
    fn message(
        &self,
        stream: i16,
        opcode: Opcode,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>) -> Encoded,
    ) -> Encoded {
        let start = self.begin(stream, opcode, out);
        let written = write(out);
        end(out, start, self.compression, written)
    }

    /// Header and notes. Warnings are truncated to fit; a payload that does not fit is omitted.
    fn begin(&self, stream: i16, opcode: Opcode, out: &mut Vec<u8>) -> usize {
        let Notes { tracing_id, warnings, custom_payload } = self.notes;
        let warnings: Vec<&str> =
            warnings.iter().take(WARNINGS_MAX).map(|warning| cut(warning)).collect();
        let flags =
            [(Flags::TRACING, tracing_id.is_some()), (Flags::WARNING, !warnings.is_empty())];
        let flags = flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag).sum();
        let direction = Direction::Response;
        let start = envelope::begin(out, direction, self.version, Flags(flags), stream, opcode);
        if let Some(id) = tracing_id {
            out.put(&id);
        }
        if !warnings.is_empty() {
            out.put_string_list(&warnings).expect("the list and each of its strings were cut");
        }
        if !custom_payload.is_empty() {
            let payload_at = out.len();
            match out.put_bytes_map(custom_payload) {
                Ok(()) => envelope::set_flag(out, start, Flags::CUSTOM_PAYLOAD),
                Err(_) => out.truncate(payload_at),
            }
        }
        start
    }
}

/// Maximum number of warnings in one response; further ones are omitted.
const WARNINGS_MAX: usize = 64;

/// Ends the message at `start`, or removes it if a part of it or its body is too long.
fn end(
    out: &mut Vec<u8>,
    start: usize,
    compression: Option<Compression>,
    written: Encoded,
) -> Encoded {
    let count = out.len() - start - envelope::HEADER_BYTES;
    let is_sendable = i32::try_from(count).is_ok();
    let ended = written.and(if is_sendable { Ok(()) } else { Err(TooLong { count, bits: 31 }) });
    match ended {
        Ok(()) => {
            super::compress_body(out, start, compression);
            envelope::end(out, start);
        }
        Err(_) => out.truncate(start),
    }
    ended
}

/// Messages and warnings are strings with a 16-bit length; statements and names quoted in them may
/// be longer.
fn cut(message: &str) -> &str {
    &message[..message.floor_char_boundary(usize::from(u16::MAX))]
}

/// Appends the cells of a result, row by row. [`RowsEncoder::finish`] must follow.
#[derive(Debug)]
pub struct RowsEncoder<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    count_at: usize,
    rows: usize,
    compression: Option<Compression>,
    /// The first part that did not fit.
    encoded: Encoded,
}

impl RowsEncoder<'_> {
    /// Appends rows whose cells are already encoded, as by [`RowsEncoder::cell`].
    pub fn encoded(&mut self, rows: &[u8], count: usize) {
        self.out.put(rows);
        self.rows += count;
    }

    /// Appends one cell of the row; the row is complete when every column has one.
    pub fn cell(&mut self, bytes: Option<&[u8]>) {
        let put = self.out.put_value(bytes.map_or(Value::Null, Value::Bytes));
        self.encoded = self.encoded.and(put);
    }

    /// Ends a row all of whose cells were appended.
    pub fn end_row(&mut self) {
        self.rows += 1;
    }

    /// Completes the message, or removes all of it if a part did not fit.
    pub fn finish(self) -> Encoded {
        let RowsEncoder { out, start, count_at, rows, compression, encoded } = self;
        let count = i32::try_from(rows).map_err(|_| TooLong { count: rows, bits: 31 });
        if let Ok(count) = count {
            out[count_at..count_at + 4].copy_from_slice(&count.to_be_bytes());
        }
        end(out, start, compression, encoded.and(count.map(|_| ())))
    }
}
