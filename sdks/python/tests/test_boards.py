"""Boards as places: a component that the node runs on a machine of its own, called as a Python function."""

import json
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

import lighterage
from lighterage import DoesNotTravel, NodeRefused, offload
from test_node import PROGRAM

GUESTS = Path(__file__).parents[3] / "guests/prebuilt"
PATIENCE = 60.0


class Place:
    """A node that listens for boards, and one board in QEMU."""

    def __init__(self, folder):
        self.folder = folder
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", 0))
            self.beacons = str(free.getsockname()[1])
        self.children = []
        self.child("up", "--boards", "--beacon-port", self.beacons, "--http", "127.0.0.1:0", "--api", "127.0.0.1:0")
        self.wait((folder / "node.json").exists, "the node does not start")
        url = json.loads((folder / "node.json").read_text())["api"]
        self.node = lighterage.connect(url, (folder / "token").read_text().strip())

    def child(self, *words):
        with (self.folder / "log").open("a") as log:
            child = subprocess.Popen([PROGRAM, *words, "--data-folder", self.folder], stdout=log, stderr=log)
        self.children.append(child)
        return child

    def deploy(self, guest, text):
        shutil.copy(GUESTS / f"{guest}.wasm", self.folder)
        (self.folder / "lighter.toml").write_text(f'[function.{guest}]\nimage = "{guest}.wasm"\n{text}')
        subprocess.run([PROGRAM, "deploy", self.folder, "--data-folder", self.folder], check=True, capture_output=True)

    def boot(self):
        self.child("boot", "--board", "qemu-arm", "--beacon-port", self.beacons)
        self.wait(lambda: [board.state for board in self.node.boards()] == ["attested"], "no board is attested")

    def wait(self, is_so, otherwise):
        until = time.monotonic() + PATIENCE
        while not is_so():
            assert time.monotonic() < until, f"{otherwise}: {(self.folder / 'log').read_text()[-2000:]}"
            time.sleep(0.05)

    def stop(self):
        for child in reversed(self.children):
            child.send_signal(2)
            child.wait()


@pytest.fixture
def place(tmp_path):
    if not PROGRAM.exists():
        pytest.skip(f"node: {PROGRAM} is not built")
    if not shutil.which("qemu-system-aarch64"):
        pytest.skip("qemu: boards as places: qemu-system-aarch64 is not installed")
    made = Place(tmp_path)
    yield made
    made.stop()


@offload(component="fibonacci", local=False)
def fibonacci(text):
    raise AssertionError("never here")


def places(function, data):
    return {prediction.place for prediction in function.explain(data).decision.predictions}


def test_a_component_runs_on_a_board_that_is_a_place_of_its_own(place):
    place.deploy("fibonacci", 'isolation = "metal"\n')
    with pytest.raises(NodeRefused, match="none was heard"):
        fibonacci.remote(b"10")
    place.boot()
    assert fibonacci(b"20") == b"6765\n"
    (board,) = place.node.boards()
    assert (board.name, board.state, board.architecture) == (f"{place.node.name}/qemu-arm", "attested", "aarch64")
    assert fibonacci(b"21") == b"10946\n"
    assert places(fibonacci, b"21") == {"local", board.name}
    (stats,) = [one for one in lighterage.stats() if one.function.endswith(":fibonacci")]
    assert stats.calls[board.name] >= 1


def test_a_component_takes_bytes_and_has_no_effects(place):
    with pytest.raises(DoesNotTravel, match="one argument, which is bytes"):
        fibonacci.remote("10")
    with pytest.raises(NodeRefused, match="fibonacci"):
        fibonacci.remote(b"10")
    place.deploy("counter", 'grants = { stores = ["counters"] }\n')
    with pytest.raises(NodeRefused, match="has grants"):
        offload(component="counter")(lambda data: data).remote(b"")
    place.deploy("fibonacci", "")
    # In the class wasm the node itself is the place.
    assert fibonacci(b"10") == b"55\n"
    assert places(fibonacci, b"10") == {"local", place.node.name}
