"""The stepping thread: it alone touches the engine, and takes in new work between two steps.

The event loop talks to it through a mailbox of jobs (run in order, between steps) and hears from it
by ``call_soon_threadsafe``, once a step. While there is no work the thread waits on a condition.
When the engine raises what nobody expected, its state is unknown: everyone who waits gets an
error, ``alive`` turns false, and the process is to be restarted.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from agentspec.wire.errors import AgentspecError, InternalError, Overloaded

from .followers import Followers
from .request import GenerationRequest, Output
from .stats import EngineStats

T = TypeVar("T")
_log = logging.getLogger(__name__)


class SteppedEngine(Protocol):
    """What the loop asks of an engine (``core.Engine``); all calls come from one thread."""

    def add(self, request: GenerationRequest, /) -> Any: ...
    def abort(self, id: str, /) -> Any: ...
    def step(self) -> list[Output]: ...
    def has_work(self) -> bool: ...
    def stats(self) -> EngineStats: ...


def _ignore(_: Any) -> None:
    pass


class Subscription:
    """What the sequences of one HTTP request give, step by step. Read by one task."""

    def __init__(self, ids: tuple[str, ...]):
        self.ids = ids
        self._running = set(ids)
        self._items: asyncio.Queue[Output | AgentspecError] = asyncio.Queue()
        self._error: AgentspecError | None = None

    @property
    def finished(self) -> bool:
        """Every sequence has ended and all its outputs were taken."""
        return not self._running and self._items.empty() and self._error is None

    async def take(self) -> list[Output]:
        """All outputs that are there, at least one. Raises the error that broke the sequences.

        What came before an error is given first; the error is raised by the next call.
        """
        outputs: list[Output] = []
        while self._error is None:
            item = self._items.get_nowait() if outputs else await self._items.get()
            if isinstance(item, AgentspecError):
                self._error = item
                break
            outputs.append(item)
            if self._items.empty():
                return outputs
        if outputs:
            return outputs
        error, self._error = self._error, None
        self._running.clear()
        assert error is not None
        raise error

    def put(self, item: Output | AgentspecError) -> None:
        """Called on the event loop's thread."""
        if isinstance(item, Output) and item.finish_reason is not None:
            self._running.discard(item.id)
        self._items.put_nowait(item)


@dataclass(slots=True)
class _Job:
    work: Callable[[], Any]
    result: asyncio.Future[Any] | None


class EngineLoop:
    """Owns the engine and its thread. ``start`` within a running event loop; ``stop`` joins it."""

    def __init__(self, engine: SteppedEngine, *, on_end: Callable[[Output], None] = _ignore):
        """on_end: hears the last output of every sequence, also of an aborted one."""
        self._engine = engine
        self._followers = Followers(engine)
        self._on_end = on_end
        self.on_death: Callable[[BaseException], None] = _ignore
        self._jobs: deque[_Job] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._subscriptions: dict[str, Subscription] = {}
        self._aio: asyncio.AbstractEventLoop | None = None
        self.failure: BaseException | None = None

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and self.failure is None

    def start(self) -> None:
        self._aio = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """End the thread after its current step; whoever still waits gets an ``Overloaded``."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join)
        self._break_all(Overloaded("The engine is shutting down."))

    async def submit(self, requests: Seq[GenerationRequest]) -> Subscription:
        """Have the engine take the sequences of one request, which share a prompt.

        Raises what ``Engine.add`` raises (``Overloaded``, ``InvalidRequest``).
        """
        subscription = Subscription(tuple(request.id for request in requests))
        for request in requests:
            self._subscriptions[request.id] = subscription
        try:
            await self.call(lambda: self._followers.add(requests))
        except BaseException:
            self.abort(subscription)
            raise
        return subscription

    def abort(self, subscription: Subscription) -> None:
        """Give up what still runs of a request; its pages are free before the next step."""
        running = [id for id in subscription.ids if self._subscriptions.pop(id, None)]
        if running and self.alive:
            self._post(_Job(lambda: self._followers.abort(running), None))

    async def stats(self) -> EngineStats:
        """The engine's counts between two steps. Raises ``Overloaded`` when it has stopped."""
        return await self.call(self._engine.stats)

    async def call(self, work: Callable[[], T]) -> T:
        """Run ``work`` on the engine's thread between two steps; returns or raises as it does.

        Raises ``Overloaded`` when the thread has ended.
        """
        if not self.alive or self._closing:
            raise Overloaded("The engine has stopped.")
        assert self._aio is not None
        result = self._aio.create_future()
        self._post(_Job(work, result))
        return await result

    def _post(self, job: _Job) -> None:
        with self._wake:
            self._jobs.append(job)
            self._wake.notify()

    # From here on: the engine's thread.

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                while self._jobs:
                    self._do(self._jobs.popleft())
                self._followers.add_due()
                if self._engine.has_work():
                    outputs = self._engine.step()
                    self._followers.release(outputs)
                    if outputs:
                        self._tell(self._deliver, outputs)
        except BaseException as error:
            _log.critical("the engine's thread died", exc_info=error)
            self.failure = error
            self._tell(self._died, error)

    def _wait_for_work(self) -> bool:
        """Wait until there is a job or a step to do; False when the loop is closing."""
        with self._wake:
            while not (self._closing or self._jobs or self._has_work()):
                self._wake.wait()
            return not self._closing

    def _has_work(self) -> bool:
        return self._engine.has_work() or self._followers.due

    def _do(self, job: _Job) -> None:
        """A refusal goes to whoever asked; an unexpected error does, too, and leaves nothing."""
        if job.result is None:
            job.work()
            return
        try:
            value = job.work()
        except AgentspecError as error:
            self._tell(_settle, job.result, None, error)
        except Exception as error:
            _log.error("a request could not be taken", exc_info=error)
            failure = InternalError(f"The engine could not take the request: {error}")
            self._tell(_settle, job.result, None, failure)
        else:
            self._tell(_settle, job.result, value, None)

    def _tell(self, function: Callable[..., None], *args: Any) -> None:
        assert self._aio is not None
        if not self._aio.is_closed():
            self._aio.call_soon_threadsafe(function, *args)

    # Back on the event loop's thread.

    def _deliver(self, outputs: list[Output]) -> None:
        for output in outputs:
            ended = output.finish_reason is not None
            if ended:
                self._on_end(output)
            subscription = self._subscriptions.get(output.id)
            if subscription is None:
                continue  # its client has gone
            if ended:
                del self._subscriptions[output.id]
            subscription.put(output)

    def _died(self, error: BaseException) -> None:
        self._break_all(InternalError(f"The engine failed: {type(error).__name__}: {error}"))
        self.on_death(error)

    def _break_all(self, error: AgentspecError) -> None:
        """Everyone who waits for a job or for outputs gets ``error``."""
        while self._jobs:
            job = self._jobs.popleft()
            if job.result is not None:
                _settle(job.result, None, error)
        for subscription in set(self._subscriptions.values()):
            subscription.put(error)
        self._subscriptions.clear()


def _settle(result: asyncio.Future[Any], value: Any, error: AgentspecError | None) -> None:
    if result.done():
        return  # whoever asked is gone
    if error is not None:
        result.set_exception(error)
    else:
        result.set_result(value)
