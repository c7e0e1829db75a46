//! The monitor: receives the reports of all parts, aggregates them by stage, and publishes them as
//! a page, JSON, Prometheus metrics, and a file per stage with one block per minute.

mod board;
mod minutes;
mod pages;
mod reporter;

use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use parking_lot::Mutex;

use crate::clock::Clock;
use crate::frame::Kind;
use crate::link::{Link, LinkError, Received};
use crate::message::Hello;
use crate::slots::{Slot, Slots};
use crate::status::Report;
use board::{Board, Totals};
use minutes::Minutes;

pub use minutes::Layout;
pub use reporter::{REASON_BYTES_MAX, Reporter};

/// Maximum number of connections from parts, each with a thread. More wait in the kernel's queue.
pub const REPORTERS_MAX: usize = 512;
const TURN: Duration = Duration::from_millis(20);
const SECOND_NS: u64 = 1_000_000_000;
const MINUTE_NS: u64 = 60 * SECOND_NS;

/// Configuration of a monitor.
#[derive(Debug)]
pub struct MonitorOptions {
    /// Listens for reports.
    pub listener: TcpListener,
    /// Listens for HTTP requests of browsers and Prometheus.
    pub pages: TcpListener,
    /// Directory and layout of the per-minute files.
    pub out: Option<(PathBuf, Layout)>,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    board: Mutex<Board>,
    slots: Slots,
    links: Mutex<Vec<(u64, Link)>>,
    is_over: AtomicBool,
}

/// Runs until `stop` is set.
pub fn run(options: MonitorOptions, stop: &AtomicBool) -> Result<()> {
    let clock = Clock::new();
    let shared = Shared {
        clock,
        board: Mutex::new(Board::default()),
        slots: Slots::new(REPORTERS_MAX),
        links: Mutex::new(Vec::new()),
        is_over: AtomicBool::new(false),
    };
    let minutes = options.out.map(|(dir, layout)| Minutes::new(dir, layout, SystemTime::now()));
    let minutes = minutes.transpose()?;
    options.listener.set_nonblocking(true).context("could not configure the monitor's listener")?;
    options.pages.set_nonblocking(true).context("could not configure the HTTP listener")?;
    thread::scope(|scope| {
        let (shared, pages) = (&shared, &options.pages);
        scope.spawn(move || pages::serve(pages, &shared.board, &shared.is_over));
        let outcome = accept_all(scope, shared, &options.listener, minutes, stop);
        shared.is_over.store(true, Ordering::SeqCst);
        for (_, link) in shared.links.lock().iter() {
            link.close();
        }
        outcome
    })
}

/// Body of the main thread: accepts parts and ends seconds and minutes.
fn accept_all<'scope>(
    scope: &'scope Scope<'scope, '_>,
    shared: &'scope Shared,
    listener: &TcpListener,
    mut minutes: Option<Minutes>,
    stop: &AtomicBool,
) -> Result<()> {
    let mut second_ns = SECOND_NS;
    let mut minute_ns = MINUTE_NS;
    let mut number = 0;
    let mut has_warned = false;
    while !stop.load(Ordering::Relaxed) {
        match shared.slots.take().map(|slot| (listener.accept(), slot)) {
            Some((Ok((stream, _)), slot)) => {
                number += 1;
                let id = number;
                scope.spawn(move || serve(shared, id, stream, slot));
            }
            Some((Err(error), _)) if error.kind() != io::ErrorKind::WouldBlock => {
                tracing::warn!(%error, "could not accept part");
                thread::sleep(TURN);
            }
            Some(_) => thread::sleep(TURN),
            None => {
                if !std::mem::replace(&mut has_warned, true) {
                    tracing::warn!(
                        "the limit of {REPORTERS_MAX} connected parts is reached; further parts must wait"
                    );
                }
                thread::sleep(TURN);
            }
        }
        let now_ns = shared.clock.now_ns();
        if now_ns >= second_ns {
            second_ns = now_ns + SECOND_NS;
            shared.board.lock().end_second(now_ns);
        }
        if now_ns >= minute_ns {
            minute_ns += MINUTE_NS;
            if let Some(minutes) = &mut minutes {
                let (totals, waiting) = totals(shared);
                minutes.end(&totals, waiting, SystemTime::now())?;
            }
        }
    }
    let (totals, waiting) = totals(shared);
    match &mut minutes {
        // The last minute is shorter.
        Some(minutes) if minutes.has_changes(&totals) => {
            minutes.end(&totals, waiting, SystemTime::now())
        }
        _ => Ok(()),
    }
}

fn totals(shared: &Shared) -> (Totals, u64) {
    let board = shared.board.lock();
    (board.totals(), board.waiting())
}

fn serve(shared: &Shared, id: u64, stream: TcpStream, slot: Slot<'_>) {
    let outcome = Link::new(stream).map_err(LinkError::from).and_then(|mut link| {
        shared.links.lock().push((id, link.try_clone()?));
        let outcome = receive_reports(shared, id, &mut link);
        shared.board.lock().disconnect(id);
        // Confirms the final report to a part that waits for it.
        link.close();
        outcome
    });
    shared.links.lock().retain(|(other, _)| *other != id);
    drop(slot);
    match outcome {
        Ok(()) | Err(LinkError::Closed) => {}
        Err(error) => tracing::warn!(%error, "connection to part ended"),
    }
}

fn receive_reports(shared: &Shared, id: u64, link: &mut Link) -> Result<(), LinkError> {
    let Hello::Reporter { instance, .. } = link.receive_hello()? else {
        link.refuse("this is a monitor: it accepts only reports");
        return Err(LinkError::Unexpected { found: Kind::Hello, expected: "a reporter" });
    };
    link.open_for(0)?;
    let mut payload = Vec::new();
    loop {
        let Received::Frame(header) = link.receive(&mut payload)? else {
            return Err(LinkError::Damaged);
        };
        if header.kind != Kind::Status {
            return Err(LinkError::Unexpected { found: header.kind, expected: "a status" });
        }
        let report: Report = serde_json::from_slice(&payload[..header.payload_len()])?;
        shared.board.lock().take(id, instance, report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{GeneratorStatus, Status};
    use std::io::{Read as _, Write as _};
    use std::sync::Arc;

    #[test]
    fn reports_are_displayed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pages = TcpListener::bind("127.0.0.1:0").unwrap();
        let (reports_at, pages_at) = (listener.local_addr().unwrap(), pages.local_addr().unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let monitor = thread::spawn(move || {
            run(MonitorOptions { listener, pages, out: None }, &stopping).unwrap();
        });
        let reporter = Reporter::start(reports_at, "test".into());
        let try_to_ask = |path: &str| {
            let mut stream = TcpStream::connect(pages_at)?;
            write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok::<_, io::Error>(answer)
        };
        // A slow client, as on a busy machine, is disconnected and asks again.
        let ask = |path: &str| loop {
            match try_to_ask(path) {
                Ok(answer) if !answer.is_empty() => break answer,
                _ => thread::yield_now(),
            }
        };
        let status = GeneratorStatus { next_id: 77, ..Default::default() };
        reporter.finish(Ok(vec![Status::Generator(status)]));
        // The monitor has confirmed the report, so no wait is necessary.
        let metrics = ask("/metrics");
        let expected = "myriad_pipeline_tasks_total{stage=\"generator\"} 77\n";
        assert!(metrics.contains(expected), "{metrics}");
        assert!(ask("/status.json").contains("\"generator\""));
        assert!(ask("/").contains("<title>"));
        assert!(ask("/else").starts_with("HTTP/1.1 404"));
        stop.store(true, Ordering::SeqCst);
        monitor.join().unwrap();
    }
}
