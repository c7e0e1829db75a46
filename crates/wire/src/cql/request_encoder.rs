//! Encoder of requests.

use super::compression::Compression;
use super::envelope::{self, Direction, Flags, Opcode, Version};
use super::notation::{Encoded, Notation, Value};
use super::request::{
    BatchKind, BatchStatement, KEYSPACE, NAMES, NOW_IN_SECONDS, PAGE_SIZE, PAGING_STATE,
    Parameters, SERIAL_CONSISTENCY, SKIP_METADATA, TIMESTAMP, VALUES,
};

/// Appends requests: the client's side.
///
/// # Panics
///
/// If a statement, a name, a value or a list of them is too long for its length field: requests are
/// made from this program's own data, and the program checks data from other sources.
#[derive(Debug, Clone, Copy)]
pub struct RequestEncoder {
    pub version: Version,
    /// The algorithm that compresses bodies, in versions 3 and 4.
    pub compression: Option<Compression>,
}

/// A statement of a batch and its values, to be sent.
pub type StatementToSend<'a> = (BatchStatement<'a>, &'a [Value<'a>]);

/// Parameters of a statement to be sent: like [`Parameters`], with values in a list.
#[derive(Debug, Clone, Copy)]
pub struct ParametersToSend<'a> {
    pub parameters: Parameters<'a>,
    /// Either all have names or none has one.
    pub values: &'a [(Option<&'a str>, Value<'a>)],
}

impl RequestEncoder {
    pub fn startup(self, stream: i16, options: &[(&str, &str)], out: &mut Vec<u8>) {
        // Never compressed: this request negotiates the compression.
        let plain = RequestEncoder { compression: None, ..self };
        plain.message(stream, Opcode::Startup, out, |body| body.put_string_map(options));
    }

    pub fn options(self, stream: i16, out: &mut Vec<u8>) {
        let plain = RequestEncoder { compression: None, ..self };
        plain.message(stream, Opcode::Options, out, |_| Ok(()));
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
            body.put_long_string(statement)?;
            self.put_parameters(with, body)
        });
    }

    pub fn prepare(self, stream: i16, statement: &str, keyspace: Option<&str>, out: &mut Vec<u8>) {
        self.message(stream, Opcode::Prepare, out, |body| {
            body.put_long_string(statement)?;
            if self.version == Version::V5 {
                body.put_int(i32::from(keyspace.is_some()));
                if let Some(keyspace) = keyspace {
                    body.put_string(keyspace)?;
                }
            }
            Ok(())
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
            body.put_short_bytes(id)?;
            if self.version == Version::V5 {
                body.put_short_bytes(result_metadata_id)?;
            }
            self.put_parameters(with, body)
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
            body.put_short_count(statements.len())?;
            for (statement, values) in statements {
                match statement {
                    BatchStatement::Text(text) => {
                        body.put_byte(0);
                        body.put_long_string(text)?;
                    }
                    BatchStatement::Prepared(id) => {
                        body.put_byte(1);
                        body.put_short_bytes(id)?;
                    }
                }
                body.put_short_count(values.len())?;
                for value in *values {
                    body.put_value(*value)?;
                }
            }
            body.put_short(with.consistency as u16);
            self.put_flags(with.flags() & !(SKIP_METADATA | PAGE_SIZE | PAGING_STATE), body);
            self.put_tail(with, body)
        });
    }

    // Source: native_protocol_v5.spec 4.1.4 "QUERY"
    fn put_parameters(self, with: &ParametersToSend<'_>, body: &mut Vec<u8>) -> Encoded {
        let parameters = &with.parameters;
        let is_named = with.values.iter().any(|(name, _)| name.is_some());
        let mut flags = parameters.flags();
        if !with.values.is_empty() {
            flags |= VALUES | if is_named { NAMES } else { 0 };
        }
        body.put_short(parameters.consistency as u16);
        self.put_flags(flags, body);
        if !with.values.is_empty() {
            body.put_short_count(with.values.len())?;
            for (name, value) in with.values {
                if is_named {
                    body.put_string(name.unwrap_or_default())?;
                }
                body.put_value(*value)?;
            }
        }
        if let Some(page_size) = parameters.page_size {
            body.put_int(page_size);
        }
        if let Some(paging_state) = parameters.paging_state {
            body.put_bytes(paging_state)?;
        }
        self.put_tail(parameters, body)
    }

    fn put_flags(self, flags: u32, body: &mut Vec<u8>) {
        match self.version {
            Version::V5 => body.put(&flags.to_be_bytes()),
            // The remaining flags exist only in version 5.
            Version::V3 | Version::V4 => body.put_byte(flags.to_be_bytes()[3] & 0x7F),
        }
    }

    /// The end of queries and batches.
    fn put_tail(self, parameters: &Parameters<'_>, body: &mut Vec<u8>) -> Encoded {
        if let Some(consistency) = parameters.serial_consistency {
            body.put_short(consistency as u16);
        }
        if let Some(timestamp) = parameters.timestamp {
            body.put_long(timestamp);
        }
        if self.version == Version::V5 {
            if let Some(keyspace) = parameters.keyspace {
                body.put_string(keyspace)?;
            }
            if let Some(now) = parameters.now_in_seconds {
                body.put_int(now);
            }
        }
        Ok(())
    }

    fn message(
        self,
        stream: i16,
        opcode: Opcode,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>) -> Encoded,
    ) {
        let flags = Flags::default();
        let start = envelope::begin(out, Direction::Request, self.version, flags, stream, opcode);
        write(out).expect("a request of this program fits its length fields");
        super::compress_body(out, start, self.compression);
        envelope::end(out, start);
    }
}

impl Parameters<'_> {
    /// The flags of the present parameters, except values.
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
