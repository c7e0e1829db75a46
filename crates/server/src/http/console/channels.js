// Messages of channels and changes of the data, as they happen.

import { follow, fromBase64, run } from "./api.js";
import { shown } from "./bytes.js";
import { button, cut, element, field, note, panel } from "./dom.js";
import { app, may } from "./state.js";

/** Events that are kept and shown; older ones are dropped. */
const EVENTS_MAX = 200;
const TEXT_CHARS_MAX = 2000;

function feed() {
  return { events: [], stop: null, problem: null, count: 0, pattern: "" };
}
const messages = feed();
const changes = feed();
let published = null;

function add(stream, event) {
  stream.count += 1;
  stream.events.unshift({ ...event, number: stream.count, at: Date.now() });
  if (stream.events.length > EVENTS_MAX) stream.events.length = EVENTS_MAX;
  app.redraw();
}

/** Follows until the user stops it or the server ends it. */
async function start(stream, path, toEvent) {
  stream.stop?.abort();
  const stop = new AbortController();
  Object.assign(stream, { stop, problem: null, events: [], count: 0 });
  try {
    await follow(path, stop.signal, (event) => {
      const row = toEvent(event);
      if (row) add(stream, row);
    });
    if (stream.stop === stop) stream.problem ??= "The server ended the stream.";
  } catch (error) {
    if (stream.stop === stop && error.name !== "AbortError") stream.problem = error.message;
  }
  if (stream.stop === stop) stream.stop = null;
  app.redraw();
}

function halt(stream) {
  stream.stop?.abort();
  stream.stop = null;
}

/** `pmessage,PATTERN,CHANNEL,PAYLOAD`; only the payload, in base64, has no comma. */
function messageOf({ data }) {
  const head = `pmessage,${messages.pattern},`;
  if (!data.startsWith(head)) return null;
  const comma = data.lastIndexOf(",");
  return { what: data.slice(head.length, comma), text: shown(fromBase64(data.slice(comma + 1)), TEXT_CHARS_MAX) };
}

function named(value) {
  if (value === null || typeof value !== "object") return String(value);
  return value.base64 === undefined ? JSON.stringify(value) : shown(fromBase64(value.base64), 200);
}

function changeOf({ event, id, data }) {
  if (event === "end") {
    changes.problem = data;
    return null;
  }
  const { changes: list = [], omitted } = JSON.parse(data);
  const first = list.slice(0, 3).map((one) => `${one.change} ${one.key === undefined ? one.table ?? "" : named(one.key)}`).join(", ");
  const more = list.length - 3 + (omitted ?? 0);
  return { what: more > 0 ? `${first} and ${more} more` : first, text: cut(data, TEXT_CHARS_MAX), id };
}

function rows(stream, empty) {
  if (stream.events.length === 0) return note(stream.stop ? "Nothing has happened yet." : empty);
  return element("ol", { class: "feed", tabindex: 0, role: "log", "aria-label": "Events" }, stream.events.map((event) => element("li", { "data-key": `event ${event.number}` },
    element("span", { class: "muted" }, new Date(event.at).toLocaleTimeString([], { hourCycle: "h23" })), " ",
    element("b", {}, cut(event.what, 300)), element("pre", {}, event.text))));
}

function draw() {
  const isSubscribed = messages.stop !== null;
  const isFollowing = changes.stop !== null;
  return [element("div", { class: "columns", "data-key": "columns" },
    panel("Messages of channels", [
      element("form", { class: "toolbar", "data-submit": "channels-subscribe" },
        field("Pattern", element("input", { name: "pattern", value: "*", "data-search": "", autocomplete: "off" }), "grow"),
        button("Subscribe", null, {}, { type: "submit", className: "primary", disabled: !may("subscribe") }),
        button("Stop", "channels-unsubscribe", {}, { disabled: !isSubscribed })),
      messages.problem ? note(messages.problem, "bad") : null,
      isSubscribed ? note(`Subscribed to ${messages.pattern}: ${messages.count} messages${messages.count > EVENTS_MAX ? `, the last ${EVENTS_MAX} are shown` : ""}.`) : null,
      element("form", { class: "toolbar", "data-submit": "channels-publish" },
        field("Channel", element("input", { name: "channel", required: "", autocomplete: "off" })),
        field("Message", element("input", { name: "message", autocomplete: "off" }), "grow"),
        button("Publish", null, {}, { type: "submit", disabled: !may("publish") })),
      published === null ? null : note(`Received by ${published} subscribers.`),
      rows(messages, "Messages that are published from now on appear here."),
    ]),
    panel("Changes of the data", [
      element("div", { class: "toolbar" },
        button("Follow the log", "channels-follow", {}, { className: "primary", disabled: isFollowing || !app.user?.is_unrestricted }),
        button("Stop", "channels-unfollow", {}, { disabled: !isFollowing }),
        element("span", { class: "muted grow" }, app.user?.is_unrestricted ? (isFollowing ? `${changes.count} records` : "") : "Only a user who may do everything sees all changes.")),
      changes.problem ? note(changes.problem, "bad") : null,
      rows(changes, "Each event is one record of the log: a command, a transaction or a batch, once it is on disk."),
    ]))];
}

export const channels = {
  name: "channels", title: "Pub/Sub and changes", icon: "channels", needs: [], draw, hasCharts: false, isFree: true,
  fail: (error) => { messages.problem = error.message; },
  actions: {
    "channels-subscribe": ({ form }) => {
      messages.pattern = form.get("pattern");
      start(messages, `/psubscribe/${encodeURIComponent(messages.pattern)}?encoding=base64`, messageOf);
    },
    "channels-unsubscribe": () => halt(messages),
    "channels-publish": async ({ form }) => { published = await run("PUBLISH", form.get("channel"), form.get("message")); },
    "channels-follow": () => { start(changes, "/changes?from=now", changeOf); },
    "channels-unfollow": () => halt(changes),
  },
};
