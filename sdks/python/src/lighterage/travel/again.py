"""Objects that occur more than once in a call: how they are tagged, and what its reader keeps of them."""

from __future__ import annotations

from typing import Any, Final

SHARED: Final = "shared"
AGAIN: Final = "again"
VIEW: Final = "view"


def is_hashed(kind: Any) -> bool:
    """Whether objects of a class are hashed by what they hold."""
    return kind.__hash__ is not None and kind.__hash__ is not object.__hash__


class Known:
    """What a reader has of the objects that occur more than once."""

    def __init__(self) -> None:
        self._found: dict[int, Any] = {}

    def keep(self, inner: Any) -> Any:
        """An object that comes again: its number and itself."""
        number, value = inner
        if type(number) is not int or number in self._found or is_hashed(type(value)):
            raise ValueError("it is no object that can come again")
        self._found[number] = value
        return value

    def again(self, inner: Any) -> Any:
        """The object of this number."""
        if type(inner) is not int or inner not in self._found:
            raise ValueError("it was not there before")
        return self._found[inner]
