"""How code travels: the source of a function's module and of the local modules it imports, in one file named by its hash.

A bundle is a tar: `bundle.json` first, then Python files in the order of their names, without times and owners, so that
the same source gives the same bytes on every machine. A node keeps it by that hash and is sent it once.

What is in site-packages or the standard library is not local: it does not travel, its name and version do (`requires`).
A function of a notebook or of the prompt has no file of its own: its source and that of what it refers to is put
together from what was entered.
"""

from __future__ import annotations

import ast
import builtins
import functools
import hashlib
import importlib.metadata
import importlib.util
import inspect
import io
import json
import os
import platform
import site
import sys
import sysconfig
import tarfile
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .travel import Classes, DoesNotTravel

FORMAT: Final = 1
#: Bytes of all source together.
BYTES_MAX: Final = 8 << 20
#: Files of a bundle.
FILES_MAX: Final = 2_000

#: What the module of `__main__` is called where it has no file.
ENTERED: Final = "entered_here"


@dataclass(frozen=True)
class Bundle:
    """A function's code, ready to travel."""

    sha256: str
    data: bytes
    #: `module:function`, as the other side imports it.
    entry: str
    #: Local modules by the name they have here, and their names in the bundle.
    modules: dict[str, str]
    requires: tuple[str, ...]

    @property
    def classes(self) -> Classes:
        return Classes(self.modules)


def make(function: Callable[..., Any], lock: str | None = None) -> Bundle:
    """The bundle of a function defined at the top of a module, or of a class at the top of one.

    `lock` is the text of a requirements file with hashes: the packages that the node installs beside numpy.

    Raises DoesNotTravel for a function that is defined inside another one, or whose source cannot be had.
    """
    path = function.__qualname__
    if "<locals>" in path:
        raise DoesNotTravel(
            f"{path} is defined inside another function, whose variables stay here: define it at the top of its module and "
            "pass what it needs as arguments"
        )
    if path == "<lambda>":
        raise DoesNotTravel("a lambda has no name to be found by on the other machine: write a def")
    files, modules, requires = _collect(function)
    if len(files) > FILES_MAX:
        raise DoesNotTravel(f"the local modules of {path} are {len(files)} files, the limit is {FILES_MAX}")
    size = sum(len(source) for source in files.values())
    if size > BYTES_MAX:
        raise DoesNotTravel(f"the local modules of {path} have {size} bytes, the limit is {BYTES_MAX}")
    entry = f"{modules[function.__module__]}:{path}"
    about = {
        "format": FORMAT,
        "entry": entry,
        "contract": "call",
        "modules": sorted(modules.values()),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "requires": sorted(requires),
    }
    if lock is not None:
        files["requirements.lock"] = lock.encode()
    data = pack(about, files)
    return Bundle(hashlib.sha256(data).hexdigest(), data, entry, modules, tuple(sorted(requires)))


def pack(about: dict[str, Any], files: dict[str, bytes]) -> bytes:
    """The bytes of a bundle: the same files give the same bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        head = json.dumps(about, sort_keys=True, separators=(",", ":")).encode()
        for name, content in [("bundle.json", head), *sorted(files.items())]:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.mode = 0o444
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def _collect(function: Callable[..., Any]) -> tuple[dict[str, bytes], dict[str, str], set[str]]:
    """Files, local modules by their names here, and the packages that are needed."""
    module = sys.modules.get(function.__module__)
    if module is None:
        raise DoesNotTravel(f"{function.__qualname__} says that it is of module {function.__module__}, which is not loaded")
    files: dict[str, bytes] = {}
    modules: dict[str, str] = {}
    requires: set[str] = set()
    if module.__name__ == "__main__" and not _has_file(module):
        source, others = _entered(function, module)
        modules["__main__"] = ENTERED
        files[f"{ENTERED}.py"] = source.encode()
        for other in others:
            _follow(other, files, modules, requires)
    else:
        name = Path(str(module.__file__)).stem if module.__name__ == "__main__" else module.__name__
        if not name.replace(".", "_").isidentifier():
            name = "".join(letter if letter.isalnum() else "_" for letter in name)
        _add(module, name, files, modules, requires)
    return files, modules, requires


def _add(
    module: types.ModuleType, name: str, files: dict[str, bytes], modules: dict[str, str], requires: set[str]
) -> None:
    """Adds a local module, the packages around it, and what they import."""
    if module.__name__ in modules:
        return
    modules[module.__name__] = name
    path = Path(str(module.__file__))
    is_package = path.name == "__init__.py"
    parts = name.split(".")
    file = "/".join(parts) + ("/__init__.py" if is_package else ".py")
    source = _read(path)
    files[file] = source
    for depth in range(1, len(parts)):
        around = sys.modules.get(".".join(parts[:depth]))
        if around is not None and _is_local(around):
            _add(around, around.__name__, files, modules, requires)
        else:
            files.setdefault("/".join(parts[:depth]) + "/__init__.py", b"")
    package = name if is_package else name.rpartition(".")[0]
    for imported in _imports(source, str(path), package):
        _follow(imported, files, modules, requires)


def _follow(name: str, files: dict[str, bytes], modules: dict[str, str], requires: set[str]) -> None:
    """A module that is imported by name: taken along if it is local, else noted as needed."""
    if name in modules or not name:
        return
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top == "lighterage":
        return
    module = sys.modules.get(name)
    if module is None:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, AttributeError, ValueError):
            spec = None
        if spec is None or not spec.origin or not _is_local_file(spec.origin):
            if spec is not None:
                requires.update(_distribution(top))
            return
        # Imported only when it is run: its source is taken, it is not run here.
        module = types.ModuleType(name)
        module.__file__ = spec.origin
    if _is_local(module):
        _add(module, name, files, modules, requires)
    else:
        requires.update(_distribution(top))


def _distribution(top: str) -> list[str]:
    """`numpy==2.1.0` for the module `numpy`."""
    known = _distributions()
    names = known.get(top, []) if known is not None else [top]
    found = []
    for name in sorted(set(names)):
        try:
            found.append(f"{name}=={importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def _distributions() -> Mapping[str, list[str]] | None:
    """Packages by the modules they have: read once, for that takes a tenth of a second. Python 3.10 cannot say."""
    found = getattr(importlib.metadata, "packages_distributions", None)
    return found() if found else None


def _imports(source: bytes, path: str, package: str) -> Iterator[str]:
    """Every module that is named in an import, at the top or inside."""
    try:
        tree = ast.parse(source, path)
    except SyntaxError as error:
        raise DoesNotTravel(f"the source of {path} cannot be read: {error}") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")
                above = above[: len(above) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


def _entered(function: Callable[..., Any], module: types.ModuleType) -> tuple[str, list[str]]:
    """The source of a function of a notebook or the prompt, with that of all it refers to. Also the modules it names."""
    imports: dict[str, str] = {}
    values: dict[str, str] = {}
    sources: dict[str, str] = {}
    others: list[str] = []
    open_: list[tuple[str, Any]] = [(function.__qualname__.partition(".")[0], None)]
    seen: set[str] = set()
    while open_:
        name, _ = open_.pop()
        if name in seen or not hasattr(module, name):
            continue
        seen.add(name)
        found = getattr(module, name)
        plain = inspect.unwrap(getattr(found, "__wrapped__", found)) if callable(found) else found
        if isinstance(found, types.ModuleType):
            imports[name] = f"import {found.__name__} as {name}" if found.__name__ != name else f"import {name}"
            others.append(found.__name__)
        elif getattr(plain, "__module__", None) not in (None, "__main__") and hasattr(plain, "__qualname__"):
            imports[name] = f"from {plain.__module__} import {plain.__qualname__} as {name}"
            others.append(plain.__module__)
        elif isinstance(plain, types.FunctionType | type):
            sources[name] = _source_of(plain)
            open_.extend((other, None) for other in _names(sources[name]))
        else:
            values[name] = _literal(name, found)
    text = "\n".join(["from __future__ import annotations", *imports.values(), "", *values.values()])
    # What refers to another comes after it where it must: classes and decorators run when they are defined.
    body = "\n\n".join(sources[name] for name in reversed(list(sources)))
    return f"{text}\n\n\n{body}\n", others


def _source_of(found: Any) -> str:
    try:
        text = textwrap.dedent(inspect.getsource(found))
    except (OSError, TypeError):
        raise DoesNotTravel(f"the source of {found.__qualname__} cannot be had: save it in a file") from None
    return text


def _names(source: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name) and not hasattr(builtins, node.id)}


def _literal(name: str, value: Any) -> str:
    text = repr(value)
    try:
        same = ast.literal_eval(text) == value
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        same = False
    if not same or len(text) > 10_000:
        raise DoesNotTravel(
            f"the function refers to {name}, a {type(value).__qualname__} of this process, which does not travel: "
            "pass it as an argument"
        )
    return f"{name} = {text}"


def _has_file(module: types.ModuleType) -> bool:
    path = getattr(module, "__file__", None)
    return isinstance(path, str) and os.path.isfile(path)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DoesNotTravel(f"the source {path} cannot be read: {error}") from None


def _is_local(module: types.ModuleType) -> bool:
    path = getattr(module, "__file__", None)
    return isinstance(path, str) and _is_local_file(path)


def _is_local_file(path: str) -> bool:
    """Python source that no package manager put there."""
    if not path.endswith(".py"):
        return False
    real = os.path.realpath(path)
    return not any(real.startswith(folder + os.sep) for folder in _INSTALLED)


def _installed() -> tuple[str, ...]:
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders.update(site.getsitepackages() if hasattr(site, "getsitepackages") else [])
    folders.add(site.getusersitepackages())
    return tuple(os.path.realpath(folder) for folder in folders if folder)


_INSTALLED: Final = _installed()


def interpreter() -> dict[str, str]:
    """What a node compares with its own before it takes a bundle."""
    import numpy

    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "numpy": numpy.__version__,
    }
