"""A function's code as nodes get it.

python   the Python that runs here, and how another one differs
bundle   the source of a function and of the local modules it imports, in one file named by its hash
code     what a node is given: a bundle with the limits of its units, under a name
make     all that of a function
"""

from .code import Code, Component
from .make import make

__all__ = ["Code", "Component", "make"]
