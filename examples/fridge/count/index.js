// Counts how often a fridge was opened: `fridge/NAME/door` with { "sequence": 7, "open": true } becomes the new count,
// pushed to the queue `counts`, whose sink publishes it under `fridge/NAME/count`.
//
// A door that reports "open" twice was opened once, so the last state is kept; what is not newer than the newest seen is
// a repetition or late, and left out.
import queue from "lighter:unit/queue@0.1.0";
import store from "lighter:unit/store@0.1.0";
import { Failure, decode, encode, serve } from "../../../crates/lighter/templates/javascript/src/lighter.js";

const BUCKET = "fridge";

export const handler = serve((event) => {
  const fridge = event.subject?.split("/")[1];
  if (!fridge) throw new Failure("invalid", "the topic does not name the fridge");
  const { sequence, open } = checked(decode(event.data));
  const known = store.get(BUCKET, fridge);
  const last = known == null ? { sequence: -1, open: false, count: 0 } : JSON.parse(decode(known));
  if (sequence <= last.sequence) return "known";

  const count = last.count + (open && !last.open ? 1 : 0);
  store.set(BUCKET, fridge, encode(JSON.stringify({ sequence, open, count })));
  if (count !== last.count) {
    const data = encode(String(count));
    queue.push("counts", { type: "fridge.count", subject: fridge, contentType: "text/plain", attributes: [], data });
  }
  return "";
});

function checked(text) {
  let reading;
  try {
    reading = JSON.parse(text);
  } catch (error) {
    throw new Failure("invalid", `the data is no JSON: ${error.message}`);
  }
  if (!Number.isSafeInteger(reading?.sequence) || reading.sequence < 0) {
    throw new Failure("invalid", `sequence is ${reading?.sequence}, it should be a whole number`);
  }
  if (typeof reading.open !== "boolean") {
    throw new Failure("invalid", `open is ${reading.open}, it should be true or false`);
  }
  return reading;
}
