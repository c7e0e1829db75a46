//! `/changes?from=POSITION`: changes as server-sent events, from a position in the log.
//!
//! Sends only durable records, in log order, each once. An event's `id` is the position after its
//! record, so a client that reconnects with it misses nothing.

use binlog::{Batch, FollowError, Lsn, Scope};
use serde_json::{Value, json};
use wire::http::{Method, Request};

use super::exchange::{Answered, Exchange, Response};
use super::target;
use crate::engine::change_json::{Hidden, Limits, Names};
use crate::engine::records;

// Source: HTML Living Standard 9.2.5 (text/event-stream)
const MEDIA: &str = "text/event-stream";

/// What an event shows; the client can read the key.
const EVENT: Limits =
    Limits { value_bytes: 64 << 10, items: 1024, items_bytes: 1 << 20, record_bytes: 1 << 20 };

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
    let hidden = if hides_tables { Hidden::Tables } else { Hidden::Roles };
    let mut out = Vec::new();
    for record in batch.records() {
        let Some(contents) = records::contents(&record) else { continue };
        if contents.mutations.is_empty() {
            continue; // a position of the stream that a replica has logged
        }
        out.extend_from_slice(format!("event: change\nid: {}\ndata: {{", record.end).as_bytes());
        EVENT.put_changes(contents.mutations, hidden, &Names::default(), &mut out);
        out.extend_from_slice(format!(",\"position\":{}}}\n\n", record.start.0).as_bytes());
    }
    out
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

#[cfg(test)]
mod tests {
    use base::time::UnixMs;
    use store::{Change, End, Items, Key, Mutation};

    use super::*;

    #[track_caller]
    fn check(change: Change<'_>, expected: &str) {
        let key = Key { bytes: b"k\n", hash: 0 };
        let found = EVENT.describe(&Mutation::Key { db: 3, key, change }, &Names::default());
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
        let long = vec![b'x'; EVENT.value_bytes + 1];
        check(
            Change::ListPush { end: End::Back, values: Items::Slice(&[b"a", &long]) },
            r#"{"change":"list-push","end":"back","values":["a",{"bytes":65537}]}"#,
        );
        check(
            Change::ZSetAdd { members: store::Scored::Slice(&[(f64::INFINITY, b"m")]) },
            r#"{"change":"zset-add","count":1,"members":[["inf","m"]]}"#,
        );
        let long = vec![b'x'; EVENT.value_bytes];
        check(
            Change::SetAdd { members: Items::Slice(&[&long[..]; 20]) },
            r#"{"change":"set-add","members":{"count":20}}"#,
        );
        let many = vec![&b"x"[..]; EVENT.items + 1];
        check(
            Change::SetAdd { members: Items::Slice(&many) },
            r#"{"change":"set-add","members":{"count":1025}}"#,
        );
    }

    /// The size of an event is bounded, and it reports the number of omitted changes.
    #[test]
    fn an_event_omits_changes_above_its_limit() {
        const CHANGES: usize = 40;
        let value = vec![b'x'; EVENT.value_bytes];
        let key = Key { bytes: b"k", hash: 0 };
        let change = Change::Set { value: &value, expiry: None };
        let mut encoded = Vec::new();
        for _ in 0..CHANGES {
            Mutation::Key { db: 0, key, change }.encode(&mut encoded);
        }
        let mut out = Vec::new();
        EVENT.put_changes(&encoded, Hidden::Nothing, &Names::default(), &mut out);
        assert!(out.len() < EVENT.record_bytes + 2 * EVENT.value_bytes, "{}", out.len());
        let text = format!("{{{}}}", String::from_utf8(out).unwrap());
        let event: Value = serde_json::from_str(&text).unwrap();
        let change_count = event["changes"].as_array().unwrap().len();
        assert_eq!(event["omitted"], CHANGES - change_count);
        assert_eq!(change_count, EVENT.record_bytes / EVENT.value_bytes);
    }

    #[test]
    fn writes_to_partitions_are_described_as_json() {
        use store::{CellValue, Expiry, PartitionKey, RowKey, Stamp, TableId, Write, Writes};

        let describe = |limits: Limits, writes: &[Write<'_>]| {
            let key = PartitionKey { table: TableId(1), token: -1, bytes: b"\xffk" };
            let mutation = Mutation::Partition { key, writes: Writes::Slice(writes) };
            limits.describe(&mutation, &Names::default())
        };
        let stamp = Stamp { timestamp: i64::MAX, at: 9 };
        let row = RowKey::Clustering(b"r");
        let live = |bytes| CellValue::Live { bytes, expiry: Some(Expiry { at: 7, ttl: 5 }) };
        let cell = |row, item, value| Write::Cell { row, column: 3, item, timestamp: 4, value };
        let found = describe(
            EVENT,
            &[
                Write::DeletePartition(stamp),
                Write::DeleteRange { start: b"a", end: Some(b"b"), stamp },
                Write::DeleteRange { start: b"a", end: None, stamp },
                Write::DeleteRow { row: b"r", stamp },
                Write::InsertRow { row: b"\xfe", timestamp: 4, expiry: None },
                Write::DeleteItems { row: RowKey::Static, column: 2, stamp },
                cell(row, Some(b"i"), live(b"\xff\0")),
                cell(RowKey::Static, None, CellValue::Deleted { at: 8 }),
            ],
        );
        let big = i64::MAX.to_string();
        let expected = json!({
            "change": "partition",
            "table": "00000000-0000-0000-0000-000000000001",
            "token": "-1",
            "key": { "base64": "/2s=" },
            "writes": [
                { "write": "delete-partition", "timestamp": big, "deleted_s": 9 },
                { "write": "delete-range", "start": "a", "end": "b", "timestamp": big, "deleted_s": 9 },
                { "write": "delete-range", "start": "a", "end": null, "timestamp": big, "deleted_s": 9 },
                { "write": "delete-row", "row": "r", "timestamp": big, "deleted_s": 9 },
                {
                    "write": "insert-row", "row": { "base64": "/g==" }, "timestamp": "4",
                    "expires_s": null, "ttl_s": null,
                },
                {
                    "write": "delete-items", "row": null, "column": 2, "timestamp": big,
                    "deleted_s": 9,
                },
                {
                    "write": "cell", "row": "r", "column": 3, "item": "i",
                    "value": { "base64": "/wA=" }, "timestamp": "4", "expires_s": 7, "ttl_s": 5,
                },
                {
                    "write": "delete-cell", "row": null, "column": 3, "item": null,
                    "timestamp": "4", "deleted_s": 8,
                },
            ],
        });
        assert_eq!(found, expected);

        // Values in events are limited, those of the tools are complete.
        let long = vec![b'x'; EVENT.value_bytes + 1];
        let one = [cell(row, None, live(&long))];
        assert_eq!(describe(EVENT, &one)["writes"][0]["value"], json!({ "bytes": long.len() }));
        let complete = String::from_utf8(long.clone()).unwrap();
        assert_eq!(describe(Limits::NONE, &one)["writes"][0]["value"], complete);
        let many = vec![Write::DeleteRow { row: b"r", stamp }; EVENT.items + 1];
        assert_eq!(describe(EVENT, &many)["writes"], json!({ "count": many.len() }));
        assert_eq!(describe(Limits::NONE, &many)["writes"].as_array().unwrap().len(), many.len());
        let large = vec![cell(row, None, live(&long[1..])); 17];
        assert_eq!(describe(EVENT, &large)["writes"], json!({ "count": 17 }));
    }

    /// A value that replaces a key is the payload of RESTORE, or the points of a time series.
    #[test]
    fn replaced_values_are_complete() {
        use base64::Engine as _;
        use store::{Elements, Kind};

        let long = vec![0xff_u8; 1 << 20];
        let mut encoded = Vec::new();
        Elements::List(Items::Slice(&[&long, b"b"])).encode(&mut encoded);
        let put = Change::Put { kind: Kind::List, encoded: &encoded, expiry: None };
        let mutation = Mutation::Key { db: 0, key: Key { bytes: b"k", hash: 0 }, change: put };
        let found = Limits::NONE.describe(&mutation, &Names::default());
        let payload = found["value"]["restore"]["base64"].as_str().unwrap();
        let payload = base64::engine::general_purpose::STANDARD.decode(payload).unwrap();
        let value = wire::rdb::decode_payload(&payload, wire::rdb::Limits::NONE).unwrap();
        let wire::rdb::Value::List(items) = value else { panic!("{value:?}") };
        assert_eq!(items.iter().collect::<Vec<_>>(), [&long[..], b"b"]);
        assert_eq!(
            EVENT.describe(&mutation, &Names::default())["value"],
            json!({ "bytes": encoded.len() })
        );
    }

    /// With the schema, writes name their table and columns, and the parts of a row are values.
    #[test]
    fn writes_are_named_by_the_schema() {
        use store::{PartitionKey, Stamp, TableId, Write, Writes};

        let catalog = cql::schema::builtin();
        let table = cql::schema::builtin_table("system_schema", "columns");
        let mut row = Vec::new();
        for (column, part) in table.clustering().iter().zip(["t", "c"]) {
            cql::value::comparable::encode(part.as_bytes(), &column.column_type, false, &mut row);
        }
        let number = table.column("kind").unwrap().number;
        let (stamp, row) = (Stamp { timestamp: 1, at: 1 }, store::RowKey::Clustering(&row));
        let writes = [Write::DeleteItems { row, column: number, stamp }];
        let key = PartitionKey { table: TableId(table.id.as_u128()), token: 1, bytes: b"ks" };
        let mutation = Mutation::Partition { key, writes: Writes::Slice(&writes) };
        let found = Limits::NONE.describe(&mutation, &Names::of(&catalog));
        assert_eq!(found["name"], "system_schema.columns");
        let write = &found["writes"][0];
        assert_eq!(write["column_name"], "kind");
        assert_eq!(write["clustering"], json!({ "table_name": "t", "column_name": "c" }));
    }
}
