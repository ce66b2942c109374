"""Wheels: the Python SDK by its own build tool, and the program in a wheel of its own, with the platforms it runs on."""

import base64
import hashlib
import io
import os
import subprocess
import sys
import tempfile
import zipfile
from datetime import datetime, timezone
from pathlib import Path

from .program import Wrong

#: The earliest time that an entry of a zip file can have.
ZIP_BEGINS = 315532800


def tag(one):
    major, minor = one.glibc()
    return f"py3-none-manylinux_{major}_{minor}_{one.arch}"


def name(version, one):
    return f"lighterage_node-{version}-{tag(one)}.whl"


def of_program(shared, one, version, time):
    """pip puts what is in `scripts` onto the PATH of its environment, and refuses a wheel for another processor."""
    info = f"lighterage_node-{version}.dist-info"
    metadata = "\n".join(
        (
            "Metadata-Version: 2.4",
            "Name: lighterage-node",
            f"Version: {version}",
            "Summary: The program lighter: a node for lighterage, and its command line",
            "License-Expression: Apache-2.0",
            "License-File: THIRD-PARTY.txt.gz",
            "Requires-Python: >=3.10",
            "",
            "`pip install lighterage[node]` installs this; then `lighter up` starts a node.",
            "",
        )
    )
    files = {
        f"lighterage_node-{version}.data/scripts/lighter": (one.bytes, 0o755),
        f"{info}/METADATA": (metadata.encode(), 0o644),
        f"{info}/WHEEL": (f"Wheel-Version: 1.0\nGenerator: tools/release\nRoot-Is-Purelib: false\nTag: {tag(one)}\n".encode(), 0o644),
        f"{info}/licenses/THIRD-PARTY.txt.gz": (shared["share/doc/lighterage/THIRD-PARTY.txt.gz"].bytes, 0o644),
    }
    record = "".join(f"{path},sha256={summed(content)},{len(content)}\n" for path, (content, _) in files.items())
    files[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), 0o644)
    return zipped(files, time)


def summed(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def zipped(files, time):
    into = io.BytesIO()
    at = datetime.fromtimestamp(max(time, ZIP_BEGINS), timezone.utc).timetuple()[:6]
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path, (content, mode) in files.items():
            item = zipfile.ZipInfo(path, at)
            item.compress_type, item.create_system, item.external_attr = zipfile.ZIP_DEFLATED, 3, (0o100000 | mode) << 16
            archive.writestr(item, content)
    return into.getvalue()


def of_sdk(root, version, time):
    """By the build tool that sdks/python names, which pip fetches."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(time), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        words = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, root / "sdks/python"]
        subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True, env=environment)
        made = {file.name: file.read_bytes() for file in Path(folder).iterdir()}
    if list(made) != [f"lighterage-{version}-py3-none-any.whl"]:
        raise Wrong(f"the version of sdks/python is not {version}: {', '.join(made)}")
    return made
