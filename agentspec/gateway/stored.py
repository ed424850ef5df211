"""Answers that were kept, asked for by their id: ``GET`` and ``DELETE /v1/responses/{id}``."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Request, Response

from agentspec.wire.chat import encode
from agentspec.wire.errors import InvalidRequest, NotFound

from .access import Access
from .kept import Kept
from .surfaces.responses import kept_answer


class _Item(msgspec.Struct):
    id: str


class _Output(msgspec.Struct):
    output: list[_Item] = []


_OUTPUT = msgspec.json.Decoder(_Output)


def stored_responses(kept: Kept, access: Access) -> APIRouter:
    """The routes. A caller sees the answers of his own scope only."""
    router = APIRouter()

    async def find(request: Request, name: str) -> tuple[str, bytes]:
        """(scope, response object). Raises ``NotFound``."""
        scope = (await access.identify(request.headers)).scope
        found = await kept_answer(kept, scope, name)
        if found is None:
            raise NotFound(f"Response with id '{name}' not found. {kept.excuse}", param="id")
        return scope, bytes(found.body)

    @router.get("/v1/responses/{name}")
    async def get(request: Request, name: str) -> Response:
        if request.query_params.get("stream") == "true":
            raise InvalidRequest("A kept response is not streamed again here.", param="stream")
        _, body = await find(request, name)
        return Response(body, media_type="application/json")

    @router.delete("/v1/responses/{name}")
    async def delete(request: Request, name: str) -> Response:
        scope, body = await find(request, name)
        await kept.drop(scope, [name, *(item.id for item in _OUTPUT.decode(body).output)])
        told = {"id": name, "object": "response", "deleted": True}
        return Response(encode(told), media_type="application/json")

    return router
