//! `/changes?from=POSITION`: changes as server-sent events, from a position in the log.
//!
//! Sends only durable records, in log order, each once. An event's `id` is the position after its
//! record, so a client that reconnects with it misses nothing.

use std::fmt::Write as _;

use cql::roles::is_table_of_roles;
use serde_json::{Value, json};
use store::{Change, End, GroupRead, Items, Mutation, StreamChange};
use wire::http::{Method, Request};

use super::exchange::{Answered, Exchange, Response};
use super::target;
use crate::engine::records;
use binlog::{Batch, FollowError, Lsn, Scope};

// Source: HTML Living Standard 9.2.5 (text/event-stream)
const MEDIA: &str = "text/event-stream";

/// Maximum length of a value in an event. Of longer ones the event carries only the length; the
/// client can read the key.
const VALUE_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of elements of one change in an event, and of their bytes. Of larger changes the
/// event carries only the number of elements.
const ITEMS_MAX: usize = 1024;
const ITEMS_BYTES_MAX: usize = 1 << 20;
/// An event lists changes of its record until it has this many bytes, then only the number of
/// omitted ones.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// A comment, sent periodically, that lets both sides detect a broken connection.
pub(crate) const HEARTBEAT: &[u8] = b":\n\n";

#[expect(clippy::unnecessary_wraps, reason = "every route returns Answered")]
pub(super) fn answer(exchange: &mut Exchange<'_>, request: &Request<'_>) -> Answered {
    // A browser that reconnects automatically requests its original path and adds this header.
    let seen = request.header("last-event-id").filter(|id| !id.is_empty());
    let from = target::parameter(request.query(), "from");
    let from = seen.or(from.as_deref());
    let log = &exchange.context.shared.log;
    let position = match from {
        None | Some(b"now") => log.durable(),
        Some(text) => {
            let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
            let Some(number) = number else {
                let text = "ERR from and Last-Event-ID must be a log position or now";
                return Ok(exchange.fail(400, text));
            };
            Lsn(number)
        }
    };
    if !exchange.feeds.has_room() {
        return Ok(exchange.fail(503, "ERR too many clients follow the log"));
    }
    match log.follow(position, Scope::Durable) {
        Ok(follower) if request.method() == Method::Get => {
            let text = format!(": from {position}\nretry: 1000\n\n");
            exchange.scratch.body.extend_from_slice(text.as_bytes());
            let mut response = Response::new(200, MEDIA);
            response.follower = Some(Box::new(follower));
            Ok(response)
        }
        Ok(_) => Ok(Response::new(200, MEDIA)),
        Err(error) => {
            let status = if matches!(error, FollowError::Truncated { .. }) { 410 } else { 400 };
            Ok(exchange.fail(status, &format!("ERR {error}")))
        }
    }
}

/// Encodes records as events. `hides_tables`: omit changes of CQL tables, because roles control who
/// may read them and HTTP has no roles. Roles themselves, including their password hashes, are
/// never shown.
pub(crate) fn encode(batch: &Batch, hides_tables: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for record in batch.records() {
        let Some(contents) = records::contents(&record) else { continue };
        out.extend_from_slice(format!("event: change\nid: {}\ndata: {{", record.end).as_bytes());
        put_changes(contents.mutations, hides_tables, &mut out);
        out.extend_from_slice(format!(",\"position\":{}}}\n\n", record.start.0).as_bytes());
    }
    out
}

/// Writes the changes of one record one by one, because a record may hold a million.
fn put_changes(mut input: &[u8], hides_tables: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\"changes\":[");
    let start = out.len();
    let mut omitted = 0_u64;
    let mut put = |change: &dyn Fn() -> Value| {
        if out.len() - start > EVENT_BYTES_MAX {
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
            Ok(mutation) if is_hidden(&mutation, hides_tables) => {}
            Ok(mutation) => put(&|| describe(&mutation)),
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

fn is_hidden(mutation: &Mutation<'_>, hides_tables: bool) -> bool {
    let table = match mutation {
        Mutation::Partition { key, .. } | Mutation::Purge { key, .. } => key.table,
        Mutation::Truncate { table } => *table,
        _ => return false,
    };
    hides_tables || is_table_of_roles(table.0)
}

/// Encodes the last event of a stream that cannot continue.
pub(crate) fn encode_end(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put_event(&mut out, "end", None, &json!({ "error": text }));
    out
}

fn put_event(out: &mut Vec<u8>, name: &str, id: Option<Lsn>, data: &Value) {
    let id = id.map_or_else(String::new, |id| format!("id: {id}\n"));
    // JSON has no line ends outside of strings, and escapes those inside.
    out.extend_from_slice(format!("event: {name}\n{id}data: {data}\n\n").as_bytes());
}

/// Describes one change. A reader that applies all changes in order to an empty server gets the
/// same data, except for values that are too long.
fn describe(mutation: &Mutation<'_>) -> Value {
    let (db, key, change) = match mutation {
        Mutation::Key { db, key, change } => (db, key, change),
        Mutation::Flush { db } => return json!({ "change": "flush", "database": db }),
        Mutation::Swap { dbs } => return json!({ "change": "swap", "databases": dbs }),
        Mutation::Partition { key, writes } => {
            return json!({
                "change": "partition",
                "table": table_name(key.table.0),
                "token": key.token.to_string(),
                "key": bytes(key.bytes),
                "writes": writes.len(),
                "text": shown(mutation),
            });
        }
        Mutation::Purge { key, .. } => {
            return json!({ "change": "purge", "table": table_name(key.table.0), "key": bytes(key.bytes) });
        }
        Mutation::Truncate { table } => {
            return json!({ "change": "truncate", "table": table_name(table.0) });
        }
    };
    let mut value = match change {
        Change::Set { value, expiry } => {
            json!({ "change": "set", "value": bytes(value), "expires_ms": expiry.map(|at| at.0) })
        }
        Change::Edit { offset, bytes: part } => {
            json!({ "change": "edit", "offset": offset, "value": bytes(part) })
        }
        Change::Delete => json!({ "change": "delete" }),
        Change::Expire { at } => json!({ "change": "expire", "expires_ms": at.map(|at| at.0) }),
        Change::HashSet { pairs } => json!({ "change": "hash-set", "pairs": list(*pairs) }),
        Change::HashUpdate { pairs } => json!({ "change": "hash-update", "pairs": list(*pairs) }),
        Change::HashExpire { at, fields } => json!({
            "change": "hash-expire",
            "expires_ms": at.map(|at| at.0),
            "fields": list(*fields),
        }),
        Change::HashRemove { fields } => {
            json!({ "change": "hash-remove", "fields": list(*fields) })
        }
        Change::ListPush { end, values } => {
            json!({ "change": "list-push", "end": end_name(*end), "values": list(*values) })
        }
        Change::ListPop { end, count } => {
            json!({ "change": "list-pop", "end": end_name(*end), "count": count })
        }
        Change::ListSet { index, value } => {
            json!({ "change": "list-set", "index": index, "value": bytes(value) })
        }
        Change::ListInsert { index, value } => {
            json!({ "change": "list-insert", "index": index, "value": bytes(value) })
        }
        Change::ListRemove { count, value } => {
            json!({ "change": "list-remove", "count": count, "value": bytes(value) })
        }
        Change::ListTrim { start, count } => {
            json!({ "change": "list-trim", "start": start, "count": count })
        }
        Change::SetAdd { members } => json!({ "change": "set-add", "members": list(*members) }),
        Change::SetRemove { members } => {
            json!({ "change": "set-remove", "members": list(*members) })
        }
        Change::ZSetAdd { members } => {
            let mut bytes_left = ITEMS_BYTES_MAX;
            let pairs = members.iter().take(ITEMS_MAX).take_while(|(_, member)| {
                bytes_left = bytes_left.saturating_sub(member.len());
                bytes_left > 0
            });
            // JSON numbers cannot be infinite, so scores are sent as strings.
            let pairs: Vec<_> =
                pairs.map(|(score, member)| json!([score.to_string(), bytes(member)])).collect();
            json!({ "change": "zset-add", "count": members.len(), "members": pairs })
        }
        Change::ZSetRemove { members } => {
            json!({ "change": "zset-remove", "members": list(*members) })
        }
        Change::SeriesAdd { points, expiry } => {
            let mut bytes_left = ITEMS_BYTES_MAX;
            let pairs = points.iter().take(ITEMS_MAX).take_while(|(_, value)| {
                bytes_left = bytes_left.saturating_sub(value.len());
                bytes_left > 0
            });
            // Readers of JSON may take numbers for doubles, so timestamps are sent as strings.
            let pairs: Vec<_> =
                pairs.map(|(at, value)| json!([at.to_string(), bytes(value)])).collect();
            json!({
                "change": "series-add",
                "count": points.len(),
                "points": pairs,
                "expires_ms": expiry.map(|at| at.0),
            })
        }
        Change::SeriesRemove { timestamps } => {
            let shown = timestamps.iter().take(ITEMS_MAX);
            let shown: Vec<_> = shown.map(|at| at.to_string()).collect();
            json!({ "change": "series-remove", "count": timestamps.len(), "timestamps": shown })
        }
        Change::SeriesPurge { at, first, last } => json!({
            "change": "series-purge",
            "expired_ms": at.0,
            "first": first.to_string(),
            "last": last.to_string(),
        }),
        Change::Stream(change) => describe_stream(&change.get()),
        Change::Put { kind, encoded, expiry } => json!({
            "change": "put",
            "kind": format!("{kind:?}").to_lowercase(),
            "bytes": encoded.len(),
            "expires_ms": expiry.map(|at| at.0),
        }),
    };
    value["database"] = json!(db);
    value["key"] = bytes(key.bytes);
    value
}

fn describe_stream(change: &StreamChange<'_>) -> Value {
    let ids = |ids: store::Ids<'_>| -> Value {
        let shown: Vec<_> = ids.iter().take(ITEMS_MAX).map(|id| id.to_string()).collect();
        json!({ "count": ids.len(), "ids": shown })
    };
    let read = |read: GroupRead| json!({ "last_id": read.last_id.to_string(), "entries_read": read.entries_read });
    match *change {
        StreamChange::Add { id, fields } => {
            json!({ "change": "stream-add", "id": id.to_string(), "fields": list(fields) })
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
            json!({ "change": "stream-set-group", "group": bytes(group), "read": read(it) })
        }
        StreamChange::DeleteGroup { group } => {
            json!({ "change": "stream-delete-group", "group": bytes(group) })
        }
        StreamChange::SetConsumer { group, consumer, seen_ms } => json!({
            "change": "stream-set-consumer",
            "group": bytes(group),
            "consumer": bytes(consumer),
            "seen_ms": seen_ms,
        }),
        StreamChange::DeleteConsumer { group, consumer } => json!({
            "change": "stream-delete-consumer",
            "group": bytes(group),
            "consumer": bytes(consumer),
        }),
        StreamChange::Assign(it) => {
            let entries = it.entries.iter().take(ITEMS_MAX);
            let entries: Vec<_> =
                entries.map(|(id, deliveries)| json!([id.to_string(), deliveries])).collect();
            json!({
                "change": "stream-assign",
                "group": bytes(it.group),
                "consumer": bytes(it.consumer),
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
            "group": bytes(group),
            "entries": ids(acknowledged),
        }),
    }
}

/// Formats a change as the log tools do, truncated after the part that exceeds [`VALUE_BYTES_MAX`].
fn shown(mutation: &Mutation<'_>) -> String {
    struct Shown(String);
    impl std::fmt::Write for Shown {
        fn write_str(&mut self, part: &str) -> std::fmt::Result {
            if self.0.len() > VALUE_BYTES_MAX {
                return Err(std::fmt::Error);
            }
            self.0.push_str(part);
            Ok(())
        }
    }
    let mut text = Shown(String::new());
    if write!(text, "{mutation}").is_err() {
        text.0.push_str("...");
    }
    text.0
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

fn list(items: Items<'_>) -> Value {
    let is_long = || items.iter().map(<[u8]>::len).sum::<usize>() > ITEMS_BYTES_MAX;
    if items.len() > ITEMS_MAX || is_long() {
        return json!({ "count": items.len() });
    }
    Value::Array(items.iter().map(bytes).collect())
}

/// Converts bytes to a string if they are short valid UTF-8, otherwise to an object: `base64` with
/// the encoded bytes, or `bytes` with the length of a value that is too long.
fn bytes(value: &[u8]) -> Value {
    use base64::Engine as _;
    if value.len() > VALUE_BYTES_MAX {
        return json!({ "bytes": value.len() });
    }
    match std::str::from_utf8(value) {
        Ok(text) => Value::String(text.to_owned()),
        Err(_) => json!({ "base64": base64::engine::general_purpose::STANDARD.encode(value) }),
    }
}

#[cfg(test)]
mod tests {
    use base::time::UnixMs;
    use store::Key;

    use super::*;

    #[track_caller]
    fn check(change: Change<'_>, expected: &str) {
        let key = Key { bytes: b"k\n", hash: 0 };
        let found = describe(&Mutation::Key { db: 3, key, change });
        let mut expected: Value = serde_json::from_str(expected).unwrap();
        expected["database"] = 3.into();
        expected["key"] = "k\n".into();
        assert_eq!(found, expected);
        let mut out = Vec::new();
        put_event(&mut out, "change", Some(Lsn(7)), &found);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), 4, "one line of data, whatever is in it: {text}");
        assert!(text.starts_with("event: change\nid: 7\ndata: {"), "{text}");
    }

    #[test]
    fn changes_are_described_as_json() {
        check(
            Change::Set { value: b"v", expiry: Some(UnixMs(5)) },
            r#"{"change":"set","value":"v","expires_ms":5}"#,
        );
        check(
            Change::Edit { offset: 2, bytes: b"\xff" },
            r#"{"change":"edit","offset":2,"value":{"base64":"/w=="}}"#,
        );
        check(Change::Delete, r#"{"change":"delete"}"#);
        check(
            Change::HashUpdate { pairs: Items::Slice(&[b"f", b"v"]) },
            r#"{"change":"hash-update","pairs":["f","v"]}"#,
        );
        check(
            Change::HashExpire { at: Some(UnixMs(5)), fields: Items::Slice(&[b"f"]) },
            r#"{"change":"hash-expire","expires_ms":5,"fields":["f"]}"#,
        );
        let long = vec![b'x'; VALUE_BYTES_MAX + 1];
        check(
            Change::ListPush { end: End::Back, values: Items::Slice(&[b"a", &long]) },
            r#"{"change":"list-push","end":"back","values":["a",{"bytes":65537}]}"#,
        );
        check(
            Change::ZSetAdd { members: store::Scored::Slice(&[(f64::INFINITY, b"m")]) },
            r#"{"change":"zset-add","count":1,"members":[["inf","m"]]}"#,
        );
        let long = vec![b'x'; VALUE_BYTES_MAX];
        check(
            Change::SetAdd { members: Items::Slice(&[&long[..]; 20]) },
            r#"{"change":"set-add","members":{"count":20}}"#,
        );
        let many = vec![&b"x"[..]; ITEMS_MAX + 1];
        check(
            Change::SetAdd { members: Items::Slice(&many) },
            r#"{"change":"set-add","members":{"count":1025}}"#,
        );
    }

    /// The size of an event is bounded, and it reports the number of omitted changes.
    #[test]
    fn an_event_omits_changes_above_its_limit() {
        const CHANGES: usize = 40;
        let value = vec![b'x'; VALUE_BYTES_MAX];
        let key = Key { bytes: b"k", hash: 0 };
        let change = Change::Set { value: &value, expiry: None };
        let mut encoded = Vec::new();
        for _ in 0..CHANGES {
            Mutation::Key { db: 0, key, change }.encode(&mut encoded);
        }
        let mut out = Vec::new();
        put_changes(&encoded, false, &mut out);
        assert!(out.len() < EVENT_BYTES_MAX + 2 * VALUE_BYTES_MAX, "{}", out.len());
        let text = format!("{{{}}}", String::from_utf8(out).unwrap());
        let event: Value = serde_json::from_str(&text).unwrap();
        let change_count = event["changes"].as_array().unwrap().len();
        assert_eq!(event["omitted"], CHANGES - change_count);
        assert_eq!(change_count, EVENT_BYTES_MAX / VALUE_BYTES_MAX);
    }

    #[test]
    fn the_text_of_a_large_partition_change_is_truncated() {
        let mut bytes = Vec::new();
        let row = [b'r'; 60];
        let count = 10_000;
        for timestamp in 0..10_000 {
            let stamp = store::Stamp { timestamp, at: 1 };
            store::Write::DeleteRow { row: &row, stamp }.encode(&mut bytes);
        }
        let key = store::PartitionKey { table: store::TableId(1), token: 1, bytes: b"k" };
        let writes = store::Writes::Packed { count, bytes: &bytes };
        let found = describe(&Mutation::Partition { key, writes });
        let text = found["text"].as_str().unwrap();
        assert!(text.ends_with("..."), "{}", text.len());
        assert!(text.len() < 2 * VALUE_BYTES_MAX);
        assert_eq!(found["writes"], count);
    }
}
