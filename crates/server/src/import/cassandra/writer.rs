//! Sends statements to the target in batches of requests.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Instant;

use wire::cql::Value;

use super::failure::Failure;
use super::report::Report;
use super::rows::{Statement, shown};
use super::session::{Message, Session};
use super::table::{Kind, Part};

/// Requests and bytes that are sent before their responses are read. A response has a few bytes, so
/// that all fit into the buffers of a socket.
const BATCH_REQUESTS: usize = 512;
const BATCH_BYTES: usize = 1 << 20;

/// Statements and bytes of one request that has several. The length of a message has a limit.
const UNIT_STATEMENTS_MAX: usize = 65_535;
const UNIT_BYTES_MAX: usize = 128 << 20;

/// Prepared statements of one part, on one connection.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    part: &'a Part,
    report: &'a Report,
    ids: HashMap<Kind, Vec<u8>>,
    current: Option<Vec<u8>>,
    requests: Vec<u8>,
    /// Keys of the rows of the batch, one for each request.
    requested: Vec<String>,
    /// Those of sent requests, and the number of responses that were not read.
    sent: Vec<String>,
    pending: usize,
}

/// The times of a statement, as bytes to be bound.
struct Times {
    timestamp: [u8; 8],
    ttl_s: Option<[u8; 4]>,
}

impl Times {
    /// `read_at`: when the TTL was read. Seconds that have passed since then are not part of the
    /// remaining time.
    fn of(statement: &Statement<'_>, read_at: Instant) -> Times {
        let elapsed_s = i32::try_from(read_at.elapsed().as_secs()).unwrap_or(i32::MAX);
        let ttl_s = statement.when.map(|when| match when.ttl_s {
            0 => 0_i32.to_be_bytes(),
            ttl_s => ttl_s.saturating_sub(elapsed_s).max(1).to_be_bytes(),
        });
        Times { timestamp: statement.timestamp().to_be_bytes(), ttl_s }
    }

    fn bind<'v>(
        &'v self,
        statement: &'v Statement<'_>,
        keys: &[Option<&'v [u8]>],
    ) -> Vec<Value<'v>> {
        let ttl = self.ttl_s.as_ref().map_or(Value::Unset, |ttl| Value::Bytes(ttl));
        let times = [Value::Bytes(&self.timestamp), ttl];
        let keys = keys.iter().map(|key| bound(*key));
        let own = statement.values.iter().map(|value: &Option<Cow<'_, [u8]>>| {
            value.as_ref().map_or(Value::Unset, |bytes| Value::Bytes(bytes))
        });
        match statement.kind {
            Kind::Insert => keys.chain(own).chain(times).collect(),
            Kind::Update | Kind::Append(_) => times.into_iter().chain(own).chain(keys).collect(),
            Kind::Clear(_) => times.into_iter().take(1).chain(keys).collect(),
            Kind::Count => own.chain(keys).collect(),
        }
    }
}

impl<'a> Writer<'a> {
    pub(super) fn prepare(
        part: &'a Part,
        report: &'a Report,
        session: &mut Session<'_>,
    ) -> Result<Writer<'a>, Failure> {
        let mut ids = HashMap::new();
        for kind in part.kinds() {
            ids.insert(kind, session.prepare(&part.write(kind))?);
        }
        let reads = !part.read_columns().is_empty();
        let current = reads.then(|| session.prepare(&part.select_current())).transpose()?;
        let (requests, requested, sent) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Writer { part, report, ids, current, requests, requested, sent, pending: 0 })
    }

    /// Whether the content of the target must be known before a row is written.
    pub(super) fn reads(&self) -> bool {
        self.current.is_some()
    }

    /// Reads from the target what [`Writer::reads`] requires, for each of these rows.
    pub(super) fn read_current(
        &mut self,
        keys: &[&[Option<&[u8]>]],
        session: &mut Session<'_>,
    ) -> Result<Vec<Message>, Failure> {
        self.finish(session)?;
        let id = self.current.as_ref().expect("the caller has checked that rows are read");
        let mut request = Vec::new();
        for (stream, keys) in (0..).zip(keys) {
            let values: Vec<_> = keys.iter().map(|key| bound(*key)).collect();
            session.encode_execute(stream, id, &values, None, &mut request);
        }
        session.send(&request)?;
        let mut found: Vec<Option<Message>> = keys.iter().map(|_| None).collect();
        for _ in keys {
            let message = session.receive()?;
            let place = usize::try_from(message.stream()).ok().and_then(|at| found.get_mut(at));
            let Some(place) = place else { return Err(message.of_no_request()) };
            *place = Some(message);
        }
        let missing = || Failure::Final(anyhow::anyhow!("the target answered a request twice"));
        found.into_iter().map(|message| message.ok_or_else(missing)).collect()
    }

    /// Adds statements as one request. `read_at`: when their TTLs were read.
    pub(super) fn push(
        &mut self,
        unit: &[Statement<'_>],
        keys: &[Option<&[u8]>],
        read_at: Instant,
        session: &mut Session<'_>,
    ) -> Result<(), Failure> {
        let times: Vec<_> = unit.iter().map(|statement| Times::of(statement, read_at)).collect();
        let values: Vec<Vec<Value<'_>>> =
            unit.iter().zip(&times).map(|(statement, times)| times.bind(statement, keys)).collect();
        let key = shown(keys);
        if unit.len() > 1 && (unit.len() > UNIT_STATEMENTS_MAX || bytes(&values) > UNIT_BYTES_MAX) {
            return self.lose(&key, "a list with too many times of writing");
        }
        let stream = i16::try_from(self.requested.len()).expect("a batch has few requests");
        let id = |statement: &Statement<'_>| {
            self.ids.get(&statement.kind).expect("all kinds of the part were prepared").as_slice()
        };
        if let ([statement], [values]) = (unit, &values[..]) {
            session.encode_execute(stream, id(statement), values, None, &mut self.requests);
        } else {
            let statements: Vec<_> =
                unit.iter().map(id).zip(values.iter().map(Vec::as_slice)).collect();
            session.encode_batch(stream, &statements, &mut self.requests);
        }
        self.requested.push(key);
        if self.requested.len() == BATCH_REQUESTS || self.requests.len() >= BATCH_BYTES {
            self.send(session)?;
        }
        Ok(())
    }

    /// Reports a row that the target does not take.
    fn lose(&self, key: &str, reason: &str) -> Result<(), Failure> {
        self.report.lose(&format!("a row of {} ({key}): {reason}", self.part.name()))
    }

    /// Sends the batch, once the responses to the one before were read: the target works on it while
    /// more rows are read.
    fn send(&mut self, session: &mut Session<'_>) -> Result<(), Failure> {
        self.settle(session)?;
        session.send(&self.requests)?;
        self.requests.clear();
        self.requests.shrink_to(2 * BATCH_BYTES);
        self.sent = std::mem::take(&mut self.requested);
        self.pending = self.sent.len();
        Ok(())
    }

    fn settle(&mut self, session: &mut Session<'_>) -> Result<(), Failure> {
        while self.pending > 0 {
            let message = session.receive()?;
            self.pending -= 1;
            match message.expect_done() {
                Err(Failure::Refused(reason)) => {
                    let place = usize::try_from(message.stream()).ok();
                    let key = place.and_then(|place| self.sent.get(place));
                    let key = key.ok_or_else(|| message.of_no_request())?;
                    self.lose(key, &reason)?;
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// Returns when everything was executed and is on the disk of the target.
    pub(super) fn finish(&mut self, session: &mut Session<'_>) -> Result<(), Failure> {
        self.send(session)?;
        self.settle(session)
    }
}

/// Bytes of bound values.
fn bytes(values: &[Vec<Value<'_>>]) -> usize {
    let length = |value: &Value<'_>| match value {
        Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    };
    values.iter().flatten().map(length).sum()
}

pub(super) fn bound(value: Option<&[u8]>) -> Value<'_> {
    value.map_or(Value::Null, Value::Bytes)
}
