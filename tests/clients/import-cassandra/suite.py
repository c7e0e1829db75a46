"""`myriad import` from a running Cassandra, while clients write and importers are killed.

Each test ends with the same question: has the target exactly what the source has?
"""

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
from decimal import Decimal

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import tuple_factory

from harness import run, test
from ports import free_port

PATIENCE_S = 120
ROOT = pathlib.Path(__file__).resolve().parents[3]
# More than a page, and more than a batch of requests.
EVENTS = 10_000
WIDE_ROWS = 2_000
OLD, NEW = 1_000_000, 2_000_000


class Server:
    """A process that speaks CQL, ended with the block."""

    def __init__(self, port, arguments, log, environment=None):
        self.port, self.log = port, log
        with open(log, "w") as out:
            self.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)
        self.cluster = None

    def __enter__(self):
        try:
            return self.connect()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def connect(self):
        started = time.monotonic()
        while True:
            profile = ExecutionProfile(row_factory=tuple_factory, request_timeout=PATIENCE_S)
            self.cluster = Cluster(
                ["127.0.0.1"], self.port, protocol_version=4, execution_profiles={EXEC_PROFILE_DEFAULT: profile}
            )
            try:
                self.session = self.cluster.connect()
                return self
            except Exception:
                self.cluster.shutdown()
                assert self.process.poll() is None, self.log.read_text()[-2000:]
                if time.monotonic() - started > PATIENCE_S:
                    raise
                time.sleep(0.2)

    def __exit__(self, *_):
        self.cluster.shutdown()
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()

    def execute(self, statement):
        return list(self.session.execute(statement))


def cassandra(folder):
    """The data and settings are below `folder`, the program below the target directory of Cargo."""
    port = free_port(3)  # of CQL, of other nodes and of JMX
    command = ["bash", str(ROOT / "scripts/peers/cassandra.sh"), "run", "--port", str(port), "--dir", str(folder)]
    return Server(port, [*command, "--heap", "512M"], folder / "cassandra.log")


def target(folder):
    port = free_port()
    listeners = ["--resp", "127.0.0.1:0", "--cql", f"127.0.0.1:{port}", "--http", ""]
    arguments = [os.environ["MYRIAD"], "serve", *listeners, "--dir", str(folder / "data"), "--log-level", "warn"]
    return Server(port, arguments, folder / "target.log")


def arguments(source_port, target_server, keyspace, *options):
    path = f"/{keyspace}" if keyspace else ""
    source = f"cassandra://127.0.0.1:{source_port}{path}"
    return [os.environ["MYRIAD"], "import", source, "--to", f"127.0.0.1:{target_server.port}", *options]


def imported(source, target_server, keyspace, *options, status=0):
    """Runs an import to its end. Returns what it prints."""
    done = subprocess.run(
        arguments(source.port, target_server, keyspace, *options), capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == status, (done.returncode, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout + done.stderr


def fill_quoted(source):
    create(source, '"Shop"')
    source.execute('CREATE TYPE "Shop"."Item" (name text, sizes frozen<list<int>>)')
    source.execute('CREATE TABLE "Shop"."Order" ("K" int PRIMARY KEY, l list<frozen<"Item">>, s set<text>)')
    source.execute("INSERT INTO \"Shop\".\"Order\" (\"K\", l, s) VALUES (1, [{name: 'a', sizes: [1]}], {'x'})")
    source.execute('CREATE TABLE "Shop".statics (k int, c int, l list<int> static, PRIMARY KEY (k, c))')
    source.execute('INSERT INTO "Shop".statics (k, l) VALUES (1, [1, 2])')


def create(source, keyspace):
    replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    source.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {replication}")


def columns(server, keyspace, table):
    rows = server.execute(
        "SELECT column_name, kind, position, type FROM system_schema.columns"
        f" WHERE keyspace_name = '{keyspace}' AND table_name = '{table}'"
    )
    return sorted(rows)


def contents(server, keyspace):
    """All rows of all tables, with the times of all cells, and the TTLs of single cells."""
    found = {}
    tables = server.execute(f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{keyspace}'")
    for (table,) in tables:
        about = columns(server, keyspace, table)
        selected = []
        for name, kind, _, of in about:
            selected.append(f'"{name}"')
            if kind in ("regular", "static") and of != "counter":
                # The driver cannot decode the null of a field without a value.
                times = "MAXWRITETIME" if of == '"Home"' else "WRITETIME"
                selected.append(f'{times}("{name}")')
                if of.startswith("frozen") or "<" not in of and of != '"Home"':
                    selected.append(f'TTL("{name}")')
        rows = server.execute(f'SELECT {", ".join(selected)} FROM "{keyspace}"."{table}"')
        found[table] = about, sorted(map(plain, rows), key=repr)
    types = server.execute(f"SELECT type_name, field_names FROM system_schema.types WHERE keyspace_name = '{keyspace}'")
    indexes = server.execute(f"SELECT index_name FROM system_schema.indexes WHERE keyspace_name = '{keyspace}'")
    return found, sorted(types), sorted(indexes)


def plain(row):
    """Decimals in keys lose their trailing zeros."""
    return [value.normalize() if isinstance(value, Decimal) else value for value in row]


def is_same(left, right):
    """TTLs differ by the time between two reads."""
    is_ttl = all(type(value) is int and 80_000 < value < 90_000 for value in (left, right))
    return abs(left - right) <= PATIENCE_S if is_ttl else repr(left) == repr(right)


def are_same(left, right):
    return len(left) == len(right) and all(map(is_same, left, right))


def same(left, right):
    (left, *left_rest), (right, *right_rest) = left, right
    assert left_rest == right_rest, (left_rest, right_rest)
    assert left.keys() == right.keys(), (left.keys(), right.keys())
    for table, (about, rows) in left.items():
        others_about, others = right[table]
        assert about == others_about, (table, about, others_about)
        assert len(rows) == len(others), f"{table}: {len(rows)} and {len(others)} rows"
        different = [pair for pair in zip(rows, others) if not are_same(*pair)]
        assert not different, f"{table}: {different[:2]}"


def fill_types(source):
    """Every type, null, empty and set, in cells of different times."""
    create(source, "types")
    for statement in (
        'CREATE TYPE types."Home" (street text, number int)',
        "CREATE TABLE types.simple (k int PRIMARY KEY, a ascii, b bigint, c blob, d boolean, e date, f decimal,"
        " g double, h duration, i float, j inet, l smallint, m text, n time, o timestamp, p timeuuid, q tinyint,"
        ' r uuid, s varint, "Order" int, t frozen<list<int>>, u frozen<"Home">, v tuple<int, text>, w vector<float, 3>)',
        "INSERT INTO types.simple (k) VALUES (1)",
        "INSERT INTO types.simple (k, a, b, c, d, e, f, g, h, i, j, l, m, n, o, p, q, r, s, \"Order\", t, u, v, w)"
        " VALUES (2, 'a', -1, 0x00ff, true, '2026-01-01', 1.50, -0.0, 1mo2d3ns, 1.5, '::1', -5, 'ü', '01:02:03.4',"
        " '2026-01-01 00:00:00Z', 50554d6e-29bb-11e5-b345-feff819cdc9f, 7, 550e8400-e29b-41d4-a716-446655440000,"
        " 123456789012345678901234567890, 3, [1, 2], {street: 'x', number: null}, (1, null), [1, 2, 3])"
        f" USING TIMESTAMP {OLD} AND TTL 86000",
        "INSERT INTO types.simple (k, a, c, m, t) VALUES (3, '', 0x, '', [])",
        f"UPDATE types.simple USING TIMESTAMP {NEW} SET m = 'newer' WHERE k = 2",
        f"UPDATE types.simple USING TIMESTAMP {NEW} AND TTL 85000 SET s = 5 WHERE k = 2",
        f"UPDATE types.simple USING TIMESTAMP {NEW} SET m = 'only a cell' WHERE k = 4",
        "CREATE TABLE types.collections (k text, c decimal, s text static, z set<int> static, l list<int>,"
        ' m map<text, int>, n set<text>, h "Home", v int, PRIMARY KEY (k, c)) WITH CLUSTERING ORDER BY (c DESC)',
        "INSERT INTO types.collections (k, c, s, z, l, m, n, h) VALUES ('a', 1.50, 's', {1, 2}, [1, 2, 1],"
        f" {{'x': 1, 'y': 2}}, {{'', 'n'}}, {{street: 'a', number: 1}}) USING TIMESTAMP {OLD}",
        f"UPDATE types.collections USING TIMESTAMP {NEW} SET l = [0] + l, m['z'] = 3, n = n + {{'o'}}, h.number = 2"
        " WHERE k = 'a' AND c = 1.5",
        f"UPDATE types.collections USING TIMESTAMP {NEW} AND TTL 85000 SET l = l + [9], m['t'] = 4"
        " WHERE k = 'a' AND c = 1.5",
        "UPDATE types.collections SET z = z + {3} WHERE k = 'a'",
        "UPDATE types.collections SET h.street = 'only' WHERE k = 'a' AND c = 2",
        "UPDATE types.collections SET s = 'without rows' WHERE k = 'b'",
        "INSERT INTO types.collections (k, c) VALUES ('c', -1)",
        "CREATE TABLE types.counted (k int, c int, n counter, m counter, PRIMARY KEY (k, c))",
        "UPDATE types.counted SET n = n + 5, m = m - 7 WHERE k = 1 AND c = 1",
        "UPDATE types.counted SET n = n + 0 WHERE k = 1 AND c = 2",
        "CREATE TABLE types.expiring (k int PRIMARY KEY, v text) WITH default_time_to_live = 86000",
        "INSERT INTO types.expiring (k, v) VALUES (1, 'default')",
        "INSERT INTO types.expiring (k, v) VALUES (2, 'never') USING TTL 0",
        "CREATE TABLE types.\"Large\" (k int PRIMARY KEY, v blob)",
        "CREATE INDEX by_v ON types.collections (v)",
    ):
        source.execute(statement)
    large = source.session.prepare('INSERT INTO types."Large" (k, v) VALUES (?, ?)')
    for number in range(6):
        source.session.execute(large, (number, bytes([number]) * (3 << 20)))


def fill_events(source):
    create(source, "shop")
    source.execute("CREATE TABLE shop.events (k int, at int, v text, l list<int>, PRIMARY KEY (k, at))")
    source.execute("CREATE TABLE shop.plain (k int PRIMARY KEY, v text, n int)")
    insert = source.session.prepare("INSERT INTO shop.plain (k, v, n) VALUES (?, ?, ?)")
    rows = [(number, f"value {number}", number) for number in range(EVENTS)]
    execute_concurrent_with_args(source.session, insert, rows, concurrency=200)
    insert = source.session.prepare("INSERT INTO shop.events (k, at, v, l) VALUES (?, ?, ?, ?)")
    # One wide partition, and many small ones.
    rows = [(0 if number % 2 else number, number, "x" * 50, [number, 1]) for number in range(2 * WIDE_ROWS)]
    execute_concurrent_with_args(source.session, insert, rows, concurrency=200)


@test
def every_type_arrives_and_a_second_import_changes_nothing(folder, source):
    with target(folder) as to:
        for _ in range(2):
            assert "the import is complete" in imported(source, to, "types")
            same(contents(to, "types"), contents(source, "types"))
        assert " 0 differences" in imported(source, to, "types", "--verify")
        keyspaces = to.execute("SELECT keyspace_name FROM system_schema.keyspaces")
        assert ("myriad_import",) not in keyspaces, keyspaces


@test
def quoted_names_and_static_lists_arrive(folder, source):
    with target(folder) as to:
        imported(source, to, "Shop")
        same(contents(to, "Shop"), contents(source, "Shop"))
        assert " 0 differences" in imported(source, to, "Shop", "--verify")


@test
def a_set_keeps_the_items_of_the_target(folder, source):
    with target(folder) as to:
        imported(source, to, "Shop")
        to.execute("UPDATE \"Shop\".\"Order\" USING TIMESTAMP 5 SET s = s + {'early'} WHERE \"K\" = 1")
        imported(source, to, "Shop")
        assert set(to.execute('SELECT s FROM "Shop"."Order"')[0][0]) == {"early", "x"}


@test
def a_dropped_table_is_copied_again(folder, source):
    with target(folder) as to:
        process = subprocess.Popen(arguments(source.port, to, "shop"))
        started = time.monotonic()
        while process.poll() is None and ranges(to) < 70:
            assert time.monotonic() - started < PATIENCE_S
            time.sleep(0.01)
        process.kill()
        process.wait()
        to.execute("DROP KEYSPACE shop")
        imported(source, to, "shop")
        same(contents(to, "shop"), contents(source, "shop"))


@test
def differing_types_are_refused(folder, source):
    with target(folder) as to:
        create(to, '"Shop"')
        to.execute('CREATE TYPE "Shop"."Item" (name text, sizes int)')
        to.execute('CREATE TABLE "Shop"."Order" ("K" int PRIMARY KEY, l list<frozen<"Item">>, s set<text>)')
        text = imported(source, to, "Shop", status=1)
        assert "the type Item of the target is another" in text, text


@test
def a_killed_import_continues(folder, source):
    with target(folder) as to:
        log = folder / "import.log"
        kills = 0
        for _ in range(3):
            with open(log, "a") as out:
                process = subprocess.Popen(arguments(source.port, to, "shop"), stdout=out, stderr=out)
            before = ranges(to)
            started = time.monotonic()
            while process.poll() is None and ranges(to) < before + 5:
                assert time.monotonic() - started < PATIENCE_S, log.read_text()
                time.sleep(0.01)
            process.kill()
            # It may end before it is seen to copy.
            kills += process.wait() < 0
        assert kills > 0, log.read_text()[-2000:]
        text = imported(source, to, "shop")
        assert "continuing: " in text, text
        same(contents(to, "shop"), contents(source, "shop"))
        assert " 0 differences" in imported(source, to, "shop", "--verify")


def ranges(server):
    """The number of ranges that were copied; 0 before the import has made its table."""
    try:
        return server.execute("SELECT count(*) FROM myriad_import.ranges")[0][0]
    except Exception:
        return 0


@test
def a_second_import_has_the_writes_of_the_first(folder, source):
    create(source, "live")
    source.execute("CREATE TABLE live.t (k int PRIMARY KEY, v int, m map<int, int>, l list<int>)")
    insert = source.session.prepare("INSERT INTO live.t (k, v, m, l) VALUES (?, ?, ?, ?)")
    rows = [(number, 0, {0: 0}, [0]) for number in range(3_000)]
    execute_concurrent_with_args(source.session, insert, rows, concurrency=200)
    source.execute("INSERT INTO live.t (k, v) VALUES (9999, 0)")
    ended = threading.Event()

    def write():
        number = 0
        while not ended.is_set():
            number += 1
            key = number * 7 % 4_000
            source.execute(f"UPDATE live.t SET v = {number}, m[{number}] = 1, l = l + [{number}] WHERE k = {key}")

    writer = threading.Thread(target=write)
    with target(folder) as to:
        writer.start()
        try:
            imported(source, to, "live")
        finally:
            ended.set()
            writer.join()
        to.execute(f"UPDATE live.t USING TIMESTAMP {2**62} SET v = -1 WHERE k = 9999")
        imported(source, to, "live")
        assert to.execute("SELECT v FROM live.t WHERE k = 9999") == [(-1,)]
        text = imported(source, to, "live", "--verify", status=1)
        differences = [line for line in text.splitlines() if line.startswith("live.t")]
        values = [line for line in differences if not line.endswith(": l was written at another time")]
        assert values == ["live.t (0x0000270f): v has another value"], values
        (_, (about, rows)), = contents(to, "live")[0].items()
        items = {key: value for key, value in source.execute("SELECT k, l FROM live.t")}
        assert {key: value for key, value in to.execute("SELECT k, l FROM live.t")} == items
        assert len(rows) == len(items)


@test
def differences_are_found(folder, source):
    with target(folder) as to:
        imported(source, to, "types")
        to.execute("DELETE FROM types.simple WHERE k = 1")
        to.execute("INSERT INTO types.simple (k) VALUES (77)")
        to.execute("UPDATE types.collections SET h.number = 9 WHERE k = 'a' AND c = 1.5")
        to.execute("UPDATE types.counted SET n = n + 1 WHERE k = 1 AND c = 1")
        to.execute("INSERT INTO types.collections (k, c) VALUES ('c', 5)")
        text = imported(source, to, "types", "--verify", status=1)
        for expected in (
            "types.simple (0x00000001): the target does not have it",
            "types.simple (0x0000004d): only the target has it",
            "h has another value",
            "n has another value",
            "0x0000000005): only the target has it",
            " 5 differences",
        ):
            assert expected in text, text


@test
def what_cannot_be_imported_is_reported(folder, source):
    create(source, "odd")
    source.execute("CREATE TABLE odd.other (k int PRIMARY KEY, v int)")
    source.execute("INSERT INTO odd.other (k, v) VALUES (1, 2)")
    source.execute("CREATE TABLE odd.kept (k int PRIMARY KEY, v int)")
    source.execute("INSERT INTO odd.kept (k, v) VALUES (1, 2)")
    with target(folder) as to:
        create(to, "odd")
        to.execute("CREATE TABLE odd.other (k int PRIMARY KEY, v text)")
        text = imported(source, to, "odd", status=1)
        assert "odd.other: the table of the target is another" in text and "--partial" in text, text
        text = imported(source, to, "odd", "--partial")
        assert "1 objects were not imported" in text, text
        assert to.execute("SELECT v FROM odd.kept") == [(2,)]
        assert to.execute("SELECT v FROM odd.other") == []
        text = imported(source, to, "nowhere", status=1)
        assert "the source has no keyspace nowhere" in text, text


def frame(opcode, body, announced=None):
    return b"\x84\x00\x00\x00" + bytes([opcode]) + (announced or len(body)).to_bytes(4, "big") + body


READY = frame(2, b"")


def rows_of(*rows):
    """A result with columns of text."""
    columns = b"".join(b"\0\1c\0\x0d" for _ in rows[0])
    cells = b"".join(len(cell).to_bytes(4, "big") + cell for row in rows for cell in row)
    counts = [len(rows[0]).to_bytes(4, "big"), len(rows).to_bytes(4, "big")]
    return frame(8, b"\0\0\0\2\0\0\0\1" + counts[0] + b"\0\1k\0\1t" + columns + counts[1] + cells)


NAMED = READY + rows_of([b"Murmur3Partitioner"]) + rows_of([b"shop"])
HOSTILE = [
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", "malformed message"),
    (b"\x04" + READY[1:], "Wrong protocol direction"),
    (b"\x83" + READY[1:], "malformed message"),
    (frame(2, b"", 2**31), "exceeds maximum allowed length"),
    (frame(0, b"\0\0\x01\0\0\x05wrong"), "the source answered: wrong"),
    (frame(3, b"\0\1x"), "the source requires a password"),
    (frame(8, b"\0\0\0\1"), "unexpected response"),
    (READY + frame(8, b"\0\0\0\2\0\0\0\4\x7f\xff\xff\xff\x7f\xff\xff\xff"), "malformed message"),
    (READY + frame(8, b"\0\0\0\2\0\0\0\4\0\0\0\0\x7f\xff\xff\xff"), "malformed message"),
    (READY + frame(8, b"\0\0\0\2\0\0\0\4\0\0\0\1\0\0\0\1\0\0\0\x06Random"), "the partitioner of the source"),
    (NAMED + rows_of([b"shop", b"table", b"t", b"DROP KEYSPACE myriad_import"]), "another statement"),
    (NAMED + rows_of([b"shop", b"table", b"t", b"CREATE TABLE other.t (k int PRIMARY KEY)"]), "another statement"),
    (NAMED + rows_of([b"other", b"table", b"t", b"CREATE TABLE other.t (k int PRIMARY KEY)"]), "an object of other"),
    (NAMED + rows_of([b"shop", b"table", b"", b""]), "without its name"),
]


@test
def hostile_sources_are_refused(folder, source):
    with target(folder) as to:
        for answer, expected in HOSTILE:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                threading.Thread(target=answer_all, args=(listener, answer), daemon=True).start()
                command = arguments(listener.getsockname()[1], to, None)
                done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
            assert done.returncode == 1, (answer, done)
            assert expected in done.stderr, (answer, expected, done.stderr)


def answer_all(listener, answer):
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            connection.sendall(answer)


def main():
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as place:
        place = pathlib.Path(place)
        (place / "source").mkdir()
        with cassandra(place / "source") as source:
            fill_types(source)
            fill_events(source)
            fill_quoted(source)

            def run_in_folder(body):
                folder = place / body.__name__
                folder.mkdir()
                body(folder, source)

            return run(run_in_folder)


sys.exit(main())
