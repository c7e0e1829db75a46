// Rate limits of @upstash/ratelimit over HTTP against HTTP_ADDR: scripts by EVALSHA, windows that expire.

import assert from "node:assert/strict";
import { Ratelimit } from "@upstash/ratelimit";
import { Redis } from "@upstash/redis";

import { run, test } from "../harness.mjs";

const LIMIT = 10;
/** Windows begin at multiples of their length: none begins while a test runs before 2052. */
const WINDOW = "10000 d";
/** Concurrent requests of several clients. */
const RACERS = 60;
const PATIENCE_MS = 60_000;

/** Registers a test, which runs on an empty server. */
function testEmpty(name, body) {
  test(name, async () => {
    await open().flushall();
    await body();
    await open().flushall();
  });
}

function open() {
  return new Redis({ url: `http://${process.env.HTTP_ADDR}`, token: "none", enableTelemetry: false, retry: false });
}

/** Limits of several processes: each has its own connection, and none has a cache. */
function limits(limiter, options = {}) {
  return [0, 1, 2].map(() => new Ratelimit({ redis: open(), limiter, ephemeralCache: false, timeout: 0, ...options }));
}

async function race(all, identifier, count = RACERS) {
  const results = await Promise.all(Array.from({ length: count }, (_, at) => all[at % all.length].limit(identifier)));
  return { passed: results.filter((result) => result.success).length, results };
}

for (const [name, limiter] of [
  ["a fixed window", Ratelimit.fixedWindow(LIMIT, WINDOW)],
  ["a sliding window", Ratelimit.slidingWindow(LIMIT, WINDOW)],
  ["a token bucket", Ratelimit.tokenBucket(LIMIT, WINDOW, LIMIT)],
]) {
  testEmpty(`${name} admits exactly its limit`, async () => {
    const all = limits(limiter);
    const { passed, results } = await race(all, "alice");
    assert.equal(passed, LIMIT);
    const left = results.filter((result) => result.success).map((result) => result.remaining);
    assert.deepEqual(left.sort((one, other) => one - other), Array.from({ length: LIMIT }, (_, at) => at));
    assert.ok(results.every((result) => result.limit === LIMIT && result.reset > Date.now()));
    assert.equal((await race(all, "bob")).passed, LIMIT);
    assert.equal((await all[0].getRemaining("alice")).remaining, 0);
    await all[1].resetUsedTokens("alice");
    assert.equal((await all[2].getRemaining("alice")).remaining, LIMIT);
    assert.equal((await race(all, "alice")).passed, LIMIT);
  });
}

testEmpty("a window ends", async () => {
  const [limit] = limits(Ratelimit.fixedWindow(1, "300 ms"));
  const first = await limit.limit("alice");
  assert.equal(first.success, true);
  // The next window begins at a time of the clock: each one admits one request.
  const next = await limit.blockUntilReady("alice", PATIENCE_MS);
  assert.equal(next.success, true);
  assert.ok(next.reset > first.reset);
});

testEmpty("a request may cost more than one token", async () => {
  const [limit] = limits(Ratelimit.fixedWindow(LIMIT, WINDOW));
  assert.equal((await limit.limit("alice", { rate: LIMIT - 1 })).remaining, 1);
  assert.equal((await limit.limit("alice", { rate: 2 })).success, false);
});

testEmpty("a cached window admits its limit", async () => {
  const limit = new Ratelimit({
    redis: open(), limiter: Ratelimit.cachedFixedWindow(LIMIT, WINDOW), ephemeralCache: new Map(), timeout: 0,
  });
  let passed = 0;
  for (let at = 0; at < 2 * LIMIT; at += 1) {
    const result = await limit.limit("alice");
    passed += Number(result.success);
    await result.pending;
  }
  assert.equal(passed, LIMIT);
});

testEmpty("addresses of a deny list are refused", async () => {
  const redis = open();
  const limit = new Ratelimit({
    redis, limiter: Ratelimit.fixedWindow(LIMIT, WINDOW), ephemeralCache: false, enableProtection: true, prefix: "app",
    timeout: 0,
  });
  await redis.sadd("app:denyList:all", "1.2.3.4");
  await redis.set("app:ipDenyListStatus", "valid", { ex: 3600 });
  const ip = (address) => limit.limit("alice", { ip: address });
  const refused = await ip("1.2.3.4");
  assert.deepEqual([refused.success, refused.reason, refused.deniedValue], [false, "denyList", "1.2.3.4"]);
  assert.equal((await ip("1.2.3.5")).success, true);
});

testEmpty("analytics are counted", async () => {
  const [limit] = limits(Ratelimit.fixedWindow(LIMIT, WINDOW), { analytics: true, prefix: "app" });
  for (let at = 0; at < 3; at += 1) await (await limit.limit("alice")).pending;
  const keys = await open().keys("app:events:*");
  const counts = await Promise.all(keys.map((key) => open().zrange(key, 0, -1, { withScores: true })));
  assert.equal(counts.flat().filter((_, at) => at % 2 === 1).reduce((sum, score) => sum + Number(score), 0), 3);
});

await run();
