//! `/api/v1/...`: the server's state as JSON, from which the console builds its pages.
//!
//! Units are the last word of a name. Members may be added but never change.

mod activity;
mod history;
mod hottest;
mod latency;
mod process;
mod storage;
mod user;

use serde_json::Value;
use wire::http::Request;

use super::exchange::{Answered, Exchange, JSON, Response};

pub(super) const PREFIX: &str = "/api/v1/";

/// The command that shows the same: its permission is that for the page.
#[derive(Debug, Clone, Copy)]
enum Permission {
    Command(&'static str),
    /// A user that may do everything: the page shows what others did.
    Everything,
}

struct Page {
    name: &'static str,
    permission: Permission,
    build: fn(&Exchange<'_>) -> Value,
}

const fn page(name: &'static str, like: &'static str, build: fn(&Exchange<'_>) -> Value) -> Page {
    Page { name, permission: Permission::Command(like), build }
}

const PAGES: &[Page] = &[
    page("overview", "info", activity::overview),
    page("reactors", "info", activity::reactors),
    page("requests", "slowlog|get", activity::requests),
    page("connections", "client|list", activity::connections),
    page("statements", "info", activity::statements),
    page("memory", "info", storage::memory),
    page("log", "info", storage::log),
    page("configuration", "config|get", process::configuration),
    page("threads", "info", process::threads),
    Page { name: "logs", permission: Permission::Everything, build: process::logs },
];

/// Pages that are not only values: the user of the request, and the points of a time span.
const USER: &[u8] = b"user";
const HISTORY: &[u8] = b"history";

pub(super) fn answer(exchange: &mut Exchange<'_>, request: &Request<'_>) -> Answered {
    let name = request.path().strip_prefix(PREFIX.as_bytes()).unwrap_or_default();
    if name == USER {
        let value = user::page(exchange);
        return Ok(show(exchange, &value));
    }
    if name == HISTORY {
        return history::answer(exchange, request);
    }
    let Some(page) = PAGES.iter().find(|page| page.name.as_bytes() == name) else {
        let names: Vec<_> = PAGES.iter().map(|page| page.name).collect();
        let names = names.join(", ");
        return Ok(
            exchange.fail(404, &format!("ERR unknown page; the pages are user, history, {names}"))
        );
    };
    if !page.permission.is_given(exchange) {
        return Ok(exchange.fail(403, "NOPERM the user may not see this page"));
    }
    let value = (page.build)(exchange);
    Ok(show(exchange, &value))
}

impl Permission {
    fn is_given(self, exchange: &Exchange<'_>) -> bool {
        match self {
            Permission::Command(name) => user::may_run(exchange, name),
            Permission::Everything => exchange.client.identity.user().is_unrestricted(),
        }
    }
}

fn show(exchange: &mut Exchange<'_>, value: &Value) -> Response {
    serde_json::to_writer(&mut exchange.scratch.body, value)
        .expect("all keys are strings, and writing to a vector does not fail");
    Response::new(200, JSON)
}

/// Converts bytes to a string; invalid UTF-8 is replaced with U+FFFD.
fn text(bytes: &[u8]) -> Value {
    Value::String(String::from_utf8_lossy(bytes).into_owned())
}
