// Line charts of the last minutes, as SVG.

import { bytes, element, shape } from "./dom.js";

const WIDTH = 480;
const HEIGHT = 170;
/** Space for the widest label, such as 1023.5 KiB. */
const LEFT = 86;
const BOTTOM = 24;
const TOP = 12;
/** Time span of a chart, in seconds. */
export const SECONDS = 120;
const COLORS = 6;

/** Rounds up to 1, 2 or 5 times a power of ten; bytes to a power of two, because their units are powers of two. */
export function roundUp(value, isBytes) {
  if (!(value > 0)) return 1;
  if (isBytes) return 2 ** Math.ceil(Math.log2(value));
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((step) => step * power >= value) * power;
}

/**
 * A chart of series `{ name, points: [[ms, value], ...] }`; `text` formats values, `most` is the minimum
 * upper end of the axis.
 */
export function chart(title, series, text, most = 0) {
  const now = Math.max(0, ...series.flatMap(({ points }) => points.slice(-1).map(([at]) => at)));
  const highest = Math.max(most, ...series.flatMap(({ points }) => points.map(([, value]) => value)));
  const top = roundUp(highest, text === bytes);
  const x = (at) => LEFT + (WIDTH - LEFT) * (1 - (now - at) / (1000 * SECONDS));
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
  const lines = [0, 0.5, 1].map((share) => [
    shape("line", { class: "grid", x1: LEFT, x2: WIDTH, y1: y(share * top), y2: y(share * top) }),
    shape("text", { x: LEFT - 6, y: y(share * top) + 5, "text-anchor": "end" }, text(share * top)),
  ]);
  const marks = [120, 60, 0].map((ago) => shape(
    "text", { x: x(now - 1000 * ago), y: HEIGHT - 6, "text-anchor": ago === 120 ? "start" : ago === 0 ? "end" : "middle" },
    ago === 0 ? "now" : `${ago} s ago`,
  ));
  const curves = series.map(({ points }, at) => shape("polyline", {
    points: points.filter(([when]) => x(when) >= LEFT).map(([when, value]) => `${x(when).toFixed(1)},${y(value).toFixed(1)}`).join(" "),
    fill: "none", stroke: `var(--series-${at % COLORS})`, "stroke-width": 1.6, "stroke-linejoin": "round",
  }));
  const last = ({ points }) => (points.length === 0 ? "-" : text(points[points.length - 1][1]));
  const legend = series.map((one, at) => element("span", {},
    shape("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, shape("rect", { width: 10, height: 10, fill: `var(--series-${at % COLORS})` })),
    `${one.name} ${last(one)}`));
  return element("figure", { class: "chart" },
    element("figcaption", {}, title),
    shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title }, lines.flat(), marks, curves),
    element("div", { class: "legend" }, legend));
}

/** Counters and gauges over time, by name. */
export class History {
  constructor() {
    this.series = new Map();
    this.counters = new Map();
  }

  /** Records the value of a gauge. */
  note(name, at, value) {
    const points = this.series.get(name) ?? [];
    points.push([at, value]);
    while (points.length > 0 && points[0][0] < at - 1000 * (SECONDS + 5)) points.shift();
    this.series.set(name, points);
  }

  /** Records a counter as its growth per second; a counter that shrinks was reset. */
  count(name, at, total) {
    const before = this.counters.get(name);
    this.counters.set(name, [at, total]);
    if (before && at > before[0] && total >= before[1]) {
      this.note(name, at, (1000 * (total - before[1])) / (at - before[0]));
    }
  }

  of(key, name = key) {
    return { name, points: this.series.get(key) ?? [] };
  }

  last(name) {
    return this.series.get(name)?.at(-1)?.[1] ?? 0;
  }
}
