// The API, as the node describes it: every endpoint with its parameters and answers.

import { get } from './client.js';
import { h, put } from './dom.js';
import { list } from './functions.js';
import { of } from './words.js';

/** What a schema is called. */
const kind = schema => !schema ? '' : schema.$ref ? schema.$ref.split('/').pop() : schema.type === 'array' ? `list of ${kind(schema.items)}`
  : schema.oneOf ? schema.oneOf.map(kind).filter(Boolean).join(' or ') : [schema.type ?? ''].flat().filter(one => one !== 'null').join(' or ');
const content = part => Object.entries(part?.content ?? {}).map(([media, { schema }]) => [kind(schema), media].filter(Boolean).join(', ')).join('; ');

function open() {
  let document;
  const title = h('span', {});
  const search = h('input', { type: 'search', placeholder: 'Filter  ( / )', 'aria-label': 'Filter the endpoints', on: { input: draw } });
  const body = h('div', { class: 'reference' });
  const element = h('div', { class: 'view' }, h('section', { class: 'card' }, h('h1', {}, title, search, h('a', { href: 'v1/openapi.json' }, 'as OpenAPI')), body));

  async function load() {
    try { document = await get('openapi.json'); } catch (error) { put(title, error.message); }
    draw();
  }

  function draw() {
    if (!document) return;
    const word = search.value.trim().toLowerCase();
    const all = Object.entries(document.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, about]) => ({ method, path, about })));
    const found = all.filter(({ method, path, about }) => `${method} ${path} ${about.summary ?? ''}`.toLowerCase().includes(word));
    put(title, `${of(found.length, 'endpoint')} of the API, version ${document.info.version}`);
    list(body, found, endpoint);
  }

  load();
  return { element, draws: [] };
}

function endpoint({ method, path, about }) {
  const rows = (about.parameters ?? []).map(one => [`${one.name}${one.required ? '' : '?'}`, `${kind(one.schema)} in the ${one.in}. ${one.description ?? ''}`]);
  if (about.requestBody) rows.push(['body', `${content(about.requestBody)}. ${about.requestBody.description ?? ''}`]);
  for (const [status, answer] of Object.entries(about.responses)) rows.push([status, [content(answer), answer.description].filter(Boolean).join('. ')]);
  return [h('details', {}, h('summary', {}, h('b', { class: 'method' }, method.toUpperCase()), h('code', {}, path), h('span', { class: 'faint' }, about.summary ?? '')),
    about.description && h('p', {}, about.description), about.security && h('p', { class: 'faint' }, 'needs no token'),
    h('dl', { class: 'facts' }, rows.flatMap(([word, text]) => [h('dt', {}, word), h('dd', {}, text)])))];
}

export const reference = { title: 'API', open };
