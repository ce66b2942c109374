"""One node as a client sees it: what it is, whether it answers, what is deployed there, and calls to it.

A node that fails is left alone for a while that doubles, up to half a minute; then a probe in the background asks whether
it is back, so that no call has to find out.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..code.code import VERSIONS_KEPT, Code, Component
from ..code.python import differences
from ..errors import CallTooLarge, LighterageError, NodeRefused, NodeUnreachable, ReplyBroken, TimeIsUp, VersionsDiffer
from ..timers import background
from ..travel.frame import MEDIA_TYPE, Piece
from ..travel.pack import ZLIB, ZSTD
from .config import Address
from .wire import Api, Cancel, Reply

if TYPE_CHECKING:
    from concurrent.futures import Future

#: Seconds that a failed node is left alone: first, and at most.
AWAY_SECONDS: Final = 0.5
AWAY_SECONDS_MAX: Final = 30.0
#: Seconds after which a node that calls are decided about is asked anew.
UNHEARD_SECONDS: Final = 10.0
#: Seconds that a probe may take, and a deployment (a derived base may have to be built for it).
PROBE_SECONDS: Final = 3.0
DEPLOY_SECONDS: Final = 600.0
#: Seconds until a node is asked again on which somebody else deploys the same function.
TURN_SECONDS: Final = 0.5

#: What a node says of itself beyond these is not believed.
CORES_MAX: Final = 4_096
SPEED_MAX: Final = 1e6
RETRY_AFTER_MAX: Final = 3_600.0
#: Nodes that one node tells of; those beyond are not heard.
NEIGHBOURS_MAX: Final = 256
#: Characters of what a node says went wrong.
WORDS_MAX: Final = 4_000
#: A name that a request may hold: of a function, of a board.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")

#: Bytes of a reply beside the result's own.
REPLY_EXTRA_BYTES: Final = 1 << 20
#: The state of a board that has proved what it runs, and is trusted.
ATTESTED: Final = "attested"
#: The function is not there, or was removed.
_GONE: Final = "L2001"
#: Somebody else deploys the function: it may be the same code, from another device.
_IS_DEPLOYED: Final = "L2012"
#: Statuses of a deployment that trying again does not change.
_WILL_REFUSE_AGAIN: Final = frozenset((400, 401, 403, 413, 422))
_TOO_LARGE: Final = frozenset(("L3006", "L3011"))


@dataclass(frozen=True)
class NodeInfo:
    """What a node says about itself."""

    version: str
    cores: int
    #: Times this machine's, by the same small benchmark.
    speed: float
    #: Isolation classes it offers.
    isolation: tuple[str, ...]
    #: Its Python, and the versions of what comes with it; empty if it does not say.
    python: dict[str, str]
    #: Seconds that the question took.
    round_trip: float
    #: Bytes a second of a small download.
    bytes_per_second: float = 12.5e6

    @property
    def runs_python(self) -> bool:
        return "process" in self.isolation


@dataclass
class _Deployed:
    """What is known about one function on the node."""

    is_there: bool = False
    problem: LighterageError | None = None
    #: The deployment that goes on, and when it began.
    work: Future[None] | None = None
    began: float = 0.0
    #: Whether its units are boards.
    is_metal: bool = False


class Node:
    """A node. Safe for threads."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self.url = address.url
        self.name = address.url.partition("//")[2]
        self._api = Api(address.url, address.token, address.ca_file, proves=address.proves)
        self._info: NodeInfo | None = None
        self._lock = threading.Lock()
        self._deployed: dict[str, _Deployed] = {}
        self._failures = 0
        self._away_until = 0.0
        self._heard_at = 0.0
        #: What went wrong when it was last asked who it is, to be read after its name; empty: nothing that is known.
        self.problem = ""
        #: Whether it will be asked in the background whether it is back.
        self.is_watched = False
        self._boards: list[Board] = []
        #: Its id in its fleet, once it is known.
        self.member = ""
        #: Whether another node has told of it.
        self.is_found = False

    def __repr__(self) -> str:
        return f"Node({self.url!r})"

    @property
    def address(self) -> Address:
        """Where it is, and with which token."""
        return self._address

    @property
    def known(self) -> NodeInfo | None:
        """What it said last, without asking."""
        return self._info

    def is_among(self, on: frozenset[str] | None) -> bool:
        """Whether these names and addresses, or none for all nodes, mean this one."""
        return on is None or self.name in on or self.url in on

    @property
    def unpacks(self) -> tuple[str, ...]:
        """The ways of packing arrays that its units know, but for those of functions with a lock file."""
        return (ZLIB, ZSTD) if self._info is not None and "zstandard" in self._info.python else (ZLIB,)

    def info(self) -> NodeInfo:
        """Asks the node about itself.

        Raises NodeUnreachable, ReplyBroken, TimeIsUp or NodeRefused.
        """
        self._ask("GET", "/v1/node", deadline=time.monotonic() + PROBE_SECONDS)
        # The second one finds the connection open.
        began = time.monotonic()
        said = self._ask("GET", "/v1/node", deadline=began + PROBE_SECONDS)
        took = time.monotonic() - began
        with self._reading():
            python = {key: str(value) for key, value in (said.get("python") or {}).items() if not isinstance(value, dict)}
            packages = (said.get("python") or {}).get("packages") or {}
            python.update({key: str(value) for key, value in packages.items()})
            info = NodeInfo(
                str(said.get("version", "")),
                _between(1, int(said.get("cores", 1)), CORES_MAX),
                _between(1 / SPEED_MAX, float(python["speed"]) / _own_speed(), SPEED_MAX) if "speed" in python else 1.0,
                tuple(map(str, said.get("isolation") or ())),
                python,
                took,
                self._rate(took),
            )
        self._info = info
        if any(entry.is_metal for entry in self._deployed.copy().values()):
            self.boards()
        self.answered()
        return info

    def boards(self) -> list[Board]:
        """The boards that the node knows or hears, and whether it trusts them.

        Raises what a request raises.
        """
        said = self._ask("GET", "/v1/boards", deadline=time.monotonic() + PROBE_SECONDS)
        old = {board.name: board for board in self._boards}
        found = []
        with self._reading():
            for one in said:
                name = _name(one["name"])
                board = old.get(f"{self.name}/{name}") or Board(self, name)
                board.state = str(one["state"])
                board.architecture = str(one.get("architecture") or "")
                found.append(board)
        self._boards = found
        return list(found)

    def places(self, name: str) -> list[Node]:
        """Where a call of this function may go: to the boards that are trusted, where its units are boards, else to the
        node, which finds a unit itself.
        """
        entry = self._deployed.get(name)
        boards = [board for board in self._boards if board.state == ATTESTED] if entry and entry.is_metal else []
        return list(boards) or [self]

    def twin(self) -> Node:
        """The same node with nothing open, for a process that was forked."""
        twin = Node(self._address)
        twin._info = self._info
        twin.member, twin.is_found = self.member, self.is_found
        return twin

    def neighbours(self) -> list[tuple[str, str]]:
        """Ids and addresses of the nodes of its fleet that a device can call. Learns its own id.

        Raises what a request raises; NodeRefused also where it belongs to no fleet.
        """
        said = self._ask("GET", "/v1/fleet/places", deadline=time.monotonic() + PROBE_SECONDS)
        with self._reading():
            told = [(_name(one["id"]), str(one["api"]), one["this_node"] is True) for one in said["places"][:NEIGHBOURS_MAX]]
        for member, _, is_own in told:
            if is_own:
                self.member = member
        return [(member, url) for member, url, is_own in told if not is_own]

    def _rate(self, round_trip: float) -> float:
        """Loads the API's description, which every node has and which is large enough to say something."""
        reply = self._api.request("GET", "/v1/openapi.json", deadline=time.monotonic() + PROBE_SECONDS)
        took = reply.whole_at - reply.began_at
        # A round trip that was late says nothing of this one.
        return reply.body.nbytes / max(took - round_trip, took / 4, 1e-6) + 1.0

    def is_away(self, now: float) -> bool:
        """Whether it failed lately and should be left alone."""
        return now < self._away_until

    @property
    def has_failed(self) -> bool:
        """Whether it did not answer when it was last asked something."""
        return self._failures > 0

    def failed(self, now: float) -> float:
        """It did not answer, or nonsense: leaves it alone for a while, and says for how many seconds."""
        with self._lock:
            self._failures += 1
            pause = min(AWAY_SECONDS * 2.0 ** min(self._failures - 1, 20), AWAY_SECONDS_MAX)
            self._away_until = now + pause
        self._api.close()
        return pause

    def is_unheard(self, now: float) -> bool:
        """Whether it is time to ask it again, so that what is known of network and node does not grow old; says so once."""
        if self._info is None or now - self._heard_at < UNHEARD_SECONDS or self.is_away(now):
            return False
        self._heard_at = now
        return True

    def answered(self) -> None:
        """It is there."""
        self._heard_at = time.monotonic()
        if self._failures:
            with self._lock:
                self._failures = 0
                self._away_until = 0.0

    def is_ready(self, name: str) -> bool:
        """Whether the function is deployed, as far as is known here."""
        found = self._deployed.get(name)
        return found is not None and found.is_there

    def refusal(self, name: str) -> LighterageError | None:
        """Why the function cannot be deployed here, if that was tried and would fail again."""
        found = self._deployed.get(name)
        return None if found is None else found.problem

    def awaited(self, name: str, now: float) -> float:
        """Seconds for which the function has been on its way to the node; 0 where it is not."""
        found = self._deployed.get(name)
        return 0.0 if found is None or found.work is None else now - found.began

    def prepare(self, code: Code | Component, until: float = math.inf, cancel: Cancel | None = None) -> None:
        """Deploys the function, unless it is there. All who ask meanwhile wait for the same deployment. A component is looked
        for: it was deployed by whoever wrote it.

        Raises VersionsDiffer, NodeRefused, or what a request raises. TimeIsUp where the function is not there by `until`, of
        the monotonic clock, and Cancelled where it is no longer wanted: the deployment goes on.
        """
        with self._lock:
            entry = self._deployed.setdefault(code.name, _Deployed())
            if entry.is_there:
                return
            work = entry.work or self._begin(code, entry)
        ready = threading.Event()
        work.add_done_callback(lambda _: ready.set())
        (cancel or Cancel()).wait(ready, until)
        if not work.done():
            late = TimeIsUp(f"{self.url} did not get the function in time; it goes on getting it")
            late.is_of_deployment = True
            raise late
        problem = work.exception()
        if problem is not None:
            # Each who waits has its own way to here.
            raise problem.with_traceback(None)

    def _begin(self, code: Code | Component, entry: _Deployed) -> Future[None]:
        """Deploys it in the background: whoever asks for it may have less time than that takes."""
        from concurrent.futures import Future

        work: Future[None] = Future()

        def deploy() -> None:
            try:
                self._put(code, entry)
            except BaseException as error:
                work.set_exception(error)
            else:
                work.set_result(None)
            finally:
                with self._lock:
                    # What it failed with would keep what those wanted to send who wait for it.
                    if entry.work is work:
                        entry.work = None

        try:
            background(deploy)
        except RuntimeError as error:
            raise NodeUnreachable(f"{self.url}: nothing can be deployed: {error}") from None
        entry.work, entry.began = work, time.monotonic()
        return work

    def _put(self, code: Code | Component, entry: _Deployed) -> None:
        try:
            if isinstance(code, Component):
                self._find(code, entry)
            else:
                info = self._info or self.info()
                check_versions(self.name, info, code)
                self._deploy_in_turn(code)
                if not info.python:
                    # Its first function made it build the base.
                    check_versions(self.name, self.info(), code)
        except VersionsDiffer as error:
            entry.problem = error
            raise
        except NodeRefused as error:
            error.is_of_deployment = True
            if error.status in _WILL_REFUSE_AGAIN:
                entry.problem = error
            raise
        entry.problem = None
        entry.is_there = True

    def call(
        self, code: Code | Component, pieces: Sequence[Piece], deadline: float | None = None, cancel: Cancel | None = None
    ) -> Reply:
        """Calls a function; the reply's body is a frame that `calls.read_reply` reads. Deploys it again where it is gone.

        Raises NodeRefused, CallTooLarge, or what a request or `prepare` raises.
        """
        for is_last in (False, True):
            reply = self._api.request(
                "POST",
                f"/v1/functions/{code.name}/call",
                pieces,
                content_type=MEDIA_TYPE if isinstance(code, Code) else "application/octet-stream",
                headers=self._headers,
                deadline=deadline,
                cancel=cancel,
                body_max=code.limits.body_bytes + REPLY_EXTRA_BYTES,
            )
            if reply.status == 200:
                self.answered()
                return reply
            problem = _problem(reply)
            if isinstance(problem, NodeRefused) and problem.code == _GONE and not is_last:
                with self._lock:
                    self._deployed.pop(code.name, None)
                self.prepare(code, math.inf if deadline is None else deadline, cancel)
                continue
            raise problem
        raise AssertionError("the second round returns or raises")

    def functions(self) -> list[dict[str, Any]]:
        """Every function on the node, as the API has it."""
        found = self._ask("GET", "/v1/functions", deadline=time.monotonic() + PROBE_SECONDS)
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise ReplyBroken(f"{self.url} did not say what its functions are")
        return found

    def tell(self, report: dict[str, Any], deadline: float) -> None:
        """Tells it of decisions where calls ran; see `reports`.

        Raises what a request raises, and NodeRefused where it takes none.
        """
        body = json.dumps(report).encode()
        reply = self._api.request("POST", "/v1/decisions", [body], content_type="application/json", deadline=deadline)
        if not 200 <= reply.status < 300:
            raise _problem(reply)

    def close(self) -> None:
        """Closes idle connections."""
        self._api.close()

    #: What every call of this place says beside its own.
    _headers = ""

    def _find(self, component: Component, entry: _Deployed) -> None:
        """Looks whether the component is there, and what its units are."""
        found = self._ask("GET", f"/v1/functions/{component.name}", deadline=time.monotonic() + PROBE_SECONDS)
        with self._reading():
            grants = found["versions"][0]["function"].get("grants") or {}
            has_grants, entry.is_metal = any(grants.values()), found["isolation"] == "metal"
        if has_grants:
            detail = f"the function {component.name} has grants: what a call does would be done twice when it is tried again"
            raise NodeRefused(422, "", detail, "call such a function by itself, not as a faster way to a result")
        if entry.is_metal:
            self.boards()

    def _deploy_in_turn(self, code: Code) -> None:
        """Deploys it, after whoever else deploys it now."""
        deadline = time.monotonic() + DEPLOY_SECONDS
        while True:
            try:
                self._deploy(code, deadline)
                return
            except NodeRefused as error:
                if error.code != _IS_DEPLOYED or time.monotonic() + TURN_SECONDS >= deadline:
                    raise
            time.sleep(TURN_SECONDS)

    def _deploy(self, code: Code, deadline: float) -> None:
        image = f"/v1/images/{code.bundle.sha256}"
        if self._api.request("HEAD", image, deadline=deadline).status != 200:
            self._ask("PUT", image, [code.bundle.data], deadline=deadline)
        manifest = [code.manifest()]
        reply = self._api.request("POST", "/v1/deployments", manifest, content_type="application/json", deadline=deadline)
        if reply.status != 200:
            raise _problem(reply)
        try:
            last = json.loads(bytes(reply.body).strip().rpartition(b"\n")[2])
            step = last["step"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ReplyBroken(f"{self.url} did not say how the deployment ended") from None
        if step != "done":
            raise _refused(_status(last.get("problem")), last.get("problem"))
        self._remove_old(code)

    def _remove_old(self, code: Code) -> None:
        """Removes versions of the function beyond those kept, the oldest first. What fails is left for the next time."""
        try:
            family = [one for one in self.functions() if str(one["name"]).startswith(code.family) and one["name"] != code.name]
            family.sort(key=lambda one: max(version["deployed_ms"] for version in one["versions"]), reverse=True)
            for one in family[VERSIONS_KEPT - 1 :]:
                self._api.request("DELETE", f"/v1/functions/{_name(one['name'])}", deadline=time.monotonic() + PROBE_SECONDS)
        except (LighterageError, KeyError, TypeError, ValueError):
            return

    def _ask(self, method: str, path: str, pieces: Sequence[Piece] = (), deadline: float | None = None) -> Any:
        reply = self._api.request(method, path, pieces, deadline=deadline)
        if not 200 <= reply.status < 300:
            raise _problem(reply)
        if not reply.body.nbytes:
            return None
        try:
            return json.loads(bytes(reply.body))
        except (ValueError, RecursionError):
            raise ReplyBroken(f"{self.url} sent what is no JSON") from None

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Reads what the node said: what is not as it should be is the node's fault."""
        try:
            yield
        except LighterageError:
            raise
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
            raise ReplyBroken(f"{self.url} sent another answer than was asked for: {error}") from None


class Board(Node):
    """A board behind a node: a place of its own for functions whose units are boards."""

    def __init__(self, node: Node, name: str) -> None:
        super().__init__(node._address)
        self.node = node
        self.name = f"{node.name}/{name}"
        #: As `lighter boards` says it: `attested`, `distrusted`, `heard`, `silent` or `unknown`.
        self.state = "unknown"
        #: As Rust names it; empty for a board that was not heard.
        self.architecture = ""
        self._api = node._api
        self._headers = f"lighter-board: {name}\r\n"

    def __repr__(self) -> str:
        return f"Board({self.name!r}, {self.state!r})"

    @property
    def known(self) -> NodeInfo | None:
        return self.node.known

    def is_ready(self, name: str) -> bool:
        return self.node.is_ready(name)

    def refusal(self, name: str) -> LighterageError | None:
        return self.node.refusal(name)

    def awaited(self, name: str, now: float) -> float:
        return self.node.awaited(name, now)

    def prepare(self, code: Code | Component, until: float = math.inf, cancel: Cancel | None = None) -> None:
        self.node.prepare(code, until, cancel)

    def answered(self) -> None:
        super().answered()
        self.node.answered()


def _between(low: float, value: Any, high: float) -> Any:
    if not math.isfinite(value):
        raise ValueError(f"{value} is no number")
    return min(max(value, low), high)


def _name(text: Any) -> str:
    """A name that can stand in a request without being more than that."""
    if not isinstance(text, str) or not _NAME.fullmatch(text):
        raise ValueError("a name that is none")
    return text


@functools.cache
def _own_speed() -> float:
    from ..benchmark import speed

    return speed()


def check_versions(name: str, info: NodeInfo, code: Code) -> None:
    """Compares interpreter and packages before anything is sent.

    Raises VersionsDiffer with all that differs.
    """
    if not info.runs_python:
        raise NodeRefused(422, "L2011", f"node {name} runs no Python: it offers {', '.join(info.isolation) or 'nothing'}")
    if code.any_version or not info.python:
        return
    found = differences(code.bundle, info.python)
    if found:
        raise VersionsDiffer(f"node {name}: {'; '.join(found)}")


def _problem(reply: Reply) -> LighterageError:
    try:
        document = json.loads(bytes(reply.body)) if reply.body.nbytes else {}
    except (ValueError, RecursionError):
        document = {}
    error = _refused(reply.status, document)
    with contextlib.suppress(ValueError):
        error.retry_after = _between(0.0, float(reply.headers.get("retry-after", 0.0)), RETRY_AFTER_MAX)
    if error.code in _TOO_LARGE:
        return CallTooLarge(error.detail)
    return error


def _status(document: Any) -> int:
    """The status of a problem that came in a stream, whose own status is that of its beginning."""
    status = document.get("status") if isinstance(document, dict) else None
    return status if isinstance(status, int) and 400 <= status < 600 else 422


def _refused(status: int, document: Any) -> NodeRefused:
    if not isinstance(document, dict):
        document = {}
    detail = str(document.get("detail") or document.get("title") or f"the node answered {status}")
    hint = str(document.get("hint") or "")
    return NodeRefused(status, str(document.get("code", "L9002"))[:16], detail[:WORDS_MAX], hint[:WORDS_MAX])
