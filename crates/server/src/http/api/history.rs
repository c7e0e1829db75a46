//! The figures of a time span, as rows of columns.

use base::time::UnixMs;
use serde_json::json;
use wire::http::Request;

use super::{show, user};
use crate::engine::history::Reading;
use crate::http::Exchange;
use crate::http::exchange::Answered;
use crate::http::target;

/// Without `from_ms`: five minutes.
const SPAN_MS: u64 = 5 * 60 * 1_000;

#[expect(clippy::unnecessary_wraps, reason = "every route returns Answered")]
pub(super) fn answer(exchange: &mut Exchange<'_>, request: &Request<'_>) -> Answered {
    if !user::may_run(exchange, "info") {
        return Ok(exchange.fail(403, "NOPERM the user may not see this page"));
    }
    let now = exchange.context.now.unix;
    let from = UnixMs(now.0.saturating_sub(SPAN_MS));
    let span = time(request, "from_ms", from).and_then(|from| {
        let until = time(request, "until_ms", now)?;
        Ok((from, until))
    });
    let (from, until) = match span {
        Ok(span) => span,
        Err(text) => return Ok(exchange.fail(400, &text)),
    };
    let history = &exchange.context.shared.history;
    let Reading { step_ms, points } = history.read(from, until);
    // Columns without any value in the span are omitted.
    let used: Vec<usize> = (0..history.columns.len())
        .filter(|at| points.iter().any(|point| !point.values[*at].is_nan()))
        .collect();
    let names: Vec<_> = used.iter().map(|at| history.columns[*at].name.as_str()).collect();
    let times: Vec<_> = points.iter().map(|point| point.at.0).collect();
    let head = json!({ "now_ms": now.0, "step_ms": step_ms, "columns": names, "at_ms": times });
    // A `Value` would show the digits of an `f64`.
    let rows: Vec<Vec<f32>> =
        points.iter().map(|point| used.iter().map(|at| point.values[*at]).collect()).collect();
    let response = show(exchange, &head);
    let body = &mut exchange.scratch.body;
    body.pop();
    body.extend_from_slice(b",\"rows\":");
    serde_json::to_writer(&mut *body, &rows).expect("writing to a vector does not fail");
    body.push(b'}');
    Ok(response)
}

/// Reads a parameter with a time in milliseconds since 1970. The error text is for the client.
fn time(request: &Request<'_>, name: &str, default: UnixMs) -> Result<UnixMs, String> {
    let Some(value) = target::parameter(request.query(), name) else { return Ok(default) };
    let number = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
    number.map(UnixMs).ok_or_else(|| format!("ERR {name} must be a number of milliseconds"))
}
