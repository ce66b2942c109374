"""What is run: functions that do nothing, a picture on Libdroid, and the four workloads; as jar, dex and apk."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path
from typing import Final

from peers import ROOT

#: Memory that a unit, a container or a machine may have when its boot is timed, in MiB: as in the paper's figure 8.
MEMORIES_MB: Final = (64, 128, 256, 512, 1_024, 2_048)
WORKLOADS: Final = ("ChessGame", "FaceDetect", "VirusScan", "Linpack")
EXAMPLE: Final = ROOT / "examples/android"
MANIFEST: Final = """
[function.plain]
isolation = "process"
base = "java"
image = "work.jar"
entry = "bench.Work::plain"
http = "/plain"
limits.concurrency = 16
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

[function.linpack]
isolation = "process"
base = "android"
image = "workloads.jar"
entry = "workloads.Linpack::large"
http = "/linpack"
units.reuse_calls = 100000
limits.time_ms = 60000
limits.cpu_ms = 60000
"""
BOOT: Final = """
[function.boot-{memory_mb}]
isolation = "process"
base = "android"
image = "work.dex"
entry = "bench.Work::picture"
http = "/boot-{memory_mb}"
limits.memory_bytes = {memory_bytes}
"""


def compile_work(folder: Path) -> None:
    """A project of all functions, with their images: `work.jar`, `work.dex`, `workloads.jar`, `large.dex`."""
    android = next(ROOT.glob("build/maven/android-all-*.jar"))
    source = Path(__file__).parent / "Work.java"
    run("javac", "--release", "17", "-cp", android, "-d", folder / "classes", source)
    run("jar", "--create", "--file", folder / "work.jar", "-C", folder / "classes", ".")
    run(EXAMPLE / "build")
    (folder / "workloads.jar").write_bytes((EXAMPLE / "workloads.jar").read_bytes())
    dex(folder, "work", folder / "work.jar")
    dex(folder, "workloads", folder / "workloads.jar")
    # The example, a library and what is called: 115 kB.
    run(ROOT / "tools/maven-artefacts", ROOT / "sdks/java/converter/libraries.txt")
    okio = next(ROOT.glob("build/maven/okio-*.jar"))
    dex(folder, "large", folder / "workloads.jar", folder / "work.jar", okio)
    boots = [BOOT.format(memory_mb=memory, memory_bytes=memory << 20) for memory in MEMORIES_MB]
    (folder / "lighter.toml").write_text(MANIFEST + "".join(boots))


def dex(folder: Path, name: str, *jars: Path) -> None:
    """`NAME.dex` of these jars, as the build of an app makes it."""
    android = next(ROOT.glob("build/maven/android-all-*.jar"))
    r8 = next(ROOT.glob("build/maven/r8-*.jar"))
    d8 = ("java", "-cp", r8, "com.android.tools.r8.D8", "--release", "--min-api", "26", "--lib", android)
    run(*d8, "--output", folder, *jars)
    (folder / "classes.dex").rename(folder / f"{name}.dex")


def apk(folder: Path, workload: str) -> bytes:
    """An app with the four workloads; another one for each name, so that none is converted already."""
    file = folder / f"{workload}.apk"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as out:
        out.write(folder / "workloads.dex", "classes.dex")
        out.writestr("workload.txt", workload)
        for resource in sorted((EXAMPLE / "res").iterdir()):
            out.write(resource, resource.name)
    return file.read_bytes()


def run(*words: object) -> str:
    """A program to its end; what it says on standard output. Raises RuntimeError with its last words."""
    done = subprocess.run([str(word) for word in words], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"`{words[0]}` failed: {done.stderr.strip()[-600:]}")
    return done.stdout
