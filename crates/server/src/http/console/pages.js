// The pages: their data and their layout.

import { chart } from "./chart.js";
import { bytes, duration, element, number, percent, prose, table, tiles, time } from "./dom.js";

const BUSY_SHARE = 0.85;
/** A stage with a higher p99 is reported as slow. */
const SLOW_P99_NS = 20e6;
/** With fewer requests of a protocol in ten seconds, percentiles are not meaningful. */
const SAMPLES_MIN = 100;
const STAGES = { parse: "parsing", execute: "execution", wait_for_log: "the wait for the log", write: "writing the reply" };
/** Minimum share of all commands for a key, and of its reactor's requests for a client, to be reported. */
const KEY_SHARE = 0.25;
const CLIENT_SHARE = 0.5;

function perSecond(value) {
  return `${number(value)}/s`;
}

function keyName({ key, is_cut: isCut, table, database }) {
  const name = isCut ? `${key}…` : key;
  if (table) return `${table} ${name}`;
  return database ? `${name} (database ${database})` : name;
}

/** Describes the key or client that causes most of the load of the busiest reactor, if there is one. */
function culprits({ hot_keys: keys, busiest_clients: clients }, reactor) {
  const parts = [];
  const key = keys.find(({ share_ppm: share }) => share > KEY_SHARE * 1e6);
  if (key) parts.push(`Key ${keyName(key)} is used by ${percent(key.share_ppm / 1e6)} of all commands.`);
  const client = clients.find((one) => one.reactor === reactor.name && one.share_ppm > CLIENT_SHARE * 1e6);
  if (client) {
    const name = [client.name, client.peer].filter((part) => part).join(", ");
    parts.push(`Client ${client.id} (${name}) sends ${percent(client.share_ppm / 1e6)} of the reactor's requests.`);
  }
  return parts;
}

/** Returns the slowest stage of all protocols, if its p99 is above the threshold. */
function slowest(latency) {
  const rows = latency.totals().filter(({ count, p99_ns: ns }) => count >= SAMPLES_MIN && ns > SLOW_P99_NS);
  return rows.sort((one, other) => other.p99_ns - one.p99_ns)[0];
}

/** Names the bottleneck, by rules that the user can check on the pages. */
function verdict({ overview, reactors, log }, history, latency) {
  if (log.failed) return ["bad", "The log has failed: writes are refused. Check the disk and restart."];
  const busiest = reactors.reduce((one, other) => (other.load_ppm > one.load_ppm ? other : one));
  const syncing = history.last("log sync_ns_sum") / 1e9;
  const mean = log.syncs ? log.sync_ns_sum / log.syncs : 0;
  if (overview.limit_bytes && overview.used_bytes > BUSY_SHARE * overview.limit_bytes) {
    return ["bad", `Memory is nearly full: ${bytes(overview.used_bytes)} of ${bytes(overview.limit_bytes)} are in use.`];
  }
  if (busiest.load_ppm > BUSY_SHARE * 1e6) {
    const reactor = `Reactor ${busiest.name} is the bottleneck: ${percent(busiest.load_ppm / 1e6)} busy with ${busiest.connections} connections.`;
    return ["bad", [reactor, ...culprits(overview, busiest)].join(" ")];
  }
  if (syncing > BUSY_SHARE) {
    return ["bad", `The disk is the bottleneck: it syncs ${percent(syncing)} of the time, ${time(mean)} each.`];
  }
  const slow = slowest(latency);
  if (slow) {
    return ["bad", `Requests are slow: for ${slow.protocol.toUpperCase()}, ${STAGES[slow.stage] ?? slow.stage} takes up to ${time(slow.p99_ns)} (p99 of the last 10 s).`];
  }
  return ["good", `No bottleneck: the busiest reactor, ${busiest.name}, is ${percent(1 - busiest.load_ppm / 1e6)} idle.`];
}

function keyTable(keys) {
  if (keys.length === 0) return element("p", { class: "muted" }, "No key is used more than others.");
  return table("Most used keys", ["=key", "#share of commands"],
    keys.map((key) => [element("code", {}, keyName(key)), percent(key.share_ppm / 1e6)]));
}

function clientTable(clients) {
  if (clients.length === 0) return element("p", { class: "muted" }, "No client has sent a request.");
  return table("Busiest clients", ["#id", "protocol", "reactor", "peer", "name", "#requests/s", "#share of reactor"],
    clients.map((client) => [
      client.id, client.protocol, client.reactor, client.peer, client.name,
      number(client.requests_per_s), percent(client.share_ppm / 1e6),
    ]));
}

function latencyTable(latency) {
  const rows = latency.rows();
  if (rows.length === 0) return element("p", { class: "muted" }, "No request in the last 10 s.");
  return table("Latency", ["protocol", "stage", "#p50", "#p99", "#p99.9", "#requests"],
    rows.map((row) => [
      row.protocol.toUpperCase(), STAGES[row.stage] ?? row.stage,
      time(row.p50_ns), time(row.p99_ns), time(row.p999_ns), number(row.count),
    ]), ([protocol, stage]) => `${protocol} ${stage}`);
}

function overview(data, history, latency) {
  const { overview: now } = data;
  const [kind, text] = verdict(data, history, latency);
  const reads = now.hits + now.misses;
  return [
    element("p", { class: `verdict ${kind}` }, text),
    tiles([
      ["commands", perSecond(history.last("commands"))],
      ["connections", number(now.connections)],
      ["keys", number(now.keys)],
      ["memory", bytes(now.used_bytes)],
      ["hits", reads ? percent(now.hits / reads) : "-"],
      ["errors", perSecond(history.last("errors"))],
      ["durability", now.durability],
      ["up", duration(now.uptime_ms)],
    ]),
    element("h2", {}, "Latency of the last 10 s"),
    latencyTable(latency),
    element("h2", {}, "Most used keys"),
    keyTable(now.hot_keys),
    element("h2", {}, "Busiest clients"),
    clientTable(now.busiest_clients),
    element("h2", {}, "The last two minutes"),
    element("div", { class: "charts" },
      chart("Commands per second", [history.of("commands")], number),
      chart("p99 of the slowest stage", latency.protocols().map((name) => history.of(`${name} p99`, name)), time),
      chart("Busy share of each reactor", data.reactors.map(({ name }) => history.of(`${name} load`, name)), percent, 1),
      chart("Traffic per second", [history.of("input_bytes", "in"), history.of("output_bytes", "out")], bytes),
      chart("Log: syncs and records per second", [history.of("log_syncs", "syncs"), history.of("log_records", "records")], number),
      chart("Memory", [history.of("used_bytes", "used")], bytes),
      chart("Connections", [history.of("connections")], number)),
  ];
}

function reactors({ reactors: rows }, history) {
  const of = (suffix) => rows.map(({ name }) => history.of(`${name} ${suffix}`, name));
  return [
    table("Reactors", ["reactor", "busy", "#share", "#connections", "#commands/s", "#reads/s", "#writes/s", "#turns/s", "#in/s", "#out/s", "#held", "#moved in", "#moved out"],
      rows.map((row) => [
        row.name,
        element("meter", { min: 0, max: 1, high: BUSY_SHARE, value: row.load_ppm / 1e6 }),
        percent(row.load_ppm / 1e6),
        number(row.connections),
        ...["commands", "reads", "writes", "turns"].map((name) => number(history.last(`${row.name} ${name}`))),
        ...["input_bytes", "output_bytes"].map((name) => bytes(history.last(`${row.name} ${name}`))),
        bytes(row.held_bytes), number(row.migrated_in), number(row.migrated_out),
      ])),
    element("h2", {}, "The last two minutes"),
    element("div", { class: "charts" },
      chart("Busy share", of("load"), percent, 1),
      chart("Commands per second", of("commands"), number),
      chart("Connections", of("connections"), number)),
  ];
}

/** Open branches of the tree; the user opens and closes them. */
const open = new Set(["server"]);
document.addEventListener("toggle", ({ target }) => {
  if (target.dataset?.path) open[target.open ? "add" : "delete"](target.dataset.path);
}, true);

function memory({ memory: nodes }) {
  const below = (node) => nodes.filter((other) => other.path.startsWith(`${node.path}/`) && other.depth === node.depth + 1);
  const branch = (node) => {
    const name = node.path.split("/").at(-1);
    const row = element("span", { class: "row" },
      element("span", {}, name), element("span", {}, bytes(node.current_bytes)),
      element("span", { class: "muted" }, bytes(node.peak_bytes)), element("span", { class: "muted" }, bytes(node.limit_bytes)));
    const parts = below(node);
    if (parts.length === 0) return element("li", { "data-key": node.path }, row);
    const details = element("details", { open: open.has(node.path) ? "" : null, "data-path": node.path },
      element("summary", {}, row), element("ul", {}, parts.map(branch)));
    return element("li", { "data-key": node.path }, details);
  };
  return [
    element("p", { class: "muted" }, "Each tracker includes its children. Columns: current, peak, limit."),
    element("div", { class: "tree scroll", role: "region", "aria-label": "Memory", tabindex: 0 }, element("ul", {}, nodes.slice(0, 1).map(branch))),
  ];
}

function connectionTable(label, rows) {
  return table(label, ["#id", "protocol", "reactor", "peer", "name", "#age", "#idle", "#commands", "last", "#input", "#output", "#memory", "state"],
    rows.map((row) => [
      row.id, row.protocol, row.reactor, row.peer, row.name || row.library, duration(row.age_ms), duration(row.idle_ms),
      number(row.commands), row.last_command, bytes(row.input_bytes), bytes(row.output_bytes), bytes(row.memory_bytes),
      row.blocked ? "blocked" : "",
    ]));
}

function requests({ requests: { waiting, slow, slow_threshold_us: threshold } }) {
  const rows = slow.map((entry) => [
    new Date(entry.at_ms).toLocaleTimeString(), time(1000 * entry.took_us),
    element("code", {}, entry.arguments.join(" ")), entry.peer, entry.client,
  ]);
  return [
    element("h2", {}, "In flight"),
    waiting.length ? connectionTable("Requests in flight", waiting) : element("p", { class: "muted" }, "No request is in flight."),
    element("h2", {}, threshold < 0 ? "Slow (the slow log is disabled)" : `Slow: ${time(1000 * threshold)} and longer`),
    slow.length ? table("Slow requests", ["at", "#took", "=request", "peer", "client"], rows, (row) => slow[rows.indexOf(row)].id) : element("p", { class: "muted" }, "No slow requests."),
  ];
}

function connections({ connections: { connections: all, shown, rows } }) {
  return [element("p", { class: "muted" }, `${shown} of ${all}, most recently active first.`), connectionTable("Connections", rows)];
}

function log({ log: now }, history) {
  const buckets = now.sync_ns.map(({ from_ns: from, count }) => [`${time(from)} to ${time(2 * from)}`, number(count), percent(count / now.syncs)]);
  const spread = (name, values, text) => [name, text(values.mean), text(values.p50), text(values.p99), text(values.max)];
  return [
    tiles([
      ["syncs", perSecond(history.last("log_syncs"))],
      ["records", perSecond(history.last("log_records"))],
      ["records per sync", number(now.syncs ? now.records / now.syncs : 0)],
      ["mean sync", time(now.syncs ? now.sync_ns_sum / now.syncs : 0)],
      ["longest sync", time(now.sync_ns_max)],
      ["waiting to be written", bytes(now.waiting_bytes)],
      ["written, not synced", bytes(now.unsynced_bytes)],
      ["files", number(now.segments)],
    ]),
    element("h2", {}, "Groups"),
    table("Groups of the log", ["per group", "#mean", "#p50", "#p99", "#max"], [spread("records", now.group_records, number), spread("bytes", now.group_bytes, bytes)]),
    element("h2", {}, "Duration of syncs"),
    table("Duration of syncs", ["time", "#syncs", "#share"], buckets),
    element("h2", {}, "The last two minutes"),
    element("div", { class: "charts" },
      chart("Syncs and records per second", [history.of("log_syncs", "syncs"), history.of("log_records", "records")], number),
      chart("Share of time spent syncing", [{ name: "syncing", points: history.of("log sync_ns_sum").points.map(([at, ns]) => [at, ns / 1e9]) }], percent, 1)),
    element("h2", {}, "Snapshots"),
    element("p", {}, now.snapshots.running ? "A snapshot is in progress. " : "", `${now.snapshots.taken} taken; the last one has ${number(now.snapshots.last_keys)} keys and ${bytes(now.snapshots.last_bytes)}, and took ${duration(now.snapshots.last_took_ms)}.`),
  ];
}

function statements({ statements: { commands, prepared } }) {
  const p99 = (row, stage) => (row.stages[stage] ? time(row.stages[stage].p99_ns) : "");
  return [
    element("p", { class: "muted" }, `By total execution time. ${number(prepared.statements)} CQL statements are prepared (${bytes(prepared.bytes)}).`),
    table("Statements", ["name", "#calls", "#total", "#mean", "#p99 execute", "#p99 wait for log", "#p99 write", "#rejected", "#failed"],
      commands.map((row) => [
        row.name, number(row.calls), time(row.ns), row.calls ? time(row.ns / row.calls) : "",
        p99(row, "execute"), p99(row, "wait_for_log"), p99(row, "write"), number(row.rejected), number(row.failed),
      ])),
  ];
}

function configuration({ configuration: rows }) {
  return [table("Configuration", ["option", "value", "default", "=effect"], rows.map((row) => [
    element("code", {}, row.name),
    element(row.value === row.default ? "span" : "b", {}, row.value), row.default, element("span", {}, prose(row.doc)),
  ]))];
}

function threads({ threads: rows }, history) {
  return [table("Threads", ["#id", "name", "state", "#processor", "#user", "#system", "#share of a core"], rows.map((row) => [
    row.id, row.name, row.state, row.processor, duration(row.user_ms), duration(row.system_ms),
    percent(history.last(`thread ${row.id}`) / 1000),
  ]))];
}

function logs({ logs: { lines } }) {
  return [element("pre", {}, lines.length ? lines.join("\n") : "The log is empty.")];
}

/** Name, data besides the three parts that are always requested, function that draws the page. */
export const PAGES = [
  ["overview", [], overview],
  ["reactors", [], reactors],
  ["memory", ["memory"], memory],
  ["requests", ["requests"], requests],
  ["connections", ["connections"], connections],
  ["log", [], log],
  ["statements", ["statements"], statements],
  ["configuration", ["configuration"], configuration],
  ["threads", ["threads"], threads],
  ["logs", ["logs"], logs],
];
