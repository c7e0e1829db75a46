//! A set of numbers that are added nearly in order: the ids of the collected tasks.

use std::ops::Range;

/// Maximum number of gaps between collected ids. A generator keeps at most
/// [`crate::generator::WINDOW_MAX`] batches in flight, so more gaps indicate a faulty peer.
pub(crate) const INTERVALS_MAX: usize = 1 << 17;

/// Ordered half-open ranges that neither overlap nor touch. Memory: 16 bytes per gap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Intervals {
    ranges: Vec<(u64, u64)>,
}

/// Outcome of adding a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// The set contained no part of it.
    New,
    /// The set contained all of it.
    Known,
    /// The set contained a part of it, and is unchanged: one of the two ranges is wrong.
    Conflict,
    /// The set already has [`INTERVALS_MAX`] gaps.
    Full,
}

impl Intervals {
    /// Returns `None` unless the ranges are ordered and disjoint, as [`Intervals::ranges`] returns
    /// them.
    pub fn from_ranges(ranges: Vec<(u64, u64)>) -> Option<Self> {
        let is_whole = ranges.iter().all(|(start, end)| start < end);
        let is_apart = ranges.windows(2).all(|pair| pair[0].1 < pair[1].0);
        (is_whole && is_apart && ranges.len() <= INTERVALS_MAX).then_some(Self { ranges })
    }

    /// O(log gaps) for the search. The position is nearly always the last one, so nothing is moved.
    pub fn add(&mut self, range: Range<u64>) -> Added {
        let Range { start, end } = range;
        if start >= end {
            return Added::Known;
        }
        // The first range that ends at or after the start: it may touch or overlap.
        let at = self.ranges.partition_point(|(_, known_end)| *known_end < start);
        let after = self.ranges.get(at).copied();
        if let Some((known_start, known_end)) = after {
            if known_start <= start && end <= known_end {
                return Added::Known;
            }
            let next = self.ranges.get(at + 1).copied();
            let follows = known_end == start && next.is_none_or(|(next, _)| end <= next);
            if !follows && known_start < end {
                return Added::Conflict;
            }
            if follows {
                self.ranges[at].1 = end;
                if let Some((next_start, next_end)) = next
                    && next_start == end
                {
                    self.ranges[at].1 = next_end;
                    self.ranges.remove(at + 1);
                }
                return Added::New;
            }
            if known_start == end {
                self.ranges[at].0 = start;
                return Added::New;
            }
        }
        if self.ranges.len() >= INTERVALS_MAX {
            return Added::Full;
        }
        self.ranges.insert(at, (start, end));
        Added::New
    }

    pub fn contains(&self, range: Range<u64>) -> bool {
        let at = self.ranges.partition_point(|(_, end)| *end < range.end);
        range.is_empty() || self.ranges.get(at).is_some_and(|(start, _)| *start <= range.start)
    }

    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// Returns the number of elements. O(gaps).
    pub fn total(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }

    /// Returns the largest element plus one, or 0 if empty.
    pub fn end(&self) -> u64 {
        self.ranges.last().map_or(0, |(_, end)| *end)
    }

    /// Returns the gaps below `end`, in order.
    pub fn gaps(&self, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let starts = std::iter::once(0).chain(self.ranges.iter().map(|range| range.1));
        let ends = self.ranges.iter().map(|range| range.0).chain(std::iter::once(u64::MAX));
        starts
            .zip(ends)
            .map(move |(start, stop)| (start, stop.min(end)))
            .filter(|(start, stop)| start < stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// A peer may send the largest ids that the format allows.
    #[test]
    fn the_largest_numbers_are_joined() {
        let mut set = Intervals::default();
        assert_eq!(set.add(u64::MAX - 9..u64::MAX - 4), Added::New);
        assert_eq!(set.add(u64::MAX - 4..u64::MAX), Added::New);
        assert_eq!(set.add(u64::MAX - 1..u64::MAX), Added::Known);
        assert_eq!(set.ranges(), [(u64::MAX - 9, u64::MAX)]);
    }

    #[test]
    fn ranges_are_joined() {
        let mut set = Intervals::default();
        for (range, expected) in [
            (10..20, Added::New),
            (30..40, Added::New),
            (10..20, Added::Known),
            (12..13, Added::Known),
            (15..25, Added::Conflict),
            (5..11, Added::Conflict),
            (5..45, Added::Conflict),
            (20..31, Added::Conflict),
            (20..30, Added::New),
            (0..10, Added::New),
            (7..7, Added::Known),
        ] {
            assert_eq!(set.add(range.clone()), expected, "{range:?}");
        }
        assert_eq!(set.ranges(), [(0, 40)]);
        assert_eq!((set.total(), set.end()), (40, 40));
        assert_eq!(set.gaps(50).collect::<Vec<_>>(), [(40, 50)]);
    }

    #[test]
    fn foreign_ranges_are_checked() {
        assert!(Intervals::from_ranges(vec![(0, 1), (2, 3)]).is_some());
        for wrong in [vec![(0, 0)], vec![(0, 1), (1, 2)], vec![(5, 6), (1, 2)]] {
            assert_eq!(Intervals::from_ranges(wrong.clone()), None, "{wrong:?}");
        }
    }

    proptest! {
        /// The results match a set of single numbers.
        #[test]
        fn matches_a_set_of_numbers(ranges in proptest::collection::vec((0..60_u64, 0..9_u64), 0..60)) {
            let (mut set, mut naive) = (Intervals::default(), BTreeSet::new());
            for (start, length) in ranges {
                let range = start..start + length;
                let known = range.clone().filter(|id| naive.contains(id)).count();
                let expected = match known {
                    count if count == usize::try_from(length).unwrap() => Added::Known,
                    0 => Added::New,
                    _ => Added::Conflict,
                };
                prop_assert_eq!(set.contains(range.clone()), expected == Added::Known);
                prop_assert_eq!(set.add(range.clone()), expected);
                if expected == Added::New {
                    naive.extend(range);
                }
                let listed: Vec<u64> =
                    set.ranges().iter().flat_map(|(start, end)| *start..*end).collect();
                prop_assert!(listed.iter().eq(naive.iter()));
                prop_assert!(Intervals::from_ranges(set.ranges().to_vec()).is_some());
                let missing: Vec<u64> = set.gaps(70).flat_map(|(start, end)| start..end).collect();
                let expected: Vec<u64> = (0..70).filter(|id| !naive.contains(id)).collect();
                prop_assert_eq!(missing, expected);
            }
        }
    }
}
