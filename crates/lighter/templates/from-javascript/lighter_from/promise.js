// Promises whose jobs this program runs itself: in a component without async exports, the engine never runs its own.

const jobs = [];

export function later(job) {
  jobs.push(job);
}

// Runs what is to be run, and what comes of it.
export function runJobs() {
  while (jobs.length > 0) jobs.shift()();
}

const isObject = (value) => value !== null && (typeof value === "object" || typeof value === "function");

export class Promise {
  #state = "pending";
  #value;
  #waiting = [];

  constructor(executor) {
    if (typeof executor !== "function") throw new TypeError("a promise is made of a function");
    const { resolve, reject } = this.#settlers();
    try {
      executor(resolve, reject);
    } catch (error) {
      reject(error);
    }
  }

  // Only the first of the two that is called counts.
  #settlers() {
    let isSettled = false;
    const once = (settle) => (value) => {
      if (isSettled) return;
      isSettled = true;
      settle(value);
    };
    return { resolve: once((value) => this.#resolve(value)), reject: once((error) => this.#settle("rejected", error)) };
  }

  #resolve(value) {
    if (value === this) return this.#settle("rejected", new TypeError("a promise waits for itself"));
    if (!isObject(value)) return this.#settle("fulfilled", value);
    let then;
    try {
      then = value.then;
    } catch (error) {
      return this.#settle("rejected", error);
    }
    if (typeof then !== "function") return this.#settle("fulfilled", value);
    const { resolve, reject } = this.#settlers();
    later(() => {
      try {
        then.call(value, resolve, reject);
      } catch (error) {
        reject(error);
      }
    });
  }

  #settle(state, value) {
    this.#state = state;
    this.#value = value;
    for (const wake of this.#waiting.splice(0)) later(wake);
  }

  then(onFulfilled, onRejected) {
    return new Promise((resolve, reject) => {
      const wake = () => {
        const isFulfilled = this.#state === "fulfilled";
        const on = isFulfilled ? onFulfilled : onRejected;
        if (typeof on !== "function") return isFulfilled ? resolve(this.#value) : reject(this.#value);
        try {
          resolve(on(this.#value));
        } catch (error) {
          reject(error);
        }
      };
      this.#state === "pending" ? this.#waiting.push(wake) : later(wake);
    });
  }

  catch(onRejected) {
    return this.then(undefined, onRejected);
  }

  finally(onSettled) {
    if (typeof onSettled !== "function") return this.then();
    return this.then(
      (value) => Promise.resolve(onSettled()).then(() => value),
      (error) => Promise.resolve(onSettled()).then(() => Promise.reject(error)),
    );
  }

  get [Symbol.toStringTag]() {
    return "Promise";
  }

  static resolve(value) {
    return value instanceof Promise ? value : new Promise((resolve) => resolve(value));
  }

  static reject(error) {
    return new Promise((_, reject) => reject(error));
  }

  static withResolvers() {
    let resolve, reject;
    const promise = new Promise((...two) => ([resolve, reject] = two));
    return { promise, resolve, reject };
  }

  static try(work, ...words) {
    return new Promise((resolve) => resolve(work(...words)));
  }

  static all(values) {
    return gathered(values, (promise, at, { keep, reject }) => promise.then((value) => keep(at, value), reject));
  }

  static allSettled(values) {
    const fulfilled = (value) => ({ status: "fulfilled", value });
    const rejected = (reason) => ({ status: "rejected", reason });
    return Promise.all(Array.from(values, (value) => Promise.resolve(value).then(fulfilled, rejected)));
  }

  static any(values) {
    const turned = Array.from(values, (value) => Promise.resolve(value).then((good) => Promise.reject(good), (bad) => bad));
    const failed = (errors) => Promise.reject(new AggregateError(errors, "all promises were rejected"));
    return Promise.all(turned).then(failed, (good) => good);
  }

  static race(values) {
    return new Promise((resolve, reject) => {
      for (const value of values) Promise.resolve(value).then(resolve, reject);
    });
  }
}

// A promise of as many values as there are, each at its place.
function gathered(values, wait) {
  return new Promise((resolve, reject) => {
    const promises = Array.from(values, (value) => Promise.resolve(value));
    const kept = new Array(promises.length);
    let left = promises.length;
    const keep = (at, value) => {
      kept[at] = value;
      left -= 1;
      if (left === 0) resolve(kept);
    };
    if (left === 0) resolve(kept);
    promises.forEach((promise, at) => wait(promise, at, { keep, reject }));
  });
}
