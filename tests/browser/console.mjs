// Opens a server's console in headless Chromium, under load: node console.mjs FOLDER URL
//
// Charts must move, a hot key and busy clients be named, the memory tree expand, a slow request appear; every page must fit the width of a
// phone, be legible in both themes, ask no other host and end without an error. What somebody reads must stay: focus,
// selection and scroll positions survive new numbers. While the server does not answer (`node console.mjs FOLDER URL PID`
// stops the process PID for some seconds), the page must say so. Pictures are left in FOLDER. The server is emptied.
// Ends with `N passed, N failed`.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { Browser, CONTRAST_MIN, Page, VIEWS, faintTexts } from "./chromium.mjs";

const PAGES = [
  "overview", "reactors", "memory", "requests", "connections", "log", "statements", "configuration",
  "threads", "logs",
];
/// Views in which every page is looked at: each width and each theme once. In the others, the first.
const WHOLE = ["light", "phone-dark"];
/// What is waited for comes within a second or two; a machine may be busy.
const WAIT_MS = 60_000;
const POLL_MS = 100;
const KEYS = 20_000;
const PIPELINE_COMMANDS = 500;
const SLOW_US = 200;
/// Named by every third command; what is shown must be text, not markup.
const HOT_KEY = "<b>hot</b>";
const COMMANDS_PER_HOT = 3;

let passed = 0;
let failed = 0;

function check(what, holds, detail = "") {
  if (holds) passed += 1;
  else {
    failed += 1;
    console.log(`${what}: ${detail}`);
  }
}

async function send(url, commands) {
  const response = await fetch(`${url}/pipeline`, { method: "POST", body: JSON.stringify(commands) });
  const results = await response.json();
  const refused = results.find?.(({ error }) => error);
  if (!response.ok || refused) throw new Error(`load: ${response.status} ${JSON.stringify(refused ?? results)}`);
}

/** Writes and reads until it is told to stop. */
async function load(url, state) {
  for (let round = 0; !state.ends; round += 1) {
    const commands = Array.from({ length: PIPELINE_COMMANDS }, (_, index) => {
      const key = `key:${(round * PIPELINE_COMMANDS + index) % KEYS}`;
      if (index % COMMANDS_PER_HOT === 0) return ["GET", HOT_KEY];
      return index % 2 ? ["GET", key] : ["SET", key, "x".repeat(100)];
    });
    commands.push(["KEYS", "none*"]);
    await send(url, commands);
  }
}

/** Waits until a function of this file, run in the page, says yes. */
async function until(page, what, code, ...values) {
  const end = Date.now() + WAIT_MS;
  for (;;) {
    if (await page.run(code, ...values)) return check(what, true);
    if (Date.now() > end) return check(what, false, `not within ${WAIT_MS} ms`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

const go = (page, name) => page.run((hash) => { location.hash = hash; }, name);

// The others run in the page.
const isShown = (name) => {
  const page = document.querySelector("#page");
  return document.querySelector("nav a[aria-current]")?.hash === `#${name}` && page.dataset.page === name && page.childElementCount > 0;
};
const curves = () => [...document.querySelectorAll("figure.chart polyline")].map((line) => line.getAttribute("points"));
const hasCurves = () =>
  [...document.querySelectorAll("figure.chart polyline")].filter((line) => line.getAttribute("points").split(" ").length > 2).length > 3;
const hasMoved = (before) =>
  [...document.querySelectorAll("figure.chart polyline")].some((line, at) => line.getAttribute("points") !== before[at]);
const branches = () => [...document.querySelectorAll(".tree details[open]")].length;
const leaves = () => [...document.querySelectorAll(".tree li")].filter((leaf) => leaf.checkVisibility()).length;

async function use(page) {
  await until(page, "overview: charts are drawn", hasCurves);
  const before = await page.run(curves);
  await until(page, "overview: charts move", hasMoved, before);
  await until(page, "overview: commands are counted", () =>
    Number.parseFloat(document.querySelector(".tile b").textContent) > 0);
  await until(page, "overview: says what is short", () => document.querySelector(".verdict").textContent.length > 20);

  await until(page, "overview: names the hot key as it is", (key) =>
    [...document.querySelectorAll("#page td code")].some((code) => code.textContent === key), HOT_KEY);
  await until(page, "overview: names the busiest clients", () =>
    [...document.querySelectorAll("#page table")].at(-1)?.textContent.includes("http"));

  await go(page, "memory");
  await until(page, "memory: has a tree", () => document.querySelectorAll(".tree details").length > 2);
  const folded = await page.run(leaves);
  await page.run(() => {
    for (const branch of document.querySelectorAll(".tree details:not([open]) > summary")) branch.click();
  });
  const [unfolded, opened] = [await page.run(leaves), await page.run(branches)];
  check("memory: the tree expands", unfolded > folded && opened > 2, `${folded} then ${unfolded}`);
  const shown = await page.run(() => performance.now());
  await until(page, "memory: the tree stays open", (count, since) =>
    performance.now() > since + 2500 && document.querySelectorAll(".tree details[open]").length === count, opened, shown);

  await go(page, "requests");
  await until(page, "requests: a slow one appears", () =>
    [...document.querySelectorAll("#page code")].some((code) => code.textContent === "KEYS none*"));
}

/** New numbers must not disturb somebody who reads. */
async function read(page) {
  const later = () => page.run(() => new Promise((resolve) => setTimeout(() => resolve(performance.now()), 2500)));
  const clock = () => [...document.querySelectorAll(".tile b")].at(-1)?.textContent;
  await go(page, "memory");
  await until(page, "memory: is shown", isShown, "memory");
  await page.run(() => document.querySelector(".tree summary").focus());
  await later();
  check("memory: keeps the focus", await page.run(() => document.activeElement.matches(".tree summary")));

  await go(page, "connections");
  await until(page, "connections: has rows", () => document.querySelectorAll("#page tbody tr").length > 0);
  const marked = await page.run(() => {
    getSelection().selectAllChildren(document.querySelector("#page tbody tr"));
    return getSelection().toString();
  });
  await later();
  const still = await page.run(() => getSelection().toString());
  check("connections: keeps the selection", marked.length > 0 && still === marked, `${marked.length} then ${still.length}`);
  await until(page, "connections: says that it is paused", () => document.querySelector("#state").textContent.startsWith("paused"));
  await page.run(() => getSelection().removeAllRanges());
  await until(page, "connections: goes on", () => document.querySelector("#state").textContent.startsWith("version"));

  await go(page, "overview");
  await until(page, "overview: is shown again", isShown, "overview");
  await page.run(() => {
    const region = document.querySelector("#page .scroll");
    region.focus();
    region.dataset.same = "yes";
    scrollTo(0, 200);
  });
  await later();
  const same = await page.run(() => [document.activeElement.className === "scroll", scrollY]);
  check("overview: keeps focus and scroll position", same[0] && same[1] === 200, JSON.stringify(same));
  await page.run(() => document.querySelector("#pause").click());
  const before = await page.run(clock);
  await later();
  check("overview: a pause holds", (await page.run(clock)) === before);
  await page.run(() => document.querySelector("#pause").click());
  await until(page, "overview: a pause ends", (old) =>
    [...document.querySelectorAll(".tile b")].at(-1)?.textContent !== old, before);
  await until(page, "overview: shows latency", () =>
    [...document.querySelectorAll("#page table")].some((table) => table.textContent.includes("p99.9") && table.rows.length > 2));

  await page.run(() => document.querySelector("#theme").click());
  const theme = await page.run(() => [document.documentElement.dataset.theme, localStorage.getItem("theme")]);
  check("the theme is kept", theme[0] === theme[1] && theme[0] !== undefined, JSON.stringify(theme));
  await page.run(() => { localStorage.clear(); delete document.documentElement.dataset.theme; });
}

/** A server that does not answer is seen to be so. */
async function hang(page, pid) {
  process.kill(pid, "SIGSTOP");
  try {
    await until(page, "a server that hangs: the state says so", () => {
      const state = document.querySelector("#state");
      return state.classList.contains("bad") && /last answer \d+ s ago/.test(state.textContent);
    });
    const gray = await page.run(() => Number(getComputedStyle(document.querySelector("#page")).opacity));
    check("a server that hangs: its numbers are gray", gray < 0.6, gray);
  } finally {
    process.kill(pid, "SIGCONT");
  }
  await until(page, "a server that answers again: the state says so", () => !document.body.classList.contains("stale"));
}

async function look(browser, folder, url, view, pid) {
  const page = await Page.open(browser, url, view);
  if (view.name === "light") {
    await use(page);
    await read(page);
    if (pid) await hang(page, pid);
  }
  for (const name of WHOLE.includes(view.name) ? PAGES : PAGES.slice(0, 1)) {
    const label = `${name}, ${view.name}`;
    await go(page, name);
    await until(page, `${label}: is shown`, isShown, name);
    const width = await page.run(() => document.documentElement.scrollWidth);
    check(`${label}: fits the width`, width <= view.width, `${width} > ${view.width}`);
    const faint = await page.run(faintTexts, CONTRAST_MIN);
    check(`${label}: is legible`, faint.length === 0, faint.join("; "));
    await page.picture(join(folder, `${name}-${view.name}.png`), view.width);
  }
  const strangers = page.requests.filter((request) => !request.startsWith(`${url}/`) && !request.startsWith("data:"));
  check(`${view.name}: asks no other host`, strangers.length === 0, strangers.join(" "));
  check(`${view.name}: no errors`, page.errors.length === 0, page.errors.join("; "));
  await page.close();
}

const [folder, url, pid] = process.argv.slice(2);
if (!folder || !url) {
  console.log("usage: node console.mjs FOLDER URL [PID]");
  process.exit(2);
}
mkdirSync(folder, { recursive: true });
await send(url, [["FLUSHALL"], ["CONFIG", "SET", "slowlog-log-slower-than", SLOW_US]]);
const state = { ends: false };
const loads = [load(url, state), load(url, state)];
const browser = new Browser();
try {
  for (const view of VIEWS.filter(({ media }) => media === "screen")) await look(browser, folder, url, view, Number(pid));
} catch (error) {
  failed += 1;
  console.log(error.stack);
} finally {
  state.ends = true;
  await browser.close();
}
try {
  await Promise.all(loads);
} catch (error) {
  failed += 1;
  console.log(error.stack);
}
await send(url, [["FLUSHALL"]]);
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
