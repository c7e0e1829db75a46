// The slow log, grouped by the shape of its requests, with the stage times of their commands.

import { run } from "./api.js";
import { bytes, button, cut, element, note, number, panel, table, time } from "./dom.js";
import { may } from "./state.js";

const REQUEST_CHARS_MAX = 300;
const SHAPE_WORDS = 4;

const state = { problem: null };

/** The command, its first arguments with their numbers replaced, and how many follow. */
function shapeOf(words) {
  const general = words.slice(1, SHAPE_WORDS).map((word) => cut(word.replace(/[0-9a-f]{8,}|\d+/gi, "…"), 40));
  const more = words.length > SHAPE_WORDS ? [`(+${words.length - SHAPE_WORDS})`] : [];
  return [words[0]?.toUpperCase() ?? "", ...general, ...more].join(" ");
}

function groups(slow) {
  const found = new Map();
  for (const entry of slow) {
    const shape = shapeOf(entry.arguments);
    const group = found.get(shape) ?? { shape, command: entry.arguments[0]?.toLowerCase(), entries: [], sum: 0, most: 0 };
    group.entries.push(entry);
    group.sum += entry.took_us;
    group.most = Math.max(group.most, entry.took_us);
    found.set(shape, group);
  }
  return [...found.values()].sort((one, other) => other.sum - one.sum);
}

function draw({ data: { requests: { waiting, slow, slow_threshold_us: threshold }, statements: { commands } } }) {
  const stages = new Map(commands.map((row) => [row.name, row.stages]));
  const stage = ({ command }, name) => {
    const found = stages.get(command)?.[name];
    return found ? time(found.p99_ns) : "";
  };
  const when = (ms) => new Date(ms).toLocaleString([], { hourCycle: "h23" });
  const title = threshold < 0 ? "The slow log is disabled (slowlog-log-slower-than)" : `Requests of ${time(1000 * threshold)} and longer`;
  const reset = button("Reset the slow log", "slow-reset", {}, { disabled: !may("slowlog|reset") || slow.length === 0 });
  return [
    state.problem ? note(state.problem, "bad") : null,
    panel("By shape", slow.length === 0 ? note("No slow requests.") : table("Shapes of slow requests",
      ["=shape", "#requests", "#total", "#longest", "last", "#p99 execute", "#p99 wait for log", "#p99 write"],
      groups(slow).map((group) => [
        element("code", {}, group.shape), number(group.entries.length), time(1000 * group.sum), time(1000 * group.most),
        when(group.entries[0].at_ms), stage(group, "execute"), stage(group, "wait_for_log"), stage(group, "write"),
      ]), { key: ([shape]) => shape.textContent })),
    panel(title, slow.length === 0 ? note("No slow requests.") : table("Slow requests", ["at", "#took", "=request", "peer", "client"],
      slow.map((entry) => [when(entry.at_ms), time(1000 * entry.took_us), element("code", {}, cut(entry.arguments.join(" "), REQUEST_CHARS_MAX)), entry.peer, entry.client]),
      { key: (row) => `${row[0]} ${row[1]} ${row[2].textContent} ${row[3]}` }), { tools: reset }),
    panel("In flight", waiting.length === 0 ? note("No request is in flight.") : table("Requests in flight", ["#id", "protocol", "reactor", "peer", "last", "#input", "#output", "state"],
      waiting.map((row) => [row.id, row.protocol, row.reactor, row.peer, row.last_command ?? "", bytes(row.input_bytes), bytes(row.output_bytes), row.blocked ? "blocked" : ""]))),
  ];
}

export const slow = {
  name: "slow", title: "Slow log", icon: "slow", needs: ["requests", "statements"], draw, hasCharts: false,
  fail: (error) => { state.problem = error.message; },
  actions: {
    "slow-reset": async () => {
      state.problem = null;
      await run("SLOWLOG", "RESET");
    },
  },
};
