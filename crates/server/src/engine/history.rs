//! Figures of the last hour, one point per second, and of the last day, one per minute.
//!
//! A point takes four bytes per column: with 16 reactors both rings take at most 1.5 MiB.

use std::collections::VecDeque;

use base::time::UnixMs;
use parking_lot::Mutex;

const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
/// An hour.
const SECONDS_MAX: usize = 3_600;
/// A day.
const MINUTES_MAX: usize = 1_440;
/// Points of one reading: about one per pixel of a chart.
pub(crate) const POINTS_MAX: usize = 720;

/// How several points become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Combine {
    Mean,
    /// Of latencies and sizes, the worst: a mean would hide it.
    Max,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    /// The unit is its last word; `_per_s` is a rate.
    pub(crate) name: String,
    pub(crate) combine: Combine,
}

/// Values of one moment, in the order of the columns; NaN where there was nothing to measure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Point {
    pub(crate) at: UnixMs,
    pub(crate) values: Box<[f32]>,
}

#[derive(Debug)]
pub(crate) struct History {
    pub(crate) columns: Vec<Column>,
    rings: Mutex<Rings>,
}

#[derive(Debug, Default)]
struct Rings {
    seconds: VecDeque<Point>,
    minutes: VecDeque<Point>,
    /// Points of the current minute.
    current: Vec<Point>,
}

/// Points of a time span, and the time that each represents.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) step_ms: u64,
    pub(crate) points: Vec<Point>,
}

impl History {
    pub(crate) fn new(columns: Vec<Column>) -> History {
        History { columns, rings: Mutex::default() }
    }

    /// Adds a point, later than all others. An earlier one, after the system's clock was set back,
    /// replaces the later ones.
    pub(crate) fn add(&self, point: Point) {
        assert_eq!(point.values.len(), self.columns.len());
        let rings = &mut *self.rings.lock();
        for ring in [&mut rings.seconds, &mut rings.minutes] {
            while ring.back().is_some_and(|last| last.at >= point.at) {
                ring.pop_back();
            }
        }
        let minute = |point: &Point| point.at.0 / MINUTE_MS;
        if rings.current.first().is_some_and(|first| minute(first) != minute(&point)) {
            let whole = self.combined(&std::mem::take(&mut rings.current));
            push(&mut rings.minutes, MINUTES_MAX, whole);
        }
        // Within a minute there are at most 60 points, unless the clock does not advance.
        if rings.current.len() < SECONDS_MAX {
            rings.current.push(point.clone());
        }
        push(&mut rings.seconds, SECONDS_MAX, point);
    }

    /// Returns the points of a span, combined so that there are at most [`POINTS_MAX`]. A span that
    /// begins before the ring of seconds is read from that of minutes.
    pub(crate) fn read(&self, from: UnixMs, until: UnixMs) -> Reading {
        let rings = self.rings.lock();
        let oldest = rings.seconds.front().map_or(0, |point| point.at.0);
        let has_older = rings.minutes.front().is_some_and(|point| point.at.0 < oldest);
        let (ring, interval_ms) = if from.0.saturating_add(MINUTE_MS) < oldest && has_older {
            (&rings.minutes, MINUTE_MS)
        } else {
            (&rings.seconds, SECOND_MS)
        };
        let is_inside = |point: &&Point| point.at >= from && point.at <= until;
        let found: Vec<Point> = ring.iter().filter(is_inside).cloned().collect();
        drop(rings);
        let group = found.len().div_ceil(POINTS_MAX).max(1);
        let points = if group == 1 {
            found
        } else {
            found.chunks(group).map(|points| self.combined(points)).collect()
        };
        Reading { step_ms: interval_ms * group as u64, points }
    }

    /// Combines points; the time is that of the last one. There must be at least one.
    fn combined(&self, points: &[Point]) -> Point {
        let at = points.last().expect("a group has points").at;
        let values = self.columns.iter().enumerate().map(|(index, column)| {
            let values = points.iter().map(|point| point.values[index]).filter(|one| !one.is_nan());
            match column.combine {
                // NaN without any value.
                Combine::Max => values.fold(f32::NAN, f32::max),
                Combine::Mean => {
                    let (sum, count) =
                        values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
                    sum / count
                }
            }
        });
        Point { at, values: values.collect() }
    }
}

fn push(ring: &mut VecDeque<Point>, max: usize, point: Point) {
    if ring.len() == max {
        ring.pop_front();
    }
    ring.push_back(point);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> History {
        let column = |name: &str, combine| Column { name: name.to_owned(), combine };
        History::new(vec![column("a_per_s", Combine::Mean), column("b_ns", Combine::Max)])
    }

    fn point(second: u64, a: f32, b: f32) -> Point {
        Point { at: UnixMs(second * SECOND_MS), values: Box::new([a, b]) }
    }

    fn seconds(reading: &Reading) -> Vec<u64> {
        reading.points.iter().map(|point| point.at.0 / SECOND_MS).collect()
    }

    #[test]
    fn a_short_span_has_every_second() {
        let history = history();
        (0..400).for_each(|second| history.add(point(second, 1.0, 2.0)));
        let reading = history.read(UnixMs(100_000), UnixMs(399_000));
        assert_eq!((reading.step_ms, seconds(&reading)), (1_000, (100..400).collect()));
        assert_eq!(seconds(&history.read(UnixMs(398_001), UnixMs(u64::MAX))), [399]);
    }

    #[test]
    fn long_spans_are_combined_and_bounded() {
        let history = history();
        for second in 0..100_000_u64 {
            let worst = if second % 60 == 7 { 9.0 } else { f32::NAN };
            history.add(point(second, if second % 2 == 0 { 1.0 } else { 3.0 }, worst));
        }
        let rings = history.rings.lock();
        assert_eq!((rings.seconds.len(), rings.minutes.len()), (SECONDS_MAX, MINUTES_MAX));
        drop(rings);
        let hour = history.read(UnixMs(96_400_000), UnixMs(u64::MAX));
        assert_eq!((hour.step_ms, hour.points.len()), (5_000, POINTS_MAX));
        let day = history.read(UnixMs(0), UnixMs(u64::MAX));
        assert_eq!((day.step_ms, day.points.len()), (120_000, POINTS_MAX));
        assert_eq!(*day.points[5].values, [2.0, 9.0]);
    }

    #[test]
    fn nothing_measured_stays_nothing() {
        let history = history();
        (0..2_000).for_each(|second| history.add(point(second, f32::NAN, f32::NAN)));
        let reading = history.read(UnixMs(0), UnixMs(u64::MAX));
        assert!(reading.points.iter().all(|point| point.values.iter().all(|value| value.is_nan())));
    }

    #[test]
    fn a_clock_that_is_set_back_replaces_later_points() {
        let history = history();
        (0..300).for_each(|second| history.add(point(second, 1.0, 1.0)));
        history.add(point(100, 2.0, 2.0));
        let reading = history.read(UnixMs(0), UnixMs(u64::MAX));
        assert_eq!(seconds(&reading), (0..=100).collect::<Vec<_>>());
    }
}
