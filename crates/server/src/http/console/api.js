// Requests to the server. They run with the permissions of the user who signed in.

import { app } from "./state.js";

/** Timeout of a request for numbers. */
const TIMEOUT_MS = 3000;
/** A command may scan or wait for the disk. */
const COMMAND_TIMEOUT_MS = 30_000;
/** Longer answers are not read: the page must not hold a value of 512 MB. */
const ANSWER_BYTES_MAX = 16 << 20;
const STORED = "authorization";

/** A refusal by the server, as its text. */
export class Refusal extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

const encoder = new TextEncoder();

export function toBase64(bytes) {
  let binary = "";
  for (let at = 0; at < bytes.length; at += 0x8000) binary += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(binary);
}

export function fromBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at += 1) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

export function signIn(name, password) {
  sessionStorage.setItem(STORED, `Basic ${toBase64(encoder.encode(`${name}:${password}`))}`);
}

export function signOut() {
  sessionStorage.removeItem(STORED);
}

export function hasSignedIn() {
  return sessionStorage.getItem(STORED) !== null;
}

/** Sends a request. Without `credentials` the browser does not ask for a password by itself. */
export async function send(path, options = {}) {
  const authorization = sessionStorage.getItem(STORED);
  const headers = { ...options.headers, ...(authorization ? { Authorization: authorization } : {}) };
  const response = await fetch(path, { cache: "no-store", credentials: "omit", ...options, headers });
  if (response.status === 401) {
    app.isSignedOut = true;
    app.redraw();
    await response.body?.cancel();
    throw new Refusal(401, "sign in first");
  }
  return response;
}

async function readText(response) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  let count = 0;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return text + decoder.decode();
    count += value.length;
    if (count > ANSWER_BYTES_MAX) {
      await reader.cancel();
      throw new Refusal(413, `the answer is longer than ${ANSWER_BYTES_MAX >> 20} MiB, and is not shown`);
    }
    text += decoder.decode(value, { stream: true });
  }
}

async function json(path, options) {
  try {
    const response = await send(path, options);
    const text = await readText(response);
    const value = JSON.parse(text);
    if (!response.ok) throw new Refusal(response.status, value.error ?? `status ${response.status}`);
    return value;
  } catch (error) {
    if (error.name === "TimeoutError") throw new Error("request timed out");
    throw error;
  }
}

/** A page of the API. */
export function ask(name) {
  return json(`/api/v1/${name}`, { signal: AbortSignal.timeout(TIMEOUT_MS) });
}

function isText(word) {
  return typeof word === "string" && word.isWellFormed();
}

/** Bytes as a part of a path: everything but letters and digits is escaped. */
function escaped(word) {
  const bytes = typeof word === "string" ? encoder.encode(word) : word;
  return [...bytes].map((byte) => {
    const sign = String.fromCharCode(byte);
    return /[A-Za-z0-9_-]/.test(sign) ? sign : `%${byte.toString(16).padStart(2, "0")}`;
  }).join("");
}

/** Strings of a reply as bytes. */
function asBytes(reply) {
  if (typeof reply === "string") return reply === "OK" ? encoder.encode(reply) : fromBase64(reply);
  return Array.isArray(reply) ? reply.map(asBytes) : reply;
}

function base64Post(body) {
  const database = app.database > 0 ? { "Myriad-Database": String(app.database) } : {};
  return {
    method: "POST", body, signal: AbortSignal.timeout(COMMAND_TIMEOUT_MS),
    headers: { "Upstash-Encoding": "base64", ...database },
  };
}

/**
 * Runs a command of the Redis protocol. Words are strings or bytes; strings of the reply are bytes. JSON has only
 * text, so other words are sent in the path, and the last one, which may be long, as the body.
 */
export async function run(...words) {
  if (words.every(isText)) return asBytes((await json("/", base64Post(JSON.stringify(words)))).result);
  const last = words.at(-1);
  const body = last.length > 0 ? last : null;
  const path = (body ? words.slice(0, -1) : words).map(escaped).join("/");
  return asBytes((await json(`/${path}`, base64Post(body))).result);
}

/** Runs commands in order. Returns a reply or an `Error` for each. */
export async function runAll(commands) {
  if (commands.length === 0) return [];
  if (!commands.every((words) => words.every(isText))) {
    return Promise.all(commands.map((words) => run(...words).catch((error) => error)));
  }
  const results = await json("/pipeline", base64Post(JSON.stringify(commands)));
  return results.map(({ result, error }) => (error === undefined ? asBytes(result) : new Refusal(400, error)));
}

/** Runs a CQL statement: `{ columns, rows, paging_state }`. */
export function query(statement, { keyspace = null, pageSize = 100, pagingState = null, values = [], trace = false } = {}) {
  const body = { statement, values, page_size: pageSize };
  if (trace) body.trace = true;
  if (keyspace) body.keyspace = keyspace;
  if (pagingState) body.paging_state = pagingState;
  return json("/cql", { method: "POST", body: JSON.stringify(body), signal: AbortSignal.timeout(COMMAND_TIMEOUT_MS) });
}

/** Reads server-sent events until the signal stops it; calls `each` with `{ event, id, data }`. */
export async function follow(path, signal, each) {
  const response = await send(path, { signal });
  if (!response.ok) throw new Refusal(response.status, JSON.parse(await readText(response)).error);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    if (rest.length > ANSWER_BYTES_MAX) throw new Error("an event is too long");
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      const event = { event: "message", id: "", data: [] };
      for (const line of rest.slice(0, end).split("\n")) {
        const colon = line.indexOf(":");
        const [name, text] = [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, "")];
        if (name === "data") event.data.push(text);
        else if (name) event[name] = text;
      }
      rest = rest.slice(end + 2);
      if (event.data.length > 0) each({ ...event, data: event.data.join("\n") });
    }
  }
}
