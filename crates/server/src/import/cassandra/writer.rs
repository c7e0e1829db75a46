//! Sends statements to the target in batches of requests.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Instant;

use wire::cql::Value;

use super::failure::Failure;
use super::rows::Statement;
use super::session::{Message, Session};
use super::table::{Kind, Part};

/// Requests and bytes that are sent before their responses are read. A response has a few bytes, so
/// that all fit into the buffers of a socket.
const BATCH_REQUESTS: i16 = 512;
const BATCH_BYTES: usize = 1 << 20;

/// Prepared statements of one part, on one connection.
#[derive(Debug)]
pub(super) struct Writer {
    ids: HashMap<Kind, Vec<u8>>,
    current: Option<Vec<u8>>,
    requests: Vec<u8>,
    /// Requests of the batch, and sent ones without a response.
    requested: i16,
    pending: i16,
}

impl Writer {
    pub(super) fn prepare(part: &Part, session: &mut Session<'_>) -> Result<Writer, Failure> {
        let mut ids = HashMap::new();
        for kind in part.kinds() {
            ids.insert(kind, session.prepare(&part.write(kind))?);
        }
        let reads = !part.read_columns().is_empty();
        let current = reads.then(|| session.prepare(&part.select_current())).transpose()?;
        Ok(Writer { ids, current, requests: Vec::new(), requested: 0, pending: 0 })
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

    /// Adds a statement. `read_at`: when its TTL was read.
    pub(super) fn push(
        &mut self,
        statement: &Statement<'_>,
        keys: &[Option<&[u8]>],
        read_at: Instant,
        session: &mut Session<'_>,
    ) -> Result<(), Failure> {
        if statement.is_ordered {
            self.finish(session)?;
        }
        let timestamp = statement.timestamp().to_be_bytes();
        // Seconds that have passed since then are not part of the remaining time.
        let elapsed_s = i32::try_from(read_at.elapsed().as_secs()).unwrap_or(i32::MAX);
        let ttl = statement.when.map(|when| match when.ttl_s {
            0 => 0_i32.to_be_bytes(),
            ttl_s => ttl_s.saturating_sub(elapsed_s).max(1).to_be_bytes(),
        });
        let ttl = ttl.as_ref().map_or(Value::Unset, |ttl| Value::Bytes(ttl));
        let times = [Value::Bytes(&timestamp), ttl];
        let keys = keys.iter().map(|key| bound(*key));
        let own = statement.values.iter().map(|value: &Option<Cow<'_, [u8]>>| {
            value.as_ref().map_or(Value::Unset, |bytes| Value::Bytes(bytes))
        });
        let values: Vec<Value<'_>> = match statement.kind {
            Kind::Insert => keys.chain(own).chain(times).collect(),
            Kind::Update | Kind::Append(_) => times.into_iter().chain(own).chain(keys).collect(),
            Kind::Clear(_) => times.into_iter().take(1).chain(keys).collect(),
            Kind::Count => own.chain(keys).collect(),
        };
        let id = self.ids.get(&statement.kind).expect("all kinds of the part were prepared");
        session.encode_execute(self.requested, id, &values, None, &mut self.requests);
        self.requested += 1;
        if self.requested == BATCH_REQUESTS || self.requests.len() >= BATCH_BYTES {
            self.send(session)?;
        }
        Ok(())
    }

    /// Sends the batch, once the responses to the one before were read: the target works on it while
    /// more rows are read.
    fn send(&mut self, session: &mut Session<'_>) -> Result<(), Failure> {
        self.settle(session)?;
        session.send(&self.requests)?;
        self.requests.clear();
        self.requests.shrink_to(2 * BATCH_BYTES);
        self.pending = std::mem::take(&mut self.requested);
        Ok(())
    }

    fn settle(&mut self, session: &mut Session<'_>) -> Result<(), Failure> {
        while self.pending > 0 {
            session.receive()?.expect_done()?;
            self.pending -= 1;
        }
        Ok(())
    }

    /// Returns when everything was executed and is on the disk of the target.
    pub(super) fn finish(&mut self, session: &mut Session<'_>) -> Result<(), Failure> {
        self.send(session)?;
        self.settle(session)
    }
}

pub(super) fn bound(value: Option<&[u8]>) -> Value<'_> {
    value.map_or(Value::Null, Value::Bytes)
}
