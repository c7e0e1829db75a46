//! `/healthz` and `/readyz`: for those who start, stop and choose servers.

use wire::http::Request;

use super::exchange::{Answered, Exchange, JSON, Outcome, TEXT};

/// The process answers.
#[expect(clippy::unnecessary_wraps, reason = "every route returns Answered")]
pub(super) fn live(exchange: &mut Exchange<'_>, _: &Request<'_>) -> Answered {
    exchange.scratch.body.extend_from_slice(b"ok\n");
    Ok(Outcome::new(200, TEXT))
}

/// Reads and writes are served, and will be. Before recovery is over [`super::early`] answers.
#[expect(clippy::unnecessary_wraps, reason = "every route returns Answered")]
pub(super) fn ready(exchange: &mut Exchange<'_>, _: &Request<'_>) -> Answered {
    let (status, word) = match exchange.context.shared.log.poisoned() {
        _ if exchange.context.worker.is_draining => (503, "draining"),
        None if !exchange.context.shared.log.takes_writes() => (503, "log-full"),
        None => (200, "ready"),
        Some(_) => (503, "log-failed"),
    };
    exchange.scratch.body.extend_from_slice(format!("{{\"status\":\"{word}\"}}\n").as_bytes());
    Ok(Outcome::new(status, JSON))
}
