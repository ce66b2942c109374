// Events: the newest handlings, those that failed, and one event followed through all its tries and what it set off.

import { get } from './client.js';
import { may } from './data.js';
import { choices, h, mark, put } from './dom.js';
import { Grid } from './grid.js';
import { clock, count, micros, of, span } from './words.js';

const LIMIT = 500;
const TONES = { done: 'good', retry: 'warn', dead: 'bad', postponed: 'warn', lost: 'warn' };

const COLUMNS = [
  { title: 'event', text: row => row.id },
  { title: 'began', text: row => clock(row.began_ms) },
  { title: 'queue', text: row => row.queue },
  { title: 'by', text: row => row.function ? `${row.function} v${row.version}` : '–' },
  { title: 'try', number: true, text: row => count(row.attempt) },
  { title: 'waited', number: true, text: row => span(Math.max(0, row.began_ms - row.pushed_ms)) },
  { title: 'took', number: true, text: row => micros(row.total_us) },
  { title: 'outcome', text: row => row.outcome, tone: row => TONES[row.outcome] },
  { title: 'why', wide: true, text: row => row.reason ?? '' },
];

const hash = id => `#/events/${encodeURIComponent(id)}`;

function open() {
  let chosen = '';
  let which = 'all';
  const title = h('span', {});
  const note = h('p', { class: 'note faint' });
  const grid = new Grid({ label: 'Handlings', columns: COLUMNS, keep: true, link: row => hash(row.id), key: row => `${row.queue} ${row.sequence} ${row.attempt}`, empty: 'No handling is known: the node remembers the last ones since its start.' });
  const find = h('input', { type: 'search', placeholder: 'Id of an event  ( / )', 'aria-label': 'Id of an event', on: { change: () => { location.hash = find.value.trim() ? hash(find.value.trim()) : '#/events'; } } });
  const parts = choices('Which handlings', [['all', 'newest'], ['failed', 'failed']], which, one => { which = one; load(); });
  const look = h('button', { type: 'button', on: { click: () => load() } }, 'Look again');
  const back = h('a', { href: '#/events', class: 'close' }, 'all handlings');
  const trail = h('ol', { class: 'trail', 'aria-label': 'The event, handling by handling' });
  const element = h('div', { class: 'view' }, h('section', { class: 'card tall' }, h('h1', {}, title, find, parts, look, back), note, trail, grid.element));

  async function load() {
    const id = chosen;
    const query = id ? `id=${encodeURIComponent(id)}` : `limit=${LIMIT}${which === 'failed' ? '&failed=true' : ''}`;
    let rows = [];
    let trouble = '';
    try { rows = await get(`events?${query}`); } catch (error) { trouble = error.message; }
    if (id !== chosen) return;
    put(title, id ? `Event ${id}` : of(rows.length, 'handling'));
    put(note, may('deploy') || !trouble ? trouble : 'following events needs a token with the scope deploy');
    note.hidden = !note.shown;
    parts.hidden = Boolean(id);
    back.hidden = trail.hidden = !id;
    grid.set(rows);
    if (id) tell(rows);
  }

  /** Bars of all handlings on one scale of time: waiting, and being handled. */
  function tell(rows) {
    const from = Math.min(...rows.map(row => row.pushed_ms));
    const until = Math.max(from + 1, ...rows.map(row => row.began_ms + row.total_us / 1000));
    const part = ms => `${(100 * Math.min(1, Math.max(0, (ms - from) / (until - from)))).toFixed(2)}%`;
    trail.replaceChildren(...rows.map(row => {
      const waited = h('span', { class: 'waited' });
      const took = h('span', { class: `took ${TONES[row.outcome]}` });
      waited.style.left = part(row.pushed_ms);
      waited.style.right = `calc(100% - ${part(row.began_ms)})`;
      took.style.left = part(row.began_ms);
      took.style.right = `calc(100% - ${part(row.began_ms + row.total_us / 1000)})`;
      const times = row.run_us === undefined ? '' : `, of it turn ${micros(row.queue_us)}, start ${micros(row.start_us)}, run ${micros(row.run_us)}`;
      const again = row.again_ms ? `, again after ${span(row.again_ms - row.began_ms)}` : '';
      return h('li', {}, h('p', {}, h('b', {}, row.queue), ` try ${row.attempt}`, row.function && ` by ${row.function} v${row.version}`,
        row.pushed_by && [', pushed by ', h('a', { href: hash(row.pushed_by) }, row.pushed_by)], ': ', h('span', { class: TONES[row.outcome] }, row.outcome),
        ` after ${micros(row.total_us)}${times}${again}`), h('div', { class: 'bar', 'aria-hidden': 'true' }, waited, took), row.reason && h('p', { class: 'bad' }, row.reason));
    }));
  }

  return {
    element, draws: [],
    choose(id) { chosen = id; mark(element, 'data-id', id || undefined); find.value = id; load(); },
  };
}

export const events = { title: 'Events', open };
