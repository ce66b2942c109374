// Makes a wasi:http component of a file. usage: node componentize.mjs WIT-FOLDER SOURCE COMPONENT
//
// componentize-js speaks wasi:http 0.2.10, our contracts are 0.2.12: the same interfaces, so only the number is changed.
import { componentize } from "@bytecodealliance/componentize-js";
import { mkdtempSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [contracts, source, component] = process.argv.slice(2);
const wit = mkdtempSync(join(tmpdir(), "lighter-bench-wit-"));
try {
  mkdirSync(join(wit, "deps"));
  for (const name of ["cli", "clocks", "filesystem", "http", "io", "random", "sockets"]) {
    const text = readFileSync(join(contracts, `${name}.wit`), "utf8");
    writeFileSync(join(wit, "deps", `${name}.wit`), text.replaceAll("0.2.12", "0.2.10"));
  }
  writeFileSync(join(wit, "world.wit"), "package bench:hello;\nworld guest { include wasi:http/proxy@0.2.10; }\n");
  // What handles wasi:http itself listens for no events.
  const listens = readFileSync(source, "utf8").includes("addEventListener(");
  const disableFeatures = listens ? [] : ["fetch-event"];
  const made = await componentize({ sourcePath: source, witPath: wit, worldName: "guest", disableFeatures });
  // Renamed into place: an interrupted run leaves no half component behind.
  writeFileSync(`${component}.partial`, made.component);
  renameSync(`${component}.partial`, component);
} finally {
  rmSync(wit, { recursive: true });
}
