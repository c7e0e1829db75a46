// Icons of the navigation: strokes in a square of 24.

import { shape } from "./dom.js";

const PATHS = {
  overview: "M4 19V5M4 19h16M8 16v-4M12 16V8M16 16v-6",
  keys: "M14.5 4a5.5 5.5 0 1 1-4.6 8.5L4 18.4V21h3v-2h2v-2h2l1.2-1.6M15.8 8.2h.01",
  cql: "M4 6c0-1.7 3.6-3 8-3s8 1.3 8 3-3.6 3-8 3-8-1.3-8-3v12c0 1.7 3.6 3 8 3s8-1.3 8-3V6M4 12c0 1.7 3.6 3 8 3s8-1.3 8-3",
  channels: "M12 12h.01M8.5 15.5a5 5 0 0 1 0-7M15.5 8.5a5 5 0 0 1 0 7M5.6 18.4a9 9 0 0 1 0-12.8M18.4 5.6a9 9 0 0 1 0 12.8",
  clients: "M9 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8M2.5 21a6.5 6.5 0 0 1 13 0M16 3.5a4 4 0 0 1 0 7M18 14.5a6.5 6.5 0 0 1 3.5 6.5",
  slow: "M12 21a8 8 0 1 0 0-16 8 8 0 0 0 0 16M12 9v4l2.5 2.5M10 2h4",
  statements: "M4 6h16M4 12h10M4 18h13",
  memory: "M5 7h14v10H5zM9 3v4M15 3v4M9 17v4M15 17v4M9 11h6",
  reactors: "M4 4h16v16H4zM9 9h6v6H9zM9 1v3M15 1v3M9 20v3M15 20v3M1 9h3M1 15h3M20 9h3M20 15h3",
  log: "M4 4h16v6H4zM4 14h16v6H4zM8 7h.01M8 17h.01",
  configuration: "M4 7h10M18 7h2M4 17h2M10 17h10M16 5v4M8 15v4",
  replication: "M4 8h13l-3-3M20 16H7l3 3",
  events: "M6 3h9l4 4v14H6zM9 12h7M9 16h7M9 8h3",
  command: "M4 5h16v14H4zM7.5 9.5l3 2.5-3 2.5M12.5 15H16",
};

export function icon(name) {
  return shape("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, shape("path", { d: PATHS[name] }));
}
