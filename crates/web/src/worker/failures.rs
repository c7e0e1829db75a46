//! Reports of requests that fail at the upstream: the reason of the first one, and how many follow.

use std::net::SocketAddr;

use base::time::MonoNs;

/// Failures within this time after a report are counted, and reported together.
const REPORT_NS: u64 = 10_000_000_000;
/// Longer request lines are cut in the log.
const REQUEST_BYTES_MAX: usize = 256;

/// A failed request.
#[derive(Debug)]
pub(super) struct Failure {
    /// `None`: the name of the upstream is unknown.
    address: Option<SocketAddr>,
    request: String,
    status: u16,
    reason: String,
}

impl Failure {
    /// `request` begins with the request line as sent to the upstream.
    pub(super) fn new(
        address: Option<SocketAddr>,
        request: &[u8],
        status: u16,
        reason: String,
    ) -> Failure {
        Failure { address, request: request_text(request), status, reason }
    }

    fn report(&self, failures: u64) {
        let address = self.address.map_or("unknown".to_owned(), |address| address.to_string());
        let Failure { request, status, reason, .. } = self;
        tracing::warn!(%address, %request, status, %reason, failures, "upstream failed");
    }
}

/// Returns method and path. A query may contain secrets.
fn request_text(request: &[u8]) -> String {
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let line = line.strip_suffix(b" HTTP/1.1").unwrap_or(line);
    let line = line.split(|&byte| byte == b'?').next().unwrap_or_default();
    line[..line.len().min(REQUEST_BYTES_MAX)].escape_ascii().to_string()
}

/// Failures of one worker. An upstream that is down causes two lines in ten seconds, however many
/// requests there are.
#[derive(Debug, Default)]
pub(super) struct Failures {
    reported: Option<MonoNs>,
    /// Failures since then, and the last one.
    more: u64,
    last: Option<Failure>,
}

impl Failures {
    /// Reports a failure now, or together with others later.
    pub(super) fn note(&mut self, failure: Failure, now: MonoNs) {
        if self.reported.is_none() {
            failure.report(1);
            self.reported = Some(now);
            return;
        }
        self.more += 1;
        self.last = Some(failure);
    }

    /// Reports the failures since the last report, if it is time.
    pub(super) fn sweep(&mut self, now: MonoNs) {
        if self.reported.is_none_or(|reported| now.since(reported) < REPORT_NS) {
            return;
        }
        // With none in between, the next one is reported at once.
        self.reported = self.last.is_some().then_some(now);
        if let Some(last) = self.last.take() {
            last.report(std::mem::take(&mut self.more));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_upstream_does_not_flood_the_log() {
        let mut failures = Failures::default();
        let failure = || Failure::new(None, b"GET /api/x HTTP/1.1\r\n", 502, "refused".to_owned());
        failures.note(failure(), MonoNs(1));
        assert_eq!((failures.reported, failures.more), (Some(MonoNs(1)), 0));
        (0..1000).for_each(|_| failures.note(failure(), MonoNs(2)));
        failures.sweep(MonoNs(REPORT_NS));
        assert_eq!(failures.more, 1000);
        failures.sweep(MonoNs(REPORT_NS + 1));
        assert_eq!((failures.reported, failures.more), (Some(MonoNs(REPORT_NS + 1)), 0));
        failures.sweep(MonoNs(2 * REPORT_NS + 1));
        assert_eq!(failures.reported, None, "the next one is reported at once");
    }

    #[test]
    fn queries_and_long_paths_are_not_logged() {
        assert_eq!(request_text(b"GET /api/x?token=1 HTTP/1.1\r\nHost: a\r\n"), "GET /api/x");
        assert_eq!(request_text(b"GET /api/\xff HTTP/1.1\r\n"), "GET /api/\\xff");
        assert_eq!(request_text(b""), "");
        let long = [b"GET /", &[b'a'; 9000][..], b" HTTP/1.1\r\n"].concat();
        assert_eq!(request_text(&long).len(), REQUEST_BYTES_MAX);
    }
}
