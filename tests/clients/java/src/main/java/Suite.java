import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.Callable;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.args.ListDirection;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

/** Jedis against ADDR: every test runs over RESP2 and over RESP3. */
public final class Suite {
    private static final int PIPELINE_COMMANDS = 10_000;
    private static final int SCAN_KEYS = 10_000;

    private interface Body {
        void run(Jedis jedis, RedisProtocol protocol) throws Exception;
    }

    private static Jedis connect(RedisProtocol protocol, String user, String password, String name) {
        DefaultJedisClientConfig config = DefaultJedisClientConfig.builder()
            .protocol(protocol).user(user).password(password).clientName(name)
            .connectionTimeoutMillis(60_000).socketTimeoutMillis(60_000).build();
        return new Jedis(HostAndPort.from(System.getenv("ADDR")), config);
    }

    private static void equal(Object got, Object wanted) {
        if (!Objects.deepEquals(got, wanted)) {
            throw new AssertionError("got " + got + ", wanted " + wanted);
        }
    }

    private static void refused(String text, Callable<?> call) {
        Object got;
        try {
            got = call.call();
        } catch (Exception error) {
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                if (String.valueOf(cause.getMessage()).contains(text)) {
                    return;
                }
            }
            throw new AssertionError("refused otherwise than with " + text, error);
        }
        throw new AssertionError("got " + got + ", wanted an error with " + text);
    }

    private static void everyType(Jedis jedis, RedisProtocol protocol) {
        equal(jedis.set("k", "v", SetParams.setParams().ex(1000)), "OK");
        equal(jedis.get("k"), "v");
        equal(jedis.ttl("k") > 900, true);
        equal(jedis.set("k", "w", SetParams.setParams().nx()), null);
        equal(jedis.mget("k", "missing"), Arrays.asList("v", null));
        equal(jedis.incrBy("n", 42), 42L);
        equal(jedis.incrByFloat("n", 0.5), 42.5);
        equal(jedis.hset("h", Map.of("f", "v", "g", "")), 2L);
        equal(jedis.hgetAll("h"), Map.of("f", "v", "g", ""));
        equal(jedis.hincrBy("h", "n", 3), 3L);
        equal(jedis.rpush("l", "a", "b", "c"), 3L);
        equal(jedis.lrange("l", 0, -1), List.of("a", "b", "c"));
        equal(jedis.lmove("l", "m", ListDirection.LEFT, ListDirection.RIGHT), "a");
        equal(jedis.sadd("s", "1", "2", "3"), 3L);
        equal(jedis.smembers("s"), Set.of("1", "2", "3"));
        equal(jedis.sismember("s", "2"), true);
        equal(jedis.zadd("z", Map.of("a", 1.0, "b", 2.5)), 2L);
        equal(jedis.zscore("z", "b"), 2.5);
        equal(jedis.zrange("z", 0, -1), List.of("a", "b"));
        equal(jedis.zrangeWithScores("z", 0, -1).get(1).getScore(), 2.5);
        equal(jedis.zincrby("z", -0.5, "b"), 2.0);
        equal(jedis.zpopmin("z").getElement(), "a");
        equal(jedis.expireAt("z", 33177117420L), 1L);
        equal(jedis.expireTime("z"), 33177117420L);
        equal(jedis.persist("z"), 1L);
        equal(jedis.type("z"), "zset");
        equal(jedis.copy("z", "y", false), true);
        equal(jedis.rename("y", "x"), "OK");
        equal(jedis.del("k", "n", "h", "l", "m", "s", "z", "x"), 8L);
        jedis.rpush("l", "a");
        refused("WRONGTYPE", () -> jedis.get("l"));
        refused("not an integer", () -> {
            jedis.set("t", "text");
            return jedis.incr("t");
        });
    }

    private static void pipelinesKeepOrder(Jedis jedis, RedisProtocol protocol) {
        try (Pipeline pipeline = jedis.pipelined()) {
            for (int number = 0; number < PIPELINE_COMMANDS / 2; number++) {
                pipeline.set("k" + number, String.valueOf(number));
                pipeline.get("k" + number);
            }
            List<Object> replies = pipeline.syncAndReturnAll();
            equal(replies.size(), PIPELINE_COMMANDS);
            for (int number = 0; number < PIPELINE_COMMANDS / 2; number++) {
                equal(replies.get(2 * number), "OK");
                equal(replies.get(2 * number + 1), String.valueOf(number));
            }
        }
    }

    private static void anyByteIsSafe(Jedis jedis, RedisProtocol protocol) {
        byte[] blob = new byte[1280];
        for (int index = 0; index < blob.length; index++) {
            blob[index] = (byte) index;
        }
        byte[] field = {13, 10, 0};
        equal(jedis.set(blob, blob), "OK");
        equal(jedis.get(blob), blob);
        equal(jedis.del(blob), 1L);
        equal(jedis.hset(blob, field, blob), 1L);
        equal(jedis.hget(blob, field), blob);
    }

    private static void transactions(Jedis jedis, RedisProtocol protocol) {
        try (Transaction transaction = jedis.multi()) {
            transaction.set("a", "1");
            Response<Long> incremented = transaction.incr("a");
            equal(transaction.exec(), List.of("OK", 2L));
            equal(incremented.get(), 2L);
        }
        jedis.watch("a");
        try (Jedis other = connect(protocol, null, null, null)) {
            other.set("a", "theirs");
        }
        try (Transaction transaction = jedis.multi()) {
            transaction.set("a", "mine");
            equal(transaction.exec(), null);
        }
        equal(jedis.get("a"), "theirs");
    }

    private static void scanCoversAllKeys(Jedis jedis, RedisProtocol protocol) {
        Map<String, String> pairs = new LinkedHashMap<>();
        for (int number = 0; number < SCAN_KEYS; number++) {
            pairs.put("key:" + number, "v");
        }
        try (Pipeline pipeline = jedis.pipelined()) {
            pairs.forEach(pipeline::set);
        }
        Set<String> seen = new HashSet<>();
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
            ScanResult<String> batch = jedis.scan(cursor, new ScanParams().count(100).match("key:*"));
            seen.addAll(batch.getResult());
            cursor = batch.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
        equal(seen, pairs.keySet());
        equal(jedis.dbSize(), (long) SCAN_KEYS);
    }

    private static void theServerAndItsClients(Jedis jedis, RedisProtocol protocol) {
        try (Jedis named = connect(protocol, null, null, "suite")) {
            equal(named.clientGetname(), "suite");
            equal(named.clientId() > 0, true);
            equal(jedis.clientList().contains("name=suite "), true);
        }
        equal(jedis.ping(), "PONG");
        equal(jedis.echo("hi"), "hi");
        equal(jedis.info().contains("redis_version:"), true);
        equal(jedis.configGet("maxmemory"), Map.of("maxmemory", "0"));
        equal(jedis.commandCount() >= 100, true);
        equal(jedis.commandGetKeys("MSET", "a", "1", "b", "2"), List.of("a", "b"));
        equal(jedis.time().size(), 2);
        equal(jedis.select(1), "OK");
        equal(jedis.select(0), "OK");
    }

    private static void aWrongPasswordIsRefused(Jedis jedis, RedisProtocol protocol) {
        jedis.configSet("requirepass", "secret");
        try {
            refused("uthentica", () -> ping(protocol, null, null));
            refused("WRONGPASS", () -> ping(protocol, null, "wrong"));
            equal(ping(protocol, null, "secret"), "PONG");
            equal(ping(protocol, "default", "secret"), "PONG");
        } finally {
            jedis.configSet("requirepass", "");
        }
    }

    private static String ping(RedisProtocol protocol, String user, String password) {
        try (Jedis jedis = connect(protocol, user, password, null)) {
            return jedis.ping();
        }
    }

    private static boolean run(String name, Body body, RedisProtocol protocol) {
        try (Jedis jedis = connect(protocol, null, null, null)) {
            jedis.flushAll();
            body.run(jedis, protocol);
            jedis.flushAll();
        } catch (Throwable error) {
            System.out.println("FAILED " + name + " (" + protocol + ")");
            error.printStackTrace(System.out);
            return false;
        }
        System.out.println("ok " + name + " (" + protocol + ")");
        return true;
    }

    public static void main(String[] arguments) {
        Map<String, Body> tests = new LinkedHashMap<>();
        tests.put("every type", Suite::everyType);
        tests.put("pipelines keep order", Suite::pipelinesKeepOrder);
        tests.put("any byte is safe", Suite::anyByteIsSafe);
        tests.put("transactions", Suite::transactions);
        tests.put("scan covers all keys", Suite::scanCoversAllKeys);
        tests.put("the server and its clients", Suite::theServerAndItsClients);
        tests.put("a wrong password is refused", Suite::aWrongPasswordIsRefused);
        int passed = 0;
        int failed = 0;
        for (RedisProtocol protocol : List.of(RedisProtocol.RESP2, RedisProtocol.RESP3)) {
            for (Map.Entry<String, Body> test : tests.entrySet()) {
                if (run(test.getKey(), test.getValue(), protocol)) {
                    passed++;
                } else {
                    failed++;
                }
            }
        }
        System.out.println(passed + " passed, " + failed + " failed");
        System.exit(failed == 0 ? 0 : 1);
    }
}
