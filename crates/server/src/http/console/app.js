// Polls the server once a second and draws the current page.

import { History } from "./chart.js";
import { element, patchChildren } from "./dom.js";
import { Latency } from "./latency.js";
import { PAGES } from "./pages.js";

const INTERVAL_MS = 1000;
/** Timeout of a request. */
const TIMEOUT_MS = 3000;
/** Age above which numbers are grayed out and their age is shown. */
const STALE_MS = 3500;
/** Requested on every page, so that charts have no gaps. */
const ALWAYS = ["overview", "reactors", "log"];

const history = new History();
const latency = new Latency();
let data = {};
let answered = Date.now();
let problem = null;
let isPaused = false;

async function ask(name) {
  const response = await fetch(`/api/v1/${name}`, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
  if (response.status === 401) throw new Error("the password has changed: reload the page");
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
  latency.note(at, overview.latency);
  for (const { protocol, p99_ns: ns } of latency.totals()) history.note(`${protocol} p99`, at, ns);
  for (const row of reactors) {
    history.note(`${row.name} load`, at, row.load_ppm / 1e6);
    history.note(`${row.name} connections`, at, row.connections);
    for (const name of ["commands", "reads", "writes", "turns", "input_bytes", "output_bytes"]) {
      history.count(`${row.name} ${name}`, at, row[name]);
    }
  }
  for (const row of threads ?? []) history.count(`thread ${row.id}`, at, row.user_ms + row.system_ms);
}

/** Whether the user has selected text on the page, which then does not change. */
function isMarking() {
  const selection = getSelection();
  return !selection.isCollapsed && document.getElementById("page").contains(selection.anchorNode);
}

function draw() {
  const [name, needed, page] = current();
  for (const link of document.querySelectorAll("#pages a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (![...ALWAYS, ...needed].every((part) => part in data)) return;
  const main = document.getElementById("page");
  const parts = page(data, history, latency).filter((part) => part);
  if (main.dataset.page === name) patchChildren(main, parts);
  else main.replaceChildren(...parts);
  main.dataset.page = name;
}

/** Shows the state of the server and the age of the numbers. */
function say() {
  const age = Date.now() - answered;
  const isStale = problem !== null || age > STALE_MS;
  document.body.classList.toggle("stale", isStale);
  const state = document.getElementById("state");
  const seconds = Math.round(age / 1000);
  const isOld = isStale ? `last answer ${seconds} s ago${problem ? `: ${problem}` : ""}` : null;
  const text = isOld ?? (isPaused ? "paused" : isMarking() ? "paused while text is selected" : data.overview ? `version ${data.overview.version}` : "connecting");
  if (state.textContent !== text) state.textContent = text;
  state.classList.toggle("bad", isStale);
}

async function turn() {
  const parts = [...ALWAYS, ...current()[1]];
  try {
    const values = await Promise.all(parts.map(ask));
    const fresh = Object.fromEntries(parts.map((part, at) => [part, values[at]]));
    data = { ...data, ...fresh };
    note(fresh);
    answered = Date.now();
    problem = null;
    if (!isPaused && !isMarking()) draw();
  } catch (error) {
    problem = error.name === "TimeoutError" ? "request timed out" : error.message;
  }
  say();
  setTimeout(turn, INTERVAL_MS);
}

document.getElementById("pages").append(...PAGES.map(([name]) => element("a", { href: `#${name}` }, name)));

const pause = document.getElementById("pause");
pause.addEventListener("click", () => {
  isPaused = !isPaused;
  pause.setAttribute("aria-pressed", isPaused);
  if (!isPaused) draw();
  say();
});

const root = document.documentElement;
const theme = document.getElementById("theme");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
const nameTheme = () => { theme.textContent = isDark() ? "Light theme" : "Dark theme"; };
if (["light", "dark"].includes(localStorage.getItem("theme"))) root.dataset.theme = localStorage.getItem("theme");
nameTheme();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", nameTheme);
theme.addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
  nameTheme();
});

addEventListener("hashchange", async () => {
  try {
    for (const part of current()[1]) data[part] = await ask(part);
    draw();
  } catch (error) {
    problem = error.message;
    say();
  }
});
setInterval(say, INTERVAL_MS);
turn();
