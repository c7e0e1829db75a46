// What all pages share.

export const app = {
  /** Values of the API by page name; an `Error` where the request failed. */
  data: {},
  /** The user: `{ name, is_unrestricted, may_cql, may_run }`; null before the first answer. */
  user: null,
  /** Whether a name and a password are needed. */
  isSignedOut: false,
  /** Number of the database of commands. */
  database: 0,
  /** Time under the pointer in a chart, in ms; null without one. */
  hover: null,
  /** Time span that was chosen in a chart. */
  zoom: null,
  /** Width of a chart in pixels. */
  chartWidth: 380,
  /** Draws the page again, soon. */
  redraw: () => {},
};

/** Whether the user may run a command, in the notation of ACL. */
export function may(name) {
  return app.user?.may_run[name] === true;
}

/** Age above which numbers are grayed out and their age is shown. */
export const STALE_MS = 3500;
