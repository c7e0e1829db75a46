// Elements and numbers as text.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children; texts become text nodes, never markup. */
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
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

/** A table from names of columns and rows of cells; `#name` is a column of numbers. */
export function table(columns, rows) {
  const kind = (column) => (column.startsWith("#") ? "number" : column.startsWith("=") ? "wide" : null);
  const head = columns.map((column) => element("th", { class: kind(column) }, column.replace(/^[#=]/, "")));
  const cells = (row) => row.map((cell, at) => element("td", { class: kind(columns[at]) }, cell ?? ""));
  const body = rows.map((row) => element("tr", {}, cells(row)));
  const inside = [element("thead", {}, element("tr", {}, head)), element("tbody", {}, body)];
  return element("div", { class: "scroll" }, element("table", {}, inside));
}

export function tiles(pairs) {
  const one = ([name, value]) => element("div", { class: "tile" }, element("b", {}, value), element("span", {}, name));
  return element("div", { class: "tiles" }, pairs.map(one));
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
    if (value >= power) return `${(value / power).toFixed(1)} ${unit}`;
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
