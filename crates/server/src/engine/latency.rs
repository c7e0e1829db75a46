//! LATENCY: events that took longer than `latency-monitor-threshold`.

use std::collections::{BTreeMap, VecDeque};

use base::time::UnixMs;

/// Samples kept per event. Source: Redis 7.2 `latency.h`, `LATENCY_TS_LEN`.
const SAMPLES_MAX: usize = 160;

/// Monitored events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LatencyEvent {
    Command,
    FastCommand,
    ExpireCycle,
    EvictionCycle,
    LogSync,
    ReactorStall,
}

impl LatencyEvent {
    pub(crate) fn name(self) -> &'static str {
        match self {
            LatencyEvent::Command => "command",
            LatencyEvent::FastCommand => "fast-command",
            LatencyEvent::ExpireCycle => "expire-cycle",
            LatencyEvent::EvictionCycle => "eviction-cycle",
            LatencyEvent::LogSync => "aof-fsync-always",
            LatencyEvent::ReactorStall => "reactor-stall",
        }
    }
}

impl LatencyEvent {
    /// Advice for an operator.
    pub(crate) fn advice(self) -> &'static str {
        match self {
            LatencyEvent::Command => "SLOWLOG GET lists the commands; avoid large ranges and KEYS.",
            LatencyEvent::FastCommand => {
                "Another process probably used the core: see INFO reactors."
            }
            LatencyEvent::ExpireCycle => "Many keys expire at once: spread out their TTLs.",
            LatencyEvent::EvictionCycle => "Memory is full: raise maxmemory or store less.",
            LatencyEvent::LogSync => "The disk is slow to sync: see INFO persistence.",
            LatencyEvent::ReactorStall => "The log names the command that delayed its reactor.",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LatencySample {
    pub(crate) at_s: u64,
    pub(crate) took_ms: u64,
}

#[derive(Debug, Default)]
pub(crate) struct LatencySeries {
    pub(crate) samples: VecDeque<LatencySample>,
    pub(crate) max_ms: u64,
}

#[derive(Debug, Default)]
pub(crate) struct LatencyEvents {
    series: BTreeMap<LatencyEvent, LatencySeries>,
}

impl LatencyEvents {
    /// Records an event. Several events within one second count as one sample, the longest.
    pub(crate) fn note(&mut self, event: LatencyEvent, at: UnixMs, took_ms: u64) {
        let series = self.series.entry(event).or_default();
        series.max_ms = series.max_ms.max(took_ms);
        let at_s = at.0 / 1000;
        match series.samples.back_mut() {
            Some(last) if last.at_s == at_s => last.took_ms = last.took_ms.max(took_ms),
            _ => series.samples.push_back(LatencySample { at_s, took_ms }),
        }
        if series.samples.len() > SAMPLES_MAX {
            series.samples.pop_front();
        }
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (LatencyEvent, &LatencySeries)> {
        self.series.iter().map(|(event, series)| (*event, series))
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<(LatencyEvent, &LatencySeries)> {
        self.iter().find(|(event, _)| event.name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// Removes the samples of the given events, or of all. Returns the number of events removed.
    pub(crate) fn reset(&mut self, names: &[&[u8]]) -> usize {
        let before = self.series.len();
        self.series.retain(|event, _| {
            let named = names.iter().any(|name| event.name().as_bytes().eq_ignore_ascii_case(name));
            !(names.is_empty() || named)
        });
        before - self.series.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_second_is_one_sample() {
        let mut events = LatencyEvents::default();
        events.note(LatencyEvent::Command, UnixMs(1_000), 5);
        events.note(LatencyEvent::Command, UnixMs(1_900), 9);
        events.note(LatencyEvent::Command, UnixMs(2_000), 3);
        let (_, series) = events.get(b"COMMAND").expect("noted");
        assert_eq!(series.max_ms, 9);
        assert_eq!(
            series.samples,
            [LatencySample { at_s: 1, took_ms: 9 }, LatencySample { at_s: 2, took_ms: 3 },]
        );
        assert_eq!(events.reset(&[b"nothing"]), 0);
        assert_eq!(events.reset(&[]), 1);
    }

    #[test]
    fn old_samples_leave() {
        let mut events = LatencyEvents::default();
        for second in 0..1000 {
            events.note(LatencyEvent::LogSync, UnixMs(second * 1000), 1);
        }
        let (_, series) = events.get(b"aof-fsync-always").expect("noted");
        assert_eq!(series.samples.len(), SAMPLES_MAX);
    }
}
