"""`./bench android`: how functions in Java and for Android start, what they take, and how dex is converted."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import shared.figures

ROOT: Final = Path(__file__).parents[2]
LIBDROID: Final = ROOT / "build/libdroid"
UNIT: Final = ROOT / "sdks/java/unit/lighterage-unit.jar"
#: Calls of the spike, and how long they take to begin.
SPIKE: Final = 200
SPIKE_SECONDS: Final = 1.0
#: A unit that waits is there after this; what a call that comes at once waits for is its start.
PAUSE_SECONDS: Final = 0.4
START_MS: Final = re.compile(r"start;dur=([0-9.]+)")
BARS: Final = {
    "java_ready_p50_ms": ("<=", 45),
    "android_ready_p50_ms": ("<=", 80),
    "android_pss_mb": ("<=", 45),
    "android_image_mb": ("<=", 70),
    "java_image_mb": ("<=", 60),
    "call_with_spare_p50_ms": ("<=", 1),
    "warm_call_p50_ms": ("<=", 0.4),
    "dex_round_trip_failed": ("<=", 0),
    "dex_convert_warm_ms": ("<=", 40),
    "dex_convert_83kb_ms": ("<=", 400),
    "spike_p99_ms": ("<=", 10_000),
}
MANIFEST: Final = """
[function.plain]
isolation = "process"
base = "java"
image = "work.jar"
entry = "bench.Work::plain"
http = "/plain"
limits.concurrency = 64
limits.waiting = 1000
limits.wait_ms = 60000

[function.warm]
isolation = "process"
base = "java"
image = "work.jar"
entry = "bench.Work::plain"
http = "/warm"
units.reuse_calls = 100000

[function.picture]
isolation = "process"
base = "android"
image = "work.dex"
entry = "bench.Work::picture"
http = "/picture"
"""


class Node:
    """A node of its own, in a folder of its own."""

    def __init__(self, lighter: Path, folder: Path) -> None:
        self.lighter = lighter
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def command(self, *words: str, cwd: Path | None = None) -> str:
        """What `lighter` says on standard output."""
        command = [str(self.lighter), *words, "--data-folder", str(self.folder)]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=cwd).stdout

    @contextlib.contextmanager
    def up(self, project: Path) -> Iterator[None]:
        """Runs it, with the functions of a folder."""
        command = [str(self.lighter), "up", "--data-folder", str(self.folder)]
        command += ["--http", "127.0.0.1:0", "--api", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            known = self.folder / "node.json"
            while not known.exists():
                if self.process.poll() is not None:
                    raise RuntimeError("the node has ended")
                time.sleep(0.05)
            functions = json.loads(self.command("deploy", "--json", cwd=project))
            self.url = functions[0]["urls"][0].rsplit("/", 1)[0]
            yield
        finally:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)

    def call(self, name: str, argument: int) -> tuple[float, float]:
        """How long a call took from here, and how long its unit took to start, in milliseconds."""
        began = time.perf_counter()
        request = urllib.request.Request(f"{self.url}/{name}", data=str(argument).encode())
        with urllib.request.urlopen(request, timeout=120) as reply:
            reply.read()
            found = START_MS.search(reply.headers.get("Server-Timing", ""))
        return (time.perf_counter() - began) * 1e3, float(found[1]) if found else float("nan")


def ready_ms(node: Node, name: str, argument: int, calls: int) -> float:
    """Median of the starts that calls waited for whole: each comes as soon as the one before has taken its unit."""
    starts = []
    for _ in range(calls):
        time.sleep(PAUSE_SECONDS)
        # The first has the unit that waits. The second finds one that has just begun, the third none.
        threads = [threading.Thread(target=lambda: starts.append(node.call(name, argument)[1])) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    waited = [start for start in starts if start > 5]
    return statistics.median(waited)


def call_ms(node: Node, name: str, calls: int, pause: float) -> float:
    """Median of calls one after the other."""
    for _ in range(20 if pause == 0 else 2):
        node.call(name, 1)
    took = []
    for _ in range(calls):
        time.sleep(pause)
        took.append(node.call(name, 1)[0])
    return statistics.median(took)


def spike_p99_ms(node: Node) -> float:
    """200 calls that begin within a second, after one call at a time."""
    took: list[float] = []
    threads = [threading.Thread(target=lambda: took.append(node.call("plain", 1)[0])) for _ in range(SPIKE)]
    for thread in threads:
        thread.start()
        time.sleep(SPIKE_SECONDS / SPIKE)
    for thread in threads:
        thread.join()
    if len(took) != SPIKE:
        raise RuntimeError(f"{SPIKE - len(took)} calls of the spike failed")
    return sorted(took)[int(SPIKE * 0.99) - 1]


def pss_mb(word: str) -> float:
    """The mean memory of the virtual machines with this word in their command line, shared pages in parts."""
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if process.name.isdigit() and word in (process / "cmdline").read_text().split("\0"):
                rollup = (process / "smaps_rollup").read_text()
                found.append(int(re.search(r"^Pss: +(\d+)", rollup, re.M)[1]) / 1e3)
    return statistics.mean(found) if found else float("nan")


def compile_work(folder: Path) -> None:
    """A jar and a dex file of the functions, where the manifest says."""
    android = next(ROOT.glob("build/maven/android-all-*.jar"))
    r8 = next(ROOT.glob("build/maven/r8-*.jar"))
    source = Path(__file__).parent / "Work.java"

    def run(*words: object) -> None:
        subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)

    run("javac", "--release", "17", "-cp", android, "-d", folder / "classes", source)
    run("jar", "--create", "--file", folder / "work.jar", "-C", folder / "classes", ".")
    classes = list((folder / "classes/bench").iterdir())
    d8 = ["java", "-cp", r8, "com.android.tools.r8.D8", "--release", "--min-api", "26", "--lib", android]
    run(*d8, "--output", folder, *classes)
    (folder / "classes.dex").rename(folder / "work.dex")
    (folder / "lighter.toml").write_text(MANIFEST)
    okio = next(ROOT.glob("build/maven/okio-*.jar"))
    (folder / "okio").mkdir()
    run(*d8, "--output", folder / "okio", okio)


def convert_ms(folder: Path, dex: Path, times: int) -> float:
    """The median conversion in a converter that is warm."""
    tests = folder / "tests"
    path = f"{LIBDROID}/converter.jar:{UNIT}"
    source = ROOT / "sdks/java/converter/test/lighterage/convert/RoundTrip.java"
    subprocess.run(["javac", "-cp", path, "-d", str(tests), str(source)], check=True)
    options = [f"-Dlighterage.libdroid={LIBDROID}/libdroid.so", "-XX:+UseSerialGC", "-cp", f"{path}:{tests}"]
    command = ["java", *options, "lighterage.convert.RoundTrip", "each", str(folder / "out.jar"), *[str(dex)] * times]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return statistics.median([float(word) for word in found.stdout.split()][times // 2 :])


def main() -> int:
    """Prints the figures; how many miss their bar."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--lighter", type=Path, required=True)
    options.add_argument("--quick", action="store_true")
    asked = options.parse_args()
    subprocess.run([ROOT / "tools/libdroid"], check=True, stdout=subprocess.DEVNULL)
    round_trip = subprocess.run([ROOT / "tools/check-android"], check=False, capture_output=True, text=True)
    libraries = json.loads(round_trip.stdout.splitlines()[-1])
    calls = 20 if asked.quick else 200
    figures: dict[str, float | None] = {"dex_round_trip_failed": float(libraries["dex_round_trip_failed"])}
    with tempfile.TemporaryDirectory() as place:
        folder, node = Path(place), Node(asked.lighter.resolve(), Path(place) / "data")
        compile_work(folder)
        node.command("base", "build", "java")
        node.command("base", "build", "android", "--libdroid", str(LIBDROID))
        for base in json.loads(node.command("base", "ls", "--json")):
            figures[f"{base['kind']}_image_mb"] = base["bytes"] / 1e6
        with node.up(folder):
            figures["java_ready_p50_ms"] = ready_ms(node, "plain", 1, calls)
            figures["android_ready_p50_ms"] = ready_ms(node, "picture", 64, calls)
            figures["android_pss_mb"] = pss_mb("lighterage.droid.Main")
            figures["call_with_spare_p50_ms"] = call_ms(node, "plain", calls, PAUSE_SECONDS)
            figures["warm_call_p50_ms"] = call_ms(node, "warm", calls * 20, 0)
            figures["spike_p99_ms"] = spike_p99_ms(node)
        figures["dex_convert_warm_ms"] = convert_ms(folder, folder / "work.dex", 20)
        figures["dex_convert_83kb_ms"] = convert_ms(folder, folder / "okio/classes.dex", 10)
    print(f"libraries of the round trip: {libraries['libraries']}")
    return shared.figures.report(BARS, figures)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
