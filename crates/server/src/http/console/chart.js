// Line charts of the server's history, as SVG, with a crosshair that all charts share.

import { bytes, element, shape } from "./dom.js";
import { app } from "./state.js";

const HEIGHT = 150;
const TOP = 8;
const BOTTOM = 20;
/** Space for the widest label, such as 1023.5 KiB. */
export const LEFT = 68;
export const RIGHT = 6;
const COLORS = 6;
const GRID_LINES = 4;

/** Steps of the time axis in seconds; the first one with few enough labels is taken. */
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600];
const LABEL_PIXELS = 70;

/** Rounds up to 1, 2 or 5 times a power of ten; bytes to a power of two, because their units are powers of two. */
export function roundUp(value, isBytes) {
  if (!(value > 0)) return 1;
  if (isBytes) return 2 ** Math.ceil(Math.log2(value));
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 10].find((step) => step * power >= value * 0.9999) * power;
}

/** Index of the last time that is not after `at`, or of the first time; `times` ascends. */
export function indexAt(times, at) {
  let [low, high] = [0, times.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (times[middle] <= at) low = middle;
    else high = middle - 1;
  }
  return low;
}

function clock(ms, withSeconds) {
  return new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: withSeconds ? "2-digit" : undefined, hourCycle: "h23" });
}

/** The path of a line; a missing value, or a pause in the points, interrupts it. */
function path(times, values, stepMs, x, y) {
  const parts = [];
  let before = null;
  times.forEach((at, index) => {
    const value = values[index];
    if (value === null || value === undefined) {
      before = null;
      return;
    }
    const isNew = before === null || at - before > 3 * stepMs;
    parts.push(`${isNew ? "M" : "L"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`);
    before = at;
  });
  return parts.join("");
}

function timeAxis(from, until, x, width) {
  const span = (until - from) / 1000;
  const step = 1000 * (STEPS_S.find((one) => (span / one) * LABEL_PIXELS <= width - LEFT) ?? STEPS_S.at(-1));
  const offset = new Date(until).getTimezoneOffset() * 60_000;
  const labels = [];
  for (let at = Math.ceil((from - offset) / step) * step + offset; at <= until; at += step) {
    const place = x(at);
    if (place < LEFT + 14 || place > width - 18) continue;
    labels.push(shape("line", { class: "tick", x1: place, x2: place, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4 }));
    labels.push(shape("text", { x: place, y: HEIGHT - 4, "text-anchor": "middle" }, clock(at, step < 60_000)));
  }
  return labels;
}

/**
 * A chart of lines `{ name, values }` over `history.times`; `text` formats values, `most` is the minimum upper end
 * of the axis.
 */
export function chart(title, history, lines, text, { most = 0, tools = [] } = {}) {
  const { times, from, until, stepMs } = history;
  const width = app.chartWidth;
  const highest = lines.reduce((high, { values }) => values.reduce((top, value) => Math.max(top, value ?? 0), high), most);
  const top = roundUp(highest, text === bytes);
  const x = (at) => LEFT + ((width - LEFT - RIGHT) * (at - from)) / Math.max(1, until - from);
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
  const grid = Array.from({ length: GRID_LINES + 1 }, (_, at) => (at / GRID_LINES) * top).flatMap((value, at) => [
    shape("line", { class: at === 0 ? "axis" : "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
    at % 2 === 0 ? shape("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, text(value)) : null,
  ]);
  const drawn = lines.map(({ values }) => path(times, values, stepMs, x, y));
  const fill = lines.length === 1 && drawn[0] && !drawn[0].slice(1).includes("M")
    ? shape("path", { class: "area", fill: "var(--series-0)", d: `${drawn[0]}L${x(times.at(-1)).toFixed(1)} ${y(0)}L${drawn[0].slice(1).split(" ")[0]} ${y(0)}Z` })
    : null;
  const curves = drawn.map((d, at) => shape("path", { class: "curve", d, stroke: `var(--series-${at % COLORS})` }));
  const isInside = app.hover !== null && times.length > 0 && app.hover >= from && app.hover <= until;
  const index = isInside ? indexAt(times, app.hover) : times.length - 1;
  const cross = isInside
    ? [
      shape("line", { class: "cross", x1: x(times[index]), x2: x(times[index]), y1: TOP, y2: HEIGHT - BOTTOM }),
      ...lines.map(({ values }, at) => (values[index] === null || values[index] === undefined ? null
        : shape("circle", { cx: x(times[index]), cy: y(values[index]), r: 3, fill: `var(--series-${at % COLORS})` }))),
    ]
    : [];
  const legend = lines.map(({ name, values }, at) => element("span", {},
    shape("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, shape("rect", { width: 10, height: 10, rx: 2, fill: `var(--series-${at % COLORS})` })),
    `${name} `, element("b", {}, values[index] === null || values[index] === undefined ? "–" : text(values[index]))));
  return element("figure", { class: "chart", "data-key": title },
    element("figcaption", {}, element("span", {}, title), element("span", { class: "when" }, isInside ? clock(times[index], true) : ""), tools),
    shape("svg", {
      viewBox: `0 0 ${width} ${HEIGHT}`, class: "plot", role: "img", "aria-label": `${title}: ${legend.map((one) => one.textContent).join(", ") || "no values"}`,
      tabindex: 0, "data-from": from, "data-until": until,
    }, grid, timeAxis(from, until, x, width), fill, curves, cross),
    element("div", { class: "legend" }, lines.length ? legend : element("span", {}, "Nothing was measured in this time.")));
}
