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
mod tests;
