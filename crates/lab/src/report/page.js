// The page can be read without this: it adds a switch of theme, sorting and filtering.
"use strict";
(() => {
  const root = document.documentElement;
  const stored = () => {
    // A page that was opened from a file may have no storage.
    try { return localStorage.getItem("theme"); } catch { return null; }
  };
  const store = (theme) => {
    try {
      if (theme) localStorage.setItem("theme", theme);
      else localStorage.removeItem("theme");
    } catch { /* for this visit only */ }
  };
  const known = stored();
  if (known === "light" || known === "dark") root.dataset.theme = known;

  const button = document.querySelector("button.theme");
  if (button) {
    button.hidden = false;
    button.addEventListener("click", () => {
      const preferred = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
      const theme = (root.dataset.theme || preferred) === "dark" ? "light" : "dark";
      // Back at what the reader prefers anyway, the page follows it again.
      if (theme === preferred) delete root.dataset.theme;
      else root.dataset.theme = theme;
      store(root.dataset.theme);
    });
  }

  // Heads span columns, so a column is found by where it stands in the grid of the head.
  const columnOf = (table, head) => {
    const taken = [];
    for (const [index, row] of [...table.tHead.rows].entries()) {
      let column = 0;
      for (const cell of row.cells) {
        while ((taken[index] || [])[column]) column += 1;
        if (cell === head) return column;
        for (let down = 0; down < cell.rowSpan; down += 1) {
          taken[index + down] = taken[index + down] || [];
          for (let right = 0; right < cell.colSpan; right += 1) {
            taken[index + down][column + right] = true;
          }
        }
        column += cell.colSpan;
      }
    }
    return -1;
  };

  const keyOf = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.sort ?? cell.textContent.trim();
    const number = Number(text);
    return text !== "" && !Number.isNaN(number) ? number : text;
  };

  // What is absent comes last in both directions.
  const compare = (a, b, direction) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    if (typeof a === "number" && typeof b === "number") return direction * (a - b);
    return direction * String(a).localeCompare(String(b));
  };

  const sort = (table, head) => {
    const column = columnOf(table, head);
    const direction = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => ({ row, key: keyOf(row, column) }));
    rows.sort((a, b) => compare(a.key, b.key, direction));
    body.append(...rows.map(({ row }) => row));
  };

  const makeSortable = (table) => {
    for (const head of table.querySelectorAll("th.sorts")) {
      const control = document.createElement("button");
      control.type = "button";
      control.append(...head.childNodes);
      control.addEventListener("click", () => sort(table, head));
      head.append(control);
    }
  };

  const ROWS_WITHOUT_FILTER_MAX = 8;
  const makeFilter = (table) => {
    const rows = [...table.tBodies[0].rows];
    if (rows.length <= ROWS_WITHOUT_FILTER_MAX) return;
    const label = document.createElement("label");
    label.className = "filter";
    const input = document.createElement("input");
    input.type = "search";
    input.placeholder = "Show only rows with …";
    input.setAttribute("aria-label", "Show only rows with");
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
    });
    label.append(input);
    table.closest(".scroll").before(label);
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    makeSortable(table);
    makeFilter(table);
  }
})();
