// The function {{name}}: greets the person named in the data, or in ?name= of the URL, and counts the greetings.
import store from "lighter:unit/store@0.1.0";
import { decode, parameter, serve } from "./lighter.js";

export const handler = serve((event) => {
  const name = decode(event.data) || parameter(event, "name") || "world";
  const count = store.increment("{{name}}", "greetings", 1);
  return `hello, ${name}, greeting ${count}\n`;
});
