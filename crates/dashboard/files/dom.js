// Elements: made, changed, and kept. Text stays text, nothing here reads markup.

const SVG = 'http://www.w3.org/2000/svg';

function make(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (name === 'on') for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (value !== undefined && value !== false && value !== null) element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter(child => child !== undefined && child !== null && child !== false));
  return element;
}

/** An element of the page: its attributes, its listeners as `on`, and its children. */
export const h = (tag, properties, ...children) => make(document.createElement(tag), properties, children);

/** An element of a drawing. */
export const s = (tag, properties, ...children) => make(document.createElementNS(SVG, tag), properties, children);

/** Shows `text` in an element, and touches nothing if it stands there already, and the text alone if it is another. */
export function put(element, text) {
  if (element.shown === text) return;
  element.shown = text;
  const { firstChild } = element;
  if (firstChild?.nodeType === Node.TEXT_NODE && !firstChild.nextSibling) firstChild.data = text ?? '';
  else element.textContent = text;
}

/** Sets an attribute if it is another; `undefined` takes it away. */
export function mark(element, name, value) {
  if (element.getAttribute(name) === (value ?? null)) return;
  if (value === undefined || value === null) element.removeAttribute(name);
  else element.setAttribute(name, value);
}

/** Says a sentence to everybody, with eyes or with a screen reader, and takes it away again. */
export function say(text, kind = 'good') {
  const line = h('p', { class: kind }, text);
  document.getElementById('said').append(line);
  setTimeout(() => line.remove(), 8000);
}

/**
 * Asks before something is changed. It names what is done, and the command that does the same.
 * Resolves to whether it was confirmed.
 */
export function ask({ title, text, command, word, more }) {
  return new Promise(resolve => {
    const no = h('button', { type: 'button', on: { click: () => dialog.close('no') } }, 'Cancel');
    const yes = h('button', { type: 'button', class: 'act', on: { click: () => dialog.close('yes') } }, word);
    const dialog = h('dialog', { 'aria-labelledby': 'asked' },
      h('h2', { id: 'asked' }, title), text && h('p', {}, text), more,
      command && h('p', { class: 'same' }, 'The same on the command line:', h('code', {}, command)),
      h('div', { class: 'buttons' }, no, yes));
    dialog.addEventListener('close', () => { dialog.remove(); resolve(dialog.returnValue === 'yes'); });
    document.body.append(dialog);
    dialog.showModal();
    no.focus();
  });
}

/** A small line of the past: a drawing of its own size, changed in place. */
export class Spark {
  constructor(label) {
    this.line = s('polyline', { class: 'spark-line', points: '' });
    this.area = s('polygon', { class: 'spark-area', points: '' });
    this.element = s('svg', { class: 'spark', viewBox: '0 0 120 28', preserveAspectRatio: 'none', role: 'img', 'aria-label': label }, this.area, this.line);
  }

  /** The past, which is another list when it is another, and what is now. */
  draw(past, now) {
    if (this.past !== past) {
      this.past = past;
      this.most = Math.max(...past, 1e-9);
      this.drawn = undefined;
    }
    const highest = Math.max(this.most, now);
    const step = 120 / Math.max(past.length, 1);
    const tenth = number => Math.round(number * 10) / 10;
    const point = (value, at) => `${tenth(at * step)},${tenth(26.5 - 24 * value / highest)}`;
    if (this.drawn !== highest) {
      this.drawn = highest;
      this.points = past.map(point).join(' ');
      this.last = undefined;
    }
    const last = point(now, past.length);
    if (this.last === last) return;
    this.last = last;
    const points = past.length ? `${this.points} ${last}` : last;
    mark(this.line, 'points', points);
    mark(this.area, 'points', past.length ? `0,28 ${points} 120,28` : '');
  }
}

/** Choices of which one counts, for arrows and clicks. */
export function choices(label, words, chosen, choose) {
  const buttons = words.map(([word, text]) => h('button', {
    type: 'button', 'aria-pressed': String(word === chosen),
    on: { click: () => { buttons.forEach((one, at) => mark(one, 'aria-pressed', String(words[at][0] === word))); choose(word); } },
  }, text));
  return h('div', { class: 'choices', role: 'group', 'aria-label': label }, buttons);
}
