//! The process: its configuration, threads and last events.

use options::Section;
use serde_json::{Value, json};

use crate::config::{OPTIONS, Settings, is_secret};
use crate::engine::process;
use crate::http::Exchange;
use crate::logging;

/// Shown instead of a password.
const REDACTED: &str = "(redacted)";

/// All options with their values. Passwords are redacted.
pub(super) fn configuration(exchange: &Exchange<'_>) -> Value {
    let settings = exchange.context.shared.settings.load();
    let defaults = Settings::default();
    let titled = |section: &'static Section<_>| section.rows.iter().map(|row| (section.title, row));
    let rows = OPTIONS.iter().flat_map(titled).map(|(title, option)| {
        let value = option.text(&settings);
        let is_hidden = is_secret(option) && !value.is_empty();
        let value = if is_hidden { REDACTED } else { value.as_str() };
        json!({
            "name": option.name,
            "section": title,
            "value": value,
            "default": option.shown(&defaults),
            "change": option.change.word(),
            "doc": option.doc,
        })
    });
    Value::Array(rows.collect())
}

pub(super) fn threads(_: &Exchange<'_>) -> Value {
    let rows = process::threads().into_iter().map(|thread| {
        json!({
            "id": thread.id,
            "name": thread.name,
            "state": thread.state.to_string(),
            "user_ms": thread.user_ms,
            "system_ms": thread.system_ms,
            "processor": thread.processor,
        })
    });
    Value::Array(rows.collect())
}

/// The last log lines, oldest first.
pub(super) fn logs(_: &Exchange<'_>) -> Value {
    json!({ "lines": logging::last_lines() })
}
