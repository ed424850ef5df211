"""Errors that name fields in chat's words, told in those of the protocol that the client speaks.

A backend sees a chat request, and its errors name that request's fields, which the client of
another protocol never sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .errors import AgentspecError, UpstreamFailed


@dataclass(frozen=True, slots=True)
class Name:
    """A field's path in chat's words, and in the client's request.

    whole: what lies below it has no counterpart there.
    """

    chat: str
    own: str
    whole: bool = False


def respell(error: AgentspecError, names: Iterable[Name]) -> None:
    """Change the field that the error names, also where its message quotes it.

    The first fitting name counts: longer ones come first. An error that is the client's vendor's
    own already stays as it is.
    """
    param = error.param
    if not param or error.spelled or (isinstance(error, UpstreamFailed) and error.own is not None):
        return
    for name in names:
        rest = param.removeprefix(name.chat)
        if param.startswith(name.chat) and (not rest or rest[0] in ".["):
            error.param = name.own + ("" if name.whole else rest)
            error.message = error.message.replace(f"'{param}'", f"'{error.param}'")
            return
