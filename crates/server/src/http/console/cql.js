// The CQL workbench: the schema, a statement, its rows in pages.

import { query } from "./api.js";
import { button, cut, element, field, note, number, panel, table } from "./dom.js";
import { app } from "./state.js";

const ROWS_MAX = 100;
/** Pages of the schema that are read. */
const SCHEMA_ROWS_MAX = 5000;
const CELL_CHARS_MAX = 1000;
const STATEMENTS_MAX = 50;
const SUGGESTIONS_MAX = 8;
const KEYWORDS = [
  "SELECT", "FROM", "WHERE", "INSERT INTO", "VALUES", "UPDATE", "SET", "DELETE", "LIMIT", "ORDER BY", "ALLOW FILTERING", "CREATE TABLE",
  "CREATE KEYSPACE", "DROP TABLE", "ALTER TABLE", "PRIMARY KEY", "USING TTL", "IF NOT EXISTS", "TRUNCATE", "BEGIN BATCH", "APPLY BATCH", "JSON", "DISTINCT", "TOKEN",
];

const state = {
  schema: null, schemaProblem: null, text: "SELECT * FROM system.local", ran: null, page: null, states: [null], at: 0,
  took: null, problem: null, place: null, isBusy: false, past: [], suggestions: [], isTraced: false,
};

async function readSchema() {
  try {
    const [keyspaces, columns] = await Promise.all([
      query("SELECT keyspace_name FROM system_schema.keyspaces", { pageSize: SCHEMA_ROWS_MAX }),
      query("SELECT keyspace_name, table_name, column_name, kind, position, type FROM system_schema.columns", { pageSize: SCHEMA_ROWS_MAX }),
    ]);
    const schema = new Map(keyspaces.rows.map(([name]) => [name, new Map()]));
    for (const [keyspace, tableName, name, kind, position, type] of columns.rows) {
      const tables = schema.get(keyspace) ?? new Map();
      schema.set(keyspace, tables);
      const list = tables.get(tableName) ?? [];
      list.push({ name, kind, position, type });
      tables.set(tableName, list);
    }
    const order = { partition_key: 0, clustering: 1, static: 2, regular: 3 };
    for (const tables of schema.values()) {
      for (const list of tables.values()) list.sort((one, other) => order[one.kind] - order[other.kind] || one.position - other.position || one.name.localeCompare(other.name));
    }
    const isOwn = ([name]) => (name.startsWith("system") ? 1 : 0);
    state.schema = [...schema].sort((one, other) => isOwn(one) - isOwn(other) || one[0].localeCompare(other[0]));
    state.schemaProblem = columns.paging_state ? `Only the first ${SCHEMA_ROWS_MAX} columns are shown.` : null;
  } catch (error) {
    state.schemaProblem = error.message;
  }
}

/** The position in the statement that an error names: `line 2:7 ...`. */
function placeOf(text, problem) {
  const found = /line (\d+):(\d+)/.exec(problem);
  if (!found) return null;
  const lines = text.split("\n");
  const [line, column] = [Number(found[1]), Number(found[2])];
  if (line < 1 || line > lines.length) return null;
  return { line, column, offset: lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0) + column };
}

/** Runs the statement from one of its pages on. */
async function execute(at) {
  if (state.isBusy || !state.text.trim()) return;
  const text = at === 0 ? state.text : state.ran;
  [state.isBusy, state.problem, state.place] = [true, null, null];
  app.redraw();
  const start = performance.now();
  try {
    const page = await query(text.trim().replace(/;$/, ""), { pageSize: ROWS_MAX, pagingState: at === 0 ? null : state.states[at], trace: state.isTraced });
    if (at === 0) state.states = [null];
    state.states[at + 1] = page.paging_state;
    Object.assign(state, { page, at, ran: text, took: performance.now() - start });
    if (at === 0) state.past = [text, ...state.past.filter((one) => one !== text)].slice(0, STATEMENTS_MAX);
    if (/^\s*(create|alter|drop)\b/i.test(text)) await readSchema();
  } catch (error) {
    state.problem = error.message;
    state.place = placeOf(text, error.message);
    const editor = document.getElementById("statement");
    if (state.place && editor) {
      editor.focus();
      editor.setSelectionRange(state.place.offset, Math.min(text.length, state.place.offset + 1));
    }
  }
  state.isBusy = false;
  app.redraw();
}

/** What may follow: names and keywords that begin with the word before the caret. */
function suggest(editor) {
  const word = /[\w.]+$/.exec(editor.value.slice(0, editor.selectionStart))?.[0] ?? "";
  if (word.length < 2) return [];
  const names = (state.schema ?? []).flatMap(([keyspace, tables]) =>
    [keyspace, ...[...tables].flatMap(([name, columns]) => [`${keyspace}.${name}`, ...columns.map((column) => column.name)])]);
  const fits = (name) => name.toLowerCase().startsWith(word.toLowerCase()) && name.length > word.length;
  return [...new Set([...KEYWORDS, ...names])].filter(fits).slice(0, SUGGESTIONS_MAX);
}

function complete(name) {
  const editor = document.getElementById("statement");
  const end = editor.selectionStart;
  const word = /[\w.]+$/.exec(editor.value.slice(0, end))?.[0] ?? "";
  editor.setRangeText(`${name} `, end - word.length, end, "end");
  [state.text, state.suggestions] = [editor.value, []];
  editor.focus();
}

function quoted(name) {
  return /^[a-z][a-z0-9_]*$/.test(name) ? name : `"${name.replaceAll("\"", "\"\"")}"`;
}

function schemaPanel() {
  const marks = { partition_key: "key", clustering: "order", static: "static" };
  const tables = ([keyspace, list]) => element("details", { open: keyspace.startsWith("system") ? null : "", "data-key": keyspace },
    element("summary", {}, keyspace, element("span", { class: "muted" }, ` ${list.size}`)),
    [...list].map(([name, columns]) => element("details", { class: "table", "data-key": name },
      element("summary", {}, name),
      button("Select", "cql-select", { keyspace, table: name }, { className: "quiet" }),
      element("ul", {}, columns.map((column) => element("li", { "data-key": column.name },
        element("code", {}, column.name), " ", element("span", { class: "muted" }, column.type), marks[column.kind] ? element("span", { class: "type" }, marks[column.kind]) : null))))));
  return panel("Schema", [
    state.schemaProblem ? note(state.schemaProblem, "bad") : null,
    state.schema ? element("div", { class: "schema" }, state.schema.map(tables)) : note(state.schemaProblem ? "" : "Reading…"),
  ], { tools: button("Read again", "cql-schema") });
}

function cell(value) {
  if (value === null) return element("span", { class: "muted" }, "null");
  return element("code", {}, cut(typeof value === "string" ? value : JSON.stringify(value), CELL_CHARS_MAX));
}

function resultPanel() {
  const { page, at } = state;
  if (!page) return panel("Rows", note("Run a statement: Ctrl+Enter."));
  const columns = page.columns.map(({ name, type }) => `${/^(tiny|small|big|var)?int$|^(float|double|decimal|counter)$/.test(type) ? "#" : ""}${name}`);
  const cells = page.rows.map((row) => row.map(cell));
  const count = `${number(page.rows.length)} rows in ${state.took.toFixed(1)} ms`;
  return panel("Rows", [
    page.columns.length === 0 ? note("The statement was executed.", "good")
      : table("Rows", columns, cells, { key: (row) => String(cells.indexOf(row)) }),
    element("div", { class: "tools" },
      button("Previous page", "cql-previous", {}, { disabled: state.isBusy || at === 0 }),
      button("Next page", "cql-next", {}, { disabled: state.isBusy || page.paging_state === null }),
      element("span", { class: "muted" }, `page ${at + 1}: ${count}`)),
  ]);
}

function tracePanel() {
  const { page } = state;
  if (!page?.trace) return null;
  const rows = page.trace.map(({ at_us, text }) => [number(at_us), text]);
  return panel("Trace", table("Trace", ["#µs", "event"], rows, { key: (row) => String(rows.indexOf(row)) }));
}

function draw() {
  if (app.user && !app.user.may_cql) {
    return [note(app.user.is_unrestricted
      ? "CQL is not available over HTTP while cql-authenticator is password, because HTTP has no roles. Use cqlsh."
      : `User ${app.user.name} may not run CQL over HTTP: that requires a user who may do everything.`)];
  }
  return [element("div", { class: "workbench", "data-key": "workbench" },
    schemaPanel(),
    element("div", { class: "stack", "data-key": "work" },
      panel("Statement", [
        element("form", { class: "stack", "data-submit": "cql-run" },
          field("One statement, or a batch", element("textarea", { id: "statement", rows: 6, spellcheck: "false", "data-input": "cql-text", "data-keydown": "cql-key", "data-search": "" }, state.text)),
          element("div", { class: "hints" }, state.suggestions.map((name, at) => button(name, "cql-complete", { name }, { className: "quiet", title: at === 0 ? "Ctrl+Space" : null }))),
          state.problem ? note(`${state.place ? `Line ${state.place.line}, column ${state.place.column}: ` : ""}${state.problem}`, "bad") : null,
          element("div", { class: "tools" },
            button(state.isBusy ? "Running…" : "Run", null, {}, { type: "submit", className: "primary", disabled: state.isBusy }),
            element("label", { class: "check" }, element("input", { type: "checkbox", id: "trace", "data-change": "cql-trace", checked: state.isTraced ? "" : null }), "Trace"),
            element("span", { class: "muted" }, "Ctrl+Enter runs, Ctrl+Space completes"),
            state.past.length > 0 ? element("select", { id: "past", "data-change": "cql-past", "aria-label": "Earlier statements" },
              element("option", { value: "" }, "earlier statements"), state.past.map((text, at) => element("option", { value: at }, cut(text.replace(/\s+/g, " "), 60)))) : null)),
      ]),
      resultPanel(),
      tracePanel()))];
}

function setText(text) {
  const editor = document.getElementById("statement");
  [state.text, state.suggestions] = [text, []];
  if (editor) editor.value = text;
}

export const cql = {
  name: "cql", title: "CQL", icon: "cql", needs: [], draw, hasCharts: false, isFree: true,
  enter: async () => { if (app.user?.may_cql && !state.schema) await readSchema(); },
  fail: (error) => { state.problem = error.message; },
  actions: {
    "cql-text": ({ source }) => {
      state.text = source.value;
      state.suggestions = suggest(source);
    },
    "cql-key": async ({ event }) => {
      if (!event.ctrlKey && !event.metaKey) return;
      if (event.key === "Enter") await execute(0);
      if (event.key === " " && state.suggestions.length > 0) {
        event.preventDefault();
        complete(state.suggestions[0]);
      }
    },
    "cql-complete": ({ dataset }) => complete(dataset.name),
    "cql-run": () => {
      // A browser may have restored the text without an event.
      state.text = document.getElementById("statement").value;
      return execute(0);
    },
    "cql-next": () => execute(state.at + 1),
    "cql-previous": () => execute(state.at - 1),
    "cql-trace": ({ source }) => { state.isTraced = source.checked; },
    "cql-schema": readSchema,
    "cql-past": ({ source }) => {
      if (source.value !== "") setText(state.past[Number(source.value)]);
      source.value = "";
    },
    "cql-select": ({ dataset }) => {
      setText(`SELECT * FROM ${quoted(dataset.keyspace)}.${quoted(dataset.table)}`);
      return execute(0);
    },
  },
};
