//! Metrics and slow requests for a collector of OpenTelemetry, which `otlp-endpoint` names.
//!
//! A thread sends what `/metrics` has, as cumulative values, and a span for each new entry of the
//! slow log. While the collector is away, no span is lost that the slow log still has.
// Source: OpenTelemetry Protocol 1.5, "OTLP/HTTP", JSON Protobuf encoding

mod otlp;
mod post;

use std::sync::Arc;
use std::time::Duration;

use crate::config::CollectorUrl;
use crate::engine::clock;
use crate::engine::command_log::{CommandLog, LogKind, LoggedCommand};
use crate::engine::server_state::ServerState;
use crate::engine::signal::Signal;
use crate::http::metrics;
use otlp::{Metrics, Source};
use post::{Failure, post};

/// Time between two messages.
const INTERVAL: Duration = Duration::from_secs(10);
/// Spans in one message: an entry of the slow log has at most 4 KiB of text, and reactors may wait
/// for the slow log while they are copied.
const SPANS_MAX: usize = 100;

/// Messages with spans in one interval.
const MESSAGES_MAX: usize = 100;

/// The running thread.
#[derive(Debug, Default)]
pub(crate) struct Telemetry {
    signal: Arc<Signal>,
}

impl Telemetry {
    /// Starts the thread if the server has a collector.
    pub(crate) fn start(shared: &Arc<ServerState>) -> std::io::Result<Telemetry> {
        let telemetry = Telemetry::default();
        let Some(endpoint) = shared.settings.load().otlp_endpoint.0.clone() else {
            return Ok(telemetry);
        };
        let (shared, signal) = (Arc::clone(shared), Arc::clone(&telemetry.signal));
        let run = move || {
            let mut exporter = Exporter { endpoint, next_slow: 0, has_failed: false };
            exporter.send(&shared);
            while signal.wait_for(INTERVAL) {
                exporter.send(&shared);
            }
        };
        std::thread::Builder::new().name("telemetry".to_owned()).spawn(run)?;
        Ok(telemetry)
    }

    /// Ends the thread after its current message, for which the server does not wait.
    pub(crate) fn stop(&self) {
        self.signal.end();
    }
}

/// The entries of the slow log from this number on, the oldest first, at most [`SPANS_MAX`].
fn unsent(log: &CommandLog, next: u64) -> Vec<LoggedCommand> {
    let mut entries: Vec<_> = log.iter().take_while(|entry| entry.id >= next).collect();
    entries.reverse();
    entries.into_iter().take(SPANS_MAX).cloned().collect()
}

#[derive(Debug)]
struct Exporter {
    endpoint: CollectorUrl,
    /// The first entry of the slow log that was not sent.
    next_slow: u64,
    has_failed: bool,
}

impl Exporter {
    /// Sends everything, and logs the first of several failures.
    fn send(&mut self, shared: &ServerState) {
        let source = Source::of(shared);
        let sent = self.send_metrics(shared, &source);
        let sent = self.send_spans(shared, &source).and(sent);
        let endpoint = self.endpoint.to_string();
        match sent {
            Ok(()) if self.has_failed => tracing::info!(endpoint, "telemetry is sent again"),
            Err(Failure { text, .. }) if !self.has_failed => {
                tracing::warn!(endpoint, error = text, "could not send telemetry");
                self.has_failed = true;
                return;
            }
            Ok(()) => {}
            Err(_) => return,
        }
        self.has_failed = false;
    }

    fn send_metrics(&self, shared: &ServerState, source: &Source) -> Result<(), Failure> {
        let now = clock::now();
        // CONFIG RESETSTAT begins the counters again.
        let began = shared.identity.started.unix.max(shared.baseline.load().at);
        let mut metrics = Metrics::new(began, now.unix);
        metrics::write(shared, now, &mut metrics);
        post(&self.endpoint, "/v1/metrics", &source.metrics(metrics).to_string())
    }

    fn send_spans(&mut self, shared: &ServerState, source: &Source) -> Result<(), Failure> {
        let (mut missed, mut sent) = (0, Ok(()));
        for _ in 0..MESSAGES_MAX {
            let entries = unsent(&shared.command_logs.lock(LogKind::Slow), self.next_slow);
            let (Some(oldest), Some(newest)) = (entries.first(), entries.last()) else { break };
            sent = post(&self.endpoint, "/v1/traces", &source.spans(&entries).to_string());
            // A message that was refused for good would be refused again.
            if sent.as_ref().is_err_and(|failure| failure.may_retry) {
                break;
            }
            missed += oldest.id - self.next_slow;
            self.next_slow = newest.id + 1;
            if sent.is_err() {
                break;
            }
        }
        if missed > 0 {
            tracing::warn!(missed, "slow requests had left the slow log before they were sent");
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use base::time::UnixMs;
    use wire::resp::OwnedArgs;

    use super::*;
    use crate::engine::secret::Shown;

    /// A client that is sent each part of the slow log in turn receives each entry that was there
    /// for long enough once, in order.
    #[test]
    fn each_entry_is_in_one_part() {
        let request: OwnedArgs = [b"GET".to_vec()].into_iter().collect();
        for count in [0, 1, SPANS_MAX, SPANS_MAX + 1, 3 * SPANS_MAX] {
            let mut log = CommandLog::default();
            for number in 0..count {
                let shown = Shown::whole(request.as_args());
                log.push((String::new(), ""), UnixMs(number as u64), 1, shown, 2 * SPANS_MAX);
            }
            let (mut next, mut found) = (0, Vec::new());
            loop {
                let part = unsent(&log, next);
                assert!(part.len() <= SPANS_MAX);
                let Some(newest) = part.last() else { break };
                next = newest.id + 1;
                found.extend(part.iter().map(|entry| entry.id));
            }
            let first = count.saturating_sub(2 * SPANS_MAX) as u64;
            assert!(found.into_iter().eq(first..count as u64), "{count}");
            log.clear();
            assert!(unsent(&log, next).is_empty());
        }
    }
}
