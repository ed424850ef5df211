"""One request of any surface as a plain ASGI application: no framework in the hot path."""

from __future__ import annotations

import logging

from starlette.types import Receive, Scope, Send

from agentspec.wire.errors import AgentspecError

from .auth import Guard
from .body import ClientGone, read_body
from .clock import Clock
from .exchange import Exchange
from .service import TurnService
from .surface import Surface

log = logging.getLogger(__name__)


class Endpoint:
    """Reads the request, checks the key, and hands over to the service."""

    def __init__(
        self,
        surface: Surface,
        service: TurnService,
        guard: Guard,
        clock: Clock,
        *,
        max_body_bytes: int,
        keepalive_s: float,
    ):
        self._surface = surface
        self._service = service
        self._guard = guard
        self._clock = clock
        self._max_body_bytes = max_body_bytes
        self._keepalive_s = keepalive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(
            receive,
            send,
            errors=self._surface.errors,
            keepalive_s=self._keepalive_s,
            tick_s=self._clock.tick_s,
        )
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        try:
            key_id = self._guard.check(headers)
            body = await read_body(receive, headers, self._max_body_bytes)
            async with exchange:
                await self._service.answer(self._surface, body, headers, key_id, exchange)
        except AgentspecError as error:
            await exchange.fail(error)
        except ClientGone:
            log.debug("a client left before its answer was finished")
