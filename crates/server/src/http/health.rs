//! `/healthz` and `/readyz`: health checks for supervisors and load balancers.

use wire::http::Request;

use super::exchange::{Answered, Exchange, JSON, Response, TEXT};

/// Responds 200 while the process can answer.
#[expect(clippy::unnecessary_wraps, reason = "every route returns Answered")]
pub(super) fn live(exchange: &mut Exchange<'_>, _: &Request<'_>) -> Answered {
    exchange.scratch.body.extend_from_slice(b"ok\n");
    Ok(Response::new(200, TEXT))
}

/// Responds 200 if the server can serve reads and writes, 503 otherwise. During recovery,
/// [`super::early`] responds instead.
#[expect(clippy::unnecessary_wraps, reason = "every route returns Answered")]
pub(super) fn ready(exchange: &mut Exchange<'_>, _: &Request<'_>) -> Answered {
    let (status, word) = match exchange.context.shared.log.poisoned() {
        _ if exchange.context.reactor.is_draining => (503, "draining"),
        None if !exchange.context.shared.log.takes_writes() => (503, "log-full"),
        None => (200, "ready"),
        Some(_) => (503, "log-failed"),
    };
    exchange.scratch.body.extend_from_slice(format!("{{\"status\":\"{word}\"}}\n").as_bytes());
    Ok(Response::new(status, JSON))
}
