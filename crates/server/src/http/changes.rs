//! `/changes?from=POSITION`: changes as server-sent events, from a position in the log.
//!
//! Sends only durable records, in log order, each once. An event's `id` is the position after its
//! record, so a client that reconnects with it misses nothing.

use binlog::{Batch, FollowError, Lsn, Scope};
use serde_json::{Value, json};
use wire::http::{Method, Request};

use super::exchange::{Answered, Exchange, Response};
use super::target;
use crate::engine::change_json::Limits;
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
    let mut out = Vec::new();
    for record in batch.records() {
        let Some(contents) = records::contents(&record) else { continue };
        out.extend_from_slice(format!("event: change\nid: {}\ndata: {{", record.end).as_bytes());
        EVENT.put_changes(contents.mutations, hides_tables, &mut out);
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
        let found = EVENT.describe(&Mutation::Key { db: 3, key, change });
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
        EVENT.put_changes(&encoded, false, &mut out);
        assert!(out.len() < EVENT.record_bytes + 2 * EVENT.value_bytes, "{}", out.len());
        let text = format!("{{{}}}", String::from_utf8(out).unwrap());
        let event: Value = serde_json::from_str(&text).unwrap();
        let change_count = event["changes"].as_array().unwrap().len();
        assert_eq!(event["omitted"], CHANGES - change_count);
        assert_eq!(change_count, EVENT.record_bytes / EVENT.value_bytes);
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
        let found = EVENT.describe(&Mutation::Partition { key, writes });
        let text = found["text"].as_str().unwrap();
        assert!(text.ends_with("..."), "{}", text.len());
        assert!(text.len() < 2 * EVENT.value_bytes);
        assert_eq!(found["writes"], count);
    }
}
