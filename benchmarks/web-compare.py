#!/usr/bin/env python3
"""Server CPU per request of `myriad web` beside nginx, one worker each, on the same core.

    python3 benchmarks/web-compare.py --myriad target/release/myriad [--rounds 5] [--out FILE.csv]

Needs nginx and wrk (Debian: nginx-light, wrk). Servers run on core 0, wrk on core 1. Cells are measured in
rounds, and in each round both servers after each other, in turns who is first; the ratio is the median
over rounds of the ratio within a round. CPU time is what the kernel has counted for the threads of the
serving process, in nanoseconds.
"""

import argparse
import csv
import http.client
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

HELLO = "Hello from Tom HTTP Server\n"
# name, path, connection per request, clients, bound of the ratio
CELLS = [
    ("keep-alive", "/hello", False, 10, 0.85),
    ("keep-alive", "/hello", False, 100, 0.85),
    ("keep-alive", "/hello", False, 1000, 0.85),
    ("new connection", "/hello", True, 10, 0.90),
    ("new connection", "/hello", True, 100, 0.90),
    ("new connection", "/hello", True, 1000, 0.90),
    ("file of 4 KiB", "/4k.bin", False, 100, 1.0),
    ("file of 1 MiB", "/1m.bin", False, 100, 1.0),
]
NGINX = """
daemon off; master_process on; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
worker_rlimit_nofile 8192;
events {{ worker_connections 4096; use epoll; }}
http {{
  access_log off; server_tokens off; sendfile on; tcp_nopush on; tcp_nodelay on;
  keepalive_requests 1000000000; types {{ }} default_type text/plain;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen 127.0.0.1:{port} backlog=1024; root {folder}/root;
    location = /hello {{ return 200 "Hello from Tom HTTP Server\\n"; }} }}
}}
"""


def children(pid):
    return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def cpu_ns(pid):
    """Nanoseconds on a processor, of all threads that live."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


class Server:
    def __init__(self, name, command, port):
        self.name, self.port = name, port
        self.process = subprocess.Popen(["taskset", "-c", "0", *command], stdout=subprocess.DEVNULL)
        deadline = time.time() + 10
        while True:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
                connection.request("GET", "/hello")
                if connection.getresponse().read().decode() == HELLO:
                    break
            except OSError:
                pass
            if time.time() > deadline:
                sys.exit(f"{name} does not answer")
            time.sleep(0.05)
        (self.worker,) = children(self.process.pid)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def measure(server, path, is_short, clients, seconds):
    command = ["taskset", "-c", "1", "wrk", "-t1", f"-c{clients}", f"-d{seconds}s"]
    if is_short:
        command += ["-H", "Connection: close"]
    before = cpu_ns(server.worker)
    text = subprocess.run([*command, f"http://127.0.0.1:{server.port}{path}"], check=True, capture_output=True, text=True).stdout
    used = cpu_ns(server.worker) - before
    requests = int(re.search(r"(\d+) requests in", text).group(1))
    rate = float(re.search(r"Requests/sec:\s*([\d.]+)", text).group(1))
    if "Non-2xx" in text:
        sys.exit(f"{server.name}: {text}")
    errors = re.search(r"Socket errors: (.*)", text)
    return used / 1000 / requests, rate, errors.group(1) if errors else ""


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--myriad", required=True)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=int, default=2)
    options.add_argument("--cell", help="only cells whose name has this in it")
    options.add_argument("--out")
    options = options.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder, "root")
        root.mkdir()
        os.chmod(folder, 0o755)
        (root / "4k.bin").write_bytes(os.urandom(4096))
        (root / "1m.bin").write_bytes(os.urandom(1 << 20))
        port = 20000 + os.getpid() % 20000
        config = pathlib.Path(folder, "nginx.conf")
        config.write_text(NGINX.format(folder=folder, port=port))
        nginx = Server("nginx", ["nginx", "-c", str(config), "-p", folder], port)
        myriad = Server("myriad", [options.myriad, "web", "--listen", f"127.0.0.1:{port + 1}", "--root", str(root), "--workers", "1"], port + 1)
        for name, path, is_short, clients, bound in CELLS:
            if options.cell and options.cell not in name:
                continue
            pairs, rates = [], []
            for server in (nginx, myriad):
                measure(server, path, is_short, clients, 1)
            for round_number in range(options.rounds):
                order = (nginx, myriad) if round_number % 2 == 0 else (myriad, nginx)
                found = {server.name: measure(server, path, is_short, clients, options.seconds) for server in order}
                pairs.append((found["myriad"][0], found["nginx"][0]))
                rates.append((found["myriad"][1], found["nginx"][1]))
                for server, (_, _, errors) in found.items():
                    if errors:
                        print(f"# {name} {clients}: {server}: {errors}", flush=True)
            ratios = sorted(own / other for own, other in pairs)
            row = {
                "row": name, "clients": clients, "metric": "us CPU per request",
                "myriad": round(statistics.median(own for own, _ in pairs), 3),
                "nginx": round(statistics.median(other for _, other in pairs), 3),
                "ratio": round(statistics.median(ratios), 4),
                "ratio_min": round(ratios[0], 4), "ratio_max": round(ratios[-1], 4),
                "target": bound, "held": "yes" if statistics.median(ratios) <= bound else "no",
                "rounds": options.rounds,
                "myriad_per_s": round(statistics.median(own for own, _ in rates)),
                "nginx_per_s": round(statistics.median(other for _, other in rates)),
            }
            rows.append(row)
            print(row, flush=True)
        myriad.stop()
        nginx.stop()
    if options.out:
        with open(options.out, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


main()
