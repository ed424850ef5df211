"""Who asks, in which conversation, and for what kind of work: read off one request.

Header names as the clients send them (captured from the clients' own traffic): opencode
``x-session-id``, Claude Code ``x-claude-code-session-id``, Codex ``session-id`` (earlier
``session_id``) and ``conversation_id``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from agentspec.settings import ModelSettings
from agentspec.store.budgets import Limit
from agentspec.wire.chat import ChatRequest
from agentspec.wire.errors import ModelNotFound

SESSION_HEADERS = (
    "x-session-id",
    "x-claude-code-session-id",
    "session_id",
    "session-id",
    "conversation_id",
    "conversation-id",
    "x-opencode-session",
    "x-session-affinity",
)
MAX_ID_CHARS = 200
LOCAL_SCOPE = "local"
"""The tenant of an endpoint that asks for no key."""

_PRODUCT = re.compile(r"([A-Za-z][\w.-]*(?:/[A-Za-z][\w.-]*)*)[/ ]v?(\d[\w.+-]*)")


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose key came with a request. key_id: "" where none is asked for.

    scope: the tenant, whose data are his alone. models: those the key may use, aliases not among
    them (None: all). limits: the key's and its project's. operator: may see the dashboard.
    """

    key_id: str = ""
    scope: str = LOCAL_SCOPE
    models: frozenset[str] | None = None
    limits: tuple[Limit, ...] = ()
    operator: bool = True

    def may_use(self, name: str, canonical: Mapping[str, str]) -> bool:
        """Whether the model of that name, or the one that it is an alias of, is allowed.

        canonical: the model's name by its alias.
        """
        return self.models is None or canonical.get(name, name) in self.models

    def require(self, name: str, canonical: Mapping[str, str]) -> None:
        """Raises ``ModelNotFound``, which both vendors say of models that a key may not use."""
        if not self.may_use(name, canonical):
            raise ModelNotFound(
                f"The model '{name}' does not exist or you do not have access to it.", param="model"
            )


ANYBODY = Identity()
"""Whoever uses an endpoint that asks for no key."""


def canonical_names(models: Mapping[str, ModelSettings]) -> dict[str, str]:
    """The model's name by each of its aliases."""
    return {alias: name for name, model in models.items() for alias in model.aliases}


@dataclass(frozen=True, slots=True)
class Session:
    """id: groups the turns of one conversation. source: where it was found."""

    id: str
    source: str


def session_of(request: ChatRequest, headers: Mapping[str, str]) -> Session:
    """The conversation that a request belongs to; a hash of its opener where nobody says.

    headers: names in lower case.
    """
    if request.agentspec is not None and request.agentspec.session:
        return Session(request.agentspec.session[:MAX_ID_CHARS], "agentspec")
    if request.prompt_cache_key:
        return Session(request.prompt_cache_key[:MAX_ID_CHARS], "prompt_cache_key")
    for name in SESSION_HEADERS:
        if headers.get(name):
            return Session(headers[name][:MAX_ID_CHARS], name)
    return Session(_opener_hash(request), "opener")


def _opener_hash(request: ChatRequest) -> str:
    """What stays the same from turn to turn: the first system and the first user text."""
    digest = hashlib.sha256()
    for roles in (("system", "developer"), ("user",)):
        opener = next((m for m in request.messages if m.role in roles), None)
        digest.update(opener.text().encode("utf-8", "surrogatepass") if opener else b"")
        digest.update(b"\0")
    return digest.hexdigest()[:32]


def client_of(user_agent: str) -> tuple[str, str]:
    """(name, version) of the client out of its User-Agent; empty where it doesn't say."""
    found = _PRODUCT.match(user_agent)
    if found:
        return found.group(1)[:100], found.group(2)[:40]
    return user_agent.partition(" ")[0][:100], ""
