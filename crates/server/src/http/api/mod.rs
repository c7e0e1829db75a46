//! `/api/v1/...`: the server's state as JSON, from which the console builds its pages.
//!
//! Units are the last word of a name. Members may be added but never change.

mod activity;
mod hottest;
mod latency;
mod process;
mod storage;

use serde_json::Value;
use wire::http::Request;

use super::exchange::{Answered, Exchange, JSON, Response};

pub(super) const PREFIX: &str = "/api/v1/";

/// Name of a page and the function that builds it.
type Page = (&'static str, fn(&Exchange<'_>) -> Value);

const PAGES: &[Page] = &[
    ("overview", activity::overview),
    ("reactors", activity::reactors),
    ("requests", activity::requests),
    ("connections", activity::connections),
    ("statements", activity::statements),
    ("memory", storage::memory),
    ("log", storage::log),
    ("configuration", process::configuration),
    ("threads", process::threads),
    ("logs", process::logs),
];

#[expect(clippy::unnecessary_wraps, reason = "every route returns Answered")]
pub(super) fn answer(exchange: &mut Exchange<'_>, request: &Request<'_>) -> Answered {
    let name = request.path().strip_prefix(PREFIX.as_bytes()).unwrap_or_default();
    let Some((_, page)) = PAGES.iter().find(|(known, _)| known.as_bytes() == name) else {
        let names = PAGES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        return Ok(exchange.fail(404, &format!("ERR unknown page; the pages are {names}")));
    };
    let value = page(exchange);
    let body = &mut exchange.scratch.body;
    serde_json::to_writer(&mut *body, &value)
        .expect("all keys are strings, and writing to a vector does not fail");
    Ok(Response::new(200, JSON))
}

/// Converts bytes to a string; invalid UTF-8 is replaced with U+FFFD.
fn text(bytes: &[u8]) -> Value {
    Value::String(String::from_utf8_lossy(bytes).into_owned())
}
