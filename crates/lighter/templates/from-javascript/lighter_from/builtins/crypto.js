// What there is of Node's crypto: hashes but MD5, and randomness.
import random from "lighter:unit/random@0.1.0";
import { Buffer } from "buffer/";
import hash from "hash.js";

// What the host gives in one call; asked for more, it ends the unit.
const RANDOM_BYTES_MAX = 65_536;
const HASHES = { sha1: hash.sha1, sha224: hash.sha224, sha256: hash.sha256, sha384: hash.sha384, sha512: hash.sha512 };

function known(name) {
  const found = HASHES[String(name).toLowerCase().replace("-", "")];
  if (found === undefined) throw new Error(`L2033: the hash ${name} is not here: there are ${Object.keys(HASHES).join(", ")}`);
  return found;
}

class Digest {
  #made;

  constructor(made) {
    this.#made = made;
  }
  update(data, encoding) {
    this.#made.update([...(typeof data === "string" ? Buffer.from(data, encoding) : Buffer.from(data))]);
    return this;
  }
  digest(encoding) {
    const bytes = Buffer.from(this.#made.digest());
    return encoding === undefined || encoding === "buffer" ? bytes : bytes.toString(encoding);
  }
}

export const createHash = (name) => new Digest(known(name)());
export const createHmac = (name, key) => new Digest(hash.hmac(known(name), [...Buffer.from(key)]));
export const getHashes = () => Object.keys(HASHES);
export function randomBytes(count) {
  const bytes = Buffer.alloc(count);
  for (let at = 0; at < count; at += RANDOM_BYTES_MAX) {
    bytes.set(random.bytes(Math.min(count - at, RANDOM_BYTES_MAX)), at);
  }
  return bytes;
}
export const randomUUID = () => globalThis.crypto.randomUUID();
export const getRandomValues = (array) => globalThis.crypto.getRandomValues(array);
export const randomInt = (low, high) => {
  const [from, to] = high === undefined ? [0, low] : [low, high];
  return from + Math.floor(Math.random() * (to - from));
};
export function timingSafeEqual(one, other) {
  if (one.length !== other.length) throw new RangeError("the two are not of one length");
  let differs = 0;
  for (let at = 0; at < one.length; at++) differs |= one[at] ^ other[at];
  return differs === 0;
}
export const webcrypto = { randomUUID, getRandomValues };
export default { createHash, createHmac, getHashes, randomBytes, randomUUID, getRandomValues, randomInt, timingSafeEqual, webcrypto };
