// An alert becomes a message for people: takes { kit, state, co2_ppm, limit_ppm, time_ms } from the queue `alerts`, or the
// same with noise_dba, and pushes what a Slack-compatible webhook understands to the queue `slack`.
//
// The event says who is told: `slack.channel` goes into the message, and `slack.organisation`, one of those that
// `config.organisations` lists, into the name of the queue: `slack-lab`. So workflows can share this function.
import config from "lighter:unit/config@0.1.0";
import queue from "lighter:unit/queue@0.1.0";
import { Failure, decode, encode, serve } from "../../../crates/lighter/templates/javascript/src/lighter.js";

// What a sensor measures, in words.
const SENSORS = {
  co2_ppm: { name: "CO2", unit: "ppm", helps: "open a window" },
  noise_dba: { name: "noise", unit: "dB(A)", helps: "close a window" },
};

export const handler = serve((event) => {
  const alert = parsed(decode(event.data));
  const text = words(alert);
  const { channel, organisation } = alert.slack ?? {};
  const message = { text, username: "lighter", ...(channel === undefined ? {} : { channel }) };
  queue.push(queueOf(organisation), {
    type: "slack.message",
    subject: alert.kit,
    contentType: "application/json",
    attributes: [],
    data: encode(JSON.stringify(message)),
  });
  return "";
});

function words(alert) {
  const sensor = Object.keys(SENSORS).find((name) => typeof alert?.[name] === "number");
  if (sensor === undefined || typeof alert.kit !== "string") {
    throw new Failure("invalid", `the data is no alert with kit, state and one of ${Object.keys(SENSORS).join(", ")}`);
  }
  const { name, unit, helps } = SENSORS[sensor];
  const measured = `${name} at ${alert.kit} is ${Math.round(alert[sensor])} ${unit}`;
  const limit = alert[`limit_${sensor.split("_")[1]}`];
  if (alert.state === "high") return `:warning: ${measured} (limit ${limit}): ${helps}`;
  if (alert.state === "normal") return `:white_check_mark: ${measured}: fine again`;
  throw new Failure("invalid", `state is ${alert.state}, it should be high or normal`);
}

function queueOf(organisation) {
  if (organisation === undefined) return "slack";
  const known = (config.get("organisations") ?? "").split(" ");
  if (!known.includes(organisation)) {
    throw new Failure("invalid", `config.organisations does not list ${JSON.stringify(organisation)}`);
  }
  return `slack-${organisation}`;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Failure("invalid", `the data is no JSON: ${error.message}`);
  }
}
