// The map of all workflows, placed by the node as `lighter flow` draws it; numbers move on it, boxes do not.

import { functionOf, queueOf, state } from './data.js';
import { h, mark, put, s } from './dom.js';
import { draw } from './frames.js';
import { count, rate } from './words.js';

/** The least part of its size to which a wide map is made smaller; beyond, it scrolls. */
const SHRINK = 0.62;
/** Boxes that are made at once; more come with the next part of a frame. */
const MADE = 12;

/** Makes a line as wide as what goes along it. */
export function widen(path, speed) {
  const width = `${(1.3 + Math.log10(1 + (speed || 0)) * 1.6).toFixed(1)}px`;
  if (path.shown !== width) path.style.strokeWidth = path.shown = width;
}

export class Flow {
  constructor() {
    this.box = h('div', { class: 'map', tabindex: 0, role: 'region', 'aria-label': 'Map of the workflows' });
    this.alone = h('p', { class: 'alone' });
    this.element = h('section', { class: 'card' }, h('h2', {}, 'Workflows'), this.box, this.alone);
    this.grow = () => this.boxes.length < this.flow.stages.length && this.make();
  }

  draw() {
    const { flow } = state;
    this.element.hidden = !flow || (!flow.stages.length && !flow.left_out);
    if (this.element.hidden) return;
    if (this.flow !== flow) this.place(flow);
    for (const box of this.boxes) this.fill(box);
    for (const way of this.ways) this.flowing(way);
  }

  /** Makes the drawing anew: something else is deployed. */
  place(flow) {
    this.flow = flow;
    const into = new Map();
    for (const edge of flow.edges) into.set(edge.to, (into.get(edge.to) ?? 0) + 1);
    this.ways = flow.edges.filter(edge => edge.path).map(edge => {
      const to = flow.stages[edge.to];
      return { edge, to, alone: into.get(edge.to) === 1, path: s('path', { class: `way ${edge.kind}`, d: edge.path, 'marker-end': 'url(#tip)' }) };
    });
    this.boxes = [];
    const tip = s('marker', { id: 'tip', viewBox: '0 0 8 8', refX: 1, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: 'userSpaceOnUse', orient: 'auto' },
      s('path', { d: 'M0 0L8 4L0 8z' }));
    this.drawing = s('svg', { viewBox: `0 0 ${flow.width} ${flow.height}`, role: 'group', 'aria-label': 'Workflows' },
      s('defs', {}, tip), this.ways.map(way => way.path));
    this.drawing.style.width = `${flow.width}px`;
    this.drawing.style.minWidth = `${flow.width * SHRINK}px`;
    this.box.replaceChildren(this.drawing);
    this.box.hidden = !flow.stages.length;
    const words = [flow.alone.length && `without a queue: ${flow.alone.slice(0, 60).join(', ')}${flow.alone.length > 60 ? ' …' : ''}`,
      flow.left_out && `${count(flow.left_out)} stages belong to workflows that are too large for the map`].filter(Boolean);
    put(this.alone, words.join(' · '));
    this.alone.hidden = !words.length;
    draw(this.grow);
  }

  /** Makes some boxes more. Says whether there are others to be made. */
  make() {
    const { stages } = this.flow;
    const made = stages.slice(this.boxes.length, this.boxes.length + MADE).map(stage => {
      const { x, y, width, height, kind } = stage;
      const numbers = s('text', { class: 'numbers', x: x + 12, y: y + height - 18 });
      const inner = [
        s('title', {}, stage.name),
        s('rect', { x, y, width, height, rx: kind === 'trigger' ? 13 : 6 }),
        s('text', { class: 'head', x: x + 12, y: y + 13 }, kind === 'trigger' || stage.queue ? stage.head : kind),
        s('text', { class: 'name', x: x + 12, y: y + 30 }, stage.text), numbers,
      ];
      const to = kind === 'function' ? `#/functions/${encodeURIComponent(stage.name)}` : stage.queue && `#/queues/${encodeURIComponent(stage.queue)}`;
      const group = to ? s('a', { class: `stage ${kind}`, href: to }, inner) : s('g', { class: `stage ${kind}` }, inner);
      return { stage, group, numbers };
    });
    this.boxes.push(...made);
    this.drawing.append(...made.map(box => box.group));
    for (const box of made) this.fill(box);
    return this.boxes.length < stages.length;
  }

  fill(box) {
    const { stage, group, numbers } = box;
    if (stage.kind === 'trigger') return;
    const queue = queueOf(stage.queue);
    const stats = functionOf(stage.name);
    const stamp = (queue ?? stats)?.stamp;
    if (box.stamp === stamp && stamp !== undefined) return;
    box.stamp = stamp;
    const speed = queue ? state.acked.get(queue.name) : state.calls.get(stage.name);
    const waiting = queue ? queue.ready + queue.delayed : 0;
    const words = [speed ? `${rate(speed)}/s` : '', waiting ? `${count(waiting)} waiting` : '', queue?.dead ? `${count(queue.dead)} dead` : ''].filter(Boolean).join(' · ');
    put(numbers, words || (stats?.calls || queue?.acked ? 'idle' : ''));
    const failing = queue ? state.died.get(queue.name) > 0 : state.errors.get(stage.name) > 0;
    const is = failing ? 'failing' : queue?.paused || queue?.handler?.ended ? 'paused' : speed ? 'busy' : undefined;
    mark(group, 'data-is', is);
    if (group.tagName === 'a') mark(group, 'aria-label', `${stage.kind} ${stage.name}${words && `: ${words}`}${is === 'failing' ? ', failing' : is === 'paused' ? ', paused' : ''}`);
  }

  /** How much goes this way: what comes into the queue it leads to, or the calls of a function that nothing else starts. */
  flowing({ edge, to, alone, path }) {
    const speed = edge.queue ? state.pushed.get(edge.queue) : alone && !to.queue ? state.calls.get(to.name) : 0;
    mark(path, 'data-is', edge.queue && state.died.get(edge.queue) > 0 ? 'failing' : speed ? 'busy' : undefined);
    widen(path, speed);
  }
}
