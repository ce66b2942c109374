// The units that exist now, and how many there are of each class.

import { state } from './data.js';
import { h, put } from './dom.js';
import { list } from './functions.js';
import { Grid } from './grid.js';
import { count, of, span } from './words.js';

const COLUMNS = [
  { title: 'unit', text: row => String(row.unit), order: row => row.unit },
  { title: 'function', text: row => row.function },
  { title: 'version', number: true, text: row => count(row.version), order: row => row.version },
  { title: 'class', text: row => row.isolation },
  { title: 'age', number: true, text: row => span(row.age_ms), order: row => row.age_ms },
  { title: 'calls', number: true, text: row => count(row.calls), order: row => row.calls },
  { title: 'serves', text: row => row.request_id ?? 'waits', tone: row => row.request_id ? '' : 'faint' },
];

function open() {
  const grid = new Grid({
    label: 'Units', columns: COLUMNS, link: row => `#/functions/${encodeURIComponent(row.function)}`, key: row => row.unit,
    empty: 'No unit exists now: most live for one call, within microseconds.',
  });
  const title = h('h1', {});
  const classes = h('dl', { class: 'facts across' });
  const element = h('div', { class: 'view' }, h('section', { class: 'card' }, title, classes, grid.element));

  function draw() {
    const { units, node, closed } = state;
    put(title, closed.units ? `Units: ${closed.units}` : of(units.length, 'unit'));
    const each = (node?.isolation ?? []).map(one => [one, units.filter(unit => unit.isolation === one)]);
    list(classes, [...each.map(([one, all]) => [one, `${count(all.length)}, ${count(all.filter(unit => unit.request_id).length)} at work`]),
      ['at most', count(node?.units_max)]], ([word, text]) => [h('div', {}, h('dt', {}, word), h('dd', {}, text))]);
    grid.set(units);
  }
  return { element, draws: [draw], parts: ['units'] };
}

export const units = { title: 'Units', open };
