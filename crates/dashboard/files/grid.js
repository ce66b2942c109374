// A table of any length: only the rows in sight exist, and a cell is touched only when its text changes.
//
// A column is { title, text, number?, order?, tone?, wide? }: `text(row)` is shown, `order(row)` sorts, `tone(row)` is a class.

import { h, mark, put } from './dom.js';

const ROW = 28;
const BEYOND = 6;

export class Grid {
  /** `link(row)` is where the first cell leads, `key(row)` tells rows apart, `pick(row)` acts on a click. */
  constructor({ label, columns, link, pick, key, empty, sort = 0, down = false, keep = false }) {
    Object.assign(this, { columns, link, pick, key, keep, sort, down, rows: [], shown: [], lines: [], chosen: undefined });
    this.titles = columns.map((column, at) => keep ? h('th', { scope: 'col', class: column.number && 'number' }, column.title)
      : h('th', { scope: 'col', class: column.number && 'number' },
        h('button', { type: 'button', on: { click: () => this.sortBy(at) } }, column.title)));
    this.above = h('tr', { class: 'gap', 'aria-hidden': 'true' }, h('td', { colspan: columns.length }));
    this.below = h('tr', { class: 'gap', 'aria-hidden': 'true' }, h('td', { colspan: columns.length }));
    this.body = h('tbody', {}, this.above, this.below);
    this.table = h('table', { 'aria-label': label }, h('thead', {}, h('tr', {}, this.titles)), this.body);
    this.empty = h('p', { class: 'empty' }, empty ?? 'Nothing here.');
    this.box = h('div', { class: 'grid', tabindex: 0, role: 'region', 'aria-label': label, on: { scroll: () => this.draw() } }, this.table);
    this.element = h('div', { class: 'grid-frame' }, this.box, this.empty);
    new ResizeObserver(() => this.draw()).observe(this.box);
    this.head();
  }

  sortBy(at) {
    this.down = this.sort === at ? !this.down : Boolean(this.columns[at].number);
    this.sort = at;
    this.head();
    this.set(this.rows);
  }

  head() {
    if (this.keep) return;
    this.titles.forEach((title, at) => mark(title, 'aria-sort', at !== this.sort ? 'none' : this.down ? 'descending' : 'ascending'));
  }

  /** Shows these rows from now on. */
  set(rows) {
    this.rows = rows;
    this.shown = rows;
    if (!this.keep) {
      const { order, text } = this.columns[this.sort];
      const value = order ?? text;
      const keyed = rows.map(row => [value(row), row]);
      const way = this.down ? -1 : 1;
      keyed.sort(([a], [b]) => way * (typeof a === 'string' ? a.localeCompare(b) : (a ?? -1) - (b ?? -1)));
      this.shown = keyed.map(([, row]) => row);
    }
    mark(this.table, 'aria-rowcount', String(rows.length + 1));
    this.empty.hidden = rows.length > 0;
    this.box.hidden = rows.length === 0;
    this.draw();
  }

  draw() {
    const height = this.box.clientHeight || ROW * 12;
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - BEYOND);
    const count = Math.min(this.shown.length - first, Math.ceil(height / ROW) + 2 * BEYOND);
    while (this.lines.length < count) this.lines.push(this.line());
    this.lines.forEach((line, at) => {
      const row = at < count ? this.shown[first + at] : undefined;
      line.element.hidden = !row;
      if (row) this.fill(line, row, first + at);
    });
    this.above.style.height = `${first * ROW}px`;
    this.below.style.height = `${Math.max(0, this.shown.length - first - count) * ROW}px`;
    this.above.hidden = first === 0;
  }

  line() {
    const line = { cells: [], row: undefined };
    for (const [at, column] of this.columns.entries()) {
      const holder = at === 0 && this.link ? h('a', {}) : at === 0 && this.pick ? h('button', { type: 'button', class: 'plain' }) : undefined;
      const cell = h(at === 0 ? 'th' : 'td', { scope: at === 0 && 'row', class: [column.number && 'number', column.wide && 'wide'].filter(Boolean).join(' ') || undefined }, holder);
      line.cells.push({ cell, text: holder ?? cell, base: cell.className });
    }
    line.element = h('tr', {}, line.cells.map(({ cell }) => cell));
    if (this.pick) line.element.addEventListener('click', () => line.row && this.pick(line.row));
    this.body.insertBefore(line.element, this.below);
    return line;
  }

  fill(line, row, place) {
    line.row = row;
    mark(line.element, 'aria-rowindex', String(place + 2));
    mark(line.element, 'class', this.chosen !== undefined && this.key?.(row) === this.chosen ? 'chosen' : undefined);
    for (const [at, column] of this.columns.entries()) {
      const { cell, text, base } = line.cells[at];
      const words = column.text(row);
      put(text, words);
      if (column.wide && cell.title !== words) cell.title = words;
      const tone = column.tone?.(row);
      const wanted = tone ? `${base} ${tone}`.trim() : base;
      if (cell.className !== wanted) cell.className = wanted;
      if (at === 0 && this.link) mark(text, 'href', this.link(row));
    }
  }
}
