// The key browser: keys by pattern and type, one page of SCAN after another, and the value of one of them.

import { fromBase64, run, runAll, toBase64 } from "./api.js";
import { shown, splitWords, textOf } from "./bytes.js";
import { bytes, button, choice, duration, element, field, note, number, panel, table } from "./dom.js";
import { app, may } from "./state.js";
import { TYPES, VIEWS, drawValue, pageSize } from "./values.js";

/** Keys of a page, and the keys that one call of SCAN visits: the more, the fewer match. */
const KEYS_MAX = 100;
const SCAN_COUNT = 500;
const SCAN_COUNT_MAX = 8000;

const TYPE_CHOICES = [["", "all types"], ...Object.keys(TYPES).map((name) => [name, name])];

const DATABASES = 16;
const DATABASE_CHOICES = Array.from({ length: DATABASES }, (_, number) => [String(number), String(number)]);

const LENGTHS = { list: "LLEN", hash: "HLEN", set: "SCARD", zset: "ZCARD", stream: "XLEN" };

const NOTHING = { key: null, facts: null, page: null, place: null, edited: null, isEditing: false, confirms: false, problem: null };
const list = { pattern: "", type: "", rows: [], cursor: null, isBusy: false, problem: null, scanned: 0, found: 0, total: null, stops: false };
const open = { ...NOTHING, view: "auto" };

const bytesOf = (word) => (typeof word === "string" ? new TextEncoder().encode(word) : word);

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

/** Number of the last scan: an earlier one that is still running ends after its call. */
let scans = 0;

const GLOB = new TextEncoder().encode("*?[\\");

/** Whether a pattern is the name of one key. */
function isName(pattern) {
  const name = bytesOf(pattern);
  return name.length > 0 && !name.some((byte) => GLOB.includes(byte));
}

/** Finds the keys of a page, from a place of SCAN; returns them with the next place. */
async function collect(cursor, isCurrent) {
  if (isName(list.pattern)) return [[bytesOf(list.pattern)], "0"];
  const filter = [...(list.pattern ? ["MATCH", list.pattern] : []), ...(list.type ? ["TYPE", list.type] : [])];
  const found = [];
  let [next, count] = [cursor, filter.length > 0 ? SCAN_COUNT : KEYS_MAX];
  do {
    const [reply, keys] = await run("SCAN", next, ...filter, "COUNT", String(count));
    if (!isCurrent()) break;
    next = textOf(reply);
    found.push(...keys);
    [list.scanned, list.found] = [list.scanned + count, found.length];
    count = keys.length > 0 ? SCAN_COUNT : Math.min(2 * count, SCAN_COUNT_MAX);
    app.redraw();
  } while (next !== "0" && found.length < KEYS_MAX && !list.stops && location.hash.startsWith("#keys"));
  return [found, next];
}

/** Fills a page, however many calls of SCAN that takes, unless the user stops it or leaves. */
async function scan(cursor) {
  scans += 1;
  const number = scans;
  const isCurrent = () => number === scans;
  Object.assign(list, { isBusy: true, problem: null, stops: false, found: 0 });
  if (cursor === "0") Object.assign(list, { scanned: 0, total: null });
  app.redraw();
  try {
    if (list.total === null && may("dbsize")) list.total = await run("DBSIZE");
    const [found, next] = await collect(cursor, isCurrent);
    const known = new Set();
    const unique = found.filter((key) => !known.has(toBase64(key)) && known.add(toBase64(key)));
    // More keys than fit are described in parts, so that no answer is long.
    const rows = [];
    for (let at = 0; at < unique.length; at += KEYS_MAX) rows.push(...await describe(unique.slice(at, at + KEYS_MAX)));
    if (!isCurrent()) return;
    list.rows = rows.filter(({ type }) => !list.type || type === list.type).sort((one, other) => shown(one.key).localeCompare(shown(other.key)));
    list.cursor = next;
  } catch (error) {
    if (!isCurrent()) return;
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

function nothingFound(isEnd) {
  if (list.cursor === null || list.isBusy) return "";
  if (isName(list.pattern)) return `No key has this name${list.type ? " and type" : ""}. For keys that contain it: *${shown(bytesOf(list.pattern), 100)}*`;
  return isEnd ? "No key matches." : "No key found yet: Next page continues the scan.";
}

function listPanel(overview) {
  const isEnd = list.cursor === "0";
  const all = list.total === null ? "" : ` of ${number(list.total)}`;
  const scanned = list.total === null ? list.scanned : Math.min(list.scanned, list.total);
  const progress = list.isBusy ? `Scanned ${number(scanned)}${all} keys, ${number(list.found)} found…`
    : list.cursor !== null && isName(list.pattern) ? ""
    : list.cursor === null ? "" : isEnd ? `${list.rows.length} keys; the scan is complete.` : `${list.rows.length} keys; there may be more.`;
  return panel("Keys", [
    element("form", { class: "toolbar", "data-submit": "keys-scan" },
      field("Pattern", element("input", { name: "pattern", id: "key-pattern", "data-search": "", placeholder: "user:*", autocomplete: "off", spellcheck: "false" }), "grow"),
      field("Type", choice("key-type", "keys-type", TYPE_CHOICES, list.type)),
      may("select") ? field("Database", choice("key-database", "keys-database", DATABASE_CHOICES, String(app.database))) : null,
      button("Scan", null, {}, { type: "submit", className: "primary", disabled: list.isBusy || !may("scan") })),
    list.problem ? note(list.problem, "bad") : null,
    list.rows.length > 0 ? keyTable() : note(nothingFound(isEnd)),
    element("div", { class: "tools" },
      button("First page", "keys-first", {}, { disabled: list.isBusy || list.cursor === null }),
      list.isBusy ? button("Stop", "keys-stop")
        : button("Next page", "keys-next", {}, { disabled: list.cursor === null || isEnd }),
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
    "keys-stop": () => { list.stops = true; },
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
