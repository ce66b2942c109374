"""What is measured of Java without a node: the converter of dex, the engine's choices, and what a jail costs."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from pathlib import Path

from peers import LIBDROID, ROOT, UNIT, Speaker
from shared.node import Client
from work import run


def round_trip() -> tuple[int, int]:
    """How many libraries went to dex and back, and how many of them say something else then."""
    done = subprocess.run([ROOT / "tools/check-android", "libraries"], check=False, capture_output=True, text=True)
    said = json.loads(done.stdout.splitlines()[-1])
    return said["libraries"], said["dex_round_trip_failed"]


def convert_ms(folder: Path, dex: Path, times: int) -> float:
    """The median conversion in a converter that is warm, with the options that it has on a node."""
    tests = folder / "tests"
    path = f"{LIBDROID}/converter.jar:{UNIT}"
    run("javac", "-cp", path, "-d", tests, ROOT / "sdks/java/converter/test/lighterage/convert/RoundTrip.java")
    # It finds the base's classes beside the native half.
    options = [f"-Dlighterage.libdroid={LIBDROID}/libdroid.so", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    options += ["-XX:ReservedCodeCacheSize=16m", "-cp", f"{path}:{tests}"]
    found = run("java", *options, "lighterage.convert.RoundTrip", "each", folder / "out.jar", *[dex] * times)
    return statistics.median([float(word) for word in found.split()][times // 2 :])


def same_choices(folder: Path) -> float:
    """The share of the Python engine's recorded decisions that Java's makes as well."""
    sdk = ROOT / "sdks/java"
    sources = [*(sdk / "frame/src/main/java").rglob("*.java"), *(sdk / "client/src/main/java").rglob("*.java")]
    sources += [sdk / "client/src/test/java/lighterage/decide/RecordsTest.java", Path(__file__).parent / "Choices.java"]
    run("javac", "--release", "17", "-nowarn", "-proc:none", "-d", folder / "choices", *sources)
    said = run("java", f"-Dlighterage.root={ROOT}", "-cp", folder / "choices", "bench.Choices")
    return float(said.split()[1])


def version_ms(runtime: Path, times: int) -> float:
    """The median of `java -version` outside of a jail, from its start to its end: a virtual machine that runs nothing."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        run(str(runtime / "bin/java"), "-version")
        took.append((time.perf_counter() - began) * 1e3)
    return statistics.median(took)


def peak_vs_jvm(client: Client, runtime: Path, folder: Path, times: int) -> float:
    """Linpack's largest: the same runtime's time outside of the jail over its time in a unit, both warm."""
    client.call("linpack", b"")
    inside = statistics.median(client.call("linpack", b"").run for _ in range(times))
    source = Path(__file__).parent / "Peer.java"
    run("javac", "--release", "17", "-d", folder / "peer", source)
    path = f"{folder / 'peer'}:{LIBDROID / 'libdroid.jar'}:{UNIT}:{folder / 'workloads.jar'}"
    native = LIBDROID / os.uname().machine / "libdroid.so"
    options = [f"-Dlighterage.libdroid={native}", "-Xmx256m", "-Xss512k", "-XX:+UseSerialGC", "-cp", path]
    command = [str(runtime / "bin/java"), *options, "bench.Peer", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        speaker = Speaker(process.stdin, process.stdout)
        entry = "workloads.Linpack::large"
        speaker.call(entry)
        outside = statistics.median(speaker.call(entry)[1] for _ in range(times))
        process.stdin.close()
    return outside / inside
