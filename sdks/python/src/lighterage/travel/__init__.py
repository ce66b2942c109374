"""What goes over the wire, and how: the same code on the device and in a unit.

frame              bytes: a small typed part, then buffers
pack, kept         arrays made smaller, and sent once
same, again        what is one object here is one there: found, and read
classes, arrays    by name, and as they lie in memory
values             what becomes of each type; `parts` checks what arrived
raised, codecs     exceptions; other ways to write values, for comparison
calls              calls and replies
"""

from .arrays import describe, lower_array
from .classes import NO_CLASSES, Classes, articled, check_plain, defined, has_hook
from .values import BYTES_MAX, lower_with, raise_with

__all__ = [
    "BYTES_MAX",
    "NO_CLASSES",
    "Classes",
    "articled",
    "check_plain",
    "defined",
    "describe",
    "has_hook",
    "lower_array",
    "lower_with",
    "raise_with",
]
