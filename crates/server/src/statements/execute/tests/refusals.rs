//! Invalid statements, with Cassandra's error texts.

use wire::cql::Value;

use super::harness::{Asked, Server, check};

#[test]
fn restrictions_must_be_possible() {
    check(
        "
        > CREATE TABLE t (p int, q int, c int, d int, e int, s int STATIC, v int, l list<int>, PRIMARY KEY ((p, q), c, d, e))
        > SELECT * FROM nix
        ! table nix does not exist
        > SELECT * FROM nix.t
        ! keyspace nix does not exist
        > SELECT x FROM t
        ! Undefined column name x in table k.t
        > SELECT * FROM t WHERE x = 1
        ! Undefined column name x in table k.t
        > SELECT * FROM t WHERE p = 1
        ! Cannot execute this query as it might involve data filtering and thus may have unpredictable performance. If you want to execute this query despite the performance unpredictability, use ALLOW FILTERING
        > SELECT * FROM t WHERE v = 1
        ! Cannot execute this query as it might involve data filtering and thus may have unpredictable performance. If you want to execute this query despite the performance unpredictability, use ALLOW FILTERING
        > SELECT * FROM t WHERE p = 1 AND q > 1
        ! Cannot execute this query as it might involve data filtering and thus may have unpredictable performance. If you want to execute this query despite the performance unpredictability, use ALLOW FILTERING
        > SELECT * FROM t WHERE p = 1 AND q = 1 AND d = 1
        ! PRIMARY KEY column \"d\" cannot be restricted as preceding column \"c\" is not restricted
        > SELECT * FROM t WHERE p = 1 AND q = 1 AND c > 1 AND d = 1
        ! Clustering column \"d\" cannot be restricted (preceding column \"c\" is restricted by a non-EQ relation)
        > SELECT * FROM t WHERE p = 1 AND p = 2
        ! p cannot be restricted by more than one relation if it includes an Equal
        > SELECT * FROM t WHERE p = 1 AND q = 1 AND c > 1 AND c > 2
        ! More than one restriction was found for the start bound on c
        > SELECT * FROM t WHERE l = [1] ALLOW FILTERING
        ! Collection column 'l' (list<int>) cannot be restricted by a '=' relation
        > SELECT * FROM t WHERE v CONTAINS 1 ALLOW FILTERING
        ! Cannot use CONTAINS on non-collection column v
        > SELECT * FROM t WHERE token(p) > 1
        ! The token() function must be applied to all partition key components or none of them
        > SELECT * FROM t WHERE token(q, p) > 1
        ! The token function arguments must be in the partition key order: p, q
        > SELECT * FROM t WHERE token(p, q) > 1 AND p = 1
        ! Cannot execute this query as it might involve data filtering and thus may have unpredictable performance. If you want to execute this query despite the performance unpredictability, use ALLOW FILTERING
        > SELECT * FROM t WHERE p = 1 AND q = 1 AND (c, e) > (1, 1)
        ! Clustering columns must appear in the PRIMARY KEY order in multi-column relations: (c, e) > (1, 1)
        > SELECT * FROM t WHERE p = 1 AND q = 1 AND (c, d) > (1, 1, 1)
        ! Expected 2 elements in value tuple, but got 3: (1, 1, 1)
        > SELECT * FROM t LIMIT 0
        ! LIMIT must be strictly positive
        > SELECT * FROM t ORDER BY c
        ! ORDER BY is only supported when the partition key is restricted by an EQ or an IN.
        > SELECT * FROM t WHERE p = 1 AND q = 1 ORDER BY v
        ! Order by is currently only supported on the clustered columns of the PRIMARY KEY, got v
        > SELECT * FROM t WHERE p = 1 AND q = 1 ORDER BY d
        ! Order by currently only supports the ordering of columns following their declared order in the PRIMARY KEY
        > SELECT * FROM t WHERE p = 1 AND q = 1 ORDER BY c ASC, d DESC
        ! Unsupported order by relation
        > SELECT DISTINCT v FROM t
        ! SELECT DISTINCT queries must only request partition key columns and/or static columns (not v)
        > SELECT DISTINCT p FROM t
        ! SELECT DISTINCT queries must request all the partition key columns (missing q)
        > SELECT count(*) FROM t GROUP BY c
        ! Group by currently only support groups of columns following their declared order in the PRIMARY KEY
        > SELECT count(*) FROM t GROUP BY v
        ! Group by is currently only supported on the columns of the PRIMARY KEY, got v
        > SELECT * FROM t WHERE p = null AND q = 1
        ! Invalid null value in condition for column p
        > SELECT * FROM t WHERE p = 'a' AND q = 1
        ! Invalid STRING constant (a) for \"p\" of type int
        ",
    );
}

#[test]
fn writes_must_name_their_rows() {
    check(
        "
        > CREATE TABLE t (p int, q int, c int, d int, s int STATIC, v int, l list<int>, f frozen<list<int>>, PRIMARY KEY ((p, q), c, d))
        > CREATE TABLE n (p int PRIMARY KEY, c counter)
        > INSERT INTO t (p, c, d) VALUES (1, 1, 1)
        ! Some partition key parts are missing: q
        > INSERT INTO t (p, q, c, v) VALUES (1, 1, 1, 1)
        ! Some clustering keys are missing: d
        > INSERT INTO t (p, q, v) VALUES (1, 1, 1)
        ! Some clustering keys are missing: c, d
        > INSERT INTO t (p, q, p) VALUES (1, 1, 1)
        ! The column names contains duplicates
        > INSERT INTO t (p, q, c, d) VALUES (1, 1, 1, null)
        ! Invalid null value in condition for column d
        > INSERT INTO n (p, c) VALUES (1, 1)
        ! INSERT statements are not allowed on counter tables, use UPDATE instead
        > UPDATE t SET v = 1 WHERE p = 1
        ! Some partition key parts are missing: q
        > UPDATE t SET v = 1 WHERE p = 1 AND q = 1 AND c = 1
        ! Some clustering keys are missing: d
        > UPDATE t SET v = 1 WHERE p = 1 AND q = 1 AND c > 1
        ! Slice restrictions are not supported on the clustering columns in UPDATE statements
        > UPDATE t SET v = 1 WHERE p > 1 AND q = 1 AND c = 1 AND d = 1
        ! Only EQ and IN relation are supported on the partition key (unless you use the token() function) for UPDATE statements
        > UPDATE t SET v = 1 WHERE p = 1 AND q = 1 AND c = 1 AND d = 1 AND v = 2
        ! Non PRIMARY KEY columns found in where clause: v
        > UPDATE t SET p = 1 WHERE p = 1 AND q = 1 AND c = 1 AND d = 1
        ! PRIMARY KEY part p found in SET part
        > UPDATE t SET v = v + 1 WHERE p = 1 AND q = 1 AND c = 1 AND d = 1
        ! Invalid operation (v = v + 1) for non counter column v
        > UPDATE t SET f = f + [1] WHERE p = 1 AND q = 1 AND c = 1 AND d = 1
        ! Invalid operation (f = f + [1]) for frozen collection column f
        > UPDATE t SET v = s WHERE p = 1 AND q = 1 AND c = 1 AND d = 1
        ! Only expressions of the form X = X +<value> are supported.
        > UPDATE n SET c = p + 1 WHERE p = 1
        ! Only expressions of the form X = X +<value> are supported.
        > UPDATE n SET c = 1 WHERE p = 1
        ! Cannot set the value of counter column c (counters can only be incremented/decremented, not set)
        > UPDATE n USING TTL 5 SET c = c + 1 WHERE p = 1
        ! Cannot provide custom TTL for counter updates
        > UPDATE n SET c = c + 1 WHERE p = 1 IF EXISTS
        ! Conditional updates are not supported on counter tables
        > UPDATE t USING TIMESTAMP 5 SET v = 1 WHERE p = 1 AND q = 1 AND c = 1 AND d = 1 IF EXISTS
        ! Cannot provide custom timestamp for conditional updates
        > UPDATE t SET v = 1 WHERE p IN (1, 2) AND q = 1 AND c = 1 AND d = 1 IF EXISTS
        ! IN on the partition key is not supported with conditional updates
        > UPDATE t USING TTL -1 SET v = 1 WHERE p = 1 AND q = 1 AND c = 1 AND d = 1
        ! A TTL must be greater or equal to 0, but was -1
        > UPDATE t USING TTL 630720001 SET v = 1 WHERE p = 1 AND q = 1 AND c = 1 AND d = 1
        ! ttl is too large. requested (630720001) maximum (630720000)
        > DELETE FROM t WHERE p = 1
        ! Some partition key parts are missing: q
        > DELETE v FROM t WHERE p = 1 AND q = 1 AND c > 1
        ! Range deletions are not supported for specific columns
        > DELETE p FROM t WHERE p = 1 AND q = 1 AND c = 1 AND d = 1
        ! Invalid identifier p for deletion (should not be a PRIMARY KEY part)
        > DELETE FROM t WHERE token(p, q) = 1
        ! The token function cannot be used in WHERE clauses for DELETE statements
        > BEGIN BATCH UPDATE n SET c = c + 1 WHERE p = 1; APPLY BATCH
        ! Cannot include a counter statement in a logged batch
        > BEGIN COUNTER BATCH INSERT INTO t (p, q, s) VALUES (1, 1, 1); APPLY BATCH
        ! Cannot include non-counter statement in a counter batch
        > BEGIN BATCH USING TIMESTAMP 5 INSERT INTO t (p, q, s) VALUES (1, 1, 1) USING TIMESTAMP 6; APPLY BATCH
        ! Timestamp must be set either on BATCH or individual statements
        > BEGIN BATCH INSERT INTO t (p, q, s) VALUES (1, 1, 1) IF NOT EXISTS; INSERT INTO t (p, q, s) VALUES (2, 1, 1); APPLY BATCH
        ! Batch with conditions cannot span multiple partitions
        > BEGIN BATCH INSERT INTO t (p, q, s) VALUES (1, 1, 1) IF NOT EXISTS; INSERT INTO t (p, q, s) VALUES (2, 1, 1); INSERT INTO t (p, q, s) VALUES (null, 1, 1); APPLY BATCH
        ! Batch with conditions cannot span multiple partitions
        ",
    );
}

#[test]
fn the_schema_is_changed_only_by_schema_statements() {
    check(
        "
        > INSERT INTO system_schema.keyspaces (keyspace_name) VALUES ('x')
        ! system_schema keyspace is not user-modifiable.
        > TRUNCATE system_schema.tables
        ! system_schema keyspace is not user-modifiable.
        ",
    );
}

#[test]
fn names_need_a_keyspace() {
    let mut server = Server::new();
    server.client.keyspace = None;
    server.check(
        "
        > SELECT * FROM t
        ! No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename
        > USE nix
        ! Keyspace 'nix' does not exist
        > USE k
        > SELECT * FROM t
        ! table t does not exist
        ",
    );
    assert_eq!(server.client.keyspace.as_deref(), Some("k"));
}

#[test]
fn combinations_of_long_values_are_refused() {
    let mut server = Server::new();
    server.check("> CREATE TABLE t (a text, b text, c text, d text, PRIMARY KEY ((a, b), c, d))");
    let values = |count: usize| {
        let value = |nth: usize| format!("'{nth}{}'", "x".repeat(20_000));
        (0..count).map(value).collect::<Vec<_>>().join(", ")
    };
    let (many, few) = (values(40), values(3));
    for (first, second, is_refused) in [(&many, &many, true), (&few, &few, false)] {
        for names in [["a", "b", "c", "d"], ["c", "d", "a", "b"]] {
            let [x, y, z, w] = names;
            let text = format!(
                "SELECT a FROM t WHERE {x} IN ({first}) AND {y} IN ({second}) AND {z} = '' AND {w} = ''"
            );
            let refused = server.run(&text).err().map(|error| error.to_string());
            let is_too_long = refused.as_ref().is_some_and(|text| text.contains("combinations of"));
            assert_eq!(is_too_long, is_refused, "{refused:?}");
        }
    }
}

#[test]
fn numbers_with_very_long_texts_are_refused() {
    let mut server = Server::new();
    server.check("> CREATE TABLE t (p int PRIMARY KEY, v varint, d decimal)");
    let digits = |count: usize| "7".repeat(count);
    let (fitting, long) = (digits(10_000), digits(10_001));
    server.run(&format!("INSERT INTO t (p, v) VALUES (1, {fitting})")).unwrap();
    assert!(server.run("SELECT v * v FROM t").is_err());
    for column in ["v", "d"] {
        server.run(&format!("INSERT INTO t (p, {column}) VALUES (1, -{fitting})")).unwrap();
        for text in [
            format!("INSERT INTO t (p, {column}) VALUES (1, {long})"),
            format!("INSERT INTO t JSON '{{\"p\": 1, \"{column}\": {long}}}'"),
        ] {
            let shown: String = text.chars().take(40).collect();
            assert!(server.run(&text).is_err(), "{shown}");
        }
        let found = server.run(&format!("SELECT CAST({column} AS text) FROM t")).unwrap().rows;
        assert!(found[0].trim_start_matches('-').len() >= 10_000);
        let prepared =
            server.prepare(&format!("INSERT INTO t (p, {column}) VALUES (1, ?)")).unwrap();
        let bytes = vec![1; 5_000];
        let values = [Value::Bytes(&bytes)];
        let asked = Asked { values: &values, ..Asked::default() };
        let error = server.execute(&prepared, asked).unwrap_err().to_string();
        assert!(error.contains("is longer than the maximum of"), "{error}");
    }
}

/// The bytes that one result row or one write may process are limited, because the reactor cannot
/// pause within it.
#[test]
fn rows_and_writes_that_process_many_bytes_are_refused() {
    let mut server = Server::new();
    server.check(
        "> CREATE TABLE t (p int PRIMARY KEY, b blob, l list<int>, v int)
         > INSERT INTO t (p, b, l) VALUES (1, 0x00, [1, 2])",
    );
    let refused = "A row of the result, or the write, processes more than 67108864 bytes";
    // Many rows together may process this much, as may one row that stays below the limit.
    let nested = format!("SELECT {}b{} FROM t", "to_json(".repeat(12), ")".repeat(12));
    server.run(&nested).unwrap();
    let blob = vec![7; 1 << 20];
    let asked = Asked { values: &[Value::Bytes(&blob)], ..Asked::default() };
    server.ask("UPDATE t SET b = ? WHERE p = 1", asked).unwrap();
    let mut check = |text: &str, values: &[Value<'_>]| {
        let asked = Asked { values, ..Asked::default() };
        let error = server.ask(text, asked).unwrap_err().to_string();
        assert_eq!(error, refused, "{}", &text[..60.min(text.len())]);
    };
    let many = vec!["to_json((blob)?)"; 64].join(", ");
    check(&format!("SELECT {many} FROM t"), &[Value::Bytes(&blob); 64]);
    let conditions = vec!["b = ?"; 65].join(" AND ");
    check(&format!("UPDATE t SET v = 1 WHERE p = 1 IF {conditions}"), &[Value::Bytes(&blob); 65]);
    let list: Vec<String> = (0..20_000).map(|at| at.to_string()).collect();
    server.run(&format!("UPDATE t SET l = [{}] WHERE p = 1", list.join(","))).unwrap();
    let sets = vec!["l[5] = 1"; 300].join(", ");
    let error = server.run(&format!("UPDATE t SET {sets} WHERE p = 1")).unwrap_err();
    assert_eq!(error.to_string(), refused);
    let places = vec!["l[5]"; 300].join(", ");
    let error = server.run(&format!("DELETE {places} FROM t WHERE p = 1")).unwrap_err();
    assert_eq!(error.to_string(), refused);
    server.check("> SELECT collection_count(l) FROM t\n20000");
}
