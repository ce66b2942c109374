// The functions of the six workloads in JavaScript, as work.py has them, for workerd and for `wasmtime serve`.
const SENSORS = { 158: "co2_ppm", 55: "temperature_c", 53: "noise_dba" };
const SPANS = [["day", 1], ["week", 7], ["month", 30]];
const DAYS_KEPT = 60;

const day = (text) => Date.UTC(...text.slice(0, 10).split("-").map((part, at) => Number(part) - (at === 1 ? 1 : 0))) / 86_400_000;
const rounded = (value) => Math.round(value * 100) / 100;

function mean(days, end, length) {
  const found = Object.entries(days).filter(([key]) => end - length < Number(key) && Number(key) <= end);
  return found.length === 0 ? null : rounded(found.reduce((sum, [, kg]) => sum + kg, 0) / found.length);
}

const fib = (n) => (n < 2 ? n : fib(n - 1) + fib(n - 2));

const FUNCTIONS = {
  motion({ topic, data }, state) {
    const { sequence, motion } = JSON.parse(data);
    if (state !== null && sequence <= state) return [state, []];
    return [sequence, [["bulbs", topic.split("/")[1], motion ? "on" : "off"]]];
  },
  weigh({ topic, data }, state) {
    const { time, weight } = JSON.parse(data);
    const person = topic.split("/")[1];
    const all = { ...state, [day(time)]: weight };
    const newest = Math.max(...Object.keys(all).map(Number));
    const days = Object.fromEntries(Object.entries(all).filter(([key]) => newest - Number(key) < DAYS_KEPT));
    const said = { person, last_day: newest };
    for (const [name, length] of SPANS) {
      const [now, before] = [mean(days, newest, length), mean(days, newest - length, length)];
      said[name] = { weight: now, before, change: now === null || before === null ? null : rounded(now - before) };
    }
    return [days, [["progress", person, JSON.stringify(said)]]];
  },
  smoke({ topic, data }, state) {
    const { sequence, density } = JSON.parse(data);
    const room = topic.split("/")[1];
    const [newest, burns] = state ?? [-1, false];
    if (sequence <= newest) return [state, []];
    const now = density >= (burns ? 0.05 : 0.15);
    const alert = JSON.stringify({ room, state: now ? "smoke" : "clear", density });
    return [[sequence, now], now === burns ? [] : [["alarms", room, alert]]];
  },
  count({ topic, data }, known) {
    const { sequence, open, time } = JSON.parse(data);
    const fridge = topic.split("/")[1];
    const state = known ?? { sequence: -1, open: false, count: 0, hours: new Array(24).fill(0), weekdays: new Array(7).fill(0) };
    if (sequence <= state.sequence) return [state, []];
    const isOpened = open && !state.open;
    Object.assign(state, { sequence, open });
    if (!isOpened) return [state, []];
    state.count += 1;
    state.hours[Number(time.slice(11, 13))] += 1;
    state.weekdays[(day(time) + 4) % 7] += 1;
    const { count, hours, weekdays } = state;
    return [state, [["counts", fridge, String(count)], ["habits", fridge, JSON.stringify({ count, hours, weekdays })]]];
  },
  fibonacci({ topic, data }, state) {
    return [state, [["answers", topic.split("/")[2], `${data} ${fib(Number(data))}`]]];
  },
  threshold({ topic, data }, state) {
    const message = JSON.parse(data);
    const kit = topic.split("/")[2];
    let [newest, alarm] = state ?? ["", false];
    const [alerts, log] = [[], []];
    for (const { recorded_at: time, sensors } of message.data.sort((one, other) => (one.recorded_at < other.recorded_at ? -1 : 1))) {
      const values = { time };
      for (const { id, value } of sensors) if (id in SENSORS) values[SENSORS[id]] = value;
      log.push(["log", kit, JSON.stringify(values)]);
      if (time <= newest) continue;
      newest = time;
      const now = values.co2_ppm >= (alarm ? 900 : 1000);
      if (now === alarm) continue;
      alarm = now;
      const alert = { kit, state: now ? "high" : "normal", co2_ppm: values.co2_ppm, limit_ppm: 1000, slack: message.slack ?? {} };
      alerts.push(["alerts", kit, JSON.stringify(alert)]);
    }
    return [[newest, alarm], [...alerts, ...log]];
  },
  notify({ data }, state) {
    const alert = JSON.parse(data);
    const measured = `CO2 at ${alert.kit} is ${Math.round(alert.co2_ppm)} ppm`;
    const text = alert.state === "high" ? `:warning: ${measured} (limit ${alert.limit_ppm})` : `${measured}: fine again`;
    const { channel } = alert.slack;
    const message = { text, username: "lighter", ...(channel === undefined ? {} : { channel }) };
    return [state, [["slack", alert.kit, JSON.stringify(message)]]];
  },
  logger({ data }, state) {
    return [[...(state ?? []).slice(-99), JSON.parse(data)], []];
  },
};

export async function answer(request) {
  const given = await request.json();
  const [state, out] = FUNCTIONS[given.function](given.event, given.state);
  return new Response(JSON.stringify({ state, out }), { headers: { "content-type": "application/json" } });
}

export default { fetch: answer };
