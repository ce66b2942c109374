// The first that runs: takes the token out of the address, and asks for the stream while the rest still travels.
//
// The link of `lighter dashboard` carries the token in its fragment, which the browser keeps to itself. It is taken out
// of the address at once and kept for this tab alone.

const KEY = 'lighter.token';

const given = /^#token=([\w-]+)$/.exec(location.hash)?.[1];
if (given) {
  sessionStorage.setItem(KEY, given);
  history.replaceState(null, '', location.pathname);
}

export const token = () => sessionStorage.getItem(KEY);
export const keepToken = text => sessionStorage.setItem(KEY, text);
export const dropToken = () => sessionStorage.removeItem(KEY);

/** Asks the API. Paths are relative, so that a proxy may put all of it below a path. */
export function ask(method, path, { body, signal } = {}) {
  return fetch(`v1/${path}`, { method, headers: { authorization: `Bearer ${token()}` }, body, signal, cache: 'no-store' });
}

/** What most views begin with. Nobody reads it where the page is hidden, and without a token it is refused. */
let early;
if (token() && !document.hidden) {
  const ending = new AbortController();
  early = { path: 'live?', ending, response: ask('GET', 'live?', { signal: ending.signal }) };
  // Whoever takes it hears of it.
  early.response.catch(() => {});
}

/** The answer that is on its way, for who wants this path first; anybody else ends it, and asks. */
export function begun(path, signal) {
  const one = early;
  early = undefined;
  if (one?.path !== path) return one?.ending.abort();
  signal.addEventListener('abort', () => one.ending.abort());
  return one.response;
}
