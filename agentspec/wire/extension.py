"""The one object by which gateway and engine extend the OpenAI protocol (docs/wire.md).

A request may carry ``"agentspec": {...}`` (``SpecRequest``), the engine's answer carries it back
as ``SpecReport``: on the body of a whole answer, on the usage chunk of a stream.
"""

from __future__ import annotations

from typing import Any

import msgspec

VERSION = 1


class SpecRequest(msgspec.Struct, omit_defaults=True):
    """What a caller may ask of the engine beside the OpenAI fields.

    session: groups turns of one conversation; feeds the suffix store.
    cache_scope: the tenant; keys the prefix cache and the suffix store. Nothing of one scope,
        text or timing, reaches another. The gateway always sets it itself.
    speculation: "off", "auto", or the list of draft sources that may be used.
    arm: label of the experiment arm ("on", "control", "off"), echoed back.
    deadline_ms: give up that long after arrival; the answer then ends as an error.
    priority: higher runs first; default 0.
    grammar: a Lark grammar (llguidance dialect) that the whole answer must follow.
    raw: the last message's text is the prompt as it stands, without the chat template.
    suffix: with ``raw``, the text that follows what is to be written (fill in the middle).
    """

    v: int = VERSION
    session: str | None = None
    cache_scope: str | None = None
    speculation: str | list[str] = "auto"
    arm: str | None = None
    deadline_ms: int | None = None
    priority: int = 0
    grammar: str | None = None
    raw: bool = False
    suffix: str | None = None


class SourceCount(msgspec.Struct):
    """Tokens of one draft source: proposed to verification, and accepted by it."""

    drafted: int = 0
    accepted: int = 0


class BusyTime(msgspec.Struct):
    """Engine time spent on one request, microseconds. The sum over requests is its busy time."""

    prefill: int = 0
    decode: int = 0
    draft: int = 0
    grammar: int = 0


class SpecReport(msgspec.Struct, omit_defaults=True):
    """What the engine tells about one request.

    sources: by name; "forced" (grammar-forced tokens, emitted without asking the model) stands
        beside the drafts but is counted in neither ``hist`` nor ``accepted_prediction_tokens``.
    steps: target forward passes that sampled, the one that ends the prompt only if it verified
        drafts.
    hist: hist[j] = steps that accepted exactly j drafted tokens; sum(hist) == steps and
        sum(j * hist[j]) == accepted drafted tokens.
    exact: whether this backend's bits are independent of batch, chunking and drafts.
    max_tokens_clamped: the limit that was applied when the caller's did not fit the context.
    redecoded: tokens taken back before they were sent, since no answer under the schema goes on so.
    tools_saved_chars: by how much the prompt's text of the tools is shorter than they are.
    window: the engine's own control windows while the request was there: "on" (it speculated as
        asked), "off" (it did not, for anybody), "mixed", or None where it has no such windows.
    """

    v: int = VERSION
    sources: dict[str, SourceCount] = {}
    steps: int = 0
    hist: list[int] = []
    busy_us: BusyTime = msgspec.field(default_factory=BusyTime)
    queue_us: int = 0
    exact: bool = False
    arm: str | None = None
    window: str | None = None
    max_tokens_clamped: int | None = None
    grammar_cold: bool | None = None
    tool_calls_valid: int = 0
    tool_calls_dropped: int = 0
    redecoded: int = 0
    tools_saved_chars: int = 0

    def totals(self) -> tuple[int, int]:
        """(drafted, accepted) over all draft sources, grammar-forced tokens left out."""
        drafts = [count for name, count in self.sources.items() if name != "forced"]
        return sum(c.drafted for c in drafts), sum(c.accepted for c in drafts)


def report_from(value: Any) -> SpecReport | None:
    """A ``SpecReport`` out of decoded JSON, or None where it is absent or of another version."""
    if not isinstance(value, dict) or value.get("v", VERSION) != VERSION:
        return None
    return msgspec.convert(value, SpecReport)
