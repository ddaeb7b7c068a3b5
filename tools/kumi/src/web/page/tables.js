// Tables that follow changing data, and numbers as short texts. All texts of programs become text
// nodes: what a microprocess is called is never markup.

/** Control characters, and those that turn the direction of text, which could disguise a name. */
const STEERING = /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu;

/** A text of a program with such characters as escapes. */
export const plain = (text) =>
  text.replace(STEERING, (c) => "\\u{" + c.codePointAt(0).toString(16) + "}");

export const duration = (ns) => {
  const scaled = (n, unit) => (n < 99.95 ? n.toFixed(1) : n.toFixed(0)) + unit;
  if (ns < 1e3) return ns + "ns";
  if (ns < 999500) return scaled(ns / 1e3, "us");
  if (ns < 999.5e6) return scaled(ns / 1e6, "ms");
  if (ns < 99.95e9) return scaled(ns / 1e9, "s");
  return ns < 6e12 ? (ns / 60e9).toFixed(0) + "m" : (ns / 3600e9).toFixed(0) + "h";
};

export const percent = (cores) => (cores == null ? "-" : (100 * cores).toFixed(1) + "%");
export const rate = (n) => (n == null ? "-" : n < 9.95 && n > 0 ? n.toFixed(1) : n.toFixed(0));
export const bytes = (n) =>
  n == null ? "-" : n < 10000 ? String(n) : (n / 1024).toFixed(0) + "K";

/** What a microprocess waits for, with the holder of a lock. */
export const waits = (row) =>
  row.waits_for ? plain(row.waits_for) + (row.held ? ", " + plain(row.held) : "") : "";

/** An element with attributes and children, which are elements or text. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/**
 * Fills a table. `columns`: `{ head, text(row), sort?, press?(row), class? }`. Rows keep their
 * elements by `key(row)`, so that the focus stays where it was. `sorted`: `{ by, backwards, to }`.
 */
export function fill(table, columns, rows, key, sorted) {
  heads(table, columns, sorted);
  const body = table.tBodies[0];
  const focused = body.contains(document.activeElement) ? document.activeElement : null;
  const before = new Map([...body.rows].map((line) => [line.dataset.key, line]));
  let place = body.firstElementChild;
  for (const row of rows) {
    const name = key(row);
    const line = before.get(name) ?? element("tr", { "data-key": name, role: "row" });
    before.delete(name);
    columns.forEach((column, at) => cell(line, at, column, row));
    while (line.cells.length > columns.length) line.deleteCell(-1);
    if (line === place) place = place.nextElementSibling;
    else body.insertBefore(line, place);
  }
  for (const line of before.values()) line.remove();
  // Moving an element takes the focus from it.
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus();
}

function cell(line, at, column, row) {
  const cell = line.cells[at] ?? line.insertCell();
  const text = column.text(row);
  if (cell.dataset.label !== column.head) {
    cell.replaceChildren();
    cell.dataset.label = column.head;
    cell.setAttribute("role", "cell");
    cell.className = column.class ?? "";
  }
  if (!column.press) {
    if (cell.textContent !== text) cell.textContent = text;
    return;
  }
  const button = cell.firstElementChild ?? cell.appendChild(element("button", { type: "button" }));
  if (button.textContent !== text) button.textContent = text;
  const label = column.label?.(row);
  if (label && button.ariaLabel !== label) button.ariaLabel = label;
  if (column.pressed) button.setAttribute("aria-pressed", String(column.pressed(row)));
  button.onclick = () => column.press(row);
}

function heads(table, columns, sorted) {
  table.setAttribute("role", "table");
  const text = columns.map((column) => column.head).join("|");
  let line = table.tHead.rows[0];
  if (table.dataset.heads !== text) {
    table.dataset.heads = text;
    line = element("tr", { role: "row" });
    for (const column of columns) {
      const head = element("th", { scope: "col", role: "columnheader" });
      head.className = column.class ?? "";
      if (column.sort) head.append(element("button", { type: "button" }, column.head));
      else head.append(column.head);
      line.append(head);
    }
    table.tHead.replaceChildren(line);
    table.tBodies[0].replaceChildren();
  }
  columns.forEach((column, at) => {
    if (!column.sort) return;
    const head = line.cells[at];
    const is = column.sort === sorted.by;
    // Numbers begin with the highest one, texts with the first one.
    const falls = is && Boolean(column.falls) !== sorted.backwards;
    head.setAttribute("aria-sort", !is ? "none" : falls ? "descending" : "ascending");
    head.firstElementChild.onclick = () => sorted.to(column.sort);
  });
}

/** Draws a histogram by powers of two as a table with bars. */
export function histogram(table, counts, label) {
  const first = counts.findIndex((n) => n > 0);
  const shown = [];
  let most = 1;
  for (let at = Math.max(first, 0); first >= 0 && at < counts.length; at++) {
    shown.push({ below: label(2 ** at), count: counts[at] });
    most = Math.max(most, counts[at]);
  }
  while (shown.length > 0 && shown.at(-1).count === 0) shown.pop();
  table.dataset.title ??= table.caption.textContent;
  const title = table.dataset.title + (shown.length > 0 ? "" : ": none yet");
  if (table.caption.textContent !== title) table.caption.textContent = title;
  const columns = [
    { head: "Below", text: (row) => row.below, class: "number" },
    { head: "Count", text: (row) => String(row.count), class: "number" },
    { head: "Share", text: () => "", class: "bar" },
  ];
  fill(table, columns, shown, (row) => row.below);
  shown.forEach((row, at) => {
    const cell = table.tBodies[0].rows[at].cells[2];
    const fresh = () => cell.appendChild(element("div", { "aria-hidden": "true" }));
    const bar = cell.firstElementChild ?? fresh();
    bar.style.width = Math.ceil((100 * row.count) / most) + "%";
  });
}
