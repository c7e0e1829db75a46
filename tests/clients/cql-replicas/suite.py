"""Cassandra's Python and Java drivers with a master and its replica: metadata, reads, events, failovers."""

import functools
import os
import socket
import subprocess
import sys
import threading
import time

from cassandra import DriverException
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy, WhiteListRoundRobinPolicy

import harness
from harness import equal, in_folder, run, test
from ports import free_port

# A busy machine may halt a process for longer than the seconds of the defaults.
PATIENCE_S = 60
MASTER, REPLICA = "127.0.0.1", "127.0.0.2"

wait_for = functools.partial(harness.wait_for, errors=(OSError, DriverException, NoHostAvailable))


class Server:
    """A server, with CQL at an address of the loopback network."""

    def __init__(self, folder, ip, cql):
        self.folder, self.ip, self.cql, self.resp = folder, ip, cql, free_port()
        self.process = None
        self.start()

    def start(self, *options):
        addresses = ["--resp", f"127.0.0.1:{self.resp}", "--cql", f"{self.ip}:{self.cql}"]
        directory = str(self.folder / self.ip)
        program = [os.environ["MYRIAD"], "serve", *addresses, "--dir", directory, "--reactors", "2", *options]
        log = open(self.folder / f"{self.ip}.log", "ab")
        self.process = subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        wait_for(self.has_started, "the server does not start")

    def has_started(self):
        status = self.process.poll()
        assert status is None, f"the server ended at its start: {status}"
        return self.ask("PING") == "+PONG\r\n"

    def ask(self, request):
        with socket.create_connection(("127.0.0.1", self.resp), timeout=PATIENCE_S) as connection:
            connection.sendall(f"{request}\r\nQUIT\r\n".encode())
            reply = b""
            while part := connection.recv(65536):
                reply += part
        return reply.decode().removesuffix("+OK\r\n")

    def follow(self, master):
        equal(self.ask(f"REPLICAOF 127.0.0.1 {master.resp}"), "+OK\r\n")

    def is_linked(self):
        return "master_link_status:up" in self.ask("INFO replication")

    def stop(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)


class Pair:
    """A master with a table, and its replica."""

    def __init__(self, folder):
        self.folder = folder

    def __enter__(self):
        self.cql = free_port()
        self.servers = []
        try:
            self.servers += [Server(self.folder, ip, self.cql) for ip in (MASTER, REPLICA)]
            self.master, self.replica = self.servers
            with self.connect([MASTER]) as cluster:
                session = cluster.connect()
                replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
                session.execute(f"CREATE KEYSPACE ks WITH replication = {replication}")
                session.execute("CREATE TABLE ks.t (p int PRIMARY KEY, v int)")
                session.execute("INSERT INTO ks.t (p, v) VALUES (1, 0)")
            self.replica.follow(self.master)
            wait_for(self.replica.is_linked, "the replica does not follow")
            # The Python driver cannot connect while a server finds another one: it replaces the host to which it
            # connects, and then fails with an AttributeError.
            peers = "SELECT peer FROM system.peers_v2"
            wait_for(lambda: self.rows(MASTER, peers) and self.rows(REPLICA, peers), "a server lacks its peer")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.stop()
        if sys.exc_info()[0]:
            for log in self.folder.glob("*.log"):
                print(f"== {log.name}\n{log.read_text()[-3000:]}")

    def connect(self, ips, remote=0, request_timeout=PATIENCE_S):
        local = TokenAwarePolicy(DCAwareRoundRobinPolicy("datacenter1", used_hosts_per_remote_dc=remote))
        profiles = {
            EXEC_PROFILE_DEFAULT: ExecutionProfile(local, request_timeout=request_timeout),
            "replicas": ExecutionProfile(DCAwareRoundRobinPolicy("replicas"), request_timeout=request_timeout),
        }
        return self.cluster(ips, profiles, control_timeout=request_timeout)

    def cluster(self, ips, profiles, control_timeout=PATIENCE_S):
        return Cluster(
            ips,
            port=self.cql,
            execution_profiles=profiles,
            connect_timeout=PATIENCE_S,
            control_connection_timeout=control_timeout,
        )

    def rows(self, ip, query):
        policy = ExecutionProfile(WhiteListRoundRobinPolicy([ip]), request_timeout=PATIENCE_S)
        profiles = {EXEC_PROFILE_DEFAULT: policy}
        with self.cluster([ip], profiles) as cluster:
            return list(cluster.connect().execute(query))


def session_of(cluster):
    """A session with connections to the master. The driver returns one as soon as any server is connected."""
    session = cluster.connect()
    is_connected = lambda: any(pool.host.address == MASTER for pool in list(session.get_pools()))
    wait_for(is_connected, "the driver does not connect to the master")
    return session


def hosts(cluster):
    return sorted((host.address, host.datacenter) for host in cluster.metadata.all_hosts())


BOTH = [(MASTER, "datacenter1"), (REPLICA, "replicas")]
SWAPPED = [(MASTER, "replicas"), (REPLICA, "datacenter1")]


@test
def the_rows_of_both_servers(folder):
    with Pair(folder) as pair:
        query = "SELECT peer, peer_port, data_center, host_id, tokens, schema_version FROM system.peers_v2"
        local = "SELECT data_center, host_id, tokens, schema_version FROM system.local"
        for ip, other, name in [(MASTER, REPLICA, "replicas"), (REPLICA, MASTER, "datacenter1")]:
            [peer] = pair.rows(ip, query)
            [itself] = pair.rows(other, local)
            equal((peer.peer, peer.peer_port, peer.data_center), (other, pair.cql, name))
            equal((peer.data_center, peer.host_id, peer.tokens, peer.schema_version), tuple(itself))
            [old] = pair.rows(ip, "SELECT peer, rpc_address, data_center FROM system.peers")
            equal(tuple(old), (other, other, name))
        with pair.connect([MASTER]) as cluster:
            session = session_of(cluster)
            started = time.monotonic()
            session.execute("CREATE TABLE ks.other (p int PRIMARY KEY)")
            assert time.monotonic() - started < 8, "the driver waits for agreement on the schema"


@test
def a_policy_selects_replicas(folder):
    with Pair(folder) as pair, pair.connect([MASTER]) as cluster:
        session = session_of(cluster)
        wait_for(lambda: hosts(cluster) == BOTH, "the driver does not find the replica")
        for number in range(50):
            written = session.execute_async("INSERT INTO ks.t (p, v) VALUES (1, %s)", [number])
            written.result()
            equal(written.coordinator_host.endpoint.address, MASTER)

        def read():
            future = session.execute_async("SELECT v FROM ks.t WHERE p = 1", execution_profile="replicas")
            rows = future.result()
            equal(future.coordinator_host.endpoint.address, REPLICA)
            return rows.one().v == 49

        wait_for(read, "the replica does not have the last write")
        try:
            session.execute("INSERT INTO ks.t (p, v) VALUES (1, 0)", execution_profile="replicas")
            raise AssertionError("the replica takes writes")
        except Exception as error:
            assert "replica and takes no writes" in str(error), error


class Listener:
    """The events of servers that a control connection receives."""

    def __init__(self, cluster):
        self.events = []
        connection = cluster.control_connection._connection
        for kind in ("STATUS_CHANGE", "TOPOLOGY_CHANGE"):
            connection.register_watcher(kind, lambda event: self.events.append(event))

    def names(self):
        return [(event["change_type"], event["address"][0]) for event in self.events]


@test
def events_of_a_replica_that_stops_and_returns(folder):
    with Pair(folder) as pair, pair.connect([MASTER]) as cluster:
        cluster.connect()
        wait_for(lambda: hosts(cluster) == BOTH, "the driver does not find the replica")
        time.sleep(1)
        listener = Listener(cluster)
        follow = ["--replicaof", f"127.0.0.1 {pair.master.resp}"]
        for attempt in range(5):
            seen, began = len(listener.names()), time.monotonic()
            pair.replica.stop()
            pair.replica.start(*follow)
            wait_for(pair.replica.is_linked, "the replica does not return")
            seconds = time.monotonic() - began
            time.sleep(11)
            # A busy machine may need longer than the master waits.
            if seconds < 9:
                break
        else:
            raise AssertionError("the replica needs too long to return")
        equal(listener.names()[seen:], [])
        listener.events.clear()
        pair.replica.stop()
        wait_for(lambda: listener.names() == [("DOWN", REPLICA)], "no event")
        pair.replica.start(*follow)
        wait_for(lambda: listener.names()[1:] == [("UP", REPLICA)], "no event of the return")


class Writer(threading.Thread):
    """Writes with the Python driver until it is stopped."""

    def __init__(self, cluster):
        super().__init__()
        self.session = cluster.connect()
        self.over = threading.Event()
        self.lines = []

    def run(self):
        number = 0
        while not self.over.is_set():
            number += 1
            try:
                future = self.session.execute_async("INSERT INTO ks.t (p, v) VALUES (1, %s)", [number])
                future.result()
                self.lines.append(f"wrote {number} {future.coordinator_host.endpoint.address}")
            except Exception as error:
                self.lines.append(f"failed {number} {error}")
            time.sleep(0.05)

    def stop(self):
        self.over.set()
        self.join(PATIENCE_S)


class JavaWriter(threading.Thread):
    """The program Writer.java."""

    def __init__(self, remote, places):
        super().__init__()
        program = ["java", "-cp", "target/classes:target/jars/*", "Writer", str(remote), *places]
        self.process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines = []

    def run(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def stop(self):
        try:
            self.process.stdin.write("stop\n")
            self.process.stdin.close()
            self.join(PATIENCE_S)
            self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()


def write_until(writer, ip, what):
    """Waits until a writer writes to a server steadily. Returns the seconds that this took."""
    started, at = time.monotonic(), len(writer.lines)
    steady = lambda lines: len(lines) >= 20 and all(line.endswith(f" {ip}") for line in lines[-20:])
    of_writes = lambda: [line for line in writer.lines[at:] if line.split()[0] in ("wrote", "failed")]
    try:
        wait_for(lambda: steady(of_writes()), what)
    except AssertionError:
        print("\n".join(writer.lines[at:][:5] + ["..."] + writer.lines[-12:]))
        raise
    return time.monotonic() - started


def fail_over(pair, writer, name):
    writer.start()
    try:
        write_until(writer, MASTER, "no writes to the master")
        equal(pair.master.ask("FAILOVER"), "+OK\r\n")
        took = write_until(writer, REPLICA, "writes do not reach the new master")
        print(f"  {name}: FAILOVER, writes at the new master after {took:.1f} s")
        equal(pair.replica.ask("FAILOVER"), "+OK\r\n")
        write_until(writer, MASTER, "writes do not return")
        pair.master.stop()
        equal(pair.replica.ask("REPLICAOF NO ONE"), "+OK\r\n")
        took = write_until(writer, REPLICA, "writes do not reach the promoted replica")
        print(f"  {name}: killed master, writes at the new master after {took:.1f} s")
        pair.master.start("--replicaof", f"127.0.0.1 {pair.replica.resp}")
        wait_for(pair.master.is_linked, "the old master does not follow")
        at = len(writer.lines)
        time.sleep(15)
        failed = [line for line in writer.lines[at:] if line.startswith("failed")]
        equal(failed[:3], [])
        write_until(writer, REPLICA, "writes do not stay at the new master")
    finally:
        writer.stop()


@test
def the_python_driver_follows_failovers(folder):
    with Pair(folder) as pair, pair.connect([MASTER, REPLICA], remote=1, request_timeout=5) as cluster:
        writer = Writer(cluster)
        wait_for(lambda: hosts(cluster) == BOTH, "the driver does not find the replica")
        fail_over(pair, writer, "Python")
        wait_for(lambda: hosts(cluster) == SWAPPED, "the driver does not swap the data centers")


@test
def the_java_driver_follows_failovers(folder):
    with Pair(folder) as pair:
        writer = JavaWriter(1, [f"{ip}:{pair.cql}" for ip in (MASTER, REPLICA)])
        fail_over(pair, writer, "Java")
        assert any(line == f"read {REPLICA}" for line in writer.lines), "no reads from the replica"
        nodes = [line for line in writer.lines if line.startswith("nodes ")][-1]
        equal(nodes, f"nodes {MASTER}/replicas/UP {REPLICA}/datacenter1/UP")


@test
def hostile_announcements_are_refused(folder):
    with Pair(folder) as pair:
        host = "0f4b2b8e-0000-4000-8000-000000000001"
        for announced in [
            "cql-host-id x",
            f"cql-host-id {host}0",
            "cql-host-id 00000000-0000-0000-0000-000000000000",
            "cql-address example.org",
            "cql-address 0.0.0.0",
            "cql-address ::",
            "cql-address 224.0.0.1",
            "cql-address 255.255.255.255",
            "cql-address 1.2.3.4:9042",
            "cql-port 0",
            "cql-port 65536",
            "cql-port -1",
            "cql-tls-port x",
        ]:
            reply = pair.master.ask(f"REPLCONF {announced}")
            assert reply.startswith("-ERR invalid "), (announced, reply)
        query = "SELECT peer, peer_port FROM system.peers_v2"
        wait_for(lambda: len(pair.rows(MASTER, query)) == 1, "the replica is not listed")
        with socket.create_connection(("127.0.0.1", pair.master.resp), timeout=PATIENCE_S) as connection:
            many = f"REPLCONF cql-host-id {host} cql-address 2001:db8::7 cql-port 9\r\n" * 5000
            connection.sendall(many.encode())
            received = 0
            while received < 5000 * 5:
                part = connection.recv(65536)
                assert part, "the server closed the connection"
                received += len(part)
            connection.sendall(b"REPLCONF capa myriad-stream-1\r\nPSYNC ? -1\r\n")
            reading = threading.Thread(target=lambda: drain(connection))
            reading.start()
            wanted = sorted([(REPLICA, pair.cql), ("2001:db8::7", 9)])
            wait_for(lambda: sorted(map(tuple, pair.rows(MASTER, query))) == wanted, "IPv6 is not listed")
            connection.shutdown(socket.SHUT_RDWR)
            reading.join(PATIENCE_S)
        # A replica without CQL.
        with socket.create_connection(("127.0.0.1", pair.master.resp), timeout=PATIENCE_S) as connection:
            connection.sendall(b"REPLCONF cql-address 10.9.9.9 capa myriad-stream-1\r\nPSYNC ? -1\r\n")
            reading = threading.Thread(target=lambda: drain(connection))
            reading.start()
            time.sleep(2)
            assert not any(row.peer == "10.9.9.9" for row in pair.rows(MASTER, query))
            connection.shutdown(socket.SHUT_RDWR)
            reading.join(PATIENCE_S)


def drain(connection):
    try:
        while connection.recv(65536):
            pass
    except OSError:
        return


sys.exit(run(in_folder))
