"""The package as it is published: a wheel that installs and works, and errors that the contract knows."""

import importlib
import inspect
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import lighterage
from lighterage import code, errors, moved, travel
from lighterage.places import config

ROOT = Path(__file__).parents[3]


def test_the_wheel_installs_and_works(tmp_path):
    here = Path(__file__).parents[1]
    script = f"import os; os.chdir({str(here)!r}); from hatchling import build; print(build.build_wheel({str(tmp_path)!r}))"
    made = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    wheel = tmp_path / made.stdout.split()[-1]
    home = tmp_path / "home"
    venv.create(home, with_pip=False, symlinks=True)
    folder = next((home / "lib").glob("python3*/site-packages"))
    # Its one dependency is this environment's: nothing is loaded from anywhere.
    import numpy

    (folder / "numpy.pth").write_text(str(Path(numpy.__file__).parents[1]))
    with zipfile.ZipFile(wheel) as archive:
        about = archive.read(next(name for name in archive.namelist() if name.endswith("METADATA"))).decode()
    assert "Provides-Extra: zstd" in about and re.search(r"Requires-Dist: zstandard.*extra == 'zstd'", about)
    unpack = f"import zipfile; zipfile.ZipFile({str(wheel)!r}).extractall({str(folder)!r})"
    subprocess.run([sys.executable, "-c", unpack], check=True)
    program = (
        "import lighterage, importlib.metadata as m, pathlib\n"
        "@lighterage.offload\n"
        "def f(x): return x + 1\n"
        "print(f(1), m.version('lighterage'), pathlib.Path(lighterage.__file__).with_name('py.typed').exists())\n"
    )
    done = subprocess.run(
        [home / "bin/python", "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False,
        env={"LIGHTER_DATA": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout.split() == ["2", "0.1.0", "True"], done.stderr


#: What only another language's client says: a call on Android's main thread.
OTHERS = {"L8008"}


def test_every_code_is_in_the_contract():
    text = (ROOT / "contracts/errors.toml").read_text()
    known = dict(re.findall(r"\[(L\d{4})\]\nname = \"(\w+)\"", text))
    kinds = [kind for module in (errors, config) for kind in vars(module).values() if inspect.isclass(kind)]
    for kind in kinds:
        if issubclass(kind, errors.LighterageError) and kind.code:
            assert known[kind.code] == kind.__name__, kind
    assert {kind.code for kind in kinds if getattr(kind, "code", "").startswith("L8")} == {
        code for code in known if code.startswith("L8")
    } - OTHERS


def test_what_is_exported_is_there():
    assert all(hasattr(lighterage, name) for name in lighterage.__all__)


def test_importing_it_loads_nothing_large():
    program = "import sys, lighterage; print([name for name in ('zoneinfo', 'zstandard') if name in sys.modules])"
    environment = {"PYTHONPATH": str(Path(lighterage.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[]"


def test_a_module_that_has_moved_is_found_where_it_was():
    for old, new in moved.MOVED.items():
        found = importlib.import_module(old)
        assert found is importlib.import_module(new) is sys.modules[old]
        assert found.__name__ == found.__spec__.name == new
    for package in (travel, code):
        assert all(hasattr(package, name) for name in package.__all__)
