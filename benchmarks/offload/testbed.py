"""Three machines out of one: a slow client, a network of known rate and delay, and a node.

    client ──veth── link ──veth── node          each is a network namespace
    10.77.0.1       HTB and delay  10.77.0.2

The client may use a part of one processor, a tenth of a millisecond at a time (`slow.py`); the node has another processor.
Needs root, `ip` and `tc`. Nothing is left behind, whatever ends it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from shared.namespaces import Unable, need, remove, remove_leftovers, run

CLIENT_ADDRESS: Final = "10.77.0.1"
NODE_ADDRESS: Final = "10.77.0.2"
#: Ends of the two cables in the middle.
PORTS: Final = ("to-client", "to-node")
#: Bytes that HTB lets through at once: a millisecond's, and never less than two packets.
BURST_SECONDS: Final = 0.001
BURST_MIN: Final = 3_200
#: What the queue before the link holds, in seconds of its rate.
QUEUE_SECONDS: Final = 0.2


def check() -> None:
    """Raises Unable where the testbed cannot be made."""
    need("tc", "taskset", "nsenter")
    if (os.cpu_count() or 1) < 2:
        raise Unable("the client and the node need a processor each; this machine has one")


class Testbed:
    """The machines. Use it as a context manager."""

    def __init__(self, share: float) -> None:
        """`share` is the part of one processor that the client may use."""
        self.share = share
        self._mark = f"lt{os.getpid()}"
        self._processes: list[subprocess.Popen[Any]] = []
        self._delay: subprocess.Popen[Any] | None = None
        self.delay_ms = 0.0
        self.loss = 0.0

    @property
    def client(self) -> str:
        return f"{self._mark}-client"

    @property
    def node(self) -> str:
        return f"{self._mark}-node"

    @property
    def link(self) -> str:
        return f"{self._mark}-link"

    def __enter__(self) -> Testbed:
        check()
        remove_leftovers("lt")
        for name in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, lambda *_: sys.exit(1))
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends every process and removes the namespaces."""
        for process in reversed(self._processes):
            if process.poll() is None:
                process.terminate()
        for process in reversed(self._processes):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        for space in (self.client, self.node, self.link):
            remove(space)

    def _build(self) -> None:
        for space in (self.client, self.node, self.link):
            run("ip", "netns", "add", space)
            run("ip", "-n", space, "link", "set", "lo", "up")
        for space, port, address in ((self.client, PORTS[0], CLIENT_ADDRESS), (self.node, PORTS[1], NODE_ADDRESS)):
            run("ip", "link", "add", "eth", "netns", space, "type", "veth", "peer", "name", port, "netns", self.link)
            run("ip", "-n", space, "address", "add", f"{address}/24", "dev", "eth")
            run("ip", "-n", space, "link", "set", "eth", "up")
            # Hosts leave checksums and cutting to their network card, and packets of 64 kB would pass the link at once.
            script = Path(__file__).with_name("delay.py")
            run("ip", "netns", "exec", space, sys.executable, str(script), "--whole-packets", "eth")
            run("ip", "-n", self.link, "link", "set", "dev", port, "up")
        # The bridge is the cable; what is emulated happens where packets leave its ports.
        run("ip", "-n", self.link, "link", "add", "cable", "type", "bridge", "forward_delay", "0")
        run("ip", "-n", self.link, "link", "set", "cable", "up")
        for port in PORTS:
            run("ip", "-n", self.link, "link", "set", "dev", port, "master", "cable")
            run("tc", "-n", self.link, "qdisc", "add", "dev", port, "root", "handle", "1:", "htb", "default", "1")

    def rate(self, mbits: float) -> None:
        """From now on the network carries so many megabits a second, in either direction."""
        burst = max(BURST_MIN, round(mbits * 1e6 / 8 * BURST_SECONDS))
        queue = max(20, round(mbits * 1e6 / 8 * QUEUE_SECONDS / 1_500))
        for port in PORTS:
            tc = ("tc", "-n", self.link)
            limits = ("rate", f"{mbits}mbit", "burst", str(burst), "cburst", str(burst))
            run(*tc, "class", "replace", "dev", port, "parent", "1:", "classid", "1:1", "htb", *limits)
            run(*tc, "qdisc", "replace", "dev", port, "parent", "1:1", "handle", "10:", "pfifo", "limit", str(queue))

    def delay(self, milliseconds: float, loss: float = 0.0) -> None:
        """From now on each packet takes so long, in either direction, and this part of them is lost; 0 is the bare bridge.

        The kernel's own emulator of delays is not everywhere, so a process carries the packets instead of the bridge.
        """
        if self._delay is not None:
            self._delay.terminate()
            self._delay.wait()
            self._processes.remove(self._delay)
            self._delay = None
        is_carried = milliseconds > 0 or loss > 0
        for port in PORTS:
            run("ip", "-n", self.link, "link", "set", "dev", port, *(("nomaster",) if is_carried else ("master", "cable")))
        self.delay_ms, self.loss = milliseconds, loss
        if is_carried:
            script = Path(__file__).with_name("delay.py")
            self._delay = self.start(self.link, [sys.executable, str(script), *PORTS, str(milliseconds), str(loss)])
            time.sleep(0.3)

    def start(self, space: str, command: list[str], **more: Any) -> subprocess.Popen[Any]:
        """Starts a program on one of the machines: the client on the first processor, all else on the second."""
        # Not `ip netns exec`: that hides the control groups, which the node needs.
        place = ["nsenter", f"--net=/run/netns/{space}", "taskset", "-c", "0" if space == self.client else "1"]
        process = subprocess.Popen([*place, *command], **more)
        self._processes.append(process)
        if space == self.client and self.share < 1:
            slow = ["taskset", "-c", "0", sys.executable, str(Path(__file__).with_name("slow.py"))]
            # Ends with the process, and before it when all is closed.
            self._processes.append(subprocess.Popen([*slow, str(process.pid), str(self.share)]))
        return process

    def ended(self, process: subprocess.Popen[Any]) -> None:
        """A program that was started has been waited for."""
        self._processes.remove(process)
