"""Calls of one function that travel to a node as one, for `map`: how they are written and how their reply is read.

One that is alone travels as any call does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import CallTooLarge, DoesNotTravel, ReplyBroken
from ..places import runtime
from ..travel import calls, frame

if TYPE_CHECKING:
    from ..code.code import Code
    from ..places.node import Node
    from ..places.wire import Reply
    from .function import Function

#: The arguments of each call.
Items = Sequence[tuple[Any, ...]]


def write(function: Function, made: Code, node: Node, items: Items, kwargs: dict[str, Any]) -> list[frame.Piece]:
    """The pieces of these calls, for this node.

    Raises DoesNotTravel, and CallTooLarge where they take more than `body_bytes`.
    """
    codec, packing = function.options.codec, function.packing(runtime.current, node)
    try:
        if len(items) == 1:
            pieces = calls.write_call(items[0], kwargs, made.classes, codec, packing)
        else:
            pieces = calls.write_calls(items, kwargs, made.classes, codec, packing)
    except frame.FrameError as error:
        raise DoesNotTravel(str(error)) from None
    bytes_up, limit = frame.total_bytes(pieces), function.options.limits.body_bytes
    if bytes_up > limit:
        raise CallTooLarge(f"an item takes {bytes_up} bytes, body_bytes is {limit}")
    return pieces


def read(node: Node, reply: Reply, made: Code, count: int) -> list[calls.Outcome]:
    """What became of so many calls: of each, or of those up to the first that raised.

    Raises ReplyBroken, what a node says of all of them, and DoesNotTravel where a result does not.
    """
    try:
        if count > 1:
            return calls.read_outcomes(reply.body, count, made.classes, reply.body_max)
        outcome = calls.read_outcome(reply.body, made.classes, reply.body_max)
    except frame.FrameError as error:
        raise ReplyBroken(f"{node.url} sent a reply that cannot be read: {error}") from None
    if isinstance(outcome.error, DoesNotTravel):
        # Its result does not travel. Here it need not.
        raise outcome.error
    return [outcome]
