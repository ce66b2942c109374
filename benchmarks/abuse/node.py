"""A node that is started again when it dies, as a service manager would, and what is measured of it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Final

from machine import Group
from shared.machine import free_port

#: Seconds that a node may take until it answers.
READY_SECONDS: Final = 30.0
#: A dead node is started again after so many seconds.
AGAIN_SECONDS: Final = 0.5
#: How often its memory is looked at.
SAMPLE_SECONDS: Final = 0.02


class Dead(Exception):
    """The node does not run, or does not answer."""


class Node:
    """One node and its data folder."""

    def __init__(
        self,
        lighter: str,
        folder: Path,
        group: Group | None = None,
        options: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.deaths = 0
        self.rss_peak = 0
        self._lighter = str(Path(lighter).resolve())
        self._group = group
        self._options = options
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._expected = threading.Event()
        self._lock = threading.Lock()
        self._watch = threading.Thread(target=self._look_after, daemon=True)
        # The same after a death, so that nobody has to look for it.
        self._ports = (free_port(), free_port())
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, again: bool = False) -> None:
        """Starts it and waits until it takes calls. With `again`, it is started again whenever it dies."""
        self._expected.clear()
        self._spawn()
        self.wait_ready()
        if again and not self._watch.is_alive():
            self._watch.start()

    def _spawn(self) -> None:
        gate, api = (f"127.0.0.1:{port}" for port in self._ports)
        command = [self._lighter, "up", "--data-folder", str(self.folder), "--http", gate, "--api", api]
        command += self._options
        if self._group is not None:
            command = self._group.command(command)
        with self._lock, (self.folder.parent / f"{self.folder.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment, start_new_session=True
            )

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Waits until it takes calls."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError, KeyError, Dead, http.client.HTTPException):
                if self.place()["pid"] == self.pid and self.get("/readyz")[0] == 200:
                    return
            if self._process is not None and self._process.poll() is not None and not self._watch.is_alive():
                break
            time.sleep(0.02)
        raise Dead(f"the node does not answer; the end of its log: {self.log()[-1_000:]}")

    def log(self) -> str:
        return (self.folder.parent / f"{self.folder.name}.log").read_text(errors="replace")

    @property
    def pid(self) -> int:
        if self._process is None:
            raise Dead("the node was not started")
        return self._process.pid

    def place(self) -> dict[str, Any]:
        """Where it listens."""
        found: dict[str, Any] = json.loads((self.folder / "node.json").read_text())
        return found

    def token(self) -> str:
        return (self.folder / "token").read_text().strip()

    def address(self, which: str) -> tuple[str, int]:
        """Host and port of its `gate`, its `api` or its `mqtt`."""
        host, port = str(self.place()[which]).removeprefix("http://").rsplit(":", 1)
        return host, int(port)

    def request(
        self,
        which: str,
        method: str,
        path: str,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        seconds: float = 30.0,
    ) -> tuple[int, bytes]:
        """Status and body of an answer, over a connection of its own."""
        connection = http.client.HTTPConnection(*self.address(which), timeout=seconds)
        try:
            known = {"authorization": f"Bearer {self.token()}"} if which == "api" else {}
            connection.request(method, path, body or None, {**known, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def get(self, path: str) -> tuple[int, bytes]:
        return self.request("api", "GET", path)

    def metric(self, line: str) -> float:
        """The value of one line of the metrics; nought where there is none."""
        for one in self.get("/metrics")[1].decode().splitlines():
            if one.startswith(line) and not one.startswith("#"):
                return float(one.rsplit(" ", 1)[1])
        return 0.0

    def command(self, *words: str, seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
        """What the command line said; it talks to this node."""
        return subprocess.run(
            [self._lighter, *words], capture_output=True, text=True, timeout=seconds, check=False, env=self.client()
        )

    def client(self) -> dict[str, str]:
        """The environment of a command line that talks to this node."""
        kept = {name: value for name, value in os.environ.items() if name not in ("LIGHTER_NODE", "LIGHTER_TOKEN")}
        return {**kept, "LIGHTER_DATA": str(self.folder)}

    def program(self) -> str:
        return self._lighter

    def deploy(self, folder: Path) -> None:
        """Deploys what is in `folder`.

        Raises:
            Dead: the node refused; with what the command line said.
        """
        done = self.command("deploy", str(folder), seconds=600.0)
        if done.returncode:
            raise Dead(f"deploy {folder.name}: {done.stderr.strip()[-600:]}")

    def kill(self) -> None:
        """Ends it at once, as a crash would."""
        self._expected.set()
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ends it as its user would."""
        self._expected.set()
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        with self._lock:
            process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
            return
        process.kill()
        process.wait()

    def _look_after(self) -> None:
        """Counts its deaths and starts it again; notes the most memory it had."""
        while True:
            process = self._process
            if process is not None and process.poll() is not None and not self._expected.is_set():
                self.deaths += 1
                time.sleep(AGAIN_SECONDS)
                if not self._expected.is_set():
                    self._spawn()
            self.rss_peak = max(self.rss_peak, self.rss())
            time.sleep(SAMPLE_SECONDS)

    def rss(self) -> int:
        """Bytes of memory it has in RAM now; nought while it does not run."""
        process = self._process
        try:
            status = Path(f"/proc/{process.pid}/status").read_text() if process else ""
        except OSError:
            return 0
        line = next((line for line in status.splitlines() if line.startswith("VmRSS:")), "VmRSS: 0 kB")
        return int(line.split()[1]) << 10


def connect(address: tuple[str, int], seconds: float = 5.0) -> socket.socket:
    """A connection without delay of small packets."""
    made = socket.create_connection(address, seconds)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made
