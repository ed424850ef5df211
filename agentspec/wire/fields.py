"""Decoding in two steps: the envelope first, then each element by its own ``type``.

Agents send lists of objects of many kinds, of which a gateway knows some. An element of a known
kind is decoded strictly, and an error names its place in the whole body (``input[3].content``); the
others are left to the caller.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from .errors import InvalidRequest, from_validation

T = TypeVar("T")


class Typed(msgspec.Struct):
    """What tells an element's kind."""

    type: str | None = None
    role: str | None = None
    id: Any = None


_TYPED = msgspec.json.Decoder(Typed)


def decode(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw, where: str = "") -> T:
    """Decode JSON that lies at the path ``where`` of a request's body ("": it is the body).

    Raises ``InvalidRequest`` whose ``param`` is the offending field's path in the body.
    """
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise from_validation(_moved(error, where)) from None
    except msgspec.DecodeError as error:
        raise from_validation(error) from None
    except (RecursionError, UnicodeDecodeError):
        raise InvalidRequest("The request body could not be read.", param=where or None) from None


def kind_of(raw: msgspec.Raw, where: str) -> Typed:
    """The kind of one element. Raises ``InvalidRequest`` where it is no object."""
    return decode(_TYPED, raw, where)


def _moved(error: msgspec.ValidationError, where: str) -> msgspec.ValidationError:
    """The same error, its path counted from the body."""
    text = str(error)
    if not where:
        return error
    if "`$" in text:
        return msgspec.ValidationError(text.replace("`$", f"`$.{where}", 1))
    return msgspec.ValidationError(f"{text} - at `$.{where}`")


def missing(path: str) -> InvalidRequest:
    """The refusal of a request without a field that it needs."""
    return InvalidRequest(
        f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter"
    )
