// Headless Chromium, by its DevTools protocol.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/// A busy machine may halt the browser for seconds.
const CALL_TIMEOUT_MS = 90_000;
/// Longer pages are cut in pictures: nobody looks at more.
const PICTURE_HEIGHT_MAX = 12_000;
/// What texts must have against what is behind them.
export const CONTRAST_MIN = 4.5;

export const VIEWS = [
  { name: "light", width: 1200, height: 900, scheme: "light", media: "screen" },
  { name: "dark", width: 1200, height: 900, scheme: "dark", media: "screen" },
  { name: "phone", width: 390, height: 844, scheme: "light", media: "screen" },
  { name: "phone-dark", width: 390, height: 844, scheme: "dark", media: "screen" },
  { name: "print", width: 794, height: 1123, scheme: "dark", media: "print" },
];

// Chromium speaks its DevTools protocol over two pipes: JSON texts that end with a zero byte.
export class Browser {
  constructor() {
    this.profile = mkdtempSync(join(tmpdir(), "myriad-browser-"));
    this.child = spawn(
      "chromium",
      [
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--hide-scrollbars", "--no-first-run", "--disable-extensions",
        "--disable-background-networking", "--remote-debugging-pipe",
        `--user-data-dir=${this.profile}`,
      ],
      { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] },
    );
    this.calls = new Map();
    this.listeners = [];
    this.nextId = 1;
    this.ended = null;
    let rest = Buffer.alloc(0);
    this.child.stdio[4].on("data", (data) => {
      rest = Buffer.concat([rest, data]);
      for (let end = rest.indexOf(0); end >= 0; end = rest.indexOf(0)) {
        this.receive(JSON.parse(rest.subarray(0, end).toString()));
        rest = rest.subarray(end + 1);
      }
    });
    this.child.on("error", (error) => this.end(`chromium did not start: ${error.message}`));
    this.child.on("exit", (code) => this.end(`chromium ended: ${code}`));
  }

  end(reason) {
    this.ended = reason;
    for (const { reject } of this.calls.values()) reject(new Error(reason));
    this.calls.clear();
  }

  receive(message) {
    if (message.id === undefined) {
      for (const listener of this.listeners) listener(message);
      return;
    }
    const call = this.calls.get(message.id);
    this.calls.delete(message.id);
    if (!call) return;
    if (message.error) call.reject(new Error(`${call.method}: ${message.error.message}`));
    else call.resolve(message.result);
  }

  call(method, params = {}, sessionId = undefined) {
    if (this.ended) return Promise.reject(new Error(this.ended));
    const id = this.nextId++;
    this.child.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.calls.delete(id);
        reject(new Error(`${method}: no answer within ${CALL_TIMEOUT_MS} ms`));
      }, CALL_TIMEOUT_MS);
      const settle = (then) => (value) => {
        clearTimeout(timer);
        then(value);
      };
      this.calls.set(id, { method, resolve: settle(resolve), reject: settle(reject) });
    });
  }

  async close() {
    const gone = new Promise((resolve) => this.child.once("exit", resolve));
    if (this.child.exitCode === null) {
      this.child.kill();
      await gone;
    }
    rmSync(this.profile, { recursive: true, force: true, maxRetries: 5 });
  }
}

export class Page {
  static async open(browser, url, view) {
    const { targetId } = await browser.call("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await browser.call("Target.attachToTarget", { targetId, flatten: true });
    const page = new Page(browser, targetId, sessionId);
    for (const domain of ["Page", "Runtime", "Log", "Network"]) await page.call(`${domain}.enable`);
    await page.call("Emulation.setDeviceMetricsOverride", {
      width: view.width, height: view.height, deviceScaleFactor: 1, mobile: view.width < 500,
    });
    await page.call("Emulation.setEmulatedMedia", {
      media: view.media,
      features: [{ name: "prefers-color-scheme", value: view.scheme }],
    });
    const loaded = page.once("Page.loadEventFired");
    const { errorText } = await page.call("Page.navigate", { url });
    if (errorText) throw new Error(`${url}: ${errorText}`);
    await loaded;
    return page;
  }

  constructor(browser, targetId, sessionId) {
    this.browser = browser;
    this.targetId = targetId;
    this.sessionId = sessionId;
    this.errors = [];
    this.requests = [];
    this.waiting = [];
    this.listener = (message) => {
      if (message.sessionId === sessionId) this.note(message);
    };
    browser.listeners.push(this.listener);
  }

  note({ method, params }) {
    for (const { name, resolve } of this.waiting) if (name === method) resolve(params);
    if (method === "Runtime.exceptionThrown") {
      const details = params.exceptionDetails;
      this.errors.push(details.exception?.description ?? details.text);
    }
    if (method === "Runtime.consoleAPICalled" && ["error", "warning"].includes(params.type)) {
      this.errors.push(params.args.map((argument) => argument.value).join(" "));
    }
    if (method === "Log.entryAdded" && ["error", "warning"].includes(params.entry.level)) {
      this.errors.push(`${params.entry.text} ${params.entry.url ?? ""}`);
    }
    if (method === "Network.requestWillBeSent") this.requests.push(params.request.url);
  }

  once(name) {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => reject(new Error(`no ${name} within ${CALL_TIMEOUT_MS} ms`)), CALL_TIMEOUT_MS,
      );
      this.waiting.push({ name, resolve: (value) => { clearTimeout(timer); resolve(value); } });
    });
  }

  call(method, params) {
    return this.browser.call(method, params, this.sessionId);
  }

  /// Runs a function of this file in the page; its result must fit into JSON.
  async run(code, ...values) {
    const expression = `(${code})(...${JSON.stringify(values)})`;
    const answer = await this.call("Runtime.evaluate", {
      expression, returnByValue: true, awaitPromise: true,
    });
    if (answer.exceptionDetails) {
      throw new Error(answer.exceptionDetails.exception?.description ?? "the page failed");
    }
    return answer.result.value;
  }

  async picture(path, width) {
    const height = await this.run(() => document.documentElement.scrollHeight);
    const clip = { x: 0, y: 0, width, height: Math.min(height, PICTURE_HEIGHT_MAX), scale: 1 };
    const { data } = await this.call("Page.captureScreenshot", {
      format: "png", captureBeyondViewport: true, clip,
    });
    writeFileSync(path, Buffer.from(data, "base64"));
  }

  async close() {
    this.browser.listeners.splice(this.browser.listeners.indexOf(this.listener), 1);
    await this.browser.call("Target.closeTarget", { targetId: this.targetId });
  }
}

// Runs in the page: texts that stand out too little from what is behind them.
export function faintTexts(least) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const pixel = (color) => {
    if (!known.has(color)) {
      context.clearRect(0, 0, 1, 1);
      context.fillStyle = color;
      context.fillRect(0, 0, 1, 1);
      known.set(color, context.getImageData(0, 0, 1, 1).data);
    }
    return known.get(color);
  };
  const luminance = ([red, green, blue]) => {
    const linear = [red, green, blue].map((value) => {
      const share = value / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = pixel(getComputedStyle(at).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255];
  };
  const faint = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || ["SCRIPT", "STYLE"].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const ink = pixel(element instanceof SVGElement ? style.fill : style.color);
    const [one, other] = [luminance(ink), luminance(behind(element))].sort((a, b) => b - a);
    const contrast = (one + 0.05) / (other + 0.05);
    if (contrast < least) {
      const text = walker.currentNode.data.trim().slice(0, 30);
      faint.add(`${element.tagName}.${element.className.baseVal ?? element.className} ` +
        `${contrast.toFixed(2)} ${text}`);
    }
  }
  return [...faint].slice(0, 10);
}
