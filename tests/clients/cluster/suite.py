"""redis-py's RedisCluster against ADDR, a server with cluster-view, over RESP2 and RESP3."""

import os
import sys
import time
from functools import partial

import redis
from redis.cluster import RedisCluster

from harness import TESTS, equal, run_named, test

HOST, PORT = os.environ["ADDR"].rsplit(":", 1)
KEYS = [f"key:{number}" for number in range(200)]
PATIENCE_S = 60


def connect(protocol, **options):
    return RedisCluster(host=HOST, port=int(PORT), protocol=protocol, decode_responses=True, **options)


def next_message(receive):
    """The next message that is not about the subscription."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = receive()
        if message and message["type"] in ("message", "pmessage", "smessage"):
            return message["channel"], message["data"]
    raise AssertionError("no message")


@test
def every_node_is_a_reactor(r):
    nodes = sorted(r.get_primaries(), key=lambda node: node.port)
    equal(int(r.cluster_info(target_nodes=nodes[0])["cluster_size"]), len(nodes))
    owners = {r.get_node_from_key(key).name for key in KEYS}
    equal(owners, {node.name for node in nodes})
    slots = r.cluster_slots(target_nodes=nodes[0])
    equal(sum(end - start + 1 for start, end in slots), 16384)
    seen = set()
    for node in nodes:
        connection = r.get_redis_connection(node)
        seen.add(int(connection.client_info()["reactor"]))
        equal(connection.execute_command("CLUSTER MYID"), cluster_id(r, node.port))
    equal(seen, set(range(len(nodes))))


def cluster_id(r, port):
    nodes = r.cluster_nodes()
    return next(value["node_id"] for name, value in nodes.items() if name.endswith(f":{port}"))


@test
def keys_of_all_slots(r):
    for key in KEYS:
        equal(r.set(key, key), True)
    for key in KEYS:
        equal(r.get(key), key)
    equal(r.mget_nonatomic(KEYS), KEYS)
    equal(r.delete(*KEYS), len(KEYS))


@test
def commands_across_slots(r):
    for node in r.get_primaries():
        pairs = [part for key in KEYS for part in (key, key)]
        equal(r.execute_command("MSET", *pairs, target_nodes=node), True)
        equal(r.execute_command("MGET", *KEYS, target_nodes=node), KEYS)
        plain = r.get_redis_connection(node)
        with plain.pipeline(transaction=True) as transaction:
            for key in KEYS:
                transaction.get(key)
            equal(transaction.execute(), KEYS)
        script = "return redis.call('MGET', unpack(KEYS))"
        equal(plain.eval(script, len(KEYS), *KEYS), KEYS)
        equal(plain.dbsize(), len(KEYS))


@test
def transactions_and_pipelines(r):
    with r.pipeline() as pipeline:
        for key in KEYS:
            pipeline.set(key, 1)
        equal(pipeline.execute(), [True] * len(KEYS))
    with r.pipeline(transaction=True) as transaction:
        transaction.incr("{tag}a").incr("{tag}b").get("{tag}a")
        equal(transaction.execute(), [1, 1, "1"])
    equal(r.eval("return redis.call('INCR', KEYS[1])", 1, "{tag}a"), 2)


@test
def messages(r):
    with r.pubsub() as listener:
        listener.subscribe("news")
        listener.psubscribe("n*s")
        for _ in range(2):
            listener.get_message(timeout=PATIENCE_S)
        for number, node in enumerate(r.get_primaries()):
            r.execute_command("PUBLISH", "news", number, target_nodes=node)
            for _ in range(2):
                equal(next_message(lambda: listener.get_message(timeout=1)), ("news", str(number)))


@test
def sharded_messages(r):
    channels = [f"shard:{number}" for number in range(8)]
    for channel in channels:
        with r.pubsub() as listener:
            listener.ssubscribe(channel)
            equal(r.spublish(channel, "hello"), 1)
            node = r.get_node_from_key(channel)
            receive = lambda: listener.get_sharded_message(timeout=1, target_node=node)
            equal(next_message(receive), (channel, "hello"))


@test
def blocking_commands(r):
    for key in KEYS[:8]:
        r.rpush(key, "element")
        equal(r.blpop(key, timeout=PATIENCE_S), (key, "element") if r.protocol == 2 else [key, "element"])


@test
def numbered_databases(r):
    for node in r.get_primaries():
        client = redis.Redis(host=node.host, port=node.port, db=1, decode_responses=True)
        client.set("k", node.name)
        equal(client.get("k"), node.name)
        client.close()
    equal(r.get("k"), None)


@test
def keys_in_slots(r):
    r.set("{tag}a", 1)
    r.set("{tag}b", 1)
    slot = r.keyslot("{tag}a")
    equal(r.cluster_keyslot("{tag}a"), slot)
    equal(r.cluster_countkeysinslot(slot), 2)
    equal(sorted(r.cluster_get_keys_in_slot(slot, 10)), ["{tag}a", "{tag}b"])
    equal(len(r.cluster_get_keys_in_slot(slot, 1)), 1)


def run_over(protocol, body):
    client = connect(protocol)
    client.protocol = protocol
    client.flushall()
    try:
        body(client)
    finally:
        client.flushall()
        client.close()


cases = [(f"{body.__name__} (RESP{protocol})", partial(run_over, protocol, body)) for protocol in (2, 3) for body in TESTS]
sys.exit(run_named(cases))
