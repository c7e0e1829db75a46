//! Scans the rows of one partition in either direction.

use std::ops::Bound;

use cql::error::CqlError;
use store::{Partition, RowView, Seconds};

use super::ranges::Rows;
use super::result::Next;

/// A scan that starts after the rows that were returned.
pub(super) struct RowScan<'r> {
    pub(super) partition: &'r Partition,
    /// The last row that was returned.
    pub(super) after: Option<&'r [u8]>,
    pub(super) is_reversed: bool,
    pub(super) now: Seconds,
}

impl<'r> RowScan<'r> {
    /// Passes each key and its row, which is `None` if a named row is absent, expired or deleted.
    pub(super) fn visit(
        &self,
        rows: &Rows,
        mut offer: impl FnMut(&[u8], Option<RowView<'r>>) -> Result<Next, CqlError>,
    ) -> Result<Next, CqlError> {
        match rows {
            Rows::All => self.range(Bound::Unbounded, Bound::Unbounded, &mut offer),
            Rows::Points(points) => {
                let mut found = |point: &Vec<u8>| offer(point, self.partition.row(point, self.now));
                if self.is_reversed {
                    let left = |after: &[u8]| points.partition_point(|point| &point[..] < after);
                    let rest = &points[..self.after.map_or(points.len(), left)];
                    return each(rest.iter().rev(), &mut found);
                }
                let shown = |after: &[u8]| points.partition_point(|point| &point[..] <= after);
                each(points[self.after.map_or(0, shown)..].iter(), &mut found)
            }
            Rows::Ranges(ranges) => {
                let mut forward = ranges.iter();
                let mut backward = ranges.iter().rev();
                let mut step = || if self.is_reversed { backward.next() } else { forward.next() };
                while let Some(range) = step() {
                    let start = Bound::Included(&range.start[..]);
                    let end = range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                    let next = self.range(start, end, &mut offer)?;
                    if next != Next::Continue {
                        return Ok(next);
                    }
                }
                Ok(Next::Continue)
            }
        }
    }

    fn range(
        &self,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
        offer: &mut impl FnMut(&[u8], Option<RowView<'r>>) -> Result<Next, CqlError>,
    ) -> Result<Next, CqlError> {
        let (start, end) = start_after(start, end, self.after, self.is_reversed);
        let rows = self.partition.kept_rows(start, end, self.now);
        let mut found = |row: RowView<'r>| offer(row.key, Some(row).filter(RowView::exists));
        if self.is_reversed { each(rows.rev(), &mut found) } else { each(rows, &mut found) }
    }
}

/// Passes items until `offer` ends the scan.
fn each<P>(
    places: impl Iterator<Item = P>,
    offer: &mut impl FnMut(P) -> Result<Next, CqlError>,
) -> Result<Next, CqlError> {
    for place in places {
        let next = offer(place)?;
        if next != Next::Continue {
            return Ok(next);
        }
    }
    Ok(Next::Continue)
}

/// Excludes the rows up to the last returned one from a range.
fn start_after<'b>(
    start: Bound<&'b [u8]>,
    end: Bound<&'b [u8]>,
    after: Option<&'b [u8]>,
    is_reversed: bool,
) -> (Bound<&'b [u8]>, Bound<&'b [u8]>) {
    let Some(after) = after else { return (start, end) };
    if is_reversed {
        let is_earlier = match end {
            Bound::Unbounded => true,
            Bound::Included(end) | Bound::Excluded(end) => after < end,
        };
        return (start, if is_earlier { Bound::Excluded(after) } else { end });
    }
    let is_later = match start {
        Bound::Unbounded => true,
        Bound::Included(start) | Bound::Excluded(start) => after >= start,
    };
    (if is_later { Bound::Excluded(after) } else { start }, end)
}
