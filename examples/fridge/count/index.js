// Counts how often a fridge was opened, and when: `fridge/NAME/door` with { "sequence": 7, "open": true } becomes the new
// count, pushed to the queue `counts`, and what is usual, pushed to `habits`: openings by hour of the day and by weekday.
// Their sinks publish them under `fridge/NAME/count` and `fridge/NAME/habits`.
//
// A door that reports "open" twice was opened once, so the last state is kept; what is not newer than the newest seen is
// a repetition or late, and left out. A reading may say its "time"; else it is when it came. Hours are those of
// `config.utc_offset_minutes`.
import config from "lighter:unit/config@0.1.0";
import queue from "lighter:unit/queue@0.1.0";
import store from "lighter:unit/store@0.1.0";
import { Failure, decode, encode, serve } from "../../../crates/lighter/templates/javascript/src/lighter.js";

const BUCKET = "fridge";
const WEEKDAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const NOTHING = { sequence: -1, open: false, count: 0, hours: new Array(24).fill(0), weekdays: new Array(7).fill(0) };

export const handler = serve((event) => {
  const fridge = event.subject?.split("/")[1];
  if (!fridge) throw new Failure("invalid", "the topic does not name the fridge");
  const { sequence, open, time } = checked(decode(event.data));
  const known = store.get(BUCKET, fridge);
  const state = { ...NOTHING, ...(known == null ? {} : JSON.parse(decode(known))) };
  if (sequence <= state.sequence) return "known";

  const isOpened = open && !state.open;
  Object.assign(state, { sequence, open });
  if (isOpened) {
    const { hour, weekday } = when(time ?? event.timeMs);
    state.count += 1;
    state.hours = state.hours.with(hour, state.hours[hour] + 1);
    state.weekdays = state.weekdays.with(weekday, state.weekdays[weekday] + 1);
  }
  store.set(BUCKET, fridge, encode(JSON.stringify(state)));
  if (isOpened) {
    push("counts", "fridge.count", fridge, "text/plain", String(state.count));
    push("habits", "fridge.habits", fridge, "application/json", JSON.stringify(habits(state)));
  }
  return "";
});

function push(name, type, subject, contentType, text) {
  queue.push(name, { type, subject, contentType, attributes: [], data: encode(text) });
}

// The hour of the day and the weekday where the fridge stands.
function when(timeMs) {
  const offset = Number(config.get("utc_offset_minutes") ?? 0);
  if (!Number.isInteger(offset)) throw new Failure("fatal", "config.utc_offset_minutes is no whole number");
  const there = new Date(timeMs + offset * 60_000);
  return { hour: there.getUTCHours(), weekday: there.getUTCDay() };
}

function habits({ count, hours, weekdays }) {
  const busiest = (counts) => counts.indexOf(Math.max(...counts));
  const byDay = Object.fromEntries(WEEKDAYS.map((name, at) => [name, weekdays[at]]));
  return { count, hours, weekdays: byDay, busiest_hour: busiest(hours), busiest_weekday: WEEKDAYS[busiest(weekdays)] };
}

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
  if (reading.time === undefined) return reading;
  const time = Date.parse(reading.time);
  if (typeof reading.time !== "string" || !(time >= 0)) {
    throw new Failure("invalid", `time is ${JSON.stringify(reading.time)}, it should be like "2026-11-21T08:00:00Z"`);
  }
  return { ...reading, time };
}
