//! One thread of an import: reads ranges of tokens, and writes their rows to the target.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::anyhow;

use super::CassandraImport;
use super::failure::Failure;
use super::pages::{FIRST_ROWS, Pages};
use super::rows::{Row, current, rows, statements};
use super::session::{Role, Session};
use super::state;
use super::table::{Part, Slot};
use super::tasks::{Task, Tasks};
use super::writer::Writer;

/// Rows whose content in the target is read at once.
const READ_ROWS: usize = 64;
/// Time between two stored positions within a range.
const STORE_INTERVAL: Duration = Duration::from_secs(5);

/// Both connections, and what was prepared on them for one part.
struct Link<'a> {
    number: usize,
    part: &'a Part,
    slots: Vec<Slot>,
    source: Session<'a>,
    target: Session<'a>,
    select: Vec<u8>,
    writer: Writer<'a>,
}

impl<'a> Link<'a> {
    fn open(
        number: usize,
        import: &CassandraImport,
        tasks: &Tasks<'a>,
    ) -> Result<Link<'a>, Failure> {
        let part = &tasks.parts[number];
        let mut source = Session::open(&import.source, Role::Source, tasks.stop)?;
        let mut target = Session::open(&import.target, Role::Target, tasks.stop)?;
        let select = source.prepare(&part.select_range())?;
        let writer = Writer::prepare(part, tasks.report, &mut target)?;
        Ok(Link { number, part, slots: part.slots(), source, target, select, writer })
    }

    /// Writes rows. Returns when they are on the disk of the target.
    fn write(&mut self, rows: &[Row<'_>], requested_at: Instant) -> Result<(), Failure> {
        let nothing = BTreeMap::new();
        if !self.writer.reads() {
            for row in rows {
                self.write_row(row, &nothing, requested_at)?;
            }
            return self.writer.finish(&mut self.target);
        }
        for rows in rows.chunks(READ_ROWS) {
            let rows: Vec<_> = rows.iter().filter(|row| !row.is_absent()).collect();
            let keys: Vec<_> = rows.iter().map(|row| row.keys.as_slice()).collect();
            let messages = self.writer.read_current(&keys, &mut self.target)?;
            for (row, message) in rows.into_iter().zip(&messages) {
                let existing = current(self.part, message)?;
                self.write_row(row, &existing, requested_at)?;
            }
        }
        self.writer.finish(&mut self.target)
    }

    fn write_row(
        &mut self,
        row: &Row<'_>,
        existing: &BTreeMap<usize, super::rows::Cell<'_>>,
        requested_at: Instant,
    ) -> Result<(), Failure> {
        for unit in statements(self.part, &self.slots, row, existing)? {
            self.writer.push(&unit, &row.keys, requested_at, &mut self.target)?;
        }
        Ok(())
    }
}

/// How far a range was copied.
struct Range {
    task: Task,
    pages: Pages,
    /// Pages that were copied, and the token of the last row.
    steps: u64,
    last: i64,
    stored: Instant,
}

/// Copies ranges until there are no more.
pub(super) fn work(import: &CassandraImport, tasks: &Tasks<'_>) -> Result<(), Failure> {
    let name = import.name();
    let mut link = None;
    // The rows that fit into a page of the part.
    let mut fitting = (usize::MAX, FIRST_ROWS);
    while let Some(task) = tasks.next() {
        let page_rows = if fitting.0 == task.part { fitting.1 } else { FIRST_ROWS };
        let pages = Pages::new(task.after, task.until, page_rows);
        let (last, stored) = (task.after, Instant::now());
        let mut range = Range { task, pages, steps: 0, last, stored };
        let mut failures = 0;
        loop {
            let before = range.steps;
            let failure = match copy(&mut link, &mut range, import, &name, tasks) {
                Ok(()) => break,
                Err(failure) => failure,
            };
            // What was sent, but not answered, does not matter: it is written again.
            link = None;
            failures = if range.steps == before { failures + 1 } else { 1 };
            if matches!(failure, Failure::TooLarge(_)) && range.pages.page_rows == 1 {
                let part = tasks.parts[task.part].name();
                return Err(anyhow!("{failure}: a row of {part}, near token {}", range.last).into());
            }
            range.pages.shrink();
            tasks.wait_after(failure, failures)?;
        }
        fitting = (task.part, range.pages.page_rows);
        tasks.report.ranges.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn copy<'a>(
    link: &mut Option<Link<'a>>,
    range: &mut Range,
    import: &CassandraImport,
    name: &str,
    tasks: &Tasks<'a>,
) -> Result<(), Failure> {
    let link = match link {
        Some(link) if link.number == range.task.part => link,
        _ => link.insert(Link::open(range.task.part, import, tasks)?),
    };
    let part = link.part.name();
    let progress = link.part.progress_name();
    // Before the source has computed the TTLs, so that no cell outlives its original.
    let mut requested_at = Instant::now();
    range.pages.request(&link.select, &mut link.source)?;
    loop {
        let message = link.source.receive()?;
        let next = range.pages.after(&message)?;
        let read_at = std::mem::replace(&mut requested_at, Instant::now());
        // The source reads while the target writes.
        if let Some(next) = &next {
            next.request(&link.select, &mut link.source)?;
        }
        let rows = rows(link.part, &message)?;
        check_order(&rows, range).map_err(|text| anyhow!("{part}: {text}"))?;
        link.write(&rows, read_at)?;
        tasks.report.rows.fetch_add(rows.len() as u64, Ordering::Relaxed);
        range.steps += 1;
        range.last = rows.last().map_or(range.last, |row| row.token);
        let Some(next) = next else {
            let copied = (range.task.range, range.task.until);
            return state::store(name, &progress, copied, &mut link.target);
        };
        range.pages = next;
        if range.stored.elapsed() >= STORE_INTERVAL {
            // The partition of the last row may have more rows.
            let until = range.last.saturating_sub(1).max(range.task.after);
            state::store(name, &progress, (range.task.range, until), &mut link.target)?;
            range.stored = Instant::now();
        }
    }
}

/// A source that repeats rows would be read without end.
fn check_order(rows: &[Row<'_>], range: &Range) -> Result<(), &'static str> {
    let mut last = range.last;
    for row in rows {
        if row.token < last || row.token <= range.task.after || row.token > range.task.until {
            return Err("the source sent a row outside of the requested range");
        }
        last = row.token;
    }
    Ok(())
}
