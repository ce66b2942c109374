"""The node and the client's program, running on the testbed."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from testbed import NODE_ADDRESS, Testbed, Unable

HERE: Final = Path(__file__).parent
#: Seconds that a node may take until it answers, its base already built.
READY_SECONDS: Final = 60.0
_ports: Final = itertools.count(8_700)


class Failed(Exception):
    """The client could not do what it was told."""


class Machines:
    """A node and a client on a testbed."""

    def __init__(self, testbed: Testbed, lighter: str) -> None:
        """The node's units run on this Python and its numpy: the testbed has no way to a package index."""
        self.testbed = testbed
        self._folder = tempfile.TemporaryDirectory(prefix="lighter-offload-")
        data = Path(self._folder.name)
        self._log = (data / "node.log").open("w")
        gate, api = (f"{NODE_ADDRESS}:{next(_ports)}" for _ in range(2))
        command = [lighter, "up", "--data-folder", str(data), "--http", gate, "--api", api, "--insecure-listen"]
        command += ["--python", sys.executable]
        self.node = testbed.start(testbed.node, command, stdout=self._log, stderr=subprocess.STDOUT)
        place = data / "node.json"
        deadline = time.monotonic() + READY_SECONDS
        while not place.exists():
            if self.node.poll() is not None or time.monotonic() > deadline:
                self._log.flush()
                raise Unable(f"the node did not start: {(data / 'node.log').read_text()[-2_000:]}")
            time.sleep(0.05)
        token = data / "token"
        environment = {
            **os.environ,
            # One processor each: what is compared is the machines, not the number of threads.
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "LIGHTER_TOKEN": token.read_text().strip() if token.exists() else "",
        }
        # Whatever else this machine does, the client has its share.
        program = ["nice", "-n", "-20", sys.executable, str(HERE / "client.py"), f"http://{api}"]
        self._client = testbed.start(
            testbed.client, program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._answer()

    def ask(self, **command: Any) -> dict[str, Any]:
        """The client's answer to a command.

        Raises Failed with the client's words.
        """
        assert self._client.stdin is not None
        self._client.stdin.write(json.dumps(command) + "\n")
        self._client.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._client.stdout is not None
        line = self._client.stdout.readline()
        if not line:
            self._log.flush()
            raise Failed(f"the client ended; the node's log: {Path(self._log.name).read_text()[-2_000:]}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def load(self, is_on: bool) -> None:
        """Other work takes nine tenths of the node's processor, or ends."""
        if is_on:
            command = ["nice", "-n", "-10", sys.executable, "-c", "while True: pass"]
            self._other = self.testbed.start(self.testbed.node, command)
        else:
            self._other.kill()
            self._other.wait()
            self.testbed.ended(self._other)

    def close(self) -> None:
        """Ends both; the testbed would too."""
        for process in (self._client, self.node):
            process.terminate()
            process.wait(15)
            self.testbed.ended(process)
        self._log.close()
        self._folder.cleanup()

    def __enter__(self) -> Machines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
