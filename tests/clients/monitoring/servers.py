"""The processes that the suite observes: two masters, a replica, a web server, a Prometheus that scrapes them."""

import functools
import json
import os
import pathlib
import socket
import subprocess
import urllib.parse
import urllib.request

import redis
import yaml

import harness
from ports import free_port

# A busy machine may halt a process for longer than the seconds of the defaults.
PATIENCE_S = 90
wait_for = functools.partial(harness.wait_for, errors=(OSError, redis.RedisError))


def fetch(address, path):
    with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE_S) as response:
        return response.read().decode()


class Process:
    """A child process with a log, killed when the block ends."""

    def __init__(self, arguments, log):
        self.arguments, self.log = arguments, pathlib.Path(log)

    def __enter__(self):
        with open(self.log, "wb") as output:
            self.child = subprocess.Popen(self.arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        return self

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait(PATIENCE_S)


class Server(Process):
    """A Myriad with all protocols."""

    def __init__(self, folder, name, *options):
        first = free_port(3)
        self.resp, self.cql, self.http = (f"127.0.0.1:{first + place}" for place in range(3))
        addresses = ["--resp", self.resp, "--cql", self.cql, "--http", self.http]
        program = [os.environ["MYRIAD"], "serve", "--reactors", "2", "--dir", str(folder / name)]
        super().__init__([*program, *addresses, *options], folder / f"{name}.log")
        self.client = self.connect()

    def __enter__(self):
        super().__enter__()
        wait_for(self.client.ping, "a server does not start")
        return self

    def connect(self):
        host, port = self.resp.split(":")
        return redis.Redis(host, int(port), socket_timeout=PATIENCE_S, decode_responses=True)

    def metrics(self):
        return fetch(self.http, "/metrics")


class WebServer(Process):
    """A myriad web with TLS."""

    def __init__(self, folder, tls):
        self.status = f"127.0.0.1:{free_port()}"
        program = [os.environ["MYRIAD"], "web", "--workers", "2", "--status", self.status]
        super().__init__([*program, "--listen", "127.0.0.1:0", "--listen-tls", "127.0.0.1:0", *tls], folder / "web.log")

    def __enter__(self):
        super().__enter__()
        wait_for(self.metrics, "the web server does not start")
        return self

    def metrics(self):
        return fetch(self.status, "/metrics")


class Prometheus(Process):
    """Prometheus with the rules as they are shipped, but evaluated every second."""

    def __init__(self, folder, jobs, rules):
        """`jobs`: addresses by the name of the job."""
        self.address = f"127.0.0.1:{free_port()}"
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(path) for path in rules],
            "scrape_configs": [
                {"job_name": name, "static_configs": [{"targets": addresses}]} for name, addresses in jobs.items()
            ],
        }
        file = folder / "prometheus.yml"
        file.write_text(yaml.safe_dump(config))
        options = [f"--config.file={file}", f"--storage.tsdb.path={folder / 'tsdb'}"]
        super().__init__(["prometheus", *options, f"--web.listen-address={self.address}"], folder / "prometheus.log")

    def query(self, expression):
        """The series that an expression has now, each as its labels."""
        answer = json.loads(fetch(self.address, f"/api/v1/query?query={urllib.parse.quote(expression)}"))
        return [series["metric"] for series in answer["data"]["result"]]

    def rules(self):
        groups = json.loads(fetch(self.address, "/api/v1/rules"))["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]


def certificate(folder):
    """A certificate and its key, in files."""
    files = [str(folder / name) for name in ("server.pem", "server.key")]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "90"]
    command = ["openssl", "req", *kind, "-subj", "/CN=localhost", "-out", files[0], "-keyout", files[1]]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
    return files


def load(first, second):
    """Makes the counters appear that do not exist before their first event."""
    first.client.set("monitored", 1)
    first.client.get("monitored")
    second.client.config_set("maxmemory", "1")
    try:
        second.client.set("refused", "x")
        raise AssertionError("a write above maxmemory was accepted")
    except redis.exceptions.OutOfMemoryError:
        second.client.config_set("maxmemory", "100mb")
    host, port = first.cql.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as client:
        # Source: native_protocol_v4.spec 2 (a frame), 4.1.3 (OPTIONS)
        client.sendall(bytes([4, 0, 0, 1, 5, 0, 0, 0, 0]))
        assert client.recv(9)[4] == 6, "OPTIONS is answered by SUPPORTED"
