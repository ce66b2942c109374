"""How the package is built: who may use whom, and how high the tower is.

Looked up in the source, wherever in a module an import stands: one within a function counts as one at its top.
"""

import ast
from pathlib import Path

import lighterage

ROOT = Path(lighterage.__file__).parent
#: Floors from a module that uses none of ours to one that is used by none.
FLOORS_MAX = 8
#: What a function takes by its place.
PARAMETERS_MAX = 5
#: Of each function that takes more, why.
MORE_PARAMETERS: dict[str, str] = {}
#: The folders that the modules of each may use, beside their own. "" is what stands beside the folders.
BELOW = {
    "travel": set(),
    "decide": set(),
    "code": {"travel"},
    "unit": {"travel"},
    "places": {"travel", "code", "decide"},
    "call": {"travel", "code", "decide", "places"},
}
#: What stands above all folders; what else stands beside them is used by all.
TOP = {"offloaded", "explain", "farm"}


def modules():
    """By name within the package: the syntax tree of each module."""
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


SOURCES = dict(modules())


def used(name, *, with_types):
    """The modules of this package that one of them imports; `with_types`, also those of which it only names types."""
    path = SOURCES[name]
    here = ["lighterage", *name.split(".")] if name else ["lighterage"]
    here = here if path.name == "__init__.py" else here[:-1]
    tree = ast.parse(path.read_text())
    typed = [one for one in ast.walk(tree) if isinstance(one, ast.If) and ast.unparse(one.test) == "TYPE_CHECKING"]
    skipped = set() if with_types else {inner for one in typed for body in one.body for inner in ast.walk(body)}
    found = set()
    for node in ast.walk(tree):
        if node in skipped or not isinstance(node, ast.ImportFrom | ast.Import):
            continue
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
            continue
        above = here[: len(here) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        whole = {f"{base}.{one.name}" for one in node.names}
        known = {one for one in whole if one.removeprefix("lighterage.") in SOURCES}
        found |= known or {base}
    names = {one.removeprefix("lighterage.") for one in found if one.startswith("lighterage.")}
    return (names & SOURCES.keys()) - {name}


def folder(name):
    """The folder that a module stands in, or is."""
    top, _, _ = name.partition(".")
    return top if top in BELOW else ""


def test_no_module_uses_one_that_uses_it_and_the_tower_is_low():
    floors, begun = {}, []

    def floor(name):
        assert name not in begun, f"a circle: {' > '.join((*begun, name))}"
        if name not in floors:
            begun.append(name)
            floors[name] = 1 + max((floor(one) for one in used(name, with_types=False)), default=0)
            begun.pop()
        return floors[name]

    for name in SOURCES:
        floor(name)
    assert max(floors.values()) <= FLOORS_MAX, sorted(floors.items(), key=lambda one: -one[1])[:5]


def test_a_folder_uses_those_below_it_alone():
    for name in SOURCES:
        if name in TOP or name == "":
            # The package itself says where its names are; nothing is loaded before it is asked for.
            continue
        may = BELOW.get(folder(name), set())
        for other in used(name, with_types=True):
            assert folder(other) in {"", folder(name)} | may and other not in TOP, f"{name} uses {other}"


def test_a_function_takes_few_things_by_their_place():
    found = {}
    for name, path in SOURCES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                taken = [one.arg for one in node.args.posonlyargs + node.args.args if one.arg not in ("self", "cls")]
                if len(taken) > PARAMETERS_MAX:
                    found[f"{name}.{node.name}"] = taken
    assert found.keys() == MORE_PARAMETERS.keys(), found
