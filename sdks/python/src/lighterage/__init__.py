"""Runs a function wherever it will finish first: here, or on a node nearby.

    from lighterage import offload

    @offload
    def invert(matrix):
        return numpy.linalg.inv(matrix)

    invert(matrix)            # decides
    invert.explain(matrix)    # says why

A name is loaded when it is first asked for: a unit, which imports this too, needs few of them.
"""

from typing import TYPE_CHECKING, Any

from . import moved

if TYPE_CHECKING:
    from .decide import Energy, Policy
    from .errors import (
        CallTooLarge,
        DoesNotTravel,
        LighterageError,
        NodeRefused,
        NodeUnreachable,
        NoNode,
        RemoteError,
        ReplyBroken,
        TimeIsUp,
        VersionsDiffer,
    )
    from .explain import Explanation
    from .farm import Results, map
    from .limits import Limits
    from .offloaded import Offloaded, OffloadWarning, Options, offload
    from .places.node import Board, Node, NodeInfo
    from .places.runtime import FunctionStats
    from .places.session import connect, disconnect, nodes, policy, report, stats

__all__ = [
    "Board",
    "CallTooLarge",
    "DoesNotTravel",
    "Energy",
    "Explanation",
    "FunctionStats",
    "LighterageError",
    "Limits",
    "NoNode",
    "Node",
    "NodeInfo",
    "NodeRefused",
    "NodeUnreachable",
    "OffloadWarning",
    "Offloaded",
    "Options",
    "Policy",
    "RemoteError",
    "ReplyBroken",
    "Results",
    "TimeIsUp",
    "VersionsDiffer",
    "connect",
    "disconnect",
    "map",
    "nodes",
    "offload",
    "policy",
    "report",
    "stats",
]

_MODULES = {
    "decide": ("Energy", "Policy"),
    "errors": (
        "CallTooLarge", "DoesNotTravel", "LighterageError", "NoNode", "NodeRefused", "NodeUnreachable", "RemoteError",
        "ReplyBroken", "TimeIsUp", "VersionsDiffer",
    ),
    "explain": ("Explanation",),
    "farm": ("Results", "map"),
    "limits": ("Limits",),
    "offloaded": ("OffloadWarning", "Offloaded", "Options", "offload"),
    "places.node": ("Board", "Node", "NodeInfo"),
    "places.runtime": ("FunctionStats",),
    "places.session": ("connect", "disconnect", "nodes", "policy", "report", "stats"),
}  # fmt: skip
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

moved.install()


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = globals()[name] = getattr(importlib.import_module(f".{home}", __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
