// Whether the server is well: rules whose evidence the user can check on the pages.

import { bytes, duration, number, percent, place, time } from "./dom.js";
import { STALE_MS } from "./state.js";

const BUSY_SHARE = 0.85;
/** A stage with a higher p99 is reported as slow. */
const SLOW_P99_NS = 20e6;
/** With fewer requests of a protocol in ten seconds, percentiles are not meaningful. */
const SAMPLES_MIN = 100;
/** A replica that has heard nothing for longer, or lacks more, is reported. */
const SILENT_MS = 10_000;
const LAG_BYTES = 16 << 20;
export const STAGES = { parse: "parsing", execute: "execution", wait_for_log: "the wait for the log", write: "writing the reply" };
/** Minimum share of all commands for a key, and of its reactor's requests for a client, to be reported. */
const KEY_SHARE = 0.25;
const CLIENT_SHARE = 0.5;

export function keyName({ key, is_cut: isCut, table, database }) {
  const name = isCut ? `${key}…` : key;
  if (table) return `${table} ${name}`;
  return database ? `${name} (database ${database})` : name;
}

function load({ overview, reactors }) {
  const busiest = reactors.reduce((one, other) => (other.load_ppm > one.load_ppm ? other : one));
  const share = busiest.load_ppm / 1e6;
  if (share <= BUSY_SHARE) return { isBad: false, text: `busiest reactor ${busiest.name} at ${percent(share)}` };
  const parts = [`Reactor ${busiest.name} is the bottleneck: ${percent(share)} busy with ${busiest.connections} connections.`];
  const key = overview.hot_keys.find((one) => one.share_ppm > KEY_SHARE * 1e6);
  if (key) parts.push(`Key ${keyName(key)} is used by ${percent(key.share_ppm / 1e6)} of all commands.`);
  const client = overview.busiest_clients.find((one) => one.reactor === busiest.name && one.share_ppm > CLIENT_SHARE * 1e6);
  if (client) {
    const name = [client.name, client.peer].filter((part) => part).join(", ");
    parts.push(`Client ${client.id} (${name}) sends ${percent(client.share_ppm / 1e6)} of the reactor's requests.`);
  }
  return { isBad: true, text: parts.join(" ") };
}

function latency(rows) {
  const measured = rows.filter(({ count }) => count >= SAMPLES_MIN).sort((one, other) => other.p99_ns - one.p99_ns);
  if (measured.length === 0) return { isBad: false, text: "too few requests in 10 s to judge" };
  const [{ protocol, stage, p99_ns: ns }] = measured;
  const what = `${protocol.toUpperCase()}, ${STAGES[stage] ?? stage}: p99 ${time(ns)} in 10 s`;
  return ns > SLOW_P99_NS ? { isBad: true, text: `Requests are slow: ${what}.` } : { isBad: false, text: `slowest ${what}` };
}

function disk({ overview, log }, history) {
  if (log.failed) return { isBad: true, text: "The log has failed: writes are refused. Check the disk and restart." };
  if (overview.log_full) return { isBad: true, text: "The log has no room on the disk: writes are refused." };
  const share = history.last("sync_share") ?? 0;
  const mean = history.last("sync_mean_ns");
  const each = mean ? `, ${time(mean)} each` : "";
  if (share > BUSY_SHARE) return { isBad: true, text: `The disk is the bottleneck: it syncs ${percent(share)} of the time${each}.` };
  if (log.snapshots.last_ok === false) return { isBad: true, text: "The last snapshot failed: the log cannot be shortened. See the events." };
  return { isBad: false, text: `syncs ${percent(share)} of the time${each}` };
}

function memory({ overview }) {
  const { used_bytes: used, limit_bytes: limit } = overview;
  if (!limit) return { isBad: false, text: `${bytes(used)}, no limit` };
  const text = `${bytes(used)} of ${bytes(limit)}`;
  return used > BUSY_SHARE * limit ? { isBad: true, text: `Memory is nearly full: ${text} are in use.` } : { isBad: false, text };
}

function replication({ overview }) {
  const { master, replicas, follower_lag_bytes: lag } = overview.replication;
  if (master) {
    const name = place(master.host, master.port);
    if (!master.is_connected) return { isBad: true, text: `The link to the master ${name} is down: the data is ${duration(master.silent_ms)} old.` };
    if (master.silent_ms > SILENT_MS) return { isBad: true, text: `The master ${name} has been silent for ${duration(master.silent_ms)}.` };
    if (master.lag_bytes > LAG_BYTES) return { isBad: true, text: `This replica lacks ${bytes(master.lag_bytes)} of the log of ${name}.` };
    return { isBad: false, text: `replica of ${name}, ${bytes(master.lag_bytes)} to receive` };
  }
  if (replicas === 0) return { isBad: false, text: "no replica" };
  if (lag > LAG_BYTES) return { isBad: true, text: `A replica or follower lacks ${bytes(lag)} of the log.` };
  return { isBad: false, text: `${number(replicas)} replicas, ${bytes(lag)} to send` };
}

/** One row per rule: `{ name, page, isBad, text }`. `ageMs`: of the numbers. */
export function checks(data, history, latencies, ageMs) {
  const stale = ageMs > STALE_MS
    ? { isBad: true, text: `The server has not answered for ${duration(ageMs)}.` }
    : { isBad: false, text: "numbers of this second" };
  return [
    { name: "Latency", page: "statements", ...latency(latencies) },
    { name: "Load", page: "reactors", ...load(data) },
    { name: "Disk and log", page: "log", ...disk(data, history) },
    { name: "Memory", page: "memory", ...memory(data) },
    { name: "Replication", page: "replication", ...replication(data) },
    { name: "Freshness", page: "events", ...stale },
  ];
}
