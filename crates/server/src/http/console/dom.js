// DOM elements, and formatting of numbers.

const SVG = "http://www.w3.org/2000/svg";

/** Creates an element with attributes and children; strings become text nodes, never markup. */
export function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function shape(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return made;
}

/** Attributes that the user controls; they are kept when the content changes. */
const KEPT_ATTRIBUTES = new Set(["open"]);

/**
 * Makes `old` equal to `next` by changing only the differences, so that focus, selection, scroll positions and
 * the position of a screen reader are kept. Children with `data-key` are matched by it, others by order.
 */
export function patch(old, next) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name) && !KEPT_ATTRIBUTES.has(name)) old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (old.getAttribute(name) !== value && !KEPT_ATTRIBUTES.has(name)) old.setAttribute(name, value);
  }
  patchChildren(old, [...next.childNodes]);
}

export function patchChildren(old, wanted) {
  const kept = new Set(wanted.map((next) => next.dataset?.key));
  const keyed = new Map();
  for (const child of [...old.children].filter(({ dataset }) => dataset.key)) {
    // Remove these first, so that the remaining rows need not move.
    if (!kept.has(child.dataset.key) || keyed.has(child.dataset.key)) child.remove();
    else keyed.set(child.dataset.key, child);
  }
  let at = old.firstChild;
  for (const next of wanted) {
    const key = next.dataset?.key;
    const candidate = key ? keyed.get(key) : at?.dataset?.key ? null : at;
    keyed.delete(key);
    if (!candidate || candidate.nodeName !== next.nodeName) {
      old.insertBefore(next, at);
      continue;
    }
    if (candidate === at) at = at.nextSibling;
    else old.insertBefore(candidate, at);
    patch(candidate, next);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

/**
 * Creates a table from column names and rows of cells; `#name` is a column of numbers, `=name` a wide one. Rows
 * are identified by their first cell, or by `key(row)`. `label` names the region for users who scroll it by
 * keyboard. `sort`: `{ action, by, isUp }`, if a column can be chosen to sort by.
 */
export function table(label, columns, rows, { key = (row) => row[0]?.textContent ?? row[0], sort = null } = {}) {
  const kind = (column) => (column.startsWith("#") ? "number" : column.startsWith("=") ? "wide" : null);
  const names = columns.map((column) => column.replace(/^[#=]/, ""));
  const title = (name) => (sort && name ? element("button", { type: "button", class: "sort", "data-action": sort.action, "data-column": name }, name) : name);
  const order = (name) => (sort?.by === name ? (sort.isUp ? "ascending" : "descending") : null);
  const head = columns.map((column, at) => (names[at]
    ? element("th", { class: kind(column), scope: "col", "aria-sort": order(names[at]) }, title(names[at]))
    : element("td", {})));
  const cells = (row) => row.map((cell, at) =>
    element("td", { class: kind(columns[at]), "data-label": names[at] }, cell ?? ""));
  const body = rows.map((row) => element("tr", { "data-key": key(row) }, cells(row)));
  const inside = [element("thead", {}, element("tr", {}, head)), element("tbody", {}, body)];
  return element("div", { class: "scroll", role: "region", "aria-label": label, tabindex: 0 }, element("table", {}, inside));
}

/** A titled part of a page. `tools`: what is shown at the right of the title. */
export function panel(title, content, { tools = [], className = "" } = {}) {
  const head = element("header", { class: "panel-head" }, element("h2", {}, title), element("div", { class: "tools" }, tools));
  return element("section", { class: `panel ${className}`.trim(), "data-key": `panel ${title}` }, head, content);
}

export function tiles(pairs) {
  const one = ([name, value, note]) => element("div", { class: "tile", "data-key": name },
    element("span", {}, name), element("b", {}, value), note ? element("small", {}, note) : null);
  return element("div", { class: "tiles" }, pairs.map(one));
}

/** A button; `values` become its data. */
export function button(text, action, values = {}, { className = "", disabled = false, title = null, type = "button" } = {}) {
  const data = Object.fromEntries(Object.entries(values).map(([name, value]) => [`data-${name}`, value]));
  return element("button", { type, class: className || null, "data-action": action, disabled: disabled ? "" : null, title, ...data }, text);
}

/** An input or a list of choices with its label. */
export function field(label, control, className = "") {
  return element("label", { class: `field ${className}`.trim() }, element("span", {}, label), control);
}

export function choice(id, action, options, chosen) {
  return element("select", { id, "data-change": action }, options.map(([value, text]) =>
    element("option", { value, selected: value === chosen ? "" : null }, text)));
}

export function note(text, kind = "muted") {
  return element("p", { class: kind, role: kind === "bad" ? "alert" : null }, text);
}

/** Cuts a text for display. */
export function cut(text, max) {
  return text.length > max ? `${text.slice(0, max)}…` : text;
}

/** An IPv6 address is in brackets. */
export function place(host, port) {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

export function number(value) {
  if (!Number.isFinite(value)) return "-";
  for (const [power, unit] of [[1e9, " G"], [1e6, " M"], [1e4, " k"]]) {
    if (Math.abs(value) >= power) return (value / (power === 1e4 ? 1e3 : power)).toFixed(1) + unit;
  }
  return Number.isInteger(value) ? String(value) : value.toFixed(value < 10 ? 2 : 1);
}

export function bytes(value) {
  if (value === null || value === undefined) return "-";
  for (const [power, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (value >= power) {
      const share = value / power;
      return `${Number.isInteger(share) ? share : share.toFixed(1)} ${unit}`;
    }
  }
  return `${Math.round(value)} B`;
}

export function time(ns) {
  for (const [power, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
    if (ns >= power) return `${(ns / power).toFixed(ns >= 100 * power ? 0 : 1)} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

export function percent(share) {
  return `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
}

export function duration(ms) {
  const seconds = Math.floor(ms / 1000);
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

/** Converts Markdown to nodes. Supports only `code`, the only markup in the descriptions of options. */
export function prose(text) {
  return text.split("`").map((part, at) => (at % 2 ? element("code", {}, part) : part));
}
