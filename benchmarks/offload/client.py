"""The client's side of the testbed: does what lines of JSON on its input say, answers each with a line.

    {"do": "local", "function": "svd", "n": 400, "times": 3}                      → {"seconds": […]}
    {"do": "remote", "function": …, "n": …, "times": …, "codec": "raw"}           → {"seconds": […], "stages": [{…}]}
    {"do": "prepare", "function": …}                                              → {}
    {"do": "decided", "function": …, "n": …}                                      → {"seconds": …, "place": "local"}
    {"do": "meet"}                                                                → {"round_trip": …, "speed": …}
    {"do": "probe"}                                                               → {"bytes_per_second": …}
    {"do": "costs"}                                                               → {"decide_us": …, "local_overhead_us": …}
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import lighterage
import work
from lighterage import calls, frame, runtime
from lighterage.carrier import stages_of
from lighterage.config import Address
from lighterage.decide import LOCAL
from lighterage.node import Node
from lighterage.offloaded import Offloaded

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
        made = offloaded.carrier.made()
        self._node.prepare(made)
        if codec == work.KEPT:
            offloaded.remote(*arguments)
            codec = "frame"
        keeper = offloaded.carrier.keeper(runtime.current, self._node)
        packing = None if keeper is None else calls.Packing(keeper, None)
        seconds, stages = [], []
        for time_ in range(command["times"]):
            if keeper is not None:
                arguments = (work.arguments(function, command["n"], seed=time_ + 1)[0], *arguments[1:])
            began = time.perf_counter()
            pieces = calls.write_call(arguments, {}, made.classes, codec, packing)
            encoded = time.perf_counter()
            reply = self._node.call(made, pieces, time.monotonic() + 3_600)
            came = time.perf_counter()
            calls.read_outcome(reply.body, made.classes).get()
            ended = time.perf_counter()
            seconds.append(ended - began)
            took = stages_of(reply, (encoded - began, ended - came), frame.total_bytes(pieces), command["round_trip"])
            stages.append({**asdict(took), "start": reply.timing.get("start", 0.0), "there": reply.timing})
        return {"seconds": seconds, "stages": stages}

    def prepare(self, command: Command) -> Command:
        self._offloaded(command["function"]).prepare()
        return {}

    def decided(self, command: Command) -> Command:
        function = self._offloaded(command["function"])
        arguments = work.arguments(command["function"], command["n"])
        stats = runtime.current.stats_of(function._name)
        before = dict(stats.calls)
        took = _timed(lambda: function(*arguments))
        places = [place for place, count in stats.calls.items() if count > before.get(place, 0)]
        return {"seconds": took, "place": LOCAL if places == [LOCAL] or not places else "node", "hedged": len(places) > 1}

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
            engine.decide("work:queens", 4.0, 200, (node,), time.monotonic())
            decide.append(time.perf_counter() - began)
        for _ in range(2_000):
            function(4)
        plain, ours = _loops(lambda: work.queens(4)), _loops(lambda: function(4))
        return {"decide_us": statistics.median(decide) * 1e6, "local_overhead_us": (ours - plain) * 1e6}


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
