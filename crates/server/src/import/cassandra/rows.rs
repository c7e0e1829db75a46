//! A row of the source, and the statements that make the same row in the target.
//!
//! Cells keep their timestamps and TTLs. If they have one of each, and are whole columns, the row is
//! one INSERT; if not, also an UPDATE for each pair of them. So writing a row again changes nothing, and loses against what
//! clients have written since.
//!
//! The exceptions are items of lists, which have no key, and counters, which have no timestamp: the
//! content of the target decides what is written.

use std::borrow::Cow;
use std::collections::BTreeMap;

use anyhow::{Context as _, anyhow, ensure};
use wire::cql::Reader;

use super::failure::Failure;
use super::session::Message;
use super::table::{Content, Kind, Part, Shape, Slot};

/// No server reports the timestamp of a row without cells: this one loses against every other.
const UNKNOWN_TIMESTAMP: i64 = 1;
/// Bytes of each column of a key in messages.
const KEY_SHOWN_BYTES: usize = 100;

/// A value, the times at which it was written, and its TTLs: one of each, or a list of one for each
/// cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cell<'a> {
    pub(super) value: Option<&'a [u8]>,
    pub(super) written: Option<&'a [u8]>,
    pub(super) ttl: Option<&'a [u8]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row<'a> {
    pub(super) token: i64,
    pub(super) keys: Vec<Option<&'a [u8]>>,
    pub(super) cells: Vec<Cell<'a>>,
}

impl Row<'_> {
    /// Whether this is a partition that has only static cells.
    pub(super) fn is_absent(&self) -> bool {
        self.keys.iter().any(Option::is_none)
    }
}

/// The rows of a page.
pub(super) fn rows<'a>(part: &Part, message: &'a Message) -> Result<Vec<Row<'a>>, Failure> {
    let rows = message.rows()?;
    let columns: usize = (0..part.values.len()).map(|column| part.selected(column)).sum();
    let expected = 1 + part.keys.len() + columns;
    let found = rows.metadata.columns;
    if found != expected {
        let name = part.name();
        return Err(anyhow!("{name}: a row has {found} columns instead of {expected}").into());
    }
    let mut cells = rows.cells();
    let mut found = Vec::with_capacity(rows.count);
    for _ in 0..rows.count {
        let token = number(cells.next().flatten()).context("a token has 8 bytes")?;
        let keys = cells.by_ref().take(part.keys.len()).collect();
        let cells = (0..part.values.len())
            .map(|column| take_cell(&mut cells, part.selected(column)))
            .collect();
        found.push(Row { token, keys, cells });
    }
    Ok(found)
}

fn take_cell<'a>(cells: &mut impl Iterator<Item = Option<&'a [u8]>>, selected: usize) -> Cell<'a> {
    let value = cells.next().flatten();
    if selected == 1 {
        return Cell { value, ..Cell::default() };
    }
    Cell { value, written: cells.next().flatten(), ttl: cells.next().flatten() }
}

/// What the target has of a row: a value for each column of [`Part::read_columns`].
pub(super) fn current<'a>(
    part: &Part,
    message: &'a Message,
) -> Result<BTreeMap<usize, Cell<'a>>, Failure> {
    let rows = message.rows()?;
    let mut cells = rows.cells();
    let mut found = BTreeMap::new();
    if rows.count > 0 {
        for column in part.read_columns() {
            found.insert(column, take_cell(&mut cells, part.selected(column)));
        }
    }
    Ok(found)
}

/// When a cell was written, and the seconds until it expires; 0: never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct When {
    pub(super) timestamp: i64,
    pub(super) ttl_s: i32,
}

/// One statement: the values of its kind, in order; `None`: unset, which changes nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Statement<'a> {
    pub(super) kind: Kind,
    /// `None`: the row has no cells, and its TTL is the default of the table.
    pub(super) when: Option<When>,
    pub(super) values: Vec<Option<Cow<'a, [u8]>>>,
}

/// Statements that the target executes atomically, in this order.
pub(super) type Unit<'a> = Vec<Statement<'a>>;

impl Statement<'_> {
    pub(super) fn timestamp(&self) -> i64 {
        self.when.map_or(UNKNOWN_TIMESTAMP, |when| when.timestamp)
    }
}

/// A part of a value that is one cell: for collections an item, with the length before it.
#[derive(Debug, Clone, Copy)]
struct Piece<'a> {
    when: When,
    slot: usize,
    bytes: &'a [u8],
}

/// The key of a row in messages.
pub(super) fn shown(keys: &[Option<&[u8]>]) -> String {
    let key = |key: Option<&[u8]>| match key {
        Some(bytes) => format!("0x{}", base::hex::hex(&bytes[..bytes.len().min(KEY_SHOWN_BYTES)])),
        None => "null".to_owned(),
    };
    keys.iter().copied().map(key).collect::<Vec<_>>().join(", ")
}

/// The statements that write a row. `current`: what the target has of it.
pub(super) fn statements<'a>(
    part: &Part,
    slots: &[Slot],
    row: &Row<'a>,
    current: &BTreeMap<usize, Cell<'_>>,
) -> Result<Vec<Unit<'a>>, Failure> {
    let found = try_statements(part, slots, row, current);
    let place = || format!("a row of {} ({})", part.name(), shown(&row.keys));
    found.map_err(|error| Failure::Final(error.context(place())))
}

fn try_statements<'a>(
    part: &Part,
    slots: &[Slot],
    row: &Row<'a>,
    current: &BTreeMap<usize, Cell<'_>>,
) -> anyhow::Result<Vec<Unit<'a>>> {
    if row.is_absent() {
        return Ok(Vec::new());
    }
    if part.has_counters() {
        return Ok(count(part, row, current)?.into_iter().map(|one| vec![one]).collect());
    }
    let mut pieces = Vec::new();
    for (number, slot) in slots.iter().enumerate() {
        // The fields of a type are taken together with the first one.
        if slot.field.unwrap_or(0) == 0 {
            take_pieces(part, *slot, number, row.cells[slot.column], &mut pieces)?;
        }
    }
    let mut lists = Vec::new();
    for (column, cell) in row.cells.iter().enumerate() {
        if part.values[column].shape == Shape::List {
            lists.push((column, runs(*cell)?));
        }
    }
    let all = pieces.iter().map(|piece| piece.when);
    let all = all.chain(lists.iter().flat_map(|(_, runs)| runs.iter().map(|run| run.when)));
    let of_row = of_insertion(all);
    let mut found = Vec::new();
    if is_one_insert(part, slots, &pieces, of_row) {
        let whole = |at: usize| row.cells[at].value.map(Cow::Borrowed);
        let values = part.inserted_columns().into_iter().map(whole).collect();
        found.push(statement(Kind::Insert, of_row, values));
    } else {
        if part.content == Content::Rows {
            let values = part.inserted_columns().iter().map(|_| None).collect();
            found.push(statement(Kind::Insert, of_row, values));
        }
        updates(part, slots, &pieces, &mut found);
    }
    let mut units: Vec<Unit<'a>> = found.into_iter().map(|one| vec![one]).collect();
    for (column, runs) in lists {
        let existing = current.get(&column).copied().unwrap_or_default();
        let unit = write_list(column, row.cells[column], &runs, existing)?;
        if !unit.is_empty() {
            units.push(unit);
        }
    }
    Ok(units)
}

/// Whether an INSERT with the times of the row writes all pieces. It is not used for values of
/// several cells: as a whole they would replace what clients have written to them.
fn is_one_insert(part: &Part, slots: &[Slot], pieces: &[Piece<'_>], of_row: Option<When>) -> bool {
    let is_whole = |slot: &Slot| part.values[slot.column].shape == Shape::Cell;
    !pieces.is_empty()
        && pieces.iter().all(|piece| Some(piece.when) == of_row && is_whole(&slots[piece.slot]))
}

fn statement(kind: Kind, when: Option<When>, values: Vec<Option<Cow<'_, [u8]>>>) -> Statement<'_> {
    Statement { kind, when, values }
}

/// No server reports when a row was inserted. It must not expire before its cells, and lose against
/// a deletion that is newer than they are.
fn of_insertion(all: impl Iterator<Item = When>) -> Option<When> {
    all.min_by_key(|when| {
        let lifetime = if when.ttl_s == 0 { i32::MAX } else { when.ttl_s };
        (std::cmp::Reverse(lifetime), when.timestamp)
    })
}

/// An UPDATE for each pair of timestamp and TTL.
fn updates<'a>(part: &Part, slots: &[Slot], pieces: &[Piece<'a>], found: &mut Vec<Statement<'a>>) {
    let mut groups: BTreeMap<When, BTreeMap<usize, Vec<&'a [u8]>>> = BTreeMap::new();
    for piece in pieces {
        groups.entry(piece.when).or_default().entry(piece.slot).or_default().push(piece.bytes);
    }
    for (when, group) in groups {
        let mut values = vec![None; slots.len()];
        for (slot, items) in group {
            values[slot] = Some(match part.values[slots[slot].column].shape {
                Shape::Set | Shape::Map => Cow::Owned(collection(&items)),
                _ => Cow::Borrowed(items[0]),
            });
        }
        found.push(statement(Kind::Update, Some(when), values));
    }
}

/// A collection of encoded items.
fn collection(items: &[&[u8]]) -> Vec<u8> {
    let count = i32::try_from(items.len()).expect("the items were counted by an i32");
    [&count.to_be_bytes()[..], &items.concat()].concat()
}

fn take_pieces<'a>(
    part: &Part,
    slot: Slot,
    number: usize,
    cell: Cell<'a>,
    pieces: &mut Vec<Piece<'a>>,
) -> anyhow::Result<()> {
    let Some(value) = cell.value else { return Ok(()) };
    let shape = &part.values[slot.column].shape;
    match shape {
        Shape::Set | Shape::Map => {
            let per_item = if *shape == Shape::Map { 2 } else { 1 };
            let items = items(value, per_item)?;
            let times = times(cell, items.len())?;
            for (bytes, when) in items.into_iter().zip(times) {
                pieces.push(Piece { when, slot: number, bytes });
            }
        }
        Shape::Fields(names) => {
            let mut reader = Reader::new(value);
            let mut fields = Vec::new();
            // Values from before a field was added end early.
            while !reader.rest().is_empty() {
                fields.push(reader.bytes()?);
            }
            ensure!(fields.len() <= names.len(), "a value has {} fields", fields.len());
            for (field, (bytes, when)) in field_times(cell, &fields)?.into_iter().enumerate() {
                if let (Some(bytes), Some(when)) = (bytes, when) {
                    pieces.push(Piece { when, slot: number + field, bytes });
                }
            }
        }
        _ => {
            let timestamp = number_of(cell.written)?;
            let ttl_s = cell.ttl.map_or(Ok(0), |bytes| ttl(Some(bytes)))?;
            pieces.push(Piece { when: When { timestamp, ttl_s }, slot: number, bytes: value });
        }
    }
    Ok(())
}

type FieldTimes<'a> = Vec<(Option<&'a [u8]>, Option<When>)>;

/// The fields with their times. The lists of times have an entry for each field, or for each field
/// that is not null.
fn field_times<'a>(cell: Cell<'a>, fields: &[Option<&'a [u8]>]) -> anyhow::Result<FieldTimes<'a>> {
    let written = numbers(cell.written)?;
    let ttls = cell.ttl.map_or(Ok(Vec::new()), |bytes| numbers(Some(bytes)))?;
    let present = fields.iter().flatten().count();
    let is_sparse = written.len() == present && present < fields.len();
    ensure!(is_sparse || written.len() >= fields.len(), "a field has no time");
    let mut at = 0;
    let mut found = Vec::with_capacity(fields.len());
    for field in fields {
        if is_sparse && field.is_none() {
            found.push((None, None));
            continue;
        }
        let when = match (field, written[at]) {
            (Some(_), Some(bytes)) => {
                let ttl_s = ttl(ttls.get(at).copied().flatten())?;
                Some(When { timestamp: number(Some(bytes)).context("malformed time")?, ttl_s })
            }
            (Some(_), None) => anyhow::bail!("a field has no time"),
            (None, _) => None,
        };
        found.push((*field, when));
        at += 1;
    }
    Ok(found)
}

/// The times of the items of a collection.
fn times(cell: Cell<'_>, count: usize) -> anyhow::Result<Vec<When>> {
    let written = numbers(cell.written)?;
    let ttls = cell.ttl.map_or(Ok(Vec::new()), |bytes| numbers(Some(bytes)))?;
    ensure!(written.len() == count, "a collection has {count} items, {} times", written.len());
    let mut found = Vec::with_capacity(count);
    for (at, written) in written.into_iter().enumerate() {
        let timestamp = number_of(written)?;
        found.push(When { timestamp, ttl_s: ttl(ttls.get(at).copied().flatten())? });
    }
    Ok(found)
}

fn number_of(bytes: Option<&[u8]>) -> anyhow::Result<i64> {
    number(bytes).context("a cell has no time")
}

fn number(bytes: Option<&[u8]>) -> Option<i64> {
    Some(i64::from_be_bytes(bytes?.try_into().ok()?))
}

fn ttl(bytes: Option<&[u8]>) -> anyhow::Result<i32> {
    let Some(bytes) = bytes else { return Ok(0) };
    let bytes = bytes.try_into().context("malformed TTL")?;
    // A cell that has less than a second is not one that never expires.
    Ok(i32::from_be_bytes(bytes).max(1))
}

/// The encoded items of a collection, each with its length before it; those of a map have a key, too.
fn items(value: &[u8], per_item: usize) -> anyhow::Result<Vec<&[u8]>> {
    let mut reader = Reader::new(value);
    let count = reader.int().context("malformed collection")?;
    let mut found = Vec::new();
    for _ in 0..count {
        let before = reader.rest();
        for _ in 0..per_item {
            reader.bytes().context("malformed collection")?;
        }
        found.push(&before[..before.len() - reader.rest().len()]);
    }
    reader.finish().context("malformed collection")?;
    Ok(found)
}

fn numbers(list: Option<&[u8]>) -> anyhow::Result<Vec<Option<&[u8]>>> {
    let mut reader = Reader::new(list.context("a collection has no times")?);
    let count = reader.int().context("malformed times")?;
    let mut found = Vec::new();
    for _ in 0..count {
        found.push(reader.bytes().context("malformed times")?);
    }
    Ok(found)
}

/// Consecutive items of a list that were written at the same time.
#[derive(Debug)]
struct Run<'a> {
    when: When,
    items: Vec<&'a [u8]>,
}

fn runs(cell: Cell<'_>) -> anyhow::Result<Vec<Run<'_>>> {
    let Some(value) = cell.value else { return Ok(Vec::new()) };
    let items = items(value, 1)?;
    let times = times(cell, items.len())?;
    let mut runs: Vec<Run<'_>> = Vec::new();
    for (item, when) in items.into_iter().zip(times) {
        match runs.last_mut() {
            Some(run) if run.when == when => run.items.push(item),
            _ => runs.push(Run { when, items: vec![item] }),
        }
    }
    Ok(runs)
}

/// Writes a list, unless the target has it already, or has items that are as new. Its statements are
/// one unit: the rest of a list that was written in part would look like a change by clients.
fn write_list<'a>(
    column: usize,
    wanted: Cell<'a>,
    runs: &[Run<'a>],
    existing: Cell<'_>,
) -> anyhow::Result<Unit<'a>> {
    let is_equal = existing.value == wanted.value && existing.written == wanted.written;
    let mut found = Unit::new();
    let Some(newest) = runs.iter().map(|run| run.when.timestamp).max() else { return Ok(found) };
    if is_equal {
        return Ok(found);
    }
    let mut earliest = i64::MIN;
    if existing.value.is_some() {
        let written = numbers(existing.written)?.into_iter().map(number_of);
        let written = written.collect::<anyhow::Result<Vec<_>>>()?;
        let last = written.into_iter().max().context("a list without times")?;
        if last >= newest {
            return Ok(found);
        }
        // Items as old as the deletion would be deleted, too.
        earliest = last.saturating_add(1);
        let when = Some(When { timestamp: last, ttl_s: 0 });
        found.push(statement(Kind::Clear(column), when, Vec::new()));
    }
    for run in runs {
        let timestamp = run.when.timestamp.max(earliest);
        let when = Some(When { timestamp, ..run.when });
        let values = vec![Some(Cow::Owned(collection(&run.items)))];
        found.push(statement(Kind::Append(column), when, values));
    }
    Ok(found)
}

/// Adds the differences of the counters.
fn count<'a>(
    part: &Part,
    row: &Row<'a>,
    current: &BTreeMap<usize, Cell<'_>>,
) -> anyhow::Result<Option<Statement<'a>>> {
    let mut values = Vec::with_capacity(part.values.len());
    for (column, cell) in row.cells.iter().enumerate() {
        let existing = current.get(&column).and_then(|cell| cell.value);
        if cell.value.is_none() || cell.value == existing {
            values.push(None);
            continue;
        }
        let wanted = number(cell.value).context("malformed counter")?;
        let existing = existing.map_or(Ok(0), |bytes| number_of(Some(bytes)))?;
        let difference = wanted.wrapping_sub(existing).to_be_bytes().to_vec();
        values.push(Some(Cow::Owned(difference)));
    }
    if values.iter().all(Option::is_none) {
        return Ok(None);
    }
    Ok(Some(statement(Kind::Count, None, values)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::cassandra::table::tests::part;

    const OLD: i64 = 1000;
    const NEW: i64 = 2000;

    fn list(items: &[Option<&[u8]>]) -> Vec<u8> {
        let mut out = i32::try_from(items.len()).unwrap().to_be_bytes().to_vec();
        for item in items {
            match item {
                Some(item) => {
                    out.extend(i32::try_from(item.len()).unwrap().to_be_bytes());
                    out.extend(*item);
                }
                None => out.extend((-1_i32).to_be_bytes()),
            }
        }
        out
    }

    fn times(times: &[i64]) -> Vec<u8> {
        let times: Vec<_> = times.iter().map(|time| time.to_be_bytes()).collect();
        list(&times.iter().map(|time| Some(&time[..])).collect::<Vec<_>>())
    }

    fn planned(part: &Part, cells: Vec<Cell<'_>>, current: &[Cell<'_>]) -> Vec<String> {
        let row = Row { token: 0, keys: vec![Some(b"k")], cells };
        let current = part.read_columns().into_iter().zip(current.iter().copied()).collect();
        let found = statements(part, &part.slots(), &row, &current).unwrap();
        let value = |value: &Option<Cow<'_, [u8]>>| match value {
            Some(bytes) => bytes.escape_ascii().to_string().replace("\\x00", ""),
            None => "-".to_owned(),
        };
        let shown = |statement: &Statement<'_>| {
            let Statement { kind, when, values } = statement;
            let when = when
                .map_or("unknown".to_owned(), |when| format!("{} {}", when.timestamp, when.ttl_s));
            let values: Vec<String> = values.iter().map(value).collect();
            format!("{kind:?} {when} [{}]", values.join(" "))
        };
        let unit = |unit: &Unit<'_>| unit.iter().map(shown).collect::<Vec<_>>().join(", ");
        found.iter().map(unit).collect()
    }

    #[track_caller]
    fn check(part: &Part, cells: Vec<Cell<'_>>, current: &[Cell<'_>], expected: &[&str]) {
        assert_eq!(planned(part, cells, current), expected);
    }

    fn cell<'a>(value: &'a [u8], written: &'a [u8]) -> Cell<'a> {
        Cell { value: Some(value), written: Some(written), ttl: None }
    }

    #[test]
    fn cells_of_one_time_are_one_insert() {
        let part = part(&["k"], &[("a", Shape::Cell), ("b", Shape::Set), ("c", Shape::Cell)]);
        let (old, set, set_times) =
            (OLD.to_be_bytes(), list(&[Some(b"x"), Some(b"y")]), times(&[OLD, OLD]));
        let (whole, set) = (cell(b"v", &old), cell(&set, &set_times));
        let expected = ["Insert 1000 0 [v - v]"];
        check(&part, vec![whole, Cell::default(), whole], &[], &expected);
        // A whole set would replace the items that the target has.
        let expected = ["Insert 1000 0 [- - -]", "Update 1000 0 [v \\x02\\x01x\\x01y -]"];
        check(&part, vec![whole, set, Cell::default()], &[], &expected);
        check(&part, vec![Cell::default(); 3], &[], &["Insert unknown [- - -]"]);
        let empty = ["Insert 1000 0 [ - -]"];
        check(&part, vec![cell(b"", &old), Cell::default(), Cell::default()], &[], &empty);
    }

    #[test]
    fn cells_of_several_times_are_updates() {
        let fields = Shape::Fields(vec!["x".to_owned(), "y".to_owned()]);
        let part = part(&["k"], &[("a", Shape::Cell), ("m", Shape::Map), ("u", fields)]);
        let old = OLD.to_be_bytes();
        let map = list(&[Some(b"a"), Some(b"1"), Some(b"b"), Some(b"2")]);
        let map = [&2_i32.to_be_bytes()[..], &map[4..]].concat();
        let map_times = times(&[OLD, NEW]);
        let ttls = list(&[None, Some(&60_i32.to_be_bytes())]);
        let map = Cell { ttl: Some(&ttls), ..cell(&map, &map_times) };
        let user = &list(&[None, Some(b"f")])[4..];
        let new = NEW.to_be_bytes();
        for user_times in [list(&[None, Some(&new)]), times(&[NEW])] {
            check(
                &part,
                vec![cell(b"v", &old), map, cell(user, &user_times)],
                &[],
                &[
                    "Insert 1000 0 [- - -]",
                    "Update 1000 0 [v \\x01\\x01a\\x011 - -]",
                    "Update 2000 0 [- - - f]",
                    "Update 2000 60 [- \\x01\\x01b\\x012 - -]",
                ],
            );
        }
    }

    #[test]
    fn a_row_expires_with_its_last_cell() {
        let part = part(&["k"], &[("a", Shape::Cell), ("b", Shape::Cell)]);
        let (old, short, long) = (OLD.to_be_bytes(), 5_i32.to_be_bytes(), 60_i32.to_be_bytes());
        let with = |ttl| Cell { ttl: Some(ttl), ..cell(b"v", &old) };
        let expected = ["Insert 1000 60 [- -]", "Update 1000 5 [v -]", "Update 1000 60 [- v]"];
        check(&part, vec![with(&short), with(&long)], &[], &expected);
    }

    #[test]
    fn a_row_expires_with_its_list() {
        let part = part(&["k"], &[("a", Shape::Cell), ("l", Shape::List)]);
        let (old, short) = (OLD.to_be_bytes(), 5_i32.to_be_bytes());
        let short = Cell { ttl: Some(&short), ..cell(b"v", &old) };
        let (value, written) = (list(&[Some(b"a")]), times(&[NEW]));
        let expected = ["Insert 2000 0 [-]", "Update 1000 5 [v]", "Append(1) 2000 0 [\\x01\\x01a]"];
        check(&part, vec![short, cell(&value, &written)], &[], &expected);
    }

    #[test]
    fn static_lists_need_no_insert() {
        let mut part = part(&["k"], &[("l", Shape::List)]);
        part.content = Content::Statics;
        let (value, written) = (list(&[Some(b"a")]), times(&[OLD]));
        let expected = ["Append(0) 1000 0 [\\x01\\x01a]"];
        check(&part, vec![cell(&value, &written)], &[], &expected);
    }

    #[test]
    fn lists_are_written_once() {
        let part = part(&["k"], &[("l", Shape::List)]);
        let (value, written) =
            (list(&[Some(b"a"), Some(b"b"), Some(b"c")]), times(&[OLD, NEW, OLD]));
        let wanted = cell(&value, &written);
        // One unit: a crash leaves all of the list or nothing.
        let runs = [
            "Insert 1000 0 []",
            "Append(0) 1000 0 [\\x01\\x01a], Append(0) 2000 0 [\\x01\\x01b], \
             Append(0) 1000 0 [\\x01\\x01c]",
        ];
        check(&part, vec![wanted], &[], &runs);
        check(&part, vec![wanted], &[Cell::default()], &runs);
        check(&part, vec![wanted], &[wanted], &runs[..1]);
        // The target has an older state of it.
        let (value, written) = (list(&[Some(b"a")]), times(&[OLD]));
        let again = [
            "Insert 1000 0 []",
            "Clear(0) 1000 0 [], Append(0) 1001 0 [\\x01\\x01a], \
             Append(0) 2000 0 [\\x01\\x01b], Append(0) 1001 0 [\\x01\\x01c]",
        ];
        check(&part, vec![wanted], &[cell(&value, &written)], &again);
        // Clients have changed it in the target.
        let written = times(&[NEW]);
        check(&part, vec![wanted], &[cell(&value, &written)], &runs[..1]);
    }

    #[test]
    fn counters_are_raised_by_the_difference() {
        let part = part(&["k"], &[("n", Shape::Counter), ("m", Shape::Counter)]);
        let (seven, two) = (7_i64.to_be_bytes(), 2_i64.to_be_bytes());
        let counter = |bytes| Cell { value: Some(bytes), ..Cell::default() };
        let none = Cell::default();
        check(&part, vec![counter(&seven), none], &[], &["Count unknown [\\x07 -]"]);
        let expected = ["Count unknown [\\x05 -]"];
        check(&part, vec![counter(&seven), none], &[counter(&two), none], &expected);
        check(&part, vec![counter(&seven), none], &[counter(&seven), none], &[]);
    }

    #[test]
    fn malformed_values_are_refused() {
        let old = OLD.to_be_bytes();
        let set = list(&[Some(b"x")]);
        let pair = list(&[Some(b"x"), Some(b"y")]);
        let fields = Shape::Fields(vec!["x".to_owned()]);
        let huge = [0x7f, 0xff, 0xff, 0xff];
        for (shape, cell, expected) in [
            (Shape::Set, cell(&set[..6], &times(&[OLD])), "malformed collection"),
            (Shape::Set, cell(&huge, &times(&[OLD])), "malformed collection"),
            (Shape::Set, cell(&set, &times(&[OLD, NEW])), "a collection has 1 items, 2 times"),
            (Shape::List, cell(&set, &huge), "malformed times"),
            (Shape::Cell, cell(&set, &old[..7]), "a cell has no time"),
            (fields, cell(&pair[4..], &times(&[OLD])), "a value has 2 fields"),
        ] {
            let part = part(&["k"], &[("c", shape)]);
            let row = Row { token: 0, keys: vec![Some(b"k")], cells: vec![cell] };
            let found = statements(&part, &part.slots(), &row, &BTreeMap::new());
            let text = format!("{:#}", found.unwrap_err().into_error());
            assert!(text.contains(expected), "{text}");
        }
    }
}
