"""Login sessions and a rate limit by redis-py; an administrator sees and ends sessions by CQL."""

import json
import os
import urllib.request

import redis
from cassandra.cluster import Cluster

SESSION_SECONDS = 3600
REQUESTS_PER_MINUTE = 3


def split(variable, default):
    host, port = os.environ.get(variable, default).rsplit(":", 1)
    return host, int(port)


def log_in(client, session, user):
    # A transaction is one record in the log: no crash leaves a session that never expires.
    with client.pipeline(transaction=True) as transaction:
        transaction.hset(f"session:{session}", mapping={"user": user, "theme": "dark"})
        transaction.expire(f"session:{session}", SESSION_SECONDS)
        transaction.execute()


def may_request(client, user):
    # The first request of a minute sets the time after which the count starts again.
    with client.pipeline(transaction=True) as transaction:
        transaction.incr(f"requests:{user}")
        transaction.expire(f"requests:{user}", 60, nx=True)
        count, _ = transaction.execute()
    return count <= REQUESTS_PER_MINUTE


def main():
    client = redis.Redis(*split("ADDR", "127.0.0.1:6379"), decode_responses=True)
    client.delete("session:s1", "session:s2", "requests:ada")
    log_in(client, "s1", "ada")
    log_in(client, "s2", "grace")
    print("session s1 of", client.hget("session:s1", "user"))
    print("requests:", *("allowed" if may_request(client, "ada") else "refused" for _ in range(5)))

    # The same hash as rows: keys, fields and values are blobs.
    host, port = split("CQL_ADDR", "127.0.0.1:9042")
    cluster = Cluster([host], port=port)
    session = cluster.connect()
    read = session.prepare("SELECT field, value, ttl(value) AS ttl FROM redis.hashes WHERE key = ?")
    rows = session.execute(read, [b"session:s1"])
    for row in rows:
        assert 0 < row.ttl <= SESSION_SECONDS
        print("CQL sees", row.field.decode(), "=", row.value.decode())

    # The administrator ends a session; the application sees it at once.
    session.execute(session.prepare("DELETE FROM redis.hashes WHERE key = ?"), [b"session:s1"])
    print("session s1 exists:", client.exists("session:s1"))
    cluster.shutdown()

    # A service without a driver reads the other session by HTTP.
    address = os.environ.get("HTTP_ADDR", "127.0.0.1:8080")
    with urllib.request.urlopen(f"http://{address}/hget/session:s2/user") as answer:
        print("HTTP sees", json.load(answer)["result"])


main()
