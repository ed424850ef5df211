"""Answers that were kept, asked for by their id: ``GET`` and ``DELETE /v1/responses/{id}``, and
what they answered: ``GET /v1/responses/{id}/input_items``."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Request, Response

from agentspec.wire.chat import encode
from agentspec.wire.errors import InvalidRequest, NotFound
from agentspec.wire.responses_items import item_page
from agentspec.wire.responses_out import ANSWER_ID

from .access import Access
from .kept import Kept
from .surfaces.responses import KeptAnswer, kept_answer


class _Item(msgspec.Struct):
    id: str


class _Output(msgspec.Struct):
    output: list[_Item] = []


_OUTPUT = msgspec.json.Decoder(_Output)


def stored_responses(kept: Kept, access: Access) -> APIRouter:
    """The routes. A caller sees the answers of his own scope only."""
    router = APIRouter()

    async def find(request: Request, name: str) -> tuple[str, KeptAnswer]:
        """(scope, answer). Raises ``NotFound``."""
        scope = (await access.identify(request.headers)).scope
        found = await kept_answer(kept, scope, name)
        if found is None:
            raise NotFound(f"Response with id '{name}' not found. {kept.excuse}", param="id")
        return scope, found

    @router.get("/v1/responses/{name}")
    async def get(request: Request, name: str) -> Response:
        if request.query_params.get("stream") == "true":
            raise InvalidRequest("A kept response is not streamed again here.", param="stream")
        _, found = await find(request, name)
        return Response(bytes(found.body), media_type="application/json")

    @router.delete("/v1/responses/{name}")
    async def delete(request: Request, name: str) -> Response:
        scope, found = await find(request, name)
        items = _OUTPUT.decode(found.body).output
        await kept.drop(scope, [name, *(item.id for item in items)])
        told = {"id": name, "object": "response", "deleted": True}
        return Response(encode(told), media_type="application/json")

    @router.get("/v1/responses/{name}/input_items")
    async def input_items(request: Request, name: str) -> Response:
        _, found = await find(request, name)
        page = item_page(found.input, name.removeprefix(ANSWER_ID), request.query_params)
        return Response(encode(page), media_type="application/json")

    @router.post("/v1/responses/{name}/cancel")
    async def cancel(request: Request, name: str) -> Response:
        await find(request, name)
        raise InvalidRequest(
            "Only background responses can be cancelled, and this one was not: close the "
            "connection of a request to end it.",
            param="id",
            code="not_background",
        )

    return router
