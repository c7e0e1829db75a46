// Job queues on BullMQ against ADDR: Lua scripts with undeclared keys, streams, blocking commands.

import assert from "node:assert/strict";
import { FlowProducer, Queue, QueueEvents, Worker } from "bullmq";

import { run, test } from "../harness.mjs";

const [host, port] = process.env.ADDR.split(":");
const connection = { host, port: Number(port), maxRetriesPerRequest: null };
/** A busy machine may halt the server or this process for a while. */
const PATIENCE_MS = 60_000;
const WORKERS = 3;

let queues = 0;

/** Registers a test that gets a queue, its events, and a function that starts workers. */
function testQueue(name, body) {
  test(name, async () => {
    const queueName = `queue${queues}`;
    queues += 1;
    const queue = new Queue(queueName, { connection });
    queue.setMaxListeners(0);
    const events = new QueueEvents(queueName, { connection });
    events.setMaxListeners(0);
    const workers = [];
    const work = (run, concurrency = 20) => {
      const count = concurrency === 1 ? 1 : WORKERS;
      for (let at = 0; at < count; at += 1) {
        workers.push(new Worker(queueName, run, { connection, concurrency }));
      }
    };
    try {
      await events.waitUntilReady();
      await body({ queue, events, work });
    } finally {
      await Promise.all(workers.map((worker) => worker.close()));
      await events.close();
      await queue.obliterate({ force: true });
      await queue.close();
    }
  });
}

testQueue("every job is run once, by competing workers", async ({ queue, events, work }) => {
  const runs = new Map();
  work(async (job) => {
    runs.set(job.id, (runs.get(job.id) ?? 0) + 1);
    return job.data.number * 2;
  });
  const jobs = await queue.addBulk(Array.from({ length: 500 }, (_, number) => ({ name: "double", data: { number } })));
  const results = await Promise.all(jobs.map((job) => job.waitUntilFinished(events, PATIENCE_MS)));
  assert.deepEqual(results, jobs.map((job) => job.data.number * 2));
  assert.equal(runs.size, 500);
  assert.ok([...runs.values()].every((count) => count === 1));
  const counts = await queue.getJobCounts("completed", "waiting", "active", "failed", "delayed");
  assert.deepEqual(counts, { completed: 500, waiting: 0, active: 0, failed: 0, delayed: 0 });
});

testQueue("a failed job is tried again", async ({ queue, events, work }) => {
  let runs = 0;
  work(async (job) => {
    runs += 1;
    if (job.attemptsMade < 2) throw new Error("not yet");
    return "done";
  });
  const job = await queue.add("flaky", {}, { attempts: 3, backoff: 10 });
  assert.equal(await job.waitUntilFinished(events, PATIENCE_MS), "done");
  assert.equal(runs, 3);
});

testQueue("a job that always fails is kept with its reason", async ({ queue, events, work }) => {
  work(async () => {
    throw new Error("broken");
  });
  const job = await queue.add("bad", {});
  await assert.rejects(job.waitUntilFinished(events, PATIENCE_MS), /broken/);
  const [failed] = await queue.getFailed();
  assert.equal(failed.failedReason, "broken");
});

testQueue("delayed jobs run after others, and in the order of their delays", async ({ queue, events, work }) => {
  const order = [];
  const jobs = [];
  for (const [name, delay] of [["late", 300], ["soon", 100], ["now", 0]]) {
    jobs.push(await queue.add(name, {}, { delay }));
  }
  work(async (job) => order.push(job.name), 1);
  await Promise.all(jobs.map((job) => job.waitUntilFinished(events, PATIENCE_MS)));
  assert.deepEqual(order, ["now", "soon", "late"]);
});

testQueue("prioritized jobs run in the order of their priorities", async ({ queue, events, work }) => {
  const order = [];
  const jobs = [];
  for (const priority of [3, 1, 2]) {
    jobs.push(await queue.add(String(priority), {}, { priority }));
  }
  work(async (job) => order.push(job.name), 1);
  await Promise.all(jobs.map((job) => job.waitUntilFinished(events, PATIENCE_MS)));
  assert.deepEqual(order, ["1", "2", "3"]);
});

testQueue("a parent runs after its children, and gets their results", async ({ queue, events, work }) => {
  const flow = new FlowProducer({ connection });
  try {
    work(async (job) => (job.name === "sum" ? Object.values(await job.getChildrenValues()).reduce((a, b) => a + b) : job.data.number));
    const children = [1, 2, 3].map((number) => ({ name: "part", queueName: queue.name, data: { number } }));
    const { job } = await flow.add({ name: "sum", queueName: queue.name, children });
    assert.equal(await job.waitUntilFinished(events, PATIENCE_MS), 6);
  } finally {
    await flow.close();
  }
});

await run();
