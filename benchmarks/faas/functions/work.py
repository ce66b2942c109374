"""The functions of the six workloads in plain Python: an event and a state make another state and events for queues.

The same as the components of `examples/` do, for the peers that run Python, and for our class `process`. Nothing here knows
where it runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

#: An event as a function sees it: `topic`, `key`, `data`.
Event = dict[str, Any]
#: For a queue: its name, the key, the data.
Out = tuple[str, str, str]
#: Sensors of a kit by their ids, as in `examples/co2`.
SENSORS: Final = {158: "co2_ppm", 55: "temperature_c", 53: "noise_dba"}
LIMIT_PPM, CLEAR_PPM = 1_000.0, 900.0
ALARM, CLEAR = 0.15, 0.05
SPANS: Final = (("day", 1), ("week", 7), ("month", 30))
DAYS_KEPT: Final = 60


def motion(event: Event, state: Any) -> tuple[Any, list[Out]]:
    reading, room = json.loads(event["data"]), event["topic"].split("/")[1]
    if state is not None and reading["sequence"] <= state:
        return state, []
    return reading["sequence"], [("bulbs", room, "on" if reading["motion"] else "off")]


def weigh(event: Event, state: Any) -> tuple[Any, list[Out]]:
    reading, person = json.loads(event["data"]), event["topic"].split("/")[1]
    day, days = reading["time"][:10], dict(state or {})
    number = _day(day)
    days[str(number)] = reading["weight"]
    newest = max(map(int, days))
    days = {key: kg for key, kg in days.items() if newest - int(key) < DAYS_KEPT}
    said: dict[str, Any] = {"person": person, "last_day": newest}
    for name, length in SPANS:
        now, before = _mean(days, newest, length), _mean(days, newest - length, length)
        change = None if now is None or before is None else round(now - before, 2)
        said[name] = {"weight": now, "before": before, "change": change}
    return days, [("progress", person, json.dumps(said))]


def _day(text: str) -> int:
    year, month, day = map(int, text.split("-"))
    year, month = (year - 1, month + 9) if month < 3 else (year, month - 3)
    return year * 365 + year // 4 - year // 100 + year // 400 + (month * 306 + 5) // 10 + day - 1 - 719_468


def _mean(days: dict[str, float], end: int, length: int) -> float | None:
    found = [kg for key, kg in days.items() if end - length < int(key) <= end]
    return round(sum(found) / len(found), 2) if found else None


def smoke(event: Event, state: Any) -> tuple[Any, list[Out]]:
    reading, room = json.loads(event["data"]), event["topic"].split("/")[1]
    newest, burns = state or (-1, False)
    if reading["sequence"] <= newest:
        return state, []
    now = reading["density"] >= (CLEAR if burns else ALARM)
    out = []
    if now != burns:
        alert = {"room": room, "state": "smoke" if now else "clear", "density": reading["density"]}
        out = [("alarms", room, json.dumps(alert))]
    return [reading["sequence"], now], out


def count(event: Event, state: Any) -> tuple[Any, list[Out]]:
    reading, fridge = json.loads(event["data"]), event["topic"].split("/")[1]
    state = dict(state or {"sequence": -1, "open": False, "count": 0, "hours": [0] * 24, "weekdays": [0] * 7})
    if reading["sequence"] <= state["sequence"]:
        return state, []
    is_opened = reading["open"] and not state["open"]
    state["sequence"], state["open"] = reading["sequence"], reading["open"]
    if not is_opened:
        return state, []
    state["count"] += 1
    state["hours"][int(reading["time"][11:13])] += 1
    state["weekdays"][(_day(reading["time"][:10]) + 4) % 7] += 1
    habits = {name: state[name] for name in ("count", "hours", "weekdays")}
    return state, [("counts", fridge, str(state["count"])), ("habits", fridge, json.dumps(habits))]


def fibonacci(event: Event, state: Any) -> tuple[Any, list[Out]]:
    n, who = int(event["data"]), event["topic"].split("/")[2]
    return state, [("answers", who, f"{n} {_fibonacci(n)}")]


def _fibonacci(n: int) -> int:
    return n if n < 2 else _fibonacci(n - 1) + _fibonacci(n - 2)


def threshold(event: Event, state: Any) -> tuple[Any, list[Out]]:
    message, kit = json.loads(event["data"]), event["topic"].split("/")[2]
    newest, alarm = state or ("", False)
    alerts, log = [], []
    for reading in sorted(message["data"], key=lambda one: str(one["recorded_at"])):
        known = [one for one in reading["sensors"] if one["id"] in SENSORS]
        values = {"time": reading["recorded_at"], **{SENSORS[one["id"]]: one["value"] for one in known}}
        log.append(("log", kit, json.dumps(values)))
        if reading["recorded_at"] <= newest:
            continue
        newest, now = reading["recorded_at"], values["co2_ppm"] >= (CLEAR_PPM if alarm else LIMIT_PPM)
        if now != alarm:
            alarm = now
            said = {"kit": kit, "state": "high" if now else "normal", "co2_ppm": values["co2_ppm"], "limit_ppm": LIMIT_PPM}
            alerts.append(("alerts", kit, json.dumps({**said, "slack": message.get("slack") or {}})))
    return [newest, alarm], alerts + log


def notify(event: Event, state: Any) -> tuple[Any, list[Out]]:
    alert = json.loads(event["data"])
    measured = f"CO2 at {alert['kit']} is {round(alert['co2_ppm'])} ppm"
    words = f":warning: {measured} (limit {alert['limit_ppm']:g})" if alert["state"] == "high" else f"{measured}: fine again"
    message = {"text": words, "username": "lighter", **{key: alert["slack"][key] for key in alert["slack"] if key == "channel"}}
    return state, [("slack", alert["kit"], json.dumps(message))]


def logger(event: Event, state: Any) -> tuple[Any, list[Out]]:
    return [*(state or [])[-99:], json.loads(event["data"])], []


FUNCTIONS: Final[dict[str, Callable[[Event, Any], tuple[Any, list[Out]]]]] = {
    function.__name__: function for function in (motion, weigh, smoke, count, fibonacci, threshold, notify, logger)
}


def answer(given: dict[str, Any]) -> dict[str, Any]:
    """What a peer is asked over HTTP: which function, its event, its state."""
    state, out = FUNCTIONS[given["function"]](given["event"], given["state"])
    return {"state": state, "out": out}
