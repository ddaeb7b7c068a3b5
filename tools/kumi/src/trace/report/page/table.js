'use strict';
// A table of any number of rows, of which only those in sight are elements.

const ROW_HEIGHT = 28;
// A browser's elements end at some 33 million pixels.
const MOST_ROWS = 1000000;

class LongTable {
  // A column: title, class, value(i) to sort by, cell(i) for a text or a node. Rows have numbers
  // below `total`.
  constructor(box, columns, total) {
    this.box = box;
    this.total = total;
    this.columns = columns;
    this.rows = new Uint32Array(0);
    this.sorted = null;
    this.body = element('tbody');
    this.heads = columns.map((column, i) => element('th', { scope: 'col', class: column.class },
      element('button', { type: 'button', click: () => this.sortBy(i) }, column.title)));
    this.table = element('table', {}, element('thead', {}, element('tr', {}, ...this.heads)),
      this.body);
    box.replaceChildren(this.table);
    box.onscroll = () => this.draw();
  }

  // Shows the rows with these numbers.
  show(rows) {
    this.rows = rows.length > MOST_ROWS ? rows.slice(0, MOST_ROWS) : rows;
    this.table.setAttribute('aria-rowcount', this.rows.length + 1);
    if (this.sorted) this.order();
    this.box.scrollTop = 0;
    this.draw(true);
  }

  // Sorts by a column: numbers from the largest on at first, names from the smallest on.
  sortBy(i) {
    const same = this.sorted && this.sorted.column === i;
    const down = same ? !this.sorted.down : this.columns[i].class === 'number';
    this.sorted = { column: i, down };
    this.heads.forEach((head, j) => {
      if (i === j) head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
    this.order();
    this.box.scrollTop = 0;
    this.draw(true);
  }

  order() {
    const { column, down } = this.sorted;
    const { value, class: kind } = this.columns[column];
    // By the number of the row. Made once, as making a name takes longer than comparing two.
    const keys = kind === 'number' ? new Float64Array(this.total) : new Array(this.total);
    for (const row of this.rows) keys[row] = value(row);
    const sign = down ? -1 : 1;
    this.rows = this.rows.slice().sort((a, b) => {
      if (keys[a] === keys[b]) return a - b;
      return keys[a] < keys[b] ? -sign : sign;
    });
  }

  // Makes the rows in sight, and spaces in place of the others.
  draw(anew = false) {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW_HEIGHT) - 10);
    const last = Math.min(this.rows.length,
      first + Math.ceil(this.box.clientHeight / ROW_HEIGHT) + 20);
    if (!anew && first === this.first && last === this.last) return;
    [this.first, this.last] = [first, last];
    const space = (rows) => {
      const cell = element('td', { colspan: this.columns.length });
      cell.style.height = `${rows * ROW_HEIGHT}px`;
      return element('tr', { class: 'space', 'aria-hidden': 'true' }, cell);
    };
    const made = [];
    for (let i = first; i < last; i++) {
      const row = this.rows[i];
      const cells = this.columns.map((column) => (
        element('td', { class: column.class }, column.cell(row))));
      made.push(element('tr', { 'aria-rowindex': i + 2 }, ...cells));
    }
    this.body.replaceChildren(space(first), ...made, space(this.rows.length - last));
  }
}
