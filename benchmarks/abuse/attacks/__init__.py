"""What is done to a node, one file for each way in. An attack runs in a process of its own until its time is over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Target:
    """The node under attack, as a stranger or the author of a function sees it."""

    gate: tuple[str, int]
    api: tuple[str, int]
    mqtt: tuple[str, int]
    lighter: str
    data: str
    guests: str
    folder: str
    until: float


@dataclass(frozen=True)
class Attack:
    """One way to abuse a node."""

    name: str
    does: str
    run: Callable[[Target], None]
    #: Functions it needs, by their folders in `apps`.
    needs: tuple[str, ...] = field(default=())


def all_attacks() -> dict[str, Attack]:
    """Every attack by its name, in the order in which they are tried."""
    from attacks import compiling, http, mqtt, units

    found = [*http.ATTACKS, *mqtt.ATTACKS, *units.ATTACKS, *compiling.ATTACKS]
    return {attack.name: attack for attack in found}


#: The name under which all of them are tried at once.
EVERYTHING: Final = "everything"
