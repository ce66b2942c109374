// What the page knows of the node: asked for again and again, kept for ten minutes, and given to whatever shows it.
//
//   the API ──parts, each at its pace──▶ state ──changed()──▶ the view on screen, once for each frame
//
// Nothing is asked for while nobody looks: a hidden page stops, and asks at once when it is seen again.

import { Refused, get } from './client.js';

/** Points of a small line: one every two seconds for ten minutes. */
const PAST = 300;
const PAST_EVERY = 2000;
/** Rates are means over so long. */
const RATE_OVER = 10000;
/** With more functions than this the numbers come at half the pace. */
const MANY = 200;

/** Parts of the state: where they are, and how often they are asked for, in milliseconds. */
const PARTS = {
  node: { path: 'node', every: 2000, always: true },
  stats: { path: 'stats', every: 1000, always: true, slower: true },
  queues: { path: 'queues', every: 1000, always: true, slower: true },
  functions: { path: 'functions', every: 5000, always: true },
  flow: { path: 'flow', every: 60000, always: true },
  units: { path: 'units', every: 1000 },
  boards: { path: 'boards', every: 2000 },
  audit: { path: 'audit?limit=500', every: 4000 },
};

export const state = {
  /** `waiting`, `live`, `lost` (it asks on), or `refused`: the token is not good. */
  link: 'waiting', problem: undefined, frozen: false,
  node: undefined, stats: [], queues: [], functions: [], units: [], boards: [], audit: [], flow: undefined,
  /** By part: why this token may not see it. */
  closed: {},
  /** Mean rates: of functions `calls` and `errors`, of queues `pushed`, `acked` and `died`, by name. */
  calls: new Map(), errors: new Map(), pushed: new Map(), acked: new Map(), died: new Map(),
  past: { calls: [], errors: [], acked: [], waiting: [], dead: [], units: [], memory: [] },
};

const scopes = ['look', 'call', 'deploy', 'admin'];

/** Whether the token of this page covers a scope. The node decides; this is for buttons. */
export const may = scope => scopes.indexOf(state.node?.token?.scope) >= scopes.indexOf(scope);

let changed = () => {};
let wanted = new Set();
let asked = {};
let timer;
let notedAt = 0;
const samples = [];

/** Begins. `show` is called when there is something new. */
export function start(show) {
  changed = show;
  document.addEventListener('visibilitychange', () => { if (!document.hidden) round(); });
  round();
}

/** Which further parts the view on screen needs. */
export function want(...parts) {
  wanted = new Set(parts);
  for (const part of parts) asked[part] = 0;
  round();
}

/** Asks for a part now, because something was done to it. */
export function again(...parts) {
  for (const part of parts) asked[part] = 0;
  return round();
}

export function freeze(frozen) {
  state.frozen = frozen;
  if (!frozen) round();
  changed();
}

let running = false;
async function round() {
  clearTimeout(timer);
  if (running) return;
  if (document.hidden || state.frozen || state.link === 'refused') return;
  running = true;
  const now = performance.now();
  const slower = state.stats.length > MANY ? 2 : 1;
  const due = Object.entries(PARTS).filter(([name, part]) => (part.always || wanted.has(name)) && !state.closed[name]
    && now - (asked[name] || -1e9) >= part.every * (part.slower ? slower : 1) - 60);
  for (const [name] of due) asked[name] = now;
  const ended = await Promise.allSettled(due.map(([name, part]) => load(name, part)));
  running = false;
  const failed = ended.find(one => one.status === 'rejected')?.reason;
  if (failed) fail(failed);
  else if (due.length) { state.link = 'live'; state.problem = undefined; }
  if (due.length) changed();
  timer = setTimeout(round, failed ? 1000 : 250);
}

async function load(name, part) {
  try {
    take(name, await get(part.path));
  } catch (error) {
    if (!(error instanceof Refused && error.status === 403)) throw error;
    state.closed[name] = error.message;
  }
}

function fail(error) {
  state.problem = error.message;
  state.link = error instanceof Refused && error.status === 401 ? 'refused' : 'lost';
  // The node may be another when it is back, with other tokens, functions and numbers.
  asked = {};
  samples.length = 0;
}

let deployed;
function take(name, value) {
  state[name] = value;
  if (name === 'stats') {
    const now = value.map(one => `${one.function} ${one.version}`).join();
    // What is deployed is another: so are the map and the versions.
    if (deployed !== undefined && deployed !== now) asked.flow = asked.functions = 0;
    deployed = now;
  }
  if (name === 'stats' || name === 'queues') measure(name);
}

/** Rates since the oldest sample that is kept, and a point of each line. */
function measure(name) {
  const now = performance.now();
  const sample = { now, name, numbers: new Map() };
  if (name === 'stats') {
    for (const one of state.stats) sample.numbers.set(one.function, [one.calls, failures(one)]);
  } else {
    for (const one of state.queues) sample.numbers.set(one.name, [one.pushed, one.acked, one.died]);
  }
  while (samples.length && now - samples[0].now > RATE_OVER) samples.shift();
  const since = samples.find(one => one.name === name);
  const rates = name === 'stats' ? [state.calls, state.errors] : [state.pushed, state.acked, state.died];
  rates.forEach(one => one.clear());
  const seconds = since ? (now - since.now) / 1000 : 0;
  for (const [key, numbers] of sample.numbers) {
    const before = since?.numbers.get(key) ?? numbers;
    rates.forEach((one, at) => one.set(key, seconds ? Math.max(0, numbers[at] - before[at]) / seconds : 0));
  }
  samples.push(sample);
  if (now - notedAt >= PAST_EVERY - 100) { notedAt = now; note(); }
}

export const failures = stats => Object.values(stats.errors).reduce((sum, number) => sum + number, 0);
const sum = numbers => { let all = 0; for (const number of numbers) all += number; return all; };

/** What the tiles show now. */
export function totals() {
  const { queues, node } = state;
  return {
    calls: sum(state.calls.values()), errors: sum(state.errors.values()), acked: sum(state.acked.values()),
    waiting: sum(queues.map(queue => queue.ready + queue.delayed)), dead: sum(queues.map(queue => queue.dead)),
    units: node?.units_running ?? 0, memory: node?.rss_bytes ?? 0,
  };
}

function note() {
  for (const [name, value] of Object.entries(totals())) {
    state.past[name].push(value);
    if (state.past[name].length > PAST) state.past[name].shift();
  }
}
