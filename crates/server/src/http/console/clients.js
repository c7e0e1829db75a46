// Clients: search, sort, group, close.

import { run } from "./api.js";
import { bytes, button, choice, duration, element, field, note, number, panel, table } from "./dom.js";
import { may } from "./state.js";

const COLUMNS = [
  ["#id", "id", String], ["protocol", "protocol", String], ["reactor", "reactor", String], ["peer", "peer", String],
  ["name", "name", String], ["#age", "age_ms", duration], ["#idle", "idle_ms", duration], ["#commands", "commands", number],
  ["last", "last_command", (value) => value ?? ""], ["#input", "input_bytes", bytes], ["#output", "output_bytes", bytes],
  ["#memory", "memory_bytes", bytes], ["durability", "durability", String],
];
const GROUPS = [["", "not grouped"], ["host", "address"], ["name", "name"], ["protocol", "protocol"], ["last_command", "last command"]];

const state = { search: "", by: "idle", isUp: true, group: "", confirm: null, problem: null };

function host(peer) {
  return peer.replace(/:\d+$/, "");
}

function matching(rows) {
  const words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (row) => [row.id, row.protocol, row.reactor, row.peer, row.name, row.library, row.last_command].join(" ").toLowerCase();
  return rows.filter((row) => words.every((word) => text(row).includes(word)));
}

function sorted(rows) {
  const [, member] = COLUMNS.find(([name]) => name.replace("#", "") === state.by) ?? COLUMNS[0];
  const compare = (one, other) => (typeof one === "number" ? one - other : String(one ?? "").localeCompare(String(other ?? "")));
  return rows.sort((one, other) => (state.isUp ? 1 : -1) * compare(one[member], other[member]) || one.id - other.id);
}

function closeButton(row) {
  if (state.confirm === row.id) {
    return element("span", { class: "tools" }, button("Close the connection", "client-kill", { id: row.id }, { className: "danger" }), button("Keep", "client-keep"));
  }
  return button("Close", "client-confirm", { id: row.id }, {
    className: "quiet", disabled: !may("client|kill"), title: may("client|kill") ? null : "The user may not run CLIENT KILL",
  });
}

function clientTable(rows) {
  const names = [...COLUMNS.map(([name]) => name), ""];
  return table("Clients", names, rows.map((row) => [
    ...COLUMNS.map(([, member, show]) => show(member === "name" ? row.name || row.library : row[member])),
    closeButton(row),
  ]), { sort: { action: "client-sort", by: state.by, isUp: state.isUp } });
}

function groupTable(rows) {
  const groups = new Map();
  for (const row of rows) {
    const key = String((state.group === "host" ? host(row.peer) : row[state.group]) || "(none)");
    const sum = groups.get(key) ?? { key, clients: 0, commands: 0, memory: 0, output: 0 };
    sum.clients += 1;
    sum.commands += row.commands;
    sum.memory += row.memory_bytes;
    sum.output += row.output_bytes;
    groups.set(key, sum);
  }
  return table("Groups of clients", ["group", "#clients", "#commands", "#memory", "#unsent"],
    [...groups.values()].sort((one, other) => other.clients - one.clients)
      .map((sum) => [sum.key, number(sum.clients), number(sum.commands), bytes(sum.memory), bytes(sum.output)]));
}

function draw({ data: { connections: { connections: all, shown, rows } } }) {
  const found = sorted(matching([...rows]));
  return [
    element("div", { class: "toolbar", "data-key": "toolbar" },
      field("Search", element("input", { type: "search", id: "client-search", "data-input": "client-search", "data-search": "", placeholder: "address, name, command, id" })),
      field("Group by", choice("client-group", "client-group", GROUPS, state.group)),
      element("span", { class: "muted grow" }, `${found.length} of ${all} clients${shown < all ? `; of these the ${shown} most recently active are searched` : ""}`)),
    state.problem ? note(state.problem, "bad") : null,
    panel(state.group ? "Groups" : "Clients", state.group ? groupTable(found) : clientTable(found)),
  ];
}

export const clients = {
  name: "clients", title: "Clients", icon: "clients", needs: ["connections"], draw, hasCharts: false,
  fail: (error) => { state.problem = error.message; },
  actions: {
    "client-search": ({ value }) => { state.search = value; },
    "client-group": ({ value }) => { state.group = value; },
    "client-sort": ({ dataset: { column } }) => {
      state.isUp = state.by === column ? !state.isUp : true;
      state.by = column;
    },
    "client-confirm": ({ dataset }) => { state.confirm = Number(dataset.id); },
    "client-keep": () => { state.confirm = null; },
    "client-kill": async ({ dataset }) => {
      [state.confirm, state.problem] = [null, null];
      const closed = await run("CLIENT", "KILL", "ID", dataset.id);
      if (closed === 0) state.problem = `Client ${dataset.id} had already disconnected.`;
    },
  },
};
