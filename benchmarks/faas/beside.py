"""Where the functions of a peer run: a container for each, workerd, `wasmtime serve`, AWS Lambda's emulator.

Each is started as its documentation says. The glue alone stands beside them, to be seen apart.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from glue import Run, await_port
from webhook import Poster

import shared.machine
import shared.peers
from shared import crun
from shared.namespaces import Unable

FUNCTIONS: Final = Path(__file__).parent / "functions"
#: OpenWhisk pauses a container that has been idle for so long (`pause-grace`).
PAUSE_GRACE_SECONDS: Final = 0.05
FREEZER: Final = Path("/sys/fs/cgroup/freezer")
PYTHON: Final = "/usr/bin/python3"
LAMBDA_PATH: Final = "/2015-03-31/functions/function/invocations"
_numbers: Final = itertools.count()


def over_http(address: tuple[str, int], path: str = "/") -> Run:
    """Runs functions by asking a server; a connection for each thread."""
    kept = threading.local()

    def run(name: str, event: dict[str, Any], state: Any) -> tuple[Any, list[list[str]]]:
        if not hasattr(kept, "poster"):
            kept.poster = Poster(address, path)
        said = json.loads(kept.poster.post(json.dumps({"function": name, "event": event, "state": state}).encode()))
        if "state" not in said:
            raise ValueError(f"{name} failed: {said}")
        return said["state"], said["out"]

    return run


@contextlib.contextmanager
def here(peers: shared.peers.Peers, folder: Path) -> Iterator[Run]:
    """The glue alone: the functions run in it, and nothing keeps them apart."""
    sys.path.insert(0, str(FUNCTIONS))
    import work

    def run(name: str, event: dict[str, Any], state: Any) -> tuple[Any, list[list[str]]]:
        found = work.answer({"function": name, "event": event, "state": state})
        return found["state"], [list(one) for one in found["out"]]

    yield run


class Container:
    """A function in a container of crun, as OpenWhisk has it: started when it is needed, paused when it is idle."""

    def __init__(self, folder: Path) -> None:
        if os.geteuid() != 0:
            raise Unable("containers need root: run it with sudo")
        if not Path(PYTHON).exists():
            raise Unable(f"there is no {PYTHON} to put into a container")
        self.name = f"lighter-faas-{os.getpid()}-{next(_numbers)}"
        self._place = folder / self.name
        rootfs = self._place / "rootfs"
        for inside in ("usr", "proc", "dev", "tmp", "work", "etc"):
            (rootfs / inside).mkdir(parents=True)
        for link in ("bin", "lib", "lib64", "sbin"):
            (rootfs / link).symlink_to(f"usr/{link}")
        self.port = shared.machine.free_port()
        command = [PYTHON, "-I", "-c", f"import sys; sys.path[:0] = ['/work']; sys.argv[1:] = ['{self.port}']; import serve"]
        crun.bundle(self._place, rootfs, command, {"/usr": Path("/usr"), "/work": FUNCTIONS})
        self._group = FREEZER / self.name if FREEZER.exists() else None
        began = time.perf_counter()
        words = crun.command("run", "--bundle", str(self._place), self.name)
        if self._group is not None:
            self._group.mkdir()
            words = crun.in_group(self._group, words)
        self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._run = over_http(("127.0.0.1", self.port))
        assert self._process.stdout is not None and self._process.stderr is not None
        if self._process.stdout.readline() != b"ready\n":
            raise Unable(f"crun: {self._process.stderr.read().decode(errors='replace').strip()[-300:]}")
        #: From nothing until it listens.
        self.boot_ms = (time.perf_counter() - began) * 1e3

    def run(self, name: str, event: dict[str, Any], state: Any) -> tuple[Any, list[list[str]]]:
        return self._run(name, event, state)

    def pause(self, is_paused: bool) -> None:
        """By the freezer of control groups, which is what `crun pause` uses. Raises Unable where there is none."""
        if self._group is None:
            raise Unable("there is no freezer to pause containers with")
        wanted = "FROZEN" if is_paused else "THAWED"
        (self._group / "freezer.state").write_text(wanted)
        while (self._group / "freezer.state").read_text().strip() != wanted:
            time.sleep(0.0002)

    def close(self) -> None:
        with contextlib.suppress(Unable):
            self.pause(False)
        subprocess.run(crun.command("kill", self.name, "KILL"), capture_output=True, check=False)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        subprocess.run(crun.command("delete", "--force", self.name), capture_output=True, check=False)
        if self._group is not None:
            with contextlib.suppress(OSError):
                self._group.rmdir()
        shutil.rmtree(self._place, ignore_errors=True)


class Paused:
    """One function's container that is paused after an idle moment, and goes on for the next event."""

    def __init__(self, folder: Path) -> None:
        self._container = Container(folder)
        self._changed = threading.Condition()
        self._is_paused = self._is_over = False
        self._last = time.monotonic()
        threading.Thread(target=self._look_after, daemon=True).start()

    def run(self, name: str, event: dict[str, Any], state: Any) -> tuple[Any, list[list[str]]]:
        with self._changed:
            if self._is_paused:
                self._container.pause(False)
                self._is_paused = False
                self._changed.notify()
            found = self._container.run(name, event, state)
            self._last = time.monotonic()
            return found

    def _look_after(self) -> None:
        """Sleeps as long as the container does: others are measured meanwhile."""
        with self._changed:
            while not self._is_over:
                left = self._last + PAUSE_GRACE_SECONDS - time.monotonic()
                if self._is_paused or left > 0:
                    self._changed.wait(None if self._is_paused else left)
                    continue
                # One that cannot be paused is tried again as much later.
                self._last = time.monotonic()
                with contextlib.suppress(Unable, OSError):
                    self._container.pause(True)
                    self._is_paused = True

    def close(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify()
            self._container.close()


@contextlib.contextmanager
def containers(peers: shared.peers.Peers, folder: Path) -> Iterator[Run]:
    """A container for each function, warm: paused when it is idle, as OpenWhisk does."""
    shared.peers.program(peers, "crun")
    kept: dict[str, Paused] = {}
    lock = threading.Lock()

    def run(name: str, event: dict[str, Any], state: Any) -> tuple[Any, list[list[str]]]:
        with lock:
            if name not in kept:
                kept[name] = Paused(folder)
        return kept[name].run(name, event, state)

    try:
        yield run
    finally:
        for one in kept.values():
            one.close()


@contextlib.contextmanager
def cold_containers(peers: shared.peers.Peers, folder: Path) -> Iterator[Run]:
    """A new container for each event, which ends afterwards: what a platform does for a function that is not warm."""
    shared.peers.program(peers, "crun")

    def run(name: str, event: dict[str, Any], state: Any) -> tuple[Any, list[list[str]]]:
        container = Container(folder)
        try:
            return container.run(name, event, state)
        finally:
            threading.Thread(target=container.close).start()

    yield run


@contextlib.contextmanager
def workerd(peers: shared.peers.Peers, folder: Path) -> Iterator[Run]:
    """All functions in one worker, whose isolate serves all requests."""
    port = shared.machine.free_port()
    shutil.copy(FUNCTIONS / "work.js", folder / "work.js")
    (folder / "work.capnp").write_text(
        'using Workerd = import "/workerd/workerd.capnp";\n'
        'const config :Workerd.Config = (services = [(name = "work", worker = .work)],\n'
        f'  sockets = [(name = "http", address = "127.0.0.1:{port}", http = (), service = "work")]);\n'
        'const work :Workerd.Worker = (modules = [(name = "work.js", esModule = embed "work.js")],\n'
        '  compatibilityDate = "2025-01-01");\n'
    )
    command = [shared.peers.program(peers, "workerd"), "serve", str(folder / "work.capnp")]
    with shared.peers.process(command, folder / "workerd.log"):
        await_port(port)
        yield over_http(("127.0.0.1", port))


@contextlib.contextmanager
def wasmtime(peers: shared.peers.Peers, folder: Path) -> Iterator[Run]:
    """The functions in JavaScript as a component, with a fresh instance for each request."""
    program, component = shared.peers.program(peers, "wasmtime"), shared.peers.program(peers, "faas-js")
    compiled = folder / "work.cwasm"
    subprocess.run([program, "compile", "-o", str(compiled), component], check=True, capture_output=True)
    port = shared.machine.free_port()
    command = [program, "serve", "-S", "cli", "--allow-precompiled", "--max-instance-reuse-count", "1"]
    with shared.peers.process([*command, "--addr", f"127.0.0.1:{port}", str(compiled)], folder / "wasmtime.log"):
        await_port(port)
        yield over_http(("127.0.0.1", port))


@contextlib.contextmanager
def emulator(peers: shared.peers.Peers, folder: Path) -> Iterator[Run]:
    """AWS Lambda's runtime interface emulator before Lambda's own runtime for Python: one event at a time."""
    program, python = shared.peers.program(peers, "lambda-rie"), shared.peers.program(peers, "awslambdaric")
    port, runtime = shared.machine.free_port(), shared.machine.free_port()
    command = [program, "--runtime-interface-emulator-address", f"127.0.0.1:{port}"]
    command += ["--runtime-api-address", f"127.0.0.1:{runtime}", python, "-m", "awslambdaric", "rie.handler"]
    environment = {**os.environ, "PYTHONPATH": str(FUNCTIONS)}
    with shared.peers.process(command, folder / "rie.log", cwd=FUNCTIONS, env=environment, start_new_session=True):
        await_port(port)
        ask, lock = over_http(("127.0.0.1", port), LAMBDA_PATH), threading.Lock()

        def run(name: str, event: dict[str, Any], state: Any) -> tuple[Any, list[list[str]]]:
            # It answers one invocation at a time, and refuses another one meanwhile.
            with lock:
                return ask(name, event, state)

        yield run


#: The peers by name, in the order in which they run.
ALL: Final = {
    "glue alone": here,
    "container, paused when idle": containers,
    "container, cold": cold_containers,
    "workerd": workerd,
    "wasmtime serve": wasmtime,
    "Lambda RIE": emulator,
}
#: What stands for no platform: no isolation, or the glue of all others.
NO_PEERS: Final = ("glue alone",)
#: What was tried and is not here, and why.
NOT_HAD: Final = {
    "of-watchdog": "`go install github.com/openfaas/of-watchdog@latest`: the Go proxy does not offer the module, and"
    " OpenFaaS gives it out as images of containers alone",
    "OpenWhisk": "given out as images of containers and as a standalone jar that starts them with Docker; neither is in a"
    " package registry that can be reached. What it does to a container is done here with crun",
}


def boot_times(folder: Path, count: int) -> dict[str, list[float]]:
    """Milliseconds until a container listens, from nothing and from its pause. Raises Unable where there is none."""
    cold = []
    for _ in range(count):
        container = Container(folder)
        cold.append(container.boot_ms)
        container.close()
    warm = []
    container = Container(folder)
    event: dict[str, Any] = {"topic": "fibonacci/ask/me", "key": "me", "data": "1"}
    try:
        for _ in range(10 * count):
            container.pause(True)
            began = time.perf_counter()
            container.pause(False)
            container.run("fibonacci", event, None)
            warm.append((time.perf_counter() - began) * 1e3)
    finally:
        container.close()
    return {"cold": cold, "warm": warm}
