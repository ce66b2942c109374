// Runs a handler that was written for {{origin}} as a function of Lighterage. Made by `lighter new --from`.
import "./globals.js";
import { of_{{origin}} } from "./foreign.js";

// The module of the handler is run by the first call of a unit and not by the build: what it reads then, as process.env
// or the time, is what is there then.
export const handler = of_{{origin}}(() => require("../{{module}}"), "{{function}}");
