//! Parsing of responses, as far as a generator needs it.

use wire::cql::{Direction, EnvelopeError, HEADER_BYTES, Header, Limits, MalformedBody, Opcode};

/// Kind of a result.
// Source: native_protocol_v4.spec 4.2.5 "RESULT"
const ROWS: [u8; 4] = [0, 0, 0, 2];
/// The metadata of rows contains only the number of columns, and whether there are more pages.
// Source: native_protocol_v4.spec 4.2.5.2 "Rows", flags: No_metadata, Has_more_pages
const NO_METADATA: u8 = 0x04;
const MORE_PAGES: u8 = 0x02;

/// Bytes that violate the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    #[error(transparent)]
    Body(#[from] MalformedBody),
    #[error("response on the invalid stream {0}")]
    Stream(i16),
}

/// The first message of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) header: Header,
    pub(crate) opcode: Opcode,
    pub(crate) body: &'a [u8],
}

/// Returns `None` if it is incomplete.
#[inline]
pub(crate) fn next(input: &[u8], direction: Direction) -> Result<Option<Message<'_>>, Malformed> {
    let Some(header) = Header::decode(input, direction, None, &Limits::DEFAULT)? else {
        return Ok(None);
    };
    let Some(body) = input.get(HEADER_BYTES..header.envelope_bytes()) else { return Ok(None) };
    let opcode = Opcode::from_byte(header.opcode)?;
    Ok(Some(Message { header, opcode, body }))
}

impl Message<'_> {
    pub(crate) fn bytes(&self) -> usize {
        self.header.envelope_bytes()
    }

    /// Returns the stream of the request; `None` for an event.
    pub(crate) fn stream(&self) -> Result<Option<u16>, Malformed> {
        match (self.opcode, self.header.stream) {
            (Opcode::Event, _) => Ok(None),
            (_, stream) => u16::try_from(stream).map(Some).map_err(|_| Malformed::Stream(stream)),
        }
    }

    /// Whether it is a result without rows and without metadata.
    pub(crate) fn has_no_rows(&self) -> bool {
        let body = self.body;
        let is_result = self.opcode == Opcode::Result && self.header.flags.0 == 0;
        is_result
            && body.starts_with(&ROWS)
            && body.get(7).is_some_and(|flags| flags & (NO_METADATA | MORE_PAGES) == NO_METADATA)
            && body.get(12..16) == Some(&[0; 4])
    }
}

/// Returns the id of the unknown statement from the details of an UNPREPARED error.
pub(crate) fn unprepared_id(details: &[u8]) -> Option<&[u8]> {
    let (length, id) = details.split_first_chunk::<2>()?;
    id.get(..usize::from(u16::from_be_bytes(*length)))
}

/// Returns the name of an error code.
// Source: native_protocol_v4.spec 9 "Error codes"
pub(crate) fn error_name(code: i32) -> String {
    let name = match code {
        0x0000 => "SERVER_ERROR",
        0x000A => "PROTOCOL_ERROR",
        0x0100 => "BAD_CREDENTIALS",
        0x1000 => "UNAVAILABLE",
        0x1001 => "OVERLOADED",
        0x1002 => "IS_BOOTSTRAPPING",
        0x1003 => "TRUNCATE_ERROR",
        0x1100 => "WRITE_TIMEOUT",
        0x1200 => "READ_TIMEOUT",
        0x1300 => "READ_FAILURE",
        0x1400 => "FUNCTION_FAILURE",
        0x1500 => "WRITE_FAILURE",
        0x2000 => "SYNTAX_ERROR",
        0x2100 => "UNAUTHORIZED",
        0x2200 => "INVALID",
        0x2300 => "CONFIG_ERROR",
        0x2400 => "ALREADY_EXISTS",
        UNPREPARED => "UNPREPARED",
        _ => return format!("{code:#06x}"),
    };
    name.to_owned()
}

/// The server does not know the statement, or has evicted it.
pub(crate) const UNPREPARED: i32 = 0x2500;

#[cfg(test)]
mod tests {
    use wire::cql::{Columns, ErrorKind, ResponseEncoder, RowsMetadata, Version};

    use super::*;

    fn encoder() -> ResponseEncoder<'static> {
        ResponseEncoder::plain(Version::V4)
    }

    fn message(bytes: &[u8]) -> Message<'_> {
        next(bytes, Direction::Response).unwrap().unwrap()
    }

    #[test]
    fn a_message_is_read_when_it_is_whole() {
        let mut out = Vec::new();
        encoder().error(7, ErrorKind::Overloaded, "too much", &mut out);
        for cut in 0..out.len() {
            assert_eq!(next(&out[..cut], Direction::Response), Ok(None), "{cut}");
        }
        let found = message(&out);
        assert_eq!((found.bytes(), found.opcode), (out.len(), Opcode::Error));
        assert_eq!(found.stream(), Ok(Some(7)));
        assert!(next(&[4], Direction::Response).is_err());
        assert_eq!(next(&[4], Direction::Request), Ok(None));
    }

    #[test]
    fn results_without_rows_are_seen() {
        let rows = |count: usize, has_metadata: bool| {
            let columns =
                [wire::cql::Column { name: "v".into(), column_type: wire::cql::ColumnType::Blob }];
            let metadata = RowsMetadata {
                columns: Columns { keyspace: "k", table: "t", columns: &columns },
                skip_columns: !has_metadata,
                paging_state: None,
                new_metadata_id: None,
            };
            let mut out = Vec::new();
            let mut encoder = encoder().rows(1, &metadata, &mut out);
            for _ in 0..count {
                encoder.cell(Some(b"v"));
                encoder.end_row();
            }
            encoder.finish().unwrap();
            message(&out).has_no_rows()
        };
        assert!(rows(0, false));
        assert!(!rows(1, false));
        assert!(!rows(0, true));
        let mut out = Vec::new();
        encoder().void(1, &mut out).unwrap();
        assert!(!message(&out).has_no_rows());
    }

    #[test]
    fn errors_have_names_and_forgotten_statements_their_id() {
        assert_eq!(error_name(ErrorKind::Overloaded.code()), "OVERLOADED");
        assert_eq!(error_name(ErrorKind::Unprepared { id: &[] }.code()), "UNPREPARED");
        assert_eq!(error_name(0x9999), "0x9999");
        assert_eq!(unprepared_id(&[0, 2, 8, 9]), Some(&[8, 9][..]));
        assert_eq!(unprepared_id(&[0, 3, 8, 9]), None);
        assert_eq!(unprepared_id(&[0]), None);
    }
}
