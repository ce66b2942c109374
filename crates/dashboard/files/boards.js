// Boards: machines that run our kernel and nothing else.

import { state } from './data.js';
import { h, put } from './dom.js';
import { Grid } from './grid.js';
import { bytes, count, of, span } from './words.js';

const TONES = { attested: 'good', distrusted: 'bad', silent: 'bad', heard: 'warn', unknown: 'faint' };
const COLUMNS = [
  { title: 'board', text: row => row.name },
  { title: 'state', text: row => row.state, tone: row => TONES[row.state] },
  { title: 'machine', text: row => row.machine },
  { title: 'address', text: row => row.address ?? '–' },
  { title: 'heard', number: true, text: row => row.heard_ms_ago === null || row.heard_ms_ago === undefined ? '–' : `${span(row.heard_ms_ago)} ago`, order: row => row.heard_ms_ago },
  { title: 'free', number: true, text: row => row.memory_bytes ? `${bytes(row.free_bytes ?? 0)} of ${bytes(row.memory_bytes)}` : '–', order: row => row.free_bytes },
  { title: 'up', number: true, text: row => span(row.uptime_ms), order: row => row.uptime_ms },
  { title: 'calls', number: true, text: row => count(row.runs), order: row => row.runs },
  { title: 'kernel', text: row => row.kernel ?? '–' },
  { title: 'why', wide: true, text: row => row.detail ?? '' },
];

function open() {
  const grid = new Grid({ label: 'Boards', columns: COLUMNS, key: row => row.id, empty: 'No board was heard: lighter up --boards listens for their beacons.' });
  const title = h('h1', {});
  const element = h('div', { class: 'view' }, h('section', { class: 'card' }, title, grid.element));
  function draw() {
    put(title, state.closed.boards ? `Boards: ${state.closed.boards}` : of(state.boards.length, 'board'));
    grid.set(state.boards);
  }
  return { element, draws: [draw], parts: ['boards'] };
}

export const boards = { title: 'Boards', open };
