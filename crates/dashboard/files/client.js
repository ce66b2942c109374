// The node's API, with the token of this tab.

import { ask } from './first.js';

/** What the API answered, if it was a problem. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the node answered ${status}`);
    Object.assign(this, { status, code: problem.code, hint: problem.hint });
  }
}

async function good(answer) {
  const response = await answer;
  if (response.ok) return response;
  throw new Refused(response.status, await response.json().catch(() => ({})));
}

/** Sends a request, and returns its response or throws what was wrong. */
export function send(method, path, { body, signal } = {}) {
  return good(ask(method, path, { body: body === undefined || body instanceof Uint8Array ? body : JSON.stringify(body), signal }));
}

export const get = async (path, options) => (await send('GET', path, options)).json();
export const post = async (path, body) => (await send('POST', path, { body })).json();

/** Reads a stream of JSON lines until it ends or `signal` ends it. `answer` is there if it was asked for before. */
export async function lines(path, signal, take, answer = ask('GET', path, { signal })) {
  const response = await good(answer);
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += decoder.decode(value, { stream: true });
    let end;
    while ((end = rest.indexOf('\n')) >= 0) {
      if (end > 0) take(JSON.parse(rest.slice(0, end)));
      rest = rest.slice(end + 1);
    }
  }
}

/** The path of something with a name. */
export const named = (kind, name, rest = '') => `${kind}/${encodeURIComponent(name)}${rest}`;
