//! The trace of a statement of `POST /cql`, which is a part of its answer.
//!
//! Unlike a trace of the protocol CQL it is not kept in `system_traces`: reading costs no writes.

use base::stages::CycleClock;
use wire::resp::write_json_text;

/// Events of one trace after which pauses are no longer noted.
const EVENTS_MAX: usize = 100;

#[derive(Debug)]
pub(super) struct StatementTrace {
    clock: CycleClock,
    /// Cycle counter.
    began: u64,
    events: Vec<Event>,
}

#[derive(Debug)]
struct Event {
    /// Time since the request was decoded.
    at_us: u64,
    text: String,
}

impl StatementTrace {
    pub(super) fn new(clock: &CycleClock) -> StatementTrace {
        StatementTrace { clock: clock.clone(), began: clock.now(), events: Vec::new() }
    }

    pub(super) fn note(&mut self, text: String) {
        let at_us = self.clock.delta_ns(self.began, self.clock.now()) / 1_000;
        self.events.push(Event { at_us, text });
    }

    /// Notes that the statement continues later, unless that is known.
    pub(super) fn note_pause(&mut self, rows: usize) {
        if self.events.len() < EVENTS_MAX {
            self.note(format!("{rows} rows read; other requests are served"));
        }
    }

    /// Adds the trace as the last member of the JSON object that ends `body`.
    pub(super) fn append_to(&self, body: &mut Vec<u8>) {
        let end = body.pop();
        debug_assert_eq!(end, Some(b'}'), "the body is a JSON object");
        body.extend_from_slice(b",\"trace\":[");
        for (index, Event { at_us, text }) in self.events.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            body.extend_from_slice(format!("{comma}{{\"at_us\":{at_us},\"text\":").as_bytes());
            write_json_text(text.as_bytes(), body);
            body.push(b'}');
        }
        body.extend_from_slice(b"]}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_the_last_member_and_bounded() {
        let mut trace = StatementTrace::new(&CycleClock::new());
        for _ in 0..=EVENTS_MAX {
            trace.note_pause(4_096);
        }
        trace.note("Statement run".to_owned());
        let mut body = b"{\"rows\":[]}".to_vec();
        trace.append_to(&mut body);
        let read: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let events = read["trace"].as_array().unwrap();
        assert_eq!(events.len(), EVENTS_MAX + 1);
        assert_eq!(events[0]["text"], "4096 rows read; other requests are served");
        assert_eq!(events[EVENTS_MAX]["text"], "Statement run");
        assert!(events.iter().all(|event| event["at_us"].is_u64()));
    }
}
