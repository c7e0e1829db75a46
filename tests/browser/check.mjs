// Opens pages of the lab, and a pipeline's monitor, in headless Chromium: node check.mjs FOLDER NAME=URL...
//
// Each page is seen in several ways: it must load without an error and without asking any other
// host, fit the width of a phone, be legible and accessible (accessibility.mjs), and sort, filter and
// change its theme. Pictures of all ways are left in FOLDER. Ends with `N passed, N failed`.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { inaccessible } from "./accessibility.mjs";
import { Browser, CONTRAST_MIN, Page, VIEWS, faintTexts } from "./chromium.mjs";

/// A monitor hears from its parts once a second; a busy machine may halt any of them for seconds.
const MOVE_TIMEOUT_MS = 60_000;

// Runs in the page: sorts the first table by its second column, both ways.
function sortedTwice() {
  const table = document.querySelector("table.sortable");
  const button = table.querySelectorAll("th.sorts button")[1];
  const column = () => [...table.tBodies[0].rows]
    .map((row) => row.cells[1].dataset.sort).filter((text) => text !== "").map(Number);
  const rises = (values) => values.every((value, index) => index === 0 || values[index - 1] <= value);
  button.click();
  const up = rises(column());
  button.click();
  return { up, down: rises(column().reverse()), rows: column().length };
}

// Runs in the page: shows only the rows with a word that one row has.
function filtered() {
  const input = document.querySelector(".filter input");
  const rows = [...input.closest(".filter").nextElementSibling.querySelectorAll("tbody tr")];
  const visible = () => rows.filter((row) => row.getClientRects().length > 0).length;
  const type = (text) => {
    input.value = text;
    input.dispatchEvent(new Event("input"));
    return visible();
  };
  const counts = { all: visible(), none: type("no row has this"), one: type(rows[0].cells[1].textContent) };
  type("");
  return counts;
}

function themeSwitched() {
  const paper = () => getComputedStyle(document.body).backgroundColor;
  const before = paper();
  document.querySelector("button.theme").click();
  const after = paper();
  document.querySelector("button.theme").click();
  return before !== after && paper() === before;
}

let passed = 0;
let failed = 0;

function check(what, holds, detail = "") {
  if (holds) passed += 1;
  else {
    failed += 1;
    console.log(`${what}: ${detail}`);
  }
}

async function look(browser, folder, name, url, view) {
  const label = `${name}, ${view.name}`;
  const page = await Page.open(browser, url, view);
  if (name === "monitor") check(`${label}: charts move`, await page.run(moved, MOVE_TIMEOUT_MS));
  // Folded parts are looked at too, but not in the picture, and nobody prints them.
  await page.picture(join(folder, `${name}-${view.name}.png`), view.width);
  if (name === "live") {
    check(`${label}: shows the run in progress`, await page.run(hasProgress));
    check(`${label}: reports a lab that does not answer`, await page.run(reportsSilence, MOVE_TIMEOUT_MS));
  }
  if (view.media === "screen") {
    await page.run(() => {
      for (const part of document.querySelectorAll("details")) part.open = true;
    });
    const isDark = await page.run(() => matchMedia("(prefers-color-scheme: dark)").matches);
    const paper = await page.run(() => getComputedStyle(document.body).backgroundColor);
    const brightness = Math.max(...paper.match(/[0-9.]+/g).slice(0, 3).map(Number));
    const fits = isDark === (view.scheme === "dark") && (brightness < 128) === isDark;
    check(`${label}: has its theme`, fits, paper);
    const barriers = await inaccessible(page);
    check(`${label}: is accessible`, barriers.length === 0, barriers.join("\n  "));
  }
  const width = await page.run(() => document.documentElement.scrollWidth);
  check(`${label}: fits the width`, width <= view.width, `${width} > ${view.width}`);
  const faint = await page.run(faintTexts, CONTRAST_MIN);
  check(`${label}: is legible`, faint.length === 0, faint.join("; "));
  const empty = await page.run(() => [...document.querySelectorAll("figure > svg")]
    .filter((svg) => svg.checkVisibility())
    .filter((svg) => svg.getBoundingClientRect().height < 40 || !svg.childElementCount).length);
  check(`${label}: charts are drawn`, empty === 0, `${empty} are empty`);
  if (view.name === "light" && name === "report") await use(page, label);
  check(`${label}: no errors`, page.errors.length === 0, page.errors.join("; "));
  const base = new URL(url);
  const strangers = page.requests.filter((request) => {
    const to = new URL(request);
    return to.protocol !== "data:" && (to.protocol !== base.protocol || to.host !== base.host);
  });
  check(`${label}: asks no other host`, strangers.length === 0, strangers.join(" "));
  await page.close();
}

// Runs in the page: whether every chart has changed, and all parts are named, within the time.
async function moved(limit_ms) {
  const drawn = () => [...document.querySelectorAll("figure > svg")].map((svg) => svg.innerHTML);
  const before = drawn();
  const until = Date.now() + limit_ms;
  const isSame = () => drawn().some((chart, index) => chart === "" || chart === before[index]);
  const isWaiting = () => isSame() || document.querySelectorAll("#parts tr").length < 3;
  while (isWaiting() && Date.now() < until) await new Promise((then) => setTimeout(then, 100));
  return !isWaiting();
}

// Runs in the page.
function hasProgress() {
  const isWithin = document.querySelector("#live progress")?.position > 0;
  return isWithin && document.querySelectorAll("#live .highlights dd").length === 5;
}

// Runs in the page, whose lab no longer answers: whether its state changes within the time. It stays for later checks.
async function reportsSilence(limit_ms) {
  window.fetch = () => Promise.reject(new TypeError("no answer"));
  const state = document.querySelector("#state");
  const until = Date.now() + limit_ms;
  while (!state.textContent && Date.now() < until) await new Promise((then) => setTimeout(then, 100));
  return state.textContent.startsWith("The lab does not answer");
}

async function use(page, label) {
  const sorted = await page.run(sortedTwice);
  check(`${label}: sorts`, sorted.up && sorted.down && sorted.rows > 1, JSON.stringify(sorted));
  const shown = await page.run(filtered);
  const filters = shown.none === 0 && shown.one > 0 && shown.one < shown.all;
  check(`${label}: filters`, filters, JSON.stringify(shown));
  check(`${label}: changes its theme`, await page.run(themeSwitched), "the paper stays");
}

const [folder, ...pages] = process.argv.slice(2);
if (!folder || pages.length === 0) {
  console.log("usage: node check.mjs FOLDER NAME=URL...");
  process.exit(2);
}
mkdirSync(folder, { recursive: true });
const browser = new Browser();
try {
  for (const text of pages) {
    const split = text.indexOf("=");
    const [name, url] = [text.slice(0, split), text.slice(split + 1)];
    for (const view of VIEWS) await look(browser, folder, name, url, view);
  }
} catch (error) {
  failed += 1;
  console.log(error.message);
} finally {
  await browser.close();
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
