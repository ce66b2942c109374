// The node itself: what it is, what its token here may do, and who did what (for an admin).

import { dropToken } from './first.js';
import { may, state } from './data.js';
import { h } from './dom.js';
import { list } from './functions.js';
import { Grid } from './grid.js';
import { bytes, count, span, stamp } from './words.js';

const COLUMNS = [
  { title: 'time', text: row => stamp(row.time_ms), order: row => row.time_ms },
  { title: 'what', text: row => row.action },
  { title: 'to', text: row => row.target, wide: true },
  { title: 'token', text: row => row.token ?? '–' },
  { title: 'from', text: row => row.peer ?? '–' },
  { title: 'outcome', text: row => row.outcome, tone: row => row.outcome === 'done' ? 'good' : 'bad' },
  { title: 'times', number: true, text: row => count(row.count), order: row => row.count },
];

const MAY = { look: 'look', work: 'take events of its queues', call: 'look and call', deploy: 'look, call, deploy and change queues', admin: 'everything' };

function open() {
  const facts = h('dl', { class: 'facts' });
  const grid = new Grid({ label: 'Audit', columns: COLUMNS, down: true, empty: 'Nothing was done yet.' });
  const audit = h('section', { class: 'card' }, h('h2', {}, 'Who did what'), grid.element);
  const leave = h('button', { type: 'button', on: { click: () => { dropToken(); location.reload(); } } }, 'Forget the token');
  const element = h('div', { class: 'view' }, h('section', { class: 'card' }, h('h1', {}, 'Node'), facts, h('div', { class: 'buttons' }, leave)), audit);

  function draw() {
    const { node, token } = state;
    if (!node) return;
    list(facts, [
      ['version', node.version], ['gate', node.gate], ['data folder', node.data_folder], ['up', span(node.uptime_seconds * 1000)],
      ['machine', `${node.architecture}, ${count(node.cores)} processors`], ['memory', bytes(node.rss_bytes)],
      ['classes', node.isolation.join(', ')], ['units', `${count(node.units_running)} of ${count(node.units_max)}`],
      ['engine', node.engine],
      ['Python', node.python && `${node.python.version}, numpy ${node.python.numpy}`],
      ['not protected', node.missing_protections.map(one => `${one.protection}: ${one.why}`).join(' · ')],
      ['this token', token && `${token.name} may ${MAY[token.scope]}${token.expires_ms ? `, until ${stamp(token.expires_ms)}` : ''}`],
    ].filter(([, text]) => text), ([word, text]) => [h('dt', {}, word), h('dd', {}, text)]);
    audit.hidden = !may('admin');
    grid.set(state.audit);
  }
  return { element, draws: [draw], parts: ['audit'] };
}

export const about = { title: 'Node', open };
