export * from "../timers.js";
