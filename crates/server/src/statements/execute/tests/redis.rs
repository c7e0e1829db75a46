//! Keyspace `redis`: the same values through both protocols.

use std::collections::BTreeMap;

use proptest::prelude::*;
use wire::cql::{BatchKind, Value};

use super::harness::{Asked, Server};

fn server(script: &str) -> Server {
    let mut server = Server::new();
    server.client.keyspace = Some("redis".to_owned());
    server.check(script);
    server
}

#[test]
fn values_of_all_types_are_rows() {
    server(
        "
        # SET s one
        +OK
        # HSET h f 1 g 2
        :2
        # SADD e b a
        :2
        # SADD numbers 2 1
        :2
        # ZADD z 1.5 m -2 n
        :2
        # RPUSH l x y x
        :3
        > SELECT blobAsText(key), blobAsText(value) FROM strings
        s | one
        > SELECT blobAsText(field), blobAsText(value) FROM hashes WHERE key = 0x68
        f | 1
        g | 2
        > SELECT blobAsText(value) FROM hashes WHERE key = 0x68 AND field = 0x67
        2
        > SELECT blobAsText(member) FROM sets WHERE key = 0x65
        a
        b
        > SELECT blobAsText(member) FROM sets WHERE key = textAsBlob('numbers')
        1
        2
        > SELECT blobAsText(member), score FROM zsets WHERE key = 0x7a
        m | 1.5
        n | -2.0
        > SELECT \"index\", blobAsText(value) FROM lists WHERE key = 0x6c
        0 | x
        1 | y
        2 | x
        > SELECT blobAsText(value) FROM lists WHERE key = 0x6c AND \"index\" > 0 ORDER BY \"index\" DESC
        x
        y
        > SELECT count(*) FROM hashes
        2
        > SELECT blobAsText(key) FROM strings WHERE key IN (0x73, 0x68, 0x78)
        s
        > SELECT blobAsText(member) FROM zsets WHERE score > 0 ALLOW FILTERING
        m
        > SELECT token(key) FROM strings WHERE token(key) > 0
        8944441612295019587
        > SELECT token(key) FROM strings WHERE token(key) < 0
        > SELECT WRITETIME(value), TTL(value) FROM strings WHERE key = 0x73
        null | null
        ",
    );
}

#[test]
fn rows_are_written_as_values_of_all_types() {
    server(
        "
        > INSERT INTO strings (key, value) VALUES (0x73, 0x31)
        # GET s
        $1 1
        > UPDATE strings SET value = 0x32 WHERE key = 0x73
        # GET s
        $1 2
        > INSERT INTO hashes (key, field, value) VALUES (0x68, 0x66, 0x31)
        > UPDATE hashes SET value = 0x32 WHERE key = 0x68 AND field IN (0x66, 0x67)
        # HGETALL h
        *4 $1 f $1 2 $1 g $1 2
        > INSERT INTO sets (key, member) VALUES (0x65, 0x37)
        # SMEMBERS e
        *1 $1 7
        > INSERT INTO zsets (key, member, score) VALUES (0x7a, 0x6d, 1.5)
        > INSERT INTO zsets (key, member, score) VALUES (0x7a, 0x6e, -1)
        # ZRANGE z 0 -1 WITHSCORES
        *4 $1 n $2 -1 $1 m $3 1.5
        > INSERT INTO lists (key, \"index\", value) VALUES (0x6c, 0, 0x61)
        > INSERT INTO lists (key, \"index\", value) VALUES (0x6c, 1, 0x62)
        > UPDATE lists SET value = 0x63 WHERE key = 0x6c AND \"index\" IN (0, 2)
        # LRANGE l 0 -1
        *3 $1 c $1 b $1 c
        > INSERT INTO sets JSON '{\"key\": \"0x65\", \"member\": \"0x38\"}'
        # SCARD e
        :2
        > DELETE FROM lists WHERE key = 0x6c AND \"index\" = 1
        # LRANGE l 0 -1
        *2 $1 c $1 c
        > DELETE FROM hashes WHERE key = 0x68 AND field > 0x66
        # HKEYS h
        *1 $1 f
        > DELETE value FROM hashes WHERE key = 0x68 AND field = 0x66
        # EXISTS h
        :0
        > DELETE FROM zsets WHERE key = 0x7a AND member = 0x6d
        # ZCARD z
        :1
        > DELETE FROM sets WHERE key IN (0x65, 0x66)
        > DELETE FROM strings WHERE key = 0x73
        # DBSIZE
        :2
        ",
    );
}

#[test]
fn points_of_time_series_are_rows() {
    server(
        "
        # TSADD t 5 five -3 minus 1 one
        +OK
        > SELECT time, blobAsText(value) FROM series WHERE key = 0x74
        -3 | minus
        1 | one
        5 | five
        > SELECT time FROM series WHERE key = 0x74 AND time > -3 ORDER BY time DESC
        5
        1
        > SELECT blobAsText(value) FROM series WHERE key = 0x74 AND time IN (1, 2)
        one
        > SELECT DISTINCT blobAsText(key) FROM series
        t
        > INSERT INTO series (key, time, value) VALUES (0x74, 6, 0x78)
        > INSERT INTO series (key, time, value) VALUES (0x74, 7, 0x79) USING TTL 100
        > UPDATE series SET value = 0x7a WHERE key = 0x74 AND time = 5
        # TSLASTN t 3
        *6 $1 5 $1 z $1 6 $1 x $1 7 $1 y
        # TTL t
        :-1
        > DELETE FROM series WHERE key = 0x74 AND time < 6
        # TSLASTN t 3
        *4 $1 6 $1 x $1 7 $1 y
        > DELETE FROM series WHERE key = 0x74 AND time IN (6, 7, 8)
        # EXISTS t
        :0
        # SET t v
        +OK
        > INSERT INTO series (key, time, value) VALUES (0x74, 6, 0x78)
        ! Operation against a key holding the wrong kind of value: it is a string, and no row of redis.series
        ",
    );
}

#[test]
fn invalid_writes_are_refused_and_change_nothing() {
    server(
        "
        # SADD e a
        :1
        # RPUSH l a
        :1
        > INSERT INTO strings (key, value) VALUES (0x65, 0x31)
        ! Operation against a key holding the wrong kind of value: it is a set, and no row of redis.strings
        > DELETE FROM strings WHERE key = 0x65
        > UPDATE lists SET value = 0x31 WHERE key = 0x6c AND \"index\" IN (0, 2)
        ! List index 2 out of bound, list has size 1
        > UPDATE lists SET value = 0x31 WHERE key = 0x6c AND \"index\" = -1
        ! List index -1 out of bound, list has size 1
        > UPDATE lists SET value = 0x31 WHERE key IN (0x6c, 0x6d) AND \"index\" = 1
        ! List index 1 out of bound, list has size 0
        > INSERT INTO strings (key) VALUES (0x70)
        ! Missing mandatory value for column value
        > INSERT INTO strings (key, value) VALUES (0x70, null)
        ! Missing mandatory value for column value
        > INSERT INTO zsets (key, member, score) VALUES (0x7a, 0x6d, NaN)
        ! A score of redis.zsets must be a number
        > INSERT INTO strings (key, value) VALUES (0x70, 'x')
        ! Invalid STRING constant (x) for \"value\" of type blob
        > INSERT INTO strings (key, value) VALUES (0x70, 0x31) USING TIMESTAMP 5
        ! Cannot provide custom timestamp for tables of keyspace redis
        > TRUNCATE strings
        ! Truncation is not supported by table redis.strings
        # LRANGE l 0 -1
        *1 $1 a
        # DBSIZE
        :2
        ",
    );
}

#[test]
fn strings_of_every_length_are_deleted() {
    let removals = [
        "DELETE FROM strings WHERE key = 0x73",
        "DELETE FROM strings WHERE key = 0x73 IF EXISTS",
        "DELETE value FROM strings WHERE key = 0x73",
        "UPDATE strings SET value = null WHERE key = 0x73",
        "DELETE FROM strings WHERE key IN (0x73, 0x74)",
    ];
    let mut server = server("");
    for length in [0, 1, 2, 5, 300, 60_000] {
        let value = "v".repeat(length);
        for removal in removals {
            for in_batch in [false, true] {
                assert_eq!(server.resp(&format!("SET s \"{value}\"")), "+OK");
                if in_batch {
                    server.batch(BatchKind::Logged, &[(removal, &[])]).unwrap();
                } else {
                    server.run(removal).unwrap();
                }
                assert_eq!(server.resp("EXISTS s"), ":0", "{removal}, {length} bytes");
            }
        }
    }
    server.resp("SET s hello");
    let mut server = server.restart();
    server.run("DELETE FROM strings WHERE key = 0x73").unwrap();
    assert_eq!(server.restart().resp("DBSIZE"), ":0");
}

#[test]
fn a_row_expires_with_its_field() {
    let mut server = server(
        r#"
        # HSET h a 1 b 2
        :2
        # HPEXPIRE h 50500 FIELDS 1 a
        *1 :1
        > SELECT field, TTL(value) FROM hashes WHERE key = 0x68
        "0x61" | 51
        "0x62" | null
        # EXPIRE h 20
        :1
        > SELECT field, TTL(value) FROM hashes WHERE key = 0x68
        "0x61" | 20
        "0x62" | 20
        # EXPIRE h 100
        :1
        > SELECT field, TTL(value) FROM hashes WHERE key = 0x68
        "0x61" | 51
        "0x62" | 100
        > SELECT TTL(value) FROM hashes WHERE key = 0x68 AND field = 0x61
        51
        "#,
    );
    server.pass_seconds(60);
    server.check(
        r#"
        > SELECT * FROM hashes
        "0x68" | "0x62" | "0x32"
        > SELECT DISTINCT key FROM hashes
        "0x68"
        > SELECT * FROM hashes WHERE key = 0x68 AND field = 0x61
        > INSERT INTO hashes (key, field, value) VALUES (0x68, 0x61, 0x33) IF NOT EXISTS
        true
        # HTTL h FIELDS 2 a b
        *2 :-1 :-1
        # HEXPIRE h 10 FIELDS 1 a
        *1 :1
        > UPDATE hashes SET value = 0x34 WHERE key = 0x68 AND field = 0x61
        # HTTL h FIELDS 1 a
        *1 :-1
        # HEXPIRE h 10 FIELDS 2 a b
        *2 :1 :1
        "#,
    );
    server.pass_seconds(15);
    server.check(
        r"
        > SELECT * FROM hashes
        > INSERT INTO hashes (key, field, value) VALUES (0x68, 0x62, 0x35)
        # HGETALL h
        *2 $1 b $1 5
        # HTTL h FIELDS 1 b
        *1 :-1
        # TTL h
        :-1
        ",
    );
}

#[test]
fn a_row_expires_with_its_key() {
    let mut server = server(
        "
        > INSERT INTO strings (key, value) VALUES (0x73, 0x31) USING TTL 100
        # TTL s
        :100
        # HSET h f 1
        :1
        # PEXPIRE h 50500
        :1
        > SELECT TTL(value) FROM hashes WHERE key = 0x68
        51
        > UPDATE hashes USING TTL 200 SET value = 0x32 WHERE key = 0x68 AND field = 0x67
        # TTL h
        :200
        > UPDATE hashes SET value = 0x32 WHERE key = 0x68 AND field = 0x67
        # TTL h
        :200
        > SELECT TTL(value) FROM strings
        100
        ",
    );
    // Within a second, the reported TTL of a key does not exceed the requested one.
    server.pass_ms(700);
    server.check(
        "
        # EXPIRE h 200
        :1
        > SELECT TTL(value) FROM hashes WHERE key = 0x68 AND field = 0x67
        200
        ",
    );
    server.pass_seconds(150);
    server.check(
        "
        > SELECT * FROM strings
        > SELECT count(*) FROM hashes
        2
        > INSERT INTO strings (key, value) VALUES (0x73, 0x33) IF NOT EXISTS
        true
        # TTL s
        :-1
        ",
    );
    server.pass_seconds(100);
    server.check(
        "
        > INSERT INTO sets (key, member) VALUES (0x68, 0x6d)
        # TYPE h
        +set
        ",
    );
    let mut server = server.restart();
    server.check(
        "
        # TYPE h
        +set
        > SELECT blobAsText(value) FROM strings
        3
        ",
    );
}

#[test]
fn conditions_are_evaluated_on_values() {
    server(
        "
        # SET s 1
        +OK
        > UPDATE strings SET value = 0x32 WHERE key = 0x73 IF value = 0x31
        true
        > UPDATE strings SET value = 0x33 WHERE key = 0x73 IF value = 0x31
        false | \"0x32\"
        > INSERT INTO sets (key, member) VALUES (0x65, 0x61) IF NOT EXISTS
        true
        > INSERT INTO sets (key, member) VALUES (0x65, 0x61) IF NOT EXISTS
        false | \"0x65\" | \"0x61\"
        > DELETE FROM sets WHERE key = 0x65 AND member = 0x62 IF EXISTS
        false
        # GET s
        $1 2
        ",
    );
}

#[test]
fn batches_hold_values_and_rows_and_are_all_or_nothing() {
    let mut server = server(
        "
        > CREATE TABLE k.t (p int PRIMARY KEY, v int)
        # SET s old
        +OK
        # EXPIRE s 100
        :1
        ",
    );
    let append = "INSERT INTO lists (key, \"index\", value) VALUES (0x6c, ?, 0x61)";
    let (first, second) = (0_i32.to_be_bytes(), 1_i32.to_be_bytes());
    let appended = [(append, &[Value::Bytes(&first)][..]), (append, &[Value::Bytes(&second)][..])];
    let row = ("INSERT INTO k.t (p, v) VALUES (1, 1)", &[][..]);
    let set = ("UPDATE strings SET value = 0x32 WHERE key = 0x73", &[][..]);
    let wrong = ("INSERT INTO hashes (key, field, value) VALUES (0x6c, 0x61, 0x62)", &[][..]);
    let refused = [set, row, appended[0], wrong];
    server.batch(BatchKind::Logged, &refused).unwrap_err();
    server.check(
        "
        > SELECT * FROM k.t
        # KEYS *
        *1 $1 s
        # GET s
        $3 old
        # TTL s
        :100
        ",
    );
    server.batch(BatchKind::Logged, &[set, row, appended[0], appended[1]]).unwrap();
    let whole = "
        > SELECT * FROM k.t
        1 | 1
        # LRANGE l 0 -1
        *2 $1 a $1 a
        # GET s
        $1 2
        ";
    server.check(whole);
    server.restart().check(whole);
}

#[test]
fn writes_are_detected_by_watch() {
    server(
        "
        # SET s 1
        +OK
        # WATCH s
        +OK
        > UPDATE strings SET value = 0x32 WHERE key = 0x73
        # MULTI
        +OK
        # SET s 3
        +QUEUED
        # EXEC
        *-1
        # GET s
        $1 2
        ",
    );
}

#[test]
fn the_keyspace_is_in_the_schema_and_cannot_be_changed() {
    let mut server = Server::new();
    for statement in
        ["DROP KEYSPACE redis", "DROP TABLE redis.sets", "CREATE TABLE redis.t (p int PRIMARY KEY)"]
    {
        let error = server.run(statement).unwrap_err().to_string();
        assert!(
            error.contains("Keyspace 'redis' holds the values of the Redis protocol"),
            "{error}"
        );
    }
}

fn hex(bytes: &[u8]) -> String {
    let digit = |number: u8| char::from_digit(u32::from(number), 16).unwrap();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Each key and field is on exactly one page, however many pages there are, and each protocol
    /// reads the writes of the other.
    #[test]
    fn pages_hold_every_row_once(
        fields in prop::collection::btree_map((0..200_u8, 0..4_u8), any::<u8>(), 0..60),
        page_size in 1..20_i32,
    ) {
        let mut server = server("");
        let mut expected: BTreeMap<String, usize> = BTreeMap::new();
        for (nth, ((key, field), value)) in fields.iter().enumerate() {
            if nth % 2 == 0 {
                server.resp(&format!("HSET k{key} {field} {value}"));
            } else {
                let key = hex(format!("k{key}").as_bytes());
                let (field, value) = (hex(field.to_string().as_bytes()), hex(value.to_string().as_bytes()));
                let text = format!("INSERT INTO hashes (key, field, value) VALUES (0x{key}, 0x{field}, 0x{value})");
                server.run(&text).unwrap();
            }
            expected.insert(format!("k{key} | {field} | {value}"), 1);
        }
        let text = "SELECT blobAsText(key), blobAsText(field), blobAsText(value) FROM hashes";
        let mut found: BTreeMap<String, usize> = BTreeMap::new();
        let mut state: Option<Vec<u8>> = None;
        loop {
            let asked = Asked { page_size: Some(page_size), paging_state: state.as_deref(), ..Asked::default() };
            let page = server.ask(text, asked).unwrap();
            page.rows.into_iter().for_each(|row| *found.entry(row).or_default() += 1);
            state = page.paging_state;
            if state.is_none() {
                break;
            }
        }
        prop_assert_eq!(found, expected);
    }
}

/// Only returned rows are built, and they are the expected ones.
#[test]
fn pages_of_large_values_have_the_first_rows() {
    let mut server = server("");
    for at in 0..60 {
        server.resp(&format!("HSET h {at:02} {at}"));
        server.resp(&format!("SADD s {at:02}"));
        server.resp(&format!("ZADD z {} {at:02}", 100 - at));
        server.resp(&format!("RPUSH l {at:02}"));
        server.resp(&format!("TSADD t {} {at}", at - 30));
    }
    let tables = [
        ("hashes", "field", "h"),
        ("sets", "member", "s"),
        ("zsets", "member", "z"),
        ("lists", "\"index\"", "l"),
        ("series", "time", "t"),
    ];
    for (table, row, key) in tables {
        let key = format!("key = textAsBlob('{key}')");
        for order in ["ASC", "DESC"] {
            let all = format!("SELECT {row} FROM {table} WHERE {key} ORDER BY {row} {order}");
            let expected = server.run(&all).unwrap().rows;
            assert_eq!(expected.len(), 60);
            for limit in [1, 7, 59, 60, 61] {
                let found = server.run(&format!("{all} LIMIT {limit}")).unwrap().rows;
                assert_eq!(found[..], expected[..limit.min(60)], "{all} {limit}");
            }
            for page in [1, 7, 30, 60] {
                let mut found = Vec::new();
                let mut state: Option<Vec<u8>> = None;
                loop {
                    let asked = Asked {
                        page_size: Some(page),
                        paging_state: state.as_deref(),
                        ..Asked::default()
                    };
                    let answer = server.ask(&all, asked).unwrap();
                    found.extend(answer.rows);
                    state = answer.paging_state;
                    if state.is_none() {
                        break;
                    }
                }
                assert_eq!(found, expected, "{all} in pages of {page}");
            }
        }
        let cut = format!("SELECT {row} FROM {table} WHERE {key} AND {row} > ");
        let from = match table {
            "lists" => "40",
            "series" => "10",
            _ => "textAsBlob('40')",
        };
        let found = server.run(&format!("{cut}{from} LIMIT 5")).unwrap().rows;
        assert_eq!(found, server.run(&format!("{cut}{from}")).unwrap().rows[..5]);
        let each = format!("SELECT {row} FROM {table} PER PARTITION LIMIT 2");
        assert_eq!(server.run(&each).unwrap().rows.len(), 2);
    }
}

/// A scan counts keys of other types and of other tokens.
#[test]
fn scans_of_keys_without_results_pause() {
    let mut server = server("");
    for at in 0..2000 {
        server.resp(&format!("SET k{at} v"));
    }
    server.resp("ZADD z 1 m");
    server.turn_rows = 100;
    for question in
        ["SELECT * FROM zsets", "SELECT * FROM strings WHERE token(key) > 9223372036854775800"]
    {
        server.pauses = 0;
        server.run(question).unwrap();
        assert!(server.pauses >= 15, "{question}: {}", server.pauses);
    }
    server.pauses = 0;
    let names: Vec<String> = (0..1000).map(|at| format!("0x{at:04x}")).collect();
    server.run(&format!("SELECT * FROM strings WHERE key IN ({})", names.join(", "))).unwrap();
    assert!(server.pauses >= 9, "{}", server.pauses);
}

#[test]
fn many_rows_of_a_large_value_are_removed_at_once() {
    let mut server = server("");
    for at in 0..300 {
        server.resp(&format!("HSET h {at:03} v"));
    }
    let names: Vec<String> = (0..200).map(|at| format!("textAsBlob('{at:03}')")).collect();
    let names = names.join(", ");
    server
        .run(&format!("DELETE FROM hashes WHERE key = 0x68 AND field IN ({names}, 0xff)"))
        .unwrap();
    assert_eq!(server.resp("HLEN h"), ":100");
    server.check(
        "> BEGIN BATCH DELETE FROM hashes WHERE key = 0x68 AND field >= textAsBlob('250') AND field < textAsBlob('260'); DELETE FROM hashes WHERE key = 0x68 AND field > textAsBlob('255') AND field < textAsBlob('270'); DELETE FROM hashes WHERE key = 0x68 AND field = textAsBlob('299'); APPLY BATCH
         # HLEN h
         :79",
    );
}
