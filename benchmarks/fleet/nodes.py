"""Nodes that really run, and the fleet they make."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import places
from places import Place

#: Nothing of a fleet takes longer than this, on however busy a machine.
PATIENCE_SECONDS: Final = 60.0
#: How often something is looked at that is waited for.
LOOK_SECONDS: Final = 0.01


class Failed(Exception):
    """Something did not happen that has to; says what."""


def until(what: str, is_so: Callable[[], Any], seconds: float = PATIENCE_SECONDS, every: float = LOOK_SECONDS) -> None:
    """Waits until it is so, and looks that often; what cannot be asked is not so."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError, Failed, http.client.HTTPException, ValueError, KeyError):
            if is_so():
                return
        if time.monotonic() > deadline:
            raise Failed(f"{seconds:.0f} s were not enough for {what}")
        time.sleep(every)


@dataclass(frozen=True)
class Programs:
    """What is run."""

    lighter: Path
    nats_server: Path | None
    bench: Path
    town: Path
    guests: Path


class Node:
    """One node, its data folder and its machine."""

    def __init__(self, programs: Programs, folder: Path, place: Place) -> None:
        self.name, self.data, self.place = folder.name, folder, place
        #: Processors that it may use, as `taskset` names them; all where there is nothing.
        self.processors = ""
        self._programs = programs
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder.with_suffix(".log")

    def spawn(self, *options: str) -> None:
        """Starts it and does not wait."""
        local = self.place.local
        command = [str(self._programs.lighter), "up", "--data-folder", str(self.data), "--node-name", self.name]
        command += ["--http", f"{local}:{places.GATE}", "--api", f"{local}:{places.API}", "--log", "warn"]
        command += ["--fleet-listen", f"{self.place.address}:{places.LINK}"]
        if self._programs.nats_server is not None:
            command += ["--nats-server", str(self._programs.nats_server)]
        if self.processors:
            command = ["taskset", "-c", self.processors, *command]
        command = self.place.command([*command, *options])
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start(self, *options: str) -> None:
        """Starts it and waits until it takes calls."""
        self.spawn(*options)
        self.wait_ready()

    def wait_ready(self) -> None:
        try:
            until(f"{self.name} to be ready", self._is_ready)
        except Failed as problem:
            raise Failed(f"{problem}; the end of its log: {self.log()[-1_000:]}") from problem

    def _is_ready(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise OSError("it does not run")
        # The file may be that of an earlier run.
        if json.loads((self.data / "node.json").read_text())["pid"] != self.pid:
            return False
        self.ask("GET", "/readyz")
        return True

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def pid(self) -> int:
        if self._process is None:
            raise Failed(f"{self.name} was not started")
        return self._process.pid

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends it: as its user would, or with SIGKILL as a crash would."""
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    def pause(self, is_paused: bool) -> None:
        """Stops all of its threads, or lets them go on."""
        os.kill(self.pid, signal.SIGSTOP if is_paused else signal.SIGCONT)

    def token(self) -> str:
        return (self.data / "token").read_text().strip()

    def ask(self, method: str, path: str, body: bytes | Mapping[str, Any] = b"", seconds: float = 30.0) -> Any:
        """What the API answers: as JSON, or as it is where it is none. Raises Failed where it refuses."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, answer, kind = self._request(places.API, method, path, data, seconds)
        if status >= 300:
            raise Failed(f"{self.name}, {method} {path}: {status} {answer[:300]!r}")
        return json.loads(answer) if kind.startswith("application/json") else answer

    def call(self, path: str, seconds: float = 10.0) -> int:
        """The status of a request at the gate, over a connection of its own."""
        return self._request(places.GATE, "GET", path, b"", seconds)[0]

    def _request(self, port: int, method: str, path: str, body: bytes, seconds: float) -> tuple[int, bytes, str]:
        connection = http.client.HTTPConnection(self.place.local, port, timeout=seconds)
        try:
            connection.sock = places.connect(self.place, port, seconds)
            headers = {"authorization": f"Bearer {self.token()}"} if port == places.API else {}
            connection.request(method, path, body or None, headers)
            reply = connection.getresponse()
            return reply.status, reply.read(), reply.getheader("content-type", "")
        finally:
            connection.close()

    def lighter(self, *words: str) -> str:
        """What a command says on standard output. Raises Failed with what it says else."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LIGHTER_")}
        command = self.place.command([str(self._programs.lighter), *words])
        environment = {**kept, "LIGHTER_DATA": str(self.data)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
        if done.returncode != 0:
            raise Failed(f"lighter {' '.join(words)}: {done.stderr.strip()[-600:]}")
        return done.stdout

    def deploy(self, manifest: Mapping[str, Any], *components: Path) -> None:
        """Deploys to this node alone; `image` of a function is the name of one of the components."""
        hashes = {}
        for component in components:
            image = component.read_bytes()
            hashes[component.stem] = hashlib.sha256(image).hexdigest()
            self.ask("PUT", f"/v1/images/{hashes[component.stem]}", image)
        functions = {
            name: {**function, "image": hashes[function["image"]]} for name, function in manifest.get("function", {}).items()
        }
        said = self.ask("POST", "/v1/deployments", {**manifest, "function": functions}, seconds=300.0)
        if json.loads(said.strip().rpartition(b"\n")[2])["step"] != "done":
            raise Failed(f"{self.name} does not deploy: {said[-300:]!r}")

    def fleet(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", "/v1/fleet")
        return found

    def heard(self) -> int:
        """How many nodes it has heard of in the last seconds, itself included."""
        ago = (one["heard_ms"] for one in self.fleet()["nodes"])
        return sum(one is not None and one < 20_000 for one in ago)

    def waiting(self) -> int:
        """Events that wait here for other nodes."""
        return sum(one["mail_waiting"] for one in self.fleet()["nodes"])

    def ready(self, queue: str) -> int:
        """Events of a queue that wait to be handled."""
        return int(self.ask("GET", f"/v1/queues/{queue}")["ready"])

    def rss_mb(self, what: str = "VmRSS") -> float:
        """Resident memory; RssAnon is what it does not share with the file of the program."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(f"{what}:"))
        return int(line.split()[1]) * 1024 / 1e6

    def cpu_seconds(self) -> float:
        """Processor time of all its threads, those that have ended too: the clock that the kernel has of it."""
        return time.clock_gettime(~self.pid << 3 | 2)


class Fleet:
    """Nodes of one fleet. The first one is the anchor."""

    def __init__(self, programs: Programs, folder: Path, place: Callable[[], Place]) -> None:
        self.nodes: list[Node] = []
        self._programs, self._folder, self._place = programs, folder, place
        folder.mkdir(parents=True)

    def node(self, name: str) -> Node:
        """One more, that was not started."""
        made = Node(self._programs, self._folder / name, self._place())
        self.nodes.append(made)
        return made

    def begin(self, *names: str) -> list[Node]:
        """Starts nodes with these names, the first of which founds the fleet; all know each other then."""
        made = [self.node(name) for name in names]
        made[0].start()
        self.found()
        invitation = self.invite(len(made))
        for node in made[1:]:
            node.spawn("--join", invitation)
        for node in made[1:]:
            node.wait_ready()
        self.wait_heard()
        return made

    def found(self) -> None:
        self.nodes[0].ask("POST", "/v1/fleet", {"name": "bench"})

    def invite(self, times: int) -> str:
        return str(self.nodes[0].ask("POST", "/v1/fleet/invitations", {"times": times, "seconds": 3_600})["token"])

    def wait_heard(self) -> None:
        """Waits until each has heard of all, and all reach the engine if there is one."""
        for node in self.nodes:
            until(f"{node.name} to hear of all", lambda node=node: node.heard() == len(self.nodes))
        if self._programs.nats_server is not None:
            for node in self.nodes:
                until(f"{node.name} to reach the engine", lambda node=node: node.fleet()["engine"]["connected"])

    def close(self) -> None:
        for node in self.nodes:
            with contextlib.suppress(OSError):
                node.end(signal.SIGKILL)


@contextlib.contextmanager
def closing(fleet: Fleet) -> Iterator[Fleet]:
    """Ends all of its nodes, whatever happens."""
    try:
        yield fleet
    finally:
        fleet.close()
