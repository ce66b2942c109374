"""What can go wrong between here and a node. What goes wrong in the function arrives as itself."""

from __future__ import annotations


class LighterageError(Exception):
    """Of all that is not the function's own fault."""


class NodeUnreachable(LighterageError, ConnectionError):
    """No connection to the node."""


class ReplyBroken(LighterageError, ConnectionError):
    """The reply broke off or makes no sense. The function may have run."""


class NodeRefused(LighterageError):
    """The node refused the call or could not finish it; `code` is one of `lighter errors`."""

    def __init__(self, status: int, code: str, detail: str, hint: str = "") -> None:
        super().__init__(f"[{code}] {detail}" + (f" (hint: {hint})" if hint else ""))
        self.status = status
        self.code = code
        self.detail = detail
        self.hint = hint


class VersionsDiffer(LighterageError):
    """The node's Python or a package differs from the one here in a way that the function may notice."""


class NoNode(LighterageError):
    """The call may only run on a node, and none is there."""


class RemoteError(LighterageError):
    """What the function raised, where its class is not known here: `name` is the class's, the text is its own."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}" if message else name)
        self.name = name
        self.message = message
