//! Values in the order of their timestamps: the time series of YEDIS.
//!
//! Points are in packed chunks of about 2 KiB, in order:
//!
//! ```text
//! delta   varint   timestamp less that of the point before; of the first: less the chunk's first
//! expiry  varint   milliseconds since the Unix epoch; 0: never
//! length  varint   length of the value
//! value bytes
//! ```
//!
//! A point that never expires takes three bytes more than a short value, if it follows the one before
//! within 127 units of time. Appending writes at the end of the last chunk; any other change builds
//! one chunk again. Points that have expired stay until a purge; every read names the time and skips
//! them.
//!
//! Known weakness: a chunk that is cut or removed moves the handles of all later ones, 56 bytes
//! each, which at most one in about 50 changes in the middle does.

use std::ops::Range;

use base::time::UnixMs;

use super::{Encoding, Malformed, allocation_bytes};
use crate::varint::{put_bytes, put_varint, take_bytes, take_varint};

/// Bytes of a chunk. A point that is longer has a chunk of its own.
const CHUNK_BYTES_MAX: usize = 2048;
/// A chunk that becomes smaller than this is merged with a neighbour of at most the same size.
const CHUNK_BYTES_MIN: usize = CHUNK_BYTES_MAX / 4;

/// The expiry of points that never expire, in memory.
const NEVER: UnixMs = UnixMs(u64::MAX);

/// A value with its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point<'a> {
    pub timestamp: i64,
    pub value: &'a [u8],
    pub expiry: Option<UnixMs>,
}

impl Point<'_> {
    /// Whether it has not expired.
    pub fn is_live(&self, now: UnixMs) -> bool {
        self.expiry.is_none_or(|at| at > now)
    }

    fn due(&self) -> UnixMs {
        self.expiry.unwrap_or(NEVER)
    }

    /// Appends the point, which follows one at `before`.
    fn encode_after(&self, before: i64, out: &mut Vec<u8>) {
        put_varint(out, self.timestamp.wrapping_sub(before).cast_unsigned());
        put_varint(out, self.expiry.map_or(0, |at| at.0));
        put_bytes(out, self.value);
    }
}

impl<'a> Point<'a> {
    fn decode_after(before: i64, input: &mut &'a [u8]) -> Result<Point<'a>, Malformed> {
        let timestamp = before.wrapping_add(take_varint(input)?.cast_signed());
        let expiry = Some(take_varint(input)?).filter(|at| *at > 0).map(UnixMs);
        Ok(Point { timestamp, value: take_bytes(input)?, expiry })
    }
}

/// Never empty.
#[derive(Debug, Clone)]
struct Chunk {
    first: i64,
    last: i64,
    count: usize,
    /// The least expiry of its points.
    soonest: UnixMs,
    bytes: Vec<u8>,
}

impl Chunk {
    fn new(point: &Point<'_>) -> Chunk {
        let timestamp = point.timestamp;
        let mut bytes = Vec::new();
        point.encode_after(timestamp, &mut bytes);
        Chunk { first: timestamp, last: timestamp, count: 1, soonest: point.due(), bytes }
    }

    /// Appends a point that is later than all others.
    fn push(&mut self, point: &Point<'_>) {
        debug_assert!(point.timestamp > self.last, "points are in order");
        point.encode_after(self.last, &mut self.bytes);
        self.last = point.timestamp;
        self.count += 1;
        self.soonest = self.soonest.min(point.due());
    }

    fn has_room(&self, point: &Point<'_>) -> bool {
        /// More than the numbers of a point take.
        const NUMBERS_BYTES_MAX: usize = 25;
        self.bytes.len() + point.value.len() + NUMBERS_BYTES_MAX <= CHUNK_BYTES_MAX
    }

    fn heap_bytes(&self) -> usize {
        allocation_bytes(self.bytes.capacity())
    }

    fn points(&self) -> impl Iterator<Item = Point<'_>> {
        let (mut bytes, mut before) = (self.bytes.as_slice(), self.first);
        std::iter::from_fn(move || {
            (!bytes.is_empty()).then(|| {
                let point = Point::decode_after(before, &mut bytes).expect("encoded by the chunk");
                before = point.timestamp;
                point
            })
        })
    }

    fn live_len(&self, now: UnixMs) -> usize {
        if self.soonest > now {
            return self.count;
        }
        self.points().filter(|point| point.is_live(now)).count()
    }
}

/// Points by timestamp. Append: amortised O(bytes). Search and other changes: O(log chunks + points
/// of one chunk).
#[derive(Debug, Clone)]
pub struct Series {
    /// In order, without common timestamps.
    chunks: Vec<Chunk>,
    len: usize,
    /// Allocations of all chunks.
    chunk_heap_bytes: usize,
    /// The least of the chunks.
    soonest: UnixMs,
}

impl Default for Series {
    fn default() -> Series {
        Series { chunks: Vec::new(), len: 0, chunk_heap_bytes: 0, soonest: NEVER }
    }
}

impl Series {
    /// No points, no allocation.
    pub fn new() -> Series {
        Series::default()
    }

    /// Number of points, including expired ones. O(1).
    pub fn len(&self) -> usize {
        self.len
    }

    /// O(1).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of points that have not expired. O(1) if none has, otherwise O(chunks).
    pub fn live_len(&self, now: UnixMs) -> usize {
        if self.soonest > now {
            return self.len;
        }
        self.chunks.iter().map(|chunk| chunk.live_len(now)).sum()
    }

    /// Points that [`Series::live_len`] visits: those of chunks with an expired one. O(chunks).
    pub fn counted_len(&self, now: UnixMs) -> usize {
        if self.soonest > now {
            return 0;
        }
        self.chunks.iter().filter(|it| it.soonest <= now).map(|it| it.count).sum()
    }

    /// When the next point expires.
    pub fn soonest(&self) -> Option<UnixMs> {
        Some(self.soonest).filter(|at| *at < NEVER)
    }

    fn points(&self) -> impl Iterator<Item = Point<'_>> {
        self.chunks.iter().flat_map(Chunk::points)
    }

    /// The first chunk that ends at a timestamp or later.
    fn chunk_from(&self, timestamp: i64) -> usize {
        self.chunks.partition_point(|chunk| chunk.last < timestamp)
    }

    /// The point at a timestamp, even if it has expired.
    fn find(&self, timestamp: i64) -> Option<Point<'_>> {
        let chunk = self.chunks.get(self.chunk_from(timestamp))?;
        let found = chunk.points().find(|point| point.timestamp >= timestamp)?;
        (found.timestamp == timestamp).then_some(found)
    }

    /// Whether there is a point at a timestamp, even an expired one.
    pub fn contains(&self, timestamp: i64) -> bool {
        self.find(timestamp).is_some()
    }

    /// The value at a timestamp.
    pub fn get(&self, timestamp: i64, now: UnixMs) -> Option<&[u8]> {
        self.find(timestamp).filter(|point| point.is_live(now)).map(|point| point.value)
    }

    /// Sets the value at a timestamp, and its expiry.
    pub fn add(&mut self, point: Point<'_>) {
        let at = self.chunk_from(point.timestamp);
        if at < self.chunks.len() {
            let mut points: Vec<Point<'_>> = self.chunks[at].points().collect();
            match points.binary_search_by_key(&point.timestamp, |it| it.timestamp) {
                Ok(place) => points[place] = point,
                Err(place) => points.insert(place, point),
            }
            let changed = pack(&points);
            return self.replace(at..at + 1, changed);
        }
        self.len += 1;
        self.soonest = self.soonest.min(point.due());
        if let Some(last) = self.chunks.last_mut() {
            self.chunk_heap_bytes -= last.heap_bytes();
            let has_room = last.has_room(&point);
            if has_room {
                last.push(&point);
            } else {
                last.bytes.shrink_to_fit();
            }
            self.chunk_heap_bytes += last.heap_bytes();
            if has_room {
                return;
            }
        } else {
            self.chunks.reserve_exact(1); // many series have one chunk
        }
        let chunk = Chunk::new(&point);
        self.chunk_heap_bytes += chunk.heap_bytes();
        self.chunks.push(chunk);
    }

    /// Removes the point at a timestamp, even an expired one; false if there is none.
    pub fn remove(&mut self, timestamp: i64) -> bool {
        if !self.contains(timestamp) {
            return false;
        }
        let at = self.chunk_from(timestamp);
        let left: Vec<Point<'_>> =
            self.chunks[at].points().filter(|it| it.timestamp != timestamp).collect();
        let changed = pack(&left);
        self.replace(at..at + 1, changed);
        self.merge(at);
        true
    }

    /// Merges a chunk that has become small with a neighbour.
    fn merge(&mut self, at: usize) {
        let bytes = |chunk: usize| self.chunks.get(chunk).map(|chunk| chunk.bytes.len());
        if bytes(at).is_none_or(|bytes| bytes >= CHUNK_BYTES_MIN) {
            return;
        }
        let is_small = |chunk: &usize| bytes(*chunk).is_some_and(|it| it <= CHUNK_BYTES_MAX / 2);
        let starts =
            [at.checked_sub(1).filter(is_small), Some(at).filter(|it| is_small(&(it + 1)))];
        let Some(first) = starts.into_iter().flatten().next() else { return };
        let pair = first..first + 2;
        let points: Vec<Point<'_>> =
            self.chunks[pair.clone()].iter().flat_map(Chunk::points).collect();
        let merged = pack(&points);
        self.replace(pair, merged);
    }

    /// Removes the points from `first` to `last` that expire at `at` or earlier.
    pub fn purge(&mut self, at: UnixMs, first: i64, last: i64) {
        let end = self.chunks.partition_point(|chunk| chunk.first <= last);
        let range = self.chunk_from(first).min(end)..end;
        let chunks = &self.chunks[range.clone()];
        if chunks.iter().all(|chunk| chunk.soonest > at) {
            return;
        }
        let is_kept =
            |it: &Point<'_>| it.is_live(at) || it.timestamp < first || it.timestamp > last;
        let kept: Vec<Point<'_>> = chunks.iter().flat_map(Chunk::points).filter(is_kept).collect();
        let changed = pack(&kept);
        self.replace(range, changed);
    }

    /// First and last timestamp of a range that begins with an expired point's chunk and has about
    /// `points_max` points at most, so that a purge of a large series takes many small steps.
    /// `None`: no point has expired.
    pub fn due(&self, now: UnixMs, points_max: usize) -> Option<(i64, i64)> {
        if self.soonest > now {
            return None;
        }
        let from = self.chunks.iter().position(|chunk| chunk.soonest <= now)?;
        let mut points = 0;
        let within = self.chunks[from..].iter().take_while(|chunk| {
            let is_within = points < points_max;
            points += chunk.count;
            is_within
        });
        Some((self.chunks[from].first, within.last()?.last))
    }

    /// Replaces some chunks.
    fn replace(&mut self, range: Range<usize>, new: Vec<Chunk>) {
        let sums = |chunks: &[Chunk]| {
            let soonest = chunks.iter().map(|chunk| chunk.soonest).min().unwrap_or(NEVER);
            let heap_bytes: usize = chunks.iter().map(Chunk::heap_bytes).sum();
            (soonest, heap_bytes, chunks.iter().map(|chunk| chunk.count).sum::<usize>())
        };
        let (soonest_before, bytes_before, len_before) = sums(&self.chunks[range.clone()]);
        let (soonest, bytes, len) = sums(&new);
        self.len = self.len + len - len_before;
        self.chunk_heap_bytes = self.chunk_heap_bytes + bytes - bytes_before;
        self.chunks.splice(range, new);
        if self.chunks.capacity() > 4 * self.chunks.len() + 4 {
            self.chunks.shrink_to(2 * self.chunks.len());
        }
        if soonest <= self.soonest {
            self.soonest = soonest;
        } else if soonest_before == self.soonest {
            self.soonest = sums(&self.chunks).0;
        }
        debug_assert!(self.is_consistent());
    }

    /// Whether the sums are those of the chunks. Only for assertions: O(chunks).
    fn is_consistent(&self) -> bool {
        const CHUNKS_MAX: usize = 64;
        self.chunks.len() > CHUNKS_MAX
            || self.len == self.chunks.iter().map(|chunk| chunk.count).sum()
                && self.chunk_heap_bytes == self.chunks.iter().map(Chunk::heap_bytes).sum()
                && self.chunks.iter().all(|chunk| chunk.count > 0 && chunk.first <= chunk.last)
                && self.chunks.windows(2).all(|pair| pair[0].last < pair[1].first)
    }

    /// The points from `first` to `last`, both inclusive, including expired ones.
    pub fn range(&self, first: i64, last: i64) -> impl Iterator<Item = Point<'_>> {
        let chunks = self.chunks[self.chunk_from(first)..].iter();
        chunks
            .take_while(move |chunk| chunk.first <= last)
            .flat_map(Chunk::points)
            .filter(move |it| it.timestamp >= first && it.timestamp <= last)
    }

    /// The same in the opposite order.
    pub fn range_rev(&self, first: i64, last: i64) -> impl Iterator<Item = Point<'_>> {
        let end = self.chunks.partition_point(|chunk| chunk.first <= last);
        let chunks = self.chunks[..end].iter().rev();
        chunks
            .take_while(move |chunk| chunk.last >= first)
            .flat_map(|chunk| chunk.points().collect::<Vec<_>>().into_iter().rev())
            .filter(move |it| it.timestamp >= first && it.timestamp <= last)
    }

    /// Bytes of heap, without the value itself. O(1).
    pub fn heap_bytes(&self) -> usize {
        allocation_bytes(self.chunks.capacity() * size_of::<Chunk>()) + self.chunk_heap_bytes
    }

    pub fn encoding(&self) -> Encoding {
        Encoding::TimeSeries
    }

    /// Appends: number of points v, then the points as in a chunk, the first one after 0. O(bytes).
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len as u64);
        let mut before = 0;
        for point in self.points() {
            point.encode_after(before, out);
            before = point.timestamp;
        }
    }

    /// Takes what `encode` wrote off the front of `input`.
    pub fn decode(input: &mut &[u8]) -> Result<Series, Malformed> {
        let mut series = Series::new();
        let mut before = None;
        for _ in 0..take_varint(input)? {
            let point = Point::decode_after(before.unwrap_or(0), input)?;
            if before.is_some_and(|before| point.timestamp <= before) {
                return Err(Malformed);
            }
            before = Some(point.timestamp);
            series.add(point);
        }
        Ok(series)
    }
}

/// The same points, however they are cut into chunks.
impl PartialEq for Series {
    fn eq(&self, other: &Series) -> bool {
        self.len == other.len && self.points().eq(other.points())
    }
}

/// Chunks of about equal size with these points, which are in order.
fn pack(points: &[Point<'_>]) -> Vec<Chunk> {
    /// About what the numbers of a point take.
    const NUMBERS_BYTES: usize = 5;
    let bytes: usize = points.iter().map(|point| point.value.len() + NUMBERS_BYTES).sum();
    let bytes_max = bytes / bytes.div_ceil(CHUNK_BYTES_MAX).max(1) + NUMBERS_BYTES;
    let mut chunks: Vec<Chunk> = Vec::new();
    for point in points {
        match chunks.last_mut() {
            Some(last) if last.bytes.len() < bytes_max && last.has_room(point) => last.push(point),
            _ => chunks.push(Chunk::new(point)),
        }
    }
    for chunk in &mut chunks {
        chunk.bytes.shrink_to_fit();
    }
    chunks
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const ALL: (i64, i64) = (i64::MIN, i64::MAX);

    fn point(timestamp: i64, value: &[u8]) -> Point<'_> {
        Point { timestamp, value, expiry: None }
    }

    fn recounted(series: &Series) -> (usize, UnixMs, usize) {
        let chunks = &series.chunks;
        (
            chunks.iter().map(|chunk| chunk.points().count()).sum(),
            chunks.iter().flat_map(Chunk::points).map(|it| it.due()).min().unwrap_or(NEVER),
            chunks.iter().map(Chunk::heap_bytes).sum(),
        )
    }

    #[test]
    fn points_with_short_values_take_few_bytes() {
        let mut series = Series::new();
        for second in 0..100_000 {
            series.add(point(1_700_000_000 + second * 10, b"12.5"));
        }
        let tenths = series.heap_bytes() / 10_000;
        assert!((70..75).contains(&tenths), "{tenths}");
        let mut backwards = Series::new();
        for second in (0..100_000).rev() {
            backwards.add(point(1_700_000_000 + second * 10, b"12.5"));
        }
        let tenths = backwards.heap_bytes() / 10_000;
        assert!((70..130).contains(&tenths), "{tenths}");
        assert_eq!(series, backwards);
        for second in 0..100_000 {
            if second % 100 != 0 {
                assert!(series.remove(1_700_000_000 + second * 10));
            }
        }
        assert_eq!(series.len(), 1000);
        let bytes = series.heap_bytes() / 1000;
        assert!(bytes < 16, "{bytes}: small chunks are merged");
    }

    #[test]
    fn the_least_and_the_greatest_timestamp_are_ordinary_ones() {
        let mut series = Series::new();
        for timestamp in [i64::MAX, 0, i64::MIN, -1] {
            series.add(point(timestamp, b"v"));
        }
        let mut bytes = Vec::new();
        series.encode(&mut bytes);
        assert_eq!(Series::decode(&mut bytes.as_slice()), Ok(series.clone()));
        let found = series.range(ALL.0, ALL.1).map(|point| point.timestamp);
        assert!(found.eq([i64::MIN, -1, 0, i64::MAX]));
    }

    #[test]
    fn points_in_the_wrong_order_are_malformed() {
        let mut bytes = vec![2];
        point(5, b"v").encode_after(0, &mut bytes);
        point(5, b"v").encode_after(5, &mut bytes);
        assert_eq!(Series::decode(&mut bytes.as_slice()), Err(Malformed));
    }

    #[test]
    fn a_purge_of_a_large_series_has_many_small_steps() {
        let mut series = Series::new();
        for timestamp in 0..10_000 {
            let expiry = (timestamp % 2 == 0).then_some(UnixMs(50));
            series.add(Point { timestamp, value: b"value", expiry });
        }
        assert_eq!(series.due(UnixMs(49), 1000), None);
        assert_eq!(series.live_len(UnixMs(50)), 5000);
        assert_eq!(series.counted_len(UnixMs(50)), 10_000);
        let mut steps = 0;
        while let Some((first, last)) = series.due(UnixMs(50), 1000) {
            let before = series.len();
            series.purge(UnixMs(50), first, last);
            assert!((1..=700).contains(&(before - series.len())));
            steps += 1;
        }
        assert!((8..=20).contains(&steps), "{steps}");
        assert_eq!((series.len(), series.soonest()), (5000, None));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Add(i64, Vec<u8>, Option<u64>),
        Remove(i64),
        Purge(u64, i64, i64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let timestamp = || prop_oneof![8 => -300i64..300, 1 => any::<i64>()];
        let value = prop_oneof![
            8 => proptest::collection::vec(any::<u8>(), 0..40),
            1 => proptest::collection::vec(any::<u8>(), 1000..5000),
        ];
        prop_oneof![
            6 => (timestamp(), value, proptest::option::of(1u64..20))
                .prop_map(|(at, value, expiry)| Step::Add(at, value, expiry)),
            2 => timestamp().prop_map(Step::Remove),
            1 => (0u64..20, timestamp(), timestamp())
                .prop_map(|(at, one, two)| Step::Purge(at, one.min(two), one.max(two))),
        ]
    }

    proptest! {
        #[test]
        fn a_series_behaves_as_a_sorted_map(
            steps in proptest::collection::vec(step(), 0..300),
            now in 0u64..20,
            bounds in (-350i64..350, -350i64..350),
        ) {
            let (mut series, mut model) = (Series::new(), BTreeMap::new());
            for step in &steps {
                match step {
                    Step::Add(timestamp, value, expiry) => {
                        let expiry = expiry.map(UnixMs);
                        series.add(Point { timestamp: *timestamp, value, expiry });
                        model.insert(*timestamp, (value.as_slice(), expiry));
                    }
                    Step::Remove(timestamp) => {
                        let was_there = model.remove(timestamp).is_some();
                        prop_assert_eq!(series.remove(*timestamp), was_there);
                    }
                    Step::Purge(at, first, last) => {
                        series.purge(UnixMs(*at), *first, *last);
                        model.retain(|timestamp, (_, expiry)| {
                            expiry.is_none_or(|due| due.0 > *at)
                                || timestamp < first
                                || timestamp > last
                        });
                    }
                }
            }
            let state = (series.len(), series.soonest, series.chunk_heap_bytes);
            prop_assert_eq!(recounted(&series), state);
            prop_assert_eq!(series.len(), model.len());
            let now = UnixMs(now);
            let live = |(timestamp, (value, expiry)): (&i64, &(&[u8], Option<UnixMs>))| {
                expiry.is_none_or(|at| at > now).then(|| (*timestamp, value.to_vec()))
            };
            let all: Vec<_> = model.iter().filter_map(live).collect();
            prop_assert_eq!(series.live_len(now), all.len());
            let pairs = |point: Point<'_>| {
                point.is_live(now).then(|| (point.timestamp, point.value.to_vec()))
            };
            prop_assert!(series.range(ALL.0, ALL.1).filter_map(pairs).eq(all.clone()));
            let (first, last) = (bounds.0.min(bounds.1), bounds.0.max(bounds.1));
            let within: Vec<_> = model.range(first..=last).filter_map(live).collect();
            prop_assert!(series.range(first, last).filter_map(pairs).eq(within.clone()));
            let reversed = series.range_rev(first, last).filter_map(pairs);
            prop_assert!(reversed.eq(within.into_iter().rev()));
            for (timestamp, value) in &all {
                prop_assert_eq!(series.get(*timestamp, now), Some(value.as_slice()));
            }
            prop_assert_eq!(series.due(now, 1).is_some(), all.len() < model.len());
            let mut bytes = Vec::new();
            series.encode(&mut bytes);
            prop_assert_eq!(Series::decode(&mut bytes.as_slice()), Ok(series));
        }
    }
}
