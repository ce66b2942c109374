// fetch, as far as the contract's whole requests and whole responses go. A unit reaches the hosts of grants.hosts alone.
import http from "lighter:unit/http@0.1.0";
import { Buffer } from "buffer/";

export class Headers {
  #values = new Map();

  constructor(from = {}) {
    const pairs = typeof from[Symbol.iterator] === "function" ? from : Object.entries(from);
    for (const [name, value] of pairs) this.append(name, value);
  }
  append(name, value) {
    const known = this.get(name);
    this.#values.set(name.toLowerCase(), known === null ? String(value) : `${known}, ${value}`);
  }
  set(name, value) {
    this.#values.set(name.toLowerCase(), String(value));
  }
  get(name) {
    return this.#values.get(name.toLowerCase()) ?? null;
  }
  has(name) {
    return this.#values.has(name.toLowerCase());
  }
  delete(name) {
    this.#values.delete(name.toLowerCase());
  }
  forEach(each) {
    for (const [name, value] of this) each(value, name, this);
  }
  entries() {
    return this.#values.entries();
  }
  keys() {
    return this.#values.keys();
  }
  values() {
    return this.#values.values();
  }
  [Symbol.iterator]() {
    return this.entries();
  }
}

export class Response {
  #body;

  constructor(body, { status = 200, headers = {}, url = "" } = {}) {
    this.#body = Buffer.from(body ?? "");
    this.status = status;
    this.ok = status >= 200 && status < 300;
    this.statusText = "";
    this.headers = new Headers(headers);
    this.url = url;
  }
  async text() {
    return this.#body.toString();
  }
  async json() {
    return JSON.parse(this.#body.toString());
  }
  async arrayBuffer() {
    return new Uint8Array(this.#body).buffer;
  }
  async bytes() {
    return new Uint8Array(this.#body);
  }
}

export async function fetch(where, { method = "GET", headers = {}, body } = {}) {
  const url = String(where?.href ?? where?.url ?? where);
  const sent = new Headers(headers);
  if (body instanceof URLSearchParams && !sent.has("content-type")) sent.set("content-type", "application/x-www-form-urlencoded;charset=UTF-8");
  const data = body === undefined || body === null ? [] : Buffer.from(ArrayBuffer.isView(body) || body instanceof ArrayBuffer ? body : String(body));
  let reply;
  try {
    reply = http.send({ method: method.toUpperCase(), url, headers: [...sent], body: new Uint8Array(data) });
  } catch (error) {
    const refusal = error?.payload ?? error;
    throw new TypeError(`fetch failed: ${refusal?.val ?? refusal}`, { cause: error });
  }
  return new Response(reply.body, { status: reply.status, headers: reply.headers, url });
}
