"""Cassandra's Python driver and cqlsh against CQL_ADDR, over every version of the protocol."""

import datetime
import decimal
import ipaddress
import os
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from functools import partial

import cassandra
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import BatchStatement, BatchType, SimpleStatement, named_tuple_factory
from cassandra.util import Date, Duration, Time

from harness import TESTS, equal, refused, run_named, test

HOST, PORT = os.environ["CQL_ADDR"].rsplit(":", 1)
CQLSH = os.path.join(os.path.dirname(sys.executable), "cqlsh")
# A server that asks who one is, and the password of its superuser.
ASKING = os.environ.get("CQL_ASKING_ADDR", "")
ASKING_PASSWORD = os.environ.get("CQL_ASKING_PASSWORD", "cassandra")
# A busy machine may halt the server or this process for longer than the seconds of the defaults.
PATIENCE_S = 60
PAGED_ROWS = 100_000
RACERS = 8
RACES = 20
KEYSPACE = "python_suite"

ONCE = []


def test_once(function):
    """Runs once: it does not depend on the version."""
    ONCE.append(function)
    return function


class PatientCluster(Cluster):
    def __init__(self, host, port, **options):
        super().__init__(
            [host],
            port=int(port),
            connect_timeout=PATIENCE_S,
            control_connection_timeout=PATIENCE_S,
            max_schema_agreement_wait=PATIENCE_S,
            **options,
        )

    def connect(self, *arguments):
        session = super().connect(*arguments)
        session.default_timeout = PATIENCE_S
        return session


def connect(version=None, **options):
    if version is not None:
        options["protocol_version"] = version
    return PatientCluster(HOST, PORT, **options)


def rows(result):
    return [tuple(row) for row in result]


EVERY_TYPE = {
    "ascii": "plain",
    "bigint": -(2**63),
    "blob": bytes(range(256)),
    "boolean": False,
    "date": Date(datetime.date(1969, 12, 31)),
    "decimal": decimal.Decimal("-123456789.123456789"),
    "double": 1.0e-300,
    "duration": Duration(1, 2, 3),
    "float": 0.5,
    "inet": "2001:db8::1",
    "int": -(2**31),
    "smallint": -32768,
    "text": "grüße 万 🦀",
    "time": Time("23:59:59.999999999"),
    "timestamp": datetime.datetime(2020, 2, 29, 12, 34, 56, 789000),
    "timeuuid": uuid.UUID("50554d6e-29bb-11e5-b345-feff819cdc9f"),
    "tinyint": -128,
    "uuid": uuid.UUID("123e4567-e89b-12d3-a456-426614174000"),
    "varint": -(10**40),
    "list<int>": [3, 1, 2],
    "set<text>": {"a", "b"},
    "map<text, int>": {"x": 1, "y": 2},
    "frozen<list<frozen<set<int>>>>": [{1, 2}, {3}],
    "tuple<int, text>": (7, "seven"),
}


@test
def every_type_goes_and_comes_back(session, version):
    columns = [f"c{at}" for at in range(len(EVERY_TYPE))]
    definitions = ", ".join(f"{name} {of}" for name, of in zip(columns, EVERY_TYPE))
    session.execute(f"CREATE TABLE every_type (k int PRIMARY KEY, {definitions})")
    names = ", ".join(columns)
    marks = ", ".join("?" for _ in columns)
    insert = session.prepare(f"INSERT INTO every_type (k, {names}) VALUES (?, {marks})")
    values = list(EVERY_TYPE.values())
    session.execute(insert, [1, *values])
    session.execute(insert, [2, *[None] * len(values)])
    session.row_factory = named_tuple_factory
    got = session.execute(f"SELECT {names} FROM every_type WHERE k = 1").one()
    for of, name, wanted in zip(EVERY_TYPE, columns, values):
        found = getattr(got, name)
        if of in ("inet",):
            found, wanted = ipaddress.ip_address(found), ipaddress.ip_address(wanted)
        if of.startswith(("set", "frozen")):
            found = sorted(map(str, map(sorted, found))) if of.startswith("frozen") else set(found)
            wanted = sorted(map(str, map(sorted, wanted))) if of.startswith("frozen") else wanted
        if of.startswith("map"):
            found = dict(found)
        if found != wanted:
            raise AssertionError(f"{of}: got {found!r}, wanted {wanted!r}")
    got = session.execute(f"SELECT {names} FROM every_type WHERE k = 2").one()
    equal(set(map(bool, got)), {False})


@test
def prepared_statements_take_values_by_place_and_by_name(session, version):
    session.execute("CREATE TABLE p (a int, b text, v int, PRIMARY KEY (a, b))")
    insert = session.prepare("INSERT INTO p (a, b, v) VALUES (?, ?, ?)")
    session.execute(insert, (1, "x", 10))
    session.execute(insert, {"a": 1, "b": "y", "v": 20})
    select = session.prepare("SELECT b, v FROM p WHERE a = ? AND b >= ? LIMIT ?")
    equal(rows(session.execute(select, (1, "x", 10))), [("x", 10), ("y", 20)])
    equal(rows(session.execute(select, (1, "y", 10))), [("y", 20)])
    equal(select.routing_key_indexes, [0])
    equal(rows(session.execute("SELECT v FROM p WHERE a = %s AND b = %s", (1, "x"))), [(10,)])
    many = session.prepare("SELECT b FROM p WHERE a = ? AND b IN ?")
    equal(rows(session.execute(many, (1, ["y", "z"]))), [("y",)])
    refused(cassandra.InvalidRequest, "nope", session.prepare, "SELECT nope FROM p")


@test
def unset_values_leave_what_is_there(session, version):
    if version < 4:
        return
    session.execute("CREATE TABLE u (k int PRIMARY KEY, a int, b int)")
    insert = session.prepare("INSERT INTO u (k, a, b) VALUES (?, ?, ?)")
    session.execute(insert, (1, 1, 2))
    session.execute(insert, (1, cassandra.query.UNSET_VALUE, 3))
    equal(rows(session.execute("SELECT a, b FROM u")), [(1, 3)])


@test
def batches_of_both_ways(session, version):
    session.execute("CREATE TABLE b (k int PRIMARY KEY, v int)")
    insert = session.prepare("INSERT INTO b (k, v) VALUES (?, ?)")
    for kind in (BatchType.LOGGED, BatchType.UNLOGGED):
        session.execute("TRUNCATE b")
        batch = BatchStatement(batch_type=kind)
        for k in range(50):
            batch.add(insert, (k, k))
        batch.add("INSERT INTO b (k, v) VALUES (%s, %s)", (100, 100))
        batch.add(SimpleStatement("DELETE FROM b WHERE k = 0"))
        session.execute(batch)
        equal(session.execute("SELECT count(*) FROM b").one()[0], 50)
    session.execute("CREATE TABLE c (k int PRIMARY KEY, n counter)")
    batch = BatchStatement(batch_type=BatchType.COUNTER)
    for _ in range(3):
        batch.add("UPDATE c SET n = n + 2 WHERE k = 1")
    session.execute(batch)
    equal(rows(session.execute("SELECT * FROM c")), [(1, 6)])


@test
def user_types_become_objects(session, version):
    session.execute("CREATE TYPE point (x int, y int)")
    session.execute("CREATE TABLE shapes (k int PRIMARY KEY, p frozen<point>, l list<frozen<point>>)")

    class Point:
        def __init__(self, x, y):
            self.x, self.y = x, y

    session.cluster.register_user_type(KEYSPACE, "point", Point)
    session.execute("INSERT INTO shapes (k, p, l) VALUES (1, %s, %s)", (Point(1, 2), [Point(3, None)]))
    row = session.execute("SELECT p, l FROM shapes").one()
    equal((row.p.x, row.p.y, row.l[0].x, row.l[0].y), (1, 2, 3, None))


@test
def the_schema_is_seen(session, version):
    session.execute("CREATE TYPE kind (name text)")
    session.execute(
        "CREATE TABLE seen (a int, b text, c timeuuid, s int STATIC, v map<text, frozen<kind>>, "
        "PRIMARY KEY ((a, b), c)) WITH CLUSTERING ORDER BY (c DESC) AND comment = 'look'"
    )
    table = session.cluster.metadata.keyspaces[KEYSPACE].tables["seen"]
    equal([column.name for column in table.partition_key], ["a", "b"])
    equal([column.name for column in table.clustering_key], ["c"])
    equal(table.columns["s"].is_static, True)
    equal(table.columns["v"].cql_type, "map<text, frozen<kind>>")
    equal(table.columns["c"].is_reversed, True)
    equal(table.options["comment"], "look")
    equal(list(session.cluster.metadata.keyspaces[KEYSPACE].user_types), ["kind"])
    if "CREATE TABLE" not in table.export_as_string():
        raise AssertionError(table.export_as_string())
    session.execute("ALTER TABLE seen ADD w int")
    equal("w" in session.cluster.metadata.keyspaces[KEYSPACE].tables["seen"].columns, True)
    session.execute("DROP TABLE seen")
    equal("seen" in session.cluster.metadata.keyspaces[KEYSPACE].tables, False)


@test
def errors_have_their_kinds(session, version):
    session.execute("CREATE TABLE e (k int PRIMARY KEY, v int)")
    refused(cassandra.InvalidRequest, "nope", session.execute, "SELECT * FROM nope")
    refused(cassandra.protocol.SyntaxException, "line 1", session.execute, "SELEC 1")
    refused(cassandra.AlreadyExists, "e", session.execute, "CREATE TABLE e (k int PRIMARY KEY)")
    insert = session.prepare("INSERT INTO e (k, v) VALUES (?, ?)")
    refused(TypeError, "", session.execute, insert, ("text", 1))
    refused(cassandra.InvalidRequest, "null", session.execute, insert, (None, 1))


@test
def time_to_live_and_timestamps(session, version):
    session.execute("CREATE TABLE ttl (k int PRIMARY KEY, v int)")
    session.execute("INSERT INTO ttl (k, v) VALUES (1, 1) USING TTL 1000 AND TIMESTAMP 5")
    ttl, time = session.execute("SELECT ttl(v), writetime(v) FROM ttl WHERE k = 1").one()
    equal((900 < ttl <= 1000, time), (True, 5))
    session.execute("INSERT INTO ttl (k, v) VALUES (2, 1) USING TTL 1")
    threading.Event().wait(2.5)
    equal(rows(session.execute("SELECT * FROM ttl WHERE k = 2")), [])


@test
def a_changed_table_is_prepared_anew(session, version):
    session.execute("CREATE TABLE again (k int PRIMARY KEY, a int)")
    select = session.prepare("SELECT * FROM again WHERE k = ?")
    session.execute("INSERT INTO again (k, a) VALUES (1, 2)")
    equal(rows(session.execute(select, (1,))), [(1, 2)])
    session.execute("ALTER TABLE again ADD b int")
    session.execute("INSERT INTO again (k, a, b) VALUES (1, 2, 3)")
    # Before version 5 a client keeps the columns from its first PREPARE.
    if version >= 5:
        equal(rows(session.execute(select, (1,))), [(1, 2, 3)])


@test
def requests_are_traced(session, version):
    session.execute("CREATE TABLE traced (k int PRIMARY KEY, v int)")
    text = "INSERT INTO traced (k, v) VALUES (1, 2)"
    trace = session.execute(text, trace=True).get_query_trace(max_wait_sec=PATIENCE_S)
    equal((trace.parameters["query"], trace.request_type), (text, "Execute CQL3 query"))
    equal(len(trace.events) >= 2, True)
    equal(trace.client, "127.0.0.1")
    insert = session.prepare("INSERT INTO traced (k, v) VALUES (?, ?)")
    trace = session.execute(insert, (2, 3), trace=True).get_query_trace(max_wait_sec=PATIENCE_S)
    equal(trace.request_type, "Execute CQL3 prepared query")


@test
def batches_are_warned_of(session, version):
    session.execute("CREATE TABLE warned (k int PRIMARY KEY, v text)")
    insert = session.prepare("INSERT INTO warned (k, v) VALUES (?, ?)")
    batch = BatchStatement(BatchType.UNLOGGED)
    for k in range(11):
        batch.add(insert, (k, "x" * 1000))
    future = session.execute_async(batch)
    future.result()
    # Versions before 4 have no warnings.
    if version >= 4:
        size, partitions = future.warnings
        equal(size.startswith(f"Batch for [{KEYSPACE}.warned] is of size "), True)
        equal(partitions.startswith("Unlogged batch covering 11 partitions detected"), True)


def log_in(user, password, version):
    host, port = ASKING.rsplit(":", 1)
    provider = PlainTextAuthProvider(user, password)
    return PatientCluster(host, port, auth_provider=provider, protocol_version=version)


def refused_login(user, password, text):
    with log_in(user, password, 4) as cluster:
        refused(NoHostAvailable, text, cluster.connect)


@test_once
def roles_may_do_what_was_granted_to_them():
    if not ASKING:
        return
    with log_in("cassandra", ASKING_PASSWORD, 5) as cluster:
        root = cluster.connect()
        root.execute(
            "CREATE KEYSPACE own WITH replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        root.execute("CREATE TABLE own.t (k int PRIMARY KEY, v int)")
        root.execute("INSERT INTO own.t (k, v) VALUES (1, 2)")
        root.execute("CREATE ROLE reader")
        root.execute("CREATE ROLE ann WITH PASSWORD = 'it''s' AND LOGIN = true")
        root.execute("GRANT reader TO ann")
        wrong = "Provided username {} and/or password are incorrect"
        refused_login("ann", "its", wrong.format("ann"))
        refused_login("nobody", "it's", wrong.format("nobody"))
        refused_login("reader", "it's", wrong.format("reader"))
        for version in (3, 4, 5):
            with log_in("ann", "it's", version) as others:
                ann = others.connect()
                select = ann.prepare("SELECT v FROM own.t WHERE k = ?")
                denied = "User ann has no SELECT permission on <table own.t> or any of its parents"
                refused(cassandra.Unauthorized, denied, ann.execute, select, (1,))
                root.execute("GRANT SELECT ON own.t TO reader")
                equal(rows(ann.execute(select, (1,))), [(2,)])
                denied = denied.replace("SELECT", "MODIFY")
                insert = "INSERT INTO own.t (k, v) VALUES (2, 3)"
                refused(cassandra.Unauthorized, denied, ann.execute, insert)
                root.execute("REVOKE SELECT ON own.t FROM reader")
                denied = denied.replace("MODIFY", "SELECT")
                refused(cassandra.Unauthorized, denied, ann.execute, select, (1,))
        listed = rows(root.execute("LIST ROLES OF ann"))
        equal([row[:3] for row in listed], [("ann", False, True), ("reader", False, False)])
        root.execute("DROP ROLE ann")
        refused_login("ann", "it's", wrong.format("ann"))


@test_once
def many_rows_come_in_pages():
    with connect() as cluster:
        session = cluster.connect(KEYSPACE)
        session.execute("CREATE TABLE paged (p int, c int, v text, PRIMARY KEY (p, c))")
        insert = session.prepare("INSERT INTO paged (p, c, v) VALUES (?, ?, ?)")
        values = ((at % 100, at, f"row {at}") for at in range(PAGED_ROWS))
        for ok, outcome in execute_concurrent_with_args(session, insert, values, concurrency=200):
            if not ok:
                raise outcome
        seen = {(row.p, row.c) for row in session.execute("SELECT p, c FROM paged")}
        equal(len(seen), PAGED_ROWS)
        one = session.execute(SimpleStatement("SELECT c FROM paged WHERE p = 7", fetch_size=13))
        equal([row.c for row in one], list(range(7, PAGED_ROWS, 100)))
        page = session.execute(SimpleStatement("SELECT c FROM paged WHERE p = 7", fetch_size=10))
        state = page.paging_state
        rest = session.execute(
            SimpleStatement("SELECT c FROM paged WHERE p = 7", fetch_size=10), paging_state=state
        )
        equal(rest.current_rows[0].c, 7 + 100 * 10)


@test_once
def of_those_who_race_one_wins():
    with connect() as cluster:
        session = cluster.connect(KEYSPACE)
        session.execute("CREATE TABLE race (k int PRIMARY KEY, winner int)")
        claim = session.prepare("INSERT INTO race (k, winner) VALUES (?, ?) IF NOT EXISTS")
        for k in range(RACES):
            futures = [session.execute_async(claim, (k, racer)) for racer in range(RACERS)]
            applied = [future.result().was_applied for future in futures]
            equal(applied.count(True), 1)
            winner = session.execute("SELECT winner FROM race WHERE k = %s", (k,)).one()[0]
            equal(applied[winner], True)
        session.execute("CREATE TABLE sums (k int PRIMARY KEY, n int)")
        session.execute("INSERT INTO sums (k, n) VALUES (1, 0)")
        raise_it = session.prepare("UPDATE sums SET n = ? WHERE k = 1 IF n = ?")

        def climb(steps):
            for _ in range(steps):
                while True:
                    n = session.execute("SELECT n FROM sums WHERE k = 1").one()[0]
                    if session.execute(raise_it, (n + 1, n)).was_applied:
                        break

        threads = [threading.Thread(target=climb, args=(25,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        equal(session.execute("SELECT n FROM sums WHERE k = 1").one()[0], 100)


@test_once
def others_hear_of_a_changed_schema():
    with connect() as one, connect() as other:
        session = one.connect(KEYSPACE)
        other.connect(KEYSPACE)
        session.execute("CREATE TABLE heard (k int PRIMARY KEY)")
        for _ in range(10 * PATIENCE_S):
            if "heard" in other.metadata.keyspaces[KEYSPACE].tables:
                return
            threading.Event().wait(0.1)
        raise AssertionError("the other client never heard of the table")


@test_once
def large_values_and_compression():
    for compression in (False, "lz4"):
        with connect(compression=compression) as cluster:
            session = cluster.connect(KEYSPACE)
            session.execute("CREATE TABLE IF NOT EXISTS large (k int PRIMARY KEY, v blob)")
            insert = session.prepare("INSERT INTO large (k, v) VALUES (?, ?)")
            value = os.urandom(1_000_000)
            session.execute(insert, (1, value))
            equal(session.execute("SELECT v FROM large WHERE k = 1").one()[0], value)


def redis(address, *arguments):
    """One request of the Redis protocol; its reply as it was sent, whole for what is asked here."""
    host, port = address.rsplit(":", 1)
    parts = [argument if isinstance(argument, bytes) else argument.encode() for argument in arguments]
    request = b"*%d\r\n" % len(parts)
    request += b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@test_once
def values_of_the_redis_protocol_are_rows():
    address = os.environ.get("ADDR")
    with connect() as cluster:
        session = cluster.connect()
        if "redis" not in cluster.metadata.keyspaces or not address:
            return  # a Cassandra has none
        session.set_keyspace("redis")
        key = f"python-{uuid.uuid4()}".encode()

        def put(table, columns, *values):
            marks = ", ".join("?" for _ in values)
            session.execute(session.prepare(f"INSERT INTO {table} ({columns}) VALUES ({marks})"), values)

        def got(table, columns, name):
            select = session.prepare(f"SELECT {columns} FROM {table} WHERE key = ?")
            return rows(session.execute(select, [name]))

        for table, columns, values, command, reply in [
            ("strings", "value", [b"\x00\xff"], ["GET"], b"$2\r\n\x00\xff\r\n"),
            ("hashes", "field, value", [b"f", b"v"], ["HGET", "f"], b"$1\r\nv\r\n"),
            ("sets", "member", [b"m"], ["SMEMBERS"], b"*1\r\n$1\r\nm\r\n"),
            ("zsets", "member, score", [b"m", 1.5], ["ZSCORE", "m"], b"$3\r\n1.5\r\n"),
            ("lists", '"index", value', [0, b"item"], ["LINDEX", "0"], b"$4\r\nitem\r\n"),
        ]:
            name = key + table.encode()
            put(table, f"key, {columns}", name, *values)
            equal(redis(address, command[0], name, *command[1:]), reply)
            equal(got(table, columns, name), [tuple(values)])
        many = key + b"many"
        fields = [str(number).encode() for number in range(5000)]
        for start in range(0, len(fields), 1000):
            pairs = [part for field in fields[start : start + 1000] for part in (field, b"v" + field)]
            equal(redis(address, "HSET", many, *pairs), b":1000\r\n")
        select = session.prepare("SELECT field, value FROM hashes WHERE key = ?")
        select.fetch_size = 700
        found = rows(session.execute(select, [many]))
        equal(found, sorted((field, b"v" + field) for field in fields))
        session.default_fetch_size = 900
        walked = [row.field for row in session.execute("SELECT key, field FROM hashes") if row.key == many]
        equal(walked, sorted(fields))
        equal(redis(address, "EXPIRE", many, "1000"), b":1\r\n")
        ttl = session.prepare("SELECT TTL(value) FROM hashes WHERE key = ? AND field = ?")
        left = session.execute(ttl, [many, b"7"]).one()[0]
        equal(900 < left <= 1000, True)
        wrong = session.prepare("INSERT INTO strings (key, value) VALUES (?, ?)")
        refused(cassandra.InvalidRequest, "wrong kind of value", session.execute, wrong, [many, b"v"])
        session.execute(session.prepare("DELETE FROM hashes WHERE key = ?"), [many])
        equal(redis(address, "EXISTS", many), b":0\r\n")


def cqlsh(script, *arguments):
    timeouts = [f"--connect-timeout={PATIENCE_S}", f"--request-timeout={PATIENCE_S}"]
    done = subprocess.run(
        [CQLSH, "--no-color", *timeouts, HOST, PORT, *arguments],
        input=script, capture_output=True, text=True, timeout=300,
    )
    return done.stdout + done.stderr


@test_once
def cqlsh_describes_copies_and_pages():
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "rows.csv")
        with open(file, "w", encoding="utf-8") as out:
            out.writelines(f"{k},name {k}\n" for k in range(1000))
        shown = cqlsh(
            f"USE {KEYSPACE};\n"
            "CREATE TABLE copied (k int PRIMARY KEY, name text);\n"
            f"COPY copied (k, name) FROM '{file}';\n"
            "SELECT count(*) FROM copied;\n"
            f"COPY copied TO '{file}.out';\n"
            "PAGING 10;\nSELECT k FROM copied WHERE k = 7;\n"
            "DESCRIBE TABLES;\nDESCRIBE TABLE copied;\nDESCRIBE KEYSPACES;\nDESCRIBE CLUSTER;\n"
            "CONSISTENCY;\nSHOW VERSION;\nSELECT nope FROM copied;\n"
        )
        for wanted in ("1000", "CREATE TABLE python_suite.copied", "system_schema", "name text",
                       "Undefined column name nope", "Murmur3Partitioner"):
            if wanted not in shown:
                raise AssertionError(f"no {wanted!r} in what cqlsh shows: {shown}")
        with open(f"{file}.out", encoding="utf-8") as copied:
            equal(len(copied.read().split("\n")) - 1, 1000)


def recreate(session):
    session.execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
    session.execute(
        f"CREATE KEYSPACE {KEYSPACE} WITH replication = "
        "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    )


def run_with(function, version):
    with connect(version) as cluster:
        session = cluster.connect()
        recreate(session)
        session.set_keyspace(KEYSPACE)
        function(session, version)


def run_once(function):
    with connect() as cluster:
        recreate(cluster.connect())
    function()


# Over each version of the protocol, in an empty keyspace.
cases = [(f"{body.__name__} v{version}", partial(run_with, body, version)) for version in (3, 4, 5) for body in TESTS]
sys.exit(run_named(cases + [(body.__name__, partial(run_once, body)) for body in ONCE]))
