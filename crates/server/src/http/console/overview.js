// The overview: a verdict with its evidence, charts, the busiest keys and clients.

import { chart } from "./chart.js";
import { bytes, button, choice, duration, element, number, panel, percent, table, tiles, time } from "./dom.js";
import { RANGES } from "./history.js";
import { app } from "./state.js";
import { STAGES, checks, keyName } from "./verdict.js";

const PROTOCOLS = [["resp", "Redis"], ["cql", "CQL"], ["http", "HTTP"]];
const PERCENTILES = [["p50", "p50"], ["p99", "p99"], ["p999", "p99.9"]];
const STAGE_CHOICES = [["all", "slowest stage"], ["parse", "parse"], ["execute", "execute"], ["wait_for_log", "wait for log"], ["write", "write"]];

const state = { percentile: "p99", stage: "all" };

/** Latency of each protocol: of one stage, or at each moment of the slowest one. */
function latencyLines(history) {
  const stages = state.stage === "all" ? Object.keys(STAGES) : [state.stage];
  return PROTOCOLS.flatMap(([protocol, name]) => {
    const columns = stages.map((stage) => history.line(name, `${protocol}_${stage}_${state.percentile}_ns`)?.values).filter(Boolean);
    if (columns.length === 0) return [];
    const values = history.times.map((_, at) => columns.reduce((most, column) => (column[at] === null ? most : Math.max(most ?? 0, column[at])), null));
    return [{ name, values }];
  });
}

function perSecond(value) {
  return `${number(Math.round(value * 10) / 10)}/s`;
}

function verdict(rows) {
  const bad = rows.filter(({ isBad }) => isBad);
  const title = bad.length === 0 ? "Everything is in order" : bad.map(({ text }) => text).join(" ");
  return element("section", { class: `verdict ${bad.length ? "bad" : "good"}`, "data-key": "verdict", "aria-label": "State of the server" },
    element("p", { class: "headline" }, element("span", { class: "chip" }, bad.length ? "Look at this" : "OK"), " ", title),
    element("ul", { class: "evidence" }, rows.map((row) => element("li", { "data-key": row.name, class: row.isBad ? "bad" : "good" },
      element("a", { href: `#${row.page}` }, row.name), element("span", {}, row.isBad ? "see above" : row.text)))));
}

function charts(data, history) {
  const of = (...pairs) => pairs.map(([name, column]) => history.line(name, column)).filter(Boolean);
  const moving = (pairs) => of(...pairs).filter(({ values }, at) => at === 0 || values.some((value) => value > 0));
  const draw = (title, lines, text, options) => chart(title, history, lines, text, options);
  const reactors = data.reactors.filter(({ name }) => name !== "spare").map(({ name }) => [name, `${name}_load`]);
  const tools = [
    choice("percentile", "overview-percentile", PERCENTILES, state.percentile),
    choice("stage", "overview-stage", STAGE_CHOICES, state.stage),
  ];
  tools[0].setAttribute("aria-label", "Percentile");
  tools[1].setAttribute("aria-label", "Stage");
  return element("div", { class: "charts", "data-key": "charts" },
    draw("Operations per second", moving(PROTOCOLS.map(([protocol, name]) => [name, `${protocol}_per_s`])), number),
    draw("Latency", latencyLines(history), time, { tools }),
    draw("CPU of each reactor", of(...reactors), percent, { most: 1 }),
    draw("Memory", of(["used", "used_bytes"]), bytes),
    draw("Log sync", of(["p99", "sync_p99_ns"], ["mean", "sync_mean_ns"]), time),
    draw("Syncs and records per second", of(["records", "records_per_s"], ["syncs", "syncs_per_s"]), number),
    draw("Network per second", of(["in", "input_bytes_per_s"], ["out", "output_bytes_per_s"]), bytes),
    draw("Connections", of(["connections", "connections"]), number),
    draw("Errors, expired and evicted per second", of(["errors", "errors_per_s"], ["expired", "expired_per_s"], ["evicted", "evicted_per_s"]), number));
}

function rangeButtons(history) {
  const ranges = RANGES.map(([name, span]) =>
    element("button", { type: "button", "data-action": "overview-range", "data-span": span, "aria-pressed": !app.zoom && history.spanMs === span }, name));
  return element("div", { class: "ranges", role: "group", "aria-label": "Time range", "data-key": "ranges" }, ranges,
    app.zoom ? button("Reset zoom", "overview-unzoom") : element("span", { class: "muted hint" }, "drag in a chart to zoom"));
}

function latencyTable(rows) {
  if (rows.length === 0) return element("p", { class: "muted" }, "No request in the last 10 s.");
  return table("Latency", ["protocol", "stage", "#p50", "#p99", "#p99.9", "#requests"],
    rows.map((row) => [row.protocol.toUpperCase(), STAGES[row.stage] ?? row.stage, time(row.p50_ns), time(row.p99_ns), time(row.p999_ns), number(row.count)]),
    { key: ([protocol, stage]) => `${protocol} ${stage}` });
}

function keyTable(keys) {
  if (!app.user?.is_unrestricted) return element("p", { class: "muted" }, "Only a user who may do everything sees keys of others.");
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

function draw({ data, history, latency, ageMs }) {
  const { overview: now } = data;
  const reads = now.hits + now.misses;
  const operations = PROTOCOLS.reduce((sum, [protocol]) => sum + (history.last(`${protocol}_per_s`) ?? 0), 0);
  const rows = latency.rows();
  return [
    verdict(checks(data, history, rows, ageMs)),
    tiles([
      ["Operations", perSecond(operations)],
      ["Connections", number(now.connections), `of ${number(now.connections_max)}`],
      ["Keys", number(now.keys)],
      ["Memory", bytes(now.used_bytes), now.limit_bytes ? `of ${bytes(now.limit_bytes)}` : "no limit"],
      ["Hits", reads ? percent(now.hits / reads) : "–", "since the start"],
      ["Errors", perSecond(history.last("errors_per_s") ?? 0)],
      ["Durability", now.durability],
      ["Up", duration(now.uptime_ms), `version ${now.version}`],
    ]),
    rangeButtons(history),
    charts(data, history),
    element("div", { class: "columns", "data-key": "tables" },
      panel("Latency of the last 10 s", latencyTable(rows)),
      panel("Most used keys", keyTable(now.hot_keys)),
      panel("Busiest clients", clientTable(now.busiest_clients), { className: "whole" })),
  ];
}

export const overview = {
  name: "overview", title: "Overview", icon: "overview", needs: [], draw,
  actions: {
    "overview-range": ({ dataset, history }) => history.choose(Number(dataset.span)),
    "overview-unzoom": () => { app.zoom = null; },
    "overview-percentile": ({ value }) => { state.percentile = value; },
    "overview-stage": ({ value }) => { state.stage = value; },
  },
};
