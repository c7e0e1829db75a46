//! Purging of tables: what is purged, and what must be kept.

use super::harness::Server;

#[test]
fn only_expired_rows_and_old_deletions_are_purged() {
    let mut server = Server::new();
    server.check(
        "> CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c)) WITH gc_grace_seconds = 100
         > INSERT INTO t (k, c, v) VALUES (1, 1, 1)
         > INSERT INTO t (k, c, v) VALUES (2, 1, 1) USING TTL 10
         > INSERT INTO t (k, c, v) VALUES (3, 1, 1)
         > DELETE FROM t WHERE k = 3
         > INSERT INTO t (k, c, v) VALUES (4, 1, 1)
         > DELETE v FROM t WHERE k = 4 AND c = 1",
    );
    server.purge();
    assert_eq!(server.partitions("t"), 4, "nothing is old enough");
    server.pass_seconds(50);
    server.purge();
    assert_eq!(server.partitions("t"), 4, "a late write must still find the deletions");
    server.pass_seconds(200);
    server.purge();
    assert_eq!(server.partitions("t"), 2);
    let rest = "> SELECT k, c, v FROM t
                1 | 1 | 1
                4 | 1 | null";
    server.check(rest);
    let mut server = server.restart();
    assert_eq!(server.partitions("t"), 2, "purged rows stay purged");
    server.check(rest);
}

#[test]
fn a_deletion_is_kept_for_ten_days() {
    let mut server = Server::new();
    server.check(
        "> CREATE TABLE t (k int PRIMARY KEY, v int)
         > DELETE FROM t WHERE k = 1",
    );
    server.pass_seconds(800_000);
    server.purge();
    assert_eq!(server.partitions("t"), 1);
    // Older than the deletion, but received after it.
    server.check(
        "> INSERT INTO t (k, v) VALUES (1, 1) USING TIMESTAMP 5
         > SELECT * FROM t",
    );
}
