"""Attempts to get out of the jail, or at a neighbour. Each answers `held` and why, or says what it got."""

import ctypes
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)


def refused(what, *allowed):
    """Runs `what`, which must be refused by the system."""
    try:
        got = what()
    except OSError as error:
        return f"held: {errno.errorcode.get(error.errno, error)}"
    except PermissionError as error:
        return f"held: {error}"
    return f"held: {got}" if got in allowed else f"ESCAPED: {got!r}"


def call(number, *arguments):
    """A system call by its number, as an error where it fails."""
    result = LIBC.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


X86 = os.uname().machine == "x86_64"


def all_held(*attempts):
    answers = [attempt() if callable(attempt) else attempt for attempt in attempts]
    return "; ".join(answers)


def others():
    """Processes that are not its own: none is seen but, at most, those of its own jail; none can be touched."""
    seen = [name for name in os.listdir("/proc") if name.isdigit()] if os.path.isdir("/proc/self") else []
    strangers = [name for name in seen if int(name) not in (1, os.getpid())]
    answers = [f"ESCAPED: sees {strangers}" if len(strangers) > 16 else "held: few"]
    for process in [1, *map(int, strangers)]:
        answers.append(refused(lambda process=process: os.kill(process, signal.SIGKILL)))
        answers.append(refused(lambda process=process: os.kill(process, signal.SIGSTOP)))
        answers.append(refused(lambda process=process: open(f"/proc/{process}/mem", "rb").read(1)))
        answers.append(refused(lambda process=process: open(f"/proc/{process}/environ", "rb").read()))
        answers.append(refused(lambda process=process: os.listdir(f"/proc/{process}/fd")))
        answers.append(refused(lambda process=process: os.listdir(f"/proc/{process}/root/")))
    return "; ".join(answers)


def signals():
    """Numbers of the host's processes mean nothing here; nobody but itself can be signalled."""
    answers = [refused(lambda process=process: os.kill(process, 9)) for process in (1, 2, 1000, int(HOST or 4_000_000))]
    # Answers 0 even if it was not allowed to signal a single one; the calls after this one show that it was not.
    everybody = refused(lambda: os.kill(-1, 9), None)
    return "; ".join([*answers, everybody, refused(lambda: call(129 if X86 else 138, 1, 9, None))])


HOST = os.environ.get("HOST_PROCESS")


def trace():
    attach, seize = 16, 0x4206
    number = 101 if X86 else 117
    vm = 310 if X86 else 270
    return all_held(
        lambda: refused(lambda: call(number, attach, 1, 0, 0)),
        lambda: refused(lambda: call(number, seize, 1, 0, 0)),
        lambda: refused(lambda: call(vm, 1, None, 0, None, 0, 0)),
    )


def files():
    """What is outside is not there; what is inside is read-only."""
    readable = ["/etc/passwd", "/etc/shadow", "/root/.bashrc", "/root/.ssh", "/home", "/var", "/sys", "/run", "/boot", "/proc/1/root/etc/passwd", "/proc/kcore"]
    answers = [refused(lambda path=path: os.listdir(path) if os.path.isdir(path) else open(path).read()) for path in readable]
    folders = ["/", "/usr/lib", "/sdk", "/bundle", "/dev", "/scratch", os.path.dirname(sys.executable), "/proc"]
    answers += [refused(lambda path=path: open(f"{path}/planted", "w")) for path in folders]
    answers += [refused(lambda path=path: os.chmod(path, 0o777)) for path in ("/bundle/attack.py", "/sdk/lighterage/unit/zygote.py")]
    answers.append(refused(lambda: open("/bundle/attack.py", "a")))
    answers.append(refused(lambda: os.symlink("/proc/1/root", "here") or open("here/etc/passwd").read()))
    answers.append(refused(lambda: os.mknod("disk", 0o60600, os.makedev(254, 0))))
    answers.append(refused(lambda: call(303 if X86 else 264, -100, b"/", None, None, 0)))
    return "; ".join(answers)


def neighbours():
    """Scratch folders of other calls are closed."""
    own = os.getcwd()
    answers = []
    for slot in range(4):
        path = f"/scratch/{slot}"
        if path != own:
            answers.append(refused(lambda path=path: os.listdir(path)))
            answers.append(refused(lambda path=path: open(f"{path}/planted", "w")))
    return "; ".join(answers)


def network():
    families = [socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK, socket.AF_PACKET, 40]
    answers = [refused(lambda family=family: socket.socket(family, socket.SOCK_STREAM)) for family in families]
    answers.append(refused(lambda: socket.create_connection(("127.0.0.1", 80), 1)))
    answers.append(refused(lambda: socket.create_connection(("192.0.2.1", 80), 1)))
    return "; ".join(answers)


def mounts():
    mount, umount, unshare, pivot, chroot, setns = (165, 166, 272, 155, 161, 308) if X86 else (40, 39, 97, 41, 51, 268)
    return all_held(
        lambda: refused(lambda: call(mount, b"proc", b"/scratch", b"proc", 0, None)),
        lambda: refused(lambda: call(umount, b"/usr/lib", 2)),
        lambda: refused(lambda: call(unshare, 0x10000000)),
        lambda: refused(lambda: call(unshare, 0x00020000)),
        lambda: refused(lambda: call(pivot, b".", b".")),
        lambda: refused(lambda: call(chroot, b"/scratch")),
        lambda: refused(lambda: call(setns, 0, 0)),
        lambda: refused(lambda: call(56 if X86 else 220, 0x10000000 | 17, 0, 0, 0, 0)),
        lambda: refused(lambda: call(435, None, 0)),
        lambda: refused(lambda: call(428, -100, b"/", 1)),
        lambda: refused(lambda: call(430, b"tmpfs", 0)),
    )


def kernel():
    """Doors of the kernel that nobody needs here."""
    bpf, keyctl, perf, userfault, memfd, uring = (321, 250, 298, 323, 319, 425) if X86 else (280, 219, 241, 282, 279, 425)
    numbers = [bpf, keyctl, perf, userfault, memfd, uring, 434, 438, 424]
    return "; ".join(refused(lambda number=number: call(number, 0, 0, 0, 0, 0)) for number in numbers)


def privileges():
    setuid, capset = (105, 126) if X86 else (146, 91)
    answers = [refused(lambda: call(setuid, 0)), refused(lambda: call(capset, 0, 0))]
    if os.path.exists("/proc/self/status"):
        status = dict(line.split(":\t", 1) for line in open("/proc/self/status") if ":\t" in line)
        capabilities = [status[name].strip().strip("0") for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")]
        answers.append(f"ESCAPED: {capabilities}" if any(capabilities) else "held: none")
        answers.append("held" if status["NoNewPrivs"].strip() == "1" else "ESCAPED: new privileges")
        answers.append("held" if status["Seccomp"].strip() == "2" else "ESCAPED: no filter")
    answers.append("held" if os.getuid() == 1000 and os.geteuid() == 1000 else f"ESCAPED: {os.getuid()}")
    return "; ".join(answers)


def descriptors():
    """Nothing is open but its own socket and the pipes of its output."""
    found = {}
    for number in range(1_024):
        try:
            found[number] = os.readlink(f"/proc/self/fd/{number}") if os.path.isdir("/proc/self") else str(os.fstat(number))
        except OSError:
            continue
    more = {number: what for number, what in found.items() if number > 2 and "/proc" not in what and "urandom" not in what}
    return f"ESCAPED: {more}" if more else "held: three"


def fork_bomb():
    """As many processes as there can be, and more threads; all of them end with the unit."""
    made = 0
    try:
        while made < 100_000:
            if os.fork() == 0:
                os.setsid()
                while True:
                    try:
                        os.fork()
                    except OSError:
                        time.sleep(1_000)
            made += 1
    except OSError as error:
        return f"held: {error.strerror} after {made}"
    return f"ESCAPED: {made} processes"


def thread_bomb():
    made = 0
    try:
        for made in range(100_000):
            threading.Thread(target=time.sleep, args=(1_000,), daemon=True).start()
    except RuntimeError as error:
        return f"held: {error} after {made}"
    return f"ESCAPED: {made} threads"


def scratch():
    """May be written up to its limit, and no further."""
    written = 0
    try:
        with open("large", "wb", buffering=0) as file:
            while written < 1 << 34:
                written += file.write(b"x" * (1 << 20))
    except OSError as error:
        return f"held: {errno.errorcode[error.errno]} after {written >> 20} MiB"
    return f"ESCAPED: {written} bytes"


def scratch_is_empty():
    return f"ESCAPED: {os.listdir('.')}" if os.listdir(".") else "held: empty"


def programs():
    """There is nothing to run but the interpreter, which is behind the same walls."""
    answers = [refused(lambda path=path: os.execv(path, [path])) for path in ("/bin/sh", "/usr/bin/env", "/proc/1/exe")]
    script = "import socket; socket.socket()"
    run = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False)
    answers.append("held" if "not permitted" in run.stderr else f"ESCAPED: {run}")
    with open("own", "w") as file:
        file.write("#!/usr/bin/env python3\n")
    os.chmod("own", 0o700)
    answers.append(refused(lambda: os.execv("./own", ["own"])))
    return "; ".join(answers)


def left_behind():
    """A process that outlives the call, as far as it can."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1_000)
        os._exit(0)
    return "held"


def zygote():
    """What is set of another process holds for all later calls, if that process is the one they are forked from."""
    parent = os.getppid()
    os.setpriority(os.PRIO_PROCESS, 0, 1)
    os.sched_setaffinity(0, os.sched_getaffinity(0))
    answers = []
    for process in (1, parent, os.getpid(), os.getpid() + 1):
        answers.append(refused(lambda process=process: os.setpriority(os.PRIO_PROCESS, process, 5)))
        answers.append(refused(lambda process=process: os.sched_setaffinity(process, {0})))
        answers.append(refused(lambda process=process: os.setpriority(os.PRIO_PGRP, process, 5)))
    answers.append(refused(lambda: os.setpriority(os.PRIO_PGRP, 0, 5)))
    answers.append(refused(lambda: os.setpriority(os.PRIO_USER, 0, 5)))
    answers.append(refused(lambda: os.setpriority(os.PRIO_USER, os.getuid(), 5)))
    scheduler, param, ioprio = (144, 142, 251) if X86 else (119, 118, 30)
    answers += [refused(lambda number=number: call(number, parent, 0, 0)) for number in (scheduler, param, ioprio)]
    answers.append("held" if os.getpriority(os.PRIO_PROCESS, parent) <= 0 else "ESCAPED: the zygote was slowed down")
    return "; ".join(answers)


def sockets():
    """Of the socket to the host: who is at its other end, filters, urgent data."""
    host, pair = socket.socket(fileno=os.dup(0)), socket.socketpair()
    answers = []
    for end in (host, pair[0]):
        # SO_PEERCRED, SO_PEERSEC, SO_PEERGROUPS, SO_PEERPIDFD, SO_GET_FILTER, SO_COOKIE, SO_NETNS_COOKIE
        for option in (17, 31, 59, 77, 26, 57, 71):
            answers.append(refused(lambda end=end, option=option: end.getsockopt(socket.SOL_SOCKET, option, 64)))
        # SO_SNDBUF, SO_SNDBUFFORCE, SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_LOCK_FILTER, SO_PASSCRED, SO_PASSSEC, SO_PASSPIDFD, SO_PRIORITY, SO_MARK, SO_BUSY_POLL
        for option in (7, 32, 26, 50, 44, 16, 34, 76, 12, 36, 46, 82, 83):
            answers.append(refused(lambda end=end, option=option: end.setsockopt(socket.SOL_SOCKET, option, bytes(16))))
        answers.append(refused(lambda end=end: end.setsockopt(41, 26, 1)))
        answers.append(refused(lambda end=end: end.getsockopt(6, 11, 64)))
        answers.append(refused(lambda end=end: end.send(b"x", socket.MSG_OOB)))
        answers.append(refused(lambda end=end: end.sendmsg([b"x"], [], socket.MSG_OOB | socket.MSG_DONTWAIT)))
        answers.append(refused(lambda end=end: end.recv(1, socket.MSG_OOB | socket.MSG_DONTWAIT)))
        answers.append(refused(lambda end=end: end.recvmsg(1, 0, 0x2000 | socket.MSG_DONTWAIT)))
        answers.append(refused(lambda end=end: end.send(b"x", 0x4000000)))
    pair[0].send(b"works", socket.MSG_NOSIGNAL)
    answers.append("held" if pair[1].recv(9, socket.MSG_PEEK) == b"works" else "ESCAPED: nothing")
    return "; ".join(answers)


def owners():
    """Signals that the kernel sends for a descriptor, to whoever it was told to."""
    import fcntl

    ends, parent = socket.socketpair(), os.getppid()
    # F_SETOWN, F_SETSIG, F_SETLEASE, F_NOTIFY, F_SETOWN_EX
    tries = [(8, parent), (8, 1), (10, signal.SIGKILL), (1024, 0), (1026, 1), (15, bytes(8))]
    answers = [refused(lambda what=what, value=value: fcntl.fcntl(ends[0], what, value)) for what, value in tries]
    # PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_PTRACER, PR_SET_CHILD_SUBREAPER, PR_SET_MM, PR_SET_TIMERSLACK, PR_SCHED_CORE
    for option in (1, 4, 0x59616D61, 36, 35, 29, 62, 47, 24, 28):
        answers.append(refused(lambda option=option: LIBC.prctl(option, 0, 0, 0, 0) and call(157 if X86 else 167, option, 0, 0, 0, 0)))
    return "; ".join(answers)


def names():
    """Nothing here says which machine this is, or where the node keeps its data."""
    host = os.uname()
    answers = ["held" if host.nodename == "unit" != os.environ["HOST_NAME"] else f"ESCAPED: {host}"]
    if os.path.exists("/proc/self/cgroup"):
        with open("/proc/self/cgroup", encoding="ascii") as groups:
            text = groups.read()
        answers.append(f"ESCAPED: {text}" if "lighter" in text or "zygote" in text else "held")
    return "; ".join(answers)


ALL = {
    name: globals()[name]
    for name in (
        "others signals trace files neighbours network mounts kernel privileges descriptors fork_bomb thread_bomb scratch "
        "scratch_is_empty programs left_behind zygote sockets owners names"
    ).split()
}
