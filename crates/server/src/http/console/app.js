// The frame of the console: navigation, signing in, the loop that asks the server once a second and draws the page.

import { ask, hasSignedIn, signIn, signOut } from "./api.js";
import { LEFT, RIGHT } from "./chart.js";
import { channels } from "./channels.js";
import { clients } from "./clients.js";
import { command } from "./command.js";
import { configuration } from "./configuration.js";
import { cql } from "./cql.js";
import { button, element, field, patchChildren } from "./dom.js";
import { History } from "./history.js";
import { icon } from "./icons.js";
import { keys } from "./keys.js";
import { Latency } from "./latency.js";
import { overview } from "./overview.js";
import { replication } from "./replication.js";
import { events, log, memory, reactors, statements } from "./server.js";
import { slow } from "./slow.js";
import { STALE_MS, app } from "./state.js";

const INTERVAL_MS = 1000;
/** Requested on every page, for the state of the server. */
const ALWAYS = ["overview", "reactors", "log"];
/** A shorter drag in a chart is a click. */
const DRAG_PIXELS_MIN = 6;

/** Title of a group of the navigation, and its pages. */
const GROUPS = [
  ["", [overview]],
  ["Data", [keys, cql, channels]],
  ["Server", [clients, slow, statements, reactors, memory, log, replication, configuration, events]],
  ["Tools", [command]],
];
const PAGES = GROUPS.flatMap(([, pages]) => pages);
const ACTIONS = Object.assign({}, ...PAGES.map((page) => page.actions ?? {}));

const history = new History();
const latency = new Latency();
const content = document.getElementById("page");
let answered = Date.now();
let problem = null;
let isPaused = false;
let signInProblem = null;
let isAsking = false;

function current() {
  const wanted = location.hash.slice(1).split("/")[0];
  return PAGES.find(({ name }) => name === wanted) ?? PAGES[0];
}

/** Whether the user has selected text on the page, which then does not change. */
function isMarking() {
  const selection = getSelection();
  const isField = ["INPUT", "TEXTAREA"].includes(document.activeElement?.tagName);
  return !selection.isCollapsed && !isField && content.contains(selection.anchorNode);
}

function signInForm() {
  return [element("form", { class: "sign-in", "data-submit": "sign-in" },
    element("p", {}, "This server requires a user and a password. Both are kept until this tab closes."),
    field("User", element("input", { name: "user", value: "default", autocomplete: "username", required: "" })),
    field("Password", element("input", { name: "password", type: "password", autocomplete: "current-password" })),
    signInProblem ? element("p", { class: "bad", role: "alert" }, signInProblem) : null,
    element("div", { class: "tools" }, button("Sign in", null, {}, { type: "submit", className: "primary" }),
      app.user ? button("Cancel", "sign-in-cancel") : null))];
}

/** Why the page cannot be drawn: an answer is missing or was refused. */
function missing(page) {
  for (const part of page.isFree ? [] : [...ALWAYS, ...page.needs]) {
    const value = app.data[part];
    if (value instanceof Error) return [element("p", { class: "bad" }, `User ${app.user?.name ?? ""} cannot see this page: ${value.message}`)];
    if (value === undefined) return [element("p", { class: "muted" }, "Asking the server…")];
  }
  return null;
}

function draw() {
  const page = current();
  for (const link of document.querySelectorAll("#pages a")) {
    if (link.hash === `#${page.name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const title = app.isSignedOut ? "Sign in" : page.title;
  setText("title", title);
  document.title = `${title} – Myriad`;
  const cx = { data: app.data, history, latency, ageMs: Date.now() - answered };
  const parts = app.isSignedOut ? signInForm() : (missing(page) ?? page.draw(cx).filter((part) => part));
  const name = app.isSignedOut ? "sign-in" : page.name;
  if (content.dataset.page === name) patchChildren(content, parts);
  else content.replaceChildren(...parts);
  content.dataset.page = name;
  measure();
}

/** Charts are drawn for the pixels that they have. */
function measure() {
  const figure = content.querySelector(".chart");
  const width = figure ? Math.floor(figure.clientWidth - 2 * Number.parseFloat(getComputedStyle(figure).paddingLeft)) : 0;
  if (width > LEFT + RIGHT && width !== app.chartWidth) {
    app.chartWidth = width;
    app.redraw();
  }
}

let isDrawing = false;
app.redraw = () => {
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(() => {
    isDrawing = false;
    draw();
  });
};

function setText(id, text) {
  const node = document.getElementById(id);
  if (node.textContent !== text) node.textContent = text;
}

/** Shows the state of the server and the age of the numbers. */
function say() {
  const age = Date.now() - answered;
  const isStale = !app.isSignedOut && (problem !== null || age > STALE_MS);
  document.body.classList.toggle("stale", isStale);
  const state = document.getElementById("state");
  const old = isStale ? `last answer ${Math.round(age / 1000)} s ago${problem ? `: ${problem}` : ""}` : null;
  const mode = isPaused ? "paused" : isMarking() ? "paused while text is selected" : null;
  const version = app.data.overview?.version;
  setText("state", old ?? (app.isSignedOut ? "signed out" : mode ?? (version ? `version ${version}` : "connected")));
  state.classList.toggle("bad", isStale);
  // Without an answer, too: the verdict depends on the age of the numbers.
  if (isStale && !isPaused && !isMarking()) app.redraw();
  setText("account", app.user && !app.isSignedOut ? (hasSignedIn() ? `Sign out ${app.user.name}` : app.user.name) : "Sign in");
}

/** Asks for pages of the API. A refusal is shown on the pages that need it; other errors end the turn. */
async function fetchParts(parts) {
  const values = await Promise.all(parts.map((part) => ask(part).catch((error) => {
    if (error.status === 403) return error;
    throw error;
  })));
  parts.forEach((part, at) => { app.data[part] = values[at]; });
}

async function update() {
  app.user ??= await ask("user");
  const page = current();
  await fetchParts([...new Set([...ALWAYS, ...page.needs])]);
  const { overview: now } = app.data;
  if (!(now instanceof Error)) {
    latency.note(now.now_ms, now.latency);
    if (page.hasCharts !== false) await history.update(now.now_ms);
  }
}

async function turn() {
  if (!app.isSignedOut && !isAsking && !document.hidden) {
    isAsking = true;
    try {
      await update();
      answered = Date.now();
      problem = null;
      if (!isPaused && !isMarking()) draw();
    } catch (error) {
      if (!app.isSignedOut) problem = error.message;
    }
    isAsking = false;
  }
  say();
  setTimeout(turn, INTERVAL_MS);
}

Object.assign(ACTIONS, {
  "sign-in": async ({ form }) => {
    signIn(form.get("user"), form.get("password"));
    try {
      app.isSignedOut = false;
      const before = app.user?.name;
      app.user = await ask("user");
      if (before !== undefined && before !== app.user.name) {
        location.reload();
        return;
      }
      [signInProblem, app.data] = [null, {}];
      await fetchParts(ALWAYS);
    } catch (error) {
      app.isSignedOut = true;
      signInProblem = error.status === 401 ? "The user or the password is wrong." : error.message;
      signOut();
    }
    say();
  },
  "sign-in-cancel": () => { app.isSignedOut = false; },
});

async function act(name, event, source) {
  const page = current();
  const run = ACTIONS[name];
  if (!run) return;
  const form = source.tagName === "FORM" ? new FormData(source) : null;
  try {
    await run({ event, dataset: source.dataset, value: source.value, form, source, history, data: app.data });
  } catch (error) {
    if (page.fail) page.fail(error);
    else problem = error.message;
  }
  app.redraw();
}

/** What the user does reaches the action that an attribute of the element or of its parents names. */
for (const [kind, attribute] of [["click", "action"], ["submit", "submit"], ["change", "change"], ["input", "input"], ["keydown", "keydown"]]) {
  document.addEventListener(kind, (event) => {
    const source = event.target.closest?.(`[data-${attribute}]`);
    if (!source) return;
    if (kind === "submit") event.preventDefault();
    act(source.dataset[attribute], event, source);
  });
}

// Charts: a shared crosshair, and a span to zoom into.
function timeAt(plot, event) {
  const { from, until } = plot.dataset;
  const box = plot.getBoundingClientRect();
  const share = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
  return Number(from) + Math.min(1, Math.max(0, share)) * (Number(until) - Number(from));
}
let drag = null;
document.addEventListener("pointermove", ({ target, clientX }) => {
  const plot = target.closest?.("svg.plot");
  const at = plot ? timeAt(plot, { clientX }) : null;
  if (at === app.hover) return;
  app.hover = at;
  app.redraw();
});
document.addEventListener("pointerdown", (event) => {
  const plot = event.target.closest?.("svg.plot");
  drag = plot && event.pointerType === "mouse" ? { x: event.clientX, at: timeAt(plot, event) } : null;
});
document.addEventListener("pointerup", (event) => {
  const plot = event.target.closest?.("svg.plot");
  if (drag && plot && Math.abs(event.clientX - drag.x) >= DRAG_PIXELS_MIN) {
    const ends = [drag.at, timeAt(plot, event)].sort((one, other) => one - other);
    if (ends[1] - ends[0] > 2000) app.zoom = { from: ends[0], until: ends[1] };
    app.redraw();
  }
  drag = null;
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !["INPUT", "TEXTAREA", "SELECT"].includes(event.target.tagName)) {
    const search = content.querySelector("[data-search]");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  }
  const plot = event.target.closest?.("svg.plot");
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (plot && step) {
    event.preventDefault();
    const span = Number(plot.dataset.until) - Number(plot.dataset.from);
    const at = (app.hover ?? Number(plot.dataset.until)) + (step * span) / 60;
    app.hover = Math.min(Number(plot.dataset.until), Math.max(Number(plot.dataset.from), at));
    app.redraw();
  }
  if (event.key === "Escape" && document.body.classList.contains("menu-open")) closeMenu();
});

const nav = document.getElementById("pages");
nav.append(...GROUPS.flatMap(([title, pages]) => {
  const list = element("ul", {}, pages.map(({ name, title: text, icon: drawing }) =>
    element("li", {}, element("a", { href: `#${name}` }, icon(drawing), element("span", {}, text)))));
  return title ? [element("h2", {}, title), list] : [list];
}));

const menu = document.getElementById("menu");
function closeMenu() {
  document.body.classList.remove("menu-open");
  menu.setAttribute("aria-expanded", "false");
}
menu.addEventListener("click", () => {
  menu.setAttribute("aria-expanded", document.body.classList.toggle("menu-open"));
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("content").focus();
});

document.getElementById("account").addEventListener("click", () => {
  if (hasSignedIn()) {
    // Pages and open streams have data of this user.
    signOut();
    location.reload();
    return;
  }
  [app.isSignedOut, signInProblem] = [true, null];
  app.data = {};
  draw();
  say();
});

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

addEventListener("resize", app.redraw);
addEventListener("hashchange", async () => {
  closeMenu();
  scrollTo(0, 0);
  draw();
  if (app.isSignedOut) return;
  try {
    await fetchParts(current().needs);
    await current().enter?.();
  } catch (error) {
    problem = error.message;
    say();
  }
  draw();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) answered = Math.max(answered, Date.now() - INTERVAL_MS); });
setInterval(say, INTERVAL_MS);
draw();
turn().then(() => current().enter?.()).then(app.redraw, (error) => { problem = error.message; });
