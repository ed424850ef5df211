"""One turn of a conversation, from the request's bytes to the last byte of its answer.

1. translate (``surfaces/``), name it, see whose it is; a request that names a model leaves a row
   whatever happens;
2. decide where it runs, and try (``routing``);
3. pass the answer on, counting (``tally.py``);
4. close its ledger row, then send the last byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing

import msgspec

from agentspec.backends.base import Turn
from agentspec.routing.decision import Decision
from agentspec.settings import ModelSettings
from agentspec.store.record import OpenRecord, RequestRecord
from agentspec.wire.chat import ChatChunk
from agentspec.wire.errors import (
    AgentspecError,
    InternalError,
    InvalidRequest,
    ModelNotFound,
    UpstreamTimeout,
)
from agentspec.wire.nesting import check_nesting, first_text
from agentspec.wire.spelling import respell

from .body import half_a_character
from .choosing import Choosing
from .clock import Clock
from .exchange import Exchange
from .identity import MAX_ID_CHARS, Identity, canonical_names, client_of, session_of
from .ledger import Ledger
from .limits import Limits, Wanting
from .render import extension_for
from .surface import Answer, Asked, Caller, HoldsCalls, Started, Surface
from .tally import Tally

log = logging.getLogger(__name__)
_GRACE_S = 0.1
"""Our engine holds deadlines itself, and tells then what it did; it goes first."""


class _Named(msgspec.Struct):
    model: str


_NAMED = msgspec.json.Decoder(_Named)


class TurnService:
    """Answers requests of every surface. Holds no state of a request; many run at once."""

    def __init__(
        self,
        models: Mapping[str, ModelSettings],
        choosing: Choosing,
        ledger: Ledger,
        clock: Clock,
        limits: Limits,
        *,
        vendors: frozenset[str] = frozenset(),
        payloads: bool = False,
    ):
        """payloads: keep what is asked and answered beside the rows."""
        self._payloads = payloads
        self._models = models
        self._canonical = canonical_names(models)
        self._limits = limits
        self._vendors = vendors
        self._choosing = choosing
        self._attempts = choosing.attempts
        self._ledger = ledger
        self._clock = clock

    async def answer(
        self,
        surface: Surface,
        body: bytes,
        headers: Mapping[str, str],
        identity: Identity,
        exchange: Exchange,
    ) -> None:
        """Answer one request and leave its row. headers: names in lower case.

        Raises only ``CancelledError`` (the client left, or the server stops) and, for a body that
        names no model, what is wrong with it: every other error is answered and recorded here.
        """
        opened = self._opening_record(surface.name, headers, identity.key_id, exchange.request_id)
        tally = Tally(opened, self._clock.tick_s(), body if self._payloads else None)
        exchange.request_id = opened.id
        try:
            asked, model = await self._understood(surface, body, headers, identity)
            opened.model = asked.request.model
            turn = self._turn(asked, model, headers, identity.scope, opened)
            tally.take_request(asked.request, model)
            answer = asked.answer(Started(turn.id, turn.created_s))
        except AgentspecError as error:
            await self._refuse(error, body, opened, tally, exchange)
            return
        except Exception:
            log.exception("request %s could not be read", opened.id)
            await self._refuse(_unforeseen(), body, opened, tally, exchange)
            return
        self._ledger.open(opened)
        tally.calls = turn.calls
        exchange.last_words, exchange.spelling = answer.failed, asked.spelling
        wanting = Wanting(surface.name, asked.request, asked.body, model)
        await self._run(turn, opened, identity, wanting, tally, answer, exchange)

    async def _understood(
        self, surface: Surface, body: bytes, headers: Mapping[str, str], identity: Identity
    ) -> tuple[Asked, ModelSettings]:
        """What is asked, and of which model. Raises ``AgentspecError``."""
        check_nesting(body)
        caller = Caller(headers, identity.scope, self._self_hosted)
        try:
            asked = await surface.translate(body, caller)
        except InvalidRequest as error:
            raise half_a_character(body, error) from None
        model = self._model(asked.request.model)
        identity.require(asked.request.model, self._canonical)
        return asked, model

    async def _refuse(
        self,
        error: AgentspecError,
        body: bytes,
        opened: OpenRecord,
        tally: Tally,
        exchange: Exchange,
    ) -> None:
        """End a request that was never run. Raises ``error`` where it names no model: no row."""
        opened.model = opened.model or named_model(body)
        if not opened.model:
            raise error
        self._ledger.refuse(self._failed(tally, error, exchange), tally.notes())
        await exchange.fail(error)

    def _model(self, name: str) -> ModelSettings:
        model = self._models.get(name)
        if model is None:
            raise ModelNotFound(f"The model '{name}' does not exist here.", param="model")
        return model

    def _self_hosted(self, name: str) -> bool:
        model = self._models.get(name)
        return model is None or not self._vendors.issuperset(model.backends)

    def _turn(
        self,
        asked: Asked,
        model: ModelSettings,
        headers: Mapping[str, str],
        scope: str,
        opened: OpenRecord,
    ) -> Turn:
        request = asked.request
        deadline_ms = request.agentspec.deadline_ms if request.agentspec is not None else None
        if deadline_ms is not None and deadline_ms < 1:
            name = "agentspec.deadline_ms"
            raise InvalidRequest(f"Invalid '{name}': it must be at least 1.", param=name)
        session = session_of(request, headers)
        opened.stream = bool(request.stream)
        opened.session_id, opened.session_source = session.id, session.source
        return Turn(
            id=opened.id,
            request=request,
            body=asked.body,
            upstream_model=model.upstream_name or request.model,
            created_s=opened.ts_ms // 1000,
            extension=extension_for(request, session.id, scope),
            native=asked.native,
            upstream_names=model.upstream_names,
        )

    def _opening_record(
        self, surface: str, headers: Mapping[str, str], key_id: str, request_id: str
    ) -> OpenRecord:
        now_ms = self._clock.now_ms()
        client, version = client_of(headers.get("user-agent", ""))
        return OpenRecord(
            id=request_id or self._clock.request_id(),
            ts_ms=now_ms,
            surface=surface,
            client=client,
            client_version=version,
            key_id=key_id,
        )

    async def _run(
        self,
        turn: Turn,
        opened: OpenRecord,
        identity: Identity,
        wanting: Wanting,
        tally: Tally,
        answer: Answer,
        exchange: Exchange,
    ) -> None:
        """Decide and answer; whatever happens, the row is closed before the last byte."""
        try:
            exchange.headers = await self._limits.admit(turn.id, identity, wanting)
            decision = self._choosing.decide(turn, wanting.model, tally.workload, opened)
            tally.decision = decision
            run = self._stream if turn.request.stream else self._whole
            async with _until(turn.extension.deadline_ms, tally.age_s(self._clock.tick_s())):
                await run(turn, decision, tally, answer, exchange)
        except AgentspecError as error:
            await self._fail(error, tally, exchange)
        except asyncio.CancelledError:
            self._ledger.close(self._broken_off(tally, exchange), tally.notes())
            raise
        except Exception:
            log.exception("request %s failed", turn.id)
            await self._fail(_unforeseen(), tally, exchange)
        finally:
            if tally.decision is not None:
                self._attempts.ended(tally.decision)

    async def _fail(self, error: AgentspecError, tally: Tally, exchange: Exchange) -> None:
        respell(error, exchange.spelling())
        self._ledger.close(self._failed(tally, error, exchange), tally.notes())
        await exchange.fail(error)

    def _failed(self, tally: Tally, error: AgentspecError, exchange: Exchange) -> RequestRecord:
        return tally.failed(error, self._clock.tick_s(), exchange.status_of(error))

    def _broken_off(self, tally: Tally, exchange: Exchange) -> RequestRecord:
        """The row of a request that was cancelled: by its client, or by the end of this server."""
        if exchange.gone:
            return tally.cancelled(self._clock.tick_s())
        stopping = InternalError("The gateway is stopping.", code="stopping")
        return self._failed(tally, stopping, exchange)

    async def _whole(
        self,
        turn: Turn,
        decision: Decision,
        tally: Tally,
        answer: Answer,
        exchange: Exchange,
    ) -> None:
        with tally.waiting(self._clock.tick_s):
            response = await self._attempts.complete(decision, turn)
        tally.take_response(response)
        _ready(answer, decision)
        body = await answer.whole(response)
        tally.say(body)
        self._ledger.close(tally.finished(self._clock.tick_s()), tally.notes())
        await exchange.send_json(200, body, {})

    async def _following(
        self, rest: AsyncGenerator[ChatChunk], decision: Decision
    ) -> ChatChunk | None:
        try:
            return await anext(rest, None)
        except AgentspecError as error:
            self._attempts.broke(decision, error)
            raise

    async def _stream(
        self,
        turn: Turn,
        decision: Decision,
        tally: Tally,
        answer: Answer,
        exchange: Exchange,
    ) -> None:
        tick_s = self._clock.tick_s
        exchange.expect_stream()
        with tally.waiting(tick_s):
            opened = await self._attempts.open_stream(decision, turn)
        _ready(answer, decision)
        async with aclosing(opened.rest) as rest:
            chunk: ChatChunk | None = opened.first
            while chunk is not None:
                tally.take_chunk(chunk, tick_s())
                encoded = answer.chunk(chunk)
                tally.say(encoded)
                with tally.waiting(tick_s):
                    if encoded:
                        await exchange.send_events(encoded)
                    chunk = await self._following(rest, decision)
        end = await answer.end(tally.usage, tally.report)
        tally.say(end)
        self._ledger.close(tally.finished(tick_s()), tally.notes())
        await exchange.send_events(end, last=True)


@contextlib.asynccontextmanager
async def _until(deadline_ms: int | None, age_s: float) -> AsyncIterator[None]:
    """Break off what is inside when the caller's deadline has passed. age_s: of the request."""
    if deadline_ms is None:
        yield
        return
    limit = asyncio.timeout(deadline_ms / 1000 - age_s + _GRACE_S)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        message = "The request's deadline (agentspec.deadline_ms) passed before it was done."
        raise UpstreamTimeout(message, code="deadline_exceeded") from None


def _ready(answer: Answer, decision: Decision) -> None:
    """Prepare for what the chosen backend sends: our engine's calls are whole and checked."""
    if decision.chosen_kind != "engine" and isinstance(answer, HoldsCalls):
        answer.hold_calls()


def _unforeseen() -> InternalError:
    return InternalError("Something failed in the gateway.")


def named_model(body: bytes) -> str:
    """The model that an otherwise unreadable request names; "" where it names none."""
    try:
        return _NAMED.decode(body).model[:MAX_ID_CHARS]
    except RecursionError:
        return first_text(body, "model")[:MAX_ID_CHARS]
    except (msgspec.DecodeError, msgspec.ValidationError):
        return ""
