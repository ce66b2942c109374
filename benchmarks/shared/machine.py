"""The machine that a benchmark runs on: a number without it means nothing."""

from __future__ import annotations

import os
import platform
import socket
import subprocess


def words() -> str:
    """Processor, how many of them, system and Python, in a line."""
    system = f"Linux {platform.release()}, Python {platform.python_version()}"
    return f"Machine: {_processor()}, {os.cpu_count()} processors, {system}"


def _processor() -> str:
    found = subprocess.run(["lscpu"], capture_output=True, text=True, check=False).stdout
    names = [line.partition(":")[2].strip() for line in found.splitlines() if line.startswith("Model name")]
    return names[0] if names else platform.processor()


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
