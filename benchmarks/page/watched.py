"""A node, what it costs, and those who look at it."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

#: Queues that share the load; each has its function.
QUEUES: Final = 10
READY_SECONDS: Final = 60.0
#: Which of the clocks of a process: time on a processor, in nanoseconds.
CPU_CLOCK: Final = 2


class Node:
    """One node and its data folder."""

    def __init__(self, lighter: str, folder: Path) -> None:
        self.lighter, self.folder = str(Path(lighter).resolve()), folder
        listen = ["--http", "127.0.0.1:0", "--api", "127.0.0.1:0"]
        command = [self.lighter, "up", "--data-folder", str(folder), "--log", "warn", *listen]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if "lighter ready" in line:
                break
        else:
            raise RuntimeError("the node did not start")
        threading.Thread(target=self._process.stderr.read, daemon=True).start()
        self.api = json.loads((folder / "node.json").read_text())["api"]
        self.address = self.api.partition("//")[2]
        self.token = (folder / "token").read_text().strip()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    def ask(self, method: str, path: str, body: bytes = b"") -> Any:
        """The answer as JSON, or as it is where it is none."""
        connection = http.client.HTTPConnection(self.address, timeout=READY_SECONDS)
        try:
            connection.request(method, path, body, {"authorization": f"Bearer {self.token}"})
            reply = connection.getresponse()
            data = reply.read()
        finally:
            connection.close()
        if reply.status >= 300:
            raise RuntimeError(f"{method} {path}: {reply.status} {data[:300]!r}")
        return json.loads(data) if reply.getheader("content-type", "").startswith("application/json") else data

    def deploy(self, component: Path, count: int) -> None:
        """So many functions of one component; ten of them handle queues."""
        image = component.read_bytes()
        sha256 = hashlib.sha256(image).hexdigest()
        self.ask("PUT", f"/v1/images/{sha256}", image)
        functions: dict[str, Any] = {f"f{number:04}": {"image": sha256} for number in range(count)}
        for number in range(QUEUES):
            functions[f"f{number:04}"]["queue"] = f"q{number}"
        queues = {f"q{number}": {"events_max": 2_000_000} for number in range(QUEUES)}
        last = self.ask("POST", "/v1/deployments", json.dumps({"function": functions, "queue": queues}).encode())
        if json.loads(last.strip().rpartition(b"\n")[2])["step"] != "done":
            raise RuntimeError(f"not deployed: {last[-300:]!r}")

    def push(self, queue: int, count: int) -> None:
        self.ask("POST", f"/v1/queues/q{queue % QUEUES}/events?count={count}", b"x")

    def acked(self) -> int:
        return sum(one["acked"] for one in self.ask("GET", "/v1/queues"))

    def link(self) -> str:
        command = [self.lighter, "dashboard", "--json", "--scope", "look", "--data-folder", str(self.folder)]
        return str(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["url"])

    def files(self) -> dict[str, int]:
        """All that a browser loads before it shows anything, by name: bytes as they travel."""
        found = {"": self._packed("/")}
        page = self.ask("GET", "/").decode()
        for name in re.findall(r'"(dashboard/[^"]+)"', page):
            found[name] = self._packed(f"/{name}")
        return found

    def _packed(self, path: str) -> int:
        connection = http.client.HTTPConnection(self.address, timeout=READY_SECONDS)
        try:
            connection.request("GET", path, headers={"accept-encoding": "gzip"})
            reply = connection.getresponse()
            body = reply.read()
        finally:
            connection.close()
        if reply.status != 200 or reply.getheader("content-encoding") != "gzip":
            raise RuntimeError(f"{path}: {reply.status}, not packed")
        return len(body)

    @contextlib.contextmanager
    def viewers(self, count: int) -> Iterator[None]:
        """So many look, and read what comes as the page does; a thread for all, so that they cost the machine little."""
        connections = []
        try:
            for _ in range(count):
                connection = http.client.HTTPConnection(self.address, timeout=READY_SECONDS)
                connection.request("GET", "/v1/live", headers={"authorization": f"Bearer {self.token}"})
                reply = connection.getresponse()
                if reply.status != 200:
                    raise RuntimeError(f"a viewer was refused: {reply.status}")
                thread = threading.Thread(target=_read, args=(reply,), daemon=True)
                thread.start()
                connections.append((connection, thread))
            yield
        finally:
            for connection, thread in connections:
                if connection.sock is not None:
                    connection.sock.shutdown(2)
                thread.join()
                connection.close()

    def core_percent(self, seconds: float) -> float:
        """Processor time of the node in percent of a core."""
        began, used = time.monotonic(), self._used()
        time.sleep(seconds)
        return 100.0 * (self._used() - used) / (time.monotonic() - began)

    def _used(self) -> float:
        """Seconds of processor time of all its threads, those that have ended too: the clock that the kernel has of it."""
        return time.clock_gettime(~self._process.pid << 3 | CPU_CLOCK)

    def wake_ups(self, seconds: float) -> float:
        """How often a second its threads go to sleep by themselves, which is how often they were woken."""
        before = self._slept()
        time.sleep(seconds)
        after = self._slept()
        return sum(count - before.get(task, 0) for task, count in after.items()) / seconds

    def _slept(self) -> dict[str, int]:
        found = {}
        for task in Path(f"/proc/{self._process.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                status = (task / "status").read_text()
                found[task.name] = int(re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", status, re.M)[0])
        return found


def _read(reply: http.client.HTTPResponse) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError, http.client.HTTPException):
        while reply.read1(1 << 16):
            pass
