// One event, as it is kept: its attributes, and its data as text, JSON or bytes. All of it is shown as text.

import { may } from './data.js';
import { choices, h, mark, put } from './dom.js';
import { list } from './functions.js';
import { stamp } from './words.js';

const VIEWS = [['json', 'JSON'], ['text', 'text'], ['hex', 'hex']];
/** Bytes shown in hex. */
const HEX_BYTES = 4096;

/** The bytes of an event's data. */
export function data(event) {
  if (event.data_base64 !== undefined) return Uint8Array.from(atob(event.data_base64), letter => letter.charCodeAt(0));
  if (event.data === undefined) return new Uint8Array();
  return new TextEncoder().encode(typeof event.data === 'string' ? event.data : JSON.stringify(event.data));
}

function hex(bytes) {
  const rows = [];
  for (let at = 0; at < Math.min(bytes.length, HEX_BYTES); at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const left = row.map(byte => byte.toString(16).padStart(2, '0')).join(' ').padEnd(48);
    const right = row.map(byte => byte > 31 && byte < 127 ? String.fromCharCode(byte) : '.').join('');
    rows.push(`${at.toString(16).padStart(6, '0')}  ${left} ${right}`);
  }
  if (bytes.length > HEX_BYTES) rows.push(`… ${bytes.length - HEX_BYTES} more bytes`);
  return rows.join('\n');
}

/** Whether bytes can be shown as text and come back the same. */
function isText(bytes) {
  try { new TextDecoder('utf-8', { fatal: true }).decode(bytes); return true; } catch { return false; }
}

const as = {
  hex,
  text: bytes => new TextDecoder().decode(bytes),
  json: bytes => {
    const text = new TextDecoder().decode(bytes);
    try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
  },
};

export class Payload {
  /** `queue` replays what is shown. */
  constructor(queue) {
    this.way = 'json';
    this.facts = h('dl', { class: 'facts' });
    this.text = h('pre', { tabindex: 0, 'aria-label': 'Data of the event' });
    this.other = h('textarea', { rows: 8, spellcheck: 'false', 'aria-label': 'Other data for the event' });
    this.edit = h('button', { type: 'button', on: { click: () => this.begin() } }, 'Edit');
    this.replay = h('button', { type: 'button', class: 'act', on: { click: () => queue.replayOne(this.row, this.other.hidden ? undefined : this.other.value) } });
    this.discard = h('button', { type: 'button', class: 'danger', on: { click: () => queue.purge(this.row.sequence) } }, 'Discard this one');
    this.trail = h('a', {}, 'follow it');
    this.ways = choices('Data as', VIEWS, this.way, way => { this.way = way; this.draw(); });
    this.element = h('div', { class: 'payload', hidden: true },
      h('div', { class: 'tools' }, this.ways, this.edit, this.replay, this.discard, this.trail), this.text, this.other, this.facts);
    this.queue = queue;
  }

  show(row) {
    this.row = row;
    this.element.hidden = !row;
    this.other.hidden = true;
    if (row) this.draw();
  }

  /** Offers the data as text that can be changed. What is in the queue stays as it is until it is replayed. */
  begin() {
    this.other.value = as.text(data(this.row.event));
    this.other.hidden = false;
    this.draw();
    this.other.focus();
  }

  draw() {
    const { row } = this;
    const { data: _, data_base64: __, specversion: ___, ...attributes } = row.event;
    const facts = Object.entries(attributes).map(([word, value]) => [word, String(value)]);
    list(this.facts, [...facts, ['pushed', stamp(row.pushed_ms)], ['tries', String(row.tries)], ['why it died', row.reason]].filter(([, text]) => text),
      ([word, text]) => [h('dt', {}, word), h('dd', {}, text)]);
    put(this.text, as[this.way](data(row.event)) || '(no data)');
    const bytes = data(row.event);
    const editing = !this.other.hidden;
    this.text.hidden = this.ways.hidden = editing;
    this.replay.hidden = this.queue.part !== 'dead' || !may('deploy');
    this.discard.hidden = this.replay.hidden || editing;
    mark(this.trail, 'href', `#/events/${encodeURIComponent(row.event.id)}`);
    put(this.replay, editing ? 'Replay with this data' : 'Replay this one');
    this.edit.hidden = this.replay.hidden || editing || !isText(bytes);
  }
}
