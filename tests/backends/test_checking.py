"""Calls of unconstrained backends: checked, mended, asked for again, or an error."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from agentspec.backends import checking
from agentspec.backends.base import Native, Turn
from agentspec.backends.foreign import decode, to_chunk, to_response
from agentspec.backends.registry import build
from agentspec.settings import BackendSettings, Settings
from agentspec.wire.chat import ChatChunk, ChatResponse, decode_request
from agentspec.wire.errors import UpstreamFailed

BODY: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "x"}],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "read",
                "parameters": {
                    "type": "object",
                    "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
                    "required": ["path"],
                },
            },
        }
    ],
}
GOOD, MENDABLE, WRONG = '{"path": "a"}', '{"path": "a", "lines": "3"}', '{"lines": 3}'
MENDED = {"path": "a", "lines": 3}


def turn(**more: Any) -> Turn:
    raw = json.dumps(BODY | more).encode()
    body = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    return Turn(id="1", request=decode_request(raw), body=body, upstream_model="u", created_s=9)


class Scripted:
    """A backend that gives the answers of a script, one an attempt; notes the turns.

    An answer: (content, arguments of its calls, finish reason).
    """

    name, kind = "up", "openai"

    native_paths = frozenset({"/messages"})

    def __init__(self, *answers: tuple[str, list[str], str], retries: int | None = 1):
        self.call_retries = retries
        self.answers = list(answers)
        self.turns: list[Turn] = []

    def chat(self, turn: Turn) -> AsyncGenerator[ChatChunk]:
        return self._chunks(turn)

    async def _chunks(self, turn: Turn) -> AsyncGenerator[ChatChunk]:
        self.turns.append(turn)
        content, calls, reason = self.answers.pop(0)
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": letter} for letter in content]
        for i, text in enumerate(calls):
            head = {"index": i, "id": f"c{i}", "type": "function"}
            deltas.append({"tool_calls": [head | {"function": {"name": "read", "arguments": ""}}]})
            pieces = [{"index": i, "function": {"arguments": letter}} for letter in text]
            deltas += [{"tool_calls": [piece]} for piece in pieces]
        for delta in deltas:
            yield self._chunk(turn, {"choices": [{"index": 0, "delta": delta}]})
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
        yield self._chunk(turn, end)
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        yield self._chunk(turn, {"choices": [], "usage": usage})

    @staticmethod
    def _chunk(turn: Turn, body: dict[str, Any]) -> ChatChunk:
        return to_chunk(decode(json.dumps(body).encode()), turn)

    async def complete(self, turn: Turn) -> ChatResponse:
        self.turns.append(turn)
        content, calls, reason = self.answers.pop(0)
        made = [
            {"id": f"c{i}", "function": {"name": "read", "arguments": text}}
            for i, text in enumerate(calls)
        ]
        message = {"role": "assistant", "content": content, "tool_calls": made}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        body = {"choices": [{"index": 0, "message": message, "finish_reason": reason}]}
        return to_response(decode(json.dumps(body | {"usage": usage}).encode()), turn)

    async def models(self) -> list:
        raise NotImplementedError

    async def health(self) -> bool:
        return True

    async def aclose(self) -> None:
        return None


async def streamed(backend: Scripted, asked: Turn) -> dict[str, Any]:
    """What a client would have seen of a stream."""
    seen: dict[str, Any] = {"content": "", "calls": [], "reasons": [], "roles": 0, "tokens": None}
    async with aclosing(checking.chat(backend, asked)) as chunks:
        async for chunk in chunks:
            if chunk.usage is not UNSET and chunk.usage is not None:
                seen["tokens"] = chunk.usage.total_tokens
            for choice in chunk.choices:
                delta = choice.delta
                seen["roles"] += delta.role is not None
                seen["content"] += delta.content or "" if delta.content is not UNSET else ""
                for call in delta.tool_calls or ():
                    assert call.function is not None and call.function.arguments
                    seen["calls"].append(json.loads(call.function.arguments))
                if choice.finish_reason:
                    seen["reasons"].append(choice.finish_reason)
    return seen


async def whole(backend: Scripted, asked: Turn) -> dict[str, Any]:
    response = await checking.complete(backend, asked)
    (choice,) = response.choices
    calls = choice.message.tool_calls
    found = [json.loads(c.function.arguments or "") for c in (() if calls is UNSET else calls)]
    assert response.usage is not None
    return {
        "content": choice.message.content,
        "calls": found,
        "reasons": [choice.finish_reason],
        "roles": 1,
        "tokens": response.usage.total_tokens,
    }


both = pytest.mark.parametrize("asking", [streamed, whole])


@both
async def test_right_calls_pass_and_are_counted(asking):
    backend, asked = Scripted(("Hm. ", [GOOD, GOOD], "tool_calls")), turn()
    seen = await asking(backend, asked)
    assert seen["content"] == "Hm. " and seen["calls"] == [json.loads(GOOD)] * 2
    assert seen["reasons"] == ["tool_calls"] and seen["roles"] == 1 and seen["tokens"] == 15
    assert (asked.calls.checked, asked.calls.valid, asked.calls.repaired) == (True, 2, 0)


@both
async def test_what_is_beyond_doubt_is_mended_also_behind_text(asking):
    backend, asked = Scripted(("Text.", [MENDABLE, GOOD], "tool_calls")), turn()
    seen = await asking(backend, asked)
    assert seen["content"] == "Text." and seen["calls"] == [MENDED, json.loads(GOOD)]
    assert (asked.calls.valid, asked.calls.repaired, asked.calls.retried) == (2, 1, 0)
    assert len(backend.turns) == 1


@both
async def test_a_wrong_call_is_asked_for_again_with_the_error_fed_back(asking):
    backend, asked = Scripted(("", [WRONG], "tool_calls"), ("", [GOOD], "tool_calls")), turn()
    seen = await asking(backend, asked)
    assert seen["calls"] == [json.loads(GOOD)] and seen["roles"] == 1
    assert seen["reasons"] == ["tool_calls"] and seen["tokens"] == 30
    assert (asked.calls.valid, asked.calls.retried) == (1, 1)
    first, second = (msgspec.json.decode(t.body["messages"]) for t in backend.turns)
    assert second[:-1] == first == BODY["messages"]
    assert "'path' is a required property" in second[-1]["content"]
    assert msgspec.json.decode(asked.body["messages"]) == BODY["messages"]


@both
async def test_after_the_last_attempt_it_is_an_error(asking):
    backend, asked = Scripted(*[("", [WRONG], "tool_calls")] * 3, retries=2), turn()
    with pytest.raises(UpstreamFailed, match="required property") as failed:
        await asking(backend, asked)
    assert failed.value.code == "invalid_tool_call" and backend.answers == []
    assert asked.calls.valid == 0 and asked.calls.retried == 2


async def test_once_text_has_reached_the_client_nothing_is_asked_again():
    backend = Scripted(("I read.", [WRONG], "tool_calls"), ("", [GOOD], "tool_calls"))
    with pytest.raises(UpstreamFailed):
        await streamed(backend, turn())
    assert len(backend.turns) == 1


@both
async def test_a_call_that_a_limit_cut_is_left_out_and_the_others_stay(asking):
    backend, asked = Scripted(("", [GOOD, '{"path": "a'], "length")), turn()
    seen = await asking(backend, asked)
    assert seen["calls"] == [json.loads(GOOD)] and seen["reasons"] == ["length"]
    assert (asked.calls.valid, asked.calls.dropped) == (1, 1)


@both
async def test_a_torn_call_of_an_answer_that_claims_to_be_whole_is_never_closed(asking):
    backend = Scripted(*[("", ['{"path": "a'], "tool_calls")] * 2)
    with pytest.raises(UpstreamFailed, match="not JSON"):
        await asking(backend, turn())


@both
async def test_a_tool_that_was_not_offered_is_an_error(asking):
    asked = turn(tools=[{"type": "function", "function": {"name": "other"}}])
    with pytest.raises(UpstreamFailed, match="no tool is named 'read'"):
        await asking(Scripted(("", [GOOD], "tool_calls"), retries=0), asked)


@both
async def test_text_alone_passes(asking):
    asked = turn()
    seen = await asking(Scripted(("Just text.", [], "stop")), asked)
    assert (seen["content"], seen["calls"], seen["reasons"]) == ("Just text.", [], ["stop"])


async def test_text_is_not_held_back():
    chunks = checking.chat(Scripted(("ab", [GOOD], "tool_calls")), turn())
    first, second, third = [await anext(chunks) for _ in range(3)]
    assert first.choices[0].delta.role == "assistant"
    assert (second.choices[0].delta.content, third.choices[0].delta.content) == ("a", "b")
    await chunks.aclose()


async def test_in_another_protocol_nothing_is_checked():
    asked = Turn("1", turn().request, turn().body, "u", 9, native=Native("/messages", {}))
    response = await checking.complete(Scripted(("", [WRONG], "tool_calls")), asked)
    assert response.choices[0].message.tool_calls is not UNSET and not asked.calls.checked


async def test_a_constrained_backend_is_not_checked():
    asked = turn()
    response = await checking.complete(Scripted(("", [WRONG], "stop"), retries=None), asked)
    assert response.choices[0].message.tool_calls is not UNSET and not asked.calls.checked


@pytest.mark.parametrize(
    ("settings", "retries"),
    [
        (BackendSettings(kind="engine"), None),
        (BackendSettings(kind="openai"), 1),
        (BackendSettings(kind="litellm", call_retries=2), 2),
        (BackendSettings(kind="openai", constrained=True), None),
        (BackendSettings(kind="engine", constrained=False), 1),
        (BackendSettings(kind="anthropic"), None),
    ],
)
def test_who_is_checked_by_default(settings: BackendSettings, retries: int | None):
    assert settings.retries_of_calls == retries


async def test_another_protocols_request_is_checked_where_the_backend_does_not_take_it():
    asked = Turn("1", turn().request, turn().body, "u", 9, native=Native("/elsewhere", {}))
    with pytest.raises(UpstreamFailed):
        await checking.complete(Scripted(*[("", [WRONG], "tool_calls")] * 3), asked)
    assert asked.calls.checked


@pytest.mark.parametrize("kind", ["openai", "litellm", "anthropic"])
def test_every_kind_says_what_the_check_asks_for(kind):
    """One that lacked an attribute would go unchecked."""
    account = BackendSettings(kind=kind, url="http://127.0.0.1:1", constrained=False)
    backend = build(Settings(backends={"b": account}))["b"]
    assert checking.needs_checking(backend, turn())
