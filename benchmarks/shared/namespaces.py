"""Network namespaces: machines that are none. Needs root and `ip`."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path


class Unable(Exception):
    """This machine cannot do it; says what is missing."""


def need(*tools: str) -> None:
    """Raises Unable where namespaces cannot be made, or one of the tools is missing."""
    if os.geteuid() != 0:
        raise Unable("network namespaces need root: run it with sudo")
    for tool in ("ip", *tools):
        if shutil.which(tool) is None:
            raise Unable(f"{tool} is missing: install iproute2 and util-linux")


def run(*command: str) -> str:
    """What the command prints; raises Unable where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unable(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout


def remove(space: str) -> None:
    """Ends every process in it, then the namespace."""
    found = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=False)
    for pid in found.stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["ip", "netns", "delete", space], capture_output=True, check=False)


def remove_leftovers(prefix: str) -> None:
    """What a run that was killed has left: its namespaces are called `prefix`, its process id and `-NAME`."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    for space in {line.split()[0] for line in listed.splitlines() if line.startswith(prefix)}:
        pid = space[len(prefix) :].partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            remove(space)
