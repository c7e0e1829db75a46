// ioredis and node-redis against ADDR.

import assert from "node:assert/strict";
import Redis from "ioredis";
import { createClient } from "redis";

import { run, test } from "../harness.mjs";

const [host, port] = process.env.ADDR.split(":");
const PIPELINE_COMMANDS = 10_000;
const SCAN_KEYS = 10_000;
/** A busy machine may halt the server or this process for longer than the seconds of the defaults. */
const PATIENCE_MS = 60_000;
const BLOB = Buffer.from(Array.from({ length: 1280 }, (_, index) => index % 256));

/** Registers a test: `open` makes a connected client on an empty server, `close` ends it. */
function testWith(name, open, close, body) {
  test(name, async () => {
    const client = await open();
    try {
      await client[client.flushall ? "flushall" : "flushAll"]();
      await body(client);
      await client[client.flushall ? "flushall" : "flushAll"]();
    } finally {
      close(client);
    }
  });
}

async function openIoredis(options = {}) {
  const client = new Redis({
    host, port: Number(port), connectTimeout: PATIENCE_MS, lazyConnect: true, maxRetriesPerRequest: 1, retryStrategy: null, ...options,
  });
  client.on("error", () => {}); // the rejected promise is what the tests look at
  await client.connect();
  return client;
}

function ioredis(name, body) {
  testWith(`ioredis: ${name}`, () => openIoredis(), (client) => client.disconnect(), body);
}

async function openNodeRedis(RESP, options = {}) {
  const client = createClient({ socket: { host, port: Number(port), connectTimeout: PATIENCE_MS, reconnectStrategy: false }, RESP, ...options });
  client.on("error", () => {});
  await client.connect();
  return client;
}

function nodeRedis(name, body) {
  for (const RESP of [2, 3]) {
    testWith(`node-redis RESP${RESP}: ${name}`, () => openNodeRedis(RESP), (client) => client.destroy(), (client) => body(client, RESP));
  }
}

ioredis("every type", async (r) => {
  assert.equal(await r.set("k", "v", "EX", 1000), "OK");
  assert.equal(await r.get("k"), "v");
  assert.ok((await r.ttl("k")) > 900);
  assert.equal(await r.set("k", "w", "NX"), null);
  assert.equal(await r.append("k", "!"), 2);
  assert.deepEqual(await r.mget("k", "missing"), ["v!", null]);
  assert.equal(await r.incrby("n", 42), 42);
  assert.equal(await r.hset("h", { f: "v", g: "" }), 2);
  assert.deepEqual(await r.hgetall("h"), { f: "v", g: "" });
  assert.equal(await r.hincrby("h", "n", 3), 3);
  assert.equal(await r.rpush("l", "a", "b", "c"), 3);
  assert.deepEqual(await r.lrange("l", 0, -1), ["a", "b", "c"]);
  assert.equal(await r.lmove("l", "m", "LEFT", "RIGHT"), "a");
  assert.equal(await r.sadd("s", 1, 2, 3), 3);
  assert.deepEqual((await r.smembers("s")).sort(), ["1", "2", "3"]);
  assert.equal(await r.zadd("z", 1, "a", 2.5, "b"), 2);
  assert.deepEqual(await r.zrange("z", 0, -1, "WITHSCORES"), ["a", "1", "b", "2.5"]);
  assert.equal(await r.type("z"), "zset");
  assert.equal(await r.del("k", "n", "h", "l", "m", "s", "z"), 7);
  await assert.rejects(r.call("NONSENSE"), /unknown command/);
  await r.rpush("l", "x");
  await assert.rejects(r.get("l"), /^ReplyError: WRONGTYPE/);
});

ioredis("a pipeline of 10,000 commands", async (r) => {
  const pipeline = r.pipeline();
  for (let number = 0; number < PIPELINE_COMMANDS / 2; number++) {
    pipeline.set(`k${number}`, number).get(`k${number}`);
  }
  const replies = await pipeline.exec();
  assert.equal(replies.length, PIPELINE_COMMANDS);
  for (let number = 0; number < PIPELINE_COMMANDS / 2; number++) {
    assert.deepEqual(replies[2 * number], [null, "OK"]);
    assert.deepEqual(replies[2 * number + 1], [null, String(number)]);
  }
});

ioredis("bytes are safe", async (r) => {
  await r.set(BLOB, BLOB);
  assert.deepEqual(await r.getBuffer(BLOB), BLOB);
  await r.hset("h", "\r\n", BLOB);
  assert.deepEqual(await r.hgetBuffer("h", "\r\n"), BLOB);
});

ioredis("transactions and WATCH", async (r) => {
  assert.deepEqual(await r.multi().set("a", 1).incr("a").get("a").exec(), [[null, "OK"], [null, 2], [null, "2"]]);
  const other = await openIoredis();
  await r.watch("a");
  await other.set("a", "theirs");
  assert.equal(await r.multi().set("a", "mine").exec(), null);
  assert.equal(await r.get("a"), "theirs");
  other.disconnect();
});

ioredis("SCAN sees all of 10,000 keys", async (r) => {
  const pairs = {};
  for (let number = 0; number < SCAN_KEYS; number++) pairs[`key:${number}`] = "v";
  await r.mset(pairs);
  const seen = new Set();
  for await (const batch of r.scanStream({ count: 100 })) batch.forEach((key) => seen.add(key));
  assert.equal(seen.size, SCAN_KEYS);
  assert.equal(await r.dbsize(), SCAN_KEYS);
});

ioredis("names, lists and INFO", async (r) => {
  const named = await openIoredis({ connectionName: "suite", db: 3 });
  assert.equal(await named.client("GETNAME"), "suite");
  assert.match(await r.client("LIST"), /name=suite .*db=3/);
  const id = await named.client("ID");
  assert.match(await r.client("LIST", "ID", id), new RegExp(`^id=${id} `));
  named.disconnect();
  const info = await r.info();
  assert.match(info, /redis_version:\d+\.\d+/);
  assert.match(info, /\r\n# Clients\r\nconnected_clients:\d+/);
  assert.deepEqual(await r.config("GET", "maxmemory"), ["maxmemory", "0"]);
  assert.equal((await r.command("INFO", "get"))[0][0], "get");
  assert.equal((await r.time()).length, 2);
});

ioredis("a wrong password is refused", async (r) => {
  await r.config("SET", "requirepass", "secret");
  try {
    // ioredis closes a connection whose HELLO or AUTH fails; the reason is in its error event.
    for (const password of [undefined, "wrong"]) {
      const reasons = [];
      const outside = new Redis({ host, port: Number(port), password, connectTimeout: PATIENCE_MS, lazyConnect: true, retryStrategy: null });
      outside.on("error", (error) => reasons.push(error.message));
      await outside.connect().catch((error) => reasons.push(error.message));
      await outside.get("k").then(assert.fail, (error) => reasons.push(error.message));
      assert.match(reasons.join("; "), password ? /WRONGPASS/ : /NOAUTH/);
      outside.disconnect();
    }
    const inside = await openIoredis({ password: "secret" });
    assert.equal(await inside.ping(), "PONG");
    inside.disconnect();
  } finally {
    await r.config("SET", "requirepass", "");
  }
});

nodeRedis("every type", async (r) => {
  assert.equal(await r.set("k", "v", { EX: 100 }), "OK");
  assert.equal(await r.get("k"), "v");
  assert.equal(await r.getDel("k"), "v");
  assert.deepEqual(await r.mGet(["k"]), [null]);
  assert.equal(await r.incrBy("n", 42), 42);
  assert.equal(await r.hSet("h", { f: "v" }), 1);
  assert.deepEqual({ ...(await r.hGetAll("h")) }, { f: "v" });
  assert.equal(await r.rPush("l", ["a", "b"]), 2);
  assert.deepEqual(await r.lRange("l", 0, -1), ["a", "b"]);
  assert.equal(await r.sAdd("s", ["1", "2"]), 2);
  assert.deepEqual([...(await r.sMembers("s"))].sort(), ["1", "2"]);
  assert.equal(await r.zAdd("z", [{ score: 1, value: "a" }, { score: 2.5, value: "b" }]), 2);
  assert.equal(await r.zScore("z", "b"), 2.5);
  assert.deepEqual((await r.zRangeWithScores("z", 0, -1)).map((m) => [m.value, m.score]), [["a", 1], ["b", 2.5]]);
  assert.equal(await r.expireAt("z", 33177117420), 1);
  assert.equal(await r.expireTime("z"), 33177117420);
  assert.equal(await r.copy("z", "z2"), 1);
  assert.equal(await r.type("z2"), "zset");
  assert.equal(await r.unlink(["n", "h", "l", "s", "z", "z2"]), 6);
  await assert.rejects(r.sendCommand(["NONSENSE"]), /unknown command/);
});

nodeRedis("pipelines and transactions", async (r, RESP) => {
  const replies = await Promise.all(
    Array.from({ length: PIPELINE_COMMANDS }, (_, number) => (number % 2 ? r.get(`k${number - 1}`) : r.set(`k${number}`, String(number)))),
  );
  assert.equal(replies[PIPELINE_COMMANDS - 1], String(PIPELINE_COMMANDS - 2));
  assert.deepEqual(await r.multi().set("a", "1").incr("a").get("a").exec(), ["OK", 2, "2"]);
  const other = await openNodeRedis(RESP);
  await r.watch("a");
  await other.set("a", "theirs");
  await assert.rejects(r.multi().set("a", "mine").exec(), /watched keys/i);
  assert.equal(await r.get("a"), "theirs");
  other.destroy();
});

ioredis("messages of channels", async (r) => {
  const listener = await openIoredis();
  const got = [];
  const arrived = new Promise((resolve) => {
    const note = (...message) => got.push(message) === 4 && resolve();
    listener.on("message", note);
    listener.on("pmessage", note);
  });
  assert.equal(await listener.subscribe("news", "weather"), 2);
  assert.equal(await listener.psubscribe("n*"), 3);
  assert.equal(await r.publish("news", "hello"), 2);
  assert.equal(await r.publish("weather", "rain"), 1);
  assert.deepEqual(await r.multi().set("k", "v").publish("weather", "sun").exec(), [[null, "OK"], [null, 1]]);
  await arrived;
  assert.deepEqual(got, [["news", "hello"], ["n*", "news", "hello"], ["weather", "rain"], ["weather", "sun"]]);
  assert.equal(await listener.unsubscribe("news", "weather"), 1);
  assert.equal(await listener.punsubscribe("n*"), 0);
  assert.equal(await listener.get("k"), "v");
  assert.equal(await r.publish("news", "nobody"), 0);
  listener.disconnect();
});

nodeRedis("messages of channels", async (r, RESP) => {
  const listener = await openNodeRedis(RESP);
  const got = [];
  const arrived = new Promise((resolve) => {
    const note = (message, channel) => got.push([channel, message]) === 4 && resolve();
    got.note = note;
  });
  await listener.subscribe(["news", "weather"], got.note);
  await listener.pSubscribe("n*", got.note);
  await listener.sSubscribe("shard", got.note);
  assert.equal(await r.publish("news", "hello"), 2);
  assert.equal(await r.publish("weather", "rain"), 1);
  assert.equal(await r.sPublish("shard", "piece"), 1);
  await arrived;
  assert.deepEqual(got.slice(), [["news", "hello"], ["news", "hello"], ["weather", "rain"], ["shard", "piece"]]);
  assert.deepEqual((await r.pubSubChannels()).sort(), ["news", "weather"]);
  await listener.unsubscribe();
  await listener.pUnsubscribe();
  await listener.sUnsubscribe();
  // In RESP2 this client gives bytes from here on.
  assert.equal(String(await listener.echo("as before")), "as before");
  assert.equal(await r.publish("news", "nobody"), 0);
  listener.destroy();
});

nodeRedis("the server and its clients", async (r, RESP) => {
  // The server may not have seen yet that clients of other tests have left.
  const name = `suite-resp${RESP}`;
  assert.equal(await r.ping(), "PONG");
  assert.equal(await r.clientSetName(name), "OK");
  assert.equal(await r.clientGetName(), name);
  assert.equal((await r.clientList()).filter((client) => client.name === name).length, 1);
  assert.match(await r.info("server"), /redis_version:/);
  assert.deepEqual({ ...(await r.configGet("maxmemory")) }, { maxmemory: "0" });
  await r.set("k", "v");
  const keys = [];
  for await (const batch of r.scanIterator({ COUNT: 100 })) keys.push(...[].concat(batch));
  assert.deepEqual(keys, ["k"]);
  assert.equal(await r.dbSize(), 1);
  assert.equal(await r.flushAll(), "OK");
});

nodeRedis("a wrong password is refused", async (r, RESP) => {
  await r.configSet("requirepass", "secret");
  try {
    await assert.rejects(openNodeRedis(RESP, { password: "wrong" }), /WRONGPASS/);
    const inside = await openNodeRedis(RESP, { password: "secret" });
    assert.equal(await inside.ping(), "PONG");
    inside.destroy();
  } finally {
    await r.configSet("requirepass", "");
  }
});

await run();
