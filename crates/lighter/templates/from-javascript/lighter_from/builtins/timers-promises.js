import * as timers from "../timers.js";

export const setTimeout = (ms, value) => new Promise((resolve) => timers.setTimeout(resolve, ms, value));
export const setImmediate = (value) => setTimeout(0, value);
