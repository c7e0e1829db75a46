//! Compares the rows of two servers that no client writes to: values, times of writing, TTLs.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::anyhow;
use wire::cql::{Reader, Value};

use super::CassandraImport;
use super::failure::Failure;
use super::pages::{FIRST_ROWS, Pages};
use super::rows::{Cell, Row, rows, shown};
use super::session::{Message, Role, Session};
use super::table::{Content, Part};
use super::tasks::{Task, Tasks};
use super::writer::bound;
use crate::import::place::Place;

const DIFFERENCES_SHOWN: usize = 100;
/// Two servers are not read at the same time.
const TTL_S_DIFFERENCE_MAX: i32 = 10;

/// What all threads have found.
#[derive(Debug, Default)]
pub(super) struct Differences {
    pub(super) count: AtomicU64,
    pub(super) shown: Mutex<Vec<String>>,
}

/// A row that does not borrow from its page.
#[derive(Debug, PartialEq, Eq)]
struct OwnedRow {
    token: i64,
    keys: Vec<Option<Vec<u8>>>,
    /// Value, times and TTLs of each column.
    cells: Vec<[Option<Vec<u8>>; 3]>,
}

impl OwnedRow {
    fn of(row: &Row<'_>) -> OwnedRow {
        let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        let cell = |cell: &Cell<'_>| [cell.value, cell.written, cell.ttl].map(owned);
        OwnedRow {
            token: row.token,
            keys: row.keys.iter().copied().map(owned).collect(),
            cells: row.cells.iter().map(cell).collect(),
        }
    }

    fn shown(&self) -> String {
        shown(&self.keys.iter().map(Option::as_deref).collect::<Vec<_>>())
    }
}

/// The rows of a range, in order, and the position after them.
struct Cursor {
    pages: Option<Pages>,
    rows: VecDeque<OwnedRow>,
}

impl Cursor {
    fn new(task: Task, page_rows: i32) -> Cursor {
        let pages = Some(Pages::new(task.after, task.until, page_rows));
        Cursor { pages, rows: VecDeque::new() }
    }

    /// Reads pages until there is a row. Returns the number of read pages. After a failure the
    /// position is that of the page that was not read.
    fn fill(&mut self, part: &Part, link: &mut Link<'_>) -> Result<u64, Failure> {
        let mut read = 0;
        while let (true, Some(pages)) = (self.rows.is_empty(), &self.pages) {
            pages.request(&link.select, &mut link.session)?;
            let message = link.session.receive()?;
            let next = pages.after(&message)?;
            self.rows.extend(present(part, &message)?);
            self.pages = next;
            read += 1;
        }
        Ok(read)
    }

    fn shrink(&mut self) {
        if let Some(pages) = &mut self.pages {
            pages.shrink();
        }
    }

    fn is_at_one_row(&self) -> bool {
        self.pages.as_ref().is_none_or(|pages| pages.page_rows == 1)
    }
}

/// A connection to one of the servers, and what was prepared there.
struct Link<'s> {
    session: Session<'s>,
    select: Vec<u8>,
    select_row: Vec<u8>,
}

impl<'s> Link<'s> {
    fn open(
        place: &Place,
        role: Role,
        part: &Part,
        tasks: &Tasks<'s>,
    ) -> Result<Link<'s>, Failure> {
        let mut session = Session::open(place, role, tasks.stop)?;
        let select = session.prepare(&part.select_range())?;
        let select_row = session.prepare(&part.select_row())?;
        Ok(Link { session, select, select_row })
    }
}

/// The rows of a page, without those of which there are only static cells, and static cells without
/// a value.
fn present(part: &Part, message: &Message) -> Result<Vec<OwnedRow>, Failure> {
    let is_present = |row: &&Row<'_>| match part.content {
        Content::Rows => !row.is_absent(),
        Content::Statics => row.cells.iter().any(|cell| cell.value.is_some()),
    };
    Ok(rows(part, message)?.iter().filter(is_present).map(OwnedRow::of).collect())
}

/// How far a range was compared. It remains when a connection is lost.
struct Comparison<'a> {
    part: &'a Part,
    source: Cursor,
    target: Cursor,
    /// Pages that were read from either server.
    steps: u64,
    compared: u64,
    differences: Vec<String>,
    count: u64,
}

/// Compares ranges until there are no more.
pub(super) fn work(
    import: &CassandraImport,
    tasks: &Tasks<'_>,
    found: &Differences,
) -> Result<(), Failure> {
    while let Some(task) = tasks.next() {
        let mut comparison = Comparison {
            part: &tasks.parts[task.part],
            source: Cursor::new(task, FIRST_ROWS),
            target: Cursor::new(task, FIRST_ROWS),
            steps: 0,
            compared: 0,
            differences: Vec::new(),
            count: 0,
        };
        let mut failures = 0;
        loop {
            let before = comparison.steps;
            let Err(failure) = comparison.run(import, tasks) else { break };
            failures = if comparison.steps == before { failures + 1 } else { 1 };
            if matches!(failure, Failure::TooLarge(_)) && comparison.is_at_one_row() {
                let name = comparison.part.name();
                return Err(anyhow!("{failure}: a row of {name} after token {}", task.after).into());
            }
            comparison.source.shrink();
            comparison.target.shrink();
            tasks.wait_after(failure, failures)?;
        }
        tasks.report.rows.fetch_add(comparison.compared, Ordering::Relaxed);
        tasks.report.ranges.fetch_add(1, Ordering::Relaxed);
        found.count.fetch_add(comparison.count, Ordering::Relaxed);
        let mut shown = found.shown.lock().expect("no thread panics with the lock");
        let room = DIFFERENCES_SHOWN.saturating_sub(shown.len());
        shown.extend(comparison.differences.into_iter().take(room));
    }
    Ok(())
}

impl Comparison<'_> {
    /// Connects, and compares the rest of the range.
    fn run(&mut self, import: &CassandraImport, tasks: &Tasks<'_>) -> Result<(), Failure> {
        let mut source = Link::open(&import.source, Role::Source, self.part, tasks)?;
        let mut target = Link::open(&import.target, Role::Target, self.part, tasks)?;
        while self.step(&mut source, &mut target)? {}
        Ok(())
    }

    fn is_at_one_row(&self) -> bool {
        self.source.is_at_one_row() && self.target.is_at_one_row()
    }

    /// Compares one row. False: there are no more.
    fn step(&mut self, from: &mut Link<'_>, to: &mut Link<'_>) -> Result<bool, Failure> {
        self.steps += self.source.fill(self.part, from)?;
        self.steps += self.target.fill(self.part, to)?;
        let (source, target) = (self.source.rows.front(), self.target.rows.front());
        let (source, target) = match (source, target) {
            (None, None) => return Ok(false),
            (Some(source), Some(target)) => (source, target),
            (Some(_), None) => return Ok(self.take_missing()),
            (None, Some(_)) => return Ok(self.take_extra()),
        };
        if source.keys == target.keys {
            return Ok(self.take_both());
        }
        match source.token.cmp(&target.token) {
            std::cmp::Ordering::Less => return Ok(self.take_missing()),
            std::cmp::Ordering::Greater => return Ok(self.take_extra()),
            std::cmp::Ordering::Equal => {}
        }
        // The order within a partition is that of the types, and equal decimals have several forms:
        // the target determines which of the rows is earlier.
        let values: Vec<Value<'_>> = source.keys.iter().map(|key| bound(key.as_deref())).collect();
        let mut request = Vec::new();
        to.session.encode_execute(0, &to.select_row, &values, None, &mut request);
        to.session.send(&request)?;
        let message = to.session.receive()?;
        match present(self.part, &message)?.first() {
            None => Ok(self.take_missing()),
            Some(found) if found.keys == target.keys => Ok(self.take_both()),
            Some(_) => Ok(self.take_extra()),
        }
    }

    fn take_missing(&mut self) -> bool {
        if let Some(row) = self.source.rows.pop_front() {
            self.note(&row, "the target does not have it");
        }
        true
    }

    fn take_extra(&mut self) -> bool {
        if let Some(row) = self.target.rows.pop_front() {
            self.note(&row, "only the target has it");
        }
        true
    }

    fn take_both(&mut self) -> bool {
        if let (Some(source), Some(target)) =
            (self.source.rows.pop_front(), self.target.rows.pop_front())
        {
            self.compared += 1;
            if let Some(text) = difference(self.part, &source, &target) {
                self.note(&source, &text);
            }
        }
        true
    }

    fn note(&mut self, row: &OwnedRow, what: &str) {
        self.count += 1;
        if self.differences.len() < DIFFERENCES_SHOWN {
            self.differences.push(format!("{} ({}): {what}", self.part.name(), row.shown()));
        }
    }
}

/// The first difference of two rows with the same key.
fn difference(part: &Part, source: &OwnedRow, target: &OwnedRow) -> Option<String> {
    let cells = source.cells.iter().zip(&target.cells).zip(&part.values);
    for ((source, target), column) in cells {
        let name = &column.name;
        let [value, written, ttl] = source;
        let [other_value, other_written, other_ttl] = target;
        if value != other_value {
            return Some(format!("{name} has another value"));
        }
        if written != other_written {
            return Some(format!("{name} was written at another time"));
        }
        if !are_near(ttl.as_deref(), other_ttl.as_deref()) {
            return Some(format!("{name} has another TTL"));
        }
    }
    None
}

fn are_near(left: Option<&[u8]>, right: Option<&[u8]>) -> bool {
    if left == right {
        return true;
    }
    let (Some(left), Some(right)) = (ttls(left), ttls(right)) else { return false };
    let is_near = |(left, right): (&Option<i32>, &Option<i32>)| match (left, right) {
        (Some(left), Some(right)) => left.abs_diff(*right) <= TTL_S_DIFFERENCE_MAX.unsigned_abs(),
        (left, right) => left == right,
    };
    left.len() == right.len() && left.iter().zip(&right).all(is_near)
}

/// One TTL, or a list of them.
fn ttls(bytes: Option<&[u8]>) -> Option<Vec<Option<i32>>> {
    let bytes = bytes?;
    if let Ok(bytes) = bytes.try_into() {
        return Some(vec![Some(i32::from_be_bytes(bytes))]);
    }
    let mut reader = Reader::new(bytes);
    let mut found = Vec::new();
    for _ in 0..reader.int().ok()? {
        let item = reader.bytes().ok()?;
        found.push(item.and_then(|item| Some(i32::from_be_bytes(item.try_into().ok()?))));
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::cassandra::table::Shape;
    use crate::import::cassandra::table::tests::part;

    #[track_caller]
    fn check(source: [Option<&[u8]>; 3], target: [Option<&[u8]>; 3], expected: Option<&str>) {
        let part = part(&["k"], &[("v", Shape::Cell)]);
        let row = |cell: [Option<&[u8]>; 3]| OwnedRow {
            token: 0,
            keys: Vec::new(),
            cells: vec![cell.map(|bytes| bytes.map(<[u8]>::to_vec))],
        };
        assert_eq!(difference(&part, &row(source), &row(target)).as_deref(), expected);
    }

    #[test]
    fn values_times_and_ttls_are_compared() {
        let ttl = |seconds: i32| seconds.to_be_bytes();
        let list = |seconds: i32| {
            [&[0, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 4][..], &ttl(seconds)].concat()
        };
        let (hour, later, near) = (ttl(3600), ttl(4000), ttl(3595));
        let equal = [Some(&b"v"[..]), Some(&b"1"[..]), Some(&hour[..])];
        check(equal, equal, None);
        check(equal, [equal[0], equal[1], Some(&near)], None);
        check(equal, [equal[0], equal[1], Some(&later)], Some("v has another TTL"));
        check(equal, [equal[0], equal[1], None], Some("v has another TTL"));
        check(equal, [equal[0], Some(b"2"), equal[2]], Some("v was written at another time"));
        check(equal, [None, equal[1], equal[2]], Some("v has another value"));
        let (some, others) = (list(3600), list(3000));
        let items = [equal[0], equal[1], Some(&some[..])];
        check(items, [equal[0], equal[1], Some(&list(3601))], None);
        check(items, [equal[0], equal[1], Some(&others)], Some("v has another TTL"));
    }
}
