"""The request's body, read with a limit."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from starlette.types import Receive

from agentspec.wire.errors import BodyTooLarge, InvalidRequest
from agentspec.wire.surrogates import holds_half

DRAIN_S = 1.0


class ClientGone(Exception):
    """The client closed the connection; there is nobody to answer."""


async def read_body(receive: Receive, headers: Mapping[str, str], limit_bytes: int) -> bytes:
    """The whole body. headers: names in lower case.

    Raises ``BodyTooLarge`` as soon as more than ``limit_bytes`` are announced or have come (also
    where no length is announced), ``InvalidRequest`` for a compressed body, ``ClientGone``.
    """
    encoding = headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise InvalidRequest(
            f"Content-Encoding '{encoding}' is not accepted: send the body uncompressed.",
            param="content-encoding",
            code="unsupported_content_encoding",
        )
    announced = headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit_bytes:
        await _drain(receive, limit_bytes)
        raise _too_large(limit_bytes)
    pieces: list[bytes] = []
    size = 0
    more = True
    while more:
        piece, more = await _next_piece(receive)
        size += len(piece)
        if size > limit_bytes:
            await _drain(receive, 2 * limit_bytes - size if more else 0)
            raise _too_large(limit_bytes)
        pieces.append(piece)
    return b"".join(pieces)


async def _next_piece(receive: Receive) -> tuple[bytes, bool]:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    return message.get("body", b""), message.get("more_body", False)


async def _drain(receive: Receive, budget_bytes: int) -> None:
    """Throw away a little more: a client that is still sending doesn't read the refusal."""
    more = True
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_S):
            while more and budget_bytes > 0:
                piece, more = await _next_piece(receive)
                budget_bytes -= len(piece)


def _too_large(limit_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"The request body is larger than {limit_bytes} bytes.")


def half_a_character(body: bytes, error: InvalidRequest) -> InvalidRequest:
    """The refusal in clear words where a body can't be read for such a half; else as it is."""
    if error.param is not None or not holds_half(body):
        return error
    return InvalidRequest(
        "The request body could not be read: a string in it holds half of a surrogate pair (such "
        "as \\ud83d), which is no text."
    )
