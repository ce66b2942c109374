"""`@offload`: a function that runs wherever it will finish first, here or on a node.

f(x) ─▶ fast path: lately chosen to run here, and far from the border ─▶ plain call, timed
     └▶ decide ─▶ run: here, there, or at both places at once
"""

from __future__ import annotations

import functools
import inspect
import math
import time
import types
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, overload

from . import here
from .call import learn, run
from .call.call import Call
from .call.choose import decide
from .call.function import Bound, Function, OffloadWarning
from .call.measure import sizes
from .call.options import Options, checked, names
from .decide import LOCAL, Choice, Decision
from .limits import Limits
from .places import runtime
from .places.wire import Cancel
from .travel.classes import articled

# What a unit does not need is loaded where it is used: units begin sooner, and are smaller.
if TYPE_CHECKING:
    from concurrent.futures import Future

    from .explain import Explanation
    from .places.node import Node
    from .places.runtime import Runtime

__all__ = ["Method", "OffloadWarning", "Offloaded", "Options", "names", "offload"]

P = ParamSpec("P")
R = TypeVar("R")

#: The fast path: calls and seconds until the next real decision, and how far from the border it must be.
FAST_CALLS: Final = 64
FAST_SECONDS: Final = 0.5
FAST_MARGIN: Final = 1.5
#: Runs longer than this decide each time: deciding costs nothing beside them.
FAST_RUN_SECONDS: Final = 0.1
#: Seconds that `explain` waits for nodes that have never been heard; a call does not wait.
HEAR_SECONDS: Final = 1.0


class _Fast:
    """Calls of one size that run here without being decided one by one."""

    __slots__ = ("count", "left", "seconds", "told", "told_seconds", "until")

    def __init__(self, until: float) -> None:
        self.left = FAST_CALLS
        self.until = until
        self.count = 0
        self.seconds = 0.0
        #: Of these, what `stats` has.
        self.told = 0
        self.told_seconds = 0.0

    def untold(self) -> tuple[int, float]:
        """Calls and seconds that `stats` has not got yet; it has them from now on."""
        count, seconds = self.count, self.seconds
        found = count - self.told, seconds - self.told_seconds
        self.told, self.told_seconds = count, seconds
        return found


class Offloaded(Generic[P, R]):
    """A function that decides where it runs. Calling it is calling the function."""

    def __init__(self, function: Callable[P, R], options: Options) -> None:
        functools.update_wrapper(self, function)
        self.options = options
        self.function = Function(function, options)
        self.__lighterage_function__ = function
        self._name = self.function.name
        self._is_async = inspect.iscoroutinefunction(function)
        self._fast: dict[int, _Fast] = {}

    @property
    def __lighterage_bound__(self) -> Bound:
        return Bound(self.function, ())

    def __repr__(self) -> str:
        return f"<offloaded {self._name}>"

    @overload
    def __get__(self, instance: None, owner: type) -> Offloaded[P, R]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> Method: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> Any:
        return self if instance is None else Method(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function where it will finish first."""
        current = runtime.current
        if not current.has_nodes:
            if (current.is_configured and self.options.local) or here.is_unit():
                return self.__lighterage_function__(*args, **kwargs)
            current.configure()
        if self._is_async:
            return self._later(args, kwargs)  # type: ignore[return-value]  # R is the coroutine.
        size, bytes_up = sizes(args, kwargs) if self.options.size is None else self.function.sizes(args, kwargs)
        fast = self._fast.get(int(math.log2(size) * 4.0))
        if fast is not None and fast.left:
            began = time.perf_counter()
            if began < fast.until:
                result = self.__lighterage_function__(*args, **kwargs)
                fast.left -= 1
                fast.count += 1
                fast.seconds += time.perf_counter() - began
                return result
        return self._decided(Call(self.function, current, args, kwargs, size, bytes_up))  # type: ignore[no-any-return]

    def local(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function here."""
        if here.is_unit() or self._is_async:
            return self.__lighterage_function__(*args, **kwargs)
        return run.here(self.function.call(args, kwargs))  # type: ignore[no-any-return]

    def remote(self, *args: Any, on: str | Node | Iterable[str | Node] | None = None, **kwargs: Any) -> Any:
        """Calls the function on a node: that of this name, or the best. An async function gives an awaitable.

        Raises what the function raises; NoNode, or what kept the last node that was tried from answering.
        """
        if here.is_unit():
            return self.__lighterage_function__(*args, **kwargs)
        if self._is_async:
            return self._remote_later(args, kwargs, on)
        return run.remote_only(self.function.call(args, kwargs), on)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Calls the function where it will finish first, and does not wait. Cancelling ends a call on a node."""
        if here.is_unit():
            return _done(self.__lighterage_function__, args, kwargs)
        runtime.current.configure()
        return self._submit(lambda cancel: self._decided(self.function.call(args, kwargs, cancel)))

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Calls the function where it will finish first, without holding up the event loop."""
        if here.is_unit():
            result = self.__lighterage_function__(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result
        runtime.current.configure()
        if self._is_async:
            return await self._later(args, kwargs)
        import asyncio

        return await asyncio.wrap_future(self.submit(*args, **kwargs))

    def explain(self, *args: P.args, **kwargs: P.kwargs) -> Explanation:
        """Where this call would run now, what each place is expected to take, and why.

        Waits a second at most for nodes that are being asked for the first time.
        """
        from .explain import Explanation, unused

        current, function = runtime.current, self.function
        current.hear(self.options.on, HEAR_SECONDS)
        call, now = function.call(args, kwargs), time.monotonic()
        usable = current.usable(self.options.on, now)
        decision = decide(call, function.places(usable), now)
        notes = [unused(node, self.options.on) for node in current.nodes() if node not in usable]
        notes += [f"{node.name}: {function.refusal(node)}" for node in usable if function.refusal(node)]
        if function.stays is not None:
            notes.append(f"stays here: {function.stays}")
        elif function.vain.is_resting(now):
            notes.append("stays here for a while: its last calls on nodes came to nothing; `stats` counts why")
        if not function.may_race and len(decision.predictions) > 1:
            why = "it is not marked pure" if not self.options.pure else "race=False" if not self.options.race else "it is async"
            notes.append(f"runs at one place only: {why}")
        return Explanation(self._name, decision, call.size, call.bytes_up, tuple(notes))

    def with_options(self, **changes: Any) -> Offloaded[P, R]:
        """The same function with other options, as `f.with_options(deadline=0.5)(x)`; what is known of it is shared."""
        other = Offloaded(self.__lighterage_function__, replace(self.options, **checked(changes)))
        other.function.share(self.function)
        return other

    def prepare(self, on: str | Node | Iterable[str | Node] | None = None) -> None:
        """Puts the function on the nodes now, so that no call waits for it.

        Raises DoesNotTravel, VersionsDiffer, or what the nodes say.
        """
        made, current = self.function.made(), runtime.current
        for node in current.chosen(names(on) if on is not None else self.options.on):
            current.prepare(node, made)

    # Deciding

    def _decided(self, call: Call) -> Any:
        current, options, now = call.current, self.options, time.monotonic()
        bucket = int(math.log2(call.size) * 4.0)
        fast = self._fast.pop(bucket, None)
        if fast is not None and fast.count:
            with current.lock:
                current.engine.observe_local(self._name, call.size, fast.seconds / fast.count)
                self._tell(current, fast)
        if not options.local:
            return run.remote_only(call, None)
        nodes = self.function.places(current.usable(options.on, now))
        decision = decide(call, nodes, now)
        if decision.place == LOCAL and decision.rival is None:
            self._maybe_fast(call, bucket, decision)
        return run.as_decided(call, decision, nodes)

    def _maybe_fast(self, call: Call, bucket: int, decision: Decision) -> None:
        known = decision.predictions[0]
        if known.seconds > FAST_RUN_SECONDS or decision.choice is Choice.EXPLORED:
            return
        others = [prediction.seconds - prediction.spread for prediction in decision.predictions[1:]]
        # The least that any node could take is a round trip; a wait for its preparation is no lasting difference.
        if not others or min(others) > FAST_MARGIN * known.seconds or known.seconds < run.WORTH_SECONDS:
            self._fast[bucket] = _Fast(time.perf_counter() + FAST_SECONDS)
            call.current.quick.add(self)

    def tell(self, current: Runtime) -> None:
        """Counts the calls that were not decided one by one, with the runtime's lock."""
        for fast in list(self._fast.values()):
            self._tell(current, fast)

    def _tell(self, current: Runtime, fast: _Fast) -> None:
        count, seconds = fast.untold()
        if count:
            current.stats_of(self._name).ran(LOCAL, seconds, count)

    # Later

    def _submit(self, action: Callable[[Cancel], Any]) -> Future[Any]:
        from .call.later import CancellableFuture

        future = CancellableFuture()
        runtime.current.pool.submit(future.run, action)
        return future

    async def _later(self, args: Any, kwargs: Any) -> Any:
        """A call of an async function."""
        if not self.options.local:
            return await self._remote_later(args, kwargs, None)
        function = self.function
        call, now = function.call(args, kwargs), time.monotonic()
        nodes = function.places(call.current.usable(self.options.on, now))
        decision = decide(call, nodes, now)
        if decision.place == LOCAL:
            return await _here(call, decision, nodes)
        import asyncio

        node = next(node for node in nodes if node.name == decision.place)
        outcome = await asyncio.wrap_future(
            self._submit(lambda cancel: run.on_nodes(replace(call, cancel=cancel), decision, node))
        )
        return await _here(call, None, nodes) if outcome is None else outcome.get()

    def _remote_later(self, args: Any, kwargs: Any, on: str | Node | Iterable[str | Node] | None) -> Awaitable[Any]:
        """A call of an async function on a node and nowhere else."""
        import asyncio

        return asyncio.wrap_future(
            self._submit(lambda cancel: run.remote_only(self.function.call(args, kwargs, cancel), on))
        )


async def _here(call: Call, decision: Decision | None, nodes: list[Node]) -> Any:
    """A plain call of an async function, timed, in the event loop of whoever awaits it."""
    function = call.function
    began = time.perf_counter()
    result = function.plain(*call.args, **call.kwargs)
    result = await result if isinstance(result, Awaitable) else result
    learn.ran_here(call, time.perf_counter() - began, decision)
    learn.returned(call, result)
    for node in nodes:
        function.prepare_later(node)
    return result


class OffloadedOfClass(Offloaded[P, R]):
    """A class method that decides where it runs. Its class is known there too, and travels by its name."""

    def __get__(self, instance: object | None, owner: type | None = None) -> Any:
        return Method(self, type(instance) if owner is None else owner)


class Method:
    """An offloaded method of one object, which travels with the arguments; or of a class."""

    __slots__ = ("_function", "_instance")

    def __init__(self, function: Offloaded[Any, Any], instance: object) -> None:
        self._function = function
        self._instance = instance

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        return functools.partial(self._function.__lighterage_function__, self._instance)

    @property
    def __lighterage_bound__(self) -> Bound:
        return Bound(self._function.function, (self._instance,))

    def __repr__(self) -> str:
        return f"<offloaded method {self._function._name} of {self._instance!r}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(self._instance, *args, **kwargs)

    def local(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the method here."""
        return self._function.local(self._instance, *args, **kwargs)

    def remote(self, *args: Any, on: str | Node | Iterable[str | Node] | None = None, **kwargs: Any) -> Any:
        """Calls the method on a node."""
        return self._function.remote(self._instance, *args, on=on, **kwargs)

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        """Calls the method where it will finish first, and does not wait."""
        return self._function.submit(self._instance, *args, **kwargs)

    async def aio(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the method without holding up the event loop."""
        return await self._function.aio(self._instance, *args, **kwargs)

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Where this call would run now, and why."""
        return self._function.explain(self._instance, *args, **kwargs)


def _awaited(coroutine: types.CoroutineType[Any, Any, Any]) -> Any:
    """What a coroutine comes to, in a thread of its own: this one may have an event loop that runs."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def _done(function: Callable[..., R], args: Any, kwargs: Any) -> Future[R]:
    from concurrent.futures import Future

    future: Future[R] = Future()
    try:
        result = function(*args, **kwargs)
        future.set_result(_awaited(result) if inspect.iscoroutine(result) else result)
    except BaseException as error:
        future.set_exception(error)
    return future


@overload
def offload(function: Callable[P, R], /) -> Offloaded[P, R]: ...
@overload
def offload(
    *,
    pure: bool = ...,
    race: bool = ...,
    deadline: float | None = ...,
    on: str | Iterable[str | Node] | None = ...,
    size: Callable[..., float] | None = ...,
    retries: int = ...,
    fallback: bool = ...,
    local: bool = ...,
    lock: str | None = ...,
    any_version: bool = ...,
    codec: str = ...,
    compress: bool | None = ...,
    keep: bool = ...,
    component: str | None = ...,
    limits: Limits = ...,
) -> Callable[[Callable[P, R]], Offloaded[P, R]]: ...
def offload(function: Callable[P, R] | None = None, /, **options: Any) -> Any:
    """Lets a function run wherever it will finish first. `Options` has what it takes by name."""
    made = Options(**checked(options))
    return _offloaded(function, made) if function is not None else lambda function: _offloaded(function, made)


def _offloaded(function: Any, options: Options) -> Any:
    if isinstance(function, staticmethod):
        raise TypeError("write @staticmethod above @offload")
    if isinstance(function, classmethod):
        return OffloadedOfClass(function.__func__, options)
    if isinstance(function, types.MethodType):
        if isinstance(function.__self__, type):
            raise TypeError(f"{function.__qualname__} is bound to its class: write @offload above @classmethod")
        if isinstance(function.__func__, types.FunctionType):
            # The object travels with each call.
            return Offloaded(function.__func__, options).__get__(function.__self__)
    why = _why_not(function)
    if why:
        raise TypeError(f"offload() takes a function that is defined at the top of a module, and {why}")
    return Offloaded(function, options)


#: Methods that are not written in Python.
_OF_PYTHON: Final = (types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType, types.MethodDescriptorType)


def _why_not(function: Any) -> str:
    """Why the other side could not find it by its name; empty where it can."""
    kind = type(function)
    if isinstance(function, functools.partial):
        return "this is a partial: offload the function that it calls, and pass all arguments to that"
    if isinstance(function, Method):
        return f"{function!r} is offloaded already"
    if not callable(function):
        return f"this is {articled(kind.__qualname__)}, which cannot be called"
    if isinstance(getattr(function, "__module__", None), str) and isinstance(getattr(function, "__qualname__", None), str):
        bound = getattr(function, "__self__", None)
        is_free = bound is None or isinstance(bound, types.ModuleType)
        # An object of a class has the module of its class, but no name of its own.
        if is_free:
            return ""
    if isinstance(function, _OF_PYTHON):
        return f"{getattr(function, '__qualname__', function)} is a method of Python's own: call it in a function of yours"
    return f"this is an object of {kind.__qualname__}: offload a function that calls it, and pass it as an argument"
