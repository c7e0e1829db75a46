"""Data in RDB files: from redis-server and Valkey into Myriad, and back."""

import subprocess
import sys
import threading
import time

import redis

import harness
from harness import in_folder, test
from peers import (
    BATCH,
    PATIENCE_S,
    SMALL_KEYS,
    contents,
    fill,
    loading,
    myriad,
    peer,
    redis_cli,
    run,
    same,
    sees,
    valkey_program,
)


def both_ways(program, folder, *options):
    """Its file becomes a directory of Myriad, and that becomes a file which it loads."""
    with peer(program, folder, *options) as server:
        fill(server)
        wanted = contents(server)
        server.client().save()
    assert len(wanted) > SMALL_KEYS
    run("import", folder / "dump.rdb", "--dir", folder / "data")
    sees(myriad(folder / "data"), wanted)
    run("export", folder / "data", folder / "back.rdb")
    sees(loading(program, folder / "back.rdb"), wanted)


@test
def redis_and_back(folder):
    both_ways("redis-server", folder)


@test
def redis_with_other_encodings_and_back(folder):
    limits = ("hash-max-listpack-entries", "zset-max-listpack-entries", "set-max-intset-entries")
    options = [word for name in limits for word in (f"--{name}", "1")]
    both_ways("redis-server", folder, *options, "--rdbcompression", "no", "--list-max-listpack-size", "2")


@test
def valkey_and_back(folder):
    both_ways(valkey_program(), folder)


@test
def data_of_myriad_to_both(folder):
    with myriad(folder / "data") as server:
        fill(server)
        wanted = contents(server)
    run("export", folder / "data", folder / "dump.rdb")
    for program in ("redis-server", valkey_program()):
        sees(loading(program, folder / "dump.rdb"), wanted)


@test
def a_running_server_to_both(folder):
    with myriad(folder / "data") as server:
        fill(server)
        wanted = contents(server)
        status, text = redis_cli(server, "--rdb", folder / "dump.rdb")
        assert status == 0, text
        status, text = redis_cli(server, "--functions-rdb", folder / "functions.rdb")
        assert status == 0, text
    for program in ("redis-server", valkey_program()):
        sees(loading(program, folder / "dump.rdb"), wanted)
        only = {"libraries": wanted["libraries"]}
        sees(loading(program, folder / "functions.rdb"), only)
    run("import", folder / "dump.rdb", "--dir", folder / "imported")
    sees(myriad(folder / "imported"), wanted)


@test
def a_file_made_under_load(folder):
    """Keys that do not change are in it once, and all others in a state that they had."""
    still, rounds = 20_000, 200
    begun, ended = threading.Event(), threading.Event()

    def write(address):
        client = redis.Redis(*address, protocol=2)
        number = 0
        while not ended.is_set():
            number += 1
            with client.pipeline(transaction=False) as batch:
                for key in range(rounds):
                    batch.set(f"busy:{key}", f"{number}:{number}")
                    batch.delete(f"new:{number - 2}:{key}")
                    batch.rpush(f"new:{number}:{key}", number, number)
                batch.execute()
            begun.set()
        client.close()

    with myriad(folder / "data") as server:
        client = server.client()
        with client.pipeline(transaction=False) as batch:
            for key in range(still):
                batch.set(f"still:{key}", "x" * 500)
            batch.execute()
        writer = threading.Thread(target=write, args=(server.address,))
        writer.start()
        assert begun.wait(60), "the writer has not begun"
        status, text = redis_cli(server, "--rdb", folder / "dump.rdb")
        ended.set()
        writer.join()
        assert status == 0, text
    with peer("redis-server", folder) as server:
        client = server.client()
        found = [key for key in client.scan_iter(match="still:*", count=1_000)]
        assert len(found) == still, len(found)
        for key in range(rounds):
            first, _, second = client.get(f"busy:{key}").partition(b":")
            assert first == second, (first, second)
        for key in client.scan_iter(match="new:*", count=1_000):
            number = key.split(b":")[1]
            assert client.lrange(key, 0, -1) == [number, number], key


def without_times(found):
    """The keys of database 0: MIGRATE sends how long they live, not until when."""
    return {key: (value[0], value[1] > 0, value[2]) for key, value in found.items() if key[0] == 0}


@test
def migrate_of_redis_sends_keys_here(folder):
    with peer("redis-server", folder) as source, myriad(folder / "data") as target:
        fill(source)
        wanted = without_times(contents(source))
        keys = [key for _, key in wanted]
        for start in range(0, len(keys), BATCH):
            source.client().migrate(*target.address, keys[start : start + BATCH], 0, PATIENCE_S * 1000)
        assert source.client().dbsize() == 0
        same(without_times(contents(target)), wanted)


@test
def a_replica_is_refused(folder):
    with myriad(folder / "data") as server:
        with peer("redis-server", folder) as replica:
            replica.client().replicaof(*server.address)
            [log] = folder.glob("*.log")
            started = time.monotonic()
            while "are sent only to servers of this kind" not in log.read_text():
                assert time.monotonic() - started < PATIENCE_S, log.read_text()
                time.sleep(0.1)
        assert server.client().ping()


@test
def over_a_unix_socket(folder):
    path = folder / "redis.sock"
    with myriad(folder / "data", "--unixsocket", str(path), "--unixsocketperm", "700") as server:
        assert server.socket == str(path)
        client = redis.Redis(unix_socket_path=str(path), protocol=3)
        client.set("key", "over the socket")
        assert client.get("key") == b"over the socket"
        info = client.client_info()
        assert info["addr"] == info["laddr"] == f"{path}:0", info
        assert info["flags"] == "U", info
        client.close()
        command = ["redis-cli", "-s", str(path), "GET", "key"]
        assert subprocess.run(command, capture_output=True, text=True).stdout == "over the socket\n"
        command = ["redis-cli", "-s", str(path), "--rdb", str(folder / "dump.rdb")]
        assert subprocess.run(command, capture_output=True).returncode == 0
    assert not path.exists()
    sees(peer("redis-server", folder), {"libraries": [], (0, b"key"): (b"string", -1, b"over the socket")})


sys.exit(harness.run(in_folder))
