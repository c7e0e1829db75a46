//! Traced requests: what a trace records.
//!
//! A trace covers a statement until its response is ready. It records which log position the
//! response waits for, but not how long, because that is unknown when the trace is written.

use std::net::IpAddr;

use base::hex::hex;
use uuid::Uuid;
use wire::cql::{Consistency, Flags, Header, Request};

use super::processor::Processor;
use super::requests::{Answer, RequestStatus, Requests};
use crate::engine::published::PublishedStats;
use crate::statements::executor::ClientState;
use crate::statements::traces::{Trace, time_uuid};

/// Limit of the bytes of a statement's text in a trace.
const TEXT_BYTES_MAX: usize = 4096;

const PASSWORD: &str = "password";

type RunResult = Result<RequestStatus, cql::error::CqlError>;

impl Requests<'_> {
    /// Runs a traced request or a part of it. The response contains the trace's id. `before_ns`:
    /// time spent on the request so far.
    pub(super) fn run_traced(
        &mut self,
        client: &mut ClientState,
        processor: &mut Processor,
        (header, request, before_ns): (&Header, &Request<'_>, u64),
        answer: &mut Answer<'_, '_>,
        run: impl FnOnce(&mut Self, &mut ClientState, &mut Processor, &mut Answer<'_, '_>) -> RunResult,
    ) -> RunResult {
        let id = self.trace_id();
        answer.encoder.notes.tracing_id = Some(id.into_bytes());
        let before = answer.out.len();
        let start = self.reactor.clock.now();
        let ran = run(self, client, processor, answer)?;
        // The trace of a paused statement is written when the statement has finished.
        let RequestStatus::Answered(gate) = ran else { return Ok(ran) };
        let end = self.reactor.clock.now();
        let ns = before_ns + self.reactor.clock.delta_ns(start, end);
        let us = i32::try_from(ns / 1000).unwrap_or(i32::MAX);
        let (kind, parameters) = describe(request);
        let bytes = header.body_bytes;
        let mut events = vec![
            (0, format!("Request of {bytes} bytes decoded")),
            (us, format!("Statement run, response of {} bytes ready", answer.out.len() - before)),
        ];
        if let Some(lsn) = gate.unless_open_at(self.reactor.durable).lsn() {
            events.push((us, format!("Response waits until the log is on disk up to {lsn}")));
        }
        let evicted = self.cql.statements.traces.push(id);
        let client_address = self.client_address();
        let trace =
            Trace { id, evicted, client: client_address, request: kind, parameters, events };
        let mut executor = self.executor(&mut processor.record);
        if let Err(error) = executor.write_trace(client, &trace) {
            tracing::debug!(%error, "could not write a trace");
        }
        Ok(ran)
    }

    /// The client's address, if it is still connected.
    fn client_address(&self) -> Option<IpAddr> {
        let id = self.connection.0;
        let mut rows = self.shared.published.iter();
        let found = |rows: &parking_lot::Mutex<PublishedStats>| {
            rows.lock().clients.get(&id)?.remote.internet()
        };
        rows.find_map(found).map(|remote| remote.ip())
    }

    /// A version 1 UUID: drivers read the time from it.
    fn trace_id(&mut self) -> Uuid {
        let [counter_high, counter_low, node @ ..] = self.reactor.random().to_be_bytes();
        let counter = u16::from_be_bytes([counter_high, counter_low]);
        time_uuid(self.now.unix_us(), 0, counter, node)
    }
}

/// Whether a client requests a trace.
pub(super) fn is_traced(header: &Header) -> bool {
    header.flags.has(Flags::TRACING)
}

/// The kind of request in Cassandra's words, and its parameters.
fn describe(request: &Request<'_>) -> (&'static str, Vec<(&'static str, String)>) {
    let mut shown = Vec::new();
    let kind = match request {
        Request::Query { statement, .. } => {
            shown.push(("query", shortened(statement)));
            "Execute CQL3 query"
        }
        Request::Prepare { statement, .. } => {
            shown.push(("query", shortened(statement)));
            "Preparing CQL3 query"
        }
        Request::Execute { id, .. } => {
            shown.push(("id", hex(id)));
            "Execute CQL3 prepared query"
        }
        Request::Batch(batch) => {
            shown.push(("statements", batch.statements.len().to_string()));
            "Execute batch of CQL3 queries"
        }
        _ => "Request",
    };
    if let Request::Query { parameters, .. } | Request::Execute { parameters, .. } = request {
        shown.push(("consistency_level", level(parameters.consistency)));
        let serial = parameters.serial_consistency.unwrap_or(Consistency::Serial);
        shown.push(("serial_consistency_level", level(serial)));
        shown.extend(parameters.page_size.map(|rows| ("page_size", rows.to_string())));
    }
    (kind, shown)
}

/// Every client may read traces, so the text is cut after the word password.
// Source: Cassandra 5.0, PasswordObfuscator
fn shortened(text: &str) -> String {
    let shown = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
    match shown.to_ascii_lowercase().find(PASSWORD) {
        None => shown.to_owned(),
        Some(at) => format!("{} *******", &shown[..at + PASSWORD.len()]),
    }
}

/// `LOCAL_ONE`
fn level(level: Consistency) -> String {
    let mut name = String::new();
    for letter in format!("{level:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_truncated_and_redacted() {
        assert_eq!(shortened("SELECT"), "SELECT");
        assert_eq!(
            shortened("ALTER USER é WITH PassWord 'x'"),
            "ALTER USER é WITH PassWord *******"
        );
        assert_eq!(shortened(&"é".repeat(TEXT_BYTES_MAX)).len(), TEXT_BYTES_MAX);
        assert_eq!(level(Consistency::LocalQuorum), "LOCAL_QUORUM");
        assert_eq!(level(Consistency::One), "ONE");
    }
}
