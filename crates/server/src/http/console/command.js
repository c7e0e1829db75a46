// The command line: one command per line, its reply as redis-cli shows it.

import { run } from "./api.js";
import { shown, splitWords, textOf } from "./bytes.js";
import { button, cut, element, field } from "./dom.js";
import { app } from "./state.js";

const ENTRIES_MAX = 100;
const LINES_MAX = 1000;
const VALUE_CHARS_MAX = 4000;
const HINTS_MAX = 12;

/** Kept in memory only: a command may contain a password. */
const state = { entries: [], place: null, typed: "", names: [], isBusy: false, number: 0 };

/** Lines of a reply; deep or long ones are cut. */
export function render(reply, indent = "", lines = []) {
  const push = (text) => { if (lines.length < LINES_MAX) lines.push(text); };
  if (reply === null) push("(nil)");
  else if (typeof reply === "number" || typeof reply === "boolean") push(`(integer) ${Number(reply)}`);
  else if (!Array.isArray(reply)) {
    const text = reply.length <= VALUE_CHARS_MAX ? textOf(reply) : null;
    // Texts with lines, such as INFO.
    if (text?.includes("\n")) text.split(/\r?\n/).forEach(push);
    else push(`"${shown(reply, VALUE_CHARS_MAX)}"`);
  } else if (reply.length === 0) push("(empty list)");
  else {
    for (const [at, item] of reply.entries()) {
      if (lines.length >= LINES_MAX) break;
      const head = `${indent}${at + 1}) `;
      const inner = render(item, " ".repeat(head.length), []);
      push(`${head}${inner[0].trimStart()}`);
      inner.slice(1).forEach((line) => push(Array.isArray(item) ? line : `${" ".repeat(head.length)}${line}`));
    }
    if (lines.length >= LINES_MAX && lines.at(-1) !== "…") lines.push("…");
  }
  return lines;
}

async function execute(line) {
  const entry = { line, number: state.number, lines: [], isError: false, took: null };
  state.number += 1;
  state.entries.push(entry);
  if (state.entries.length > ENTRIES_MAX) state.entries.shift();
  const start = performance.now();
  try {
    const words = splitWords(line);
    if (words.length > 0) entry.lines = render(await run(...words));
  } catch (error) {
    [entry.lines, entry.isError] = [[`(error) ${error.message}`], true];
  }
  entry.took = performance.now() - start;
}

/** Names that begin with what is typed. */
function hints() {
  const typed = state.typed.trimStart().toUpperCase();
  return typed && !typed.includes(" ") ? state.names.filter((name) => name.startsWith(typed)).slice(0, HINTS_MAX) : [];
}

function draw() {
  const first = state.entries[0]?.number ?? 0;
  return [
    element("div", { class: "terminal", tabindex: 0, role: "log", "aria-label": "Replies", id: "replies" },
      state.entries.length === 0 ? element("p", { class: "muted" }, "Commands of the Redis protocol run with your permissions. Quotes and escapes are those of redis-cli; the arrow keys recall earlier commands.") : null,
      state.entries.map((entry) => element("div", { class: "entry", "data-key": `entry ${entry.number}`, "data-first": first },
        element("p", { class: "asked" }, "> ", cut(entry.line, VALUE_CHARS_MAX), entry.took === null ? null : element("small", {}, ` ${entry.took.toFixed(1)} ms`)),
        element("pre", { class: entry.isError ? "bad" : null }, entry.took === null ? "…" : entry.lines.join("\n"))))),
    element("form", { class: "prompt", "data-submit": "command-run" },
      field(app.database > 0 ? `Command in database ${app.database}` : "Command", element("input", {
        id: "command", name: "line", autocomplete: "off", autocapitalize: "off", spellcheck: "false",
        "data-keydown": "command-recall", "data-input": "command-hint", "data-search": "", placeholder: "GET key",
      }), "grow"),
      button("Run", null, {}, { type: "submit", className: "primary", disabled: state.isBusy }),
      button("Clear", "command-clear", {}, { disabled: state.entries.length === 0 })),
    element("div", { class: "hints", "data-key": "hints" }, hints().map((name) => button(name, "command-take", { name }, { className: "quiet" }))),
  ];
}

function scrollDown() {
  app.redraw();
  requestAnimationFrame(() => requestAnimationFrame(() => {
    const replies = document.getElementById("replies");
    if (replies) replies.scrollTop = replies.scrollHeight;
  }));
}

export const command = {
  name: "command", title: "Command line", icon: "command", needs: [], draw, hasCharts: false, isFree: true,
  enter: async () => {
    document.getElementById("command")?.focus({ preventScroll: true });
    if (state.names.length > 0) return;
    try {
      state.names = (await run("COMMAND", "LIST")).map((name) => textOf(name).toUpperCase()).filter((name) => !name.includes("|")).sort();
    } catch {
      // Without the permission for COMMAND LIST there is no completion.
      state.names = [];
    }
  },
  actions: {
    "command-run": async ({ source }) => {
      const input = source.elements.line;
      const line = input.value.trim();
      if (!line || state.isBusy) return;
      [input.value, state.typed] = ["", ""];
      [state.place, state.isBusy] = [null, true];
      const running = execute(line);
      scrollDown();
      await running;
      state.isBusy = false;
      scrollDown();
    },
    "command-hint": ({ value }) => { state.typed = value; },
    "command-take": ({ dataset: { name } }) => {
      const input = document.getElementById("command");
      [input.value, state.typed] = [`${name} `, ""];
      input.focus();
    },
    "command-recall": ({ event, source }) => {
      const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (!step || state.entries.length === 0) return;
      event.preventDefault();
      const place = Math.min(state.entries.length, Math.max(0, (state.place ?? state.entries.length) + step));
      state.place = place;
      source.value = state.entries[place]?.line ?? "";
    },
    "command-clear": () => { state.entries = []; },
  },
};
