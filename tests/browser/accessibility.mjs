// Violations of WCAG 2.1, levels A and AA, as axe-core finds them.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"];
/// Elements that are named of each rule: others have the same reason.
const ELEMENTS_MAX = 3;

// Runs in the page.
async function violations(tags, most) {
  const { violations: found } = await axe.run(document, { runOnly: { type: "tag", values: tags }, resultTypes: ["violations"] });
  return found.map(({ id, nodes }) => {
    const elements = nodes.slice(0, most).map(({ target, html, failureSummary }) =>
      `${target.flat().join(" ")} ${html.slice(0, 150)}: ${failureSummary.split("\n").slice(1).join(" ").trim()}`);
    return `${id}, ${nodes.length} elements: ${elements.join("; ")}`;
  });
}

/** Returns a line for each violated rule: its name, elements, and what is wrong with them. */
export async function inaccessible(page) {
  if (!(await page.run(() => typeof axe === "object"))) await page.run(`() => { ${AXE} }`);
  return page.run(violations, TAGS, ELEMENTS_MAX);
}
