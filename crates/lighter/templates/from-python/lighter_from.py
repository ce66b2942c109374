"""Runs a handler that was written for {{origin}} as a function of Lighterage. Made by `lighter new --from`."""

import importlib

from lighterage.unit.foreign import of_{{origin}}

# importlib also takes a module such as my-handler.py, which `import` does not.
handle = of_{{origin}}(importlib.import_module("{{module}}").{{function}})
