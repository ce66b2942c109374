"""A node of its own for a benchmark: started, given functions, called, and looked at from outside."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import io
import json
import os
import re
import socket
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

#: Seconds that a node may take until it answers, its bases already built, and that a call may take.
READY_SECONDS: Final = 60.0
CALL_SECONDS: Final = 300.0
_TIMING: Final = re.compile(r"(queue|start|run);dur=([0-9.]+)")
_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")

#: How a program is started: as `subprocess.Popen` does, or on a machine of the testbed.
Start = Callable[..., "subprocess.Popen[bytes]"]
#: A new connection to a host and a port.
Connect = Callable[[str, int], socket.socket]


@dataclass(frozen=True)
class Call:
    """One call in milliseconds: the whole from here, and what the node says of it. `reply`: its body."""

    whole: float
    queue: float
    start: float
    run: float
    reply: bytes


def plainly(host: str, port: int) -> socket.socket:
    """A connection from where this program is."""
    return socket.create_connection((host, port), CALL_SECONDS)


class Node:
    """A node in a folder of its own."""

    def __init__(self, lighter: Path, folder: Path, options: tuple[str, ...] = ()) -> None:
        """`options`: more of `lighter up`."""
        self.lighter = lighter
        self.folder = folder
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None
        self._gate: tuple[str, int] = ("", 0)
        self._api: tuple[str, int] = ("", 0)
        #: Where its broker listens, if it was asked for one.
        self.mqtt: tuple[str, int] = ("", 0)

    def command(self, *words: str, cwd: Path | None = None, given: str = "") -> str:
        """What `lighter` says on standard output. `given`: its standard input."""
        command = [str(self.lighter), *words, "--data-folder", str(self.folder)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=cwd, input=given)
        if done.returncode != 0:
            raise RuntimeError(f"`lighter {' '.join(words)}` failed: {done.stderr.strip()}")
        return done.stdout

    @contextlib.contextmanager
    def up(self, start: Start = subprocess.Popen, host: str = "127.0.0.1") -> Iterator[None]:
        """Runs it, listening at this address."""
        command = [str(self.lighter), "up", "--data-folder", str(self.folder)]
        command += ["--http", f"{host}:0", "--api", f"{host}:0", "--insecure-listen", *self.options]
        with (self.folder.parent / "node.log").open("ab") as log:
            self.process = start(command, stdout=log, stderr=log)
        try:
            known = self.folder / "node.json"
            deadline = time.monotonic() + READY_SECONDS
            while not known.exists():
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the node has not started: {self.folder.parent / 'node.log'}")
                time.sleep(0.05)
            said = json.loads(known.read_text())
            self._api = _address(said["api"])
            self.mqtt = _address(said["mqtt"]) if said.get("mqtt") else ("", 0)
            yield
        finally:
            self.process.terminate()
            self.process.wait(30)

    def deploy(self, project: Path) -> None:
        """The functions of a folder, by the command line."""
        functions = json.loads(self.command("deploy", "--json", cwd=project))
        urls = [url for function in functions for url in function["urls"]]
        if urls:
            self._gate = _address(urls[0])

    def learn_gate(self) -> None:
        """Where functions are called that were deployed before this start."""
        self._gate = _address(json.loads((self.folder / "node.json").read_text())["gate"])

    def url(self, name: str) -> str:
        """Where the function at the route `/NAME` is called."""
        host, port = self._gate
        return f"http://{host}:{port}/{name}"

    def connect(self) -> socket.socket:
        """A connection to the gate."""
        return plainly(*self._gate)

    def client(self, connect: Connect = plainly) -> Client:
        """One connection to the gate and one to the API; both stay."""
        token = self.folder / "token"
        return Client(self._gate, self._api, token.read_text().strip() if token.exists() else "", connect)

    def cpu_seconds(self) -> float:
        """What the node and all of its processes have computed, with those that have ended."""
        assert self.process is not None
        return tree_cpu_seconds(self.process.pid)


class Client:
    """Calls functions and deploys them over the HTTP API, on connections that stay open."""

    def __init__(self, gate: tuple[str, int], api: tuple[str, int], token: str, connect: Connect) -> None:
        self._connect = connect
        self._gate, self._api = gate, api
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._open: dict[tuple[str, int], http.client.HTTPConnection] = {}

    def call(self, name: str, data: bytes) -> Call:
        """The function at the route `/NAME`. Raises RuntimeError with what the node says when it fails."""
        began = time.perf_counter()
        reply, body = self._ask(self._gate, "POST", f"/{name}", data)
        whole = (time.perf_counter() - began) * 1e3
        if reply.status != 200:
            raise RuntimeError(f"{name}: {reply.status}: {body.decode(errors='replace')[:400]}")
        said = dict(_TIMING.findall(reply.headers.get("server-timing", "")))
        queue, start, run = (float(said.get(stage, "nan")) for stage in ("queue", "start", "run"))
        return Call(whole, queue, start, run, body)

    def deploy(self, name: str, function: dict[str, Any], image: bytes) -> tuple[float, float]:
        """A bundle as a function with a route. Milliseconds of sending it, and of making it ready."""
        hash_ = hashlib.sha256(image).hexdigest()
        began = time.perf_counter()
        reply, body = self._ask(self._api, "PUT", f"/v1/images/{hash_}", image)
        _succeeded(reply, body)
        sent = time.perf_counter()
        manifest = {"function": {name: {**function, "image": hash_, "http": f"/{name}"}}}
        headers = {"content-type": "application/json"}
        reply, body = self._ask(self._api, "POST", "/v1/deployments", json.dumps(manifest).encode(), headers)
        _succeeded(reply, body)
        last = json.loads(body.splitlines()[-1])
        if last["step"] != "done":
            raise RuntimeError(f"{name} was not deployed: {last}")
        self._gate = _address(last["functions"][0]["urls"][0])
        return (sent - began) * 1e3, (time.perf_counter() - sent) * 1e3

    def _ask(
        self, address: tuple[str, int], method: str, path: str, body: bytes, headers: dict[str, str] | None = None
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = self._open.get(address)
        if connection is None:
            connection = http.client.HTTPConnection(*address, timeout=CALL_SECONDS)
            connection.sock = self._connect(*address)
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # One that the node has closed is an error: another connection would be made from the wrong machine.
            connection.auto_open = 0
            self._open[address] = connection
        connection.request(method, path, body, {**self._headers, **(headers or {})})
        reply = connection.getresponse()
        return reply, reply.read()

    def close(self) -> None:
        """Closes its connections."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()


def bundle(entry: str, files: dict[str, bytes]) -> bytes:
    """A bundle for Android of these members, as `lighter deploy` makes it."""
    about = {"contract": "event", "entry": entry, "format": 2, "requires": [], "runtime": "android"}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in {"bundle.json": json.dumps(about, separators=(",", ":")).encode(), **files}.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o444
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def tree_cpu_seconds(pid: int) -> float:
    """Of a process and all below it. What has ended counts where its parent has waited for it, as all of ours do."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (place / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(place.name))
                ticks[int(place.name)] = sum(int(field) for field in fields[11:15])
    open_, found = [pid], 0
    while open_:
        one = open_.pop()
        found += ticks.get(one, 0)
        open_ += children.get(one, [])
    return found / _TICKS_A_SECOND


def pss_mb(pid: int) -> float:
    """The memory of a process, shared pages in parts."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss: +(\d+)", rollup, re.M)
    assert found is not None
    return int(found[1]) / 1e3


def private_mb(pid: int) -> float:
    """The memory of a process that is no other's."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(kb) for kb in re.findall(r"^Private_(?:Clean|Dirty): +(\d+)", rollup, re.M)) / 1e3


def machines_mb(smaps: str) -> list[float]:
    """What each microvm of a process has written, by the process's `smaps`: pages of its own in the map of the snapshot that
    its memory begins with, and in what lies right behind that. Without what KVM keeps for it."""
    found: list[float] = []
    end = ""
    for head, fields in re.findall(r"^([0-9a-f]+-[0-9a-f]+ .*)\n((?:\w+:.*\n?)+)", smaps, re.M):
        start, _, rest = head.partition("-")
        own = re.search(r"^Anonymous: +(\d+)", fields, re.M)
        mb = int(own.group(1)) / 1e3 if own else 0.0
        if "memfd:lighter-snapshot" in head:
            found.append(mb)
        elif start == end and len(head.split()) == 5:
            found[-1] += mb
        else:
            end = ""
            continue
        end = rest.split()[0]
    return found


def pids_of(word: str) -> list[int]:
    """Processes with this word among their arguments."""
    found = []
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if place.name.isdigit() and word in (place / "cmdline").read_text().split("\0"):
                found.append(int(place.name))
    return found


def _address(url: str) -> tuple[str, int]:
    found = re.match(r"(?:http://)?([^/:]+):(\d+)", url)
    if found is None:
        raise RuntimeError(f"{url!r} is no address")
    return found[1], int(found[2])


def _succeeded(reply: http.client.HTTPResponse, body: bytes) -> None:
    if reply.status // 100 != 2:
        raise RuntimeError(f"{reply.status}: {body.decode(errors='replace')[:400]}")
