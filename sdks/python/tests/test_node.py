"""The client with the node itself: units in their jail, limits that bind, a node that dies and comes back."""

import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import types
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import lighterage
import work
import work_at_load
import work_classes
from lighterage import LighterageError, Limits, NodeRefused
from lighterage.code import bundle
from lighterage.places import runtime
from lighterage.travel import pack
from test_two_nodes import teach

PROGRAM = Path(os.environ.get("LIGHTER_PROGRAM") or Path(__file__).parents[3] / "target/release/lighter")


class RealNode:
    """`lighter up` in a folder of its own."""

    def __init__(self, folder, *options, api="127.0.0.1:0", **environment):
        self.folder = folder
        self.options = options
        self.environment = os.environ | environment
        self.api = api
        self.start()

    def start(self):
        command = [PROGRAM, "up", "--data-folder", self.folder, "--allow-weaker-jail"]
        command += ["--http", "127.0.0.1:0", "--api", self.api]
        command += ["--python", os.environ.get("LIGHTER_PYTHON") or os.sys.executable, *self.options]
        (self.folder / "node.json").unlink(missing_ok=True)
        log = (self.folder / "log").open("a")
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, env=self.environment)
        deadline = time.monotonic() + 30
        while not (self.folder / "node.json").exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the node does not start: {(self.folder / 'log').read_text()[-500:]}")
            time.sleep(0.02)
        self.url = json.loads((self.folder / "node.json").read_text())["api"]
        self.api = self.url.partition("//")[2]

    def stop(self):
        self.process.kill()
        self.process.wait()

    def connect(self):
        return lighterage.connect(self.url, (self.folder / "token").read_text().strip())


@pytest.fixture(scope="module", autouse=True)
def _built():
    if not PROGRAM.exists():
        pytest.skip(f"node: {PROGRAM} is not built")


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    made = RealNode(tmp_path_factory.mktemp("node"))
    yield made
    made.stop()


@pytest.fixture
def real(started):
    client = started.connect()
    assert client.known.runs_python
    return client


def test_calls_run_in_a_unit(real):
    assert work.where.remote() != os.getpid()
    assert work.double.remote(21) == 42
    info = real.info()
    assert info.python["version"] and info.python["numpy"] and info.speed > 0


def test_a_first_look_at_the_table_has_the_node(started, monkeypatch):
    monkeypatch.setenv("LIGHTER_DATA", str(started.folder))
    assert work.double(4) == 8
    explanation = work.double.explain(4)
    assert [known.place for known in explanation.decision.predictions] == ["local", started.api]
    assert not any("answer" in note for note in explanation.notes)


def test_arrays_arrive_as_they_were(real):
    for array in (
        np.random.default_rng(1).random(1_000_000), np.zeros((0, 3)), np.arange(20)[::3], np.arange(4, dtype=">f8"),
        np.asfortranarray(np.arange(6).reshape(2, 3)), np.array([np.nan, -0.0]), np.array(["a", "bcd"]),
    ):  # fmt: skip
        back = work.echo.remote(array)
        assert back.dtype == array.dtype and back.shape == array.shape and back.tobytes() == array.tobytes()


def test_exceptions_arrive_as_themselves(real):
    with pytest.raises(work.TooSmall) as caught:
        work.fail.remote(3)
    assert caught.value.value == 3 and 'work.py", line' in str(caught.value.__cause__)
    with pytest.raises(np.linalg.LinAlgError):
        lighterage.offload(np.linalg.inv).remote(np.zeros((2, 2)))


def test_methods_recursion_and_async_functions(real):
    import asyncio

    assert work.Scale(3.0).times.remote(np.ones(2))[0].tolist() == [3.0, 3.0]
    assert work_classes.Larger.above.remote(3.0)[:2] == ("Larger", 60.0)
    assert len(set(work.recurse.remote(3))) == 1

    async def main():
        return await work.later.remote(1)

    assert asyncio.run(main())[0] == 2


def test_the_node_says_where_the_time_went(real):
    work.slow.remote(0.05)
    with runtime.current.lock:
        curve = runtime.current.engine.work("work:slow").remote[real.name]
    assert 0.04 < curve.guess(1.0).middle < 0.5


def test_codecs_and_packing_are_understood(real):
    array = np.zeros(100_000)
    for options in ({"codec": "json"}, {"codec": "raw"}, {"compress": True}):
        assert (work.double.with_options(**options).remote(array) == array).all()


@pytest.fixture
def packed(monkeypatch):
    """How arrays were packed on their way: up to the node, and down."""
    ways = {"up": [], "down": []}

    def seen(way, plain):
        def spy(method, *rest):
            ways[way].append(method)
            return plain(method, *rest)

        return spy

    monkeypatch.setattr(pack, "_compress", seen("up", pack._compress))
    monkeypatch.setattr(pack, "_expand", seen("down", pack._expand))
    return ways


def test_arrays_are_packed_with_zlib_where_one_side_has_nothing_else(real, packed, monkeypatch):
    array = np.arange(100_000.0)
    packs = work.double.with_options(compress=True)
    monkeypatch.setattr(pack, "_library", None)
    assert (packs.remote(array) == 2 * array).all()
    assert set(packed["up"]) == set(packed["down"]) == {"zlib"}


def test_arrays_are_packed_with_zstd_where_both_sides_have_it(real, packed, monkeypatch):
    library = pytest.importorskip("zstandard", reason="python-packages: arrays packed with zstd")
    if "zstandard" not in real.known.python:
        pytest.skip("python-packages: the node's Python has no zstandard")
    array = np.arange(100_000.0)
    monkeypatch.setattr(pack, "_library", library)
    assert (work.double.with_options(compress=True).remote(array) == 2 * array).all()
    assert set(packed["up"]) == set(packed["down"]) == {"zstd"}


#: Stands in for the library, so that no package index is needed: nothing else reads what it writes.
ZSTANDARD = """
import zlib

class ZstdError(Exception):
    pass

class ZstdCompressor:
    def __init__(self, level, write_content_size):
        pass

    def compress(self, data):
        data = bytes(data)
        return len(data).to_bytes(8, "little") + zlib.compress(data, 1)

class ZstdDecompressor:
    def decompress(self, packed, max_output_size):
        return zlib.decompress(packed[8:])

def frame_content_size(packed):
    return int.from_bytes(packed[:8], "little")
"""


def test_a_lock_file_that_names_zstandard_has_arrays_packed_with_it(tmp_path, packed, monkeypatch):
    """It was looked for in the node's plain Python alone, which is not what a function with a lock file runs on."""
    packages = tmp_path / "packages"
    packages.mkdir()
    line = wheel(packages, "zstandard", {"zstandard.py": ZSTANDARD})
    other = wheel(packages, "cargo_hook", {"cargo_hook.py": "WEIGHT = 7"})
    module = types.ModuleType("zstandard")
    exec(ZSTANDARD, vars(module))
    monkeypatch.setattr(pack, "_library", module)
    (tmp_path / "node").mkdir()
    there = RealNode(tmp_path / "node", PIP_FIND_LINKS=str(packages))
    try:
        there.connect()
        array = np.arange(100_000.0)
        for lock, method in ((line, "zstd"), (other, "zlib")):
            packed["up"].clear(), packed["down"].clear()
            locked = work.double.with_options(compress=True, lock=lock)
            assert (locked.remote(array) == 2 * array).all()
            assert set(packed["up"]) == set(packed["down"]) == {method}
    finally:
        there.stop()


def test_what_a_unit_keeps_is_not_sent_again(real):
    keeps = work.total.with_options(keep=True, compress=False)
    array = np.random.default_rng(2).random(200_000)
    for _ in range(4):
        assert keeps.remote(array) == pytest.approx(array.sum())
    assert runtime.current.stats_of("work:total").bytes_up < 1.5 * array.nbytes


def test_a_map_is_farmed_out(real):
    assert list(lighterage.map(work.double, range(500))) == [2 * x for x in range(500)]
    with pytest.raises(ZeroDivisionError):
        list(lighterage.map(work.reciprocal.with_options(local=False), [2, 1, 0]))


def test_limits_bind_and_the_node_goes_on(real):
    with pytest.raises(NodeRefused) as caught:
        work.forever.remote()
    assert caught.value.code == "L3001"
    # The kernel ends it; without a control group that counts memory, the unit raises MemoryError.
    with pytest.raises(NodeRefused) as caught:
        work.large.with_options(limits=Limits(memory_bytes=256 << 20), fallback=False).remote(200_000_000)
    assert caught.value.code == "L3003"
    with pytest.raises(NodeRefused) as caught:
        work.die.remote()
    assert caught.value.code.startswith("L6")
    assert work.double.remote(1) == 2


def test_what_needs_more_memory_than_a_unit_has_runs_here(real):
    for function in (work.heavy, work.refused_memory):
        lean = function.with_options(limits=Limits(memory_bytes=128 << 20))
        lean.prepare()
        teach(lean, {"local": 30.0, real.name: 0.05}, os.getpid())
        assert lean.explain(os.getpid()).decision.place == real.name
        assert lean(os.getpid()) == os.getpid()
        assert runtime.current.stats_of(function._name).failures == {"L3003": 1}
    assert list(lighterage.map(lean, [os.getpid()] * 3)) == [os.getpid()] * 3


def test_a_module_that_cannot_be_loaded_there_is_told_its_line(real):
    """A socket at a module's top: all that was said was `Operation not permitted`, and not by whose fault."""
    with pytest.raises(NodeRefused) as caught:
        work_at_load.answer.remote()
    assert caught.value.code == "L2013"
    blamed, _, said = str(caught.value).partition("; it said:\n")
    assert "PermissionError" in blamed and "work_at_load_helper.py:5: SOCKET = socket.socket()" in blamed
    assert "work_at_load.py:3: import work_at_load_helper" in blamed
    assert "/bundle" not in blamed and "lib/python" not in blamed
    # What it wrote itself comes after that: the end of the traceback, as Python has it.
    assert 'work_at_load_helper.py", line 5' in said
    assert work_at_load.answer() == 42


def test_what_it_prints_without_end_is_cut_off(real):
    assert work.chatter.remote(50_000_000) == 50_000_000


def test_a_cancelled_call_ends_there_too(real):
    only = work.slow.with_options(local=False, pure=False)
    only.prepare()
    future = only.submit(600.0)
    until(lambda: running(real, "py-slow") == 1)
    assert future.cancel()
    until(lambda: running(real, "py-slow") == 0)
    assert work.double.remote(1) == 2


def test_a_call_whose_awaiting_is_cancelled_ends_there_too(real):
    import asyncio

    only = work.slow.with_options(local=False, pure=False)

    async def main():
        task = asyncio.create_task(only.aio(600.0))
        await asyncio.to_thread(until, lambda: running(real, "py-slow") == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    until(lambda: running(real, "py-slow") == 0)
    assert work.double.remote(1) == 2


def running(node, *functions):
    """Calls that run."""
    return sum(one["units_running"] for one in node.functions() if one["name"].startswith(functions))


def until(what):
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def sockets():
    open_ = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return sum("socket" in os.readlink(path) for path in open_ if os.path.lexists(path))


def test_a_race_is_won_by_either_place_and_leaves_nothing(real):
    work.spin.prepare()
    work.crawl.prepare()
    assert work.spin(os.getpid(), 30.0)[0] != os.getpid(), "the node was sooner"
    assert work.crawl.remote(0, 0.0) != os.getpid()
    work.crawl.remote(0, 0.0)
    runtime.current.engine.forget(real.name)
    runtime.current.engine._works.clear()
    runtime.current.engine._tries.clear()
    real.info()
    open_before = sockets()
    began = time.monotonic()
    assert work.crawl(os.getpid(), 60.0) == os.getpid(), "here was sooner"
    assert time.monotonic() - began < 10
    assert runtime.current.stats_of("work:crawl").doubled_here == 1
    # The unit of the request that lost is stopped.
    until(lambda: running(real, "py-crawl", "py-spin") == 0)
    assert sockets() <= open_before + 1 and not runtime.current.is_disturbed


def test_versions_live_side_by_side(real):
    other = work.double.with_options(limits=Limits(seconds=7))
    assert (other.remote(2), work.double.remote(3)) == (4, 6)
    for seconds in range(10, 14):
        work.double.with_options(limits=Limits(seconds=seconds)).prepare()
    assert len([one for one in real.functions() if one["name"].startswith("py-double-")]) == 4
    assert other.remote(2) == 4


def test_two_versions_of_a_source_live_side_by_side(real, tmp_path, monkeypatch):
    """As two devices have them, one of which was updated: each goes on with its own, whoever calls."""
    made = []
    for number, body in enumerate(("x + 1", "x * 100")):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "versioned.py").write_text(
            f"from lighterage import offload\n\n\n@offload\ndef formula(x):\n    return {body}\n"
        )
        with monkeypatch.context() as patched:
            patched.syspath_prepend(str(folder))
            patched.delitem(sys.modules, "versioned", raising=False)
            formula = importlib.import_module("versioned").formula
            formula.prepare()
            made.append(formula)
            patched.delitem(sys.modules, "versioned")
    old, new = made
    assert [(old.remote(x), new.remote(x)) for x in (1, 2, 3)] == [(2, 100), (3, 200), (4, 300)]
    assert len([one for one in real.functions() if one["name"].startswith("py-formula-")]) == 2


def test_two_nodes_share_the_work_and_make_up_for_each_other(real, tmp_path):
    there = RealNode(tmp_path)
    try:
        other = there.connect()
        work.nap.prepare()
        places = work.nap.with_options(local=False)
        assert list(lighterage.map(places, range(100), chunk=1)) == list(range(100))
        stats = runtime.current.stats_of("work:nap")
        assert set(stats.calls) == {real.name, other.name} and sum(stats.calls.values()) == 100
        for node in (real, other):
            before = stats.calls[node.name]
            assert work.nap.remote(7, on=node) == 7
            assert stats.calls[node.name] == before + 1
        assert {known.place for known in work.nap.explain(1).decision.predictions} == {"local", real.name, other.name}
        # The second is taken for the better one, and dies meanwhile.
        patient = work.slow.with_options(local=False, pure=False)
        patient.prepare()
        teach(patient, {real.name: 30.0, other.name: 3.0}, 3.0)

        def die():
            until(lambda: running(other, "py-slow") == 1)
            there.stop()

        threading.Thread(target=die).start()
        assert patient(3.0) != os.getpid()
        stats = runtime.current.stats_of("work:slow")
        assert set(stats.calls) == {real.name} and sum(stats.failures.values()) == 1
        assert set(stats.failures) <= {"L8002", "L1102"}
    finally:
        there.stop()


def test_a_node_that_is_killed_in_a_call_is_made_up_for(started, real):
    work.slow.prepare()
    for _ in range(3):
        runtime.current.engine.observe_local("work:slow", 1.0, 30.0)
    patient = work.slow.with_options(pure=False)
    threading.Timer(0.4, started.stop).start()
    try:
        assert patient(1.0) == os.getpid()
        with pytest.raises(LighterageError):
            patient.remote(0.01)
    finally:
        started.start()
    deadline = time.monotonic() + 20
    while True:
        try:
            assert patient.remote(0.01) != os.getpid()
            break
        except LighterageError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def wheel(folder, name, files):
    """A package that pip installs, with these files; the line of a lock file that names it."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    about = f"{name}-1.0.dist-info"
    files = files | {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{about}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in (files | {f"{about}/RECORD": record}).items():
            archive.writestr(file, text)
    return f"{name}==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def made_bases(folder):
    """The node's bases, and when each was made."""
    return {path.parent.name: json.loads(path.read_text())["made_ms"] for path in (folder / "bases").glob("*/base.json")}


def test_packages_of_a_lock_file_are_there_and_run_nothing_outside_of_the_jail(tmp_path):
    mark = tmp_path / "mark"
    mark.mkdir(mode=0o777)
    # Two ways of a package to run when any interpreter starts: nothing has to import it.
    escape = f"import os, pathlib; pathlib.Path({str(mark)!r}, str(os.getpid())).touch()\n"
    packages = tmp_path / "packages"
    packages.mkdir()
    line = wheel(packages, "cargo_hook", {"cargo_hook.py": "WEIGHT = 7", "cargo_hook.pth": escape, "sitecustomize.py": escape})
    (tmp_path / "node").mkdir()
    there = RealNode(tmp_path / "node", PIP_FIND_LINKS=str(packages))
    try:
        there.connect()
        assert work.weighed.with_options(lock=line).remote(6) == 42
        assert list(mark.iterdir()) == []
        bases = made_bases(tmp_path / "node")
        assert work.double.with_options(lock=line).remote(6) == 12, "another bundle"
        assert made_bases(tmp_path / "node") == bases, "what the same lock file names is installed once"
        for wrong, word in (
            (line.replace(line[-5:-1], "0" * 4), "hash"),
            (f"--no-binary :all:\n{line}", "line 1"),
            ("-r /etc/passwd\n", "line 1"),
        ):
            with pytest.raises(LighterageError, match=word):
                work.weighed.with_options(lock=wrong).remote(6)
    finally:
        there.stop()


FETCH = """
from lighterage.unit import Event, http

def handle(event: Event) -> bytes:
    got = http.send("POST", event.data.decode(), headers=[("x-asked-by", "a unit")], body="how much?")
    return b"%d %s %s" % (got.status, dict(got.headers)["x-answered"].encode(), got.body)
"""


class Answering(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.asked.append((self.headers["x-asked-by"], body))
        self.send_response(203)
        self.send_header("x-answered", "yes")
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"42")

    def log_message(self, *arguments):
        pass


def test_a_handler_sends_http_where_it_was_granted_and_nowhere_else(real):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    data = bundle.pack({"contract": "event", "entry": "app:handle", "format": 1}, {"app.py": FETCH.encode()})
    image = hashlib.sha256(data).hexdigest()

    def asked(method, path, body=b""):
        return real._api.request(method, path, [body], content_type="application/json", deadline=time.monotonic() + 60)

    try:
        assert asked("PUT", f"/v1/images/{image}", data).status in (200, 201)
        common = {"image": image, "isolation": "process"}
        functions = {
            "fetch-granted": {**common, "grants": {"hosts": [f"127.0.0.1:{port}"]}},
            "fetch-elsewhere": {**common, "grants": {"hosts": ["127.0.0.1:1"]}},
            "fetch-nowhere": common,
        }
        deployed = bytes(asked("POST", "/v1/deployments", json.dumps({"function": functions}).encode()).body)
        assert json.loads(deployed.splitlines()[-1])["step"] == "done", deployed
        url = f"http://127.0.0.1:{port}/".encode()
        got = asked("POST", "/v1/functions/fetch-granted/call", url)
        assert (got.status, bytes(got.body)) == (200, b"203 yes 42")
        assert server.asked == [("a unit", b"how much?")]
        for name in ("fetch-elsewhere", "fetch-nowhere"):
            got = asked("POST", f"/v1/functions/{name}/call", url)
            said = json.loads(bytes(got.body))
            assert said["code"] == "L6001" and f"Denied: no grant covers 127.0.0.1:{port}" in said["detail"]
        assert len(server.asked) == 1
    finally:
        server.shutdown()
        server.server_close()


def test_a_node_beyond_this_machine_is_spoken_to_in_tls(tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("openssl: openssl is not installed: no certificate can be made")
    for name in ("node", "other"):
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
        command += ["-keyout", tmp_path / f"{name}.key", "-out", tmp_path / f"{name}.pem"]
        subprocess.run(command, check=True, capture_output=True)
    (tmp_path / "data").mkdir()
    certificate = ("--tls-cert", tmp_path / "node.pem", "--tls-key", tmp_path / "node.key")
    there = RealNode(tmp_path / "data", *certificate, api="0.0.0.0:0")
    try:
        token = (there.folder / "token").read_text().strip()
        url = f"https://127.0.0.1:{there.api.rpartition(':')[2]}"
        client = lighterage.connect(url, token, ca_file=str(tmp_path / "node.pem"))
        assert client.known.runs_python
        array = np.arange(1_000_000.0)
        assert (work.double.remote(array) == 2 * array).all()
        runtime.current.disconnect()
        for ca_file in (str(tmp_path / "other.pem"), None):
            with pytest.raises(LighterageError, match="certificate"):
                lighterage.connect(url, token, ca_file=ca_file).info()
    finally:
        there.stop()
