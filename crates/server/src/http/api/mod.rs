//! `/api/v1/...`: what the server knows of itself as JSON; the console's pages are made of it.
//!
//! Names have their units last, as everywhere. Members are added, never changed.

mod activity;
mod hottest;
mod latency;
mod process;
mod storage;

use serde_json::Value;
use wire::http::Request;

use super::exchange::{Answered, Exchange, JSON, Outcome};

pub(super) const PREFIX: &str = "/api/v1/";

/// What is asked for, and what it gives.
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
        return Ok(exchange.fail(404, &format!("ERR there are {names}")));
    };
    let value = page(exchange);
    let body = &mut exchange.scratch.body;
    serde_json::to_writer(&mut *body, &value).expect("names are texts, and vectors take all");
    Ok(Outcome::new(200, JSON))
}

/// As text, with U+FFFD for what is none.
fn text(bytes: &[u8]) -> Value {
    Value::String(String::from_utf8_lossy(bytes).into_owned())
}
