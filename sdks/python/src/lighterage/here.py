"""Where this process is: on a device, where calls may be handed on, or inside a unit, where they run at once."""

from __future__ import annotations

_inside_unit = False


def enter_unit() -> None:
    """Says that this process is a unit: from now on an offloaded function that is called runs right here."""
    global _inside_unit  # noqa: PLW0603 - a process is one or the other
    _inside_unit = True


def is_unit() -> bool:
    """Whether this process is a unit."""
    return _inside_unit
