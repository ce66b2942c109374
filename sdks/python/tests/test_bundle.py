"""Code travels whole and alike: modules, packages, scripts, what was entered at a prompt or in a notebook."""

import io
import json
import linecache
import subprocess
import sys
import tarfile
import textwrap
import types
from pathlib import Path

import pytest

import work
from lighterage import offload
from lighterage.code import bundle
from lighterage.errors import DoesNotTravel
from standin import SOURCE

TESTS = str(Path(__file__).parent)


def files_of(made):
    with tarfile.open(fileobj=io.BytesIO(made.data)) as tar:
        return {member.name: tar.extractfile(member).read().decode() for member in tar}


def test_a_module_that_a_link_takes_out_of_its_folder_does_not_travel(load, tmp_path):
    """A folder that somebody else wrote could have a file of this machine sent to a node."""
    folder = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    folder.mkdir()
    (folder / "secret.py").write_text("KEY = 'secret'\n")
    (tmp_path / "linked.py").symlink_to(folder / "secret.py")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "own.py").write_text("X = 1\n")
    (tmp_path / "staying.py").symlink_to(tmp_path / "inner" / "own.py")
    module = load({"linking.py": "import linked\ndef f():\n    return linked.KEY\n"}, "linking")
    with pytest.raises(DoesNotTravel, match=r"linked.py is a link to .*secret.py"):
        bundle.make(module.f)
    module = load({"good.py": "import staying\ndef f():\n    return staying.X\n"}, "good")
    assert "staying.py" in files_of(bundle.make(module.f))


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Imports modules that are written for one test."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def make(files, name):
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(textwrap.dedent(text))
        return __import__(name, fromlist=["x"])

    yield make
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def prompt(monkeypatch):
    """A `__main__` without a file, whose cells are entered one by one."""
    module = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)

    def enter(text):
        text = textwrap.dedent(text)
        name = f"<cell {len(linecache.cache)}>"
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        exec(compile(text, name, "exec"), vars(module))
        return module

    return enter


def run_there(made, *args):
    """Runs the entry from nothing but the bundle's files."""
    folder = Path(TESTS).parent / "build-test"
    script = (
        "import sys, io, tarfile, tempfile\n"
        f"sys.path.insert(0, {SOURCE!r})\n"
        "folder = tempfile.mkdtemp()\n"
        "tarfile.open(fileobj=io.BytesIO(sys.stdin.buffer.read())).extractall(folder)\n"
        "sys.path.insert(0, folder)\n"
        "from lighterage import calls, here\n"
        "here.enter_unit()\n"
        f"print(calls.find({made.entry!r})(*{args!r}))\n"
    )
    assert not folder.exists()
    done = subprocess.run([sys.executable, "-c", script], input=made.data, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def test_a_module_takes_along_what_it_imports():
    made = bundle.make(work.double.__lighterage_function__)
    files = files_of(made)
    assert list(files) == ["bundle.json", "work.py", "work_helper.py"]
    about = json.loads(files["bundle.json"])
    assert about["entry"] == "work:double" and about["contract"] == "call" and about["format"] == 1
    assert set(about) == {"contract", "entry", "format", "python", "requires"}
    assert any(package.startswith("numpy==") for package in about["requires"])
    assert run_there(made, 4) == "8"


def test_the_same_source_gives_the_same_bytes():
    first, second = bundle.make(work.double.__lighterage_function__), bundle.make(work.double.__lighterage_function__)
    assert first.data == second.data and first.sha256 == second.sha256
    assert bundle.make(work.double.__lighterage_function__, "numpy==2.0\n").sha256 != first.sha256


def test_packages_relative_imports_and_imports_inside(load):
    module = load(
        {
            "shop/__init__.py": "RATE = 2",
            "shop/till.py": """
                from . import RATE
                from .goods.fruit import price
                def total(count):
                    from .late import fee
                    return price(count) * RATE + fee()
            """,
            "shop/goods/__init__.py": "",
            "shop/goods/fruit.py": "def price(count): return 3 * count",
            "shop/late.py": "def fee(): return 1",
            "shop/unused.py": "raise SystemExit",
        },
        "shop.till",
    )
    made = bundle.make(module.total)
    assert set(files_of(made)) == {
        "bundle.json", "shop/__init__.py", "shop/till.py", "shop/goods/__init__.py", "shop/goods/fruit.py", "shop/late.py",
    }  # fmt: skip
    assert run_there(made, 5) == "31"


def test_modules_that_import_each_other(load):
    module = load({"ping.py": "import pong\ndef f(x): return pong.g(x)", "pong.py": "import ping\ndef g(x): return -x"}, "ping")
    assert run_there(bundle.make(module.f), 3) == "-3"


def test_what_is_installed_does_not_travel(load):
    module = load({"uses.py": "import numpy, json, lighterage\ndef f(): return numpy.ones(2).sum()"}, "uses")
    made = bundle.make(module.f)
    assert set(files_of(made)) == {"bundle.json", "uses.py"}
    assert run_there(made) == "2.0"


def test_a_function_of_a_package_needs_no_source():
    import numpy as np

    made = bundle.make(np.linalg.inv)
    assert files_of(made)["entered_here.py"] == "from numpy.linalg import inv\n"
    assert made.entry == "entered_here:inv"
    assert run_there(made, [[2.0]]) == "[[0.5]]"


def test_what_was_entered_is_put_together(prompt):
    prompt("import numpy as np\nfrom math import sqrt, pi\nimport work_helper\nLIMIT = {'a': [1, 2]}")
    prompt("from dataclasses import dataclass\nclass Base:\n    def name(self): return 'base'")
    prompt("import threading\nlock = shadowed = threading.Lock()")
    prompt("@dataclass\nclass Point(Base):\n    x: float = 1.0")
    prompt("def helper(x):\n    return work_helper.times(x, LIMIT['a'][1]) + np.add(1, 1)")
    module = prompt(
        """
        from lighterage import offload
        @offload(pure=True)
        def main(x, shadowed=1):
            lock = shadowed
            return helper(x), sqrt(4) * pi > 6, Point().name()
        """
    )
    made = bundle.make(module.main.__lighterage_function__)
    files = files_of(made)
    assert made.entry == "entered_here:main" and set(files) == {"bundle.json", "entered_here.py", "work_helper.py"}
    assert run_there(made, 3) == "(8, True, 'base')".replace("8", "np.int64(8)")
    assert made.classes.name_of(module.Point) == "entered_here:Point"


def test_a_cell_that_is_entered_again_makes_it_anew(prompt):
    prompt("def helper(): return 1")
    module = prompt("def main(): return helper()")
    made = bundle.make(module.main)
    assert made.is_current()
    prompt("def helper(): return 2")
    assert not made.is_current()
    assert run_there(bundle.make(module.main)) == "2"


def test_a_value_of_the_prompt_that_does_not_travel_is_named(prompt):
    module = prompt("import threading\nlock = threading.Lock()\ndef main(): return lock")
    with pytest.raises(DoesNotTravel, match="refers to lock"):
        bundle.make(module.main)


def test_what_has_no_name_or_place_says_so():
    with pytest.raises(DoesNotTravel, match="lambda"):
        bundle.make(eval("lambda: 1", {"__name__": __name__}))
    with pytest.raises(DoesNotTravel, match="inside another function"):
        bundle.make(lambda: 1)


def test_too_much_source_is_refused(load, monkeypatch):
    module = load({"large.py": "def f(): pass\n" + "#" * 5_000}, "large")
    monkeypatch.setattr(bundle, "BYTES_MAX", 4_000)
    with pytest.raises(DoesNotTravel, match="the limit is 4000"):
        bundle.make(module.f)


SCRIPT = """
import os, sys
import lighterage
from lighterage import offload

class Odd(Exception):
    pass

@offload
def where(x):
    if x < 0:
        raise Odd(x)
    return os.getpid(), x

lighterage.connect(sys.argv[1], "lighter_test")
"""
WORK = """
there = [where.remote(x) for x in range(3)]
assert {pid for pid, _ in there} != {os.getpid()}, there
assert [x for _, x in there] == [0, 1, 2]
try:
    where.remote(-1)
except Odd as error:
    print("fine", error.args[0], len(list(lighterage.map(where, range(5)))))
"""


@pytest.mark.parametrize("kind", ["guarded script", "bare script", "-m", "-c", "stdin"])
def test_it_works_however_a_program_is_started(node, tmp_path, kind):
    guarded = SCRIPT.replace('lighterage.connect(sys.argv[1], "lighter_test")', "")
    guarded += 'if __name__ == "__main__":\n    lighterage.connect(sys.argv[1], "lighter_test")\n'
    text = guarded + textwrap.indent(WORK, "    ") if kind in ("guarded script", "-m") else SCRIPT + WORK
    (tmp_path / "my_script.py").write_text(text)
    command = {"-m": ["-m", "my_script"], "stdin": ["-"], "-c": ["-c", text]}.get(kind, ["my_script.py"])
    done = subprocess.run(
        [sys.executable, *command, node.url], input=text if kind == "stdin" else None, text=True, capture_output=True,
        cwd=tmp_path, env={"PYTHONPATH": SOURCE, "PATH": "/usr/bin:/bin"}, timeout=60, check=False,
    )  # fmt: skip
    if kind in ("-c", "stdin"):
        # Python keeps no source of these (until 3.13): that is said, and nothing else goes wrong.
        assert done.stdout.startswith("fine -1 5") or "the source of" in done.stderr, done.stderr
    else:
        assert done.stdout.startswith("fine -1 5"), done.stderr


def test_an_offloaded_method_is_found_by_its_path():
    assert bundle.make(work.Scale.times.__lighterage_function__).entry == "work:Scale.times"
    assert offload(work.double.__lighterage_function__).options == work.double.options
