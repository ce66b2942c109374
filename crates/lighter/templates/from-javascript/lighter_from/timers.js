// Timers, and how one waits for a promise: nothing else happens in a unit while it does.
import clock from "lighter:unit/clock@0.1.0";
import { later, runJobs } from "./promise.js";

const waiting = new Map();
let last = 0;

class Timer {
  constructor(id) {
    this.id = id;
  }
  ref() {
    return this;
  }
  unref() {
    return this;
  }
  hasRef() {
    return true;
  }
  [Symbol.toPrimitive]() {
    return this.id;
  }
}

function timed(work, ms, words, every) {
  last += 1;
  const pause = Math.max(Number(ms) || 0, every === undefined ? 0 : 1);
  waiting.set(last, { due: clock.monotonicNs() + pause * 1e6, work: () => work(...words), every: every === undefined ? undefined : pause });
  return new Timer(last);
}

export const setTimeout = (work, ms, ...words) => timed(work, ms, words);
export const setInterval = (work, ms, ...words) => timed(work, ms, words, true);
export const setImmediate = (work, ...words) => timed(work, 0, words);
export const clearTimeout = (timer) => void waiting.delete(typeof timer === "object" && timer !== null ? timer.id : Number(timer));
export const clearInterval = clearTimeout;
export const clearImmediate = clearTimeout;
export const queueMicrotask = (work) => later(work);

// Runs all there is to run until `isDone`, or until nothing is left that could change it. What it waits for is the clock.
export function runUntil(isDone) {
  for (;;) {
    runJobs();
    if (isDone()) return true;
    const next = [...waiting].sort(([, one], [, other]) => one.due - other.due)[0];
    if (next === undefined) return false;
    const [id, { due, work, every }] = next;
    while (clock.monotonicNs() < due);
    if (every === undefined) waiting.delete(id);
    else waiting.get(id).due = due + every * 1e6;
    work();
  }
}

// A unit that serves another call begins without the timers of the last.
export function forget() {
  waiting.clear();
}
