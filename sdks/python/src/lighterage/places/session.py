"""The nodes of this process, and what became of its calls."""

from __future__ import annotations

from ..decide import Policy
from . import config, runtime
from .node import Node
from .runtime import FunctionStats


def connect(url: str, token: str | None = None, *, ca_file: str | None = None, plain_text: bool | None = None) -> Node:
    """Adds a node and asks it who it is. Without a token it is `LIGHTER_TOKEN`'s, or that of the node's own data folder.

    Raises NodeUnreachable, NodeRefused where the token is not right, and ConfigInvalid where it would travel
    unencrypted or `ca_file` cannot be read.
    """
    return runtime.current.connect(config.address(url, token, ca_file, plain_text))


def disconnect(node: Node | str | None = None) -> None:
    """Forgets a node, or all of them: calls run on the others, or here."""
    runtime.current.disconnect(node.name if isinstance(node, Node) else node)


def nodes() -> list[Node]:
    """The nodes that calls may run on: those of `connect`, else those that environment and data folder name."""
    return runtime.current.nodes()


def stats() -> list[FunctionStats]:
    """What became of the calls of each function in this process until now. Where no node is known nothing is counted: each
    call ran here.
    """
    return runtime.current.told()


def report(is_on: bool = True, *, device: str | None = None) -> None:
    """Tells nodes from now on where calls ran, what they were expected to take and what they took, for their dashboards. Off
    by default; `LIGHTERAGE_REPORT=1` turns it on too.

    At most once a second, in the background: no call waits for it. `device` is what the node calls this machine; without it
    that is its host name. Names of functions and times are told, and no arguments.
    """
    runtime.current.report(is_on, device)


def policy(policy: Policy) -> None:
    """How places are chosen, from now on: hysteresis, how much trying may cost, what energy is worth."""
    runtime.set_policy(policy)
