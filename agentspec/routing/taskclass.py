"""What kind of work a request is: told cheaply and always the same way from the request itself.

    fim     text between a prefix and a suffix (a completion in an editor)
    plan    a turn with tools whose client says that nothing may be changed yet
    tool    any other turn with tools
    json    an answer in a given structure
    title   a name for a conversation, or a line about a change
    edit    an edit written as text (SEARCH/REPLACE, patches)
    chat    the rest

The words are those that Claude Code, opencode, Codex and Aider write into their prompts; a client
that words it otherwise gets the more general kind.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

import msgspec

from agentspec.wire.chat import ChatRequest

KINDS = ("tool", "json", "edit", "plan", "title", "fim", "chat")
_EDIT_FORMATS = ("SEARCH/REPLACE", "<<<<<<< SEARCH", "*** Begin Patch", "unified diff")
_PLAN = ("lan mode is active", "ou are in plan mode", "lan mode ACTIVE", "READ-ONLY phase")
_TITLE = re.compile(
    r"title generator|word title|(?:generate|write|create) a (?:\w+ ){0,3}title"
    r"|(?:conversation|session|thread) title|commit message"
)
_FIM = ("<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "<PRE>", "[PREFIX]", "<｜fim▁begin｜>")
_LOOKED_AT_CHARS = 4000


@dataclass(frozen=True, slots=True)
class TaskClass:
    """kind: of ``KINDS``. client: the agent's name, "" if unknown. schema: short hash of what the
    answer must look like (tools by name, or the schema), "" for none."""

    kind: str
    client: str = ""
    schema: str = ""

    def chain(self) -> tuple[tuple[str, ...], ...]:
        """From what is known of all requests to what is known of those just like this one."""
        keys = ((), (self.kind,), (self.kind, self.client))
        return (*keys, (self.kind, self.client, self.schema)) if self.schema else keys


def kind_of(request: ChatRequest) -> str:
    """The kind of work; the ledger's column ``workload``."""
    asked = request.agentspec
    if asked is not None and asked.suffix is not None:
        return "fim"
    if request.tools and request.tool_choice != "none":
        return "plan" if _holds(_last_user(request), _PLAN) else "tool"
    wanted = request.response_format
    if wanted is not None and wanted.type in ("json_object", "json_schema"):
        return "json"
    openers = [m.text() for m in request.messages if m.role in ("system", "developer")]
    if any(_holds(text, _EDIT_FORMATS) for text in openers):
        return "edit"
    last = _last_user(request)
    if _holds(last, _FIM):
        return "fim"
    if any(_names(text[:_LOOKED_AT_CHARS]) for text in (*openers, last[:500])):
        return "title"
    return "chat"


def _holds(text: str, words: tuple[str, ...]) -> bool:
    return any(word in text for word in words)


def _names(text: str) -> bool:
    """Whether a text asks for a title or a line; the pattern is slow, and seldom needed."""
    lower = text.lower()
    return _holds(lower, ("title", "commit message")) and _TITLE.search(lower) is not None


def class_of(request: ChatRequest, kind: str, client: str) -> TaskClass:
    """The whole class of a request of that kind, from that client."""
    shape = b""
    if request.tools and request.tool_choice != "none":
        names = sorted(tool.function.name for tool in request.tools)
        shape = "\0".join(names).encode("utf-8", "surrogatepass")
    elif request.response_format is not None and request.response_format.json_schema is not None:
        shape = msgspec.json.encode(request.response_format.json_schema)
    return TaskClass(
        kind, client, hashlib.blake2b(shape, digest_size=4).hexdigest() if shape else ""
    )


def _last_user(request: ChatRequest) -> str:
    """The end of the last thing that the user, or the client in his name, said."""
    for message in reversed(request.messages):
        if message.role == "user":
            return message.text()[-_LOOKED_AT_CHARS:]
    return ""
