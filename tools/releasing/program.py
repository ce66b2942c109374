"""The built program: for which processor it is, and which C library it needs."""

import json
import platform
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

#: By the number in an ELF header: the name in our files and of pip, the name in Debian, the name in images.
MACHINES = {62: ("x86_64", "amd64", "amd64"), 183: ("aarch64", "arm64", "arm64")}


class Wrong(Exception):
    """What was given cannot be released."""


@dataclass(frozen=True)
class Program:
    file: Path
    bytes: bytes
    arch: str
    debian_arch: str
    image_arch: str

    @classmethod
    def read(cls, file):
        content = file.read_bytes()
        if content[:5] != b"\x7fELF\x02":
            raise Wrong(f"{file} is no program for 64-bit Linux")
        machine = int.from_bytes(content[18:20], "little")
        if machine not in MACHINES:
            raise Wrong(f"{file} is for a processor (ELF machine {machine}) that lighter is not built for")
        return cls(file.resolve(), content, *MACHINES[machine])

    def runs_here(self):
        return self.arch == platform.machine()

    def run(self, *words):
        return subprocess.run([self.file, *words], check=True, capture_output=True).stdout

    def check_version(self, version):
        """What runs here is asked; the other was built from the same sources."""
        if self.runs_here():
            said = json.loads(self.run("version", "--json", "--node", "http://127.0.0.1:9"))["version"]
            if said != version:
                raise Wrong(f"{self.file} is version {said}, the sources are {version}")

    def elf(self, *options):
        return subprocess.run(["readelf", "--wide", *options, self.file], check=True, capture_output=True, text=True).stdout

    def glibc(self):
        """The least version of the C library that has all it calls, as (2, 36)."""
        found = {(int(a), int(b)) for a, b in re.findall(r"GLIBC_(\d+)\.(\d+)", self.elf("--version-info"))}
        if not found:
            raise Wrong(f"{self.file} does not say which C library it needs")
        return max(found)
