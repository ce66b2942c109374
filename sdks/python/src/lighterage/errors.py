"""What can go wrong between here and a node. What goes wrong in the function arrives as itself.

Each has the stable `code` of `contracts/errors.toml`; `lighter errors L8002` explains one.
"""

from __future__ import annotations

from typing import ClassVar


class LighterageError(Exception):
    """Of all that is not the function's own fault."""

    code: ClassVar[str] = ""
    #: Whether the node has not got the function, so that nothing was run.
    is_of_deployment = False

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text} [{self.code}]" if self.code else text


class NodeUnreachable(LighterageError, ConnectionError):
    """No connection to the node. Nothing was run."""

    code = "L1102"


class NodeUnproven(NodeUnreachable):
    """What listens there is not the node of the data folder. Nothing was run, and it was sent no token."""

    code = "L1109"


class NoNode(LighterageError):
    """The call may run on a node only, and there is none."""

    code = "L8001"


class ReplyBroken(LighterageError, ConnectionError):
    """The reply broke off or makes no sense. The function may have run."""

    code = "L8002"


class VersionsDiffer(LighterageError):
    """The node's Python or a package differs from the one here in a way that the function may notice."""

    code = "L8003"


class DoesNotTravel(LighterageError, TypeError):
    """An object or code that has no meaning on another machine, and what to do about it."""

    code = "L8004"


class TimeIsUp(LighterageError, TimeoutError):
    """The call did not end in its time. The function may have run."""

    code = "L8005"


class RemoteError(LighterageError):
    """What the function raised, where its class is not known here: `name` is the class's, the text is its own."""

    code = "L8006"

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}" if message else name)
        self.name = name
        self.message = message


class CallTooLarge(LighterageError):
    """Arguments or result are larger than a call may be."""

    code = "L8007"


class NodeRefused(LighterageError):
    """The node refused the call or could not finish it; `code` is the node's own."""

    def __init__(self, status: int, code: str, detail: str, hint: str = "", retry_after: float = 0.0) -> None:
        super().__init__(f"{detail} (hint: {hint})" if hint else detail)
        self.status = status
        self.code = code  # type: ignore[misc]  # This one's code is each instance's own.
        self.detail = detail
        self.hint = hint
        self.retry_after = retry_after


#: The node has no room now, or is going: another may have.
_BUSY = frozenset(("L3007", "L3008", "L3009", "L3010", "L3013", "L4010", "L5005", "L5008"))


def is_busy(error: NodeRefused) -> bool:
    """Whether the node may do it later, and another one now."""
    return error.code in _BUSY
