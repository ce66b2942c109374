// What Restate's nodes call: counters whose state Restate keeps. Usage: node restate.mjs PORT

// The library is written for Node 22, and needs no more of it than this.
Promise.withResolvers ??= () => {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
};
const restate = await import("@restatedev/restate-sdk");

const counter = restate.object({
  name: "counter",
  handlers: {
    add: async (context) => {
      const count = ((await context.get("count")) ?? 0) + 1;
      context.set("count", count);
      return count;
    },
    read: async (context) => (await context.get("count")) ?? 0,
  },
});

restate.endpoint().bind(counter).listen(Number(process.argv[2]));
