#!/usr/bin/env python3
"""Compares Myriad with Debian's redis-server: server CPU per operation, interleaved.

Both servers run pinned to one core, the load (redis-benchmark) to another. Every cell is measured
in turn on both (A B A B ...), several rounds; what counts is the ratio within a round, of which the
median and the spread are reported. CPU time is the server process's own (utime + stime of all its
threads, from /proc), so that the load's speed does not matter.

Usage: benchmarks/redis-compare.py [--rounds N] [--rows cpu,sync,reads,cost,connections,memory]
       [--myriad PATH] [--out FILE.csv]

Needs: target/release/myriad, redis-server, redis-benchmark, taskset.
"""

import argparse
import csv
import os
import pathlib
import platform
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

SERVER_CORE, LOAD_CORE = "0", "1"
KEYS = 1_000_000
VALUE_BYTES = 80
TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    """One server process on a free loopback port, with a directory of its own."""

    def __init__(self, name, command, port, directory):
        self.name, self.port, self.directory = name, port, directory
        self.log = open(os.path.join(directory, "output.log"), "wb")
        self.process = subprocess.Popen(
            ["taskset", "-c", SERVER_CORE, *command],
            stdout=self.log,
            stderr=self.log,
            cwd=directory,
        )
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), 0.2).close()
                return
            except OSError:
                time.sleep(0.05)
        raise SystemExit(f"{name} did not start; see {directory}/output.log")

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def rss_bytes(self):
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_redis(scratch, sync):
    port, directory = free_port(), tempfile.mkdtemp(prefix="redis-", dir=scratch)
    durable = ["--appendonly", "yes", "--appendfsync", "always"] if sync else ["--appendonly", "no"]
    command = ["redis-server", "--port", str(port), "--save", "", "--dir", directory]
    # The log would be rewritten in a fork during a long run: that is another experiment.
    command += [*durable, "--auto-aof-rewrite-percentage", "0", "--maxclients", "20000"]
    return Server("redis", command, port, directory)


def start_myriad(binary, scratch, durability):
    port, directory = free_port(), tempfile.mkdtemp(prefix="myriad-", dir=scratch)
    command = [binary, "serve", "--dir", directory, "--resp", f"127.0.0.1:{port}"]
    command += ["--reactors", "1", "--durability", durability, "--maxclients", "20000"]
    command += ["--snapshot-log-bytes", "0"]
    return Server("myriad", command, port, directory)


def load(server, test, connections, pipeline, operations, keys=KEYS):
    """Runs redis-benchmark; returns (operations per second, server CPU per operation in us)."""
    command = ["taskset", "-c", LOAD_CORE, "redis-benchmark", "-p", str(server.port)]
    command += ["-c", str(connections), "-P", str(pipeline), "-n", str(operations)]
    command += ["-d", str(VALUE_BYTES), "-r", str(keys), "-t", test, "--csv"]
    before_cpu, before = server.cpu_s(), time.monotonic()
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    elapsed, cpu = time.monotonic() - before, server.cpu_s() - before_cpu
    rows = list(csv.reader(output.splitlines()))
    if len(rows) != 2 or rows[1][0].lower() != test:
        raise SystemExit(f"unexpected output of redis-benchmark: {output!r}")
    del elapsed
    return float(rows[1][1]), cpu / operations * 1e6


def fill(server, count=KEYS):
    """About (1 - 1/e^3) of the keys: random SETs as redis-benchmark draws them."""
    load(server, "set", 50, 64, 3 * count)


class Report:
    def __init__(self, path):
        self.rows, self.path = [], path

    def add(self, row, cell, metric, target, pairs, better):
        """pairs: [(myriad, redis)]; the ratio is myriad / redis."""
        ratios = [ours / theirs for ours, theirs in pairs]
        median = statistics.median(ratios)
        held = median <= target if better == "lower" else median >= target
        entry = {
            "row": row,
            "cell": cell,
            "metric": metric,
            "myriad": statistics.median(ours for ours, _ in pairs),
            "redis": statistics.median(theirs for _, theirs in pairs),
            "ratio": median,
            "ratio_min": min(ratios),
            "ratio_max": max(ratios),
            "target": target,
            "held": "yes" if held else "NO",
            "rounds": len(pairs),
        }
        self.rows.append(entry)
        print(
            f"{row:11} {cell:34} {metric:16} myriad {entry['myriad']:12.3f}  redis "
            f"{entry['redis']:12.3f}  ratio {median:6.3f} [{min(ratios):.3f} .. {max(ratios):.3f}]  "
            f"target {'<=' if better == 'lower' else '>='} {target}  {entry['held']}",
            flush=True,
        )

    def write(self):
        if not self.path or not self.rows:
            return
        with open(self.path, "w", newline="", encoding="ascii") as out:
            out.write(f"# {platform.processor() or platform.machine()}, {cpu_model()}, ")
            out.write(f"Linux {platform.release()}, {time.strftime('%Y-%m-%d')}\n")
            writer = csv.DictWriter(out, self.rows[0].keys())
            writer.writeheader()
            for row in self.rows:
                writer.writerow({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()})


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="ascii").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown processor"


def interleaved(rounds, ours, theirs):
    """Measures both in turn, changing who goes first."""
    pairs = []
    for number in range(rounds):
        if number % 2 == 0:
            pairs.append((ours(), theirs()))
        else:
            second = theirs()
            pairs.append((ours(), second))
    return pairs


def rows_cpu(report, options, scratch):
    """Rows 1 to 3: server CPU per operation without an fsync per reply."""
    targets = {1: 0.92, 16: 0.45, 64: 0.28}
    operations = {1: 300_000, 16: 2_000_000, 64: 4_000_000}
    ours, theirs = start_myriad(options.myriad, scratch, "never"), start_redis(scratch, False)
    try:
        fill(ours)
        fill(theirs)
        for pipeline, target in targets.items():
            for test in ("set", "get"):
                run = lambda server: load(server, test, 50, pipeline, operations[pipeline])[1]
                pairs = interleaved(options.rounds, lambda: run(ours), lambda: run(theirs))
                cell = f"{test} pipeline={pipeline} connections=50"
                report.add("cpu", cell, "us CPU per op", target, pairs, "lower")
    finally:
        ours.stop()
        theirs.stop()


def rows_sync(report, options, scratch):
    """Row 4: an fsync before every reply."""
    cells = {1: (1.5, 3_000), 64: (3.0, 150_000), 512: (3.0, 300_000)}
    ours, theirs = start_myriad(options.myriad, scratch, "always"), start_redis(scratch, True)
    try:
        for connections, (target, operations) in cells.items():
            run = lambda server: load(server, "set", connections, 1, operations)[0]
            pairs = interleaved(options.rounds, lambda: run(ours), lambda: run(theirs))
            report.add("sync", f"set connections={connections}", "ops per s", target, pairs, "higher")
    finally:
        ours.stop()
        theirs.stop()


def rows_reads(report, options, scratch):
    """GETs beside SETs that wait for the disk: 50 readers, 64 writers."""
    ours, theirs = start_myriad(options.myriad, scratch, "always"), start_redis(scratch, True)

    def reads(server):
        writer = ["taskset", "-c", LOAD_CORE, "redis-benchmark", "-p", str(server.port), "-c", "64"]
        writer += ["-n", "100000000", "-d", str(VALUE_BYTES), "-r", str(KEYS), "-t", "set", "-q"]
        beside = subprocess.Popen(writer, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(0.5)
            operations = 20_000 if server.name == "redis" else 100_000
            return load(server, "get", 50, 1, operations)[0]
        finally:
            beside.kill()
            beside.wait()

    try:
        pairs = interleaved(options.rounds, lambda: reads(ours), lambda: reads(theirs))
        report.add("reads", "get beside 64 durable writers", "ops per s", 20.0, pairs, "higher")
    finally:
        ours.stop()
        theirs.stop()


def rows_cost(report, options, scratch):
    """What durability costs Myriad itself: 512 connections, pipeline 16."""
    always = start_myriad(options.myriad, scratch, "always")
    never = start_myriad(options.myriad, scratch, "never")
    try:
        run = lambda server: load(server, "set", 512, 16, 3_000_000)[0]
        pairs = interleaved(options.rounds, lambda: run(always), lambda: run(never))
        cell = "set connections=512 pipeline=16"
        report.add("cost", f"{cell} always/never", "ops per s", 0.70, pairs, "higher")
    finally:
        always.stop()
        never.stop()


def rows_connections(report, options, scratch):
    """10,000 connections against 50, on Myriad."""
    ours = start_myriad(options.myriad, scratch, "never")
    try:
        fill(ours)
        run = lambda count: load(ours, "get", count, 1, 600_000)[0]
        pairs = interleaved(options.rounds, lambda: run(10_000), lambda: run(50))
        report.add("connections", "get 10000/50 connections", "ops per s", 0.9, pairs, "higher")
    finally:
        ours.stop()


def rows_memory(report, options, scratch):
    """Resident memory per key: 10 million keys of 16 bytes with values of 80."""
    count = 10_000_000

    def per_key(server):
        empty = server.rss_bytes()
        keys = random.Random(1).sample(range(10**16), count)
        with socket.create_connection(("127.0.0.1", server.port)) as peer:
            reader = peer.makefile("rb")
            value = b"v" * VALUE_BYTES
            for start in range(0, count, 1000):
                batch = keys[start : start + 1000]
                peer.sendall(
                    b"".join(
                        b"*3\r\n$3\r\nSET\r\n$16\r\n%016d\r\n$%d\r\n%s\r\n" % (key, len(value), value)
                        for key in batch
                    )
                )
                for _ in batch:
                    if reader.readline() != b"+OK\r\n":
                        raise SystemExit("a SET failed")
        return (server.rss_bytes() - empty) / count

    ours = start_myriad(options.myriad, scratch, "never")
    mine = per_key(ours)
    ours.stop()
    theirs = start_redis(scratch, False)
    peer = per_key(theirs)
    theirs.stop()
    report.add("memory", "16-byte key, 80-byte value, 10 M", "bytes per key", 0.8, [(mine, peer)], "lower")


ROWS = {
    "cpu": rows_cpu,
    "sync": rows_sync,
    "reads": rows_reads,
    "cost": rows_cost,
    "connections": rows_connections,
    "memory": rows_memory,
}


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--myriad", default=str(root / "target/release/myriad"))
    parser.add_argument("--out", default="")
    parser.add_argument("--scratch", default=str(root / "target"), help="where data directories go")
    options = parser.parse_args()
    unknown = set(options.rows.split(",")) - set(ROWS)
    if unknown:
        parser.error(f"unknown rows: {', '.join(sorted(unknown))}")
    report = Report(options.out)
    for row in options.rows.split(","):
        ROWS[row](report, options, options.scratch)
    report.write()
    sys.exit(0 if all(row["held"] == "yes" for row in report.rows) else 1)


if __name__ == "__main__":
    main()
