//! Rows of one partition, from either end.

use std::ops::Bound;

use store::{Partition, RowView, Seconds};

use super::ranges::Rows;
use super::result::Next;
use crate::cql::error::CqlError;

/// The walk: behind those rows that were shown.
pub(super) struct RowWalk<'r> {
    pub(super) partition: &'r Partition,
    /// The last row that was shown.
    pub(super) after: Option<&'r [u8]>,
    pub(super) is_reversed: bool,
    pub(super) now: Seconds,
}

impl<'r> RowWalk<'r> {
    pub(super) fn visit(
        &self,
        rows: &Rows,
        mut offer: impl FnMut(RowView<'r>) -> Result<Next, CqlError>,
    ) -> Result<Next, CqlError> {
        match rows {
            Rows::All => self.range(Bound::Unbounded, Bound::Unbounded, &mut offer),
            Rows::Points(points) => {
                let found = |point: &Vec<u8>| self.partition.row(point, self.now);
                if self.is_reversed {
                    let rest = points.iter().rev();
                    let rest = rest
                        .skip_while(|point| self.after.is_some_and(|after| &point[..] >= after));
                    return each(rest.filter_map(found), &mut offer);
                }
                let rest = points.iter();
                let rest =
                    rest.skip_while(|point| self.after.is_some_and(|after| &point[..] <= after));
                each(rest.filter_map(found), &mut offer)
            }
            Rows::Ranges(ranges) => {
                let mut forward = ranges.iter();
                let mut backward = ranges.iter().rev();
                let mut step = || if self.is_reversed { backward.next() } else { forward.next() };
                while let Some(range) = step() {
                    let start = Bound::Included(&range.start[..]);
                    let end = range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                    let next = self.range(start, end, &mut offer)?;
                    if next != Next::GoOn {
                        return Ok(next);
                    }
                }
                Ok(Next::GoOn)
            }
        }
    }

    fn range(
        &self,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
        offer: &mut impl FnMut(RowView<'r>) -> Result<Next, CqlError>,
    ) -> Result<Next, CqlError> {
        let (start, end) = behind(start, end, self.after, self.is_reversed);
        let rows = self.partition.rows(start, end, self.now);
        if self.is_reversed { each(rows.rev(), offer) } else { each(rows, offer) }
    }
}

/// Offers rows as long as they are wanted.
fn each<'r>(
    rows: impl Iterator<Item = RowView<'r>>,
    offer: &mut impl FnMut(RowView<'r>) -> Result<Next, CqlError>,
) -> Result<Next, CqlError> {
    for row in rows {
        let next = offer(row)?;
        if next != Next::GoOn {
            return Ok(next);
        }
    }
    Ok(Next::GoOn)
}

/// A range without what was shown up to a row.
fn behind<'b>(
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
