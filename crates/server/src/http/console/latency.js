// Latency of requests over the last seconds, from counters that only grow.

/** Time window of the percentiles. */
const WINDOW_MS = 10_000;

/** Returns the upper bound of the bucket with this percentile; `buckets`: `[upper bound, count]` in order. */
export function percentile(buckets, share) {
  const total = buckets.reduce((sum, [, count]) => sum + count, 0);
  let rank = Math.ceil(share * total);
  for (const [bound, count] of buckets) {
    rank -= count;
    if (rank <= 0 && total > 0) return bound;
  }
  return 0;
}

/**
 * Keeps the responses of a few seconds: rows of `{ protocol, stage, buckets: [[upper bound in ns, count so far]] }`.
 */
export class Latency {
  constructor() {
    this.answers = [];
  }

  note(at, rows) {
    const counts = new Map(rows.map(({ protocol, stage, buckets }) => [`${protocol} ${stage}`, { protocol, stage, buckets }]));
    this.answers.push([at, counts]);
    while (this.answers.length > 2 && this.answers[1][0] <= at - WINDOW_MS) this.answers.shift();
  }

  /** Returns the counts between the first and the last response of the window, as rows. */
  rows() {
    if (this.answers.length < 2) return [];
    const [before, now] = [this.answers[0][1], this.answers.at(-1)[1]];
    return [...now].map(([key, { protocol, stage, buckets }]) => {
      const counted = new Map(before.get(key)?.buckets ?? []);
      // A count is lower than before after CONFIG RESETSTAT.
      const grown = buckets.map(([bound, count]) => [bound, Math.max(0, count - (counted.get(bound) ?? 0))]);
      const at = (share) => percentile(grown, share);
      const count = grown.reduce((sum, [, more]) => sum + more, 0);
      return { protocol, stage, count, p50_ns: at(0.5), p99_ns: at(0.99), p999_ns: at(0.999) };
    }).filter(({ count }) => count > 0);
  }

  /** Returns the names of the protocols in use. */
  protocols() {
    const rows = [...(this.answers.at(-1)?.[1].values() ?? [])];
    return [...new Set(rows.map(({ protocol }) => protocol))];
  }

  /** Returns the slowest stage of each protocol. */
  totals() {
    const slowest = new Map();
    for (const row of this.rows()) {
      if (!(slowest.get(row.protocol)?.p99_ns >= row.p99_ns)) slowest.set(row.protocol, row);
    }
    return [...slowest.values()];
  }
}
