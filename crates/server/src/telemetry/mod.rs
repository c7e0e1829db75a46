//! Metrics and slow requests for a collector of OpenTelemetry, which `otlp-endpoint` names.
//!
//! A thread sends what `/metrics` has, as cumulative values, and a span for each new entry of the
//! slow log. While the collector is away, no span is lost that the slow log still has.
// Source: OpenTelemetry Protocol 1.5, "OTLP/HTTP", JSON Protobuf encoding

mod otlp;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::engine::clock;
use crate::engine::command_log::LogKind;
use crate::engine::server_state::ServerState;
use crate::engine::signal::Signal;
use crate::http::metrics;
use otlp::{Metrics, Source};

/// Time between two messages.
const INTERVAL: Duration = Duration::from_secs(10);
/// Limit of one message's exchange, in seconds.
const TIMEOUT_S: u64 = 5;
/// Spans in one message.
const SPANS_MAX: usize = 1000;

/// The running thread.
#[derive(Debug, Default)]
pub(crate) struct Telemetry {
    signal: Arc<Signal>,
}

impl Telemetry {
    /// Starts the thread if the server has a collector.
    pub(crate) fn start(shared: &Arc<ServerState>) -> std::io::Result<Telemetry> {
        let telemetry = Telemetry::default();
        let endpoint = shared.settings.load().otlp_endpoint.clone();
        if !endpoint.is_set() {
            return Ok(telemetry);
        }
        let (shared, signal) = (Arc::clone(shared), Arc::clone(&telemetry.signal));
        let mut exporter = Exporter::new(endpoint.0);
        let run = move || {
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

#[derive(Debug)]
struct Exporter {
    endpoint: String,
    /// The first entry of the slow log that was not sent.
    next_slow: u64,
    has_failed: bool,
}

impl Exporter {
    fn new(endpoint: String) -> Exporter {
        Exporter { endpoint, next_slow: 0, has_failed: false }
    }

    /// Sends everything, and logs the first of several failures.
    fn send(&mut self, shared: &ServerState) {
        match self.try_send(shared) {
            Ok(()) if self.has_failed => {
                self.has_failed = false;
                tracing::info!(endpoint = self.endpoint, "telemetry is sent again");
            }
            Err(error) if !self.has_failed => {
                self.has_failed = true;
                let error = format!("{error:#}");
                tracing::warn!(endpoint = self.endpoint, error, "could not send telemetry");
            }
            Ok(()) | Err(_) => {}
        }
    }

    fn try_send(&mut self, shared: &ServerState) -> Result<()> {
        let now = clock::now();
        let source = Source::of(shared);
        let mut metrics = Metrics::new(shared.identity.started.unix, now.unix);
        metrics::write(shared, now, &mut metrics);
        self.post("/v1/metrics", &source.metrics(metrics))?;
        let entries: Vec<_> = {
            let log = shared.command_logs.lock(LogKind::Slow);
            let is_new = |id| id >= self.next_slow;
            log.iter().take_while(|entry| is_new(entry.id)).take(SPANS_MAX).cloned().collect()
        };
        if let Some(newest) = entries.first() {
            self.post("/v1/traces", &source.spans(&entries))?;
            self.next_slow = newest.id + 1;
        }
        Ok(())
    }

    fn post(&self, path: &str, message: &Value) -> Result<()> {
        let url = format!("{}{path}", self.endpoint.trim_end_matches('/'));
        let request = minreq::post(&url)
            .with_header("Content-Type", "application/json")
            .with_body(message.to_string())
            .with_follow_redirects(false)
            .with_timeout(TIMEOUT_S);
        // The body, which has no limit, is not read.
        let response = request.send_lazy().with_context(|| format!("POST {url}"))?;
        if !(200..300).contains(&response.status_code) {
            bail!("POST {url}: {} {}", response.status_code, response.reason_phrase);
        }
        Ok(())
    }
}
