// What handlers find in Node.js without importing it, from what the contract has.
import clock from "lighter:unit/clock@0.1.0";
import config from "lighter:unit/config@0.1.0";
import log from "lighter:unit/log@0.1.0";
import random from "lighter:unit/random@0.1.0";
import { Promise } from "./promise.js";
import * as timers from "./timers.js";
import "core-js/actual/structured-clone";
import "core-js/actual/url";
import "core-js/actual/url-search-params";
import "core-js/actual/atob";
import "core-js/actual/btoa";
import { Buffer } from "buffer/";
import util from "util/";
import { fetch, Headers, Response } from "./fetch.js";

// The engine's own clock and seeds are those of the build.
const BuildDate = globalThis.Date;
class Date extends BuildDate {
  constructor(...parts) {
    if (parts.length === 0) super(clock.nowMs());
    else super(...parts);
  }

  static now() {
    return clock.nowMs();
  }
}

// Fifty-three bits, as Math.random has.
function unpredictable() {
  const bytes = random.bytes(7);
  let number = bytes[0] & 0x1f;
  for (let at = 1; at < 7; at++) number = number * 256 + bytes[at];
  return number / 2 ** 53;
}

const says = (level) => (...words) => log.write(level, util.format(...words));
const console = {
  log: says("info"),
  info: says("info"),
  warn: says("warn"),
  error: says("error"),
  debug: says("debug"),
  trace: says("debug"),
  dir: says("info"),
  assert: (isTrue, ...words) => isTrue || says("error")("assertion failed:", ...words),
};
for (const name of ["time", "timeEnd", "timeLog", "group", "groupEnd", "table", "count"]) console[name] = () => {};

const named = (name) => (typeof name === "string" ? (config.get(name) ?? undefined) : undefined);
const set = {};
const env = new Proxy(set, {
  get: (_, name) => (Object.hasOwn(set, name) ? set[name] : named(name)),
  has: (_, name) => Object.hasOwn(set, name) || named(name) !== undefined,
});

const monotonicNs = () => clock.monotonicNs();

// Seconds and nanoseconds, since an earlier reading if there is one.
function hrtime([seconds, ns] = [0, 0]) {
  const since = monotonicNs() - (seconds * 1e9 + ns);
  const whole = Math.floor(since / 1e9);
  return [whole, since - whole * 1e9];
}
hrtime.bigint = () => BigInt(monotonicNs());

const process = {
  env,
  argv: [],
  execArgv: [],
  browser: true,
  exitCode: undefined,
  pid: 1,
  platform: "linux",
  arch: "wasm32",
  version: "v20.0.0",
  versions: { node: "20.0.0" },
  release: { name: "node" },
  cwd: () => "/",
  uptime: () => monotonicNs() / 1e9,
  nextTick: (work, ...words) => timers.queueMicrotask(() => work(...words)),
  hrtime,
  memoryUsage: () => ({ rss: 0, heapTotal: 0, heapUsed: 0, external: 0, arrayBuffers: 0 }),
  exit: (code) => {
    throw new Error(`L2033: process.exit(${code ?? 0}) is not here: return, or throw`);
  },
  stdout: { write: (text) => log.write("info", String(text).replace(/\n$/, "")), isTTY: false },
  stderr: { write: (text) => log.write("error", String(text).replace(/\n$/, "")), isTTY: false },
};
// Nothing happens in a unit that they would be told of.
for (const name of ["on", "once", "off", "addListener", "removeListener", "removeAllListeners", "emitWarning"]) {
  process[name] = () => process;
}

class TextEncoder {
  encoding = "utf-8";
  encode(text = "") {
    return new Uint8Array(Buffer.from(String(text)));
  }
}

class TextDecoder {
  constructor(encoding = "utf-8", { fatal = false } = {}) {
    if (!/^utf-?8$/i.test(encoding)) throw new RangeError(`the encoding ${encoding} is not here`);
    this.encoding = "utf-8";
    this.fatal = fatal;
  }

  decode(bytes = new Uint8Array()) {
    const buffer = ArrayBuffer.isView(bytes) ? Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength) : Buffer.from(bytes);
    const text = buffer.toString();
    if (this.fatal && !Buffer.from(text).equals(buffer)) throw new TypeError("the data is not UTF-8");
    return text;
  }
}

const crypto = {
  getRandomValues(array) {
    if (array.byteLength > 65_536) throw new RangeError("getRandomValues gives at most 65,536 bytes");
    new Uint8Array(array.buffer, array.byteOffset, array.byteLength).set(random.bytes(array.byteLength));
    return array;
  },
  randomUUID() {
    const bytes = Buffer.from(random.bytes(16));
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    return bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  },
};

Math.random = unpredictable;
const performance = { now: () => monotonicNs() / 1e6, timeOrigin: 0 };
const all = { Buffer, Date, Headers, Promise, Response, TextDecoder, TextEncoder, console, crypto, fetch, performance, process, ...timers };
for (const [name, value] of Object.entries(all)) {
  Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
}
