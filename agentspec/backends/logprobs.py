"""Log probabilities as servers tell them: OpenAI's shape with gaps (TGI, Ollama), or the parallel
lists of text completions."""

from __future__ import annotations

from typing import Any

from agentspec.wire.chat import ChoiceLogprobs, TokenLogprob, TopLogprob

_NONE = -9999.0
"""OpenAI's word for a token that could hardly come."""


def logprobs_of(told: Any) -> ChoiceLogprobs | None:
    """What a choice's ``logprobs`` says; None where it says nothing that can be read."""
    if not isinstance(told, dict):
        return None
    if isinstance(told.get("tokens"), list):
        return ChoiceLogprobs(_parallel(told))
    content, refusal = (_tokens(told.get(name)) for name in ("content", "refusal"))
    return None if content is None and refusal is None else ChoiceLogprobs(content, refusal)


def _tokens(listed: Any) -> list[TokenLogprob] | None:
    if not isinstance(listed, list):
        return None
    found = []
    for one in listed:
        if isinstance(one, dict) and isinstance(one.get("token"), str):
            tops = one.get("top_logprobs")
            top = [
                TopLogprob(t["token"], _number(t.get("logprob")), _bytes(t))
                for t in (tops if isinstance(tops, list) else ())
                if isinstance(t, dict) and isinstance(t.get("token"), str)
            ]
            found.append(TokenLogprob(one["token"], _number(one.get("logprob")), _bytes(one), top))
    return found


def _parallel(told: dict[str, Any]) -> list[TokenLogprob]:
    tokens = told["tokens"]
    values, tops = told.get("token_logprobs"), told.get("top_logprobs")
    found = []
    for index, token in enumerate(tokens):
        top = _at(tops, index)
        listed = [
            TopLogprob(str(name), _number(value))
            for name, value in (top if isinstance(top, dict) else {}).items()
        ]
        found.append(TokenLogprob(str(token), _number(_at(values, index)), None, listed))
    return found


def _at(listed: Any, index: int) -> Any:
    return listed[index] if isinstance(listed, list) and index < len(listed) else None


def _number(value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number else _NONE


def _bytes(told: dict[str, Any]) -> list[int] | None:
    found = told.get("bytes")
    whole = isinstance(found, list) and all(isinstance(one, int) for one in found)
    return found if whole else None
