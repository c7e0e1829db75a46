// Replication: the master or the replicas, and other masters with a hub.

import { runAll } from "./api.js";
import { textOf } from "./bytes.js";
import { chart } from "./chart.js";
import { bytes, element, note, number, panel, place, table, tiles } from "./dom.js";

const INTERVAL_MS = 2000;
const SERVERS_MAX = 200;

const state = { info: null, at: 0, problem: null };

/** Fields of INFO by name. */
function parse(reply) {
  const lines = textOf(reply).split("\r\n").filter((line) => line.includes(":") && !line.startsWith("#"));
  return new Map(lines.map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1)]));
}

/**
 * `a=1,b="2,3"` as an object. A quoted value, which is a key, keeps its quotes and escapes, as in redis-cli. No other
 * value has a comma, `=` or quotes: the server refuses hosts with these.
 */
function members(text) {
  const pairs = text.matchAll(/([^=,]+)=("(?:\\.|[^"\\])*"|[^,]*)/g);
  return Object.fromEntries([...pairs].map(([, name, value]) => [name, value]));
}

function listed(info, prefix) {
  const found = [...info].filter(([name]) => name.startsWith(prefix) && /^\d+$/.test(name.slice(prefix.length)));
  return found.slice(0, SERVERS_MAX).map(([name, text]) => [name.slice(prefix.length), members(text)]);
}

async function read() {
  state.at = Date.now();
  try {
    const [replication, hub] = await runAll([["INFO", "replication"], ["INFO", "hub"]]);
    for (const reply of [replication, hub]) if (reply instanceof Error) throw reply;
    [state.info, state.problem] = [{ replication: parse(replication), hub: parse(hub) }, null];
  } catch (error) {
    state.problem = error.message;
  }
}

function draw({ history }) {
  if (Date.now() - state.at > INTERVAL_MS) read();
  if (state.problem) return [note(state.problem, "bad")];
  if (!state.info) return [note("Asking the server…")];
  const { replication: info, hub } = state.info;
  const get = (name) => info.get(name) ?? "–";
  const isReplica = get("role") === "slave";
  const position = Number(get("master_repl_offset"));
  const replicas = listed(info, "slave");
  const peers = listed(hub, "hub_peer");
  const conflicts = listed(hub, "hub_conflict");
  return [
    tiles([
      ["Role", isReplica ? "replica" : "master"],
      ...(isReplica ? [
        ["Master", place(get("master_host"), get("master_port"))],
        ["Link", get("master_link_status"), `last heard ${get("master_last_io_seconds_ago")} s ago`],
        ["To receive", bytes(Number(info.get("master_lag_bytes") ?? 0))],
      ] : [["Replicas", get("connected_slaves")]]),
      ["Position", number(position)],
      ["Failover", get("master_failover_state")],
    ]),
    element("div", { class: "charts one", "data-key": "charts" }, chart("Bytes of the log that a replica lacks", history, [history.line("lag", "lag_bytes")].filter(Boolean), bytes)),
    panel("Replicas", replicas.length === 0 ? note("No replica is connected. Start one with --replicaof HOST:PORT, the address of this server.")
      : table("Replicas", ["#number", "address", "state", "#position", "#lacks", "#heard, s ago"], replicas.map(([index, row]) => [
        index, place(row.ip, row.port), row.state, row.offset, bytes(Math.max(0, position - Number(row.offset))), row.lag,
      ]))),
    panel("Several masters (hub)", hub.get("hub_role") === "none" || !hub.get("hub_role")
      ? note("This server has no server-id: it does not receive the writes of other masters.")
      : [
        note(`Server ${hub.get("hub_server_id")}, ${hub.get("hub_role")}; ${hub.get("hub_conflicts")} conflicts, in which the newer value was kept.`),
        table("Masters", ["#server", "address", "state", "#position", "#to receive", "#silent, s", "#received", "#lost", "#conflicts"], peers.map(([server, row]) => [
          server, place(row.host, row.port), row.state, row.position, bytes(Number(row.lag_bytes)), row.silent_s, number(Number(row.received)), number(Number(row.lost)), number(Number(row.conflicts)),
        ])),
        conflicts.length === 0 ? note("No conflict since the start of this server.")
          : table("Latest conflicts", ["=key", "#database", "#kept, of server", "#lost, of server", "#apart, ms", "found"], conflicts.map(([, row]) => [
            row.key, row.db, row.winner, row.loser, row.loser_us === "0" ? "–" : number(Math.round((row.winner_us - row.loser_us) / 1000)), new Date(Number(row.found_ms)).toLocaleString([], { hourCycle: "h23" }),
          ]), { key: (cells) => cells.join(" ") }),
      ]),
  ];
}

export const replication = { name: "replication", title: "Replication", icon: "replication", needs: [], draw };
