"""Session, client and workload, read off a request."""

from __future__ import annotations

import pytest

from agentspec.gateway.clock import uuid7
from agentspec.gateway.identity import client_of, session_of
from agentspec.wire.chat import ChatRequest, decode_request, encode


def request(**fields: object) -> ChatRequest:
    base = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    return decode_request(encode(base | fields))


@pytest.mark.parametrize(
    ("fields", "headers", "found"),
    [
        (
            {"prompt_cache_key": "k", "agentspec": {"session": "s"}},
            {"x-session-id": "h"},
            ("s", "agentspec"),
        ),
        ({"prompt_cache_key": "k"}, {"x-session-id": "h"}, ("k", "prompt_cache_key")),
        (
            {},
            {"x-session-id": "a", "x-claude-code-session-id": "b"},
            ("a", "x-session-id"),
        ),
        ({}, {"x-claude-code-session-id": "b"}, ("b", "x-claude-code-session-id")),
        ({}, {"session-id": "c", "thread-id": "t"}, ("c", "session-id")),
        ({}, {"session_id": "c"}, ("c", "session_id")),
        ({}, {"conversation_id": "d"}, ("d", "conversation_id")),
        ({}, {"x-opencode-session": "e"}, ("e", "x-opencode-session")),
        ({}, {"x-session-affinity": "f"}, ("f", "x-session-affinity")),
    ],
)
def test_who_names_the_session(fields, headers, found):
    session = session_of(request(**fields), headers)
    assert (session.id, session.source) == found


def test_a_conversation_keeps_its_session_as_it_grows():
    opener = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    later = [*opener, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "go"}]
    first, second = (session_of(request(messages=m), {}) for m in (opener, later))
    assert first == second and first.source == "opener"
    other = session_of(request(messages=[*opener[:1], {"role": "user", "content": "ho"}]), {})
    assert other.id != first.id


def test_the_opener_is_hashed_by_text_not_by_spelling():
    parts = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert session_of(request(messages=parts), {}) == session_of(request(), {})


def test_a_role_border_is_part_of_the_opener():
    """ "ab" + "c" and "a" + "bc" are different conversations."""
    one = [{"role": "system", "content": "ab"}, {"role": "user", "content": "c"}]
    two = [{"role": "system", "content": "a"}, {"role": "user", "content": "bc"}]
    assert session_of(request(messages=one), {}) != session_of(request(messages=two), {})


@pytest.mark.parametrize(
    ("agent", "client"),
    [
        ("OpenAI/Python 3.57.0", ("OpenAI/Python", "3.57.0")),
        ("opencode/1.18.33 ai-sdk/provider-utils/4.0.23", ("opencode", "1.18.33")),
        ("ai-sdk/openai-compatible/3.0.37 ai-sdk/x/5", ("ai-sdk/openai-compatible", "3.0.37")),
        ("QwenCode/0.24.4 (linux; x64)", ("QwenCode", "0.24.4")),
        ("codex_exec/0.171.0 (Linux; x86_64) dumb", ("codex_exec", "0.171.0")),
        ("curl", ("curl", "")),
        ("", ("", "")),
    ],
)
def test_the_client(agent, client):
    assert client_of(agent) == client


TOOLS = [{"type": "function", "function": {"name": "f"}}]


def test_ids_sort_by_time_and_say_what_they_are():
    import uuid

    ids = [uuid7(ms, b"\xff" * 10) for ms in (1, 2, 1_700_000_000_000)]
    assert ids == sorted(ids)
    last = uuid.UUID(ids[-1])
    assert last.version == 7 and last.variant == uuid.RFC_4122
    assert last.int >> 80 == 1_700_000_000_000
