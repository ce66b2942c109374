"""What joins the functions of a peer to a workflow: mosquitto, redis, and this program between them.

```text
 source ─▶ mosquitto ─▶ bridge ─▶ redis list ─▶ worker ─▶ the peer runs the function ─▶ redis list of the next, or sink
                                      ▲            └─ state of the device: GET before, SET after, with LREM in one MULTI
```
A list is as durable as our queues are (`appendfsync always`), and an event leaves it when its effects are written. The
worker gives the function its state and writes what comes back, so that a peer needs no client of redis.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from webhook import Poster
from workloads import HANDLED, RESULTS, STEPS, TOPICS, WEBHOOKS, Sink, Source

import shared.machine
import shared.peers
from shared.mqtt import Publisher, Subscriber
from shared.namespaces import Unable

READY_SECONDS: Final = 20.0
#: What may end a worker: its servers, its platform, or what its function says.
ENDS: Final = (Unable, OSError, ValueError, KeyError, RuntimeError, HTTPException, subprocess.SubprocessError)

#: Runs a function: its name, event and state; gives the state after it and events for queues.
Run = Callable[[str, dict[str, Any], Any], tuple[Any, list[list[str]]]]


class Redis:
    """A connection to redis: commands in a pipeline."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 60.0)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._from = self._socket.makefile("rb")

    def wait_for_ever(self) -> None:
        """An answer may take any time from now on, or until this is closed."""
        self._socket.settimeout(None)

    def ask(self, *commands: Sequence[str | bytes]) -> list[Any]:
        """The answer to each."""
        out = b""
        for command in commands:
            words = [word.encode() if isinstance(word, str) else word for word in command]
            out += b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
        self._socket.sendall(out)
        return [self._answer() for _ in commands]

    def _answer(self) -> Any:
        line = self._from.readline().rstrip()
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            return None if rest == b"-1" else self._from.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [self._answer() for _ in range(int(rest))]
        if kind == b"-" or not line:
            raise ConnectionError(f"redis: {rest.decode() or 'gone'}")
        return int(rest) if kind == b":" else rest

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Servers:
    """mosquitto and redis, each as they are, but redis as durable as we are."""

    def __init__(self, peers: shared.peers.Peers, folder: Path, open_: contextlib.ExitStack) -> None:
        self.mqtt = ("127.0.0.1", shared.machine.free_port())
        self.redis = shared.machine.free_port()
        config = folder / "mosquitto.conf"
        config.write_text(f"listener {self.mqtt[1]} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n")
        redis = [shared.peers.program(peers, "redis-server"), "--port", str(self.redis), "--bind", "127.0.0.1"]
        redis += ["--dir", str(folder), "--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        mosquitto = [shared.peers.program(peers, "mosquitto"), "-c", str(config)]
        for name, command, port in (("mosquitto", mosquitto, self.mqtt[1]), ("redis", redis, self.redis)):
            open_.enter_context(shared.peers.process(command, folder / f"{name}.log"))
            await_port(port)


def await_port(port: int) -> None:
    """Raises TimeoutError where nobody listens for too long."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody listens on port {port}")
        time.sleep(0.02)


class Worker:
    """Handles one function's list, an event after the other. Whoever waits for results hears what has ended it."""

    def __init__(self, name: str, run: Run, servers: Servers, sink: Sink) -> None:
        self._name, self._run, self._sink = name, run, sink
        self._redis = Redis(servers.redis)
        # The next event may be ten minutes away.
        self._redis.wait_for_ever()
        self._publisher = Publisher(servers.mqtt, f"worker-{name}")
        self._poster = Poster(sink.webhook.address)
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        try:
            while True:
                (taken,) = self._redis.ask(("BRPOPLPUSH", self._name, f"{self._name}.taken", "0"))
                self._handle(taken)
        except ENDS as failure:
            self._sink.fail(f"the worker of {self._name} has ended: {type(failure).__name__}: {failure}")

    def _handle(self, taken: bytes) -> None:
        event = json.loads(taken)
        place = f"state.{self._name}.{event['key']}"
        (known,) = self._redis.ask(("GET", place))
        state, out = self._run(self._name, event, None if known is None else json.loads(known))
        commands: list[Sequence[str | bytes]] = [("MULTI",), ("SET", place, json.dumps(state))]
        for queue, key, data in out:
            if queue in HANDLED:
                commands.append(("LPUSH", HANDLED[queue], json.dumps({"topic": key, "key": key, "data": data})))
        self._redis.ask(*commands, ("LREM", f"{self._name}.taken", "1", taken), ("EXEC",))
        for queue, key, data in out:
            if queue in TOPICS:
                self._publisher.publish([(TOPICS[queue].format(key), data.encode())])
            elif queue in WEBHOOKS:
                self._poster.post(data.encode())

    def close(self) -> None:
        """Ends its thread too, which reads from redis."""
        self._redis.close()
        self._publisher.close()
        self._poster.close()


@contextlib.contextmanager
def joined(peers: shared.peers.Peers, folder: Path, run: Run) -> Iterator[Source]:
    """A workflow of functions that `run` runs, between the same source and the same sink as ours."""
    with contextlib.ExitStack() as open_:
        servers = Servers(peers, folder, open_)
        sink = Sink()
        open_.callback(sink.webhook.close)
        for name in (*STEPS, *HANDLED.values()):
            open_.callback(Worker(name, run, servers, sink).close)
        bridge = Redis(servers.redis)
        open_.callback(bridge.close)

        def forward(topic: str, payload: bytes, _: float) -> None:
            name = next(name for name, one in STEPS.items() if _matches(topic, one))
            # Of `fibonacci/ask/WHO` the last level, of all others the one before it.
            key = topic.split("/")[-1 if STEPS[name].endswith("+") else -2]
            bridge.ask(("LPUSH", name, json.dumps({"topic": topic, "key": key, "data": payload.decode()})))

        open_.callback(Subscriber(servers.mqtt, "bridge", list(STEPS.values()), forward).close)
        open_.callback(Subscriber(servers.mqtt, "sink", RESULTS, sink.hear).close)
        source = Source(servers.mqtt, sink)
        open_.callback(source.close)
        yield source


def _matches(topic: str, one: str) -> bool:
    parts, wanted = topic.split("/"), one.split("/")
    return len(parts) == len(wanted) and all(want in ("+", part) for part, want in zip(parts, wanted, strict=True))
