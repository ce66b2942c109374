// A table of any length: only the rows in sight exist, and a cell is touched only when its text changes.
//
// A column is { title, text, number?, order?, tone?, wide? }: `text(row)` is shown, `order(row)` sorts, `tone(row)` is a class.
// A row with the `stamp` that it had when it was drawn is passed over. How high the table is and how far it is scrolled,
// the browser tells when it knows: to ask it while drawing would have it lay out the page for each change.

import { h, mark, put } from './dom.js';
import { draw } from './frames.js';

const ROW = 28;
const BEYOND = 6;
/** Rows that are made at once; more come with the next part of a frame. */
const MADE = 6;

export class Grid {
  /**
   * `link(row)` is where the first cell leads, `key(row)` tells rows apart, `pick(row)` acts on a click. Rows come as
   * the first column sorts them if they are `given` so, and with `keep` they stay as they come.
   */
  constructor({ label, columns, link, pick, key, empty, sort = 0, down = false, given = false, keep = false }) {
    Object.assign(this, { columns, link, pick, key, given, keep, sort, down, rows: [], shown: [], lines: [], chosen: undefined, height: 0, top: 0 });
    this.titles = columns.map((column, at) => keep ? h('th', { scope: 'col', class: column.number && 'number' }, column.title)
      : h('th', { scope: 'col', class: column.number && 'number' },
        h('button', { type: 'button', on: { click: () => this.sortBy(at) } }, column.title)));
    this.above = h('tr', { class: 'gap', 'aria-hidden': 'true' }, h('td', { colspan: columns.length }));
    this.below = h('tr', { class: 'gap', 'aria-hidden': 'true' }, h('td', { colspan: columns.length }));
    this.body = h('tbody', {}, this.above, this.below);
    this.table = h('table', { 'aria-label': label }, h('thead', {}, h('tr', {}, this.titles)), this.body);
    this.empty = h('p', { class: 'empty' }, empty ?? 'Nothing here.');
    this.box = h('div', { class: 'grid', tabindex: 0, role: 'region', 'aria-label': label, on: { scroll: () => { this.top = this.box.scrollTop; this.draw(); } } }, this.table);
    this.element = h('div', { class: 'grid-frame' }, this.box, this.empty);
    this.grow = () => this.draw();
    new ResizeObserver(([{ contentRect: { height } }]) => {
      if (this.height === height) return;
      this.height = height;
      this.draw();
    }).observe(this.box);
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
    this.shown = this.keep ? rows : this.sorted(rows);
    mark(this.table, 'aria-rowcount', String(rows.length + 1));
    this.empty.hidden = rows.length > 0;
    this.box.hidden = rows.length === 0;
    this.draw();
  }

  sorted(rows) {
    if (this.given && this.sort === 0 && !this.down) return rows;
    const { order, text } = this.columns[this.sort];
    const values = rows.map(row => (order ?? text)(row));
    const compare = (one, other) => {
      const [a, b] = this.down ? [values[other], values[one]] : [values[one], values[other]];
      return typeof a !== 'string' ? (a ?? -1) - (b ?? -1) : a < b ? -1 : a > b ? 1 : 0;
    };
    // Mostly they are sorted as they come.
    if (rows.every((_, at) => at === 0 || compare(at - 1, at) <= 0)) return rows;
    return [...rows.keys()].sort(compare).map(at => rows[at]);
  }

  /** Shows the end of the table, if that is what was shown before it grew. */
  follow() {
    const end = Math.max(0, (this.shown.length + 1) * ROW - this.height);
    if (this.top < this.end - ROW) { this.end = end; return; }
    this.end = this.top = end;
    this.draw();
    this.box.scrollTop = end;
  }

  draw() {
    const seen = Math.ceil((this.height || ROW * 12) / ROW);
    const first = Math.max(0, Math.min(Math.floor(this.top / ROW), this.shown.length - seen) - BEYOND);
    const wanted = Math.min(this.shown.length - first, seen + 2 * BEYOND);
    const count = Math.min(wanted, this.lines.length + MADE);
    while (this.lines.length < count) this.lines.push(this.line());
    if (count < wanted) draw(this.grow);
    this.lines.forEach((line, at) => {
      const row = at < count ? this.shown[first + at] : undefined;
      if (line.element.hidden === Boolean(row)) line.element.hidden = !row;
      if (row) this.fill(line, row, first + at);
    });
    this.above.style.height = `${first * ROW}px`;
    this.below.style.height = `${Math.max(0, this.shown.length - first - count) * ROW}px`;
    this.above.hidden = first === 0;
  }

  /** A row without text. */
  blank() {
    return h('tr', {}, this.columns.map((column, at) => {
      const holder = at === 0 && this.link ? h('a', {}) : at === 0 && this.pick ? h('button', { type: 'button', class: 'plain' }) : undefined;
      return h(at === 0 ? 'th' : 'td', { scope: at === 0 && 'row', class: [column.number && 'number', column.wide && 'wide'].filter(Boolean).join(' ') || undefined }, holder);
    }));
  }

  line() {
    const element = (this.model ??= this.blank()).cloneNode(true);
    const cells = Array.from(element.children, cell => ({ cell, text: cell.firstChild ?? cell, base: cell.className }));
    const line = { element, cells };
    if (this.pick) line.element.addEventListener('click', () => line.row && this.pick(line.row));
    this.body.insertBefore(line.element, this.below);
    return line;
  }

  fill(line, row, place) {
    const is = this.chosen !== undefined && this.key?.(row) === this.chosen ? 'chosen' : undefined;
    if (row.stamp !== undefined && line.row === row && line.stamp === row.stamp && line.place === place && line.is === is) return;
    Object.assign(line, { row, stamp: row.stamp, place, is });
    mark(line.element, 'aria-rowindex', String(place + 2));
    mark(line.element, 'class', is);
    for (const [at, column] of this.columns.entries()) {
      const holds = line.cells[at];
      const { cell, text, base } = holds;
      const words = column.text(row);
      put(text, words);
      if (column.wide) mark(cell, 'title', words);
      const tone = column.tone?.(row) ?? '';
      if ((holds.tone ?? '') !== tone) {
        holds.tone = tone;
        cell.className = `${base} ${tone}`.trim();
      }
      if (at === 0 && this.link) mark(text, 'href', this.link(row));
    }
  }
}
