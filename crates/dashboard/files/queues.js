// Queues: what waits where, and the events of one, dead letters above all. Looking changes nothing.

import { get, named, post, send } from './client.js';
import { again, age, may, queueOf, state } from './data.js';
import { ask, choices, h, mark, put, say } from './dom.js';
import { list } from './functions.js';
import { Grid } from './grid.js';
import { Payload } from './payload.js';
import { bytes, clock, count, of, rate, span, stamp } from './words.js';

const link = row => `#/queues/${encodeURIComponent(row.name)}`;
const faint = number => number ? '' : 'faint';

/** Events of one page. */
const PAGE = 200;
const PARTS = [['ready', 'ready'], ['delayed', 'delayed'], ['dead', 'dead letters']];

function handler({ handler, paused }) {
  if (!handler) return paused ? 'none, paused' : 'none';
  const is = handler.ended ? ', ended' : paused || handler.workers_max === 0 ? ', paused' : '';
  return `${handler.kind} ${handler.name}${is}`;
}

const COLUMNS = [
  { title: 'queue', text: row => row.name },
  { title: 'ready', number: true, text: row => count(row.ready), order: row => row.ready, tone: row => faint(row.ready) },
  { title: 'delayed', number: true, text: row => count(row.delayed), order: row => row.delayed, tone: row => faint(row.delayed) },
  { title: 'leased', number: true, text: row => count(row.leased), order: row => row.leased, tone: row => faint(row.leased) },
  { title: 'dead', number: true, text: row => count(row.dead), order: row => row.dead, tone: row => row.dead ? 'bad' : 'faint' },
  { title: 'oldest', number: true, text: row => span(age(row)), order: row => age(row) ?? -1, tone: row => faint(age(row)) },
  { title: 'in/s', number: true, text: row => rate(state.pushed.get(row.name)), order: row => state.pushed.get(row.name), tone: row => state.pushed.get(row.name) ? 'busy' : 'faint' },
  { title: 'done/s', number: true, text: row => rate(state.acked.get(row.name)), order: row => state.acked.get(row.name), tone: row => state.acked.get(row.name) ? 'busy' : 'faint' },
];

const MORE = [
  { title: 'handled by', text: handler, tone: row => row.handler?.ended ? 'bad' : row.paused ? 'warn' : '' },
  { title: 'workers', number: true, text: row => row.handler ? `${row.handler.workers}/${row.handler.workers_max}` : '–', order: row => row.handler?.workers ?? -1 },
  { title: 'bytes', number: true, text: row => bytes(row.bytes), order: row => row.bytes },
];

export const queuesGrid = ({ label, keep }) => new Grid({
  label, keep, link, key: row => row.name, columns: keep ? COLUMNS : [...COLUMNS, ...MORE], given: true,
  empty: 'There is no queue: a function gets one with queue = "NAME".',
});

function open() {
  const grid = queuesGrid({ label: 'Queues' });
  const title = h('span', {});
  const detail = new Detail();
  const element = h('div', { class: 'view split' }, h('section', { class: 'card' }, h('h1', {}, title), grid.element), detail.element);
  let chosen = '';
  function rows() {
    put(title, of(state.queues.length, 'queue'));
    grid.chosen = chosen || undefined;
    grid.set(state.queues);
    mark(element, 'data-detail', chosen ? 'open' : undefined);
  }
  return { element, draws: [rows, () => detail.draw(chosen)], choose: name => { chosen = name; detail.choose(name); } };
}

class Detail {
  constructor() {
    this.title = h('span', {});
    this.facts = h('dl', { class: 'facts across' });
    this.part = 'dead';
    this.pause = h('button', { type: 'button', on: { click: () => this.setPaused() } });
    this.look = h('button', { type: 'button', on: { click: () => this.load() } }, 'Look again');
    this.replay = h('button', { type: 'button', class: 'act', on: { click: () => this.replayAll() } });
    this.discard = h('button', { type: 'button', class: 'danger', on: { click: () => this.purge() } });
    this.filter = h('input', { type: 'search', placeholder: 'Filter by reason, as L6003  ( / )', 'aria-label': 'Filter by reason', on: { change: () => this.load() } });
    this.note = h('p', { class: 'note faint' });
    this.events = new Grid({
      label: 'Events', keep: true, pick: row => this.read(row), key: row => row.sequence, empty: 'No such events.',
      columns: [
        { title: 'number', text: row => String(row.sequence) },
        { title: 'type', text: row => String(row.event.type ?? '') },
        { title: 'time', text: row => clock(row.at_ms ?? row.pushed_ms) },
        { title: 'tries', number: true, text: row => count(row.tries) },
        { title: 'why', wide: true, text: row => row.reason ?? String(row.event.subject ?? '') },
      ],
    });
    this.payload = new Payload(this);
    this.parts = choices('Which events', PARTS, this.part, part => { this.part = part; this.load(); });
    this.element = h('section', { class: 'card detail', 'aria-label': 'The queue' },
      h('h1', {}, this.title, h('a', { href: '#/queues', class: 'close', 'aria-label': 'Close' }, '×')),
      this.facts, h('div', { class: 'tools' }, this.parts, this.filter, this.look, this.pause, this.replay, this.discard),
      this.note, this.events.element, this.payload.element);
  }

  choose(name) {
    if (name === this.name) return;
    this.name = name;
    this.payload.show(undefined);
    this.events.set([]);
    if (name) this.load();
  }

  /** A page of the events; that changes nothing in the queue. */
  async load() {
    const { name, part } = this;
    this.reason = part === 'dead' ? this.filter.value.trim() : '';
    this.seen = this.count();
    this.payload.show(undefined);
    try {
      const reason = this.reason && `&reason=${encodeURIComponent(this.reason)}`;
      const page = await get(named('queues', name, `/events?part=${part}&limit=${PAGE}${reason}`));
      if (name !== this.name || part !== this.part) return;
      this.events.chosen = undefined;
      this.events.set(page.events);
      this.trouble = '';
    } catch (error) {
      this.events.set([]);
      this.trouble = error.message;
    }
    this.draw(this.name);
  }

  queue() { return queueOf(this.name); }
  count() { return this.queue()?.[this.part]; }

  read(row) {
    this.events.chosen = row.sequence;
    this.events.draw();
    this.payload.show(row);
  }

  draw(name) {
    this.element.hidden = !name;
    put(this.title, name);
    const queue = this.queue();
    if (!queue) return;
    list(this.facts, [
      ['handled by', handler(queue)], ['ready', count(queue.ready)], ['delayed', count(queue.delayed)], ['leased', count(queue.leased)],
      ['dead', count(queue.dead)], ['oldest', span(age(queue))], ['pushed', count(queue.pushed)], ['acked', count(queue.acked)],
      ['tried again', count(queue.retried)], ['refused', count(queue.refused)],
    ], ([word, text]) => [h('div', {}, h('dt', {}, word), h('dd', {}, text))]);
    const mayChange = may('deploy');
    put(this.pause, queue.paused ? 'Resume the queue' : 'Pause the queue');
    this.pause.hidden = !mayChange;
    this.replay.hidden = !mayChange || this.part !== 'dead' || !queue.dead;
    this.discard.hidden = !mayChange || !queue[this.part];
    put(this.discard, this.reason ? 'Discard these' : 'Discard all');
    this.filter.hidden = this.part !== 'dead';
    put(this.replay, this.reason ? 'Replay these' : 'Replay all');
    const newer = this.seen !== undefined && this.count() !== this.seen ? 'The queue has changed since. ' : '';
    const shown = this.events.rows.length;
    const more = this.count() > shown && shown >= PAGE ? `The oldest ${PAGE} are shown. ` : '';
    put(this.note, this.trouble || `${newer}${more}`);
    this.note.hidden = !this.note.shown;
  }

  async change(question, act) {
    if (!await ask(question)) return;
    try { say(await act()); } catch (error) { say(error.message, 'bad'); }
    await again('queues');
    this.load();
  }

  setPaused() {
    const { name } = this;
    const { paused } = this.queue();
    const word = paused ? 'resume' : 'pause';
    this.change({
      title: paused ? `Resume ${name}?` : `Pause ${name}?`,
      text: paused ? 'Its events are handled again.' : 'Nothing of it is handled until it is resumed. Pushes go on.',
      command: `lighter queue ${word} ${name}`, word: paused ? 'Resume' : 'Pause',
    }, async () => { await post(word, { queues: [name] }); return `${name} is ${word}d`; });
  }

  /** All, or those that match the filter. How many there are the node says first. */
  async replayAll() {
    const { name, reason } = this;
    const wanted = reason ? { reason } : {};
    let found;
    try {
      found = await post(named('queues', name, '/replay'), { ...wanted, dry_run: true });
    } catch (error) { return say(error.message, 'bad'); }
    const { replayed, stayed } = found;
    const often = h('input', { type: 'checkbox', id: 'often' });
    this.change({
      title: `Replay ${of(replayed, 'dead letter')} of ${name}?`,
      text: `${reason ? `Those that died with “${reason}”. ` : ''}They go to the end of the queue, to be tried anew.`,
      more: stayed > 0 && h('p', {}, often, h('label', { for: 'often' }, ` also the ${count(stayed)} that were replayed five times already`)),
      command: `lighter queue replay ${name}${reason ? ` --reason ${quoted(reason)}` : ''}`, word: 'Replay',
    }, async () => this.back(await post(named('queues', name, '/replay'), { ...wanted, force: often.checked })));
  }

  /** One, perhaps with other data. */
  replayOne({ sequence }, text) {
    const { name } = this;
    const other = text === undefined ? {} : { data: text };
    this.change({
      title: `Replay dead letter ${sequence} of ${name}${text === undefined ? '' : ' with this data'}?`, text: 'It goes to the end of the queue, to be tried anew.',
      command: `lighter queue replay ${name} ${sequence}${text === undefined ? '' : ' --file FILE'}`, word: 'Replay',
    }, async () => this.back(await post(named('queues', name, '/replay'), { sequences: [sequence], force: true, ...other })));
  }

  back({ replayed, stayed }) {
    return `${of(replayed, 'event')} back in ${this.name}${stayed ? `, ${count(stayed)} stay` : ''}`;
  }

  /** All of a part; of the dead letters perhaps those that match the filter, or one. How many there are the node says first. */
  async purge(sequence) {
    const { name, part, reason } = this;
    const chosen = part === 'dead' && (sequence !== undefined || reason);
    const query = `/events?part=${part}${sequence !== undefined ? `&sequences=${sequence}` : chosen ? `&reason=${encodeURIComponent(reason)}` : ''}`;
    const remove = async more => (await (await send('DELETE', named('queues', name, query + more))).json()).removed;
    let number = this.count();
    try { if (chosen) number = await remove('&dry_run=true'); } catch (error) { return say(error.message, 'bad'); }
    const what = part === 'dead' ? 'dead letter' : `${part} event`;
    this.change({
      title: sequence !== undefined ? `Discard dead letter ${sequence} of ${name}?` : `Discard ${of(number, what)} of ${name}?`,
      text: `${chosen && sequence === undefined ? `Those that died with “${reason}”. ` : ''}They are gone for good.`,
      command: `lighter queue purge ${name}${sequence !== undefined ? ` ${sequence}` : chosen ? ` --reason ${quoted(reason)}` : ` --part ${part}`}`, word: 'Discard',
    }, async () => `${of(await remove(''), 'event')} gone`);
  }
}

/** As a shell takes it. */
const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;
export const queues = { title: 'Queues', open };
