"""One request of any surface as a plain ASGI application: no framework in the hot path."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from starlette.types import Receive, Scope, Send

from agentspec.tracing import Trace, current
from agentspec.wire.errors import AgentspecError, InternalError

from .access import Access
from .body import ClientGone, read_body
from .clock import Clock
from .crossing import check_borrowed, check_crossing
from .exchange import Exchange
from .identity import Identity
from .surface import ErrorShape

log = logging.getLogger(__name__)


Answering = Callable[[bytes, Mapping[str, str], Identity, Exchange], Awaitable[None]]


class Endpoint:
    """Reads the request, checks the key, and hands over.

    answering: what answers, given the body, the headers (names in lower case), whose key it is, and
    the exchange. errors: how the protocol spells an error. tracing: the trace that a request's
    headers name, or a new one.
    """

    def __init__(
        self,
        answering: Answering,
        errors: ErrorShape,
        access: Access,
        clock: Clock,
        tracing: Callable[[Mapping[str, str]], Trace],
        *,
        max_body_bytes: int,
        keepalive_s: float,
    ):
        self._answering = answering
        self._errors = errors
        self._access = access
        self._clock = clock
        self._tracing = tracing
        self._max_body_bytes = max_body_bytes
        self._keepalive_s = keepalive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(
            receive,
            send,
            errors=self._errors,
            keepalive_s=self._keepalive_s,
            tick_s=self._clock.tick_s,
        )
        exchange.request_id = self._clock.request_id()
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        current.set(self._tracing(headers))
        try:
            identity = await self._access.identify(headers)
            (check_borrowed if identity.key_id else check_crossing)(headers)
            body = await read_body(receive, headers, self._max_body_bytes)
            async with exchange:
                await self._answering(body, headers, identity, exchange)
        except AgentspecError as error:
            await exchange.fail(error)
        except ClientGone:
            log.debug("a client left before its answer was finished")
        except Exception:
            log.exception("request %s failed", exchange.request_id)
            await exchange.fail(InternalError("Something failed in the gateway."))
