// The key browser: keys by pattern and type, one page of SCAN after another, and the value of one of them.

import { fromBase64, run, runAll, toBase64 } from "./api.js";
import { shown, splitWords, textOf } from "./bytes.js";
import { bytes, button, choice, duration, element, field, note, number, panel, table } from "./dom.js";
import { app, may } from "./state.js";
import { TYPES, VIEWS, drawValue, pageSize } from "./values.js";

/** Keys of a page, and the calls of SCAN and the time that it may take to fill. */
const KEYS_MAX = 100;
const SCAN_COUNT = 500;
const SCANS_MAX = 20;
const SCAN_MS_MAX = 1500;

const TYPE_CHOICES = [["", "all types"], ...Object.keys(TYPES).map((name) => [name, name])];

const DATABASES = 16;
const DATABASE_CHOICES = Array.from({ length: DATABASES }, (_, number) => [String(number), String(number)]);

const LENGTHS = { list: "LLEN", hash: "HLEN", set: "SCARD", zset: "ZCARD", stream: "XLEN" };

const NOTHING = { key: null, facts: null, page: null, place: null, edited: null, isEditing: false, confirms: false, problem: null };
const list = { pattern: "", type: "", rows: [], cursor: null, isBusy: false, problem: null, scanned: 0 };
const open = { ...NOTHING, view: "auto" };

function fail(reply) {
  if (reply instanceof Error) throw reply;
  return reply;
}

/** Type, TTL and size of keys. */
async function describe(keys) {
  const names = keys.map((key) => textOf(key) ?? key);
  const replies = await runAll(names.flatMap((key) => [["TYPE", key], ["PTTL", key], ["MEMORY", "USAGE", key]]));
  const value = (reply) => (reply instanceof Error ? null : reply);
  return keys.map((key, at) => {
    const [type, ttl, size] = replies.slice(3 * at, 3 * at + 3).map(value);
    return { key, type: type ? textOf(type) : "?", ttl: ttl ?? -1, size };
  }).filter(({ type }) => type !== "none");
}

/** Number of the last scan: an earlier one that is still running is ignored. */
let scans = 0;

/** Fills a page: SCAN may find nothing in many calls. */
async function scan(cursor) {
  scans += 1;
  const number = scans;
  [list.isBusy, list.problem] = [true, null];
  app.redraw();
  const end = performance.now() + SCAN_MS_MAX;
  try {
    const found = [];
    let next = cursor;
    for (let calls = 0; calls < SCANS_MAX && found.length < KEYS_MAX && performance.now() < end; calls += 1) {
      const filter = [...(list.pattern ? ["MATCH", list.pattern] : []), ...(list.type ? ["TYPE", list.type] : [])];
      const [reply, keys] = await run("SCAN", next, ...filter, "COUNT", String(found.length || list.pattern || list.type ? SCAN_COUNT : KEYS_MAX));
      next = textOf(reply);
      found.push(...keys);
      if (next === "0") break;
    }
    const known = new Set();
    const unique = found.filter((key) => !known.has(toBase64(key)) && known.add(toBase64(key)));
    // More keys than fit are described in parts, so that no answer is long.
    const rows = [];
    for (let at = 0; at < unique.length; at += KEYS_MAX) rows.push(...await describe(unique.slice(at, at + KEYS_MAX)));
    if (number !== scans) return;
    list.rows = rows.sort((one, other) => shown(one.key).localeCompare(shown(other.key)));
    list.cursor = next;
  } catch (error) {
    if (number !== scans) return;
    list.problem = error.message;
  }
  list.isBusy = false;
  app.redraw();
}

const wordOf = (key) => textOf(key) ?? key;

/** Number of the last read: an earlier one that is still running is of another key or page. */
let reads = 0;

async function readValue() {
  reads += 1;
  const number = reads;
  const key = wordOf(open.key);
  const replies = await runAll([["TYPE", key], ["PTTL", key], ["OBJECT", "ENCODING", key], ["MEMORY", "USAGE", key]]);
  if (number !== reads) return;
  const type = textOf(fail(replies[0]));
  const [ttl, encoding, size] = replies.slice(1).map((reply) => (reply instanceof Error ? null : reply));
  open.facts = { type, ttl, encoding: encoding ? textOf(encoding) : null, size };
  open.page = null;
  const rule = TYPES[type];
  if (type === "none" || !rule) return;
  const count = LENGTHS[type] ? await run(LENGTHS[type], key) : 1;
  const page = await rule.read(key, { place: open.place, size: pageSize(size ?? 0, count) });
  if (number === reads) open.page = page;
}

async function reopen(changes = {}) {
  Object.assign(open, { edited: null, isEditing: false, confirms: false, problem: null }, changes);
  await readValue();
}

function keyTable() {
  const selected = open.key ? toBase64(open.key) : null;
  return table("Keys", ["=key", "type", "TTL", "#size"], list.rows.map((row) => {
    const name = toBase64(row.key);
    return [
      element("button", { type: "button", class: "key", "data-action": "key-open", "data-name": name, "aria-current": name === selected ? "true" : null }, shown(row.key, 300) || "(empty)"),
      element("span", { class: `type ${row.type}` }, row.type), row.ttl >= 0 ? duration(row.ttl) : "", row.size === null ? "–" : bytes(row.size),
    ];
  }), { key: (row) => row[0].dataset.name });
}

function listPanel(overview) {
  const isEnd = list.cursor === "0";
  const progress = list.isBusy ? "Scanning…"
    : list.cursor === null ? "" : isEnd ? `${list.rows.length} keys; the scan is complete.` : `${list.rows.length} keys; there may be more.`;
  return panel("Keys", [
    element("form", { class: "toolbar", "data-submit": "keys-scan" },
      field("Pattern", element("input", { name: "pattern", id: "key-pattern", "data-search": "", placeholder: "user:*", autocomplete: "off", spellcheck: "false" }), "grow"),
      field("Type", choice("key-type", "keys-type", TYPE_CHOICES, list.type)),
      may("select") ? field("Database", choice("key-database", "keys-database", DATABASE_CHOICES, String(app.database))) : null,
      button("Scan", null, {}, { type: "submit", className: "primary", disabled: list.isBusy || !may("scan") })),
    list.problem ? note(list.problem, "bad") : null,
    list.rows.length > 0 ? keyTable() : note(list.cursor === null ? "" : isEnd ? "No key matches." : "No key found yet: continue the scan."),
    element("div", { class: "tools" },
      button("First page", "keys-first", {}, { disabled: list.isBusy || list.cursor === null }),
      button("Next page", "keys-next", {}, { disabled: list.isBusy || list.cursor === null || isEnd }),
      element("span", { class: "muted" }, `${progress} ${overview instanceof Error || !overview ? "" : `The server has ${number(overview.keys)} in all databases.`}`)),
  ]);
}

function valuePanel() {
  if (!open.key) return panel("Value", note("Choose a key to see its value."));
  const { facts, page } = open;
  const name = shown(open.key, 500) || "(empty)";
  if (!facts) return panel(name, open.problem ? note(open.problem, "bad") : note("Reading…"));
  const isString = facts.type === "string";
  const remove = open.confirms
    ? [button("Delete this key", "key-delete", {}, { className: "danger" }), button("Keep it", "key-keep")]
    : [button("Delete…", "key-confirm", {}, { disabled: !may("del"), title: may("del") ? null : "The user may not run DEL" })];
  const info = [facts.type, facts.encoding, facts.size === null ? null : bytes(facts.size), page ? `${number(page.total)} ${TYPES[facts.type].unit}` : null].filter(Boolean).join(" · ");
  return panel(name, [
    element("p", { class: "muted" }, facts.type === "none" ? "The key does not exist any more." : info),
    open.problem ? note(open.problem, "bad") : null,
    element("form", { class: "toolbar", "data-submit": "key-ttl", "data-key": "ttl" },
      field("TTL in seconds (empty: never expires)", element("input", {
        name: "ttl", inputmode: "numeric", value: facts.ttl >= 0 ? String(Math.ceil(facts.ttl / 1000)) : "", autocomplete: "off", disabled: may("expire") && may("persist") ? null : "",
      })),
      button("Set", null, {}, { type: "submit", disabled: !(may("expire") && may("persist")) }),
      isString && page ? field("View", choice("value-view", "value-view", VIEWS, open.view)) : null),
    page ? drawValue(facts.type, page, open) : note(facts.type === "none" ? "" : "Use the command line for values of this type."),
  ], { tools: [button("Read again", "value-reload"), ...remove], className: "value-panel" });
}

function draw({ data }) {
  return [element("div", { class: "split", "data-key": "split" }, listPanel(data.overview), valuePanel())];
}

export const keys = {
  name: "keys", title: "Keys", icon: "keys", needs: [], draw, hasCharts: false, isFree: true,
  enter: async () => { if (list.cursor === null && may("scan")) await scan("0"); },
  fail: (error) => { open.problem = error.message; },
  actions: {
    "keys-scan": async ({ form }) => {
      // A pattern is written like a word of a command, so that it can have any bytes.
      const words = splitWords(form.get("pattern").trim());
      list.pattern = words.length === 1 ? words[0] : form.get("pattern").trim();
      await scan("0");
    },
    "keys-type": ({ value }) => {
      list.type = value;
      return scan("0");
    },
    "keys-database": ({ value }) => {
      app.database = Number(value);
      // What is open, or still being read, is of another database.
      reads += 1;
      Object.assign(open, NOTHING);
      list.rows = [];
      return scan("0");
    },
    "keys-first": () => scan("0"),
    "keys-next": () => scan(list.cursor),
    "key-open": async ({ dataset }) => {
      Object.assign(open, NOTHING, { key: fromBase64(dataset.name) });
      app.redraw();
      await reopen();
      document.querySelector(".value-panel")?.scrollIntoView({ block: "nearest" });
    },
    "key-confirm": () => { open.confirms = true; },
    "key-keep": () => { open.confirms = false; },
    "key-delete": async () => {
      await run("DEL", wordOf(open.key));
      const name = toBase64(open.key);
      list.rows = list.rows.filter(({ key }) => toBase64(key) !== name);
      reads += 1;
      Object.assign(open, NOTHING);
    },
    "key-ttl": async ({ form }) => {
      const ttl = form.get("ttl").trim();
      await (ttl === "" ? run("PERSIST", wordOf(open.key)) : run("EXPIRE", wordOf(open.key), ttl));
      await reopen();
    },
    "value-view": ({ value }) => { open.view = value; },
    "value-reload": () => reopen(),
    "value-first": () => reopen({ place: null }),
    "value-next": () => reopen({ place: open.page.next }),
    "value-edit": () => { open.isEditing = true; },
    "value-cancel": () => { open.isEditing = false; },
    "value-save": async ({ form }) => {
      // Forms end lines with CR LF.
      await run("SET", wordOf(open.key), form.get("value").replaceAll("\r\n", "\n"), "KEEPTTL");
      await reopen();
    },
    "element-edit": ({ dataset }) => { open.edited = Number(dataset.at); },
    "element-cancel": () => { open.edited = null; },
    "element-save": async ({ form }) => {
      const rule = TYPES[open.facts.type];
      await rule.write(wordOf(open.key), ...rule.add.map((_, at) => form.get(`part${at}`)));
      await reopen();
    },
    "element-remove": async ({ dataset }) => {
      await TYPES[open.facts.type].remove(wordOf(open.key), open.page.rows[Number(dataset.at)]);
      await reopen();
    },
  },
};
