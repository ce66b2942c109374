"""A child's own walls, beside those of the jail it is born in: no signals to its siblings, no files of theirs.

The jail holds all children of one function. Between them stands a Landlock domain for each child: it may touch the
read-only base and its own scratch folder, and may signal and trace only what is in the same domain. Where the kernel
is too old for the part about signals, a system call filter lets it signal itself alone.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
from typing import Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH: Final = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
#: All rights to files by version of Landlock.
_FILES: Final = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_FILES_LATEST: Final = (1 << 16) - 1
#: From this version on signals can be kept in.
_SCOPES_SINCE: Final = 6
_SCOPES: Final = 3

_SECCOMP, _NO_NEW_PRIVILEGES = 22, 38


def _syscall(number: int, *arguments: object) -> int:
    result: int = _LIBC.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def landlock_version() -> int:
    """0 where there is none."""
    try:
        return _syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    except OSError:
        return 0


class Walls:
    """Makes the walls of children; those of one scratch folder are made once."""

    def __init__(self) -> None:
        self._version = landlock_version()
        self._rulesets: dict[str, int] = {}
        self._outside = [entry for entry in os.scandir("/") if entry.name != "scratch"] if self._version else []

    def prepare(self, scratch: str) -> None:
        """To be called before a fork, so that the child has little left to do."""
        if self._version and scratch not in self._rulesets:
            self._rulesets[scratch] = self._ruleset(scratch)

    def close_in(self, scratch: str) -> None:
        """Puts this process behind its walls."""
        if self._version:
            _LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
            _syscall(_RESTRICT_SELF, ctypes.c_int(self._rulesets[scratch]), ctypes.c_uint(0))
        if self._version < _SCOPES_SINCE:
            _signal_itself_alone()

    def rulesets(self) -> list[int]:
        """Open descriptors, to be closed in a child."""
        return list(self._rulesets.values())

    def _ruleset(self, scratch: str) -> int:
        files = _FILES.get(self._version, _FILES_LATEST)
        fields = [files]
        if self._version >= 4:
            fields.append(0)
        if self._version >= _SCOPES_SINCE:
            fields.append(_SCOPES)
        attributes = struct.pack(f"{len(fields)}Q", *fields)
        ruleset = _syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))
        for entry in self._outside:
            rights = _READ_FILE | _EXECUTE | (_READ_DIR if entry.is_dir() else 0)
            if entry.name == "dev":
                rights = _READ_FILE | _WRITE_FILE | _READ_DIR
            self._allow(ruleset, entry.path, rights)
        self._allow(ruleset, scratch, files)
        return ruleset

    def _allow(self, ruleset: int, path: str, rights: int) -> None:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            rule = struct.pack("=Qi", rights, folder)
            _syscall(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint(0))
        finally:
            os.close(folder)


#: Numbers of kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo, pidfd_send_signal; those before whose first
#: argument is the process may be used on itself.
_SIGNALS: Final = {
    "x86_64": (0xC000003E, (62, 234), (200, 129, 297, 424)),
    "aarch64": (0xC00000B7, (129, 131), (130, 138, 240, 424)),
}


def _signal_itself_alone() -> None:
    known = _SIGNALS.get(platform.machine())
    if known is None:
        return
    machine, own, never = known
    program = [(0x20, 0, 0, 4), (0x15, 1, 0, machine), (0x06, 0, 0, 0x80000000), (0x20, 0, 0, 0)]
    for number in never:
        program += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050001)]
    for number in own:
        program += [(0x15, 0, 4, number), (0x20, 0, 0, 16), (0x15, 1, 0, os.getpid()), (0x06, 0, 0, 0x00050001)]
        program += [(0x06, 0, 0, 0x7FFF0000)]
    program.append((0x06, 0, 0, 0x7FFF0000))
    code = b"".join(struct.pack("=HBBI", *step) for step in program)
    memory = ctypes.create_string_buffer(code)
    head = struct.pack("@HP", len(program), ctypes.addressof(memory))
    if _LIBC.prctl(_SECCOMP, 2, head, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def limit_memory(more_bytes: int) -> None:
    """Where no control group counts a child's memory: so much more than it was born with."""
    born = resource.getrlimit(resource.RLIMIT_DATA)[0]
    with open("/proc/self/statm", encoding="ascii") as statm:
        data = int(statm.read().split()[5]) * resource.getpagesize()
    wanted = data + more_bytes
    if born != resource.RLIM_INFINITY:
        wanted = min(wanted, born)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, wanted))
