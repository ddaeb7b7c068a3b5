'use strict';
// Numbers, times and elements. Texts of the trace become text nodes, never markup.

const UNITS = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];

// A time in nanoseconds, with four digits.
function timeText(ns) {
  const [unit, name] = UNITS.find(([size]) => ns >= size) || UNITS[3];
  const value = ns / unit;
  const digits = unit === 1 ? 0 : Math.max(0, 3 - Math.floor(Math.log10(value || 1)));
  return `${value.toFixed(digits)} ${name}`;
}

// A place in time, with the digits that tell it from places `step` nanoseconds away.
function placeText(ns, step) {
  const [unit, name] = UNITS.find(([size]) => ns >= size) || UNITS[3];
  const digits = Math.min(9, Math.max(0, Math.ceil(Math.log10(unit / Math.max(step, 1)))));
  return `${(ns / unit).toFixed(digits)} ${name}`;
}

const grouped = new Intl.NumberFormat('en');
function numberText(n) {
  return grouped.format(n);
}

function percentText(part, whole) {
  return whole > 0 ? `${((100 * part) / whole).toFixed(1)} %` : '0 %';
}

// An element with attributes, and children that are nodes or texts.
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') made.addEventListener(name, value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function byId(id) {
  return document.getElementById(id);
}

function showFacts(list, facts) {
  list.replaceChildren(...facts.map(([name, value]) => (
    element('div', {}, element('dt', {}, name), element('dd', {}, value)))));
}

// Fills a table. A column is [title, class]; a cell is a text or a node.
function fillTable(table, columns, rows) {
  const cells = (tag, row, more) => row.map((cell, i) => (
    element(tag, { ...more, class: columns[i][1] || '' }, cell)));
  const head = cells('th', columns.map(([title]) => title), { scope: 'col' });
  table.replaceChildren(
    element('thead', {}, element('tr', {}, ...head)),
    element('tbody', {}, ...rows.map((row) => element('tr', {}, ...cells('td', row, {})))),
  );
}
