// Numbers and times as people read them.

/** `1,240`. Not by `Intl`, which takes longer to begin than the whole page to draw. */
export const count = number => number === undefined || number === null ? '–' : String(Math.round(number)).replace(/\B(?=(\d{3})+$)/g, ',');

/** `0`, `0.3`, `12.4`, `1,240`. */
export const rate = number => !number ? '0' : number < 10 ? number.toFixed(1) : count(number);

export function bytes(number) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  while (number >= 1024 && at < units.length - 1) { number /= 1024; at += 1; }
  return `${at && number < 10 ? number.toFixed(1) : Math.round(number)} ${units[at]}`;
}

/** Milliseconds as `12 ms`, `1.4 s`, `3 min`, `2 h`, `4 d`. */
export function span(ms) {
  if (ms === undefined || ms === null) return '–';
  if (ms < 1) return ms === 0 ? '0 ms' : `${Math.round(ms * 1000)} µs`;
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  for (const [unit, size, next] of [['s', 1000, 60], ['min', 60000, 60], ['h', 3600000, 48], ['d', 86400000, Infinity]]) {
    const number = ms / size;
    if (number < next) return `${number < 10 && unit === 's' ? number.toFixed(1) : Math.floor(number)} ${unit}`;
  }
}

export const micros = us => span(us === undefined || us === null ? undefined : us / 1000);

const two = number => String(number).padStart(2, '0');

/** The time of day here. */
export function clock(ms) {
  const time = new Date(ms);
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}.${String(time.getMilliseconds()).padStart(3, '0')}`;
}

/** Day and time here. */
export function stamp(ms) {
  if (!ms) return '–';
  const time = new Date(ms);
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ${clock(ms).slice(0, 8)}`;
}

/** `1 dead letter`, `2 dead letters`. */
export const of = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
