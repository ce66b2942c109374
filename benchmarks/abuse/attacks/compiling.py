"""The author of an image that is dear to compile."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

import bomb
from attacks import Attack, Target
from node import Node

#: Nested loops and locals of the image: minutes and gigabytes where nothing bounds the compiler.
DEPTH, LOCALS = 300, 3_000


def project(folder: Path, guests: str, name: str = "bomb") -> Path:
    """A folder to be deployed with the image in it."""
    made = folder / name
    made.mkdir(exist_ok=True)
    (made / "bomb.wasm").write_bytes(bomb.make(Path(guests) / "hello.wasm", DEPTH, LOCALS))
    (made / "lighter.toml").write_text(f'[function.{name}]\nimage = "bomb.wasm"\n')
    return made


def compile_bomb(target: Target) -> None:
    made = project(Path(target.folder), target.guests)
    while time.time() < target.until:
        deploy(target.lighter, target.data, made, target.until - time.time())


def deploy(lighter: str, data: str, folder: Path, seconds: float) -> None:
    """Deploys `folder`, and gives up after so many seconds as somebody at a terminal does."""
    process = subprocess.Popen(
        [lighter, "deploy", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=Node(lighter, Path(data)).client(),
    )
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.1, seconds))
        # A refusal may come at once.
        time.sleep(0.2)
        return
    process.send_signal(signal.SIGINT)
    process.wait()


ATTACKS: Final = [Attack("compile_bomb", "an image of 30 kB that takes minutes and gigabytes to compile", compile_bomb)]
