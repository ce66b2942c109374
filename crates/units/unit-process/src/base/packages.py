# What is installed in the environment of the first argument, read and not run: a package's own code runs in jails alone.
import importlib.metadata
import json
import os
import sys
import sysconfig

home = sys.argv[1]
scheme = "venv" if "venv" in sysconfig.get_scheme_names() else "posix_prefix"
paths = []
for key in ("purelib", "platlib"):
    path = os.path.realpath(sysconfig.get_path(key, scheme, {"base": home, "platbase": home}))
    if os.path.isdir(path) and path not in paths:
        paths.append(path)
packages = {}
for distribution in importlib.metadata.distributions(path=paths):
    name = distribution.metadata["Name"]
    if name:
        packages.setdefault(name.lower().replace("_", "-").replace(".", "-"), distribution.version)
json.dump({"packages": packages, "paths": paths}, sys.stdout)
