use std::sync::Arc;

use base::time::{MonoNs, UnixMs};
use binlog::{FaultDisk, Log, Scope};
use store::{Change, End, Items, Key, Mutation};

use super::*;

#[track_caller]
fn check(change: Change<'_>, expected: &str) {
    let key = Key { bytes: b"k\n", hash: 0 };
    let found = EVENT.describe(&Mutation::Key { db: 3, key, change }, &Names::default());
    let mut expected: Value = serde_json::from_str(expected).unwrap();
    expected["database"] = 3.into();
    expected["key"] = "k\n".into();
    assert_eq!(found, expected);
    let mut out = Vec::new();
    put_event(&mut out, "change", Some(Lsn(7)), &found);
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.lines().count(), 4, "one line of data, whatever is in it: {text}");
    assert!(text.starts_with("event: change\nid: 7\ndata: {"), "{text}");
}

#[test]
fn changes_are_described_as_json() {
    check(
        Change::Set { value: b"v", expiry: Some(UnixMs(5)) },
        r#"{"change":"set","value":"v","expires_ms":5}"#,
    );
    check(
        Change::Edit { offset: 2, bytes: b"\xff" },
        r#"{"change":"edit","offset":2,"value":{"base64":"/w=="}}"#,
    );
    check(Change::Delete, r#"{"change":"delete"}"#);
    check(
        Change::HashUpdate { pairs: Items::Slice(&[b"f", b"v"]) },
        r#"{"change":"hash-update","pairs":["f","v"]}"#,
    );
    check(
        Change::HashExpire { at: Some(UnixMs(5)), fields: Items::Slice(&[b"f"]) },
        r#"{"change":"hash-expire","expires_ms":5,"fields":["f"]}"#,
    );
    let long = vec![b'x'; EVENT.value_bytes + 1];
    check(
        Change::ListPush { end: End::Back, values: Items::Slice(&[b"a", &long]) },
        r#"{"change":"list-push","end":"back","values":["a",{"bytes":65537}]}"#,
    );
    check(
        Change::ZSetAdd { members: store::Scored::Slice(&[(f64::INFINITY, b"m")]) },
        r#"{"change":"zset-add","count":1,"members":[["inf","m"]]}"#,
    );
    let long = vec![b'x'; EVENT.value_bytes];
    check(
        Change::SetAdd { members: Items::Slice(&[&long[..]; 20]) },
        r#"{"change":"set-add","members":{"count":20}}"#,
    );
    let many = vec![&b"x"[..]; EVENT.items + 1];
    check(
        Change::SetAdd { members: Items::Slice(&many) },
        r#"{"change":"set-add","members":{"count":1025}}"#,
    );
}

/// A replica logs its position as a record without changes.
#[test]
fn a_record_without_changes_makes_no_event() {
    let disk = Arc::new(FaultDisk::new(1));
    let options = binlog::Options::default();
    let log = Log::open(disk, options, 1, Lsn(0), &mut |_| Ok(())).unwrap().0;
    let key = Key { bytes: b"k", hash: 0 };
    let mut change = Vec::new();
    Mutation::Key { db: 0, key, change: Change::Delete }.encode(&mut change);
    for (position, mutations) in [(9, &[][..]), (10, &change[..]), (11, &[][..])] {
        let mut payload = mutations.to_vec();
        let kind = records::finish(None, Some(position), &mut payload);
        let end = log.append(0, kind, &payload).unwrap();
        log.request_sync(end);
    }
    log.writer_step(&|| MonoNs(1));
    let mut follower = log.follow(Lsn(0), Scope::Durable).unwrap();
    let mut batch = Batch::new();
    assert!(follower.next_batch(&mut batch).unwrap());
    assert_eq!(batch.records().count(), 3);
    let text = String::from_utf8(encode(&batch, false)).unwrap();
    assert_eq!(text.matches("event: change").count(), 1, "{text}");
}

/// The size of an event is bounded, and it reports the number of omitted changes.
#[test]
fn an_event_omits_changes_above_its_limit() {
    const CHANGES: usize = 40;
    let value = vec![b'x'; EVENT.value_bytes];
    let key = Key { bytes: b"k", hash: 0 };
    let change = Change::Set { value: &value, expiry: None };
    let mut encoded = Vec::new();
    for _ in 0..CHANGES {
        Mutation::Key { db: 0, key, change }.encode(&mut encoded);
    }
    let mut out = Vec::new();
    EVENT.put_changes(&encoded, Hidden::Nothing, &Names::default(), &mut out);
    assert!(out.len() < EVENT.record_bytes + 2 * EVENT.value_bytes, "{}", out.len());
    let text = format!("{{{}}}", String::from_utf8(out).unwrap());
    let event: Value = serde_json::from_str(&text).unwrap();
    let change_count = event["changes"].as_array().unwrap().len();
    assert_eq!(event["omitted"], CHANGES - change_count);
    assert_eq!(change_count, EVENT.record_bytes / EVENT.value_bytes);
}

#[test]
fn writes_to_partitions_are_described_as_json() {
    use store::{CellValue, Expiry, PartitionKey, RowKey, Stamp, TableId, Write, Writes};

    let describe = |limits: Limits, writes: &[Write<'_>]| {
        let key = PartitionKey { table: TableId(1), token: -1, bytes: b"\xffk" };
        let mutation = Mutation::Partition { key, writes: Writes::Slice(writes) };
        limits.describe(&mutation, &Names::default())
    };
    let stamp = Stamp { timestamp: i64::MAX, at: 9 };
    let row = RowKey::Clustering(b"r");
    let live = |bytes| CellValue::Live { bytes, expiry: Some(Expiry { at: 7, ttl: 5 }) };
    let cell = |row, item, value| Write::Cell { row, column: 3, item, timestamp: 4, value };
    let found = describe(
        EVENT,
        &[
            Write::DeletePartition(stamp),
            Write::DeleteRange { start: b"a", end: Some(b"b"), stamp },
            Write::DeleteRange { start: b"a", end: None, stamp },
            Write::DeleteRow { row: b"r", stamp },
            Write::InsertRow { row: b"\xfe", timestamp: 4, expiry: None },
            Write::DeleteItems { row: RowKey::Static, column: 2, stamp },
            cell(row, Some(b"i"), live(b"\xff\0")),
            cell(RowKey::Static, None, CellValue::Deleted { at: 8 }),
        ],
    );
    let big = i64::MAX.to_string();
    let expected = json!({
        "change": "partition",
        "table": "00000000-0000-0000-0000-000000000001",
        "token": "-1",
        "key": { "base64": "/2s=" },
        "writes": [
            { "write": "delete-partition", "timestamp": big, "deleted_s": 9 },
            { "write": "delete-range", "start": "a", "end": "b", "timestamp": big, "deleted_s": 9 },
            { "write": "delete-range", "start": "a", "end": null, "timestamp": big, "deleted_s": 9 },
            { "write": "delete-row", "row": "r", "timestamp": big, "deleted_s": 9 },
            {
                "write": "insert-row", "row": { "base64": "/g==" }, "timestamp": "4",
                "expires_s": null, "ttl_s": null,
            },
            {
                "write": "delete-items", "row": null, "column": 2, "timestamp": big,
                "deleted_s": 9,
            },
            {
                "write": "cell", "row": "r", "column": 3, "item": "i",
                "value": { "base64": "/wA=" }, "timestamp": "4", "expires_s": 7, "ttl_s": 5,
            },
            {
                "write": "delete-cell", "row": null, "column": 3, "item": null,
                "timestamp": "4", "deleted_s": 8,
            },
        ],
    });
    assert_eq!(found, expected);

    // Values in events are limited, those of the tools are complete.
    let long = vec![b'x'; EVENT.value_bytes + 1];
    let one = [cell(row, None, live(&long))];
    assert_eq!(describe(EVENT, &one)["writes"][0]["value"], json!({ "bytes": long.len() }));
    let complete = String::from_utf8(long.clone()).unwrap();
    assert_eq!(describe(Limits::NONE, &one)["writes"][0]["value"], complete);
    let many = vec![Write::DeleteRow { row: b"r", stamp }; EVENT.items + 1];
    assert_eq!(describe(EVENT, &many)["writes"], json!({ "count": many.len() }));
    assert_eq!(describe(Limits::NONE, &many)["writes"].as_array().unwrap().len(), many.len());
    let large = vec![cell(row, None, live(&long[1..])); 17];
    assert_eq!(describe(EVENT, &large)["writes"], json!({ "count": 17 }));
}

/// A value that replaces a key is the payload of RESTORE, or the points of a time series.
#[test]
fn replaced_values_are_complete() {
    use base64::Engine as _;
    use store::{Elements, Kind};

    let long = vec![0xff_u8; 1 << 20];
    let mut encoded = Vec::new();
    Elements::List(Items::Slice(&[&long, b"b"])).encode(&mut encoded);
    let put = Change::Put { kind: Kind::List, encoded: &encoded, expiry: None };
    let mutation = Mutation::Key { db: 0, key: Key { bytes: b"k", hash: 0 }, change: put };
    let found = Limits::NONE.describe(&mutation, &Names::default());
    let payload = found["value"]["restore"]["base64"].as_str().unwrap();
    let payload = base64::engine::general_purpose::STANDARD.decode(payload).unwrap();
    let value = wire::rdb::decode_payload(&payload, wire::rdb::Limits::NONE).unwrap();
    let wire::rdb::Value::List(items) = value else { panic!("{value:?}") };
    assert_eq!(items.iter().collect::<Vec<_>>(), [&long[..], b"b"]);
    assert_eq!(
        EVENT.describe(&mutation, &Names::default())["value"],
        json!({ "bytes": encoded.len() })
    );
}

/// With the schema, writes name their table and columns, and the parts of a row are values.
#[test]
fn writes_are_named_by_the_schema() {
    use store::{PartitionKey, Stamp, TableId, Write, Writes};

    let catalog = cql::schema::builtin();
    let table = cql::schema::builtin_table("system_schema", "columns");
    let mut row = Vec::new();
    for (column, part) in table.clustering().iter().zip(["t", "c"]) {
        cql::value::comparable::encode(part.as_bytes(), &column.column_type, false, &mut row);
    }
    let number = table.column("kind").unwrap().number;
    let (stamp, row) = (Stamp { timestamp: 1, at: 1 }, store::RowKey::Clustering(&row));
    let writes = [Write::DeleteItems { row, column: number, stamp }];
    let key = PartitionKey { table: TableId(table.id.as_u128()), token: 1, bytes: b"ks" };
    let mutation = Mutation::Partition { key, writes: Writes::Slice(&writes) };
    let found = Limits::NONE.describe(&mutation, &Names::of(&catalog));
    assert_eq!(found["name"], "system_schema.columns");
    let write = &found["writes"][0];
    assert_eq!(write["column_name"], "kind");
    assert_eq!(write["clustering"], json!({ "table_name": "t", "column_name": "c" }));
}
