//! Changes as JSON: for clients that follow the log, and for the tools that read it.

use std::collections::BTreeMap;
use std::sync::Arc;

use cql::roles::is_table_of_roles;
use cql::schema::{Catalog, Table};
use cql::value::comparable;
use serde_json::{Map, Value, json};
use store::{
    CellValue, Change, End, Expiry, Given, GroupRead, Items, Kind, Malformed, Mutation, RowKey,
    StreamChange, Write, Writes, read_encoded,
};
use wire::rdb::end_payload;

use crate::engine::rdb::{put_value, written_type};

/// The changes that are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hidden {
    Nothing,
    /// Changes of roles, which include the hashes of passwords.
    Roles,
    /// Changes of all CQL tables.
    Tables,
}

impl Hidden {
    fn includes(self, mutation: &Mutation<'_>) -> bool {
        let table = match mutation {
            Mutation::Partition { key, .. } | Mutation::Purge { key, .. } => key.table,
            Mutation::Truncate { table } => *table,
            _ => return false,
        };
        match self {
            Hidden::Nothing => false,
            Hidden::Roles => is_table_of_roles(table.0),
            Hidden::Tables => true,
        }
    }
}

/// The tables of a schema, to name what writes change.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<u128, Arc<Table>>);

impl Names {
    pub(crate) fn of(catalog: &Catalog) -> Names {
        let tables = catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
        Names(tables.map(|table| (table.id.as_u128(), Arc::clone(table))).collect())
    }
}

/// How much of a change is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Of longer values only the length is shown.
    pub(crate) value_bytes: usize,
    /// Elements or writes of one change, and their bytes. Of larger changes only the number is
    /// shown.
    pub(crate) items: usize,
    pub(crate) items_bytes: usize,
    /// Changes of a record are listed until they have this many bytes, then only the number of
    /// omitted ones.
    pub(crate) record_bytes: usize,
}

impl Limits {
    /// Everything is shown.
    pub(crate) const NONE: Limits = Limits {
        value_bytes: usize::MAX,
        items: usize::MAX,
        items_bytes: usize::MAX,
        record_bytes: usize::MAX,
    };

    /// Writes the changes of one record one by one, because a record may hold a million.
    pub(crate) fn put_changes(
        self,
        mut input: &[u8],
        hidden: Hidden,
        names: &Names,
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(b"\"changes\":[");
        let start = out.len();
        let mut omitted = 0_u64;
        let mut put = |change: &dyn Fn() -> Value| {
            if out.len() - start > self.record_bytes {
                omitted += 1;
                return;
            }
            if out.len() > start {
                out.push(b',');
            }
            serde_json::to_writer(&mut *out, &change()).expect("writing to memory does not fail");
        };
        while !input.is_empty() {
            match Mutation::decode(&mut input, |_| 0) {
                Ok(mutation) if hidden.includes(&mutation) => {}
                Ok(mutation) => put(&|| self.describe(&mutation, names)),
                Err(error) => {
                    put(&|| json!({ "error": error.to_string() }));
                    break;
                }
            }
        }
        out.push(b']');
        if omitted > 0 {
            out.extend_from_slice(format!(",\"omitted\":{omitted}").as_bytes());
        }
    }

    /// Describes one change. A reader that applies all changes in order to an empty server gets the
    /// same data, except for values that are too long.
    pub(crate) fn describe(self, mutation: &Mutation<'_>, names: &Names) -> Value {
        match mutation {
            Mutation::Key { db, key, change } => {
                let mut value = self.describe_change(change);
                value["database"] = json!(db);
                value["key"] = self.bytes(key.bytes);
                value
            }
            Mutation::Flush { db } => json!({ "change": "flush", "database": db }),
            Mutation::Swap { dbs } => json!({ "change": "swap", "databases": dbs }),
            Mutation::Partition { key, writes } => {
                let table = names.0.get(&key.table.0).map(|table| &**table);
                let mut value = json!({
                    "change": "partition",
                    "table": table_name(key.table.0),
                    "token": key.token.to_string(),
                    "key": self.bytes(key.bytes),
                    "writes": self.describe_writes(*writes, table),
                });
                if let Some(table) = table {
                    value["name"] = json!(format!("{}.{}", table.keyspace, table.name));
                }
                value
            }
            Mutation::Purge { key, .. } => {
                json!({ "change": "purge", "table": table_name(key.table.0), "key": self.bytes(key.bytes) })
            }
            Mutation::Version { db, key, given: Given { version, seen } } => json!({
                "change": "version",
                "database": db,
                "key": self.bytes(key.bytes),
                "time_us": version.time,
                "server": version.server,
                "seen_time_us": seen.time,
                "seen_server": seen.server,
            }),
            Mutation::Floor { db, version } => json!({
                "change": "floor",
                "database": db,
                "time_us": version.time,
                "server": version.server,
            }),
            Mutation::Origin { server, newest_timestamp } => json!({
                "change": "origin",
                "server": server,
                "newest_timestamp": newest_timestamp,
            }),
            Mutation::Truncate { table } => {
                json!({ "change": "truncate", "table": table_name(table.0) })
            }
        }
    }

    /// Describes a change of one key, without the key.
    fn describe_change(self, change: &Change<'_>) -> Value {
        let items = |change, name: &str, items| json!({ "change": change, name: self.list(items) });
        let value_at = |change, name: &str, at: Value, value| json!({ "change": change, name: at, "value": self.bytes(value) });
        match change {
            Change::Set { value, expiry } => {
                json!({ "change": "set", "value": self.bytes(value), "expires_ms": expiry.map(|at| at.0) })
            }
            Change::Edit { offset, bytes: part } => value_at("edit", "offset", json!(offset), part),
            Change::Delete => json!({ "change": "delete" }),
            Change::Expire { at } => json!({ "change": "expire", "expires_ms": at.map(|at| at.0) }),
            Change::HashSet { pairs } => items("hash-set", "pairs", *pairs),
            Change::HashUpdate { pairs } => items("hash-update", "pairs", *pairs),
            Change::HashExpire { at, fields } => json!({
                "change": "hash-expire",
                "expires_ms": at.map(|at| at.0),
                "fields": self.list(*fields),
            }),
            Change::HashRemove { fields } => items("hash-remove", "fields", *fields),
            Change::ListPush { end, values } => {
                json!({ "change": "list-push", "end": end_name(*end), "values": self.list(*values) })
            }
            Change::ListPop { end, count } => {
                json!({ "change": "list-pop", "end": end_name(*end), "count": count })
            }
            Change::ListSet { index, value } => value_at("list-set", "index", json!(index), value),
            Change::ListInsert { index, value } => {
                value_at("list-insert", "index", json!(index), value)
            }
            Change::ListRemove { count, value } => {
                value_at("list-remove", "count", json!(count), value)
            }
            Change::ListTrim { start, count } => {
                json!({ "change": "list-trim", "start": start, "count": count })
            }
            Change::SetAdd { members } => items("set-add", "members", *members),
            Change::SetRemove { members } => items("set-remove", "members", *members),
            Change::ZSetAdd { members } => {
                // JSON numbers cannot be infinite, so scores are sent as strings.
                let shown = self.shown_pairs(members.iter());
                json!({ "change": "zset-add", "count": members.len(), "members": shown })
            }
            Change::ZSetRemove { members } => items("zset-remove", "members", *members),
            Change::SeriesAdd { points, expiry } => json!({
                "change": "series-add",
                "count": points.len(),
                // Readers of JSON may take numbers for doubles, so timestamps are sent as strings.
                "points": self.shown_pairs(points.iter()),
                "expires_ms": expiry.map(|at| at.0),
            }),
            Change::SeriesRemove { timestamps } => {
                let shown = timestamps.iter().take(self.items);
                let shown: Vec<_> = shown.map(|at| at.to_string()).collect();
                json!({ "change": "series-remove", "count": timestamps.len(), "timestamps": shown })
            }
            Change::SeriesPurge { at, first, last } => json!({
                "change": "series-purge",
                "expired_ms": at.0,
                "first": first.to_string(),
                "last": last.to_string(),
            }),
            Change::Stream(change) => self.describe_stream(&change.get()),
            Change::Put { kind, encoded, expiry } => json!({
                "change": "put",
                "kind": format!("{kind:?}").to_lowercase(),
                "value": self.describe_value(*kind, encoded),
                "expires_ms": expiry.map(|at| at.0),
            }),
        }
    }

    /// The first pairs of a number, as text, and bytes: as many as may be shown.
    fn shown_pairs<'v, N: ToString>(
        self,
        pairs: impl Iterator<Item = (N, &'v [u8])>,
    ) -> Vec<Value> {
        let mut bytes_left = self.items_bytes;
        let shown = pairs.take(self.items).take_while(|(_, bytes)| {
            bytes_left = bytes_left.saturating_sub(bytes.len());
            bytes_left > 0
        });
        shown.map(|(number, bytes)| json!([number.to_string(), self.bytes(bytes)])).collect()
    }

    fn describe_stream(self, change: &StreamChange<'_>) -> Value {
        let ids = |ids: store::Ids<'_>| -> Value {
            let shown: Vec<_> = ids.iter().take(self.items).map(|id| id.to_string()).collect();
            json!({ "count": ids.len(), "ids": shown })
        };
        let read = |read: GroupRead| json!({ "last_id": read.last_id.to_string(), "entries_read": read.entries_read });
        match *change {
            StreamChange::Add { id, fields } => {
                json!({ "change": "stream-add", "id": id.to_string(), "fields": self.list(fields) })
            }
            StreamChange::Trim { count } => json!({ "change": "stream-trim", "count": count }),
            StreamChange::Delete { ids: deleted } => {
                json!({ "change": "stream-delete", "entries": ids(deleted) })
            }
            StreamChange::SetIds { last_id, entries_added, max_deleted_id } => json!({
                "change": "stream-set-ids",
                "last_id": last_id.to_string(),
                "entries_added": entries_added,
                "max_deleted_id": max_deleted_id.map(|id| id.to_string()),
            }),
            StreamChange::SetGroup { group, read: it } => {
                json!({ "change": "stream-set-group", "group": self.bytes(group), "read": read(it) })
            }
            StreamChange::DeleteGroup { group } => {
                json!({ "change": "stream-delete-group", "group": self.bytes(group) })
            }
            StreamChange::SetConsumer { group, consumer, seen_ms } => json!({
                "change": "stream-set-consumer",
                "group": self.bytes(group),
                "consumer": self.bytes(consumer),
                "seen_ms": seen_ms,
            }),
            StreamChange::DeleteConsumer { group, consumer } => json!({
                "change": "stream-delete-consumer",
                "group": self.bytes(group),
                "consumer": self.bytes(consumer),
            }),
            StreamChange::Assign(it) => {
                let entries = it.entries.iter().take(self.items);
                let entries: Vec<_> =
                    entries.map(|(id, deliveries)| json!([id.to_string(), deliveries])).collect();
                json!({
                    "change": "stream-assign",
                    "group": self.bytes(it.group),
                    "consumer": self.bytes(it.consumer),
                    "seen_ms": it.seen_ms,
                    "is_active": it.is_active,
                    "delivered_ms": it.delivered_ms,
                    "read": it.read.map(read),
                    "count": it.entries.len(),
                    "entries": entries,
                })
            }
            StreamChange::Acknowledge { group, ids: acknowledged } => json!({
                "change": "stream-acknowledge",
                "group": self.bytes(group),
                "entries": ids(acknowledged),
            }),
        }
    }

    fn describe_writes(self, writes: Writes<'_>, table: Option<&Table>) -> Value {
        let is_long =
            || writes.iter().map(|write| content_bytes(&write)).sum::<usize>() > self.items_bytes;
        if writes.len() > self.items || is_long() {
            return json!({ "count": writes.len() });
        }
        let described = writes.iter().map(|write| {
            let mut value = self.describe_write(&write);
            if let Some(table) = table {
                self.name_parts(&write, table, &mut value);
            }
            value
        });
        described.collect()
    }

    /// Adds the name of the column, and the values of the clustering columns, as CQL has them.
    fn name_parts(self, write: &Write<'_>, table: &Table, value: &mut Value) {
        if let Write::Cell { column, .. } | Write::DeleteItems { column, .. } = *write
            && let Some(column) = table.columns.iter().find(|one| one.number == column)
        {
            value["column_name"] = json!(column.name);
        }
        let (Write::DeleteRow { row, .. }
        | Write::InsertRow { row, .. }
        | Write::Cell { row: RowKey::Clustering(row), .. }
        | Write::DeleteItems { row: RowKey::Clustering(row), .. }) = *write
        else {
            return;
        };
        let (mut rest, mut parts) = (row, Map::new());
        for column in table.clustering() {
            let part = comparable::decode(&mut rest, &column.column_type, column.is_descending());
            // `row` has all bytes, also of a row that the present schema does not describe.
            let Some(part) = part else { break };
            parts.insert(column.name.clone(), self.bytes(&part));
        }
        value["clustering"] = Value::Object(parts);
    }

    /// Describes one write to a partition. The row of static cells is null.
    fn describe_write(self, write: &Write<'_>) -> Value {
        let row = |row: RowKey<'_>| match row {
            RowKey::Static => Value::Null,
            RowKey::Clustering(row) => self.bytes(row),
        };
        let optional = |bytes: Option<&[u8]>| bytes.map(|bytes| self.bytes(bytes));
        // Clients choose timestamps. Readers of JSON may take numbers for doubles, so they are
        // sent as strings.
        let stamped = |mut value: Value, timestamp: i64| {
            value["timestamp"] = json!(timestamp.to_string());
            value
        };
        let deleted = |mut value: Value, at: u32| {
            value["deleted_s"] = json!(at);
            value
        };
        let expiring = |mut value: Value, expiry: Option<Expiry>| {
            value["expires_s"] = json!(expiry.map(|expiry| expiry.at));
            value["ttl_s"] = json!(expiry.map(|expiry| expiry.ttl));
            value
        };
        match *write {
            Write::DeletePartition(stamp) => {
                stamped(deleted(json!({ "write": "delete-partition" }), stamp.at), stamp.timestamp)
            }
            Write::DeleteRange { start, end, stamp } => {
                let range = json!({
                    "write": "delete-range",
                    "start": self.bytes(start),
                    "end": optional(end),
                });
                stamped(deleted(range, stamp.at), stamp.timestamp)
            }
            Write::DeleteRow { row, stamp } => {
                let row = json!({ "write": "delete-row", "row": self.bytes(row) });
                stamped(deleted(row, stamp.at), stamp.timestamp)
            }
            Write::InsertRow { row, timestamp, expiry } => {
                let row = json!({ "write": "insert-row", "row": self.bytes(row) });
                stamped(expiring(row, expiry), timestamp)
            }
            Write::DeleteItems { row: key, column, stamp } => {
                let items = json!({ "write": "delete-items", "row": row(key), "column": column });
                stamped(deleted(items, stamp.at), stamp.timestamp)
            }
            Write::Cell { row: key, column, item, timestamp, value } => {
                let mut cell = json!({ "row": row(key), "column": column, "item": optional(item) });
                let cell = match value {
                    CellValue::Live { bytes, expiry } => {
                        cell["write"] = json!("cell");
                        cell["value"] = self.bytes(bytes);
                        expiring(cell, expiry)
                    }
                    CellValue::Deleted { at } => {
                        cell["write"] = json!("delete-cell");
                        deleted(cell, at)
                    }
                };
                stamped(cell, timestamp)
            }
        }
    }

    /// Describes the value that replaces a key: as the payload that RESTORE takes, or the points of
    /// a time series.
    fn describe_value(self, kind: Kind, encoded: &[u8]) -> Value {
        if encoded.len() > self.value_bytes {
            return json!({ "bytes": encoded.len() });
        }
        let described = read_encoded(kind, encoded, |value| {
            if let store::Value::Series(series) = value {
                let points = series.range(i64::MIN, i64::MAX).map(|point| {
                    let expires_ms = point.expiry.map(|at| at.0);
                    json!([point.timestamp.to_string(), self.bytes(point.value), expires_ms])
                });
                return json!({ "points": points.collect::<Value>() });
            }
            let written = written_type(&value).expect("Redis has all types but time series");
            let mut payload = vec![written as u8];
            put_value(&mut payload, &value);
            end_payload(&mut payload, written.version());
            json!({ "restore": self.bytes(&payload) })
        });
        described.unwrap_or_else(|Malformed| json!({ "error": Malformed.to_string() }))
    }

    fn list(self, items: Items<'_>) -> Value {
        let is_long = || items.iter().map(<[u8]>::len).sum::<usize>() > self.items_bytes;
        if items.len() > self.items || is_long() {
            return json!({ "count": items.len() });
        }
        Value::Array(items.iter().map(|item| self.bytes(item)).collect())
    }

    /// Converts bytes to a string if they are short valid UTF-8, otherwise to an object: `base64` with
    /// the encoded bytes, or `bytes` with the length of a value that is too long.
    fn bytes(self, value: &[u8]) -> Value {
        use base64::Engine as _;
        if value.len() > self.value_bytes {
            return json!({ "bytes": value.len() });
        }
        match std::str::from_utf8(value) {
            Ok(text) => Value::String(text.to_owned()),
            Err(_) => json!({ "base64": base64::engine::general_purpose::STANDARD.encode(value) }),
        }
    }
}

/// Bytes of the keys, items and values in a write.
fn content_bytes(write: &Write<'_>) -> usize {
    let row_bytes = |row: RowKey<'_>| match row {
        RowKey::Static => 0,
        RowKey::Clustering(row) => row.len(),
    };
    match *write {
        Write::DeletePartition(_) => 0,
        Write::DeleteRange { start, end, .. } => start.len() + end.map_or(0, <[u8]>::len),
        Write::DeleteRow { row, .. } | Write::InsertRow { row, .. } => row.len(),
        Write::DeleteItems { row, .. } => row_bytes(row),
        Write::Cell { row, item, value, .. } => {
            let value_bytes = match value {
                CellValue::Live { bytes, .. } => bytes.len(),
                CellValue::Deleted { .. } => 0,
            };
            row_bytes(row) + item.map_or(0, <[u8]>::len) + value_bytes
        }
    }
}

fn end_name(end: End) -> &'static str {
    match end {
        End::Front => "front",
        End::Back => "back",
    }
}

/// Formats the ID of a table as `system_schema` does.
fn table_name(id: u128) -> String {
    uuid::Uuid::from_u128(id).to_string()
}
