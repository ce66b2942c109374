// What the page knows of the node: one stream of what changes, kept and given to whatever shows it.
//
//   v1/live ──lines──▶ state ──changed()──▶ the view on screen, once for each frame
//   v1/boards, v1/audit, v1/fleet, each at its pace while its view is on screen ──┘
//
// Nothing is asked for while nobody looks: a hidden page ends its stream, and begins another when it is seen again.

import { Refused, get, lines } from './client.js';
import { begun } from './first.js';
import { Rates } from './rates.js';

/** A stream without a line for so long is lost: one comes each second or two. */
const QUIET = 10000;
const AGAIN = 1000;

/** What some views need beside the stream: where it is, and how often it is asked for, in milliseconds. */
const PARTS = { boards: ['boards', 2000], audit: ['audit?limit=500', 4000], decisions: ['decisions', 2000], fleet: ['fleet', 2000], orders: ['fleet/deployments', 2000] };

/** The code of a node that belongs to no fleet. */
const NO_FLEET = 'L9116';

/** The stream leaves numbers of 0 out. */
const FUNCTION = { calls: 0, errors: 0, running: 0, waiting: 0, p50_us: 0, p99_us: 0, queue: undefined };
const QUEUE = { paused: false, ready: 0, delayed: 0, leased: 0, damaged: 0, dead: 0, bytes: 0, pushed: 0, acked: 0, retried: 0, died: 0, refused: 0, handler: undefined, oldest_ms: undefined };

const speeds = { functions: new Rates(2), queues: new Rates(3) };
const [calls, errors] = speeds.functions.maps;
const [pushed, acked, died] = speeds.queues.maps;

export const state = {
  /** `waiting`, `live`, `lost` (it asks on), or `refused`: the token is not good. */
  link: 'waiting', problem: undefined, frozen: false,
  /** The node's clock, and how often something was deployed. */
  now: 0, deployed: 0,
  node: undefined, token: undefined, stats: [], queues: [], units: [], boards: [], audit: [], decisions: { decisions: [], told: 0, left_out: 0 }, flow: undefined,
  /** The fleet and what is deployed to it; null: there is none. */
  fleet: undefined, orders: undefined,
  /** All numbers of the function on screen. */
  times: undefined,
  /** By part: why this token may not see it. */
  closed: {},
  /** Mean rates by name, of functions and of queues, where they are not 0. */
  calls, errors, pushed, acked, died,
  /** The node's last hour, a list for each of `totals()`. */
  hour: {},
};

const scopes = ['look', 'call', 'deploy', 'admin'];

/** Whether the token of this page covers a scope. The node decides; this is for buttons. */
export const may = scope => scopes.indexOf(state.token?.scope) >= scopes.indexOf(scope);

/**
 * The rows by name. One that is another now stays the same object, with other numbers, and its `stamp` says in which
 * line it, a rate of it or its queue was another last: so a table passes over all others.
 */
let functions = new Map();
let queues = new Map();
let stamp = 0;
let changed = () => {};
let shows = false;
let polled = [];
let query = '';
let ending;
let silence;
let timer;
/** Who waits until a change can be seen, and for how many lines. */
let waiting = [];

export const queueOf = name => queues.get(name);
export const functionOf = name => functions.get(name);
/** For how long the oldest event of a queue has waited. */
export const age = queue => queue.oldest_ms === undefined ? undefined : Math.max(0, state.now - queue.oldest_ms);

/** Begins. `show` is called when there is something new, and with true if there was nothing before. */
export function start(show) {
  changed = show;
  shows = true;
  document.addEventListener('visibilitychange', renew);
  renew();
}

/** What the view on screen needs: further parts, and all numbers of one function. */
export function want(parts, name) {
  polled = parts.filter(part => PARTS[part]);
  const words = [parts.includes('units') && !state.closed.units && 'units=true', name && `function=${encodeURIComponent(name)}`];
  const wanted = words.filter(Boolean).join('&');
  state.times = undefined;
  if (wanted !== query) {
    query = wanted;
    renew();
  } else poll();
}

/** Resolves once something that was done can be seen: the line after the next was made after it. */
export function again(...parts) {
  if (parts.some(part => PARTS[part])) poll();
  return ending ? new Promise(done => waiting.push({ lines: 2, done })) : undefined;
}

export function freeze(frozen) {
  state.frozen = frozen;
  renew();
  changed();
}

/** Ends the stream, and begins another if somebody looks. */
function renew() {
  ending?.abort();
  ending = undefined;
  clearTimeout(silence);
  clearTimeout(timer);
  release();
  if (!shows || document.hidden || state.frozen || state.link === 'refused') return;
  ending = new AbortController();
  follow(ending.signal);
  poll();
}

async function follow(signal) {
  listen();
  try {
    const path = `live?${query}`;
    await lines(path, signal, take, begun(path, signal));
    throw new Error('the node ended the stream');
  } catch (error) {
    if (!signal.aborted) lost(error);
  }
}

/** Begins anew if nothing comes. */
function listen() {
  clearTimeout(silence);
  silence = setTimeout(() => lost(new Error('the node says nothing')), QUIET);
}

function lost(error) {
  const { status } = error;
  state.problem = error instanceof Refused ? error.message : undefined;
  state.link = status === 401 ? 'refused' : 'lost';
  // The token is for some functions alone, or the function is gone.
  if (status === 403 && query.includes('units')) state.closed.units = error.message;
  if (status === 403 || status === 404) query = '';
  // The node may be another when it is back, with other functions and numbers.
  Object.values(speeds).forEach(rates => rates.clear());
  ending?.abort();
  clearTimeout(silence);
  release();
  changed();
  if (state.link === 'lost') silence = setTimeout(renew, AGAIN);
}

function release() {
  waiting.forEach(({ done }) => done());
  waiting = [];
}

/** One line of the stream: everything, or the rows that are others now. */
function take(line) {
  listen();
  const isNew = state.link !== 'live';
  state.link = 'live';
  state.problem = undefined;
  state.now = line.time_ms;
  state.node = { ...state.node, ...line.node, ...line.now };
  state.times = line.function;
  if (line.token) state.token = line.token;
  if (line.units) state.units = line.units;
  if (line.hour) state.hour = line.hour;
  stamp += 1;
  functions = rows('functions', functions, line, 'function', FUNCTION, ['calls', 'errors']);
  queues = rows('queues', queues, line, 'name', QUEUE, ['pushed', 'acked', 'died']);
  if (functions.size !== state.stats.length || line.whole) state.stats = listed(functions);
  if (queues.size !== state.queues.length || line.whole) state.queues = listed(queues);
  for (const queue of state.queues) {
    // It is older now, and what handles it shows some of it.
    if (queue.oldest_ms !== undefined) queue.stamp = stamp;
    const handler = queue.stamp === stamp && queue.handler?.kind === 'function' && functions.get(queue.handler.name);
    if (handler) handler.stamp = stamp;
  }
  if (isNew || line.deployed !== state.deployed) load('flow', 'flow');
  state.deployed = line.deployed;
  waiting.forEach(one => { one.lines -= 1; });
  waiting.filter(one => one.lines <= 0).forEach(one => one.done());
  waiting = waiting.filter(one => one.lines > 0);
  changed(isNew);
  if (isNew) performance.mark('data');
}

/** The rows as the node sorts them; what was deployed since has come behind the others. */
const listed = rows => [...rows.keys()].sort().map(name => rows.get(name));

/** The rows of one kind after a line, with their rates. */
function rows(kind, before, line, key, empty, counted) {
  const known = line.whole ? new Map() : before;
  const changes = [];
  for (const row of line[kind]) {
    const name = row[key];
    const old = before.get(name);
    const was = old && counted.map(one => old[one]);
    const is = Object.assign(old ?? {}, empty, row, { stamp });
    known.set(name, is);
    if (was?.some((number, at) => number !== is[counted[at]])) changes.push([name, counted.map(one => is[one]), was]);
  }
  if (line.whole) speeds[kind].only(known);
  speeds[kind].take(performance.now(), changes, name => {
    const row = known.get(name);
    if (row) row.stamp = stamp;
  });
  return known;
}

/** Asks for the parts of the view on screen, again and again. */
function poll() {
  clearTimeout(timer);
  if (!ending || !polled.length) return;
  for (const part of polled) load(part, PARTS[part][0]);
  timer = setTimeout(poll, Math.min(...polled.map(part => PARTS[part][1])));
}

async function load(part, path) {
  if (state.closed[part]) return;
  try {
    state[part] = await get(path);
  } catch (error) {
    // Of anything else the stream tells too.
    if (error.status === 403) state.closed[part] = error.message;
    if (error.code === NO_FLEET) state[part] = null;
  }
  changed();
}

const sum = numbers => { let all = 0; for (const number of numbers) all += number; return all; };

/** What the tiles show now. */
export function totals() {
  const { node } = state;
  return {
    calls: sum(state.calls.values()), errors: sum(state.errors.values()), acked: sum(state.acked.values()),
    waiting: sum(state.queues.map(queue => queue.ready + queue.delayed)), dead: sum(state.queues.map(queue => queue.dead)),
    units: node?.units_running ?? 0, memory_bytes: node?.rss_bytes ?? 0,
  };
}
