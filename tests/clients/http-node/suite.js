// The SDK of hosted Redis (@upstash/redis) and fetch against HTTP_ADDR.

import assert from "node:assert/strict";
import { Redis } from "@upstash/redis";

import { run, test } from "../harness.mjs";

const url = `http://${process.env.HTTP_ADDR}`;
const PIPELINE_COMMANDS = 1000;
const RACERS = 8;

/** Registers a test of the SDK, with values as text and in base64. */
function sdk(name, body) {
  for (const responseEncoding of [false, "base64"]) {
    plain(`${name} (${responseEncoding || "text"})`, () => body(open({ responseEncoding })));
  }
}

/** Registers a test, which runs on an empty server. */
function plain(name, body) {
  test(name, async () => {
    await ask("/flushall");
    await body();
    await ask("/flushall");
  });
}

function open(options = {}) {
  return new Redis({ url, token: "none", enableTelemetry: false, retry: false, ...options });
}

/** Status, parsed content and header lines of one request. */
async function ask(path, options = {}) {
  const response = await fetch(url + path, options);
  const text = await response.text();
  const body = response.headers.get("content-type")?.startsWith("application/json") ? JSON.parse(text) : text;
  return { status: response.status, body, headers: response.headers };
}

sdk("every type", async (r) => {
  assert.equal(await r.set("k", "v", { ex: 1000 }), "OK");
  assert.equal(await r.get("k"), "v");
  assert.ok((await r.ttl("k")) > 900);
  assert.equal(await r.set("k", "w", { nx: true }), null);
  assert.equal(await r.set("k", "w", { get: true }), "v");
  assert.equal(await r.append("k", "!"), 2);
  assert.deepEqual(await r.mget("k", "missing"), ["w!", null]);
  assert.equal(await r.incrby("n", 42), 42);
  assert.equal(await r.incrbyfloat("n", 0.5), 42.5);
  assert.equal(await r.hset("h", { f: "v", g: 7 }), 2);
  assert.deepEqual(await r.hgetall("h"), { f: "v", g: 7 });
  assert.equal(await r.hgetall("missing"), null);
  assert.equal(await r.hincrby("h", "n", 3), 3);
  assert.equal(await r.rpush("l", "a", "b", "c"), 3);
  assert.deepEqual(await r.lrange("l", 0, -1), ["a", "b", "c"]);
  assert.equal(await r.sadd("s", "x", "y", "z"), 3);
  assert.deepEqual((await r.smembers("s")).sort(), ["x", "y", "z"]);
  assert.equal(await r.zadd("z", { score: 1, member: "a" }, { score: 2.5, member: "b" }), 2);
  assert.deepEqual(await r.zrange("z", 0, -1, { withScores: true }), ["a", 1, "b", 2.5]);
  assert.equal(await r.zscore("z", "b"), 2.5);
  assert.equal(await r.del("k", "n", "missing"), 2);
  assert.equal(await r.exists("k"), 0);
  assert.equal(await r.type("z"), "zset");
});

sdk("values are JSON and text of every language", async (r) => {
  const value = { text: "Grüße, 世界 🌍 \u0000\n\"", list: [1, 2.5, null, true], nested: { a: {} } };
  await r.set("json", value);
  assert.deepEqual(await r.get("json"), value);
  await r.hset("hash", { one: value });
  assert.deepEqual(await r.hget("hash", "one"), value);
  await r.set("ok", "OK");
  assert.equal(await r.get("ok"), "OK");
  await r.set("empty", "");
  assert.equal(await r.get("empty"), "");
  assert.equal(await r.echo("héllo"), "héllo");
});

sdk("errors are thrown in Redis's words", async (r) => {
  await r.lpush("list", "a");
  await assert.rejects(r.get("list"), /WRONGTYPE Operation against a key/);
  await r.set("text", "a");
  await assert.rejects(r.incr("text"), /ERR value is not an integer or out of range/);
});

sdk("pipelines", async (r) => {
  const pipeline = r.pipeline();
  for (let index = 0; index < PIPELINE_COMMANDS; index += 1) pipeline.set(`key:${index}`, index);
  pipeline.dbsize();
  const results = await pipeline.exec();
  assert.equal(results.length, PIPELINE_COMMANDS + 1);
  assert.equal(results.at(-1), PIPELINE_COMMANDS);
  assert.equal(await r.get("key:999"), 999);
  const mixed = r.pipeline().set("t", "x").incr("t").get("t");
  const kept = await mixed.exec({ keepErrors: true });
  assert.equal(kept[0].result, "OK");
  assert.match(kept[1].error, /ERR value is not an integer/);
  assert.equal(kept[2].result, "x");
});

sdk("automatic pipelines", async () => {
  const r = open({ enableAutoPipelining: true });
  const written = Array.from({ length: 100 }, (_, index) => r.set(`a:${index}`, index));
  assert.deepEqual(new Set(await Promise.all(written)), new Set(["OK"]));
  const read = Array.from({ length: 100 }, (_, index) => r.get(`a:${index}`));
  assert.deepEqual(await Promise.all(read), Array.from({ length: 100 }, (_, index) => index));
});

sdk("transactions", async (r) => {
  assert.deepEqual(await r.multi().set("a", 1).incr("a").get("a").exec(), ["OK", 2, 2]);
  await assert.rejects(r.multi().set("a", "x").exec().then(() => r.multi().incr("a").exec()), /ERR value is not an integer/);
  const racers = Array.from({ length: RACERS }, async () => {
    for (let round = 0; round < 20; round += 1) await open().multi().incr("left").incr("right").exec();
  });
  await Promise.all(racers);
  assert.deepEqual(await r.mget("left", "right"), [RACERS * 20, RACERS * 20]);
});

sdk("scans see every key", async (r) => {
  const pipeline = r.pipeline();
  for (let index = 0; index < PIPELINE_COMMANDS; index += 1) pipeline.set(`scan:${index}`, "");
  await pipeline.exec();
  const seen = new Set();
  let cursor = "0";
  do {
    const [next, keys] = await r.scan(cursor, { match: "scan:*", count: 200 });
    keys.forEach((key) => seen.add(key));
    cursor = next;
  } while (cursor !== "0");
  assert.equal(seen.size, PIPELINE_COMMANDS);
});

plain("what waits or belongs to a connection is refused", async () => {
  for (const name of ["multi", "watch", "monitor", "auth", "select", "client"]) {
    const { status, body } = await ask(`/${name}/1`);
    assert.equal(status, 400, name);
    assert.match(body.error, /^ERR Command is not available: /, name);
  }
});

plain("a password is a token", async () => {
  await ask("/config/set/requirepass/s3cret");
  try {
    assert.equal((await ask("/get/a")).status, 401);
    assert.equal((await ask("/get/a?_token=s3cret")).status, 200);
    await assert.rejects(open({ token: "wrong" }).get("a"), /WRONGPASS/);
    const inside = open({ token: "s3cret" });
    assert.equal(await inside.ping(), "PONG");
    assert.equal((await ask("/healthz")).status, 200);
  } finally {
    await ask("/config/set/requirepass/?_token=s3cret");
  }
  assert.equal((await ask("/ping")).status, 200);
});

/** Waits until both channels and the pattern of the next test have so many subscribers. */
async function subscribed(r, count) {
  const deadline = Date.now() + 60_000;
  const wanted = ["news", count, "weather", count, count].join();
  for (;;) {
    const found = [...(await r.exec(["PUBSUB", "NUMSUB", "news", "weather"])), await r.exec(["PUBSUB", "NUMPAT"])].join();
    if (found === wanted) return;
    assert.ok(Date.now() < deadline, `subscribers: ${found}, not ${wanted}`);
  }
}

sdk("messages of channels", async (r) => {
  const got = [];
  const subscriber = r.subscribe(["news", "weather"]);
  const seer = r.psubscribe("n*");
  const arrived = new Promise((resolve) => {
    const note = (message) => got.push(message) === 4 && resolve();
    subscriber.on("message", note);
    seer.on("pmessage", note);
  });
  // The SDK asks for each channel by a connection of its own.
  await subscribed(r, 1);
  assert.equal(await r.publish("news", { text: "hällo", list: [1, "two"] }), 2);
  assert.equal(await r.publish("weather", "rain"), 1);
  assert.deepEqual(await r.multi().set("k", "v").publish("weather", 7).exec(), ["OK", 1]);
  await arrived;
  const value = { text: "hällo", list: [1, "two"] };
  const sorted = got.map((one) => JSON.stringify([one.pattern, one.channel, one.message])).sort();
  const wanted = [[undefined, "news", value], [undefined, "weather", "rain"], [undefined, "weather", 7], ["n*", "news", value]];
  assert.deepEqual(sorted, wanted.map((one) => JSON.stringify(one)).sort());
  await subscriber.unsubscribe();
  await seer.unsubscribe();
  // The next test is not to count them.
  await subscribed(r, 0);
});

plain("values as bytes, with tags and conditions", async () => {
  const blob = Buffer.from(Array.from({ length: 300_000 }, (_, index) => (index * 7) % 256));
  const created = await fetch(`${url}/kv/blob%00x`, { method: "PUT", body: blob, headers: { "Myriad-TTL-Ms": "60000" } });
  assert.equal(created.status, 201);
  const tag = created.headers.get("etag");
  const read = await fetch(`${url}/kv/blob%00x`);
  assert.equal(read.headers.get("etag"), tag);
  assert.ok(Number(read.headers.get("myriad-ttl-ms")) > 50_000);
  assert.deepEqual(Buffer.from(await read.arrayBuffer()), blob);
  const same = await fetch(`${url}/kv/blob%00x`, { headers: { "If-None-Match": tag }, cache: "no-store" });
  assert.equal(same.status, 304);
  const stale = await fetch(`${url}/kv/blob%00x`, { method: "PUT", body: "x", headers: { "If-Match": '"other"' } });
  assert.equal(stale.status, 412);
  assert.equal((await fetch(`${url}/kv/blob%00x`, { method: "DELETE", headers: { "If-Match": tag } })).status, 204);
  assert.equal((await fetch(`${url}/kv/blob%00x`)).status, 404);
});

plain("one of many who compare and set wins each round", async () => {
  await fetch(`${url}/kv/counter`, { method: "PUT", body: "0" });
  let lost = 0;
  const racers = Array.from({ length: RACERS }, async () => {
    for (let done = 0; done < 10; ) {
      const read = await fetch(`${url}/kv/counter`);
      const next = String(Number(await read.text()) + 1);
      const headers = { "If-Match": read.headers.get("etag") };
      const { status } = await fetch(`${url}/kv/counter`, { method: "PUT", body: next, headers });
      assert.ok(status === 204 || status === 412, `${status}`);
      if (status === 204) done += 1;
      else lost += 1;
    }
  });
  await Promise.all(racers);
  assert.equal((await ask("/get/counter")).body.result, String(RACERS * 10), `${lost} lost rounds`);
});

await run();
