// Logs: what functions wrote, as it comes, filtered by function, level and text.

import { lines, named } from './client.js';
import { may, state } from './data.js';
import { choices, h, put } from './dom.js';
import { Grid } from './grid.js';
import { clock, count } from './words.js';

/** Lines kept here; the oldest go. */
const KEPT = 5000;
const LEVELS = ['trace', 'debug', 'info', 'warn', 'error'];
const TONES = { trace: 'faint', debug: 'faint', warn: 'warn', error: 'bad' };

const COLUMNS = [
  { title: 'time', text: row => clock(row.time_ms) },
  { title: 'level', text: row => row.level, tone: row => TONES[row.level] },
  { title: 'function', text: row => row.function },
  { title: 'message', wide: true, text: row => row.message },
];

function open() {
  let all = [];
  let name = '';
  let level = 'trace';
  let ending;
  let trouble;
  const whole = h('pre', { class: 'whole', hidden: true, tabindex: 0, 'aria-label': 'The whole line' });
  const grid = new Grid({ label: 'Log', columns: COLUMNS, keep: true, pick: read, key: row => `${row.function} ${row.sequence}`, empty: 'No line yet.' });
  const search = h('input', { type: 'search', placeholder: 'Filter by text  ( / )', 'aria-label': 'Filter by text', on: { input: draw } });
  const from = h('select', { 'aria-label': 'Function', on: { change: () => { location.hash = from.value ? `#/logs/${encodeURIComponent(from.value)}` : '#/logs'; } } });
  const note = h('span', { class: 'faint' });
  const element = h('div', { class: 'view' }, h('section', { class: 'card tall' },
    h('h1', {}, 'Log', from, choices('Least level', LEVELS.map(one => [one, one]), level, one => { level = one; draw(); }), search, note), grid.element, whole));

  function read(line) {
    grid.chosen = grid.key(line);
    whole.hidden = false;
    put(whole, `${new Date(line.time_ms).toISOString()}  ${line.level}  ${line.function} version ${line.version}, unit ${line.unit}, ${line.stream}\nrequest ${line.request_id}\n\n${line.message}`);
    grid.draw();
  }

  /** Follows until another function is chosen or the view is left; begins again after the node was away. */
  async function follow() {
    ending?.abort();
    const mine = ending = new AbortController();
    all = [];
    while (!mine.signal.aborted) {
      try {
        trouble = undefined;
        all = [];
        await lines(named('functions', name || '-', '/logs?follow=true&tail=500'), mine.signal, line => {
          if (state.frozen) return;
          all.push(line);
          if (all.length > KEPT) all.splice(0, KEPT / 10);
          soon();
        });
      } catch (error) {
        if (mine.signal.aborted) return;
        trouble = error.message;
        draw();
      }
      await new Promise(done => setTimeout(done, 1000));
    }
  }

  let due = false;
  function soon() {
    if (due) return;
    due = true;
    setTimeout(() => { due = false; draw(); }, 200);
  }

  function draw() {
    const names = ['', ...state.stats.map(one => one.function)];
    if (from.length !== names.length) {
      from.replaceChildren(...names.map(one => h('option', { value: one }, one || 'all functions')));
      from.value = name;
    }
    const least = LEVELS.indexOf(level);
    const word = search.value.trim().toLowerCase();
    const rows = all.filter(line => LEVELS.indexOf(line.level) >= least && (!word || line.message.toLowerCase().includes(word) || line.request_id.includes(word)));
    put(note, !may('deploy') && state.node ? 'reading logs needs a token with the scope deploy' : trouble ?? `${count(rows.length)} lines`);
    grid.set(rows);
    grid.follow();
  }

  return {
    element, draws: [draw], close: () => ending.abort(),
    choose(given) { if (given !== name || !ending) { name = given; from.value = name; follow(); } },
  };
}

export const logs = { title: 'Log', open };
