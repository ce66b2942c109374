// The frame around the views: who and where the node is, the way between views, and drawing them.
//
// A view is { title, element, parts, draws } with `parts` it needs beside those that are always there, and `draws` that
// show what is new, each a part of it. Addresses are `#/VIEW/NAME`. Only the view on screen is drawn.

import { dropToken, keepToken, token } from './first.js';
import { freeze, start, state, want } from './data.js';
import { choices, h, mark, put } from './dom.js';
import { draw, forget, now } from './frames.js';
import { span } from './words.js';
import { overview } from './overview.js';
import { functions } from './functions.js';
import { queues } from './queues.js';
import { decisions } from './decisions.js';
import { events } from './events.js';
import { reference } from './reference.js';
import { units } from './units.js';
import { logs } from './logs.js';
import { boards } from './boards.js';
import { fleet } from './fleet.js';
import { about } from './about.js';

const VIEWS = { overview, functions, queues, events, units, logs, boards, fleet, offloading: decisions, node: about, api: reference };
const main = document.getElementById('main');
const LINKS = { waiting: 'connecting', live: 'live', lost: 'no answer, trying again', refused: 'no access' };

let name;
let view;

const where = h('span', { class: 'where' });
const link = h('span', { class: 'link', role: 'status' });
const hold = h('button', { type: 'button', class: 'hold', 'aria-pressed': 'false', title: 'Stop and go on (f)', on: { click: () => freeze(!state.frozen) } }, 'Freeze');
const ways = Object.entries(VIEWS).map(([word, { title }]) => h('a', { href: `#/${word}` }, title));

const THEMES = [['auto', 'Auto'], ['light', 'Light'], ['dark', 'Dark']];
const theme = localStorage.getItem('lighter.theme') ?? 'auto';
document.documentElement.dataset.theme = theme;
function dress(word) {
  document.documentElement.dataset.theme = word;
  localStorage.setItem('lighter.theme', word);
}

document.getElementById('head').append(
  h('div', { class: 'top' },
    h('a', { class: 'brand', href: '#/overview' }, h('img', { src: 'dashboard/icon.svg', alt: '', width: 22, height: 22 }), 'Lighterage'),
    where, h('span', { class: 'spread' }), link, hold, choices('Colours', THEMES, theme, dress)),
  h('nav', { 'aria-label': 'Views' }, ways));

/** Opens the view that the address names. */
function open() {
  const [word, given] = location.hash.replace(/^#\/?/, '').split('/');
  const next = VIEWS[word] ? word : 'overview';
  const changed = next !== name;
  name = next;
  if (changed) {
    view?.close?.();
    forget();
    view = VIEWS[name].open();
    // Before anything is changed: behind it the whole page would be laid out for it.
    window.scrollTo(0, 0);
    main.replaceChildren(view.element);
  }
  let of;
  try { of = decodeURIComponent(given ?? ''); } catch { of = ''; }
  view.choose?.(of);
  ways.forEach(way => mark(way, 'aria-current', way.hash === `#/${name}` ? 'page' : undefined));
  document.title = `${of || VIEWS[name].title} – Lighterage`;
  want(view.parts ?? [], view.focus?.());
  show(true);
}

/** Draws with the next frame, once for all that is new until then, or at once: the first data, and another view. */
function show(atOnce) {
  draw(frame, ...state.link === 'refused' ? [] : view?.draws ?? []);
  if (atOnce) now();
}

function frame() {
  const { node, link: is } = state;
  put(where, node ? `${location.host} · ${node.version} · up ${span(node.uptime_seconds * 1000)}` : location.host);
  put(link, state.frozen ? 'frozen' : is === 'lost' && state.problem || LINKS[is]);
  mark(link, 'data-is', state.frozen ? 'frozen' : is);
  mark(hold, 'aria-pressed', String(state.frozen));
  put(hold, state.frozen ? 'Go on' : 'Freeze');
  mark(document.body, 'data-link', is);
  if (is === 'refused') knock();
}

/** Asks for a token: there is none, or it has ended. */
function knock() {
  if (document.getElementById('token')) return;
  const field = h('input', { id: 'token', type: 'password', autocomplete: 'off', spellcheck: 'false', placeholder: 'lighter_…' });
  const enter = event => {
    event.preventDefault();
    keepToken(field.value.trim());
    location.reload();
  };
  main.replaceChildren(h('form', { class: 'card knock', on: { submit: enter } },
    h('h1', {}, 'This page needs a token'),
    h('p', {}, 'Open the link that ', h('code', {}, 'lighter dashboard'), ' prints, or paste a token of ', h('code', {}, 'lighter token create'), '.'),
    state.problem && h('p', { class: 'bad' }, state.problem),
    h('label', { for: 'token' }, 'Token'), field,
    h('div', { class: 'buttons' }, h('button', { class: 'act' }, 'Look at the node'))));
  field.focus();
}

window.addEventListener('hashchange', () => {
  if (location.hash.startsWith('#token=')) location.reload();
  else if (state.link !== 'refused') open();
});
window.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|TEXTAREA|SELECT/.test(event.target.tagName)) return;
  if (event.key === 'f') freeze(!state.frozen);
  if (event.key === '/') {
    const search = main.querySelector('input[type=search]');
    if (search) { event.preventDefault(); search.focus(); }
  }
  const number = event.key === '0' ? 10 : Number(event.key);
  if (number >= 1 && number <= ways.length) location.hash = ways[number - 1].hash;
});

if (token()) {
  open();
  start(show);
} else {
  state.link = 'refused';
  dropToken();
  show(true);
}
