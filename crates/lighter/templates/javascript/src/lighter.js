// What a function needs beside the contract: text to bytes and back, and errors that the node understands.
import log from "lighter:unit/log@0.1.0";

// Makes a handler of `answer(event)`, which returns text or bytes. What it throws ends up in the function's log.
export function serve(answer) {
  return {
    handle(event) {
      try {
        const reply = answer(event);
        return typeof reply === "string" ? encode(reply) : reply;
      } catch (error) {
        if (error instanceof Failure) throw { tag: error.tag, val: error.message };
        // What the host refuses is an error with the payload { tag: "denied" | "invalid" | "unavailable", val: why }.
        const refusal = error?.payload;
        const why = refusal === undefined ? String(error) : `${refusal.tag}: ${refusal.val}`;
        log.write("error", `${why}\n${error?.stack ?? ""}`);
        throw { tag: refusal?.tag === "unavailable" ? "retry" : "fatal", val: why };
      }
    },
  };
}

// Throw one to say how the work failed: "invalid" (never try again), "retry" (try later) or "fatal".
export class Failure extends Error {
  constructor(tag, message) {
    super(message);
    this.tag = tag;
  }
}

// The value of an event's extension attribute, for instance "httpmethod" or "http-user-agent".
export function attribute(event, name) {
  return event.attributes.find(([key]) => key === name)?.[1];
}

// The value of a parameter of the URL, decoded: "a b" for "name" in ?name=a+b. Undefined if it is not there.
export function parameter(event, name) {
  for (const pair of (attribute(event, "httpquery") ?? "").split("&")) {
    const [key, ...parts] = pair.split("=");
    if (key !== name) continue;
    try {
      return decodeURIComponent(parts.join("=").replaceAll("+", " "));
    } catch {
      throw new Failure("invalid", `the value of ${name} in the URL is not percent-encoded UTF-8`);
    }
  }
  return undefined;
}

// Bytes of UTF-8 as text; throws if they are not UTF-8.
export function decode(bytes) {
  let escaped = "";
  for (const byte of bytes) escaped += "%" + byte.toString(16).padStart(2, "0");
  try {
    return decodeURIComponent(escaped);
  } catch {
    throw new Failure("invalid", "the data is not UTF-8");
  }
}

// Text as bytes of UTF-8.
export function encode(text) {
  const escaped = encodeURIComponent(text);
  const bytes = [];
  for (let at = 0; at < escaped.length; at++) {
    const coded = escaped[at] === "%";
    bytes.push(coded ? parseInt(escaped.slice(at + 1, at + 3), 16) : escaped.charCodeAt(at));
    if (coded) at += 2;
  }
  return new Uint8Array(bytes);
}
