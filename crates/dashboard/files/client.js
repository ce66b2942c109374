// The node's API, with the token of this tab.
//
// The link of `lighter dashboard` carries the token in its fragment, which the browser keeps to itself. It is taken out
// of the address at once and kept for this tab alone.

const KEY = 'lighter.token';

/** What the API answered, if it was a problem. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the node answered ${status}`);
    Object.assign(this, { status, code: problem.code, hint: problem.hint });
  }
}

export function takeToken() {
  const given = /^#token=([\w-]+)$/.exec(location.hash)?.[1];
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, '', location.pathname);
  }
  return sessionStorage.getItem(KEY);
}

export const keepToken = token => sessionStorage.setItem(KEY, token);
export const dropToken = () => sessionStorage.removeItem(KEY);

/** Sends a request, and returns its response or throws what was wrong. Paths are relative, so that a proxy may put all of it below a path. */
export async function send(method, path, { body, signal } = {}) {
  const headers = { authorization: `Bearer ${sessionStorage.getItem(KEY)}` };
  const text = body === undefined || body instanceof Uint8Array ? body : JSON.stringify(body);
  const response = await fetch(`v1/${path}`, { method, headers, body: text, signal, cache: 'no-store' });
  if (response.ok) return response;
  throw new Refused(response.status, await response.json().catch(() => ({})));
}

export const get = async (path, options) => (await send('GET', path, options)).json();
export const post = async (path, body) => (await send('POST', path, { body })).json();

/** Reads a stream of JSON lines until it ends or `signal` ends it. */
export async function lines(path, signal, take) {
  const response = await send('GET', path, { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    let end;
    while ((end = rest.indexOf('\n')) >= 0) {
      if (end > 0) take(JSON.parse(rest.slice(0, end)));
      rest = rest.slice(end + 1);
    }
  }
}

/** The path of something with a name. */
export const named = (kind, name, rest = '') => `${kind}/${encodeURIComponent(name)}${rest}`;
