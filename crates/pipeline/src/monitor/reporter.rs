//! Sends a part's reports to its monitor. It never delays the part's work, and delivers the final
//! totals at the end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::frame::{Header, Kind};
use crate::link::{Link, LinkError, Reachability};
use crate::message::Hello;
use crate::status::{PartKey, PartState, Report, Status};

/// Maximum wait at the end of a part until the monitor has confirmed the final reports.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections on which final reports are attempted, if the previous one broke.
const FINAL_ATTEMPTS: u32 = 2;

/// Limit for a part's failure reason in bytes. It may quote peer input.
pub const REASON_BYTES_MAX: usize = 512;

/// Interval between attempts to reach a monitor.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Sends reports from its own thread.
#[derive(Debug)]
pub struct Reporter {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Keeps only the latest report of each part: a slow monitor misses intermediate reports, but never
/// the last one, and the number of parts bounds the memory.
#[derive(Debug, Default)]
struct State {
    /// Each with the value of `version` at insertion.
    newest: BTreeMap<PartKey, (u64, Report)>,
    version: u64,
    is_closing: bool,
    outcome: Option<Result<(), LinkError>>,
}

impl State {
    fn put(&mut self, status: Status, state: PartState) {
        self.version += 1;
        self.newest.insert(status.key(), (self.version, Report { state, status }));
    }
}

impl Reporter {
    /// Starts the thread. `name` identifies the process in displays.
    pub fn start(monitor: SocketAddr, name: String) -> Self {
        let shared = Arc::new(Shared::default());
        let its = Arc::clone(&shared);
        thread::spawn(move || {
            let sender = Sender { monitor, name, instance: rand::random(), link: None, version: 0 };
            let outcome = sender.run(&its);
            its.state.lock().outcome = Some(outcome);
            its.changed.notify_all();
        });
        Self { shared }
    }

    /// Never blocks: an unreachable monitor has no effect.
    pub fn send(&self, status: Status) {
        self.shared.state.lock().put(status, PartState::Running);
        self.shared.changed.notify_all();
    }

    /// Delivers the final status of each part, or, for a failed run, the reason with the latest
    /// status. Returns when the monitor has confirmed them, but no later than after
    /// [`FINISH_TIMEOUT`].
    pub fn finish(&self, last: Result<Vec<Status>, String>) {
        let deadline = Instant::now() + FINISH_TIMEOUT;
        let mut state = self.shared.state.lock();
        match last {
            Ok(statuses) => {
                for status in statuses {
                    state.put(status, PartState::Finished);
                }
            }
            Err(mut reason) => {
                reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
                for (_, report) in std::mem::take(&mut state.newest).into_values() {
                    state.put(report.status, PartState::Failed { reason: reason.clone() });
                }
            }
        }
        state.is_closing = true;
        self.shared.changed.notify_all();
        while state.outcome.is_none()
            && !self.shared.changed.wait_until(&mut state, deadline).timed_out()
        {}
        match &state.outcome {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                tracing::warn!(%error, "could not deliver the final report to the monitor");
            }
            None => tracing::warn!("the monitor did not confirm the final report in time"),
        }
    }
}

impl Drop for Reporter {
    /// Ends the thread also without [`Reporter::finish`].
    fn drop(&mut self) {
        self.shared.state.lock().is_closing = true;
        self.shared.changed.notify_all();
    }
}

/// State of the sending thread.
struct Sender {
    monitor: SocketAddr,
    name: String,
    /// Reports with the same value belong to one process, regardless of the connection.
    instance: u64,
    link: Option<Link>,
    /// Reports up to this version were sent on `link`.
    version: u64,
}

impl Sender {
    fn run(mut self, shared: &Shared) -> Result<(), LinkError> {
        let reachability = Reachability::new("the monitor", self.monitor);
        let mut final_failures = 0;
        loop {
            let (reports, is_closing) = self.wait_for_reports(shared);
            let sent = self.send_all(&reports);
            let sent = if is_closing { sent.and_then(|()| self.confirm()) } else { sent };
            match sent {
                Ok(()) if is_closing => return Ok(()),
                Ok(()) => reachability.found(),
                Err(error) => {
                    reachability.lost(&error);
                    // A new connection starts with the latest report of every part.
                    (self.link, self.version) = (None, 0);
                    final_failures += u32::from(is_closing);
                    if final_failures == FINAL_ATTEMPTS {
                        return Err(error);
                    }
                    pause(shared);
                }
            }
        }
    }

    fn wait_for_reports(&self, shared: &Shared) -> (Vec<(u64, Report)>, bool) {
        let mut state = shared.state.lock();
        while state.version == self.version && !state.is_closing {
            shared.changed.wait(&mut state);
        }
        let mut reports: Vec<_> = state.newest.values().cloned().collect();
        reports.retain(|(version, _)| *version > self.version);
        reports.sort_by_key(|(version, _)| *version);
        (reports, state.is_closing)
    }

    fn send_all(&mut self, reports: &[(u64, Report)]) -> Result<(), LinkError> {
        for (version, report) in reports {
            let link = match &mut self.link {
                Some(link) => link,
                none => none.insert(greet(self.monitor, &self.name, self.instance)?),
            };
            link.send_message(Header::control(Kind::Status, 0, 0), report)?;
            self.version = *version;
        }
        Ok(())
    }

    /// Waits until the monitor closes the connection, which it does after processing everything.
    fn confirm(&mut self) -> Result<(), LinkError> {
        self.link.as_mut().map_or(Ok(()), |link| Ok(link.finish(FINISH_TIMEOUT)?))
    }
}

/// Ends early when the reporter closes.
fn pause(shared: &Shared) {
    let until = Instant::now() + RETRY_PAUSE;
    let mut state = shared.state.lock();
    while !state.is_closing && !shared.changed.wait_until(&mut state, until).timed_out() {}
}

fn greet(monitor: SocketAddr, name: &str, instance: u64) -> Result<Link, LinkError> {
    let mut link = Link::connect(monitor)?;
    let hello = Hello::Reporter { stage: "all".to_owned(), name: name.to_owned(), instance };
    link.send_message(Header::control(Kind::Hello, 0, 0), &hello)?;
    Ok(link)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::link::Received;
    use crate::status::GeneratorStatus;

    fn generated(generated: u64) -> Status {
        Status::Generator(GeneratorStatus { generated, ..Default::default() })
    }

    /// Reads reports until the peer closes.
    fn receive_all(listener: &TcpListener) -> Vec<Report> {
        let mut link = Link::new(listener.accept().unwrap().0).unwrap();
        let mut payload = Vec::new();
        let _: Hello = link.receive_message(Kind::Hello, &mut payload).unwrap();
        let mut reports = Vec::new();
        while let Ok(Received::Frame(header)) = link.receive(&mut payload) {
            reports.push(serde_json::from_slice(&payload[..header.payload_len()]).unwrap());
        }
        reports
    }

    #[test]
    fn the_final_report_is_delivered() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let reporter = Reporter::start(listener.local_addr().unwrap(), "test".into());
        let monitor = thread::spawn(move || receive_all(&listener));
        for count in 0..1_000 {
            reporter.send(generated(count));
        }
        reporter.finish(Ok(vec![generated(1_000)]));
        let last = monitor.join().unwrap().pop().unwrap();
        assert_eq!(last, Report { state: PartState::Finished, status: generated(1_000) });
    }

    #[test]
    fn a_failed_run_reports_its_newest_status_with_the_reason() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let reporter = Reporter::start(listener.local_addr().unwrap(), "test".into());
        let monitor = thread::spawn(move || receive_all(&listener));
        reporter.send(generated(7));
        reporter.finish(Err("no space".into()));
        let last = monitor.join().unwrap().pop().unwrap();
        let state = PartState::Failed { reason: "no space".into() };
        assert_eq!(last, Report { state, status: generated(7) });
    }

    /// A connection that breaks during the final report is replaced, and all parts are resent.
    #[test]
    fn a_broken_connection_is_replaced() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let reporter = Reporter::start(listener.local_addr().unwrap(), "test".into());
        reporter.send(generated(1));
        drop(listener.accept().unwrap());
        let monitor = thread::spawn(move || receive_all(&listener));
        reporter.finish(Ok(vec![generated(2)]));
        assert_eq!(monitor.join().unwrap().last().unwrap().status, generated(2));
    }

    #[test]
    fn a_monitor_that_is_down_does_not_delay_the_end() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let reporter = Reporter::start(free, "test".into());
        reporter.send(generated(1));
        reporter.finish(Ok(vec![generated(2)]));
        assert!(reporter.shared.state.lock().outcome.as_ref().unwrap().is_err());
    }
}
