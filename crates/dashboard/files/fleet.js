// The fleet around this node, as `lighter fleet map` draws it: who is there, how far and how busy, what runs where.
//
//   this node ─ 12 calls/s → · 400 µs ─ server-1      a line is as wide as the calls that go there from here
//             └╌╌╌╌╌╌ 7 events → · away ╌ pi-9          broken: not reached

import { state } from './data.js';
import { h, mark, put, s } from './dom.js';
import { Grid } from './grid.js';
import { widen } from './map.js';
import { count, of, rate, span } from './words.js';

/** Nodes that are drawn; the table has all of them. */
const DRAWN = 40;
const BOX = { width: 236, height: 62, row: 78, here: 12, there: 500 };
const NAME = 26;

const shortened = text => text.length > NAME ? `${text.slice(0, NAME - 1)}…` : text;
const listed = names => names.slice(0, 20).join(', ') + (names.length > 20 ? ` and ${names.length - 20} more` : '');
const heard = node => node.heard_ms === null || node.heard_ms === undefined ? 'never heard' : `heard ${span(node.heard_ms)} ago`;
const is = node => node.this_node ? 'here' : node.load ? 'reached' : 'away';
const standing = node => node.this_node ? 'this node' : node.load ? `waits ${span(node.load.wait_ms)}` : `away, ${heard(node)}`;

const NODES = [
  { title: 'node', text: row => row.name },
  { title: 'id', text: row => row.id },
  { title: 'state', text: row => is(row), tone: row => row.this_node ? undefined : row.load ? 'good' : 'bad' },
  { title: 'anchor', text: row => row.anchor ? 'anchor' : '' },
  { title: 'address', text: row => row.address ?? '–' },
  { title: 'way', number: true, text: row => row.load ? span(row.load.round_trip_ms) : '–', order: row => row.load?.round_trip_ms },
  { title: 'waits', number: true, text: row => row.load ? span(row.load.wait_ms) : '–', order: row => row.load?.wait_ms },
  { title: 'places', number: true, text: row => row.load ? count(row.load.places) : '–', order: row => row.load?.places },
  { title: 'calls/s', number: true, text: row => rate(row.rate), order: row => row.rate },
  { title: 'mail', number: true, text: row => count(row.mail_waiting), order: row => row.mail_waiting },
  { title: 'heard', number: true, text: row => row.this_node ? '–' : heard(row), order: row => row.heard_ms },
  { title: 'version', text: row => row.version ?? '–' },
];
const COPIES = [
  { title: 'function', text: row => row.name },
  { title: 'copies', number: true, text: row => count(row.nodes.length), order: row => row.nodes.length },
  { title: 'on', wide: true, text: row => listed(row.nodes) },
];
const ORDERS = [
  { title: 'deployment', text: row => row.name },
  { title: 'node', text: row => row.node },
  { title: 'state', text: row => row.stage, tone: row => ({ ready: 'good', failed: 'bad' })[row.stage] ?? 'warn' },
  { title: 'revision', number: true, text: row => count(row.revision), order: row => row.revision },
  { title: 'functions', wide: true, text: row => listed(row.functions) },
  { title: 'why', wide: true, text: row => row.why },
];

/** Drawn anew when nodes come or go, and otherwise changed in place. */
class Picture {
  constructor() {
    this.box = h('div', { class: 'map fleet', tabindex: 0, role: 'region', 'aria-label': 'Map of the fleet' });
  }

  draw(nodes) {
    const shown = nodes.slice(0, DRAWN);
    const names = JSON.stringify(shown.map(node => [node.id, node.name, node.anchor]));
    if (names !== this.names) this.place(shown, names);
    shown.forEach((node, at) => this.fill(this.parts[at], node));
    const reached = nodes.filter(node => node.load).length;
    mark(this.drawing, 'aria-label', `${of(nodes.length, 'node')}, ${reached} reached from here`);
  }

  place(nodes, names) {
    this.names = names;
    const others = Math.max(nodes.length - 1, 1);
    const height = others * BOX.row + 10;
    const start = { x: BOX.here + BOX.width, y: height / 2 };
    this.parts = nodes.map((node, at) => {
      const x = node.this_node ? BOX.here : BOX.there;
      const y = node.this_node ? start.y - BOX.height / 2 : 8 + (at - 1) * BOX.row;
      const line = text => s('text', { class: text, x: x + 12, y: y + { head: 16, name: 33, numbers: 51 }[text] });
      const [head, name, numbers] = ['head', 'name', 'numbers'].map(line);
      put(name, shortened(node.name) + (node.anchor ? ' ⚓' : ''));
      const title = s('title', {}, node.name);
      const group = s('g', { class: 'stage function' }, title, s('rect', { x, y, width: BOX.width, height: BOX.height, rx: 6 }), head, name, numbers);
      if (node.this_node) return { group, head, numbers };
      const end = y + BOX.height / 2;
      const middle = (start.x + BOX.there) / 2;
      const path = s('path', { class: 'way', d: `M${start.x} ${start.y}C${middle} ${start.y} ${middle} ${end} ${BOX.there} ${end}` });
      const way = s('text', { class: 'numbers along', x: BOX.there - 8, y: end - 7, 'text-anchor': 'end' });
      return { group, head, numbers, path, way };
    });
    const width = BOX.there + BOX.width + 12;
    this.drawing = s('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img' },
      this.parts.map(part => part.path), this.parts.map(part => part.way), this.parts.map(part => part.group));
    this.drawing.style.width = `${width}px`;
    this.drawing.style.minWidth = `${width * 0.62}px`;
    this.box.replaceChildren(this.drawing);
  }

  fill({ group, head, numbers, path, way }, node) {
    put(head, standing(node));
    put(numbers, of(node.functions.length, 'function'));
    mark(group, 'data-is', is(node) === 'away' ? 'failing' : node.rate ? 'busy' : undefined);
    if (!path) return;
    mark(path, 'data-is', is(node) === 'away' ? 'away' : node.rate ? 'busy' : undefined);
    widen(path, node.rate);
    const goes = [node.rate && `${rate(node.rate)} calls/s →`, node.mail_waiting && `${of(node.mail_waiting, 'event')} →`];
    put(way, [...goes, node.load ? span(node.load.round_trip_ms) : 'away'].filter(Boolean).join(' · '));
  }
}

function open() {
  const title = h('h1', {});
  const note = h('p', { class: 'note' });
  const picture = new Picture();
  const nodes = new Grid({ label: 'Nodes of the fleet', columns: NODES, key: row => row.id, empty: 'No node.' });
  const copies = new Grid({ label: 'Functions of the fleet', columns: COPIES, key: row => row.name, empty: 'No node has a function.' });
  const orders = new Grid({ label: 'Deployments of the fleet', columns: ORDERS, key: row => row.key, empty: 'Nothing was deployed to the fleet: lighter deploy --fleet does.' });
  const tables = [['Nodes', nodes], ['What runs where', copies], ['Deployments', orders]].map(([word, grid]) => h('section', { class: 'card' }, h('h2', {}, word), grid.element));
  const element = h('div', { class: 'view' }, h('section', { class: 'card' }, title, note, picture.box), tables);
  let last;

  /** The nodes with the calls that went to each in a second, since they were asked for before. */
  function rated(fleet) {
    if (last?.fleet === fleet) return last.nodes;
    const now = performance.now();
    const before = new Map(last?.nodes.map(node => [node.id, node.load?.calls]));
    const seconds = last && (now - last.now) / 1000;
    const speed = ({ id, load }) => seconds && load && before.get(id) !== undefined ? Math.max(0, load.calls - before.get(id)) / seconds : 0;
    last = { fleet, now, nodes: fleet.nodes.map(node => ({ ...node, rate: speed(node) })) };
    return last.nodes;
  }

  function draw() {
    const { fleet } = state;
    const missing = state.closed.fleet ?? (fleet === null ? 'this node belongs to none. lighter fleet new NAME founds one, lighter fleet join TOKEN joins one.' : fleet ? undefined : '…');
    put(title, missing ? `Fleet: ${missing}` : `Fleet ${fleet.name}`);
    for (const part of [picture.box, ...tables]) part.hidden = Boolean(missing);
    note.hidden = Boolean(missing);
    if (missing) return;
    const rows = rated(fleet);
    const others = rows.filter(node => !node.this_node);
    const engine = !fleet.engine ? 'none' : fleet.engine.connected ? 'reached' : fleet.engine.trouble?.detail ?? 'not reached';
    const trouble = fleet.trouble && `${fleet.trouble.code}: ${fleet.trouble.detail}`;
    const left = rows.length > DRAWN && `the map shows the first ${DRAWN}`;
    put(note, [`${others.filter(node => node.load).length} of ${of(others.length, 'other')} reached`, `engine: ${engine}`, left, trouble, fleet.doubled && 'another machine has the key of this node'].filter(Boolean).join(' · '));
    mark(note, 'data-tone', trouble || fleet.doubled ? 'bad' : undefined);
    picture.draw(rows);
    nodes.set(rows);
    const on = new Map();
    for (const node of rows) for (const name of node.functions) on.set(name, [...on.get(name) ?? [], node.name]);
    copies.set([...on].map(([name, at]) => ({ name, nodes: at })));
    const deployed = (state.orders?.deployments ?? []).filter(one => !one.removed);
    orders.set(deployed.flatMap(one => one.nodes.map(node => ({
      key: `${one.name} ${node.id}`, name: one.name, node: node.name, revision: one.revision,
      stage: node.there ? node.stage : `${node.stage}, away`, functions: node.functions, why: node.trouble ? `${node.trouble.code}: ${node.trouble.detail}` : '',
    }))));
  }
  return { element, draws: [draw], parts: ['fleet', 'orders'] };
}

export const fleet = { title: 'Fleet', open };
