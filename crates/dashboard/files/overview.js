// The node at a glance: its totals with the last hour, what needs attention, and who is busiest.

import { age, functionOf, state, totals } from './data.js';
import { Spark, h, mark, put } from './dom.js';
import { functionsGrid } from './functions.js';
import { Flow } from './map.js';
import { queuesGrid } from './queues.js';
import { bytes, count, of, rate, span } from './words.js';

const TILES = [
  ['calls', 'calls/s', rate], ['errors', 'errors/s', rate], ['acked', 'events/s', rate], ['waiting', 'events waiting', count],
  ['dead', 'dead letters', count], ['units', 'units', count], ['memory_bytes', 'memory', bytes],
];

/** Rows of a table here; its own view shows them all. */
const ROWS = 8;

const idle = [];

/** The heaviest rows, the first before others that weigh the same; without sorting all. */
function heaviest(rows, weigh) {
  const found = [];
  for (const row of rows) {
    const weight = weigh(row);
    if (found.length === ROWS && weight <= found[ROWS - 1].weight) continue;
    const at = found.findIndex(one => one.weight < weight);
    found.splice(at < 0 ? found.length : at, 0, { row, weight });
    found.length = Math.min(found.length, ROWS);
  }
  return found.map(one => one.row);
}

/** What is counted decides where rates are the same, and is never as much as one of the least rates. */
const SMALL = 1e-12;
const busy = row => row.calls && (state.calls.get(row.function) ?? 0) + row.calls * SMALL;
const full = row => row.dead * 1e9 + row.ready + row.leased + row.pushed * SMALL;

function open() {
  const tiles = TILES.map(([name, title, words]) => {
    const spark = new Spark(`${title}, the last hour`);
    const value = h('b', {});
    return { name, words, spark, value, element: h('div', { class: 'tile' }, h('dt', {}, title), h('dd', {}, value, spark.element)) };
  });
  const notes = h('ul', { class: 'notes' });
  const map = new Flow();
  const busiest = functionsGrid({ label: 'Busiest functions', keep: true });
  const fullest = queuesGrid({ label: 'Fullest queues', keep: true });
  const more = { functions: h('a', { href: '#/functions' }), queues: h('a', { href: '#/queues' }) };
  const element = h('div', { class: 'view' },
    h('h1', { class: 'unseen' }, 'Overview'),
    h('dl', { class: 'tiles' }, tiles.map(tile => tile.element)),
    h('section', { class: 'card attention', 'aria-label': 'Needs attention' }, notes),
    map.element,
    h('div', { class: 'pair' },
      h('section', { class: 'card' }, h('h2', {}, 'Busiest functions', more.functions), busiest.element),
      h('section', { class: 'card' }, h('h2', {}, 'Queues', more.queues), fullest.element)));

  function numbers() {
    const now = totals();
    for (const { name, words, spark, value, element } of tiles) {
      put(value, words(now[name]));
      spark.draw(state.hour[name] ?? idle, now[name]);
      mark(element, 'data-tone', (name === 'dead' || name === 'errors') && now[name] > 0 ? 'bad' : undefined);
    }
  }

  function functions() {
    busiest.set(heaviest(state.stats, busy));
    put(more.functions, state.stats.length > ROWS ? `all ${count(state.stats.length)}` : 'all');
  }

  function queues() {
    fullest.set(heaviest(state.queues, full));
    put(more.queues, state.queues.length > ROWS ? `all ${count(state.queues.length)}` : 'all');
  }
  return { element, draws: [numbers, () => remark(notes), () => map.draw(), functions, queues] };
}

/** Sentences on what somebody should look at. Their elements are made anew only when they change. */
function remark(list) {
  const { node, queues } = state;
  if (!node) return;
  const notes = [];
  if (node.queues_paused) notes.push(['warn', `The queues are paused, because ${node.queues_paused}.`, '#/queues']);
  for (const { protection, why } of node.missing_protections) notes.push(['warn', `Process units lack the protection ${protection}: ${why}`, '#/node']);
  for (const queue of queues) {
    const link = `#/queues/${encodeURIComponent(queue.name)}`;
    if (queue.handler?.ended) notes.push(['bad', `The workflow of ${queue.handler.name} has ended: ${queue.handler.ended}`, link]);
    if (queue.dead > 0) notes.push(['bad', `${queue.name} has ${of(queue.dead, 'dead letter')}.`, link]);
    if (queue.damaged > 0) notes.push(['bad', `${of(queue.damaged, 'event')} of ${queue.name} cannot be read from the disk.`, link]);
    if (!queue.handler && queue.ready > 0) notes.push(['warn', `Nothing handles ${queue.name}, where ${of(queue.ready, 'event')} wait${queue.ready === 1 ? 's' : ''}.`, link]);
    if (age(queue) > 60000 && queue.handler) notes.push(['warn', `The oldest event of ${queue.name} has waited for ${span(age(queue))}.`, link]);
  }
  for (const [name, speed] of state.errors) {
    if (speed > 0) notes.push(['bad', `${name} fails: ${rate(speed)} errors/s, ${of(functionOf(name).errors, 'error')} since the start.`, `#/functions/${encodeURIComponent(name)}`]);
  }
  const shown = notes.slice(0, 6);
  const key = JSON.stringify(shown) + notes.length;
  if (list.key === key) return;
  list.key = key;
  list.replaceChildren(...shown.map(([tone, text, link]) => h('li', { class: tone }, h('a', { href: link }, text))));
  if (!notes.length) list.append(h('li', { class: 'good' }, 'Nothing needs attention.'));
  if (notes.length > shown.length) list.append(h('li', {}, `and ${count(notes.length - shown.length)} more`));
}

export const overview = { title: 'Overview', open };
