// Makes one file of the handler, of the packages that it uses, and of what stands here for Node.js. Made by `lighter new
// --from`.
//
// What a unit does not have is an error here where it can be known: native modules, packages that are not installed, and
// a top level that awaits. A module of Node.js that is not here says so when it is used: packages load more than they use.
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { builtinModules, createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const HERE = path.dirname(fileURLToPath(import.meta.url));
const HANDLER = path.resolve(HERE, "..", "{{module}}");
const own = createRequire(path.join(HERE, "package.json"));

// What there is of Node.js, by module.
const PRESENT = {
  assert: own.resolve("assert/"),
  buffer: own.resolve("buffer/"),
  events: own.resolve("events/"),
  path: own.resolve("path-browserify"),
  querystring: own.resolve("querystring-es3"),
  string_decoder: own.resolve("string_decoder/"),
  url: own.resolve("url/"),
  util: own.resolve("util/"),
};
for (const name of ["crypto", "os", "process", "timers", "timers/promises", "perf_hooks"]) {
  PRESENT[name] = path.join(HERE, "builtins", `${name.replace("/", "-")}.js`);
}

// What helps where another one is used.
const HINTS = {
  fs: "a unit has no files: import what it reads, and keep what is to stay in lighter:unit/store",
  http: "use fetch, with grants.hosts in lighter.toml",
  aws: "services of AWS are not here: lighter:unit has store, queue and http",
};
for (const name of ["https", "http2", "net", "tls", "dns", "dgram"]) HINTS[name] = HINTS.http;
for (const name of ["fs/promises"]) HINTS[name] = HINTS.fs;

const isOfAws = (name) => name === "aws-sdk" || name.startsWith("@aws-sdk/") || name.startsWith("@smithy/");

const fails = (text, hint) => ({ errors: [{ text: `error[L2033]: ${text}`, notes: [{ text: `hint: ${hint}` }] }] });

const foreign = {
  name: "foreign",
  setup(made) {
    // By the names of Node.js, with and without "node:".
    made.onResolve({ filter: /^[^./]/ }, ({ path: name, kind, importer }) => {
      if (kind === "entry-point" || name.startsWith("lighter:unit/")) return undefined;
      const plain = name.replace(/^node:/, "").replace(/\/$/, "");
      if (Object.hasOwn(PRESENT, plain)) return { path: PRESENT[plain] };
      if (builtinModules.includes(plain) || name.startsWith("node:")) return { path: plain, namespace: "absent" };
      if (isOfAws(name) && !isInstalled(name, importer)) return { path: name, namespace: "absent" };
      return undefined;
    });
    made.onLoad({ filter: /.*/, namespace: "absent" }, ({ path: name }) => {
      const hint = HINTS[isOfAws(name) ? "aws" : name] ?? "docs/compatibility.md lists what there is";
      return { contents: absent(`L2033: ${name} is not here: ${hint}`), loader: "js" };
    });
    made.onLoad({ filter: /\.node$/ }, ({ path: file }) =>
      fails(`${path.relative(path.dirname(HANDLER), file)} is native code, which no unit runs`, "use a package in plain JavaScript"),
    );
    // OpenWhisk takes the function `main` of a file that exports nothing.
    made.onLoad({ filter: /\.[cm]?js$/ }, async ({ path: file }) => {
      if (file !== HANDLER || "{{origin}}" !== "openwhisk") return undefined;
      const text = await readFile(file, "utf8");
      if (/^\s*(export|import)\b/m.test(text)) return undefined;
      const kept = `\n;if (typeof {{function}} === "function" && exports.{{function}} === undefined) exports.{{function}} = {{function}};\n`;
      return { contents: text + kept, loader: "js", resolveDir: path.dirname(file) };
    });
  },
};

function isInstalled(name, importer) {
  const [scope, rest] = name.split("/");
  const folder = name.startsWith("@") ? `${scope}/${rest}` : scope;
  for (let place = path.dirname(importer); ; place = path.dirname(place)) {
    if (existsSync(path.join(place, "node_modules", folder))) return true;
    if (place === path.dirname(place)) return false;
  }
}

// A module whose parts say what is missing when they are asked for, by whatever way of importing.
function absent(words) {
  return `
    const parts = new Proxy({}, {
      get(_, name) {
        if (typeof name === "symbol" || name === "__esModule" || name === "default") return undefined;
        throw new Error(${JSON.stringify(words)} + " (" + name + ")");
      },
    });
    module.exports = Object.create(parts);
  `;
}

try {
  await build({
    entryPoints: [path.join(HERE, "main.js")],
    outfile: path.join(HERE, "build", "bundle.js"),
    bundle: true,
    format: "esm",
    platform: "browser",
    target: "es2022",
    // QuickJS runs no jobs between a call and its answer, so promises are ours, and what awaits is made of generators.
    supported: { "async-await": false, "async-generator": false, "for-await": false },
    external: ["lighter:unit/*"],
    define: { global: "globalThis", "process.env.NODE_ENV": '"production"', "process.env.NODE_DEBUG": "undefined" },
    plugins: [foreign],
    logLevel: "silent",
  });
} catch ({ errors, message }) {
  for (const { text, notes, location } of errors ?? [{ text: message, notes: [], location: null }]) {
    const place = location ? `${path.relative(process.cwd(), location.file)}:${location.line}: ` : "";
    const [said, hint] = text.startsWith("error[") ? [text, notes[0].text] : explained(text);
    console.error(`${place}${said}\n${hint}`);
  }
  process.exitCode = 1;
}

function explained(text) {
  const missing = text.match(/^Could not resolve "([^"]+)"/)?.[1];
  if (missing) {
    return [`error[L2033]: the package ${missing} is not there`, "hint: `npm install` in the handler's folder, then build again"];
  }
  if (/top-level await/i.test(text)) {
    return ["error[L2033]: the handler's file awaits outside of a function", "hint: await it in the handler"];
  }
  return [`error[L1104]: ${text}`, "hint: it is no JavaScript that esbuild understands"];
}
