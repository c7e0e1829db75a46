"""Prometheus' own text parser, curl and bare sockets against HTTP_ADDR."""

import json
import os
import socket
import subprocess
import sys
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from harness import equal, run, test

ADDRESS = os.environ["HTTP_ADDR"]
HOST, PORT = ADDRESS.rsplit(":", 1)
COMMANDS = 500
# A busy machine may halt the server or this process for seconds.
PATIENCE_S = 60
UNITS = ("_seconds", "_bytes", "_ratio", "_total", "_info")
# Counts of things, which have no unit.
COUNTS = {
    "myriad_reactor_connections",
    "myriad_clients",
    "myriad_clients_max",
    "myriad_is_replica",
    "myriad_master_link_up",
    "myriad_replicas",
    "myriad_replica_online",
    "myriad_hub_peer_up",
    "myriad_keys",
    "myriad_keys_expiring",
    "myriad_snapshot_running",
    "myriad_snapshot_failed",
    "myriad_log_failed",
    "myriad_log_full",
    "myriad_log_segments",
    "myriad_log_group_records",
    "myriad_cql_prepared_statements",
    "myriad_blocked_clients",
    "myriad_monitor_clients",
    "myriad_pubsub_clients",
}


def get(path):
    with urllib.request.urlopen(f"http://{ADDRESS}{path}", timeout=PATIENCE_S) as response:
        return response.read().decode()


def families():
    return list(text_string_to_metric_families(get("/metrics")))


def samples(all_families):
    """Every sample by its name and labels."""
    found = {}
    for family in all_families:
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found


@test
def families_have_help_type_and_unit():
    known = families()
    names = [family.name for family in known]
    equal(len(names), len(set(names)))
    for family in known:
        assert family.documentation, family.name
        assert family.type in ("counter", "gauge", "histogram"), (family.name, family.type)
        # The parser cuts `_total` off.
        is_fine = family.type == "counter" or family.name.endswith(UNITS) or family.name in COUNTS
        assert is_fine, f"{family.name} says no unit"
        assert family.samples or family.type != "histogram", family.name


@test
def counters_count_what_was_done():
    before = samples(families())
    body = json.dumps([["SET", f"metrics:{index}", index] for index in range(COMMANDS)]).encode()
    request = urllib.request.Request(f"http://{ADDRESS}/pipeline", data=body, method="POST")
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        equal(len(json.loads(response.read())), COMMANDS)
    after = samples(families())

    def grown(name, **labels):
        key = (name, tuple(sorted(labels.items())))
        return after[key] - before.get(key, 0)

    equal(grown("myriad_commands_total", command="set"), COMMANDS)
    equal(grown("myriad_commands_total", command="http|pipeline"), 1)
    equal(grown("myriad_keys", database="0"), COMMANDS)
    # The log adds marks of its own.
    assert grown("myriad_log_records_total") >= COMMANDS
    assert grown("myriad_log_sync_seconds_count") >= 1
    for (name, labels), value in before.items():
        if name.endswith(("_total", "_count", "_sum", "_bucket")):
            assert after[(name, labels)] >= value, f"{name} {labels} has shrunk"
    reactors = {dict(labels)["reactor"] for name, labels in after if name == "myriad_reactor_turns_total"}
    equal(reactors, {"r00", "r01", "spare"})


@test
def histograms_are_cumulative():
    for family in families():
        if family.type != "histogram":
            continue
        rows = {}
        for sample in family.samples:
            labels = dict(sample.labels)
            bound = labels.pop("le", None)
            row = rows.setdefault(tuple(sorted(labels.items())), {"buckets": []})
            if bound is None:
                row[sample.name.removeprefix(family.name)] = sample.value
            else:
                row["buckets"].append((float(bound), sample.value))
        for labels, row in rows.items():
            bounds = [bound for bound, _ in row["buckets"]]
            counts = [count for _, count in row["buckets"]]
            equal(bounds, sorted(set(bounds)))
            equal(counts, sorted(counts))
            equal(bounds[-1], float("inf"))
            equal(counts[-1], row["_count"])
            assert row["_sum"] >= 0, (family.name, labels)


@test
def health_is_told():
    equal(get("/healthz"), "ok\n")
    equal(json.loads(get("/readyz")), {"status": "ready"})


@test
def curl_reads_and_writes():
    def curl(*arguments):
        done = subprocess.run(["curl", "-sS", "-m", str(PATIENCE_S), *arguments], capture_output=True, check=True)
        return done.stdout.decode()

    base = f"http://{ADDRESS}"
    equal(curl("-d", "a value", f"{base}/set/curl?EX=100"), '{"result":"OK"}')
    equal(curl(f"{base}/get/curl"), '{"result":"a value"}')
    # A body of more than a kilobyte: curl waits for 100 Continue if the header requests it.
    body = "x" * 100_000
    put = ["-X", "PUT", "-H", "Expect: 100-continue", "--data-binary", body, f"{base}/kv/curl"]
    equal(curl("-o", "/dev/null", "-w", "%{http_code}", *put), "204")
    equal(curl(f"{base}/kv/curl"), body)
    equal(curl("-I", "-o", "/dev/null", "-w", "%{http_code}", f"{base}/kv/curl"), "200")
    chunked = ["-H", "Transfer-Encoding: chunked", "-d", "[[\"DEL\",\"curl\"],[\"GET\",\"curl\"]]"]
    equal(curl(*chunked, f"{base}/pipeline"), '[{"result":1},{"result":null}]')
    equal(curl("--http1.0", f"{base}/ping"), '{"result":"PONG"}')


@test
def pipelined_requests_are_answered_in_order():
    count = 200
    with socket.create_connection((HOST, int(PORT)), timeout=PATIENCE_S) as client:
        for index in range(count):
            client.sendall(f"GET /echo/{index} HTTP/1.1\r\nHost: {ADDRESS}\r\n\r\n".encode())
        client.sendall(f"GET /set/last/1 HTTP/1.1\r\nHost: {ADDRESS}\r\nConnection: close\r\n\r\n".encode())
        received = b""
        while chunk := client.recv(65536):
            received += chunk
    bodies = [part.split(b"\r\n\r\n", 1)[1] for part in received.split(b"HTTP/1.1 200 OK")[1:]]
    equal(bodies, [b'{"result":"%d"}' % index for index in range(count)] + [b'{"result":"OK"}'])


get("/flushall")
status = run()
get("/flushall")
sys.exit(status)
