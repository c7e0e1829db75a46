// Pages of values, by type: how one is read, shown and changed.

import { run, runAll } from "./api.js";
import { hexDump, prettyJson, shown, textOf } from "./bytes.js";
import { bytes, button, duration, element, field, note, number, table } from "./dom.js";
import { may } from "./state.js";

/** Elements of a page, and bytes of a string, that are shown at once. */
const ELEMENTS_MAX = 100;
const STRING_BYTES_MAX = 64 << 10;
/** With larger elements on average, pages have fewer of them. */
const PAGE_BYTES = 2 << 20;

/** How many elements a page has, by the size of the average one. */
export function pageSize(usedBytes, count) {
  const average = count > 0 ? usedBytes / count : 0;
  return Math.max(1, Math.min(ELEMENTS_MAX, Math.floor(PAGE_BYTES / Math.max(1, average))));
}

const num = (bytesOfText) => Number(textOf(bytesOfText));
const pairs = (flat) => Array.from({ length: flat.length / 2 }, (_, at) => [flat[2 * at], flat[2 * at + 1]]);

/** Reads by position: `offset` is the place. */
function byOffset(command, count, toRows) {
  return async (key, { place, size }) => {
    const offset = Number(place ?? 0);
    const rows = toRows(await command(key, offset, offset + size - 1), offset);
    const total = await count(key);
    return { rows, next: offset + size < total ? String(offset + size) : null, total };
  };
}

/** Reads by a cursor. */
function byCursor(command, count, toRows) {
  return async (key, { place, size }) => {
    const [cursor, found] = await run(command, key, place ?? "0", "COUNT", String(size));
    const next = textOf(cursor);
    return { rows: await toRows(found, key), next: next === "0" ? null : next, total: await run(count, key) };
  };
}

async function readString(key) {
  const [length, value] = await runAll([["STRLEN", key], ["GETRANGE", key, "0", String(STRING_BYTES_MAX - 1)]]);
  for (const reply of [length, value]) if (reply instanceof Error) throw reply;
  return { rows: [[value]], next: null, total: length };
}

async function withFieldTtl(flat, key) {
  const rows = pairs(flat);
  if (rows.length === 0) return rows;
  try {
    const ttl = await run("HPTTL", key, "FIELDS", String(rows.length), ...rows.map(([name]) => name));
    return rows.map((row, at) => [...row, ttl[at]]);
  } catch {
    // The user may not run HPTTL: fields are shown without it.
    return rows.map((row) => [...row, -1]);
  }
}

async function readStream(key, { place, size }) {
  const found = await run("XREVRANGE", key, place ? `(${place}` : "+", "-", "COUNT", String(size));
  const rows = found.map(([id, fields]) => [id, pairs(fields)]);
  return { rows, next: rows.length === size ? textOf(rows.at(-1)[0]) : null, total: await run("XLEN", key) };
}

/**
 * By the name of TYPE: `read` returns `{ rows, next, total }`; `columns` name the cells; `add` are the fields of the
 * form, in the order of `write(key, ...)`; `remove(key, row)`.
 */
export const TYPES = {
  string: { read: readString, unit: "bytes" },
  list: {
    read: byOffset((key, from, to) => run("LRANGE", key, String(from), String(to)), (key) => run("LLEN", key), (found, offset) => found.map((value, at) => [offset + at, value])),
    columns: ["#index", "=value"], unit: "elements", add: ["index (empty: at the end)", "value"], needs: ["lset", "rpush"],
    write: (key, index, value) => (index === "" ? run("RPUSH", key, value) : run("LSET", key, index, value)),
    edit: ([index, value]) => [String(index), value],
  },
  hash: {
    read: byCursor("HSCAN", "HLEN", withFieldTtl),
    columns: ["=field", "=value", "TTL"], unit: "fields", add: ["field", "value"], needs: ["hset"], removal: "hdel",
    write: (key, name, value) => run("HSET", key, name, value),
    edit: ([name, value]) => [name, value],
    remove: (key, [name]) => run("HDEL", key, name),
  },
  set: {
    read: byCursor("SSCAN", "SCARD", (found) => found.map((member) => [member])),
    columns: ["=member"], unit: "members", add: ["member"], needs: ["sadd"], removal: "srem",
    write: (key, member) => run("SADD", key, member),
    remove: (key, [member]) => run("SREM", key, member),
  },
  zset: {
    read: byOffset((key, from, to) => run("ZRANGE", key, String(from), String(to), "WITHSCORES"), (key) => run("ZCARD", key), (found) => pairs(found).map(([member, score]) => [num(score), member])),
    columns: ["#score", "=member"], unit: "members", add: ["score", "member"], needs: ["zadd"], removal: "zrem",
    write: (key, score, member) => run("ZADD", key, score, member),
    edit: ([score, member]) => [String(score), member],
    remove: (key, [, member]) => run("ZREM", key, member),
  },
  stream: {
    read: readStream, columns: ["id", "=fields"], unit: "entries", add: ["field", "value"], needs: ["xadd"], removal: "xdel",
    write: (key, name, value) => run("XADD", key, "*", name, value),
    remove: (key, [id]) => run("XDEL", key, id),
  },
};

/** Views of a string, and what each makes of it. */
export const VIEWS = [["auto", "auto"], ["text", "text"], ["json", "JSON"], ["hex", "hex"]];

function stringText(value, view, isWhole) {
  const text = textOf(value);
  const json = text !== null && isWhole ? prettyJson(text) : null;
  if (view === "json") return json ?? "(not a JSON object or list, or too long to be shown as one)";
  if (view === "hex" || (view === "auto" && text === null)) return hexDump(value);
  if (view === "auto" && json) return json;
  return text ?? shown(value, STRING_BYTES_MAX);
}

function drawString(page, state) {
  const [[value]] = page.rows;
  const isWhole = value.length === page.total;
  const text = isWhole ? textOf(value) : null;
  if (state.isEditing) {
    return [element("form", { class: "stack", "data-submit": "value-save" },
      field("Value", element("textarea", { name: "value", rows: 12, spellcheck: "false" }, text)),
      element("div", { class: "tools" }, button("Save", null, {}, { type: "submit", className: "primary" }), button("Cancel", "value-cancel")))];
  }
  const reason = !may("set") ? "The user may not run SET" : text === null ? "Only a whole value of text can be edited here" : null;
  return [
    element("pre", { class: "value", tabindex: 0, role: "region", "aria-label": "Value" }, stringText(value, state.view, isWhole)),
    isWhole ? null : note(`The first ${bytes(value.length)} of ${bytes(page.total)} are shown.`),
    element("div", { class: "tools" }, button("Edit the value", "value-edit", {}, { disabled: reason !== null, title: reason })),
  ];
}

function cell(value, column) {
  if (Array.isArray(value)) {
    return element("dl", { class: "fields" }, value.flatMap(([name, text]) => [element("dt", {}, shown(name, 200)), element("dd", {}, shown(text, 1000))]));
  }
  if (value instanceof Uint8Array) return element("code", {}, shown(value, 1000));
  if (column === "TTL") return value >= 0 ? duration(value) : "";
  return String(value);
}

/** Whether an input field can hold each part: it removes line ends. */
function isAllText(row) {
  return row.every((part) => !(part instanceof Uint8Array)
    || (part.length <= STRING_BYTES_MAX && textOf(part) !== null && !/[\r\n]/.test(textOf(part))));
}

function drawElements(type, page, state) {
  const rule = TYPES[type];
  const mayWrite = rule.needs.every(may);
  const rows = page.rows.map((row, at) => [
    ...rule.columns.map((column, index) => cell(row[index], column)),
    element("span", { class: "tools" },
      rule.edit ? button("Edit", "element-edit", { at }, { className: "quiet", disabled: !mayWrite || !isAllText(row) }) : null,
      rule.remove ? button("Delete", "element-remove", { at }, { className: "quiet", disabled: !may(rule.removal) }) : null),
  ]);
  const values = state.edited === null ? [] : rule.edit(page.rows[state.edited]).map((part) => (typeof part === "string" ? part : textOf(part)));
  const form = element("form", { class: "toolbar", "data-submit": "element-save", "data-key": `form ${state.edited}` },
    rule.add.map((label, at) => field(label, element("input", { name: `part${at}`, value: values[at] ?? "", autocomplete: "off", disabled: mayWrite ? null : "" }), "grow")),
    button(state.edited === null ? "Add" : "Save", null, {}, { type: "submit", className: "primary", disabled: !mayWrite }),
    state.edited === null ? null : button("Cancel", "element-cancel"));
  return [
    table(`Elements of the ${type}`, [...rule.columns, ""], rows, { key: (row) => String(rows.indexOf(row)) }),
    element("div", { class: "tools" },
      button("First page", "value-first", {}, { disabled: state.place === null }),
      button("Next page", "value-next", {}, { disabled: page.next === null }),
      element("span", { class: "muted" }, `${page.rows.length} shown of ${number(page.total)} ${rule.unit}`)),
    form,
  ];
}

export function drawValue(type, page, state) {
  return type === "string" ? drawString(page, state) : drawElements(type, page, state);
}
