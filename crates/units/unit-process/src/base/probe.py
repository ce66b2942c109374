import importlib.metadata
import json
import os
import platform
import sys
import sysconfig

try:
    import numpy
    import numpy.linalg
except ImportError:
    numpy = None

libraries = set()
with open("/proc/self/maps") as maps:
    for line in maps:
        path = line.rstrip("\n").partition("/")
        if path[1] and ".so" in path[2]:
            libraries.add(os.path.dirname("/" + path[2]))
packages = {}
for distribution in importlib.metadata.distributions():
    name = distribution.metadata["Name"]
    if name:
        packages.setdefault(name.lower().replace("_", "-").replace(".", "-"), distribution.version)
paths = []
for path in [*(numpy and [os.path.dirname(numpy.__path__[0])] or []), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]:
    path = os.path.realpath(path)
    if os.path.isdir(path) and path not in paths:
        paths.append(path)
json.dump(
    {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "numpy": numpy.__version__ if numpy else "",
        "packages": packages,
        "executable": os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable),
        "prefix": os.path.realpath(sys.base_prefix),
        "paths": paths,
        "libraries": sorted(libraries),
        "speed": 0.0,
        "made_ms": 0,
    },
    sys.stdout,
)
