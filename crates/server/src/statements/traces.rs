//! Traces: rows of `system_traces`.

use std::collections::VecDeque;
use std::net::IpAddr;

use parking_lot::Mutex;
use store::Seconds;
use uuid::Uuid;

/// TTL of a trace.
// Source: Cassandra 5.0, cassandra.yaml, trace_type_query_ttl
pub(super) const TTL: Seconds = 24 * 3600;

/// Traces kept since the server started. When the limit is exceeded, the oldest is deleted.
const TRACES_MAX: usize = 10_000;

/// The traces that are kept, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Traces(Mutex<VecDeque<Uuid>>);

impl Traces {
    /// Adds a trace. Returns the one that is evicted for it.
    pub(crate) fn push(&self, id: Uuid) -> Option<Uuid> {
        let mut kept = self.0.lock();
        kept.push_back(id);
        if kept.len() > TRACES_MAX { kept.pop_front() } else { None }
    }
}

/// The recorded details of a traced request.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) id: Uuid,
    /// The trace that was evicted for it.
    pub(crate) evicted: Option<Uuid>,
    pub(crate) client: Option<IpAddr>,
    pub(crate) request: &'static str,
    pub(crate) parameters: Vec<(&'static str, String)>,
    /// Events, with the microseconds before each.
    pub(crate) events: Vec<(i32, String)>,
}

/// A version 1 UUID for a time in microseconds since 1970, plus tenths of a microsecond.
pub(crate) fn time_uuid(unix_us: i64, tenths: u64, counter: u16, node: [u8; 6]) -> Uuid {
    /// From the start of the Gregorian calendar to 1970, in the unit of version 1 UUIDs.
    const EPOCH: u64 = 0x01B2_1DD2_1381_4000;
    let ticks = unix_us.cast_unsigned().wrapping_mul(10).wrapping_add(EPOCH).wrapping_add(tenths);
    uuid::Builder::from_gregorian_timestamp(ticks, counter, &node).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_trace_is_evicted() {
        let traces = Traces::default();
        let id = |number: usize| Uuid::from_u128(number as u128);
        for number in 0..TRACES_MAX {
            assert_eq!(traces.push(id(number)), None);
        }
        assert_eq!(traces.push(id(TRACES_MAX)), Some(id(0)));
        assert_eq!(traces.0.lock().len(), TRACES_MAX);
    }
}
