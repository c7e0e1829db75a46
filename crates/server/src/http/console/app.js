// Asks the server once a second and draws the page that is looked at.

import { History } from "./chart.js";
import { element } from "./dom.js";
import { PAGES } from "./pages.js";

const INTERVAL_MS = 1000;
/** Asked for whatever is looked at, so that charts have no gaps. */
const ALWAYS = ["overview", "reactors", "log"];

const history = new History();
let data = {};

async function ask(name) {
  const response = await fetch(`/api/v1/${name}`, { cache: "no-store" });
  if (!response.ok) throw new Error(`${name}: ${response.status}`);
  return response.json();
}

function current() {
  const wanted = location.hash.slice(1);
  return PAGES.find(([name]) => name === wanted) ?? PAGES[0];
}

function note({ overview, reactors, log, threads }) {
  const at = overview.now_ms;
  for (const name of ["commands", "errors", "input_bytes", "output_bytes", "log_syncs", "log_records"]) {
    history.count(name, at, overview[name]);
  }
  for (const name of ["connections", "used_bytes"]) history.note(name, at, overview[name]);
  history.count("log sync_ns_sum", at, log.sync_ns_sum);
  for (const row of reactors) {
    history.note(`${row.name} load`, at, row.load_ppm / 1e6);
    history.note(`${row.name} connections`, at, row.connections);
    for (const name of ["commands", "reads", "writes", "turns", "input_bytes", "output_bytes"]) {
      history.count(`${row.name} ${name}`, at, row[name]);
    }
  }
  for (const row of threads ?? []) history.count(`thread ${row.id}`, at, row.user_ms + row.system_ms);
}

function draw() {
  const [name, needed, page] = current();
  for (const link of document.querySelectorAll("#pages a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (![...ALWAYS, ...needed].every((part) => part in data)) return;
  // What somebody reads stays where it is.
  const scrolled = [...document.querySelectorAll("#page .scroll")].map((part) => part.scrollLeft);
  const main = document.getElementById("page");
  main.replaceChildren(...page(data, history).filter((part) => part));
  main.dataset.page = name;
  document.querySelectorAll("#page .scroll").forEach((part, at) => (part.scrollLeft = scrolled[at] ?? 0));
}

function say(text, isBad) {
  const state = document.getElementById("state");
  state.textContent = text;
  state.classList.toggle("bad", isBad);
}

async function turn() {
  const parts = [...ALWAYS, ...current()[1]];
  try {
    const values = await Promise.all(parts.map(ask));
    data = { ...data, ...Object.fromEntries(parts.map((part, at) => [part, values[at]])) };
    note(Object.fromEntries(parts.map((part, at) => [part, values[at]])));
    draw();
    say(`version ${data.overview.version}`, false);
  } catch (error) {
    say(`the server does not answer (${error.message})`, true);
  }
  setTimeout(turn, INTERVAL_MS);
}

document.getElementById("pages").append(...PAGES.map(([name]) => element("a", { href: `#${name}` }, name)));
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
});
addEventListener("hashchange", async () => {
  try {
    for (const part of current()[1]) data[part] = await ask(part);
    draw();
  } catch (error) {
    say(`the server does not answer (${error.message})`, true);
  }
});
turn();
