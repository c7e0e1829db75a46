"""The dashboards, the rules, redis_exporter and RedisInsight's commands against real servers."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import promql_parser
import redis
import yaml

from collector import Collector
from harness import run, test
from servers import PATIENCE_S, Process, Prometheus, Server, WebServer, certificate, fetch, free_port, load, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[3]
RULES = sorted((ROOT / "packages/prometheus").glob("*.rules.yml"))
DASHBOARDS = sorted((ROOT / "packages/grafana").glob("*.json"))
COMPARISONS = (">", "<", ">=", "<=", "==", "!=")


def parts_of(expression):
    """An expression and all expressions within it."""
    yield expression
    for name in ("lhs", "rhs", "expr", "param", "vector_selector"):
        if (inner := getattr(expression, name, None)) is not None:
            yield from parts_of(inner)
    for inner in getattr(expression, "args", []):
        yield from parts_of(inner)


def selectors_of(expression):
    return [part for part in parts_of(expression) if isinstance(part, promql_parser.VectorSelector)]


def check_expression(prometheus, text):
    """Each selector has series, and these have every label by which they are grouped."""
    expression = promql_parser.parse(text)
    selectors = selectors_of(expression)
    assert selectors, f"{text} reads no metric"
    for selector in selectors:
        assert prometheus.query(str(selector)), f"{text}: no series {selector}"
    for part in parts_of(expression):
        modifier = getattr(part, "modifier", None)
        if isinstance(part, promql_parser.AggregateExpr) and modifier is not None:
            series = [one for selector in selectors_of(part.expr) for one in prometheus.query(str(selector))]
            for label in modifier.labels:
                assert any(label in one for one in series), f"{text}: no series has the label {label}"


def check_labels(prometheus, text, template, pattern):
    """The series of an expression have every label that a text shows. The bound of an alert is left out."""
    expression = promql_parser.parse(text)
    if isinstance(expression, promql_parser.BinaryExpr) and str(expression.op) in COMPARISONS:
        text = str(expression.lhs)
    for label in re.findall(pattern, template):
        series = prometheus.query(text)
        assert any(label in one for one in series), f"{text} has no label {label} for {template!r}: {series}"


def rules():
    groups = [group for file in RULES for group in yaml.safe_load(file.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"]]


def targets():
    """Expression and legend of each line of each panel, with the variables of Grafana replaced."""
    for file in DASHBOARDS:
        dashboard = json.loads(file.read_text())
        for panel in dashboard["panels"]:
            for target in panel.get("targets", []):
                text = target["expr"].replace("$__rate_interval", "5m").replace("$instance", ".*")
                assert "$" not in text, f"{file.name}: an unknown variable in {text}"
                yield text, target["legendFormat"]


def anchors(file):
    """Anchors of the headings of a document, as cargo xtask tidy computes them."""
    titles = [line.lstrip("#").strip() for line in file.read_text().splitlines() if line.startswith("#")]
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


def promtool(*arguments, **options):
    ran = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=PATIENCE_S, **options)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran


@test
def dashboards_are_complete(_):
    assert len(DASHBOARDS) == 4
    dashboards = [json.loads(file.read_text()) for file in DASHBOARDS]
    for one, file in zip(dashboards, DASHBOARDS):
        assert one["uid"] == file.stem
        numbers = [panel["id"] for panel in one["panels"]]
        assert len(numbers) == len(set(numbers)), file.name
        assert all(panel["title"] for panel in one["panels"])
    assert len({one["title"] for one in dashboards}) == len(dashboards)


@test
def every_metric_of_the_dashboards_exists(world):
    for text, legend in targets():
        check_expression(world.prometheus, text)
        if not promql_parser.parse(text).prettify().strip().endswith("> 0"):
            check_labels(world.prometheus, text, legend, r"{{(\w+)}}")


@test
def every_metric_of_the_rules_exists(world):
    for rule in rules():
        check_expression(world.prometheus, rule["expr"])
        summary = rule.get("annotations", {}).get("summary", "")
        check_labels(world.prometheus, rule["expr"], summary, r"\$labels\.(\w+)")


@test
def an_unknown_metric_or_label_is_found(world):
    for text in ("rate(myriad_nonsense_total[5m])", "sum by (nonsense) (myriad_clients)", 'myriad_clients{protocol="x"}'):
        try:
            check_expression(world.prometheus, text)
        except AssertionError:
            continue
        raise RuntimeError(f"{text} passed")


@test
def rules_are_evaluated_without_error(world):
    found = wait_for(lambda: [one for one in world.prometheus.rules() if one["health"] != "unknown"], "no rule ran")
    assert not [one for one in found if one["health"] != "ok"], found
    firing = {one["name"] for one in found if one["type"] == "alerting" and one["state"] == "firing"}
    assert not firing - {"MyriadLogFull", "MyriadRestarted"}, firing


@test
def alerts_have_severity_summary_and_runbook(_):
    for rule in rules():
        if "alert" not in rule:
            continue
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), rule
        assert rule["annotations"]["summary"], rule
        path, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert anchor in anchors(ROOT / path), f"{rule['alert']}: no heading {anchor} in {path}"


@test
def promtool_accepts_rules_and_their_tests(_):
    promtool("check", "rules", *map(str, RULES))
    promtool("test", "rules", "alerts.test.yml")


@test
def promtool_has_no_objection_to_metrics(world):
    for server in [*world.servers, world.web]:
        ran = promtool("check", "metrics", input=server.metrics())
        assert not ran.stdout + ran.stderr, ran.stdout + ran.stderr


@test
def redis_exporter_scrapes_without_error(world):
    server, address = world.servers[0], f"127.0.0.1:{free_port()}"
    server.client.rpush("list", 1, 2)
    server.client.xadd("stream", {"a": 1})
    options = [f"--redis.addr=redis://{server.resp}", f"--web.listen-address={address}", "--include-config-metrics"]
    options += ["--include-system-metrics", "--export-client-list", "--check-keys=db0=*", "--count-keys=db0=*"]
    options += ["--check-streams=db0=stream", "--check-single-keys=db0=list"]
    with Process(["prometheus-redis-exporter", *options], world.folder / "exporter.log") as exporter:
        text = wait_for(lambda: fetch(address, "/metrics"), "redis_exporter does not answer")
        lines = text.splitlines()
        assert "redis_up 1" in lines, text
        assert 'redis_exporter_last_scrape_error{err=""} 0' in lines, [one for one in lines if "scrape_error" in one]
        assert 'redis_key_size{db="db0",key="list"} 2' in lines, [one for one in lines if "redis_key_size" in one]
        log = exporter.log.read_text()
        assert not re.search(r"level=(error|warn)", log), log


def attributes(message):
    values = ((one.key, one.value) for one in message.attributes)
    return {key: value.string_value or value.int_value for key, value in values}


@test
def telemetry_is_received_by_a_collector_of_opentelemetry(world):
    address = f"127.0.0.1:{free_port()}"
    options = ["--otlp-endpoint", f"http://{address}", "--slowlog-log-slower-than", "0"]
    with Server(world.folder, "observed", *options) as server:
        # The collector starts later: requests of the time before are sent as well.
        wait_for(lambda: "could not send telemetry" in server.log.read_text(), "a missing collector is not logged")
        before = time.time_ns()
        server.client.set("traced", "x" * 1000)
        after = time.time_ns()
        with Collector(address) as collector:
            wait_for(lambda: collector.spans or collector.errors, "no span arrives")
            assert not collector.errors, collector.errors
            wait_for(lambda: "telemetry is sent again" in server.log.read_text(), "the recovery is not logged")
            server.client.get("traced")
            wait_for(lambda: "GET" in [one.name for one in collector.spans], "no second message arrives")
            assert not collector.errors, collector.errors
        resource = attributes(collector.metrics[0].resource)
        assert resource["service.name"] == "myriad", resource
        assert resource["service.instance.id"] == server.client.info("server")["run_id"], resource
        families = {one.name: one for one in collector.metrics[0].scope_metrics[0].metrics}
        names = set(re.findall(r"^# TYPE (\w+) ", server.metrics(), re.M))
        # Families without a series, such as those of replicas, are not sent.
        sent = {f"{one.name}_total" if one.HasField("sum") else one.name for one in families.values()}
        assert sent <= names and {"myriad_keys", "myriad_commands_total", "myriad_log_sync_seconds"} <= sent, sent ^ names
        (keys,) = families["myriad_keys"].gauge.data_points
        assert (keys.as_int, attributes(keys)) == (1, {"database": "0"}), keys
        calls = families["myriad_commands"].sum
        assert calls.is_monotonic and calls.aggregation_temporality == 2, calls
        sets = [one for one in calls.data_points if attributes(one).get("command") == "set"]
        assert [one.as_int for one in sets] == [1], sets
        syncs = families["myriad_log_sync_seconds"].histogram.data_points[0]
        assert sum(syncs.bucket_counts) == syncs.count > 0, syncs
        assert len(syncs.bucket_counts) == len(syncs.explicit_bounds) + 1, syncs
        (span,) = [one for one in collector.spans if one.name == "SET"]
        # The server's clock has milliseconds.
        assert before - 10**6 <= span.start_time_unix_nano <= span.end_time_unix_nano <= after + 10**6, span
        found = attributes(span)
        assert found["db.query.text"].startswith("SET traced xxx") and "more bytes" in found["db.query.text"], found
        assert found["client.address"] == "127.0.0.1" and found["client.port"] > 0, found
        numbers = [one.span_id for one in collector.spans]
        assert len(set(numbers)) == len(numbers) == len({one.trace_id for one in collector.spans}), numbers
        # All before the GET were sent; INFO, for example, follows it.
        assert len(numbers) <= server.client.slowlog_len() <= len(numbers) + 5, len(numbers)


# Source: redis/RedisInsight, redisinsight/api/src/modules: browser/constants/browser-tool-commands.ts,
# database/providers/database-info.provider.ts, redis/client/redis.client.ts, slow-log/constants/commands.ts
REDISINSIGHT = """
INFO; INFO server; HELLO; MODULE LIST; COMMAND; COMMAND INFO arget; CONFIG GET databases; CLIENT LIST; DBSIZE
SLOWLOG GET 50; CONFIG GET slowlog*; CONFIG SET slowlog-max-len 128; SLOWLOG RESET
PUBLISH channel message; SELECT 0; PING; ACL WHOAMI; MEMORY USAGE s; SCAN 0 COUNT 500 MATCH * TYPE string
SET s value; GET s; GETRANGE s 0 3; STRLEN s; TTL s; TYPE s; EXISTS s; EXPIRE s 100; PERSIST s; RENAMENX s s2
RENAME s2 s; HSET h f v; HGETALL h; HGET h f; HLEN h; HSCAN h 0; HEXPIRE h 100 FIELDS 1 f; HTTL h FIELDS 1 f
HPERSIST h FIELDS 1 f; HDEL h f; LPUSH l a; RPUSH l b; LPUSHX l a; RPUSHX l b; LLEN l; LRANGE l 0 -1; LSET l 0 x
LINDEX l 0; LPOP l; RPOP l; SADD c a; SCARD c; SSCAN c 0; SISMEMBER c a; SREM c a; ZADD z 1 a; ZCARD z; ZSCAN z 0
ZRANGE z 0 -1 WITHSCORES; ZREVRANGE z 0 -1 WITHSCORES; ZSCORE z a; ZREM z a; XADD x 1-1 a b; XLEN x; XINFO STREAM x
XRANGE x - + COUNT 500; XREVRANGE x + - COUNT 500; XGROUP CREATE x g 0; XGROUP SETID x g 0; XINFO GROUPS x
XREADGROUP GROUP g me STREAMS x >; XINFO CONSUMERS x g; XPENDING x g - + 500; XCLAIM x g me 0 1-1; XACK x g 1-1
XGROUP DELCONSUMER x g me; XGROUP DESTROY x g; XDEL x 1-1; UNLINK s; DEL h l c z x
"""


@test
def commands_of_redisinsight_are_answered(world):
    client = world.servers[0].connect()
    client.flushall()
    # Only whether a command is answered counts: redis-py expects a row for each command of COMMAND INFO.
    client.response_callbacks.clear()
    for text in REDISINSIGHT.replace("\n", ";").split(";"):
        if text.strip():
            # An error reply is an exception.
            client.execute_command(*text.split())
    try:
        client.execute_command("CLUSTER INFO")
        raise AssertionError("a server without cluster-view answers as a cluster")
    except redis.ResponseError as error:
        # As Redis: RedisInsight takes it for a server on its own.
        assert "cluster support disabled" in str(error), error
    client = world.servers[0].connect()
    with client.monitor() as profiler:
        client.set("seen", 1)
        # A connection begins with commands about itself.
        assert any(profiler.next_command()["command"] == "SET seen 1" for _ in range(5))
    listener = client.pubsub()
    listener.psubscribe("*")
    assert listener.get_message(timeout=PATIENCE_S)["type"] == "psubscribe"
    client.publish("news", "text")
    assert listener.get_message(timeout=PATIENCE_S)["data"] == "text"
    listener.close()


class World:
    """Servers in all roles, observed until all their metrics exist."""

    def __init__(self, folder):
        self.folder = folder
        pem, key = certificate(folder)
        tls = ["--tls-cert-file", pem, "--tls-key-file", key]
        listen = ["--http-tls", "127.0.0.1:0", "--tls-auth-clients", "no"]
        first = Server(folder, "master1", "--server-id", "1", *listen, *tls)
        second = Server(folder, "master2", "--server-id", "2")
        source = first.resp.replace(":", " ")
        replica = Server(folder, "replica", "--server-id", "1", "--replicaof", source)
        self.servers = [first, second, replica]
        self.web = WebServer(folder, tls)
        jobs = {"myriad": [server.http for server in self.servers], "myriad-web": [self.web.status]}
        self.prometheus = Prometheus(folder, jobs, RULES)

    def start(self):
        first, second, replica = self.servers
        for this, other, number in ((first, second, 2), (second, first, 1)):
            this.client.execute_command("HUB", "ADD", number, *other.resp.split(":"))
        load(first, second)
        wait_for(lambda: "myriad_master_link_up 1" in replica.metrics().splitlines(), "the replica does not follow")
        linked = 'myriad_hub_peer_up{peer="1"} 1'
        wait_for(lambda: linked in second.metrics().splitlines(), "the peers do not meet")
        # A rate needs two samples, and a rule runs after them.
        self.await_series('count_over_time(myriad_commands_total{command="cql|options"}[1h]) > 2')
        self.await_series("count_over_time(myriad_master_lag_bytes[1h]) > 2")
        self.await_series('myriad:errors:rate5m{kind="OOM"}')
        self.await_series('myriad:memory:ratio{tracker="server/store"}')
        self.await_series("myriad_web_connections")

    def await_series(self, expression):
        wait_for(lambda: self.prometheus.query(expression), f"Prometheus has no {expression}")


def run_all():
    with tempfile.TemporaryDirectory(prefix="myriad-monitoring-") as folder:
        world = World(pathlib.Path(folder))
        first, second, replica = world.servers
        with first, second, replica, world.web, world.prometheus:
            world.start()
            return run(lambda body: body(world))


sys.exit(run_all())
