"""Runs a function wherever it will finish first: here, or on a node nearby.

    from lighterage import offload

    @offload
    def invert(matrix):
        return numpy.linalg.inv(matrix)

    invert(matrix)            # decides
    invert.explain(matrix)    # says why
"""

from .code import Limits
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
from .node import Node, NodeInfo
from .offloaded import Offloaded, OffloadWarning, Options, offload
from .runtime import FunctionStats
from .session import connect, disconnect, nodes, policy, stats

__all__ = [
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
    "stats",
]
