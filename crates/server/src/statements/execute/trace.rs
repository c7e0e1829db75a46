//! Writes a trace as rows of `system_traces`.

use std::collections::BTreeMap;

use cql::error::CqlError;
use cql::schema::{RowBuilder, RowId, Table, builtin_table};
use cql::types::CqlType;
use cql::value::comparable;
use store::{Expiry, Mutation, RowKey, Seconds, Stamp, Write};

use super::change::Packed;
use super::keys::{Key, table_id};
use crate::engine::commit::Unit;
use crate::statements::executor::{ClientState, CqlExecutor, held_by_script};
use crate::statements::traces::{TTL, Trace, time_uuid};

const KEYSPACE: &str = "system_traces";
const TABLES: [&str; 2] = ["sessions", "events"];

/// The timestamp and expiry of a trace's rows.
struct When {
    timestamp: i64,
    now: Seconds,
}

impl When {
    fn expiry(&self) -> Expiry {
        Expiry { at: self.now.saturating_add(TTL), ttl: TTL }
    }
}

impl CqlExecutor<'_> {
    /// Writes one record: the session, its events, and the deletion of an evicted trace.
    pub(crate) fn write_trace(
        &mut self,
        client: &ClientState,
        trace: &Trace,
    ) -> Result<(), CqlError> {
        self.admit_write(client)?;
        let now_us = self.context.now.unix_us();
        let timestamp = self.context.shared.write_clock.take(now_us, 1);
        let now = Seconds::try_from(self.context.now.unix.0 / 1000).unwrap_or(Seconds::MAX);
        let when = When { timestamp, now };
        let [sessions, events] = TABLES.map(|name| builtin_table(KEYSPACE, name));
        let mut session = Packed::default();
        put_session(client, trace, &sessions, now_us, &when, &mut session);
        let mut happened = Packed::default();
        let node = self.context.reactor.random();
        put_events(client, trace, &events, (now_us, node), &when, &mut happened);
        let [session_key, events_key] = [&sessions, &events].map(|table| (table, trace.id));
        let mut parts = vec![(session_key, session), (events_key, happened)];
        if let Some(old) = trace.evicted {
            for table in [&sessions, &events] {
                let mut deletion = Packed::default();
                deletion.put(Write::DeletePartition(Stamp { timestamp, at: now }));
                parts.push(((table, old), deletion));
            }
        }
        let keys = parts.iter().map(|((table, id), _)| {
            let key = Key::new(&[id.as_bytes().into()])?;
            Ok((table_id(table), key))
        });
        let keys = keys.collect::<Result<Vec<_>, CqlError>>()?;
        let places = || keys.iter().map(|(table, key)| key.place(*table));
        let hashes = places().map(|place| place.hash());
        let shared = self.context.shared;
        let is_too_slow = shared.running_scripts.until_too_slow();
        let locked = shared.keyspace.lock_unless(hashes, self.context.params, is_too_slow);
        let locked = locked.ok_or_else(held_by_script)?;
        let mut unit =
            Unit::of_client(self.context.shared, self.context.reactor, self.context.record, locked);
        for (key, (_, packed)) in places().zip(&parts) {
            let mutation = Mutation::Partition { key, writes: packed.writes() };
            unit.change(&mutation).map_err(|error| CqlError::Server(error.to_string()))?;
        }
        unit.stamp(timestamp);
        unit.commit(self.context.reactor);
        Ok(())
    }
}

fn put_session(
    client: &ClientState,
    trace: &Trace,
    table: &Table,
    now_us: i64,
    when: &When,
    out: &mut Packed,
) {
    let took = trace.events.last().map_or(0, |(us, _)| *us);
    let mut row = RowBuilder::new(table)
        .uuid("session_id", trace.id)
        .text("command", "QUERY")
        .int("duration", took)
        .text("request", trace.request)
        .bigint("started_at", now_us / 1000);
    if let Some(peer) = trace.client {
        row = row.inet("client", peer);
    }
    if let Some(local) = client.local {
        row = row.inet("coordinator", local.ip()).int("coordinator_port", local.port().into());
    }
    put_row(row, when, out);
    let parameters = table.column("parameters").expect("sessions have parameters").number;
    let items = trace.parameters.iter().map(|(name, text)| {
        let mut key = Vec::new();
        comparable::encode(name.as_bytes(), &CqlType::TEXT, false, &mut key);
        (key, text)
    });
    for (key, text) in items.collect::<BTreeMap<_, _>>() {
        out.put(Write::Cell {
            row: RowKey::Clustering(&[]),
            column: parameters,
            item: Some(&key),
            timestamp: when.timestamp,
            value: store::CellValue::Live { bytes: text.as_bytes(), expiry: Some(when.expiry()) },
        });
    }
}

/// `(now_us, node)`: microseconds since 1970, and a number unique to this trace.
fn put_events(
    client: &ClientState,
    trace: &Trace,
    table: &Table,
    (now_us, node): (i64, u64),
    when: &When,
    out: &mut Packed,
) {
    let [high, low, node @ ..] = node.to_be_bytes();
    let counter = u16::from_be_bytes([high, low]);
    let thread = std::thread::current();
    for (nth, (us, activity)) in (0..).zip(&trace.events) {
        let at = now_us.saturating_add(i64::from(*us));
        let mut row = RowBuilder::new(table)
            .uuid("session_id", trace.id)
            .uuid("event_id", time_uuid(at, nth, counter, node))
            .text("activity", activity)
            .int("source_elapsed", *us)
            .text("thread", thread.name().unwrap_or_default());
        if let Some(local) = client.local {
            row = row.inet("source", local.ip()).int("source_port", local.port().into());
        }
        put_row(row, when, out);
    }
}

fn put_row(row: RowBuilder<'_>, when: &When, out: &mut Packed) {
    let (RowId { clustering, .. }, cells) = row.stored();
    let row = clustering.unwrap_or_default();
    let (timestamp, expiry) = (when.timestamp, Some(when.expiry()));
    out.put(Write::InsertRow { row: &row, timestamp, expiry });
    for (column, bytes) in &cells {
        out.put(Write::Cell {
            row: RowKey::Clustering(&row),
            column: *column,
            item: None,
            timestamp,
            value: store::CellValue::Live { bytes, expiry },
        });
    }
}
