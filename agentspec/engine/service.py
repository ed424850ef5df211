"""One chat turn through the engine process: plan, submit, read the outputs, answer.

Read next: ``turn.py`` (what is asked), ``answer.py`` (what is given), ``loop.py`` (who computes).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

from agentspec.wire.chat import ChatChunk, ChatRequest, ChatResponse, decode_request
from agentspec.wire.errors import AgentspecError, InternalError, InvalidRequest, Overloaded
from agentspec.wire.nesting import check_nesting
from agentspec.wire.service import (
    DraftCard,
    ModelCard,
    ModelList,
    TokenizeRequest,
    TokenizeResponse,
)
from agentspec.wire.sse import DONE, KEEPALIVE, error_event, event

from .answer import Answer, Piece
from .chunks import ChunkWriter
from .loop import EngineLoop, Subscription
from .metrics import EngineMetrics
from .model.errors import ModelError
from .request import Output
from .turn import Planner, Turn

if TYPE_CHECKING:
    from agentspec.settings_drafts import DraftSettings

    from .drafts import Drafts

T = TypeVar("T")
_PLANNING_THREADS = 2
_DRAIN_POLL_S = 0.05
_log = logging.getLogger(__name__)


class Exchange:
    """A turn that the engine has taken, from ``EngineService.open`` to its end.

    first_s: ``time.monotonic()`` second of the first token; early_tokens: how many came with it.
    """

    def __init__(self, turn: Turn, subscription: Subscription):
        self.turn = turn
        self.answer = Answer(turn)
        self.subscription = subscription
        self.first_s: float | None = None
        self.early_tokens = 0

    def read(self, output: Output) -> tuple[int, Piece]:
        """See ``Answer.read``."""
        if self.first_s is None and output.tokens:
            self.first_s = time.monotonic()
            self.early_tokens = output.tokens
        return self.answer.read(output)


class EngineService:
    """What the HTTP routes call. Lives on one event loop.

    keepalive_s: a stream that had nothing to say for that long says a comment.
    """

    def __init__(
        self,
        loop: EngineLoop,
        planner: Planner,
        metrics: EngineMetrics,
        *,
        keepalive_s: float = 10.0,
        max_body_bytes: int = 32 * 1024 * 1024,
        drafts: Drafts | None = None,
    ):
        self.loop = loop
        self.max_body_bytes = max_body_bytes
        self._planner = planner
        self._metrics = metrics
        self._keepalive_s = keepalive_s
        self._created = int(time.time())
        self._drafts = drafts
        self._closing = False
        self._opening = 0
        self._open: set[Exchange] = set()
        self._pool = ThreadPoolExecutor(_PLANNING_THREADS, thread_name_prefix="plan")

    def start(self) -> None:
        """Start the stepping thread. Called once, on the event loop that serves."""
        self.loop.start()

    async def drain(self, grace_s: float) -> None:
        """Take nothing new; let what runs end within ``grace_s``, then break it off."""
        self._closing = True
        until_s = time.monotonic() + grace_s
        while (self._open or self._opening) and self.loop.alive and time.monotonic() < until_s:
            await asyncio.sleep(_DRAIN_POLL_S)
        await self.stop()

    async def stop(self) -> None:
        """End the stepping thread; whoever still waits gets an ``Overloaded``."""
        self._closing = True
        await self.loop.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def healthy(self) -> bool:
        return self.loop.alive and not self._closing

    async def open(self, body: bytes) -> Exchange:
        """Check a request and hand it to the engine.

        Every refusal is raised here, before a byte was sent: ``InvalidRequest``, ``ModelNotFound``,
        ``ContextLengthExceeded``, ``Overloaded``.
        """
        arrival_s = time.monotonic()
        self._opening += 1
        try:
            check_nesting(body)
            turn = await self._planned(decode_request(body), arrival_s)
            exchange = Exchange(turn, await self.loop.submit(turn.sequences))
        except BaseException as error:
            self._metrics.request_ended(_status_of(error))
            raise
        finally:
            self._opening -= 1
        self._open.add(exchange)
        self._metrics.tools_shown(turn.tools_saved_chars)
        return exchange

    async def _planned(self, request: ChatRequest, arrival_s: float) -> Turn:
        """Plan off the event loop: a grammar may take seconds to compile."""
        if self._closing:
            raise Overloaded("The engine is shutting down.")
        running = asyncio.get_running_loop()
        return await running.run_in_executor(self._pool, self._planner.plan, request, arrival_s)

    def close(self, exchange: Exchange, status: str = "cancelled") -> None:
        """The exchange is over; what still runs of it is aborted. Only the first call counts."""
        if exchange not in self._open:
            return
        self._open.discard(exchange)
        self.loop.abort(exchange.subscription)
        self._metrics.request_ended(status)
        if exchange.first_s is None:
            return
        self._metrics.first_token(exchange.first_s - exchange.turn.arrival_s)
        if status == "ok" and len(exchange.turn.sequences) == 1:
            usage, _ = exchange.answer.totals()
            later = usage.completion_tokens - exchange.early_tokens
            if later > 0:
                self._metrics.token_time((time.monotonic() - exchange.first_s) / later)

    async def whole(self, exchange: Exchange) -> ChatResponse:
        """The whole answer. Raises what broke it; closes the exchange in any case."""
        status = "cancelled"
        try:
            while not exchange.subscription.finished:
                for output in await exchange.subscription.take():
                    exchange.read(output)
            answer = exchange.answer.response()
            status = "ok"
            return answer
        except AgentspecError:
            status = "failed"
            raise
        finally:
            self.close(exchange, status)

    async def events(self, exchange: Exchange) -> AsyncGenerator[bytes, None]:
        """The answer as a stream of server-sent events, each step's text at once.

        What breaks it becomes an error event, and then there is no ``[DONE]``. Closes the exchange
        in any case, also when it is cancelled or closed early.
        """
        status = "cancelled"
        writer = ChunkWriter(exchange.turn)
        try:
            async with aclosing(self._news(exchange, writer)) as news:
                async for data in news:
                    yield data
            yield b"".join(map(event, writer.end(*exchange.answer.totals()))) + DONE
            status = "ok"
        except AgentspecError as error:
            status = "failed"
            yield error_event(error)
        except Exception as error:
            status = "failed"
            _log.error("unexpected error within a stream", exc_info=error)
            yield error_event(InternalError("The engine met an unexpected error."))
        finally:
            self.close(exchange, status)

    async def _news(self, exchange: Exchange, writer: ChunkWriter) -> AsyncGenerator[bytes, None]:
        """Events while the sequences run; a comment where nothing was sent for ``keepalive_s``."""
        now_s = asyncio.get_running_loop().time
        due_s = now_s() + self._keepalive_s
        while not exchange.subscription.finished:
            try:
                async with asyncio.timeout_at(due_s):
                    outputs = await exchange.subscription.take()
            except TimeoutError:
                outputs = []
            data, error = _events_of(exchange, writer, outputs)
            if not data and now_s() >= due_s:
                data = KEEPALIVE
            if data:
                yield data
                due_s = now_s() + self._keepalive_s
            if error is not None:
                raise error

    async def tokenize(self, request: TokenizeRequest) -> TokenizeResponse:
        """Raises ``InvalidRequest`` or ``ModelNotFound``."""
        running = asyncio.get_running_loop()
        return await running.run_in_executor(self._pool, self._planner.tokenize, request)

    def drafts(self) -> list[DraftCard]:
        """The drafts that are loaded."""
        return [] if self._drafts is None else self._drafts.cards()

    async def load_draft(self, settings: DraftSettings) -> DraftCard:
        """Take a draft in while the engine runs. Raises ``InvalidRequest`` for what doesn't fit."""
        drafts = self._changeable()
        running = asyncio.get_running_loop()
        try:
            drafter = await running.run_in_executor(self._pool, drafts.read, settings)
            return await self.loop.call(lambda: _said(drafts.take, drafter, settings.path))
        except ModelError as error:
            raise InvalidRequest(f"{settings.path}: {error}", param="path") from None

    async def drop_draft(self, name: str) -> DraftCard:
        """Do without a draft from now on. Raises ``InvalidRequest`` where it isn't loaded."""
        drafts = self._changeable()
        return await self.loop.call(lambda: _said(drafts.drop, name))

    def _changeable(self) -> Drafts:
        if self._drafts is None:
            raise InvalidRequest("This engine takes no drafts.")
        return self._drafts

    def models(self) -> ModelList:
        """The one model that is served here."""
        card = ModelCard(
            id=self._planner.model,
            created=self._created,
            context_length=self._planner.context_tokens,
        )
        return ModelList([card])

    async def metrics_page(self) -> tuple[bytes, str]:
        """(text, content type) for a Prometheus scrape."""
        try:
            stats = await self.loop.stats()
        except Overloaded:
            stats = None
        return self._metrics.page(stats)


def _said(work: Callable[..., T], *given: Any) -> T:
    """What ``work`` gives; a draft's refusal becomes one of the request."""
    try:
        return work(*given)
    except ModelError as error:
        raise InvalidRequest(str(error)) from None


def _status_of(error: BaseException) -> str:
    """How a request ended that was not taken."""
    if isinstance(error, AgentspecError):
        return "refused"
    return "cancelled" if isinstance(error, asyncio.CancelledError) else "failed"


def _events_of(
    exchange: Exchange, writer: ChunkWriter, outputs: list[Output]
) -> tuple[bytes, AgentspecError | None]:
    """(events of what the outputs say, the error that one of them means: none counts behind it)."""
    chunks: list[ChatChunk] = []
    failure = None
    try:
        for output in outputs:
            index, piece = exchange.read(output)
            if exchange.turn.running_usage and output.tokens:
                chunks += writer.opening(index)
            chunks += writer.piece(index, piece)
    except AgentspecError as error:
        failure = error
    if exchange.turn.running_usage:
        usage = exchange.answer.running_usage()
        for chunk in chunks:
            chunk.usage = usage
    return b"".join(map(event, chunks)), failure
