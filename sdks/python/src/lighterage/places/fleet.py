"""Finds the other nodes of a fleet, so that a device needs to know one of them.

    a node that answers ── GET /v1/fleet/places ──▶ ids and addresses ─▶ new: a place like any other
                                                                     └─▶ no longer told of, and silent: forgotten

Only nodes that have a token of the fleet are asked, and the token goes to a found node when it has proved to know it. What
was found stays known when the node that told of it is gone: any of the others tells on. A node that the user named
and that does not answer is found like any other where it is now, until it answers again where it was named.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final

from ..errors import LighterageError
from . import config
from .node import Node

if TYPE_CHECKING:
    from .runtime import Runtime

#: Seconds between two questions for other nodes.
EVERY_SECONDS: Final = 5.0
#: Nodes that are known because others told of them; further ones are left out.
FOUND_MAX: Final = 64


class Fleet:
    """What a runtime knows of fleets. Safe for threads."""

    def __init__(self, current: Runtime) -> None:
        self._current = current
        self._asking = threading.Lock()
        self._due = 0.0

    def is_due(self, now: float) -> bool:
        """Whether it is time to ask; says so once."""
        if now < self._due:
            return False
        self._due = now + EVERY_SECONDS
        return True

    def ask(self) -> None:
        """Asks the nodes of each fleet, one after the other, until one has told of the others."""
        if not config.may_discover() or not self._asking.acquire(blocking=False):
            return
        try:
            now = time.monotonic()
            told: dict[str | None, tuple[Node, list[tuple[str, str]]]] = {}
            for node in sorted(self._current.nodes(), key=lambda node: node.is_away(now)):
                token = node.address.token
                # Who does not know its own id would be found a second time, where others reach it.
                is_nameless = not node.member and not node.is_away(now)
                if node.address.is_of_fleet and (token not in told or is_nameless):
                    with contextlib.suppress(LighterageError):
                        neighbours = node.neighbours()
                        told.setdefault(token, (node, neighbours))
            for teller, neighbours in told.values():
                self._take(teller, neighbours)
        finally:
            self._asking.release()

    def _take(self, teller: Node, told: list[tuple[str, str]]) -> None:
        of_fleet = [node for node in self._current.nodes() if node.address.token == teller.address.token]
        named = {node.member for node in of_fleet if node.member and not node.is_found and not node.has_failed}
        found = {node.member: node for node in of_fleet if node.is_found}
        urls = {node.url for node in of_fleet}
        now = time.monotonic()
        for member, url in told:
            try:
                address = config.neighbour(teller.address, url)
            except config.ConfigInvalid:
                continue
            if address is None or address.url in urls or member in named:
                continue
            if member in found:
                # The same node, at another address.
                self._current.disconnect(found[member])
            elif sum(node.is_found for node in self._current.nodes()) >= FOUND_MAX:
                continue
            new = Node(address)
            new.member, new.is_found = member, True
            self._current.meet(new)
        still = {member for member, _ in told}
        for node in found.values():
            is_gone = node.member not in still and node.is_away(now)
            if node is not teller and (is_gone or node.member in named):
                self._current.disconnect(node)
