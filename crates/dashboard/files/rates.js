// How fast numbers rise: means over the last ten seconds, kept for those alone that have risen in them.

const OVER = 10000;

/** Of things with a name, so many numbers each. */
export class Rates {
  constructor(count) {
    /** For each number its rates a second, by name. What rests is in none. */
    this.maps = Array.from({ length: count }, () => new Map());
    this.clear();
  }

  clear() {
    this.times = [];
    /** By name: when its numbers were others than before, and which; the first is what they were at the beginning. */
    this.moving = new Map();
    this.maps.forEach(map => map.clear());
  }

  /** Takes what changed, as [name, numbers, numbers before], and calls `moved` for each name whose rates may be others now. */
  take(now, changes, moved) {
    while (this.times.length && now - this.times[0] > OVER) this.times.shift();
    const [from] = this.times;
    const last = this.times.at(-1);
    this.times.push(now);
    if (from === undefined) {
      for (const name of this.moving.keys()) this.rest(name, moved);
      return;
    }
    for (const [name, numbers, before] of changes) {
      if (!this.moving.has(name)) this.moving.set(name, [[last, before]]);
      this.moving.get(name).push([now, numbers]);
    }
    for (const [name, track] of this.moving) {
      while (track.length > 1 && track[1][0] <= from) track.shift();
      if (track.length === 1) { this.rest(name, moved); continue; }
      this.maps.forEach((map, at) => map.set(name, Math.max(0, track.at(-1)[1][at] - track[0][1][at]) * 1000 / (now - from)));
      moved(name);
    }
  }

  /** Forgets all but these. */
  only(names) {
    for (const name of this.moving.keys()) if (!names.has(name)) this.rest(name);
  }

  rest(name, moved) {
    this.moving.delete(name);
    this.maps.forEach(map => map.delete(name));
    moved?.(name);
  }
}
