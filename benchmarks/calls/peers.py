"""The peers: each started as its documentation says, with its server on the second processor.

A peer offers the same three functions: `nothing()`, `echo(array)` and `task(number)`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final, Protocol

from shared.machine import free_port

HERE: Final = Path(__file__).parent
READY_SECONDS: Final = 90.0


class Peer(Protocol):
    """Somewhere functions run."""

    name: str

    def nothing(self) -> None: ...

    def echo(self, array: Any) -> Any: ...

    def map(self, numbers: Iterable[int]) -> list[int]: ...

    def close(self) -> None: ...


_started: Final[list[subprocess.Popen[Any]]] = []


def _server(*command: str, **more: Any) -> subprocess.Popen[Any]:
    """A server, in a session of its own, so that all it starts can be ended."""
    whole = ["taskset", "-c", "1", *command]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(whole, start_new_session=True, **{**quiet, **more})
    _started.append(process)
    return process


def end_all() -> None:
    """Ends every server that still runs, those of a peer too that failed while it started."""
    while _started:
        _end(_started.pop())


def _end(process: subprocess.Popen[Any]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _await_port(port: int) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


class Lighterage:
    name = "lighterage"

    def __init__(self, lighter: str) -> None:
        import functions
        import lighterage

        self._folder = tempfile.TemporaryDirectory(prefix="lighter-calls-")
        data = Path(self._folder.name)
        ports = [free_port(), free_port()]
        self._server = _server(
            *(lighter, "up", "--data-folder", str(data), "--http", f"127.0.0.1:{ports[0]}", "--api", f"127.0.0.1:{ports[1]}"),
            *("--python", sys.executable),
        )
        _await_port(ports[1])
        token = data / "token"
        lighterage.connect(f"http://127.0.0.1:{ports[1]}", token=token.read_text().strip() if token.exists() else None)
        make = functools.partial(lighterage.offload, any_version=True, fallback=False, local=False)
        # The peers' processes serve one call after the other, so small calls go to units that do so too. Arrays do not: such
        # units keep them, and what is measured is the way there and back. What keeping them saves is a figure of its own.
        warm = make(keep=True)
        self._nothing, self._task, self._echo_kept = (warm(one) for one in (functions.nothing, functions.task, functions.echo))
        self._echo = make()(functions.echo)
        self.fresh = make()(functions.nothing)
        self._map: Callable[..., Iterable[int]] = lighterage.map

    def nothing(self) -> None:
        self._nothing.remote()

    def echo(self, array: Any) -> Any:
        return self._echo.remote(array)

    def echo_kept(self, array: Any) -> Any:
        return self._echo_kept.remote(array)

    def map(self, numbers: Iterable[int]) -> list[int]:
        return list(self._map(self._task, numbers))

    def close(self) -> None:
        import lighterage

        lighterage.disconnect()
        _end(self._server)
        self._folder.cleanup()


class HttpPickle:
    """HTTP/1.1 kept open, bodies pickled, no isolation of any kind."""

    name = "HTTP+pickle"

    def __init__(self) -> None:
        port = free_port()
        self._server = _server(sys.executable, str(HERE / "servers.py"), "http", str(port))
        _await_port(port)
        self._connection = HTTPConnection("127.0.0.1", port)
        self._connection.connect()
        assert self._connection.sock is not None
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _call(self, name: str, *arguments: Any) -> Any:
        body = pickle.dumps((name, arguments), protocol=5)
        self._connection.request("POST", "/" + urllib.parse.quote(name), body)
        return pickle.loads(self._connection.getresponse().read())

    def nothing(self) -> None:
        self._call("nothing")

    def echo(self, array: Any) -> Any:
        return self._call("echo", array)

    def map(self, numbers: Iterable[int]) -> list[int]:
        return [self._call("task", number) for number in numbers]

    def close(self) -> None:
        self._connection.close()
        _end(self._server)


class Rpyc:
    name = "RPyC"

    def __init__(self) -> None:
        import rpyc

        port = free_port()
        self._server = _server(sys.executable, str(HERE / "servers.py"), "rpyc", str(port))
        _await_port(port)
        self._connection = rpyc.connect("127.0.0.1", port, config={"allow_pickle": True, "sync_request_timeout": 120})
        self._root = self._connection.root
        self._obtain = rpyc.classic.obtain

    def nothing(self) -> None:
        self._root.nothing()

    def echo(self, array: Any) -> Any:
        # The way its documentation has for arrays: the server obtains a copy of what it is handed, and so does the client.
        return self._obtain(self._root.echo(array))

    def map(self, numbers: Iterable[int]) -> list[int]:
        task = self._root.task
        return [task(number) for number in numbers]

    def close(self) -> None:
        self._connection.close()
        _end(self._server)


class Dask:
    name = "Dask"

    def __init__(self) -> None:
        from dask.distributed import Client

        scheduler, self._folder = free_port(), tempfile.mkdtemp(prefix="dask-")
        program = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", str(scheduler), "--no-dashboard"]
        environment = {**os.environ, "PYTHONPATH": str(HERE)}
        self._scheduler = _server(*program, "--host", "127.0.0.1", env=environment)
        _await_port(scheduler)
        program = [sys.executable, "-m", "distributed.cli.dask_worker", f"tcp://127.0.0.1:{scheduler}", "--nthreads", "1"]
        self._worker = _server(*program, "--local-directory", self._folder, "--no-dashboard", env=environment)
        self._client = Client(f"tcp://127.0.0.1:{scheduler}", timeout=READY_SECONDS)
        self._client.wait_for_workers(1, timeout=READY_SECONDS)

    def nothing(self) -> None:
        import functions

        self._client.submit(functions.nothing, pure=False).result()

    def echo(self, array: Any) -> Any:
        import functions

        return self._client.submit(functions.echo, array, pure=False).result()

    def map(self, numbers: Iterable[int]) -> list[int]:
        import functions

        return list(self._client.gather(self._client.map(functions.task, list(numbers), pure=False)))

    def close(self) -> None:
        self._client.close()
        _end(self._worker)
        _end(self._scheduler)
        shutil.rmtree(self._folder, ignore_errors=True)


class RayClient:
    """Ray as an outside device uses it: through the Ray Client."""

    name = "Ray Client"

    def __init__(self) -> None:
        import ray

        self._ray = ray
        ports = [free_port(), free_port()]
        program = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--port", str(ports[0])]
        program += ["--ray-client-server-port", str(ports[1]), "--num-cpus", "1", "--include-dashboard", "false"]
        environment = {**os.environ, "PYTHONPATH": str(HERE), "RAY_USAGE_STATS_ENABLED": "0"}
        self._folder = tempfile.mkdtemp(prefix="ray-")
        self._server = _server(*program, "--temp-dir", self._folder, "--disable-usage-stats", env=environment)
        _await_port(ports[1])
        ray.init(f"ray://127.0.0.1:{ports[1]}", log_to_driver=False)
        import functions

        self._nothing, self._echo, self._task = (
            ray.remote(function) for function in (functions.nothing, functions.echo, functions.task)
        )

    def nothing(self) -> None:
        self._ray.get(self._nothing.remote())

    def echo(self, array: Any) -> Any:
        return self._ray.get(self._echo.remote(array))

    def map(self, numbers: Iterable[int]) -> list[int]:
        found: list[int] = self._ray.get([self._task.remote(number) for number in numbers])
        return found

    def close(self) -> None:
        self._ray.shutdown()
        _end(self._server)
        # What it starts has sessions of its own.
        subprocess.run(["pkill", "-KILL", "-f", self._folder], check=False)
        shutil.rmtree(self._folder, ignore_errors=True)


class RawTcp:
    """Bytes there and back, and nothing else: what the machine can do."""

    name = "raw TCP"

    def __init__(self) -> None:
        port = free_port()
        self._server = _server(sys.executable, str(HERE / "servers.py"), "tcp", str(port))
        _await_port(port)
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def nothing(self) -> None:
        self._exchange(b"x")

    def echo(self, array: Any) -> Any:
        return self._exchange(memoryview(array).cast("B"))

    def _exchange(self, data: Any) -> bytearray:
        self._socket.sendall(struct.pack("<Q", len(data)))
        self._socket.sendall(data)
        back = bytearray(len(data))
        view, at = memoryview(back), 0
        while at < len(back):
            at += self._socket.recv_into(view[at:])
        return back

    def map(self, numbers: Iterable[int]) -> list[int]:
        raise NotImplementedError("it runs nothing")

    def close(self) -> None:
        self._socket.close()
        _end(self._server)
