// ioredis' Cluster against ADDR, a server with cluster-view.

import assert from "node:assert/strict";
import { once } from "node:events";
import Redis from "ioredis";

import { run, test } from "../harness.mjs";

const [host, port] = process.env.ADDR.split(":");
const KEYS = Array.from({ length: 200 }, (_, number) => `key:${number}`);
/** A busy machine may halt the server or this process for longer than the seconds of the defaults. */
const PATIENCE_MS = 60_000;

/** Registers a test, which runs on an empty server. */
function testCluster(name, body) {
  test(`ioredis: ${name}`, async () => {
    const cluster = await open();
    try {
      await cluster.flushall();
      await body(cluster);
      await cluster.flushall();
    } finally {
      cluster.disconnect();
    }
  });
}

async function open(options = {}) {
  const cluster = new Redis.Cluster([{ host, port: Number(port) }], {
    slotsRefreshTimeout: PATIENCE_MS, redisOptions: { connectTimeout: PATIENCE_MS }, ...options,
  });
  await once(cluster, "ready");
  return cluster;
}

testCluster("keys of all slots", async (r) => {
  assert.deepEqual(await Promise.all(KEYS.map((key) => r.set(key, key))), KEYS.map(() => "OK"));
  assert.deepEqual(await Promise.all(KEYS.map((key) => r.get(key))), KEYS);
});

testCluster("commands across slots on every node", async (r) => {
  for (const node of r.nodes("master")) {
    assert.equal(await node.mset(KEYS.flatMap((key) => [key, key])), "OK");
    assert.deepEqual(await node.mget(KEYS), KEYS);
    const replies = await node.multi(KEYS.map((key) => ["get", key])).exec();
    assert.deepEqual(replies, KEYS.map((key) => [null, key]));
  }
});

testCluster("a transaction in one slot", async (r) => {
  const replies = await r.multi().incr("{tag}a").incr("{tag}b").get("{tag}a").exec();
  assert.deepEqual(replies, [[null, 1], [null, 1], [null, "1"]]);
  assert.equal(await r.eval("return redis.call('INCR', KEYS[1])", 1, "{tag}a"), 2);
});

testCluster("messages", async (r) => {
  const listener = await open();
  await listener.subscribe("news");
  const heard = once(listener, "message");
  await r.publish("news", "hello");
  assert.deepEqual(await heard, ["news", "hello"]);
  listener.disconnect();
});

testCluster("sharded messages", async (r) => {
  const listener = await open({ shardedSubscribers: true });
  for (const channel of ["shard:1", "shard:2", "shard:3"]) {
    await listener.ssubscribe(channel);
    const heard = once(listener, "smessage");
    assert.equal(await r.spublish(channel, "hello"), 1);
    assert.deepEqual((await heard).slice(0, 2).map(String), [channel, "hello"]);
  }
  listener.disconnect();
});

testCluster("reads from replicas, of which there are none", async (r) => {
  await r.set("k", "v");
  const reader = await open({ scaleReads: "slave" });
  assert.equal(await reader.get("k"), "v");
  reader.disconnect();
});

await run();
