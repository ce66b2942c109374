"""Every example runs, with a node and without."""

import ast
import asyncio
import dataclasses
import inspect
import json
import linecache
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

import lighterage
from standin import SOURCE

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize("with_node", [False, True])
def test_the_script_draws(node, tmp_path, with_node):
    environment = {"PYTHONPATH": SOURCE, "PATH": os.environ["PATH"], "LIGHTER_DATA": str(tmp_path)}
    if with_node:
        environment |= {"LIGHTERAGE_NODES": node.url, "LIGHTER_TOKEN": node.token}
    command = [sys.executable, EXAMPLES / "mandelbrot.py", "60"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "60 rows in" in done.stdout and "@" in done.stdout
    assert ("127.0.0.1" in done.stdout) == with_node


def cells():
    notebook = json.loads((EXAMPLES / "offloading.ipynb").read_text())
    assert notebook["nbformat"] == 4
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_runs(node, client, monkeypatch):
    """As a notebook enters its cells: into a `__main__` without a file, their source known by the name they were given."""
    module = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    for number, text in enumerate(cells()):
        name = f"<ipython-input-{number}>"
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        ran = eval(compile(text, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), vars(module))
        if inspect.iscoroutine(ran):
            asyncio.run(ran)
    signal = module.signal
    assert module.energy.remote(signal) == pytest.approx(module.energy.local(signal))
    assert "expected" in str(module.energy.explain(signal))
    assert {stats.function for stats in lighterage.stats()} == {"__main__:energy"}


def test_the_notebook_runs_in_a_kernel(node, tmp_path):
    lacking = "python-packages: the notebook"
    nbformat, nbclient, _ = (pytest.importorskip(name, reason=lacking) for name in ("nbformat", "nbclient", "ipykernel"))
    notebook = nbformat.read(EXAMPLES / "offloading.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("assert energy.remote(signal) == energy.local(signal)"))
    environment = {**os.environ, "PYTHONPATH": SOURCE, "LIGHTERAGE_NODES": node.url, "LIGHTER_TOKEN": node.token}
    nbclient.NotebookClient(notebook, timeout=120).execute(env=environment)


def test_the_notebook_that_is_committed_shows_what_it_gives():
    notebook = json.loads((EXAMPLES / "offloading.ipynb").read_text())
    ran = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in ran] == list(range(1, len(ran) + 1))
    shown = json.dumps([cell["outputs"] for cell in ran])
    assert '"error"' not in shown and "expected to finish first" in shown and "127.0.0.1:8701" in shown
    # What is shown is what there is: a field was renamed once, and the notebook went on showing the old one.
    (stats,) = ast.parse("".join(ran[-1]["outputs"][0]["data"]["text/plain"]), mode="eval").body.elts
    assert [one.arg for one in stats.keywords] == [one.name for one in dataclasses.fields(lighterage.FunctionStats)]
    source = "\n".join(cells())
    ways = [f"energy.{way}(signal" for way in ("explain", "remote", "submit", "aio")]
    assert all(way in source for way in [*ways, "lighterage.map(energy"])
