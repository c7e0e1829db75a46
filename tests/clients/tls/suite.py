"""redis-cli, curl, redis-py and Cassandra's Python driver with TLS, against a server of our own."""

import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading

import redis
from cassandra.cluster import Cluster
from redis.backoff import NoBackoff
from redis.retry import Retry

from harness import Certificates, equal, refused, run, test

LARGE_BYTES = 10_000_000
PIPELINE_COMMANDS = 10_000
RELOADS = 10
# A busy machine may halt the server or this process for longer than the seconds of the defaults.
PATIENCE_S = 60


class Files(Certificates):
    """Certificates of the server, of its next one, of a client."""

    def __init__(self, directory):
        super().__init__(directory, "one", "two", "client")

    def context(self, identity="client"):
        context = ssl.create_default_context(cafile=self.path("ca.pem"))
        if identity is not None:
            context.load_cert_chain(self.path(f"{identity}.pem"), self.path(f"{identity}.key"))
        return context


class Server:
    """With certificate `one`; clients have to show theirs."""

    def __init__(self, files, data="data", *options):
        self.files = files
        options = [*options, "--dir", files.path(data), "--resp", "127.0.0.1:0", "--reactors", "2"]
        for protocol in ("resp", "cql", "http"):
            options += [f"--{protocol}-tls", "127.0.0.1:0"]
        options += ["--tls-cert-file", files.path("one.pem"), "--tls-key-file", files.path("one.key")]
        options += ["--tls-ca-cert-file", files.path("ca.pem")]
        self.process = subprocess.Popen(
            [os.environ["MYRIAD"], "serve", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        ready = self.process.stdout.readline().split()
        if ready[:1] != ["ready"]:
            raise SystemExit(f"the server does not start: {ready}")
        listeners = dict(word.split("=") for word in ready[1:])
        self.ports = {name: int(at.rsplit(":", 1)[1]) for name, at in listeners.items()}

    def redis(self, identity="client", **options):
        if identity is not None:
            options["ssl_certfile"] = self.files.path(f"{identity}.pem")
            options["ssl_keyfile"] = self.files.path(f"{identity}.key")
        return redis.Redis(
            host="localhost",
            port=self.ports["resp-tls"],
            ssl=True,
            ssl_ca_certs=self.files.path("ca.pem"),
            socket_timeout=60,
            retry=Retry(NoBackoff(), 0),
            **options,
        )

    def plain(self):
        return redis.Redis(port=self.ports["resp"], socket_timeout=60)

    def cluster(self, identity="client"):
        context = self.files.context(identity)
        # The driver dials addresses, not names.
        context.check_hostname = False
        return Cluster(
            ["127.0.0.1"],
            port=self.ports["cql-tls"],
            ssl_context=context,
            connect_timeout=PATIENCE_S,
            control_connection_timeout=PATIENCE_S,
            max_schema_agreement_wait=PATIENCE_S,
        )

    def stop(self):
        self.process.terminate()
        equal(self.process.wait(timeout=60), 0)


@test
def large_values(server):
    with server.redis() as r:
        value = os.urandom(LARGE_BYTES)
        equal(r.set("large", value), True)
        equal(r.get("large") == value, True)
        equal(r.append("large", b"x"), LARGE_BYTES + 1)
        equal(r.getrange("large", -3, -1), value[-2:] + b"x")


@test
def pipelines(server):
    for protocol in (2, 3):
        with server.redis(protocol=protocol) as r, r.pipeline(transaction=False) as pipe:
            for number in range(PIPELINE_COMMANDS):
                pipe.set(f"p{number}", number)
                pipe.get(f"p{number}")
            wanted = [x for n in range(PIPELINE_COMMANDS) for x in (True, str(n).encode())]
            equal(pipe.execute() == wanted, True)


@test
def pushed_lines(server):
    """What others do comes to MONITOR without having been asked for."""
    with server.redis() as r, server.redis() as other, r.monitor() as monitor:
        other.set("watched", "v")
        commands = (line["command"] for line in monitor.listen())
        equal(next(c for c in commands if c.startswith("SET")), "SET watched v")


@test
def transactions_and_watched_keys(server):
    with server.redis() as r:
        with r.pipeline() as pipe:
            pipe.watch("t")
            pipe.multi()
            pipe.incr("t").incr("t")
            equal(pipe.execute(), [1, 2])


@test
def certificates_of_clients(server):
    errors = (redis.ConnectionError, ssl.SSLError)
    refused(errors, "", lambda: server.redis(identity=None).ping())
    equal(server.plain().config_set("tls-auth-clients", "optional"), True)
    equal(server.redis(identity=None).ping(), True)
    equal(server.plain().config_set("tls-auth-clients", "yes"), True)
    refused(errors, "", lambda: server.redis(identity=None).ping())
    equal(server.redis().ping(), True)


@test
def redis_cli(server):
    tls = ["--tls", "--cacert", server.files.path("ca.pem")]
    identity = ["--cert", server.files.path("client.pem"), "--key", server.files.path("client.key")]
    port = ["-p", str(server.ports["resp-tls"])]

    def cli(*words, options=identity, stdin=""):
        done = subprocess.run(
            ["redis-cli", "-h", "localhost", *port, *tls, *options, *words],
            capture_output=True,
            text=True,
            input=stdin,
            timeout=60,
        )
        return done.stdout.strip()

    equal(cli("PING"), "PONG")
    equal(cli("-x", "SET", "cli", stdin="from stdin"), "OK")
    equal(cli("GET", "cli"), "from stdin")
    requests = "".join(f"SET c{number} v\r\n" for number in range(1000))
    equal(cli("--pipe", stdin=requests).endswith("errors: 0, replies: 1000"), True)
    equal("PONG" in cli("PING", options=[]), False)


@test
def curl(server):
    files = server.files
    base = f"https://localhost:{server.ports['http-tls']}"
    tls = ["--cacert", files.path("ca.pem"), "--cert", files.path("client.pem")]
    tls += ["--key", files.path("client.key")]

    def curl(*arguments):
        command = ["curl", "-sS", "-m", "60", *tls, *arguments]
        return subprocess.run(command, capture_output=True, check=True).stdout

    equal(curl("-d", "a value", f"{base}/set/curl"), b'{"result":"OK"}')
    # Two requests of one connection, and bytes over many records.
    equal(curl(f"{base}/get/curl", f"{base}/get/curl"), b'{"result":"a value"}' * 2)
    body = os.urandom(LARGE_BYTES // 2)
    done = subprocess.run(
        ["curl", "-sS", "-m", "60", *tls, "-T", "-", f"{base}/kv/bytes"],
        input=body,
        capture_output=True,
        check=True,
    )
    equal(done.stderr, b"")
    equal(curl(f"{base}/kv/bytes") == body, True)


@test
def cql(server):
    with server.cluster() as cluster:
        session = cluster.connect()
        session.default_timeout = PATIENCE_S
        session.execute(
            "CREATE KEYSPACE tls WITH replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        session.execute("CREATE TABLE tls.t (k int, c int, v blob, PRIMARY KEY (k, c))")
        insert = session.prepare("INSERT INTO tls.t (k, c, v) VALUES (?, ?, ?)")
        value = os.urandom(1_000_000)
        futures = [session.execute_async(insert, (1, c, value)) for c in range(10)]
        futures += [session.execute_async(insert, (2, c, b"v")) for c in range(5000)]
        for future in futures:
            future.result()
        found = list(session.execute("SELECT c, v FROM tls.t WHERE k = 1"))
        equal([row.c for row in found], list(range(10)))
        equal(all(row.v == value for row in found), True)
        paged = session.execute("SELECT c FROM tls.t WHERE k = 2")
        equal([row.c for row in paged], list(range(5000)))
        session.execute("DROP KEYSPACE tls")


@test
def replication(server):
    replica = Server(server.files, "replica", "--tls-replication", "yes")
    try:
        with server.redis() as source, replica.redis() as copy:
            source.set("before", os.urandom(LARGE_BYTES))
            copy.replicaof("localhost", server.ports["resp-tls"])
            for count in (1, 2):
                for key in range(PIPELINE_COMMANDS):
                    source.hset("hash", key, count)
                source.set("large", os.urandom(LARGE_BYTES))
                equal(source.execute_command("WAIT", 1, 1000 * PATIENCE_S), 1)
                for key in ("before", "large"):
                    equal(copy.get(key), source.get(key))
                equal(copy.hgetall("hash"), source.hgetall("hash"))
            equal(source.info("replication")["slave0"]["port"], replica.ports["resp-tls"])
        a_stranger_is_no_master(server.files, replica)
    finally:
        replica.stop()


def a_stranger_is_no_master(files, replica):
    files.openssl("req", "-x509", "-subj", "/CN=localhost", *files.new_key("stranger"), "-out", "stranger.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.path("stranger.pem"), files.path("stranger.key"))
    with socket.create_server(("127.0.0.1", 0)) as listener, replica.plain() as copy:
        listener.settimeout(PATIENCE_S)
        copy.replicaof("localhost", listener.getsockname()[1])
        connection, _ = listener.accept()
        connection.settimeout(PATIENCE_S)
        refused(ssl.SSLError, "", lambda: context.wrap_socket(connection, server_side=True))
        copy.replicaof("NO", "ONE")


@test
def reloads_under_load(server):
    """Certificates change while clients come and go: no request fails, and the new one is shown."""
    files = server.files
    is_over = threading.Event()
    faults = []

    def work():
        try:
            with server.redis() as stays:
                while not is_over.is_set():
                    equal(stays.set("load", "v"), True)
                    with server.redis() as fresh:
                        equal(fresh.get("load"), b"v")
        except Exception as fault:  # reported by the main thread
            faults.append(fault)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    plain = server.plain()
    for reload in range(RELOADS):
        name = ("two", "one")[reload % 2]
        paths = {"tls-cert-file": files.path(f"{name}.pem"), "tls-key-file": files.path(f"{name}.key")}
        plain.execute_command("CONFIG SET", *(word for pair in paths.items() for word in pair))
        context = files.context()
        with socket.create_connection(("localhost", server.ports["resp-tls"])) as raw:
            with context.wrap_socket(raw, server_hostname="localhost") as secure:
                shown = dict(field for (field,) in secure.getpeercert()["subject"])
        equal(shown["commonName"], name)
    is_over.set()
    for worker in workers:
        worker.join()
    equal(faults, [])


def main():
    with tempfile.TemporaryDirectory(prefix="myriad-tls-") as directory:
        server = Server(Files(directory))
        try:
            status = run(lambda body: body(server))
            server.stop()
        finally:
            server.process.kill()
            server.process.wait()
    return status


sys.exit(main())
