"""How code travels: the source of a function's module and of the local modules it imports, in one file named by its hash.

A bundle is a tar: `bundle.json` first, then Python files in the order of their names, without times and owners, so that
the same source gives the same bytes on every machine. A node keeps it by that hash and is sent it once.

What is in site-packages or the standard library is not local: it does not travel, its name and version do (`requires`).
A function of a notebook or of the prompt has no file of its own: its source and that of what it refers to is put
together from what was entered. So is that of a script which does something at its top: a unit must not do it again.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import inspect
import io
import json
import linecache
import os
import site
import symtable
import sys
import sysconfig
import tarfile
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..errors import DoesNotTravel
from ..travel.classes import Classes, articled

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
    has_lock: bool = False
    #: What the source was put together from, where it was entered and not read from a file.
    entered: tuple[tuple[str, Any], ...] = ()

    def is_current(self) -> bool:
        """Whether the names that entered code refers to still mean the same: a cell may have been run again."""
        if not self.entered:
            return True
        now = vars(sys.modules["__main__"])
        return all(now.get(name) is found for name, found in self.entered)

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
    parts = _collect(function)
    files = parts.files
    if len(files) > FILES_MAX:
        raise DoesNotTravel(f"the local modules of {path} are {len(files)} files, the limit is {FILES_MAX}")
    size = sum(len(source) for source in files.values())
    if size > BYTES_MAX:
        raise DoesNotTravel(f"the local modules of {path} have {size} bytes, the limit is {BYTES_MAX}")
    entry = f"{parts.modules.get(function.__module__, ENTERED)}:{path}"
    about = {
        "format": FORMAT,
        "entry": entry,
        "contract": "call",
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "requires": sorted(parts.requires),
    }
    if lock is not None:
        files["requirements.lock"] = lock.encode()
    data = pack(about, files)
    requires, entered = tuple(sorted(parts.requires)), tuple(parts.entered)
    return Bundle(hashlib.sha256(data).hexdigest(), data, entry, parts.modules, requires, lock is not None, entered)


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


@dataclass
class _Parts:
    """What was gathered: files, local modules by their names here, packages, and what was entered."""

    files: dict[str, bytes] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    requires: set[str] = field(default_factory=set)
    entered: list[tuple[str, Any]] = field(default_factory=list)


def _collect(function: Callable[..., Any]) -> _Parts:
    module = sys.modules.get(function.__module__)
    if module is None:
        raise DoesNotTravel(f"{function.__qualname__} says that it is of module {function.__module__}, which is not loaded")
    parts = _Parts()
    if module.__name__ == "__main__" and (not _has_file(module) or _runs_when_imported(module)):
        entered = _Entered(module)
        entered.add(function.__qualname__.partition(".")[0])
        parts.modules["__main__"] = ENTERED
        parts.files[f"{ENTERED}.py"] = entered.text().encode()
        parts.entered = entered.seen
        for other in entered.modules:
            _follow(other, parts.files, parts.modules, parts.requires)
    elif module.__name__ != "__main__" and not _is_local(module):
        # A function of a package: the node has it, or does not.
        parts.requires.update(_distribution(module.__name__.partition(".")[0]))
        name = function.__qualname__.partition(".")[0]
        parts.files[f"{ENTERED}.py"] = f"from {module.__name__} import {name}\n".encode()
    else:
        name = Path(str(module.__file__)).stem if module.__name__ == "__main__" else module.__name__
        if not name.replace(".", "_").isidentifier():
            name = "".join(letter if letter.isalnum() else "_" for letter in name)
        _add(module, name, parts.files, parts.modules, parts.requires)
    return parts


def _add(module: types.ModuleType, name: str, files: dict[str, bytes], modules: dict[str, str], requires: set[str]) -> None:
    """Adds a local module, the packages around it, and what they import."""
    if module.__name__ in modules:
        return
    modules[module.__name__] = name
    path = Path(str(module.__file__))
    is_package = path.name == "__init__.py"
    parts = name.split(".")
    file = "/".join(parts) + ("/__init__.py" if is_package else ".py")
    if module.__name__ != "__main__":
        _check_link(path, len(parts) + is_package)
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
    # Python 3.10 does not know all: most packages are called as their module is.
    names = _distributions().get(top) or [top]
    found = []
    for name in sorted(set(names)):
        try:
            found.append(f"{name}=={importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    """Packages by the modules they have: read once, for that takes a tenth of a second."""
    return importlib.metadata.packages_distributions()


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


class _Entered:
    """The source of a function of a notebook, the prompt or a script that does something when it is imported.

    Only the function and what it refers to is taken: functions and classes as source, modules by name, plain values.
    """

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module
        self._imports: dict[str, str] = {}
        self._values: dict[str, str] = {}
        self._sources: list[str] = []
        #: Names with what they meant, and modules that are referred to.
        self.seen: list[tuple[str, Any]] = []
        self.modules: list[str] = []
        self._names: set[str] = set()

    def add(self, name: str) -> None:
        """Adds what a name of the module means, after all that it refers to."""
        if name in self._names or not hasattr(self._module, name):
            return
        self._names.add(name)
        found = getattr(self._module, name)
        self.seen.append((name, found))
        plain = inspect.unwrap(found) if callable(found) else found
        home = getattr(plain, "__module__", None)
        if isinstance(found, types.ModuleType):
            self._imports[name] = f"import {found.__name__} as {name}" if found.__name__ != name else f"import {name}"
            self.modules.append(found.__name__)
        elif isinstance(found, np.ufunc):
            self._imports[name] = f"from numpy import {found.__name__} as {name}"
            self.modules.append("numpy")
        elif home not in (None, "__main__") and hasattr(plain, "__qualname__"):
            self._imports[name] = f"from {home} import {plain.__qualname__} as {name}"
            self.modules.append(str(home))
        elif isinstance(plain, types.FunctionType | type):
            source = _source_of(plain)
            for other in sorted(_names(source)):
                self.add(other)
            self._sources.append(source)
        elif home == "__future__":
            return
        else:
            self._values[name] = _literal(name, found)

    def text(self) -> str:
        """The module that is put together."""
        head = ["from __future__ import annotations", *self._imports.values(), "", *self._values.values()]
        return "\n".join(head) + "\n\n\n" + "\n\n".join(self._sources) + "\n"


def _runs_when_imported(module: types.ModuleType) -> bool:
    """Whether a script does something at its top, outside of `if __name__ == "__main__"`."""
    try:
        tree = ast.parse(_read(Path(str(module.__file__))))
    except SyntaxError:
        return False
    for node in tree.body:
        if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant):
            return True
        if isinstance(node, ast.For | ast.While | ast.With | ast.AugAssign | ast.Delete):
            return True
    return False


def _source_of(found: Any) -> str:
    try:
        return textwrap.dedent(inspect.getsource(found))
    except (OSError, TypeError):
        text = _class_entered(found) if isinstance(found, type) else None
    if text is None:
        raise DoesNotTravel(f"the source of {found.__qualname__} cannot be had: save it in a file")
    return text


def _class_entered(kind: type) -> str | None:
    """The source of a class of a notebook: `inspect` knows those of files only. The newest cell that defines it counts."""
    for name in reversed(list(linecache.cache)):
        text = "".join(linecache.getlines(name)) if "ipykernel" in name or name.startswith("<") else ""
        if f"class {kind.__name__}" not in text:
            continue
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        for node in reversed(tree.body):
            if isinstance(node, ast.ClassDef) and node.name == kind.__qualname__:
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                return "\n".join(text.splitlines()[first - 1 : node.end_lineno]) + "\n"
    return None


def _names(source: str) -> set[str]:
    """The names of the module that a definition refers to, its own variables and parameters not among them."""
    found: set[str] = set()
    open_ = [symtable.symtable(source, "entered", "exec")]
    while open_:
        table = open_.pop()
        is_top = table.get_type() == "module"
        found.update(
            symbol.get_name() for symbol in table.get_symbols() if (symbol.is_referenced() if is_top else symbol.is_global())
        )
        open_ += table.get_children()
    return found


def _literal(name: str, value: Any) -> str:
    text = repr(value)
    try:
        same = ast.literal_eval(text) == value
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        same = False
    if not same or len(text) > 10_000:
        raise DoesNotTravel(
            f"the function refers to {name}, {articled(type(value).__qualname__)} of this process, which does not travel: "
            "pass it as an argument"
        )
    return f"{name} = {text}"


def _has_file(module: types.ModuleType) -> bool:
    path = getattr(module, "__file__", None)
    return isinstance(path, str) and os.path.isfile(path)


def _check_link(path: Path, levels: int) -> None:
    """Checks that a module's file is in the folder that its name is looked up in, so many levels above, and no link out of it.

    A folder that somebody else wrote may else send files of this machine away. A script that is run by a link is not asked:
    whoever ran it named it.
    """
    root, real = os.path.realpath(path.parents[levels - 1]), os.path.realpath(path)
    if os.path.commonpath([root, real]) != root:
        raise DoesNotTravel(f"{path} is a link to {real}, outside of {root}: put a copy in its place")


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
