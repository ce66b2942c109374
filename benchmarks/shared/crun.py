"""Containers by crun alone, without a daemon, and without its own control groups."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

from shared.namespaces import Unable

#: Where machines that mix both versions of control groups mount version 2.
HYBRID: Final = "/sys/fs/cgroup/unified"


def program() -> str:
    """Raises Unable where it is not installed."""
    found = shutil.which("crun")
    if found is None:
        raise Unable("crun is not installed (Debian: apt-get install crun)")
    return found


def command(*words: str) -> list[str]:
    """crun, which refuses machines that mix both versions of control groups, unless it does not see version 2."""
    hidden = ["unshare", "--mount", "sh", "-c", f'umount {HYBRID} && exec "$@"', "sh"] if Path(HYBRID).exists() else []
    return [*hidden, program(), "--cgroup-manager=disabled", *words]


def in_group(group: Path, words: list[str]) -> list[str]:
    """The command, begun in a control group."""
    return ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group), *words]


def bundle(place: Path, rootfs: Path, arguments: list[str], seen: dict[str, Path] | None = None) -> None:
    """Writes the configuration of a container with the network of whoever starts it. `seen`: more folders, to be read."""
    mounts: list[dict[str, Any]] = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
        {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"]},
    ]
    for inside, outside in (seen or {}).items():
        mounts.append({"destination": inside, "type": "none", "source": str(outside), "options": ["rbind", "ro"]})
    config = {
        "ociVersion": "1.0.0",
        "process": {"terminal": False, "user": {"uid": 0, "gid": 0}, "args": arguments, "cwd": "/", "env": []},
        "root": {"path": str(rootfs), "readonly": True},
        "mounts": mounts,
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]},
    }
    (place / "config.json").write_text(json.dumps(config))
