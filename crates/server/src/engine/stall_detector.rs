//! The thread that detects reactors which do not return to their loop: a slow command or script, or
//! a core that other programs use.
//!
//! It reads what the reactors publish anyway, the start of their turn and their running request, so
//! it never waits for one. While no turn lasts too long, it feeds the watchdog of the service manager.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use base::time::MonoNs;

use crate::engine::clock;
use crate::engine::latency::LatencyEvent;
use crate::engine::server_state::ServerState;
use crate::service_manager::Watchdog;

/// Shortest and longest time between two checks. A check costs less than a microsecond per reactor.
const PERIOD_MS_MIN: u64 = 5;
const PERIOD_MS_MAX: u64 = 100;

/// Starts the thread.
pub(crate) fn start(shared: &Arc<ServerState>) -> std::io::Result<()> {
    let (sender, receiver) = sync_channel(0);
    let of_thread = Arc::clone(shared);
    *shared.stalls.stop.lock() = Some(sender);
    shared.stalls.thread.start("stalls", move || watch(&of_thread, &receiver))
}

fn watch(shared: &ServerState, stop: &Receiver<()>) {
    let mut watchdog = Watchdog::from_environment();
    let mut watches: Vec<Watch> = shared.published.iter().map(|_| Watch::default()).collect();
    loop {
        let threshold_ms = shared.settings.load().stall_threshold_ms;
        let period_ms = match threshold_ms {
            0 => PERIOD_MS_MAX,
            ms => (ms / 4).clamp(PERIOD_MS_MIN, PERIOD_MS_MAX),
        };
        match stop.recv_timeout(Duration::from_millis(period_ms)) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = clock::mono_now();
        if let Some(watchdog) = &mut watchdog {
            let turns = (0..watches.len()).map(|reactor| shared.links().turn_began(reactor));
            watchdog.feed(turns, now);
        }
        for (reactor, watch) in watches.iter_mut().enumerate() {
            let turn = shared.links().turn_began(reactor);
            if let Some(news) = watch.observe(turn, now, threshold_ms) {
                report(shared, reactor, news);
            }
        }
    }
}

fn report(shared: &ServerState, reactor: usize, news: News) {
    match news {
        News::Lasts { ms, is_first } => {
            shared.stalls.note(ms, is_first);
            let running = shared.activities.of(reactor, &shared.request_kinds);
            let (request, script) =
                running.map_or(("none", None), |running| (running.request, running.script));
            tracing::warn!(
                reactor = shared.reactors.name(reactor),
                request,
                script = script.as_deref(),
                stalled_ms = ms,
                "a reactor does not return to its loop"
            );
        }
        News::Ended { ms } => {
            shared.stalls.note(ms, false);
            let threshold_ms = shared.settings.load().latency_monitor_threshold_ms;
            if threshold_ms > 0 && ms >= threshold_ms {
                let at = clock::unix_now();
                shared.latency.lock().note(LatencyEvent::ReactorStall, at, ms);
            }
        }
    }
}

/// News about the stall of a reactor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    /// It has lasted for this time: reported at the threshold, at twice the threshold, and so on.
    Lasts { ms: u64, is_first: bool },
    /// A reported stall was last observed after this time.
    Ended { ms: u64 },
}

/// The turn of a reactor that was last observed.
#[derive(Debug, Default)]
struct Watch {
    began: MonoNs,
    lasted_ms: u64,
    /// The duration that is reported next; 0: nothing was reported.
    next_ms: u64,
}

impl Watch {
    /// `turn`: the start of the reactor's turn, unless it waits. `threshold_ms`: 0 is never.
    fn observe(&mut self, turn: Option<MonoNs>, now: MonoNs, threshold_ms: u64) -> Option<News> {
        if turn != Some(self.began) {
            let before = std::mem::take(self);
            self.began = turn.unwrap_or_default();
            if before.next_ms > 0 {
                return Some(News::Ended { ms: before.lasted_ms });
            }
        }
        self.lasted_ms = now.since(turn?) / 1_000_000;
        let is_first = self.next_ms == 0;
        let due_ms = if is_first { threshold_ms } else { self.next_ms };
        if threshold_ms == 0 || self.lasted_ms < due_ms {
            return None;
        }
        self.next_ms = self.lasted_ms.saturating_mul(2);
        Some(News::Lasts { ms: self.lasted_ms, is_first })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_stall_is_reported_at_growing_intervals_and_when_it_has_ended() {
        let mut watch = Watch::default();
        let mut observe = |turn: Option<u64>, now: u64, threshold_ms| {
            watch.observe(turn.map(|ms| MonoNs(ms * MS)), MonoNs(now * MS), threshold_ms)
        };
        assert_eq!(observe(Some(10), 40, 50), None);
        assert_eq!(observe(Some(10), 70, 50), Some(News::Lasts { ms: 60, is_first: true }));
        assert_eq!(observe(Some(10), 120, 50), None);
        assert_eq!(observe(Some(10), 140, 50), Some(News::Lasts { ms: 130, is_first: false }));
        assert_eq!(observe(Some(10), 260, 50), None);
        assert_eq!(observe(Some(10), 270, 50), Some(News::Lasts { ms: 260, is_first: false }));
        assert_eq!(observe(Some(10), 300, 50), None);
        assert_eq!(observe(None, 310, 50), Some(News::Ended { ms: 290 }));
        assert_eq!(observe(None, 900, 50), None);
        // The next turn stalls, and the one after it ends at once.
        assert_eq!(observe(Some(901), 1000, 50), Some(News::Lasts { ms: 99, is_first: true }));
        assert_eq!(observe(Some(1001), 1002, 50), Some(News::Ended { ms: 99 }));
        assert_eq!(observe(Some(1001), 1040, 50), None);
        assert_eq!(observe(None, 1060, 50), None);
    }

    #[test]
    fn no_stall_is_reported_without_a_threshold() {
        let mut watch = Watch::default();
        assert_eq!(watch.observe(Some(MonoNs(1)), MonoNs(1_000_000 * MS), 0), None);
        assert_eq!(watch.observe(None, MonoNs(1_000_001 * MS), 0), None);
    }
}
