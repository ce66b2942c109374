// The function {{name}}: greets the person named in the data, or in ?name= of the URL, and counts the greetings.
import store from "lighter:unit/store@0.1.0";
import { attribute, decode, serve } from "./lighter.js";

export const handler = serve((event) => {
  const query = attribute(event, "httpquery") ?? "";
  const name = decode(event.data) || query.match(/(?:^|&)name=([^&]*)/)?.[1] || "world";
  const count = store.increment("{{name}}", "greetings", 1);
  return `hello, ${name}, greeting ${count}\n`;
});
