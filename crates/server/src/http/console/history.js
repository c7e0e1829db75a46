// The server's history of figures, as columns over time.

import { ask } from "./api.js";
import { app } from "./state.js";

/** Name, span in ms. Only the shortest grows by the second; the others are read again for each of their points. */
export const RANGES = [["5 min", 300_000], ["1 h", 3_600_000], ["1 day", 86_400_000]];
const LIVE_MS = RANGES[0][1];

export class History {
  constructor() {
    this.spanMs = LIVE_MS;
    this.clear();
  }

  clear() {
    this.times = [];
    this.columns = new Map();
    this.stepMs = 1000;
    this.now = Date.now();
    this.readAt = 0;
    this.shows = null;
  }

  get from() {
    return app.zoom?.from ?? this.now - this.spanMs;
  }

  get until() {
    return app.zoom?.until ?? this.now;
  }

  choose(spanMs) {
    this.spanMs = spanMs;
    app.zoom = null;
    this.clear();
  }

  /** Reads what is missing since the last call. */
  async update(nowMs) {
    const key = JSON.stringify([this.spanMs, app.zoom]);
    const isLive = !app.zoom && this.spanMs === LIVE_MS;
    const isSame = this.shows === key;
    if (isSame && (app.zoom || (!isLive && nowMs - this.readAt < this.stepMs))) {
      if (!app.zoom) this.now = Math.max(this.now, nowMs);
      return;
    }
    const from = isSame && isLive && this.times.length > 0 ? this.times.at(-1) + 1 : (app.zoom?.from ?? nowMs - this.spanMs);
    const span = `from_ms=${Math.floor(from)}${app.zoom ? `&until_ms=${Math.ceil(app.zoom.until)}` : ""}`;
    const page = await ask(`history?${span}`);
    if (JSON.stringify([this.spanMs, app.zoom]) !== key) return;
    if (!isSame || !isLive) this.clear();
    this.append(page);
    [this.shows, this.now, this.readAt] = [key, page.now_ms, page.now_ms];
    if (isLive || this.times.length === 0) this.trim(page.now_ms - this.spanMs - 5000);
  }

  append({ step_ms: stepMs, columns, at_ms: times, rows }) {
    if (times.length === 0) return;
    const before = this.times.length;
    this.stepMs = stepMs;
    for (const name of columns) if (!this.columns.has(name)) this.columns.set(name, new Array(before).fill(null));
    const place = new Map(columns.map((name, at) => [name, at]));
    this.times.push(...times);
    for (const [name, values] of this.columns) {
      const at = place.get(name);
      for (const row of rows) values.push(at === undefined ? null : row[at]);
    }
  }

  trim(oldest) {
    const count = this.times.findIndex((at) => at >= oldest);
    if (count <= 0) return;
    this.times.splice(0, count);
    for (const values of this.columns.values()) values.splice(0, count);
  }

  /** A line of a chart; null if nothing was measured. */
  line(name, column) {
    const values = this.columns.get(column);
    return values ? { name, values } : null;
  }

  last(column) {
    return this.columns.get(column)?.at(-1) ?? null;
  }
}
