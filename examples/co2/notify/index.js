// An alert becomes a message for people: takes { kit, state, co2_ppm, limit_ppm, time_ms } from the queue `alerts`, and
// pushes what a Slack-compatible webhook understands to the queue `slack`.
import queue from "lighter:unit/queue@0.1.0";
import { Failure, decode, encode, serve } from "../../../crates/lighter/templates/javascript/src/lighter.js";

const WORDS = {
  high: (alert) => `:warning: CO2 at ${alert.kit} is ${Math.round(alert.co2_ppm)} ppm (limit ${alert.limit_ppm}): open a window`,
  normal: (alert) => `:white_check_mark: CO2 at ${alert.kit} is ${Math.round(alert.co2_ppm)} ppm: fine again`,
};

export const handler = serve((event) => {
  const alert = parsed(decode(event.data));
  const words = WORDS[alert?.state];
  if (words === undefined || typeof alert.kit !== "string" || typeof alert.co2_ppm !== "number") {
    throw new Failure("invalid", "the data is no alert with kit, state and co2_ppm");
  }
  const message = { text: words(alert), username: "lighter" };
  queue.push("slack", {
    type: "slack.message",
    subject: alert.kit,
    contentType: "application/json",
    attributes: [],
    data: encode(JSON.stringify(message)),
  });
  return "";
});

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Failure("invalid", `the data is no JSON: ${error.message}`);
  }
}
