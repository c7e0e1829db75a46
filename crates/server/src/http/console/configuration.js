// The configuration: filter, what differs from the default, changes while the server runs.

import { run } from "./api.js";
import { button, element, field, note, panel, prose, table } from "./dom.js";
import { may } from "./state.js";

const REDACTED = "(redacted)";
const CHANGES = { running: "any time", start: "at a start", never: "never", fixed: "never", "no effect": "no effect" };

const state = { search: "", onlyChanged: false, edits: null, problem: null, done: null };

function matches(row) {
  const text = `${row.name} ${row.value} ${row.doc}`.toLowerCase();
  return (!state.onlyChanged || row.value !== row.default) && text.includes(state.search.toLowerCase());
}

function value(row) {
  if (state.edits === row.name) {
    return element("form", { class: "inline", "data-submit": "option-save", "data-name": row.name },
      element("input", { name: "value", value: row.value === REDACTED ? "" : row.value, "aria-label": `value of ${row.name}`, autocomplete: "off" }),
      button("Save", null, {}, { type: "submit", className: "primary" }), button("Cancel", "option-cancel"));
  }
  const shown = row.value === row.default ? element("span", {}, row.value || "(empty)") : element("b", {}, row.value || "(empty)");
  const canEdit = row.change === "running";
  return element("span", { class: "tools" }, shown, canEdit
    ? button("Edit", "option-edit", { name: row.name }, {
      className: "quiet", disabled: !may("config|set"), title: may("config|set") ? null : "The user may not run CONFIG SET",
    })
    : null);
}

function draw({ data: { configuration: rows } }) {
  const found = rows.filter(matches);
  const sections = Map.groupBy ? Map.groupBy(found, ({ section }) => section) : new Map([["Options", found]]);
  const count = rows.filter((row) => row.value !== row.default).length;
  return [
    element("div", { class: "toolbar", "data-key": "toolbar" },
      field("Search", element("input", { type: "search", id: "option-search", "data-input": "option-search", "data-search": "", placeholder: "name, value or effect" })),
      element("label", { class: "check" }, element("input", { type: "checkbox", id: "option-changed", "data-change": "option-changed" }), `differs from the default (${count})`),
      element("span", { class: "grow muted" }, `${found.length} of ${rows.length} options`),
      button("Write to the configuration file", "option-rewrite", {}, { disabled: !may("config|rewrite") })),
    state.problem ? note(state.problem, "bad") : null,
    state.done ? note(state.done, "good") : null,
    ...[...sections].map(([section, options]) => panel(section, table(section, ["option", "value", "default", "changes", "=effect"],
      options.map((row) => [
        element("code", {}, row.name), value(row), row.default, CHANGES[row.change], element("span", {}, prose(row.doc)),
      ]), { key: ([name]) => name.textContent }))),
    found.length === 0 ? note("No option matches.") : null,
  ];
}

export const configuration = {
  name: "configuration", title: "Configuration", icon: "configuration", needs: ["configuration"], draw, hasCharts: false,
  fail: (error) => { [state.problem, state.done] = [error.message, null]; },
  actions: {
    "option-search": ({ value: text }) => { state.search = text; },
    "option-changed": ({ source }) => { state.onlyChanged = source.checked; },
    "option-edit": ({ dataset }) => { [state.edits, state.problem, state.done] = [dataset.name, null, null]; },
    "option-cancel": () => { state.edits = null; },
    "option-save": async ({ dataset, form }) => {
      await run("CONFIG", "SET", dataset.name, form.get("value"));
      [state.edits, state.problem, state.done] = [null, null, `${dataset.name} is set until the next start; write it to the file to keep it.`];
    },
    "option-rewrite": async () => {
      await run("CONFIG", "REWRITE");
      [state.problem, state.done] = [null, "The configuration file is written."];
    },
  },
};
