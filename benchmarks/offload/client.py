"""The client's side of the testbed: does what lines of JSON on its input say, answers each with a line.

{"do": "local", "function": "svd", "n": 400, "times": 3}                      → {"seconds": […]}
{"do": "remote", "function": …, "n": …, "times": …, "codec": "raw"}           → {"seconds": […], "stages": [{…}]}
{"do": "prepare", "function": …}                                              → {}
{"do": "decided", "function": …, "n": …}        → {"seconds": …, "place": "local", "chosen": …, "after": …, "is_doubled": …}
{"do": "halves", "functions": {"svd": 400, …}}  → {"helper": …, "turns": …, "stops": […], "holds": […]}
{"do": "meet"}                                                                → {"round_trip": …, "speed": …}
{"do": "probe"}                                                               → {"bytes_per_second": …}
{"do": "costs"}                                                               → {"decide_us": …, "local_overhead_us": …}
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import lighterage
import work
from lighterage.call.learn import stages_of
from lighterage.call.race import Race
from lighterage.decide import LOCAL, Question
from lighterage.offloaded import Offloaded
from lighterage.places import runtime
from lighterage.places.config import Address
from lighterage.places.node import Node
from lighterage.places.wire import Cancel
from lighterage.travel import calls, frame

Command = dict[str, Any]


class Client:
    def __init__(self, url: str, token: str | None) -> None:
        self._node: Node = runtime.current.connect(Address(url, token))
        self._functions: dict[tuple[str, str], Offloaded[..., Any]] = {}

    def _offloaded(self, function: str, codec: str = "frame") -> Offloaded[..., Any]:
        key = function, codec
        if key not in self._functions:
            how = {"keep": True, "compress": False} if codec == work.KEPT else {"codec": codec}
            self._functions[key] = lighterage.offload(pure=True, any_version=True, **how)(getattr(work, function))
        return self._functions[key]

    def local(self, command: Command) -> Command:
        arguments = work.arguments(command["function"], command["n"])
        function = getattr(work, command["function"])
        return {"seconds": [_timed(lambda: function(*arguments)) for _ in range(command["times"])]}

    def remote(self, command: Command) -> Command:
        """Calls the node whatever would be decided, and says where the time went."""
        function, codec = command["function"], command.get("codec", "frame")
        offloaded = self._offloaded(function, codec)
        arguments = work.arguments(function, command["n"])
        made = offloaded.function.made()
        self._node.prepare(made)
        if codec == work.KEPT:
            offloaded.remote(*arguments)
            codec = "frame"
        keeper = offloaded.function.keeper(runtime.current, self._node)
        packing = None if keeper is None else calls.Packing(keeper, None)
        seconds, stages, computed = [], [], []
        for time_ in range(command["times"]):
            if keeper is not None:
                arguments = (work.arguments(function, command["n"], seed=time_ + 1)[0], *arguments[1:])
            began, before = time.perf_counter(), time.thread_time()
            pieces = calls.write_call(arguments, {}, made.classes, codec, packing)
            encoded = time.perf_counter()
            reply = self._node.call(made, pieces, time.monotonic() + 3_600)
            came = time.perf_counter()
            calls.read_outcome(reply.body, made.classes).get()
            ended = time.perf_counter()
            seconds.append(ended - began)
            computed.append(time.thread_time() - before)
            took = stages_of(reply, (encoded - began, ended - came), frame.total_bytes(pieces), command["round_trip"])
            stages.append({**asdict(took), "start": reply.timing.get("start", 0.0), "there": reply.timing})
        return {"seconds": seconds, "stages": stages, "computed": computed}

    def prepare(self, command: Command) -> Command:
        self._offloaded(command["function"]).prepare()
        return {}

    def decided(self, command: Command) -> Command:
        function = self._offloaded(command["function"])
        arguments = work.arguments(command["function"], command["n"])
        stats = runtime.current.stats_of(function._name)
        before, doubled = dict(stats.calls), stats.doubled
        decision = function.explain(*arguments).decision
        took = _timed(lambda: function(*arguments))
        places = [place for place, count in stats.calls.items() if count > before.get(place, 0)]
        return {
            "seconds": took,
            "place": LOCAL if places == [LOCAL] or not places else "node",
            "chosen": LOCAL if decision.place == LOCAL else "node",
            "after": None if decision.rival is None else decision.rival_after,
            "is_doubled": stats.doubled > doubled,
        }

    def halves(self, command: Command) -> Command:
        """What a call costs in another thread, what the node's half waits beside one in Python, and what can be stopped."""
        stops, holds = [], []
        for function, size in command["functions"].items():
            arguments = work.arguments(function, size)
            plain = functools.partial(getattr(work, function), *arguments)
            tried = [_stopped(plain) for _ in range(3)]
            # Of three, for a thread may have to wait for its turn by chance, or be lucky.
            if sorted(part for part, _ in tried)[1] > 0.8:
                holds.append(function)
            elif all(is_stopped for _, is_stopped in tried):
                stops.append(function)
        began = time.perf_counter()
        for _ in range(50):
            race = Race(lambda: None, Cancel())
            race.hand(runtime.current.helpers)
            race.wait_here(1.0)
        helper = (time.perf_counter() - began) / 50
        call = functools.partial(self._offloaded("mandelbrot").remote, 40)
        call()
        alone = [_timed(call) for _ in range(9)]
        beside = []
        for _ in range(9):
            race = Race(functools.partial(work.mandelbrot, 200), Cancel())
            race.hand(runtime.current.helpers)
            race.wait_here(0.02)
            race.begin_there()
            beside.append(_timed(call))
            race.there_won()
            time.sleep(0.05)
        turns = statistics.median(beside) - statistics.median(alone)
        return {"helper": helper, "turns": max(turns, 0.0), "stops": stops, "holds": holds}

    def meet(self, _: Command) -> Command:
        """What the node says of itself, once a function has made it build its base."""
        self._offloaded("queens").prepare()
        about = min((self._node.info() for _ in range(5)), key=lambda info: info.round_trip)
        return {"round_trip": about.round_trip, "speed": about.speed}

    def probe(self, _: Command) -> Command:
        return {"bytes_per_second": self._node.info().bytes_per_second}

    def costs(self, _: Command) -> Command:
        """What deciding takes, and what a call that stays here takes over a plain one."""
        function = self._offloaded("queens")
        engine, node = runtime.current.engine, self._node.name
        decide = []
        for _ in range(2_000):
            began = time.perf_counter()
            engine.decide(Question("work:queens", 4.0, 200, (node,), time.monotonic()))
            decide.append(time.perf_counter() - began)
        for _ in range(2_000):
            function(4)
        plain, ours = _loops(lambda: work.queens(4)), _loops(lambda: function(4))
        return {"decide_us": statistics.median(decide) * 1e6, "local_overhead_us": (ours - plain) * 1e6}


def _stopped(action: Callable[[], object]) -> tuple[float, bool]:
    """Stops an action in another thread: after which part of its time this thread had its turn to do so, and whether it did."""
    took, ended, said = _timed(action), threading.Event(), []
    race = Race(action, Cancel())
    race.on_end = lambda is_stopped: (said.append(is_stopped), ended.set())
    race.hand(runtime.current.helpers)
    is_done = race.wait_here(0.3 * took) is not None
    waited = time.monotonic() - race.here_began
    if is_done or not race.there_won():
        return 1.0, False
    if not race.is_left_running and not ended.wait(1):
        # It had not even begun.
        return 1.0, False
    ended.wait(60)
    return waited / took, said[0]


def _timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def _loops(action: Callable[[], object], times: int = 1_000) -> float:
    """Seconds of one call: the median of nine rounds."""
    rounds = []
    for _ in range(9):
        began = time.perf_counter()
        for _ in range(times):
            action()
        rounds.append((time.perf_counter() - began) / times)
    return statistics.median(rounds)


def main() -> None:
    client = Client(sys.argv[1], os.environ.get("LIGHTER_TOKEN"))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(client, command["do"])(command)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
