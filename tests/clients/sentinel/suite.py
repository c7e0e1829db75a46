"""Redis Sentinel, unchanged, watches a master and its replicas, and fails over while clients write."""

import functools
import os
import signal
import subprocess
import sys
import threading
import time

import redis
from redis.sentinel import Sentinel

import harness
from harness import in_folder, run, test
from ports import free_port

# A busy machine may halt a process for longer than the seconds of the defaults.
PATIENCE_S = 90
NAME = "main"
SENTINELS = 3
WRITERS = 4
# Sentinel takes a master for lost after this time. Its other times follow from it.
DOWN_MS = 1500

wait_for = functools.partial(harness.wait_for, errors=redis.RedisError)


class Process:
    """A server that answers PING, ended with the object."""

    def __init__(self, arguments, port, log):
        self.port = port
        self.output = open(log, "ab")
        self.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.output)
        self.client = redis.Redis("127.0.0.1", port, socket_timeout=PATIENCE_S, protocol=2, decode_responses=True)
        wait_for(self.client.ping, f"{arguments[0]} does not start")

    def end(self):
        self.client.close()
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self.output.close()


class Group:
    """A master, two replicas, and the Sentinels that watch them."""

    def __init__(self, folder):
        self.folder = folder
        self.servers = {}
        self.sentinels = []

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self):
        first = free_port(3)
        ports = [first, first + 1, first + 2]
        for port in ports:
            self.start_server(port, None if port == ports[0] else ports[0])
        for _ in range(SENTINELS):
            self.start_sentinel(ports[0])
        view = self.sentinels[0].client
        state = lambda: view.sentinel_master(NAME)
        wait_for(lambda: state()["num-slaves"] == 2, "Sentinel does not find the replicas")
        wait_for(lambda: state()["num-other-sentinels"] == SENTINELS - 1, "Sentinels do not meet")
        usable = lambda slave: not slave["is_disconnected"] and slave["master-link-status"] == "ok"
        wait_for(lambda: all(map(usable, view.sentinel_slaves(NAME))), "Sentinel finds no usable replica")

    def __exit__(self, *_):
        for process in [*self.sentinels, *self.servers.values()]:
            process.end()

    def start_server(self, port, master):
        follow = ["--replicaof", f"127.0.0.1 {master}"] if master else []
        directory = self.folder / str(port)
        program = [os.environ["MYRIAD"], "serve", "--resp", f"127.0.0.1:{port}", "--dir", str(directory)]
        log = self.folder / f"{port}.log"
        self.servers[port] = Process([*program, "--reactors", "2", *follow], port, log)

    def start_sentinel(self, master):
        port = free_port()
        directory = self.folder / f"sentinel-{port}"
        directory.mkdir()
        file = directory / "sentinel.conf"
        lines = [
            f"port {port}",
            "bind 127.0.0.1",
            f"dir {directory}",
            f"sentinel monitor {NAME} 127.0.0.1 {master} 2",
            f"sentinel down-after-milliseconds {NAME} {DOWN_MS}",
            f"sentinel failover-timeout {NAME} 20000",
            f"sentinel parallel-syncs {NAME} 2",
        ]
        file.write_text("\n".join(lines) + "\n")
        log = self.folder / f"sentinel-{port}.log"
        self.sentinels.append(Process(["redis-server", str(file), "--sentinel"], port, log))

    def watcher(self):
        places = [("127.0.0.1", sentinel.port) for sentinel in self.sentinels]
        return Sentinel(places, socket_timeout=5)

    def master(self):
        return self.watcher().discover_master(NAME)[1]

    def logs(self):
        return "\n".join(f"== {log.name}\n{log.read_text()[-3000:]}" for log in self.folder.glob("*.log"))


class Writer(threading.Thread):
    """Sets a key to growing numbers, at the master that Sentinel names."""

    def __init__(self, group, number, over):
        super().__init__()
        self.key, self.over = f"writer-{number}", over
        self.group = group
        self.acknowledged = 0
        self.longest_pause_s = 0
        self.unexpected = None

    def run(self):
        try:
            self.write()
        except Exception as error:
            self.unexpected = error

    def write(self):
        # Two connections could use different masters: SET follows on that of CLIENT.
        client = self.group.watcher().master_for(NAME, socket_timeout=5, max_connections=1)
        number, last = 0, time.monotonic()
        while not self.over.is_set():
            number += 1
            try:
                pipeline = client.pipeline(transaction=False)
                pipeline.execute_command("CLIENT", "DURABILITY", "replicated")
                pipeline.set(self.key, number)
                pipeline.execute()
            except redis.RedisError:
                time.sleep(0.02)
                continue
            now = time.monotonic()
            self.longest_pause_s = max(self.longest_pause_s, now - last)
            self.acknowledged, last = number, now


def fail_over_under_load(group, lose_master):
    """Returns the old master's port."""
    over = threading.Event()
    writers = [Writer(group, number, over) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    try:
        wait_for(lambda: all(writer.acknowledged > 50 for writer in writers), "writers do not begin")
        before = group.master()
        lose_master(before)
        wait_for(lambda: (port := group.master()) != before and port, "no failover")
        seen = [writer.acknowledged for writer in writers]
        grow = lambda: all(writer.acknowledged > old + 50 for writer, old in zip(writers, seen))
        wait_for(grow, "clients do not find the new master")
    finally:
        over.set()
        for writer in writers:
            writer.join(PATIENCE_S)
    assert not any(writer.unexpected for writer in writers), [writer.unexpected for writer in writers]
    for writer in writers:
        found = int(group.servers[group.master()].client.get(writer.key))
        assert found >= writer.acknowledged, f"{writer.key}: {found} is older than {writer.acknowledged}"
    print(f"  longest pause of a client: {max(writer.longest_pause_s for writer in writers):.1f} s")
    return before


def follows(group, port, master):
    info = group.servers[port].client.info("replication")
    return (info["role"], info.get("master_port"), info.get("master_link_status")) == ("slave", master, "up")


def all_follow(group):
    """A Sentinel whose own disk or processor pauses may replace the new master, too."""

    def followed():
        master = group.master()
        others = [port for port in group.servers if port != master]
        return all(follows(group, port, master) for port in others) and (master, others)

    master, others = wait_for(followed, "servers do not follow the master")
    numbers = [f"writer-{number}" for number in range(WRITERS)]
    wanted = group.servers[master].client.mget(numbers)
    for port in others:
        wait_for(lambda: group.servers[port].client.mget(numbers) == wanted, "a replica differs")


@test
def a_killed_master_is_replaced_and_returns_as_a_replica(folder):
    with Group(folder) as group:
        try:
            before = fail_over_under_load(group, lambda port: group.servers[port].end())
            group.start_server(before, None)
            all_follow(group)
        except BaseException:
            print(group.logs())
            raise


@test
def a_halted_master_is_replaced_and_returns_as_a_replica(folder):
    with Group(folder) as group:
        try:
            halt = lambda port: group.servers[port].process.send_signal(signal.SIGSTOP)
            before = fail_over_under_load(group, halt)
            group.servers[before].process.send_signal(signal.SIGCONT)
            all_follow(group)
        except BaseException:
            print(group.logs())
            raise


@test
def a_failover_on_request(folder):
    with Group(folder) as group:
        try:
            request = lambda _: group.sentinels[0].client.execute_command("SENTINEL", "FAILOVER", NAME)
            fail_over_under_load(group, request)
            all_follow(group)
        except BaseException:
            print(group.logs())
            raise


sys.exit(run(in_folder))
