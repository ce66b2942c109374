// Drawing, once for each frame and never for long: what is left over is drawn with the next one.
//
//   draw(part) ──▶ parts that wait, each once ──frame──▶ one after the other, until a slice of time is over
//
// A part reads what it shows when its turn comes, so it shows the newest, however often it was asked for. It may do a
// piece of its work and return true: then its turn comes again.

/** Milliseconds after which no other part is begun. Clicks and scrolling wait for so long, and for the part that runs. */
const SLICE = 2;

const parts = new Set();
let due = false;

/** Draws these with the next frame. */
export function draw(...wanted) {
  for (const part of wanted) parts.add(part);
  if (due || !parts.size) return;
  due = true;
  requestAnimationFrame(() => { due = false; if (parts.size) now(); });
}

/** Draws what waits at once. */
export function now() {
  const began = performance.now();
  for (const part of parts) {
    parts.delete(part);
    if (part()) parts.add(part);
    if (performance.now() - began >= SLICE) break;
  }
  performance.measure('draw', { start: began });
  draw();
}

/** Forgets what waits: its view is gone. */
export const forget = () => parts.clear();
