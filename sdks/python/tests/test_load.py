"""What keeps a bundle from being loaded is told with the user's own lines."""

import importlib
import sys

import pytest

from lighterage.unit.work import blame


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (
            {"app_a.py": "import app_b\n", "app_b.py": "import json\n\nX = json.loads('?')\n"},
            "app_a.py:1: import app_b > app_b.py:3: X = json.loads('?')",
        ),
        ({"app_a.py": "import app_b\n", "app_b.py": "def f(:\n"}, "app_a.py:1: import app_b > app_b.py:1: def f(:"),
        (
            {"app_a.py": "def f():\n    raise ValueError('x' * 5_000)\n\nf()\n"},
            "app_a.py:4: f() > app_a.py:2: raise ValueError",
        ),
    ],
)
def test_the_innermost_of_the_users_lines_are_told(tmp_path, monkeypatch, files, says):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises((ValueError, SyntaxError)) as caught:
        importlib.import_module("app_a")
    for name in ("app_a", "app_b"):
        sys.modules.pop(name, None)
    said = blame(caught.value, tmp_path)
    assert said.startswith(type(caught.value).__qualname__) and says in said
    assert str(tmp_path) not in said.partition(", at ")[2] and "json/decoder" not in said and len(said) < 2_000


def test_what_no_line_of_the_user_led_to_is_told_plainly(tmp_path):
    assert blame(MemoryError(), tmp_path) == "MemoryError: "
