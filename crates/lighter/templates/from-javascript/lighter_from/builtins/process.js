// The process of globals.js, for those who import it.
module.exports = globalThis.process;
