// Where devices ran their calls: what they had expected, and what it took.

import { state } from './data.js';
import { h, put, s } from './dom.js';
import { list } from './functions.js';
import { Grid } from './grid.js';
import { clock, count, micros, of } from './words.js';

const WHY = { only: 'the only place', best: 'expected to finish first', kept: 'chosen before', explored: 'tried, to know it better', raced: 'both at once', deadline: 'to meet the deadline' };
/** How many times as long, or as short, as expected. */
const off = row => Math.max(row.actual_us, 1) / Math.max(row.predicted_us, 1);
/** What it took beyond what the other place was expected to take; less than 0 is won. */
const lost = row => row.other_us === undefined ? 0 : row.actual_us - row.other_us;
const signed = us => `${us < 0 ? '−' : ''}${micros(Math.abs(us))}`;

const COLUMNS = [
  { title: 'ended', text: row => clock(row.time_ms), order: row => row.time_ms },
  { title: 'device', text: row => row.device },
  { title: 'function', text: row => row.function },
  { title: 'ran at', text: row => row.place },
  { title: 'expected', number: true, text: row => micros(row.predicted_us), order: row => row.predicted_us },
  { title: 'took', number: true, text: row => micros(row.actual_us), order: row => row.actual_us },
  { title: 'off by', number: true, text: row => `× ${off(row).toFixed(2)}`, order: row => Math.abs(Math.log(off(row))), tone: row => Math.abs(Math.log2(off(row))) > 1 ? 'warn' : '' },
  { title: 'other place', text: row => row.other === undefined ? '–' : `${row.other}: ${micros(row.other_us)}`, order: row => row.other_us ?? -1 },
  { title: 'why', wide: true, text: row => WHY[row.why] ?? row.why },
];

const BY = [
  { title: 'function', text: row => row.name },
  { title: 'calls', number: true, text: row => count(row.calls), order: row => row.calls },
  { title: 'at a node', number: true, text: row => `${Math.round(100 * row.away / row.calls)} %`, order: row => row.away / row.calls },
  { title: 'within a factor of 2', number: true, text: row => `${Math.round(100 * row.near / row.calls)} %`, order: row => row.near / row.calls },
  { title: 'lost to the other place', number: true, text: row => signed(row.lost), order: row => row.lost, tone: row => row.lost > 0 ? 'warn' : 'good' },
];

const SIZE = 260;
/** 10 µs to 100 s. */
const place = us => SIZE * Math.min(1, Math.max(0, (Math.log10(Math.max(us, 1)) - 1) / 7));

function open() {
  const title = h('span', {});
  const dots = s('g', {});
  const drawing = s('svg', { class: 'plot', viewBox: `-4 -4 ${SIZE + 8} ${SIZE + 8}`, role: 'img', 'aria-label': 'What calls took, by what they were expected to take; on the line both are the same' },
    s('rect', { class: 'frame', width: SIZE, height: SIZE }), s('line', { x1: 0, y1: SIZE, x2: SIZE, y2: 0 }), dots);
  const note = h('p', { class: 'note faint' });
  const by = new Grid({ label: 'Decisions by function', columns: BY, key: row => row.name, sort: 1, down: true });
  const grid = new Grid({ label: 'Decisions', columns: COLUMNS, down: true, empty: 'No device has told of its calls: lighterage.report() in Python, or LIGHTERAGE_REPORT=1.' });
  const element = h('div', { class: 'view' }, h('section', { class: 'card' }, h('h1', {}, title), note,
    h('div', { class: 'pair' }, h('figure', { class: 'plotted' }, drawing, h('figcaption', { class: 'faint' }, 'expected →  took ↑, 10 µs to 100 s; below the line it was sooner')), by.element), grid.element));

  function draw() {
    const { decisions, told, left_out } = state.decisions;
    put(title, state.closed.decisions ? `Offloading: ${state.closed.decisions}` : of(decisions.length, 'decision'));
    put(note, `${count(told)} told since the node started${left_out ? `, ${count(left_out)} left out by devices` : ''}`);
    list(dots, decisions, row => [s('circle', { class: row.place === 'local' ? 'here' : 'there', cx: place(row.predicted_us).toFixed(1), cy: (SIZE - place(row.actual_us)).toFixed(1), r: 2.5 })]);
    const names = new Map();
    for (const row of decisions) {
      const sum = names.get(row.function) ?? { name: row.function, calls: 0, away: 0, near: 0, lost: 0 };
      sum.calls += 1;
      sum.away += row.place !== 'local';
      sum.near += Math.abs(Math.log2(off(row))) <= 1;
      sum.lost += lost(row);
      names.set(row.function, sum);
    }
    drawing.parentElement.parentElement.hidden = !decisions.length;
    by.set([...names.values()]);
    grid.set(decisions);
  }
  return { element, draws: [draw], parts: ['decisions'] };
}

export const decisions = { title: 'Offloading', open };
