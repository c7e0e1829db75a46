//! Prepared statements of a mix, and the requests that execute them.

use wire::cql::{ColumnType, Parameters, ParametersToSend, PreparedReply, Value};

use super::super::draws::{Draws, KEY_DIGITS};
use super::super::spec::{CqlWork, Sizes, SocketWork};
use super::super::template::{Part, Weights, parts, put_digits};
use super::ENCODER;

/// Statement id for an echo server.
const ECHO_ID: [u8; 16] = [0; 16];
/// Size of a request without its values.
const FRAME_BYTES_MAX: usize = 64;
const NUMBER_DIGITS_MAX: usize = 20;

/// All operations, their weights, and their encoding.
#[derive(Debug)]
pub(crate) struct Statements {
    list: Vec<Statement>,
    weights: Weights,
    prefix: Vec<u8>,
    /// The value, if all are the same.
    value: Option<Vec<u8>>,
    parameters: Parameters<'static>,
    /// Values of varying length, concatenated.
    scratch: Vec<u8>,
}

/// One operation.
#[derive(Debug)]
struct Statement {
    /// With `?` for bound values.
    text: String,
    /// The bound values, in order.
    marks: Vec<Part>,
    /// Whether it stores a value.
    writes: bool,
    /// Assigned by the server; empty until prepared.
    id: Vec<u8>,
    request: Request,
}

#[derive(Debug)]
enum Request {
    /// One copied frame, and the positions of varying content.
    Fixed { frame: Vec<u8>, holes: Vec<(usize, Bind)> },
    /// Lengths vary too.
    Varying(Vec<Bind>),
}

/// A bound value, in the encoding of its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bind {
    /// The digits of a key, after the prefix, which is part of the frame.
    KeyText,
    Key(Width),
    Value,
    Number(Width),
    Operation(Width),
}

/// Encoding of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Width {
    Long,
    Int,
    Text,
}

impl Statements {
    /// `work` was validated; `filler` has the length of the longest value.
    pub(crate) fn new(work: &SocketWork, cql: &CqlWork, filler: &[u8]) -> Statements {
        let value = match work.value_bytes {
            Sizes::Fixed(bytes) => Some(filler[..bytes].to_vec()),
            Sizes::Between(..) => None,
        };
        let mut parameters = Parameters::new(cql.consistency.on_the_wire());
        // As drivers do: the columns are known from the PREPARE.
        parameters.skip_metadata = true;
        Statements {
            list: work
                .mix
                .iter()
                .map(|operation| Statement::new(&operation.words.concat()))
                .collect(),
            weights: Weights::of(&work.mix),
            prefix: work.keys.prefix.clone().into_bytes(),
            value,
            parameters,
            scratch: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Draws the position of the next operation.
    #[inline]
    pub(crate) fn choose(&self, draws: &mut Draws) -> usize {
        self.weights.choose(draws)
    }

    /// Appends a PREPARE for a statement.
    pub(crate) fn ask(&self, position: usize, stream: u16, out: &mut Vec<u8>) {
        ENCODER.prepare(signed(stream), &self.list[position].text, None, out);
    }

    pub(crate) fn find(&self, id: &[u8]) -> Option<usize> {
        self.list.iter().position(|statement| statement.id == id)
    }

    /// Stores a prepared statement. Fails if it cannot be executed.
    pub(crate) fn set(&mut self, position: usize, reply: &PreparedReply<'_>) -> Result<(), String> {
        let statement = &self.list[position];
        if statement.id == reply.id {
            return Ok(());
        }
        let types: Vec<&ColumnType> = reply.markers.specs.iter().map(|spec| &spec.3).collect();
        let (marks, text) = (&statement.marks, &statement.text);
        if types.len() != marks.len() {
            return Err(format!("{text}: {} markers, not {}", types.len(), marks.len()));
        }
        let binds: Result<Vec<Bind>, String> =
            marks.iter().zip(types).map(|(mark, of)| bind(mark, of)).collect();
        let binds = binds.map_err(|reason| format!("{text}: {reason}"))?;
        self.prepared(position, reply.id, binds);
        Ok(())
    }

    /// Initializes the statements without a server: keys and values have the types of the default
    /// schema.
    pub(crate) fn set_for_echo(&mut self) {
        for position in 0..self.list.len() {
            let binds = self.list[position].marks.iter().map(|mark| match mark {
                Part::Value => Bind::Value,
                Part::Number => Bind::Number(Width::Long),
                Part::Operation => Bind::Operation(Width::Long),
                Part::Key | Part::Text(_) => Bind::KeyText,
            });
            let binds = binds.collect();
            self.prepared(position, &ECHO_ID, binds);
        }
    }

    fn prepared(&mut self, position: usize, id: &[u8], binds: Vec<Bind>) {
        let request = self.fixed(id, &binds).unwrap_or(Request::Varying(binds));
        let statement = &mut self.list[position];
        statement.id = id.to_vec();
        statement.request = request;
    }

    /// Returns the encoded request if its values have a fixed length.
    fn fixed(&self, id: &[u8], binds: &[Bind]) -> Option<Request> {
        let key = [&self.prefix[..], &[b'0'; KEY_DIGITS]].concat();
        let mut values = Vec::with_capacity(binds.len());
        for bind in binds {
            let value = match bind {
                Bind::KeyText => &key[..],
                Bind::Value => self.value.as_deref()?,
                Bind::Key(Width::Long)
                | Bind::Number(Width::Long)
                | Bind::Operation(Width::Long) => &[0; 8],
                Bind::Key(Width::Int) | Bind::Number(Width::Int) | Bind::Operation(Width::Int) => {
                    &[0; 4]
                }
                Bind::Key(Width::Text)
                | Bind::Number(Width::Text)
                | Bind::Operation(Width::Text) => {
                    return None;
                }
            };
            values.push((None, Value::Bytes(value)));
        }
        let mut frame = Vec::new();
        let with = ParametersToSend { parameters: self.parameters, values: &values };
        ENCODER.execute(0, id, &[], &with, &mut frame);
        // The values are at the end of the frame.
        let (mut end, mut holes) = (frame.len(), Vec::new());
        for (bind, (_, value)) in binds.iter().zip(&values).rev() {
            let Value::Bytes(bytes) = value else { continue };
            match bind {
                Bind::Value => {}
                Bind::KeyText => holes.push((end - KEY_DIGITS, *bind)),
                _ => holes.push((end - bytes.len(), *bind)),
            }
            end -= bytes.len() + 4;
        }
        // Keys are drawn in the order of their positions.
        holes.reverse();
        Some(Request::Fixed { frame, holes })
    }

    /// Appends a request of the operation at `position`, which was prepared.
    #[inline]
    pub(crate) fn encode(
        &mut self,
        position: usize,
        stream: u16,
        draws: &mut Draws,
        out: &mut Vec<u8>,
    ) {
        let Statement { request, writes, id, .. } = &self.list[position];
        match request {
            Request::Fixed { frame, holes } => {
                let start = out.len();
                out.extend_from_slice(frame);
                out[start + 2..start + 4].copy_from_slice(&stream.to_be_bytes());
                for (at, bind) in holes {
                    let place = &mut out[start + at..];
                    match bind {
                        Bind::KeyText => put_digits(draws.key(*writes), &mut place[..KEY_DIGITS]),
                        Bind::Key(width) => put_number(draws.key(*writes), *width, place),
                        Bind::Number(width) => put_number(draws.number(), *width, place),
                        Bind::Operation(width) => put_number(draws.operation(), *width, place),
                        Bind::Value => {}
                    }
                }
            }
            Request::Varying(binds) => {
                self.scratch.clear();
                let mut ends = Vec::with_capacity(binds.len());
                for bind in binds {
                    append(*bind, *writes, &self.prefix, draws, &mut self.scratch);
                    ends.push(self.scratch.len());
                }
                let mut start = 0;
                let values: Vec<_> = ends
                    .into_iter()
                    .map(|end| {
                        let bytes = &self.scratch[std::mem::replace(&mut start, end)..end];
                        (None, Value::Bytes(bytes))
                    })
                    .collect();
                let with = ParametersToSend { parameters: self.parameters, values: &values };
                ENCODER.execute(signed(stream), id, &[], &with, out);
            }
        }
    }

    /// Returns the size of the longest request, as far as known before preparation.
    pub(crate) fn bytes_max(work: &SocketWork) -> usize {
        let longest = work.mix.iter().map(|operation| {
            let statement = Statement::new(&operation.words.concat());
            let bytes = statement.marks.iter().map(|mark| match mark {
                Part::Value => super::super::draws::longest(work.value_bytes),
                _ => work.keys.prefix.len() + NUMBER_DIGITS_MAX,
            });
            FRAME_BYTES_MAX + bytes.map(|bytes| bytes + 4).sum::<usize>()
        });
        longest.max().unwrap_or(0)
    }
}

impl Statement {
    fn new(words: &str) -> Statement {
        let (mut text, mut marks) = (String::new(), Vec::new());
        for part in parts(words, "") {
            match part {
                Part::Text(bytes) => text.push_str(&String::from_utf8_lossy(&bytes)),
                mark => {
                    text.push('?');
                    marks.push(mark);
                }
            }
        }
        let writes = marks.contains(&Part::Value);
        let request = Request::Varying(Vec::new());
        Statement { text, marks, writes, id: Vec::new(), request }
    }
}

/// Returns the encoding of a value for this type.
fn bind(mark: &Part, of: &ColumnType) -> Result<Bind, String> {
    let is_bytes = matches!(of, ColumnType::Text | ColumnType::Ascii | ColumnType::Blob);
    let width = match of {
        ColumnType::Bigint | ColumnType::Counter | ColumnType::Timestamp => Some(Width::Long),
        ColumnType::Int => Some(Width::Int),
        _ => is_bytes.then_some(Width::Text),
    };
    let bound = match (mark, width) {
        (Part::Value, _) if is_bytes => Some(Bind::Value),
        (Part::Key, Some(Width::Text)) => Some(Bind::KeyText),
        (Part::Key, Some(width)) => Some(Bind::Key(width)),
        (Part::Number, Some(width)) => Some(Bind::Number(width)),
        (Part::Operation, Some(width)) => Some(Bind::Operation(width)),
        _ => None,
    };
    bound.ok_or_else(|| format!("cannot convert {mark:?} to {of:?}"))
}

/// Writes the lowest digits of a number that fit the type.
fn put_number(number: u64, width: Width, place: &mut [u8]) {
    let bytes = number.to_be_bytes();
    match width {
        Width::Long => place[..8].copy_from_slice(&bytes),
        Width::Int => place[..4].copy_from_slice(&bytes[4..]),
        Width::Text => unreachable!("text has no fixed length"),
    }
}

/// Appends a value.
fn append(bind: Bind, writes: bool, prefix: &[u8], draws: &mut Draws, out: &mut Vec<u8>) {
    let (number, width) = match bind {
        Bind::Value => return out.extend_from_slice(draws.value()),
        Bind::KeyText => {
            out.extend_from_slice(prefix);
            let mut digits = [b'0'; KEY_DIGITS];
            put_digits(draws.key(writes), &mut digits);
            return out.extend_from_slice(&digits);
        }
        Bind::Key(width) => (draws.key(writes), width),
        Bind::Number(width) => (draws.number(), width),
        Bind::Operation(width) => (draws.operation(), width),
    };
    match width {
        Width::Text => out.extend_from_slice(number.to_string().as_bytes()),
        Width::Long => out.extend_from_slice(&number.to_be_bytes()),
        Width::Int => out.extend_from_slice(&number.to_be_bytes()[4..]),
    }
}

/// Streams are below 32,768.
fn signed(stream: u16) -> i16 {
    i16::try_from(stream).expect("streams have 15 bits")
}

#[cfg(test)]
mod tests {
    use wire::cql::{
        Direction, HEADER_BYTES, Header, Limits, Metadata, Request as Decoded, decode_request,
    };

    use super::*;
    use crate::load::draws::tests::draws;
    use crate::load::spec::tests::cql_work;
    use crate::load::spec::{Distribution, Operation};

    fn statements(words: &str, sizes: Sizes, types: &[ColumnType]) -> (Statements, Draws) {
        let mut work = cql_work();
        work.mix = vec![Operation { weight: 1.0, words: vec![words.to_owned()] }];
        work.keys.distribution = Distribution::Sequential;
        work.value_bytes = sizes;
        let cql = work.cql.clone().unwrap();
        let mut statements = Statements::new(&work, &cql, &[b'v'; 99]);
        let specs = types.iter().map(|of| ("k", "t", "c", of.clone())).collect();
        let markers = Metadata { columns: types.len(), specs, ..Metadata::default() };
        let reply = PreparedReply {
            id: &[5; 16],
            result_metadata_id: None,
            markers,
            result: Metadata::default(),
        };
        statements.set(0, &reply).unwrap();
        (statements, draws(&work))
    }

    /// Checks the values of the first three requests, decoded by the server's side of the codec.
    fn check(words: &str, sizes: Sizes, types: &[ColumnType], expected: [&[&[u8]]; 3]) {
        let (mut statements, mut draws) = statements(words, sizes, types);
        for (stream, expected) in (7..).zip(expected) {
            let mut out = b"before".to_vec();
            statements.encode(0, stream, &mut draws, &mut out);
            let header = Header::decode(&out[6..], Direction::Request, None, &Limits::DEFAULT);
            let header = header.unwrap().unwrap();
            assert_eq!(u16::try_from(header.stream), Ok(stream));
            assert_eq!(header.envelope_bytes(), out.len() - 6);
            let (request, _) = decode_request(&header, &out[6 + HEADER_BYTES..]).unwrap();
            let Decoded::Execute { id, parameters, .. } = request else { panic!("{request:?}") };
            assert_eq!((id, parameters.skip_metadata), (&[5; 16][..], true));
            let values: Vec<Value<'_>> = parameters.values.iter().map(|(_, value)| value).collect();
            let expected: Vec<Value<'_>> = expected.iter().map(|one| Value::Bytes(one)).collect();
            assert_eq!(values, expected);
        }
    }

    #[test]
    fn keys_and_values_are_bound_in_their_types() {
        check(
            "INSERT INTO t (v, k) VALUES ({value}, {key})",
            Sizes::Fixed(3),
            &[ColumnType::Blob, ColumnType::Text],
            [
                &[b"vvv", b"key:000000000000"],
                &[b"vvv", b"key:000000000001"],
                &[b"vvv", b"key:000000000002"],
            ],
        );
        check(
            "UPDATE t SET v = {operation} WHERE k = {key} AND c = {key}",
            Sizes::Fixed(3),
            &[ColumnType::Int, ColumnType::Bigint, ColumnType::Int],
            [
                &[&[0, 0, 0, 0], &[0, 0, 0, 0, 0, 0, 0, 0], &[0, 0, 0, 1]],
                &[&[0, 0, 0, 1], &[0, 0, 0, 0, 0, 0, 0, 2], &[0, 0, 0, 3]],
                &[&[0, 0, 0, 2], &[0, 0, 0, 0, 0, 0, 0, 4], &[0, 0, 0, 5]],
            ],
        );
    }

    #[test]
    fn values_of_changing_length_carry_theirs() {
        check(
            "UPDATE t SET v = {operation} WHERE k = {key}",
            Sizes::Fixed(3),
            &[ColumnType::Text, ColumnType::Blob],
            [
                &[b"0", b"key:000000000000"],
                &[b"1", b"key:000000000001"],
                &[b"2", b"key:000000000002"],
            ],
        );
        let (mut statements, mut draws) = statements(
            "INSERT INTO t (k, v) VALUES ({key}, {value})",
            Sizes::Between(0, 20),
            &[ColumnType::Bigint, ColumnType::Blob],
        );
        let mut lengths = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let mut out = Vec::new();
            statements.encode(0, 0, &mut draws, &mut out);
            assert!(out.len() <= Statements::bytes_max(&cql_work_between()));
            lengths.insert(out.len());
        }
        assert_eq!(lengths.len(), 21);
    }

    fn cql_work_between() -> SocketWork {
        let mut work = cql_work();
        work.mix[0].words = vec!["{key}{value}".to_owned()];
        work.value_bytes = Sizes::Between(0, 20);
        work
    }

    #[test]
    fn unbindable_statements_are_refused() {
        let mut work = cql_work();
        work.mix[0].words = vec!["SELECT * FROM t WHERE k = {key}".to_owned()];
        let mut statements = Statements::new(&work, &CqlWork::default(), &[b'v'; 99]);
        let mut markers = Metadata::default();
        let mut refusal = |of: Option<ColumnType>| {
            markers.specs = of.into_iter().map(|of| ("k", "t", "c", of)).collect();
            let (markers, result) = (markers.clone(), Metadata::default());
            let reply = PreparedReply { id: &[1], result_metadata_id: None, markers, result };
            statements.set(0, &reply).unwrap_err()
        };
        let text = "SELECT * FROM t WHERE k = ?";
        assert_eq!(refusal(None), format!("{text}: 0 markers, not 1"));
        assert_eq!(refusal(Some(ColumnType::Inet)), format!("{text}: cannot convert Key to Inet"));
    }

    #[test]
    fn an_echo_needs_nothing_prepared() {
        let mut work = cql_work();
        work.mix[0].words = vec![CqlWork::INSERT.to_owned()];
        let mut statements = Statements::new(&work, &CqlWork::default(), &[b'v'; 99]);
        statements.set_for_echo();
        let mut out = Vec::new();
        statements.encode(0, 3, &mut draws(&work), &mut out);
        assert!(out.ends_with(&[b'v'; 80]));
        assert_eq!(statements.find(&ECHO_ID), Some(0));
    }
}
