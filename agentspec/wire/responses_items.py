"""What a kept response was asked, as ``/v1/responses/{id}/input_items`` lists it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from .errors import InvalidRequest

_ITEM = msgspec.json.Decoder(dict[str, Any])
_MOST = 100
_USUAL = 20


def item_page(
    given: str | list[msgspec.Raw] | None, key: str, query: Mapping[str, str]
) -> dict[str, Any]:
    """One page of the list. key: a word of the response's own, for ids of items that have none.

    query: ``order`` ("desc" unless "asc"), ``after`` and ``limit``, as OpenAI has them. Raises
    ``InvalidRequest``.
    """
    items = _items(given, key)
    if query.get("order", "desc") not in ("asc", "desc"):
        raise _bad("order", "expected 'asc' or 'desc'")
    if query.get("order") != "asc":
        items.reverse()
    after = query.get("after")
    if after is not None:
        found = [index for index, item in enumerate(items) if item["id"] == after]
        if not found:
            raise _bad("after", "there is no such item")
        items = items[found[0] + 1 :]
    limit = query.get("limit", str(_USUAL))
    if not (limit.isascii() and limit.isdecimal() and 1 <= int(limit[:9]) <= _MOST):
        raise _bad("limit", f"expected 1 to {_MOST}")
    page = items[: int(limit)]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(items) > len(page),
    }


def _items(given: str | list[msgspec.Raw] | None, key: str) -> list[dict[str, Any]]:
    if isinstance(given, str):
        decoded: list[dict[str, Any]] = [{"role": "user", "content": given}]
    else:
        decoded = [_ITEM.decode(raw) for raw in given or ()]
    items = []
    for index, item in enumerate(decoded):
        made = {"id": f"in_{key}_{index}", "type": "message"} | item
        if isinstance(made.get("content"), str) and made["type"] == "message":
            kind = "output_text" if made.get("role") == "assistant" else "input_text"
            made["content"] = [{"type": kind, "text": made["content"]}]
        items.append(made)
    return items


def _bad(param: str, reason: str) -> InvalidRequest:
    return InvalidRequest(
        f"Invalid value for '{param}': {reason}.", param=param, code="invalid_value"
    )
