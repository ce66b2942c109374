// Functions: how often, how fast and how well they run; of one its versions, its times and its errors.

import { get, named, post } from './client.js';
import { functionOf, may, queueOf, state } from './data.js';
import { ask, h, mark, put, say, s } from './dom.js';
import { draw } from './frames.js';
import { Grid } from './grid.js';
import { bytes, count, micros, of, rate, stamp } from './words.js';

const link = row => `#/functions/${encodeURIComponent(row.function)}`;
const speed = row => state.calls.get(row.function) ?? 0;
const fails = row => state.errors.get(row.function) ?? 0;
const held = row => row.queue ? queueOf(row.queue) : undefined;
const waits = row => row.waiting + (held(row)?.ready ?? 0) + (held(row)?.delayed ?? 0);

const COLUMNS = [
  { title: 'function', text: row => row.function },
  { title: 'calls/s', number: true, text: row => rate(speed(row)), order: speed, tone: row => speed(row) > 0 ? 'busy' : 'faint' },
  { title: 'running', number: true, text: row => count(row.running), order: row => row.running, tone: row => row.running ? '' : 'faint' },
  { title: 'waiting', number: true, text: row => count(waits(row)), order: waits, tone: row => waits(row) ? '' : 'faint' },
  { title: 'p50', number: true, text: row => row.calls ? micros(row.p50_us) : '–', order: row => row.p50_us },
  { title: 'p99', number: true, text: row => row.calls ? micros(row.p99_us) : '–', order: row => row.p99_us },
  { title: 'errors', number: true, text: row => count(row.errors), order: row => row.errors, tone: row => fails(row) ? 'bad' : row.errors ? '' : 'faint' },
  { title: 'dead', number: true, text: row => held(row) ? count(held(row).dead) : '–', order: row => held(row)?.dead ?? -1, tone: row => held(row)?.dead ? 'bad' : 'faint' },
];

const MORE = [
  { title: 'calls', number: true, text: row => count(row.calls), order: row => row.calls },
  { title: 'version', number: true, text: row => count(row.version), order: row => row.version },
  { title: 'class', text: row => row.isolation },
];

/** A table of functions; the rows are statistics. */
export const functionsGrid = ({ label, keep }) => new Grid({
  label, keep, link, key: row => row.function, columns: keep ? COLUMNS : [...COLUMNS, ...MORE], given: true,
  empty: 'No function is deployed: lighter new hello && lighter deploy --build hello',
});

function open() {
  const grid = functionsGrid({ label: 'Functions' });
  const search = h('input', { type: 'search', placeholder: 'Filter by name  ( / )', 'aria-label': 'Filter by name', on: { input: () => draw(rows) } });
  const title = h('span', {});
  const detail = new Detail();
  const element = h('div', { class: 'view split' },
    h('section', { class: 'card' }, h('h1', {}, title, search), grid.element), detail.element);
  let chosen = '';

  function rows() {
    const word = search.value.trim().toLowerCase();
    const found = word ? state.stats.filter(row => row.function.includes(word)) : state.stats;
    put(title, word ? `${count(found.length)} of ${of(state.stats.length, 'function')}` : of(state.stats.length, 'function'));
    grid.chosen = chosen || undefined;
    grid.set(found);
    mark(element, 'data-detail', chosen ? 'open' : undefined);
  }
  return { element, draws: [rows, () => detail.draw(chosen)], choose: name => { chosen = name; }, focus: () => chosen };
}

/** Times of a function: a band from the median to the slowest, on a scale of powers of ten. */
class Times {
  constructor() {
    this.rows = [['total', 'all'], ['queue', 'queue'], ['start', 'start'], ['run', 'run']].map(([part, title]) => {
      const band = s('rect', { class: 'band', y: 5, height: 6, rx: 3 });
      const marks = ['p50', 'p90', 'p99', 'max'].map(one => s('rect', { class: `tick ${one}`, y: 2, width: 2, height: 12 }));
      const text = h('td', {});
      const drawing = s('svg', { class: 'times', viewBox: '0 0 300 16', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, band, marks);
      return { part, band, marks, text, element: h('tr', {}, h('th', { scope: 'row' }, title), h('td', {}, drawing), text) };
    });
    this.element = h('table', { class: 'latency', 'aria-label': 'Times: median, nine in ten, 99 in 100, slowest' },
      h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'part'), h('th', { scope: 'col' }, '1 µs to 100 s'), h('th', { scope: 'col' }, 'p50 · p90 · p99 · max'))),
      h('tbody', {}, this.rows.map(row => row.element)));
  }

  draw(stats) {
    for (const { part, band, marks, text } of this.rows) {
      const times = stats[`${part}_us`];
      const all = [times.p50, times.p90, times.p99, times.max];
      put(text, stats.calls ? all.map(micros).join(' · ') : '–');
      mark(band, 'x', place(all[0]).toFixed(1));
      mark(band, 'width', Math.max(0, place(all[3]) - place(all[0])).toFixed(1));
      all.forEach((us, at) => mark(marks[at], 'x', (place(us) - 1).toFixed(1)));
    }
  }
}

/** How the times of a function are spread: a bar for each bucket, on the same scale. */
class Spread {
  constructor() {
    this.bars = s('g', {});
    this.element = h('figure', { class: 'spread' }, s('svg', { viewBox: '0 0 300 44', preserveAspectRatio: 'none', role: 'img', 'aria-label': 'How many calls took how long' }, this.bars),
      h('figcaption', { class: 'faint' }, ['1 µs', '100 µs', '10 ms', '1 s', '100 s'].map(text => h('span', {}, text))));
  }

  draw(histogram) {
    this.element.hidden = !histogram.length;
    const most = Math.max(...histogram.map(([, calls]) => calls));
    list(this.bars, histogram, ([us, calls]) => {
      const from = place(us), to = place(next(us));
      const height = 3 + 39 * Math.sqrt(calls / most);
      return [s('rect', { x: from.toFixed(1), width: Math.max(0.8, to - from - 0.4).toFixed(1), y: (44 - height).toFixed(1), height: height.toFixed(1) },
        s('title', {}, `${of(calls, 'call')} of ${micros(us)} to ${micros(next(us))}`))];
    });
  }
}

const place = us => 300 * Math.min(1, Math.max(0, Math.log10(Math.max(us, 1)) / 8));
/** Where the next of eight buckets for each doubling begins. */
const next = us => us < 16 ? us + 1 : us + 2 ** (Math.floor(Math.log2(us)) - 3);

class Detail {
  constructor() {
    this.title = h('span', {});
    this.facts = h('dl', { class: 'facts' });
    this.times = new Times();
    this.spread = new Spread();
    this.errors = h('ul', { class: 'errors' });
    this.versions = new Grid({
      label: 'Versions', keep: true, pick: row => this.back(row),
      columns: [
        { title: 'version', text: row => `${row.version}${row.current ? ' (takes calls)' : ''}` },
        { title: 'deployed', text: row => stamp(row.deployed_ms) },
        { title: 'image', text: row => `${row.image.slice(0, 12)} · ${bytes(row.image_bytes)}` },
      ],
    });
    this.log = h('a', {}, 'its log');
    this.element = h('section', { class: 'card detail', 'aria-label': 'The function' },
      h('h1', {}, this.title, h('a', { href: '#/functions', class: 'close', 'aria-label': 'Close' }, '×')),
      this.facts, h('h2', { class: 'part' }, 'Times'), this.times.element, this.spread.element, h('h2', { class: 'part' }, 'Errors'), this.errors,
      h('h2', { class: 'part' }, 'Versions'), this.versions.element, h('p', { class: 'links' }, this.log));
  }

  draw(name) {
    this.element.hidden = !name;
    put(this.title, name);
    const row = functionOf(name);
    if (!row) return;
    this.read(row);
    const stats = state.times?.function === name ? state.times : undefined;
    const about = this.about?.name === name ? this.about : undefined;
    mark(this.log, 'href', `#/logs/${encodeURIComponent(name)}`);
    if (stats) {
      this.times.draw(stats);
      this.spread.draw(stats.histogram);
    }
    const queue = held(row);
    const facts = [
      ['calls', `${count(row.calls)}, ${rate(speed(row))}/s`], ['now', `${count(row.running)} running, ${count(row.waiting)} waiting`],
      ['class', row.isolation], ['contract', about?.contract],
      ['routes', about?.urls.join('  ')], ['triggers', about?.triggers.join('  ')],
      ['queue', queue && `${queue.name}: ${count(queue.ready + queue.delayed)} waiting, ${count(queue.dead)} dead, ${of(queue.handler?.workers ?? 0, 'worker')}`],
    ].filter(([, text]) => text);
    list(this.facts, facts, ([word, text]) => [h('dt', {}, word), h('dd', {}, text)]);
    const errors = Object.entries(stats?.errors ?? {}).sort(([, a], [, b]) => b - a);
    list(this.errors, errors.length ? errors : [['none since the start', '']], ([code, number]) => [h('li', {}, h('b', {}, code), number && ` ${count(number)}`)]);
    this.versions.set((about?.versions ?? []).map(one => ({ ...one, current: one.version === about.version })));
  }

  /** Asks for what only a deployment changes. */
  async read({ function: name, version }) {
    const key = `${name} ${version} ${state.deployed}`;
    if (this.key === key) return;
    this.key = key;
    this.name = name;
    try { this.about = await get(named('functions', name)); } catch { this.key = undefined; return; }
    this.draw(this.name);
  }

  async back({ version, current }) {
    const { name } = this;
    if (current) return;
    if (!may('deploy')) return say('going back needs a token with the scope deploy', 'bad');
    const sure = await ask({
      title: `Go back to version ${version} of ${name}?`, text: 'Calls that run end on the version they began with.',
      command: `lighter rollback ${name} --to ${version}`, word: `Go back to ${version}`,
    });
    if (!sure) return;
    try {
      await post(named('functions', name, '/rollback'), { version });
      say(`${name} is at version ${version}`);
    } catch (error) { say(error.message, 'bad'); }
  }
}

/** Makes the children of an element anew when what they show has changed. */
export function list(element, rows, make) {
  const key = JSON.stringify(rows);
  if (element.key === key) return;
  element.key = key;
  element.replaceChildren(...rows.flatMap(make));
}

export const functions = { title: 'Functions', open };
