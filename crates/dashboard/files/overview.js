// The node at a glance: its totals with the last hour, what needs attention, and who is busiest.

import { age, state, totals } from './data.js';
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

  function draw() {
    const now = totals();
    for (const { name, words, spark, value, element } of tiles) {
      put(value, words(now[name]));
      spark.draw([...state.hour[name] ?? [], now[name]]);
      mark(element, 'data-tone', (name === 'dead' || name === 'errors') && now[name] > 0 ? 'bad' : undefined);
    }
    remark(notes);
    map.draw();
    const byCalls = [...state.stats].sort((a, b) => (state.calls.get(b.function) ?? 0) - (state.calls.get(a.function) ?? 0) || b.calls - a.calls);
    busiest.set(byCalls.slice(0, ROWS));
    const byLength = [...state.queues].sort((a, b) => b.dead - a.dead || b.ready + b.leased - a.ready - a.leased || b.pushed - a.pushed);
    fullest.set(byLength.slice(0, ROWS));
    put(more.functions, state.stats.length > ROWS ? `all ${count(state.stats.length)}` : 'all');
    put(more.queues, state.queues.length > ROWS ? `all ${count(state.queues.length)}` : 'all');
  }
  return { element, draw };
}

/** Sentences on what somebody should look at. Their elements are made anew only when they change. */
function remark(list) {
  const { node, queues, stats } = state;
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
  for (const one of stats) {
    const speed = state.errors.get(one.function) ?? 0;
    if (speed > 0) notes.push(['bad', `${one.function} fails: ${rate(speed)} errors/s, ${of(one.errors, 'error')} since the start.`, `#/functions/${encodeURIComponent(one.function)}`]);
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
