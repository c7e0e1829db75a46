"""redis-py against ADDR: every test runs over RESP2 and over RESP3."""

import os
import socket
import sys
import threading
from functools import partial

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

import harness
from harness import TESTS, equal, run_named, test

HOST, PORT = os.environ["ADDR"].rsplit(":", 1)
PIPELINE_COMMANDS = 10_000
SCAN_KEYS = 10_000
WORKERS = 8
ROUNDS = 300
BULK_BYTES_MAX = 512 * 1024 * 1024

ONCE = []

refused = partial(harness.refused, redis.RedisError)


def test_once(function):
    """Runs once: it does not depend on the protocol of the client."""
    ONCE.append(function)
    return function


def connect(protocol, **options):
    options.setdefault("socket_timeout", 60)
    # What is refused once is refused: the default tries ten times, also a wrong password.
    options.setdefault("retry", Retry(NoBackoff(), 0))
    return redis.Redis(host=HOST, port=int(PORT), protocol=protocol, **options)


@test
def strings(r):
    equal(r.set("k", "v"), True)
    equal(r.get("k"), b"v")
    equal(r.set("k", "w", nx=True), None)
    equal(r.set("k", "w", xx=True, get=True), b"v")
    equal(r.append("k", "x"), 2)
    equal(r.strlen("k"), 2)
    equal(r.getrange("k", 0, 0), b"w")
    equal(r.setrange("k", 3, "!"), 4)
    equal(r.get("k"), b"wx\x00!")
    equal(r.getset("k", "z"), b"wx\x00!")
    equal(r.getdel("k"), b"z")
    equal(r.getex("k", ex=5), None)
    equal(r.mset({"a": 1, "b": 2}), True)
    equal(r.mget("a", "missing", "b"), [b"1", None, b"2"])
    equal(r.msetnx({"a": 3, "c": 4}), False)
    equal(r.incr("n"), 1)
    equal(r.incrby("n", 41), 42)
    equal(r.decr("n", 2), 40)
    equal(float(r.incrbyfloat("n", 0.5)), 40.5)
    refused("not an integer", r.incr, "n")
    equal(r.setex("t", 1000, "v"), True)
    equal(900 <= r.ttl("t") <= 1000, True)


@test
def hashes(r):
    equal(r.hset("h", mapping={"f": "v", "g": ""}), 2)
    equal(r.hget("h", "f"), b"v")
    equal(r.hgetall("h"), {b"f": b"v", b"g": b""})
    equal(r.hmget("h", "f", "x"), [b"v", None])
    equal(r.hincrby("h", "n", 7), 7)
    equal(r.hincrbyfloat("h", "n", 0.25), 7.25)
    equal(r.hsetnx("h", "f", "w"), 0)
    equal((r.hlen("h"), r.hexists("h", "f"), r.hstrlen("h", "f")), (3, True, 1))
    equal(sorted(r.hkeys("h")), [b"f", b"g", b"n"])
    equal(sorted(r.hvals("h")), [b"", b"7.25", b"v"])
    equal(r.hrandfield("h", 10) is not None, True)
    equal(dict(r.hscan_iter("h")), {b"f": b"v", b"g": b"", b"n": b"7.25"})
    equal(r.hdel("h", "f", "g", "n"), 3)
    equal(r.exists("h"), 0)


@test
def lists(r):
    equal(r.rpush("l", 1, 2, 3), 3)
    equal(r.lpush("l", 0), 4)
    equal(r.lrange("l", 0, -1), [b"0", b"1", b"2", b"3"])
    equal(r.lindex("l", -1), b"3")
    equal(r.lset("l", 0, "x"), True)
    equal(r.linsert("l", "before", "2", "y"), 5)
    equal(r.lpos("l", "y"), 2)
    equal(r.lrem("l", 0, "y"), 1)
    equal(r.ltrim("l", 0, 2), True)
    equal(r.lmove("l", "m", "LEFT", "RIGHT"), b"x")
    equal(r.rpoplpush("l", "m"), b"2")
    equal(r.lpop("m", 5), [b"2", b"x"])
    equal(r.rpop("l"), b"1")
    equal(r.lpushx("l", "a"), 0)
    r.rpush("l", "a", "b")
    equal(r.lmpop(2, "missing", "l", direction="RIGHT"), [b"l", [b"b"]])
    equal(r.llen("l"), 1)


@test
def sets(r):
    equal(r.sadd("a", 1, 2, 3), 3)
    equal(r.sadd("b", 3, 4), 2)
    equal(set(r.smembers("a")), {b"1", b"2", b"3"})
    equal(set(r.sinter("a", "b")), {b"3"})
    equal(set(r.sunion("a", "b")), {b"1", b"2", b"3", b"4"})
    equal(set(r.sdiff("a", "b")), {b"1", b"2"})
    equal(r.sinterstore("d", "a", "b"), 1)
    equal(r.sunionstore("d", "a", "b"), 4)
    equal(r.sdiffstore("d", "a", "b"), 2)
    equal(r.sintercard(2, ["a", "b"]), 1)
    equal([bool(found) for found in r.smismember("a", ["1", "9"])], [True, False])
    equal(bool(r.sismember("a", "1")), True)
    equal(bool(r.smove("a", "b", "1")), True)
    equal(r.srem("b", "1", "9"), 1)
    equal(set(r.sscan_iter("b")), {b"3", b"4"})
    equal(r.srandmember("b") in (b"3", b"4"), True)
    equal(sorted(r.spop("b", 9)), [b"3", b"4"])
    equal(r.scard("b"), 0)


@test
def sorted_sets(r):
    equal(r.zadd("z", {"a": 1, "b": 2.5, "c": 3}), 3)
    equal(r.zadd("z", {"a": 0}, gt=True, ch=True), 0)
    equal(r.zscore("z", "b"), 2.5)
    equal(r.zmscore("z", ["a", "x"]), [1.0, None])
    equal(r.zincrby("z", 0.5, "b"), 3.0)
    pairs = [tuple(pair) for pair in r.zrange("z", 0, -1, withscores=True)]
    equal(pairs, [(b"a", 1.0), (b"b", 3.0), (b"c", 3.0)])
    equal(r.zrange("z", 0, 0, desc=True), [b"c"])
    equal(r.zrangebyscore("z", "(1", "+inf"), [b"b", b"c"])
    equal(r.zrevrangebyscore("z", 3, 1, start=0, num=1), [b"c"])
    equal((r.zrank("z", "c"), r.zrevrank("z", "c"), r.zrank("z", "x")), (2, 0, None))
    equal((r.zcard("z"), r.zcount("z", 1, 2)), (3, 1))
    r.zadd("y", {"c": 1, "d": 1, "e": 1})
    equal(r.zrangebylex("y", "[d", "+"), [b"d", b"e"])
    equal(r.zlexcount("y", "-", "+"), 3)
    equal(r.zunionstore("d", ["z", "y"]), 5)
    equal(r.zinterstore("d", {"z": 2, "y": 10}), 1)
    equal(r.zscore("d", "c"), 16.0)
    equal(r.zdiff(["z", "y"]), [b"a", b"b"])
    equal(r.zrangestore("d", "z", 0, 0), 1)
    equal(dict(r.zscan_iter("z")), {b"a": 1.0, b"b": 3.0, b"c": 3.0})
    equal([pair[0] for pair in r.zpopmin("z", 1)], [b"a"])
    equal(r.zremrangebyscore("z", 3, 3), 2)
    equal(r.zrem("y", "c"), 1)


@test
def keys(r):
    r.mset({"a": 1, "b": 2})
    equal(r.exists("a", "b", "x"), 2)
    equal(r.type("a"), b"string")
    equal(r.expire("a", 100), True)
    equal(0 < r.pttl("a") <= 100_000, True)
    equal(r.persist("a"), True)
    equal(r.expireat("a", 33177117420), True)
    equal(r.expiretime("a"), 33177117420)
    equal(r.pexpiretime("a"), 33177117420000)
    equal(r.rename("a", "c"), True)
    equal(r.renamenx("c", "b"), False)
    equal(r.copy("b", "d"), True)
    equal(sorted(r.keys("*")), [b"b", b"c", b"d"])
    equal(r.randomkey() in (b"b", b"c", b"d"), True)
    equal(r.touch("b", "x"), 1)
    equal(r.move("d", 1), True)
    equal(r.object("encoding", "b"), b"int")
    equal(r.unlink("b", "c"), 2)
    equal(r.delete("b"), 0)
    equal(r.dbsize(), 0)
    refused("no such key", r.rename, "x", "y")


@test
def scan_covers_all_keys(r):
    wanted = {b"key:%d" % number for number in range(SCAN_KEYS)}
    pipe = r.pipeline(transaction=False)
    for key in wanted:
        pipe.set(key, b"v")
    pipe.execute()
    seen = []
    cursor = None
    while cursor != 0:
        cursor, batch = r.scan(cursor or 0, count=100)
        seen.extend(batch)
    equal(set(seen), wanted)
    equal(set(r.scan_iter(match="key:99*", count=500)), {k for k in wanted if k[4:6] == b"99"})
    members = [b"m%d" % number for number in range(SCAN_KEYS)]
    r.sadd("members", *members)
    equal(set(r.sscan_iter("members", count=100)), set(members))


@test
def pipelines_keep_order(r):
    pipe = r.pipeline(transaction=False)
    for number in range(PIPELINE_COMMANDS // 2):
        pipe.set(f"k{number}", number)
        pipe.get(f"k{number}")
    replies = pipe.execute()
    equal(len(replies), PIPELINE_COMMANDS)
    equal(replies[0::2], [True] * (PIPELINE_COMMANDS // 2))
    equal(replies[1::2], [b"%d" % number for number in range(PIPELINE_COMMANDS // 2)])


@test
def any_byte_is_safe(r):
    blob = bytes(range(256)) * 5
    for key in (b"", b"\x00", b"\r\n", b"*1\r\n$4\r\nPING\r\n", blob):
        equal(r.set(key, blob), True)
        equal(r.get(key), blob)
        equal(r.hset(b"h" + key, key, blob), 1)
        equal(r.hgetall(b"h" + key), {key: blob})
    equal(r.echo(blob), blob)


@test
def transactions(r):
    with r.pipeline(transaction=True) as pipe:
        pipe.set("a", 1).incr("a").get("a").hset("h", "f", "v").hgetall("h")
        equal(pipe.execute(), [True, 2, b"2", 1, {b"f": b"v"}])
    with r.pipeline() as pipe:
        pipe.watch("a")
        r.set("a", "by another connection")
        pipe.multi()
        pipe.set("a", "mine")
        try:
            pipe.execute()
        except redis.WatchError:
            pass
        else:
            raise AssertionError("EXEC went through though the key had changed")
    equal(r.get("a"), b"by another connection")
    with r.pipeline() as pipe:
        pipe.set("s", "text").incr("s").set("t", "after")
        refused("not an integer", pipe.execute)
    equal(r.get("t"), b"after")


@test
def connection(r):
    equal(r.ping(), True)
    equal(r.echo("hi"), b"hi")
    # The server may not have seen yet that the client of the other protocol has left.
    name = f"suite-resp{r.connection_pool.connection_kwargs['protocol']}"
    equal(r.client_setname(name), True)
    equal(r.client_getname() in (name.encode(), name), True)
    mine = [client for client in r.client_list() if client["name"] == name]
    equal(len(mine), 1)
    equal(int(mine[0]["id"]), r.client_id())
    equal(r.client_info()["name"], name)
    try:
        r.client_setinfo("LIB-NAME", "suite-lib")
        equal(r.client_info()["lib-name"], "suite-lib")
    except redis.ResponseError as error:
        # Redis 7.0 does not know it; clients must live with that.
        equal("unknown subcommand" in str(error), True)
    other = connect(2, db=3)
    other.set("only in 3", 1)
    equal(r.exists("only in 3"), 0)
    other.flushdb()
    other.close()
    refused("unknown command", r.execute_command, "NONSENSE")
    refused("WRONGTYPE", lambda: (r.rpush("l", 1), r.get("l")))


@test
def server(r):
    info = r.info()
    for field in ("redis_version", "redis_mode", "process_id", "tcp_port", "connected_clients"):
        equal(field in info, True)
    r.set("k", "v")
    equal(r.info("keyspace")["db0"]["keys"], 1)
    equal(r.config_get("maxmemory"), {"maxmemory": "0"})
    equal(r.config_set("maxmemory", 0), True)
    equal(r.config_resetstat(), True)
    commands = r.command()
    equal((commands["get"]["arity"], commands["get"]["step_count"]), (2, 1))
    equal(r.command_count() >= 100, True)
    found = r.command_getkeys("MSET", "a", "1", "b", "2")
    equal([key if isinstance(key, str) else key.decode() for key in found], ["a", "b"])
    seconds, microseconds = r.time()
    equal(seconds > 1_600_000_000 and 0 <= microseconds < 1_000_000, True)
    equal(r.slowlog_reset(), True)
    equal(isinstance(r.slowlog_get(5), list), True)
    equal(r.memory_usage("k") > 0, True)
    equal(r.lastsave() is not None, True)
    equal(r.flushall(), True)
    equal(r.dbsize(), 0)


@test
def a_wrong_password_is_refused(r):
    protocol = r.connection_pool.connection_kwargs["protocol"]
    refused("", connect(protocol, username="nobody", password="x").ping)
    r.config_set("requirepass", "secret")
    try:
        refused("uthentica", connect(protocol).ping)
        refused("invalid username-password", connect(protocol, password="wrong").ping)
        equal(connect(protocol, password="secret").ping(), True)
        equal(connect(protocol, username="default", password="secret").ping(), True)
    finally:
        r.config_set("requirepass", "")
    equal(connect(protocol).ping(), True)


@test_once
def the_largest_value(r):
    value = bytes(BULK_BYTES_MAX)
    equal(r.set("big", value), True)
    del value
    equal(r.strlen("big"), BULK_BYTES_MAX)
    equal(r.getrange("big", -3, -1), b"\x00\x00\x00")
    refused("exceeds maximum allowed size", r.append, "big", "x")
    refused("exceeds maximum allowed size", r.setrange, "big", BULK_BYTES_MAX, "x")
    equal(r.strlen("big"), BULK_BYTES_MAX)
    equal(r.delete("big"), 1)


@test_once
def one_byte_too_many(_):
    head = b"*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$%d\r\n" % (BULK_BYTES_MAX + 1)
    with socket.create_connection((HOST, int(PORT)), timeout=60) as raw:
        raw.sendall(head)
        reply = b""
        while chunk := raw.recv(4096):
            reply += chunk
    equal(reply, b"-ERR Protocol error: invalid bulk length\r\n")


@test_once
def a_request_may_come_byte_by_byte(_):
    with socket.create_connection((HOST, int(PORT)), timeout=60) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"*2\r\n$4\r\nECHO\r\n$3\r\nabc\r\nPING\r\n":
            raw.sendall(bytes([byte]))
        reply = b""
        while len(reply) < len(b"$3\r\nabc\r\n+PONG\r\n"):
            reply += raw.recv(4096)
    equal(reply, b"$3\r\nabc\r\n+PONG\r\n")


def in_parallel(work):
    """Runs work(client, index) on connections of their own, all at once; raises what they raise."""
    errors = []
    start = threading.Barrier(WORKERS)

    def body(index):
        client = connect(2)
        try:
            client.ping()
            start.wait(60)
            work(client, index)
        except Exception as error:
            errors.append(error)
            start.abort()
        finally:
            client.close()

    threads = [threading.Thread(target=body, args=(index,)) for index in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@test_once
def no_increment_is_lost(r):
    def work(client, index):
        for _ in range(ROUNDS):
            client.incr("n")
            client.hincrby("h", "n", 2)
            client.zincrby("z", 1, "n")
            client.append("s", "x")

    in_parallel(work)
    equal(r.get("n"), b"%d" % (WORKERS * ROUNDS))
    equal(r.hget("h", "n"), b"%d" % (2 * WORKERS * ROUNDS))
    equal(r.zscore("z", "n"), float(WORKERS * ROUNDS))
    equal(r.strlen("s"), WORKERS * ROUNDS)


def messages(listener, count):
    """The next messages of a listener, as (type, pattern, channel, data)."""
    got = []
    while len(got) < count:
        message = listener.get_message(timeout=60)
        if message is None:
            raise AssertionError(f"only {got!r} came")
        got.append((message["type"], message["pattern"], message["channel"], message["data"]))
    return got


@test
def messages_of_channels(r):
    equal(r.publish("news", "nobody"), 0)
    listener = r.pubsub()
    listener.subscribe("news", "weather")
    listener.psubscribe("n*")
    equal([m[0] for m in messages(listener, 3)], ["subscribe", "subscribe", "psubscribe"])
    equal(r.pubsub_numsub("news", "none"), [(b"news", 1), (b"none", 0)])
    equal(sorted(r.pubsub_channels()), [b"news", b"weather"])
    equal(r.pubsub_numpat(), 1)
    equal(r.publish("news", b"\x00\r\n\xff"), 2)
    blob = b"\x00\r\n\xff"
    equal(
        messages(listener, 2),
        [("message", None, b"news", blob), ("pmessage", b"n*", b"news", blob)],
    )
    equal(r.pipeline().set("k", "v").publish("weather", "rain").execute(), [True, 1])
    equal(messages(listener, 1), [("message", None, b"weather", b"rain")])
    listener.ping("are you there")
    equal(messages(listener, 1)[0][::3], ("pong", b"are you there"))
    listener.unsubscribe()
    listener.punsubscribe("n*")
    kinds = sorted(m[0] for m in messages(listener, 3))
    equal(kinds, ["punsubscribe", "unsubscribe", "unsubscribe"])
    equal(r.publish("news", "nobody"), 0)
    listener.close()


@test_once
def every_listener_gets_every_message_in_order(r):
    listeners = [connect(2 + index % 2).pubsub() for index in range(WORKERS)]
    for listener in listeners:
        listener.subscribe("numbers")
        messages(listener, 1)
    with r.pipeline(transaction=False) as pipe:
        for number in range(ROUNDS):
            pipe.publish("numbers", number)
        equal(pipe.execute(), [WORKERS] * ROUNDS)
    for listener in listeners:
        got = [int(m[3]) for m in messages(listener, ROUNDS)]
        equal(got, list(range(ROUNDS)))
        listener.close()


@test_once
def several_keys_change_at_once(r):
    keys = [f"key:{number}" for number in range(10)]
    r.mset({key: "start" for key in keys})

    def work(client, index):
        for round_ in range(ROUNDS):
            if index % 2 == 0:
                client.mset({key: f"{index}:{round_}" for key in keys})
            else:
                seen = set(client.mget(keys))
                equal(len(seen), 1)

    in_parallel(work)


@test_once
def transactions_are_alone(r):
    r.mset({"a": 1000, "b": 0})

    def work(client, index):
        for _ in range(ROUNDS // 3):
            with client.pipeline(transaction=True) as pipe:
                if index % 2 == 0:
                    pipe.decr("a").incr("b").execute()
                else:
                    a, b = pipe.get("a").get("b").execute()
                    equal(int(a) + int(b), 1000)

    in_parallel(work)


@test_once
def watch_guards_read_and_write(r):
    def work(client, index):
        done = 0
        while done < ROUNDS // 10:
            with client.pipeline() as pipe:
                try:
                    pipe.watch("n")
                    value = int(pipe.get("n") or 0)
                    pipe.multi()
                    pipe.set("n", value + 1)
                    pipe.execute()
                    done += 1
                except redis.WatchError:
                    continue

    in_parallel(work)
    equal(r.get("n"), b"%d" % (WORKERS * (ROUNDS // 10)))


@test_once
def elements_move_without_loss(r):
    r.rpush("list:0", *range(100))
    r.sadd("set:0", *range(100))

    def work(client, index):
        for round_ in range(ROUNDS):
            source, target = (index + round_) % 3, (index * 7 + round_ + 1) % 3
            client.lmove(f"list:{source}", f"list:{target}", "LEFT", "RIGHT")
            client.smove(f"set:{source}", f"set:{target}", round_ % 100)

    in_parallel(work)
    everywhere = [element for n in range(3) for element in r.lrange(f"list:{n}", 0, -1)]
    equal(sorted(map(int, everywhere)), list(range(100)))
    equal(sum(r.scard(f"set:{n}") for n in range(3)), 100)


@test_once
def one_winner_per_lock(r):
    winners = []

    def work(client, index):
        for round_ in range(ROUNDS):
            if client.set(f"lock:{round_}", index, nx=True):
                winners.append(round_)

    in_parallel(work)
    equal(sorted(winners), list(range(ROUNDS)))


def run_over(protocol, body):
    client = connect(protocol)
    try:
        client.flushall()
        body(client)
    finally:
        client.close()


bodies = [(body, protocol) for protocol in (2, 3) for body in TESTS] + [(body, 2) for body in ONCE]
cases = [(f"{body.__name__} (RESP{protocol})", partial(run_over, protocol, body)) for body, protocol in bodies]
status = run_named(cases)
connect(2).flushall()
sys.exit(status)
