//! Partitions against naive models.

use super::*;
use proptest::prelude::*;

const NOW: Seconds = 100;

fn live(bytes: &[u8]) -> CellValue<'_> {
    CellValue::Live { bytes, expiry: None }
}

fn cell<'a>(row: &'a [u8], column: u32, timestamp: i64, value: CellValue<'a>) -> Write<'a> {
    Write::Cell { row: RowKey::Clustering(row), column, item: None, timestamp, value }
}

/// What a collection keeps of its size is what it has.
fn check_items(row: &super::row::Row) {
    for (_, column) in &row.columns {
        if let super::row::Column::Items(items) = column {
            assert_eq!(items.heap_bytes(), items.counted_bytes());
        }
    }
}

/// The correct value of the accounts: everything recounted.
fn counted_heap_bytes(partition: &Partition) -> usize {
    for (_, row) in partition.rows.iter() {
        check_items(row);
    }
    check_items(&partition.statics);
    let rows =
        partition.rows.iter().map(|(key, row)| allocation_bytes(key.len()) + row.heap_bytes());
    let ranges = partition.ranges.iter().map(Range::heap_bytes);
    let contents = rows.chain(ranges).sum::<usize>() + partition.statics.heap_bytes();
    contents + partition.rows.len() * partition.rows.slot_bytes()
}

fn stamp(timestamp: i64) -> Stamp {
    Stamp { timestamp, at: 50 }
}

fn partition(writes: &[Write<'_>]) -> Partition {
    let mut partition = Partition::new();
    for write in writes {
        partition.write(*write);
    }
    assert_eq!(partition.heap_bytes(), counted_heap_bytes(&partition));
    partition
}

/// A row's key, and its cells.
type Shown = (Vec<u8>, Vec<(u32, Vec<u8>)>);

fn shown(partition: &Partition, now: Seconds) -> Vec<Shown> {
    let rows = partition.rows(Bound::Unbounded, Bound::Unbounded, now);
    rows.map(|row| {
        let cells = row.cells().map(|cell| (cell.column, cell.bytes.to_vec()));
        (row.key.to_vec(), cells.collect())
    })
    .collect()
}

#[test]
fn the_last_write_wins_per_cell() {
    let found = partition(&[
        cell(b"r", 1, 5, live(b"new")),
        cell(b"r", 1, 4, live(b"old")),
        cell(b"r", 2, 4, live(b"other")),
    ]);
    let expected = vec![(1, b"new".to_vec()), (2, b"other".to_vec())];
    assert_eq!(shown(&found, NOW), [(b"r".to_vec(), expected)]);
}

#[test]
fn at_the_same_time_a_deletion_wins_and_then_the_larger_value() {
    let deleted = CellValue::Deleted { at: 50 };
    let expiry = Some(Expiry { at: 200, ttl: 100 });
    let expiring = CellValue::Live { bytes: b"a", expiry };
    for (first, second, expected) in [
        (live(b"a"), live(b"b"), Some(&b"b"[..])),
        (live(b"z"), deleted, None),
        (live(b"z"), expiring, Some(b"a")),
        (expiring, deleted, None),
    ] {
        for pair in [[first, second], [second, first]] {
            let found = partition(&pair.map(|value| cell(b"r", 1, 5, value)));
            let row = found.row(b"r", NOW);
            let shown = row.and_then(|row| row.column(1).next().map(|cell| cell.bytes));
            assert_eq!(shown, expected, "{pair:?}");
        }
    }
}

#[test]
fn a_row_lives_by_its_insertion_or_by_a_cell() {
    let insert = Write::InsertRow { row: b"r", timestamp: 5, expiry: None };
    let null = cell(b"r", 1, 5, CellValue::Deleted { at: 50 });
    assert_eq!(shown(&partition(&[insert, null]), NOW), [(b"r".to_vec(), vec![])]);
    assert_eq!(shown(&partition(&[null]), NOW), []);
    let expiring =
        Write::InsertRow { row: b"r", timestamp: 5, expiry: Some(Expiry { at: NOW + 1, ttl: 10 }) };
    assert!(partition(&[expiring]).row(b"r", NOW).is_some());
    assert!(partition(&[expiring]).row(b"r", NOW + 1).is_none());
}

#[test]
fn deletions_cover_what_is_older() {
    let rows = [cell(b"a", 1, 5, live(b"1")), cell(b"b", 1, 5, live(b"2"))];
    for (deletion, expected) in [
        (Write::DeletePartition(stamp(5)), vec![]),
        (Write::DeletePartition(stamp(4)), vec!["a", "b"]),
        (Write::DeleteRow { row: b"a", stamp: stamp(5) }, vec!["b"]),
        (Write::DeleteRange { start: b"b", end: None, stamp: stamp(9) }, vec!["a"]),
        (Write::DeleteRange { start: b"", end: Some(b"b"), stamp: stamp(9) }, vec!["b"]),
        (Write::DeleteRange { start: b"b", end: Some(b"a"), stamp: stamp(9) }, vec!["a", "b"]),
    ] {
        for writes in [[rows[0], rows[1], deletion], [deletion, rows[1], rows[0]]] {
            let found = shown(&partition(&writes), NOW);
            let keys: Vec<&[u8]> = found.iter().map(|(key, _)| &key[..]).collect();
            let expected: Vec<&[u8]> = expected.iter().map(|key| key.as_bytes()).collect();
            assert_eq!(keys, expected, "{deletion:?}");
        }
    }
}

#[test]
fn a_new_collection_replaces_the_items_of_the_old_one() {
    let item = |item: &'static [u8], timestamp| Write::Cell {
        row: RowKey::Static,
        column: 3,
        item: Some(item),
        timestamp,
        value: live(b"v"),
    };
    // A collection that is set as a whole deletes at one microsecond before.
    let deletion = Write::DeleteItems { row: RowKey::Static, column: 3, stamp: stamp(9) };
    let found = partition(&[item(b"old", 5), deletion, item(b"new", 10), item(b"late", 9)]);
    let row = found.statics(NOW);
    let items: Vec<&[u8]> = row.column(3).filter_map(|cell| cell.item).collect();
    assert_eq!(items, [b"new"]);
}

#[test]
fn a_purge_forgets_what_nobody_can_see() {
    let expiry = Some(Expiry { at: 60, ttl: 10 });
    let mut found = partition(&[
        cell(b"a", 1, 5, CellValue::Live { bytes: b"x", expiry }),
        cell(b"b", 1, 5, CellValue::Deleted { at: 50 }),
        Write::DeleteRange { start: b"c", end: None, stamp: stamp(5) },
        Write::InsertRow { row: b"d", timestamp: 7, expiry: None },
    ]);
    found.purge(NOW, 55);
    assert_eq!((found.len(), found.ranges.len()), (2, 0));
    // An expired cell still wins over what was written with it, until its grace period has ended
    // too.
    found.write(cell(b"a", 1, 5, live(b"y")));
    assert!(found.row(b"a", NOW).is_none());
    found.purge(NOW, 61);
    assert_eq!(shown(&found, NOW), [(b"d".to_vec(), vec![])]);
    found.write(Write::DeleteRow { row: b"d", stamp: stamp(7) });
    found.purge(NOW, 61);
    assert!(found.is_empty());
    assert_eq!(found.heap_bytes(), 0);
}

#[test]
fn rows_are_read_from_both_ends() {
    let found = partition(&[b"a", b"b", b"c"].map(|row| cell(row, 1, 5, live(b"v"))));
    let keys = |start, end| -> Vec<u8> {
        found.rows(start, end, NOW).rev().map(|row| row.key[0]).collect()
    };
    assert_eq!(keys(Bound::Excluded(b"a"), Bound::Unbounded), b"cb");
    assert_eq!(keys(Bound::Included(b"a"), Bound::Excluded(b"c")), b"ba");
    assert_eq!(keys(Bound::Excluded(b"b"), Bound::Excluded(b"b")), b"");
    assert_eq!(keys(Bound::Included(b"c"), Bound::Included(b"a")), b"");
}

/// Writes that own their bytes, few enough different ones to meet often.
fn writes() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let key = prop_oneof![Just(&b"a"[..]), Just(&b"b"[..]), Just(&b"c"[..])];
    let time = -2_i64..4;
    let at = 90_u32..110;
    let expiry =
        proptest::option::of((at.clone(), 0_u32..3).prop_map(|(at, ttl)| Expiry { at, ttl }));
    let value = prop_oneof![
        3 => (key.clone(), expiry.clone())
            .prop_map(|(bytes, expiry)| CellValue::Live { bytes, expiry }),
        1 => at.clone().prop_map(|at| CellValue::Deleted { at }),
    ];
    let stamps = (time.clone(), at).prop_map(|(timestamp, at)| Stamp { timestamp, at });
    let row = prop_oneof![1 => Just(RowKey::Static), 4 => key.clone().prop_map(RowKey::Clustering)];
    let write = prop_oneof![
        1 => stamps.clone().prop_map(Write::DeletePartition),
        2 => (key.clone(), proptest::option::of(key.clone()), stamps.clone())
            .prop_map(|(start, end, stamp)| Write::DeleteRange { start, end, stamp }),
        2 => (key.clone(), stamps.clone()).prop_map(|(row, stamp)| Write::DeleteRow { row, stamp }),
        2 => (key.clone(), time.clone(), expiry)
            .prop_map(|(row, timestamp, expiry)| Write::InsertRow { row, timestamp, expiry }),
        2 => (row.clone(), stamps)
            .prop_map(|(row, stamp)| Write::DeleteItems { row, column: 7, stamp }),
        8 => (row, proptest::option::of(key), time, value).prop_map(
            |(row, item, timestamp, value)| {
                // A column is plain or a collection.
                let column = if item.is_some() { 7 } else { 1 };
                Write::Cell { row, column, item, timestamp, value }
            }
        ),
    ];
    let encoded = write.prop_map(|write| {
        let mut out = Vec::new();
        write.encode(&mut out);
        out
    });
    proptest::collection::vec(encoded, 0..12)
}

fn applied<'a>(writes: impl Iterator<Item = &'a Vec<u8>>) -> Partition {
    let decoded: Vec<Write<'_>> =
        writes.map(|bytes| Write::decode(&mut &bytes[..]).unwrap()).collect();
    partition(&decoded)
}

proptest! {
    /// Any order, and any repetition, shows the same.
    #[test]
    fn writes_commute(writes in writes(), seed: u64) {
        let mut shuffled = [writes.clone(), writes.clone()].concat();
        let mut state = seed | 1;
        for at in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            shuffled.swap(at, (state >> 33) as usize % (at + 1));
        }
        let (one, other) = (applied(writes.iter()), applied(shuffled.iter()));
        for now in [0, NOW, 200] {
            prop_assert_eq!(shown(&one, now), shown(&other, now));
            let statics = |of: &Partition| {
                of.statics(now).cells().map(|c| (c.column, c.bytes.to_vec())).collect::<Vec<_>>()
            };
            prop_assert_eq!(statics(&one), statics(&other));
        }
    }

    #[test]
    fn a_partition_comes_back_from_its_bytes(writes in writes()) {
        let one = applied(writes.iter());
        let mut bytes = Vec::new();
        one.encode(&mut bytes);
        let mut input = &bytes[..];
        prop_assert_eq!(Partition::decode(&mut input), Ok(one));
        prop_assert!(input.is_empty());
        for cut in 0..bytes.len() {
            prop_assert_eq!(Partition::decode(&mut &bytes[..cut]), Err(Malformed));
        }
    }

    /// What a purge forgets was not to be seen, and the rest stays.
    #[test]
    fn a_purge_changes_nothing_that_is_shown(writes in writes(), gc_before in 80_u32..=NOW) {
        let one = applied(writes.iter());
        let mut purged = one.clone();
        purged.purge(NOW, gc_before);
        prop_assert_eq!(shown(&one, NOW), shown(&purged, NOW));
        prop_assert_eq!(purged.heap_bytes(), counted_heap_bytes(&purged));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
        if let Ok(found) = Partition::decode(&mut &bytes[..]) {
            let mut again = Vec::new();
            found.encode(&mut again);
            prop_assert_eq!(Partition::decode(&mut &again[..]), Ok(found));
        }
    }
}
