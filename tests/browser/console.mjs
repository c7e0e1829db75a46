// Opens a server's console in headless Chromium, under load: node console.mjs FOLDER URL [PID [PEER]]
//
// Charts must move, a hot key and busy clients be named, the memory tree expand, a slow request appear; every page must fit the width of a
// phone, be legible and accessible (accessibility.mjs) in both themes, ask no other host and end without an error. What a user reads must stay: focus,
// selection and scroll positions survive new numbers. While the server does not answer (its process PID is stopped for
// some seconds), the page must say so. With PEER, the URL of a second server with a server-id, both write the same keys,
// and the conflicts must be shown. Pictures are left in FOLDER. The servers are emptied.
// Ends with `N passed, N failed`.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { inaccessible } from "./accessibility.mjs";
import { Browser, CONTRAST_MIN, Page, VIEWS, faintTexts } from "./chromium.mjs";

const PAGES = [
  "overview", "keys", "cql", "channels", "clients", "slow", "statements", "reactors", "memory", "log", "replication",
  "configuration", "events", "command",
];
/// All files of the console, and the time until something is shown.
const CONSOLE_BYTES_MAX = 300_000;
const FIRST_PAINT_MS_MAX = 1000;
/// A key and a value that must stay text.
const HOSTILE = "<img src=x onerror=alert(1)>";
const READER = { user: "reader", password: "reads" };
/// Views in which every page is looked at: each width and each theme once. In the others, the first.
const WHOLE = ["light", "phone-dark"];
/// Keys that two servers write, and how INFO and the console show them: in quotes, with escapes.
const CONFLICTS = [
  [HOSTILE, `"${HOSTILE}"`],
  ['a,b="c\\d",key="e"\r\n', String.raw`"a,b=\"c\\d\",key=\"e\"\r\n"`],
  ["", '""'],
  ["é", String.raw`"\xc3\xa9"`],
  // Of a long one, its first bytes.
  ["x".repeat(300), `"${"x".repeat(256)}"`],
];
/// What is waited for comes within a second or two; a machine may be busy.
const WAIT_MS = 60_000;
const POLL_MS = 100;
const STALE_TRIES_MAX = 10;
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
  return results.map(({ result }) => result);
}

/** A field of INFO. */
async function info(url, name) {
  const [text] = await send(url, [["INFO", "everything"]]);
  return new RegExp(`^${name}:(.*)\r$`, "m").exec(text)[1];
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

/**
 * Waits until a function of this file, run in the page, returns true. While a page loads, its elements are missing and
 * the function throws: that is "not yet", and the last reason is reported.
 */
async function until(page, what, code, ...values) {
  const end = Date.now() + WAIT_MS;
  for (;;) {
    let reason = "false";
    try {
      if (await page.run(code, ...values)) return check(what, true);
    } catch (error) {
      reason = error.message;
    }
    if (Date.now() > end) return check(what, false, `not within ${WAIT_MS} ms: ${reason}`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** Numbers of a server that is late are gray, which is hard to read on purpose: then it is tried once more. */
async function isAccessible(page, label) {
  const isFresh = () => !document.body.classList.contains("stale");
  for (let tries = 0; tries < STALE_TRIES_MAX; tries += 1) {
    await until(page, `${label}: has fresh numbers`, isFresh);
    const barriers = await inaccessible(page);
    if (barriers.length === 0 || (await page.run(isFresh))) return check(`${label}: is accessible`, barriers.length === 0, barriers.join("\n  "));
  }
  return check(`${label}: is accessible`, false, "the server is always late");
}

const go = (page, name) => page.run((hash) => { location.hash = hash; }, name);

// The others run in the page.
const isShown = (name) => {
  const page = document.querySelector("#page");
  const isWaiting = [...page.querySelectorAll("p")].some(({ textContent }) => textContent === "Asking the server…");
  return document.querySelector("nav a[aria-current]")?.hash === `#${name}` && page.dataset.page === name && page.childElementCount > 0 && !isWaiting;
};
const curves = () => [...document.querySelectorAll("figure.chart path.curve")].map((line) => line.getAttribute("d"));
const hasCurves = () =>
  [...document.querySelectorAll("figure.chart path.curve")].filter((line) => line.getAttribute("d").split("L").length > 2).length > 3;
const hasMoved = (before) =>
  [...document.querySelectorAll("figure.chart path.curve")].some((line, at) => line.getAttribute("d") !== before[at]);
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
  await until(page, "overview: every rule of the verdict has its evidence", () =>
    document.querySelectorAll(".evidence li").length === 6 && [...document.querySelectorAll(".evidence li span")].every((text) => text.textContent.length > 5));
  await page.run(() => document.querySelector(".ranges button:nth-of-type(2)").click());
  await until(page, "overview: the range of an hour is chosen", () => document.querySelector(".ranges [aria-pressed='true']").textContent === "1 h" &&
    Number(document.querySelector("svg.plot").dataset.until) - Number(document.querySelector("svg.plot").dataset.from) === 3_600_000);
  await page.run(() => document.querySelector(".ranges button").click());
  await until(page, "overview: charts are drawn again", hasCurves);
  await page.run(() => {
    const plot = document.querySelector("svg.plot");
    const box = plot.getBoundingClientRect();
    plot.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, clientX: box.right - 12, clientY: box.top + 40 }));
  });
  await until(page, "overview: all charts share a crosshair", () => document.querySelectorAll("line.cross").length > 4);
  const loaded = await page.run(() => [
    performance.getEntriesByType("resource").filter(({ name }) => name.includes("/console/")).reduce((sum, { decodedBodySize }) => sum + decodedBodySize, 0),
    performance.getEntriesByName("first-contentful-paint")[0]?.startTime,
  ]);
  check("the console is small", loaded[0] > 50_000 && loaded[0] < CONSOLE_BYTES_MAX, loaded[0]);
  check("the first paint is soon", loaded[1] < FIRST_PAINT_MS_MAX, loaded[1]);

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

  await go(page, "slow");
  await until(page, "slow: a slow one appears", () =>
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

  await go(page, "clients");
  await until(page, "clients: has rows", () => document.querySelectorAll("#page tbody tr").length > 0);
  const marked = await page.run(() => {
    getSelection().selectAllChildren(document.querySelector("#page tbody tr"));
    return getSelection().toString();
  });
  await later();
  const still = await page.run(() => getSelection().toString());
  check("clients: keeps the selection", marked.length > 0 && still === marked, `${marked.length} then ${still.length}`);
  await until(page, "clients: says that it is paused", () => document.querySelector("#state").textContent.startsWith("paused"));
  await page.run(() => getSelection().removeAllRanges());
  await until(page, "clients: continues", () => document.querySelector("#state").textContent.startsWith("version"));

  await go(page, "overview");
  await until(page, "overview: is shown again", isShown, "overview");
  await page.run(() => {
    const region = document.querySelector("#page .scroll");
    region.focus();
    region.dataset.same = "yes";
    scrollTo(0, 100);
  });
  await later();
  const same = await page.run(() => [document.activeElement.className === "scroll", scrollY]);
  check("overview: keeps focus and scroll position", same[0] && same[1] === 100, JSON.stringify(same));
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

  await page.run(() => { document.querySelector("#title").append(document.createElement("img")); });
  const found = await inaccessible(page);
  check("an image without a text is found", found.length === 1 && found[0].startsWith("image-alt"), found.join("; "));
  await page.run(() => { document.querySelector("#title img").remove(); });
}

/** Keys, rows and commands: shown, changed and removed, as text whatever they contain. */
async function edit(page, url) {
  const fill = (selector, value) => page.run((where, text) => {
    const input = document.querySelector(where);
    input.value = text;
    input.form.requestSubmit();
  }, selector, value);
  const press = (text) => page.run((wanted) => {
    [...document.querySelectorAll("#page button")].find((one) => one.textContent === wanted && !one.disabled).click();
  }, text);
  const has = (text) => document.querySelector("#page").textContent.includes(text);
  const read = async (...words) => (await (await fetch(`${url}/`, { method: "POST", body: JSON.stringify(words) })).json()).result;

  await send(url, [
    ["SET", `edit:${HOSTILE}`, HOSTILE], ["HSET", "edit:hash", "field", "before", "other", "x"], ["HPEXPIRE", "edit:hash", 500_000, "FIELDS", 1, "field"],
    ["RPUSH", "edit:list", "a", "b"], ["SADD", "edit:set", "m"], ["ZADD", "edit:zset", "2.5", "scored"], ["XADD", "edit:stream", "*", "f", "v"],
  ]);
  await fetch(`${url}/set/edit%3A%ff%00/binary`, { method: "POST" });
  const open = async (name) => {
    await until(page, `keys: ${name} is listed`, (key) => [...document.querySelectorAll(".key")].some(({ textContent }) => textContent === key), name);
    await page.run((key) => [...document.querySelectorAll(".key")].find(({ textContent }) => textContent === key).click(), name);
    await until(page, `keys: ${name} is open`, (key) => document.querySelector(".value-panel h2")?.textContent === key, name);
  };
  await go(page, "keys");
  await until(page, "keys: is shown", isShown, "keys");
  await fill("#key-pattern", "edit:*");
  await open(`edit:${HOSTILE}`);
  await until(page, "keys: a hostile value is text", (text) => document.querySelector("pre.value")?.textContent === text, HOSTILE);
  check("keys: nothing became an element", await page.run(() => document.querySelectorAll("#page img").length === 0));
  await press("Edit the value");
  await until(page, "keys: has an editor", () => document.querySelector("#page textarea") !== null);
  await fill("#page textarea", "changed\nhere");
  await until(page, "keys: shows the new value", () => document.querySelector("pre.value")?.textContent === "changed\nhere");
  check("keys: the new value is stored", (await read("GET", `edit:${HOSTILE}`)) === "changed\nhere");
  await fill("#page [name='ttl']", "500");
  for (let tries = 0; tries < 50 && !((await read("TTL", `edit:${HOSTILE}`)) > 400); tries += 1) await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  check("keys: the TTL is set", (await read("TTL", `edit:${HOSTILE}`)) > 400);
  await open("edit:\\xff\\x00");
  await until(page, "keys: a binary key has its value", () => document.querySelector("pre.value")?.textContent === "binary");
  for (const [name, text] of [["hash", "before"], ["list", "b"], ["set", "m"], ["zset", "scored"], ["stream", "v"]]) {
    await open(`edit:${name}`);
    await until(page, `keys: the ${name} has its elements`, has, text);
  }
  await isAccessible(page, "keys: elements of a stream");
  await open("edit:hash");
  await until(page, "keys: a field has its TTL", () => /\d+ (s|min)/.test(document.querySelector(".value-panel tbody").textContent));
  await page.run(() => {
    document.querySelector("#page [name='part0']").value = "new field";
  });
  await fill("#page [name='part1']", "new value");
  await until(page, "keys: a field is added", has, "new value");
  check("keys: the field is stored", (await read("HGET", "edit:hash", "new field")) === "new value");
  await press("Delete…");
  await until(page, "keys: asks before it deletes", has, "Delete this key");
  await isAccessible(page, "keys: asks before it deletes");
  await press("Delete this key");
  await until(page, "keys: the key is no longer listed", () => ![...document.querySelectorAll(".key")].some(({ textContent }) => textContent === "edit:hash"));
  check("keys: the key is deleted", (await read("EXISTS", "edit:hash")) === 0);
  await fetch(`${url}/set/edit%3Athird/of-database-3`, { method: "POST", headers: { "Myriad-Database": "3" } });
  const choose = (database) => page.run((number) => {
    const field = document.querySelector("#key-database");
    field.value = number;
    field.dispatchEvent(new Event("change", { bubbles: true }));
  }, database);
  await choose("3");
  await until(page, "keys: another database has its keys alone", () => [...document.querySelectorAll(".key")].map(({ textContent }) => textContent).join() === "edit:third");
  await open("edit:third");
  await until(page, "keys: a value of another database", () => document.querySelector("pre.value")?.textContent === "of-database-3");
  await choose("0");
  await until(page, "keys: database 0 again", () => document.querySelector(".value-panel pre.value") === null && [...document.querySelectorAll(".key")].some(({ textContent }) => textContent === "edit:list"));
  // Of all keys in the order of SCAN, the last one is found at once by its name, and by a pattern without further clicks.
  const last = (await (async () => {
    let [cursor, keys, found] = ["0", [], []];
    do {
      [cursor, keys] = await read("SCAN", cursor, "COUNT", "5000");
      const plain = keys.filter((key) => /^key:\d+$/.test(key));
      if (plain.length > 0) found = plain;
    } while (cursor !== "0");
    return found.at(-1);
  })());
  for (const pattern of [last, `${last.slice(0, -1)}[${last.at(-1)}]`]) {
    await fill("#key-pattern", "nothing:like:this");
    await until(page, "keys: an unknown name is reported", has, "No key has this name");
    await fill("#key-pattern", pattern);
    await until(page, `keys: ${pattern} is found`, (key) => [...document.querySelectorAll(".key")].map(({ textContent }) => textContent).join() === key, last);
  }
  await fill("#key-pattern", "nothing*");
  await until(page, "keys: a pattern without a match", has, "No key matches.");

  await go(page, "cql");
  await until(page, "cql: has a schema", has, "system_schema");
  await fill("#statement", "SELECT keyspace_name, table_name FROM system_schema.tables");
  await until(page, "cql: has rows", () => [...document.querySelectorAll("#page td")].some(({ textContent }) => textContent === "system_schema"));
  await page.run(() => document.querySelector("#trace").click());
  await fill("#statement", "SELECT keyspace_name, table_name FROM system_schema.tables LIMIT 3");
  await until(page, "cql: has a trace", has, "Statement run, rows: 3");
  await isAccessible(page, "cql: has rows and a trace");

  await go(page, "command");
  await until(page, "command: is shown", isShown, "command");
  await fill("#command", 'LRANGE "edit:list" 0 -1');
  await until(page, "command: shows a list as redis-cli does", has, '1) "a"\n2) "b"');
  await isAccessible(page, "command: has a reply");

  await go(page, "configuration");
  await until(page, "configuration: finds options", has, "slowlog-max-len");
  await page.run(() => document.querySelector("[data-action='option-edit'][data-name='slowlog-max-len']").click());
  await until(page, "configuration: has an input", () => document.querySelector("#page form.inline input") !== null);
  await isAccessible(page, "configuration: has an input");
  await fill("#page form.inline input", "77");
  await until(page, "configuration: says that it is set", has, "slowlog-max-len is set");
  check("configuration: the option is set", (await read("CONFIG", "GET", "slowlog-max-len"))[1] === "77");
}

/**
 * Conflicts appear with their keys as text. The peer does not follow the server, which is under load: it is enough that
 * the server receives values that it has written itself.
 */
async function disagree(page, url, peer) {
  const servers = await Promise.all([url, peer].map((server) => info(server, "hub_server_id")));
  await send(peer, CONFLICTS.map(([key]) => ["SET", key, servers[1]]));
  await send(url, CONFLICTS.map(([key]) => ["SET", key, servers[0]]));
  await send(url, [["HUB", "ADD", servers[1], new URL(peer).hostname, await info(peer, "tcp_port")]]);

  const rowsOf = (label) => [...document.querySelectorAll(`#page [aria-label="${label}"] tbody tr`)]
    .map((row) => [...row.cells].map(({ textContent }) => textContent));
  await go(page, "replication");
  await until(page, "replication: has a row of each conflict", (count) =>
    document.querySelectorAll("#page [aria-label='Latest conflicts'] tbody tr").length === count, CONFLICTS.length);
  const rows = new Map((await page.run(rowsOf, "Latest conflicts")).map(([key, ...cells]) => [key, cells]));
  for (const [key, shown] of CONFLICTS) {
    const [database, kept, lost, apart, found] = rows.get(shown) ?? [];
    const [value] = await send(url, [["GET", key]]);
    check(`replication: the conflict of ${shown} names the servers`, kept === value && [kept, lost].sort().join() === [...servers].sort().join(),
      `${kept} and ${lost} of ${servers}, which has ${value}, in ${[...rows.keys()].join(" ")}`);
    check(`replication: the conflict of ${shown} has its numbers`, database === "0" && /^\d/.test(apart) && /\d:\d\d:\d\d/.test(found),
      `${database}, ${apart}, ${found}`);
  }
  check("replication: nothing became an element", await page.run(() => document.querySelectorAll("#page td *").length === 0));
  check("replication: a long key leaves room for the other columns", await page.run(() => {
    const region = document.querySelector("#page [aria-label='Latest conflicts']");
    return region.scrollWidth <= region.clientWidth;
  }));
  const masters = await page.run(rowsOf, "Masters");
  check("replication: the peer has its row", masters.length === 1 && masters[0][0] === servers[1] && masters[0][2] === "up"
    && masters[0].at(-1) === String(CONFLICTS.length), masters.join("; "));
}

/** A user who may only read sees disabled edits. */
async function signIn(page, url) {
  await send(url, [["ACL", "SETUSER", READER.user, "on", `>${READER.password}`, "~*", "+@read", "+info", "+config|get", "+client|list"]]);
  await go(page, "keys");
  await page.run(() => document.querySelector("#account").click());
  await until(page, "sign-in: has a form", () => document.querySelector(".sign-in") !== null);
  await isAccessible(page, "sign-in: has a form");
  await page.run(({ user, password }) => {
    const form = document.querySelector(".sign-in");
    form.elements.user.value = user;
    form.elements.password.value = password;
    form.requestSubmit();
  }, READER);
  await until(page, "sign-in: names the user", (user) => document.querySelector("#account").textContent === `Sign out ${user}`, READER.user);
  await go(page, "configuration");
  await until(page, "sign-in: a reader cannot edit options", () => {
    const edits = [...document.querySelectorAll("[data-action='option-edit']")];
    return edits.length > 10 && edits.every(({ disabled }) => disabled);
  });
  await go(page, "clients");
  await until(page, "sign-in: a reader cannot close clients", () => {
    const edits = [...document.querySelectorAll("[data-action='client-confirm']")];
    return edits.length > 0 && edits.every(({ disabled }) => disabled);
  });
  await go(page, "cql");
  await until(page, "sign-in: a reader is refused CQL with the reason", () => document.querySelector("#page").textContent.includes("may not run CQL"));
  await page.run(() => { sessionStorage.clear(); location.hash = "overview"; location.reload(); });
  await until(page, "sign-in: the default user is back", () => document.querySelector("#account")?.textContent === "default");
}

/** A server that does not answer is seen to be so. */
async function hang(page, pid) {
  process.kill(pid, "SIGSTOP");
  try {
    await until(page, "a server that hangs: the state says so", () => {
      const state = document.querySelector("#state");
      return state.classList.contains("bad") && /last answer \d+ s ago/.test(state.textContent);
    });
    await until(page, "a server that hangs: the verdict says so", () => document.querySelector("#page").textContent.includes("The server has not answered for"));
    const gray = await page.run(() => Number(getComputedStyle(document.querySelector("#page")).opacity));
    check("a server that hangs: its numbers are gray", gray < 0.6, gray);
  } finally {
    process.kill(pid, "SIGCONT");
  }
  await until(page, "a server that answers again: the state says so", () => !document.body.classList.contains("stale"));
}

async function look(browser, folder, view, { url, pid, peer }) {
  const page = await Page.open(browser, url, view);
  if (view.name === "light") {
    await use(page);
    await read(page);
    await edit(page, url);
    if (peer) await disagree(page, url, peer);
    await signIn(page, url);
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
    await isAccessible(page, label);
    await page.picture(join(folder, `${name}-${view.name}.png`), view.width);
  }
  const strangers = page.requests.filter((request) => !request.startsWith(`${url}/`) && !request.startsWith("data:"));
  check(`${view.name}: asks no other host`, strangers.length === 0, strangers.join(" "));
  check(`${view.name}: no errors`, page.errors.length === 0, page.errors.join("; "));
  await page.close();
}

const [folder, url, pid, peer] = process.argv.slice(2);
if (!folder || !url) {
  console.log("usage: node console.mjs FOLDER URL [PID [PEER]]");
  process.exit(2);
}
mkdirSync(folder, { recursive: true });
await send(url, [["FLUSHALL"], ["CONFIG", "SET", "slowlog-log-slower-than", SLOW_US]]);
const state = { ends: false };
const loads = [load(url, state), load(url, state)];
const browser = new Browser();
try {
  for (const view of VIEWS.filter(({ media }) => media === "screen")) await look(browser, folder, view, { url, pid: Number(pid), peer });
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
if (peer) {
  await send(url, [["HUB", "REMOVE", await info(peer, "hub_server_id")]]);
  await send(peer, [["FLUSHALL"]]);
}
await send(url, [["FLUSHALL"]]);
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
