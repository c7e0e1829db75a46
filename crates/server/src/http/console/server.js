// Pages of numbers about the server: statements, reactors, memory, the log, events.

import { chart } from "./chart.js";
import { bytes, duration, element, number, panel, percent, table, tiles, time } from "./dom.js";

const BUSY_SHARE = 0.85;

function lines(history, rows, suffix) {
  return rows.map(({ name }) => history.line(name, `${name}${suffix}`)).filter(Boolean);
}

function drawReactors({ data: { reactors: rows, threads }, history }) {
  return [
    element("div", { class: "charts one", "data-key": "charts" }, chart("CPU of each reactor", history, lines(history, rows, "_load"), percent, { most: 1 })),
    panel("Reactors", table("Reactors", ["reactor", "load", "#share", "#connections", "#commands", "#turns", "#read", "#sent", "#unsent", "#moved in", "#moved out"],
      rows.map((row) => [
        row.name,
        element("meter", { min: 0, max: 1, high: BUSY_SHARE, value: row.load_ppm / 1e6, "aria-label": `load of ${row.name}` }),
        percent(row.load_ppm / 1e6), number(row.connections), number(row.commands), number(row.turns),
        bytes(row.input_bytes), bytes(row.output_bytes), bytes(row.held_bytes), number(row.migrated_in), number(row.migrated_out),
      ]))),
    panel("Threads", table("Threads", ["#id", "name", "state", "#processor", "#user", "#system"], threads.map((row) => [
      row.id, row.name, row.state, row.processor, duration(row.user_ms), duration(row.system_ms),
    ]))),
  ];
}

export const reactors = { name: "reactors", title: "Reactors and threads", icon: "reactors", needs: ["threads"], draw: drawReactors };

/** Open branches of the tree; the user opens and closes them. */
const open = new Set(["server"]);
document.addEventListener("toggle", ({ target }) => {
  if (target.dataset?.path) open[target.open ? "add" : "delete"](target.dataset.path);
}, true);

function drawMemory({ data: { memory: nodes, overview }, history }) {
  const total = nodes[0]?.current_bytes || 1;
  const below = (node) => nodes.filter((other) => other.path.startsWith(`${node.path}/`) && other.depth === node.depth + 1)
    .sort((one, other) => other.current_bytes - one.current_bytes);
  const branch = (node) => {
    const name = node.path.split("/").at(-1);
    const row = element("span", { class: "row" },
      element("span", {}, name), element("span", {}, bytes(node.current_bytes)),
      element("span", { class: "muted" }, bytes(node.peak_bytes)), element("span", { class: "muted" }, bytes(node.limit_bytes)),
      element("meter", { min: 0, max: 1, value: node.current_bytes / total, "aria-label": `share of ${name}` }));
    const parts = below(node);
    if (parts.length === 0) return element("li", { "data-key": node.path }, row);
    const details = element("details", { open: open.has(node.path) ? "" : null, "data-path": node.path },
      element("summary", {}, row), element("ul", {}, parts.map(branch)));
    return element("li", { "data-key": node.path }, details);
  };
  const head = element("div", { class: "row tree-head muted" }, ["tracker", "now", "peak", "limit", "share"].map((text) => element("span", {}, text)));
  return [
    element("div", { class: "charts one", "data-key": "charts" }, chart("Memory", history, [history.line("used", "used_bytes")].filter(Boolean), bytes)),
    panel("By purpose", [
      element("p", { class: "muted" }, `Each tracker includes its children. ${overview.limit_bytes ? `Writes are refused, or keys evicted, above ${bytes(overview.limit_bytes)}.` : "There is no limit (memory-limit, maxmemory)."}`),
      element("div", { class: "tree scroll", role: "region", "aria-label": "Memory", tabindex: 0 }, head, element("ul", {}, nodes.slice(0, 1).map(branch))),
    ]),
  ];
}

export const memory = { name: "memory", title: "Memory", icon: "memory", needs: ["memory"], draw: drawMemory };

function drawLog({ data: { log: now }, history }) {
  const buckets = now.sync_ns.map(({ from_ns: from, count }) => [`${time(from)} to ${time(2 * from)}`, number(count), percent(count / now.syncs)]);
  const spread = (name, values, text) => [name, text(values.mean), text(values.p50), text(values.p99), text(values.max)];
  const of = (name, column) => history.line(name, column);
  const { snapshots } = now;
  return [
    tiles([
      ["Syncs", `${number(Math.round(history.last("syncs_per_s") ?? 0))}/s`],
      ["Records", `${number(Math.round(history.last("records_per_s") ?? 0))}/s`],
      ["Records per sync", number(now.syncs ? now.records / now.syncs : 0), "since the start"],
      ["Mean sync", time(now.syncs ? now.sync_ns_sum / now.syncs : 0), "since the start"],
      ["Longest sync", time(now.sync_ns_max)],
      ["To be written", bytes(now.waiting_bytes)],
      ["Written, not synced", bytes(now.unsynced_bytes)],
      ["Files", number(now.segments)],
    ]),
    element("div", { class: "charts", "data-key": "charts" },
      chart("Log sync", history, [of("p99", "sync_p99_ns"), of("mean", "sync_mean_ns")].filter(Boolean), time),
      chart("Share of time spent syncing", history, [of("syncing", "sync_share")].filter(Boolean), percent, { most: 1 })),
    element("div", { class: "columns", "data-key": "tables" },
      panel("Groups", table("Groups of the log", ["per group", "#mean", "#p50", "#p99", "#max"], [spread("records", now.group_records, number), spread("bytes", now.group_bytes, bytes)])),
      panel("Snapshots", element("p", {}, snapshots.running ? "A snapshot is in progress. " : "",
        snapshots.taken ? `${snapshots.taken} taken; the last one has ${number(snapshots.last_keys)} keys and ${bytes(snapshots.last_bytes)}, and took ${duration(snapshots.last_took_ms)}.` : "No snapshot since the start.")),
      panel("Duration of syncs", table("Duration of syncs", ["time", "#syncs", "#share"], buckets))),
  ];
}

export const log = { name: "log", title: "Log and snapshots", icon: "log", needs: [], draw: drawLog };

function drawStatements({ data: { statements: { commands, prepared } } }) {
  const p99 = (row, stage) => (row.stages[stage] ? time(row.stages[stage].p99_ns) : "");
  return [
    element("p", { class: "muted" }, `By total execution time, since the start. ${number(prepared.statements)} CQL statements are prepared (${bytes(prepared.bytes)}).`),
    panel("Commands and requests", table("Statements", ["name", "#calls", "#total", "#mean", "#p99 execute", "#p99 wait for log", "#p99 write", "#rejected", "#failed"],
      commands.map((row) => [
        element("code", {}, row.name), number(row.calls), time(row.ns), row.calls ? time(row.ns / row.calls) : "",
        p99(row, "execute"), p99(row, "wait_for_log"), p99(row, "write"), number(row.rejected), number(row.failed),
      ]), { key: ([name]) => name.textContent })),
  ];
}

export const statements = { name: "statements", title: "Statements", icon: "statements", needs: ["statements"], draw: drawStatements, hasCharts: false };

function drawEvents({ data: { logs: { lines: all } } }) {
  return [panel("Last log messages", element("pre", { tabindex: 0, role: "region", "aria-label": "Log messages" }, all.length ? all.join("\n") : "There is no message."))];
}

export const events = { name: "events", title: "Events", icon: "events", needs: ["logs"], draw: drawEvents, hasCharts: false };
