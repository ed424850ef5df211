"""What requests need and kinds of backends can do."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agentspec.backends.capabilities import abilities, needs_of
from agentspec.settings import BackendSettings
from agentspec.wire.chat import decode_request
from agentspec.wire.extension import SpecRequest

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def needs(**more: Any) -> frozenset[str]:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]} | more
    raw = msgspec.json.encode(body)
    fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    request = decode_request(raw)
    return needs_of(request, request.agentspec or SpecRequest(), fields)


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({}, set()),
        ({"tools": [TOOL]}, {"tools"}),
        ({"tools": [TOOL], "tool_choice": "none"}, set()),
        ({"response_format": {"type": "json_object"}}, {"schema"}),
        ({"response_format": {"type": "text"}}, set()),
        ({"logprobs": True}, {"logprobs"}),
        ({"logprobs": False}, set()),
        ({"agentspec": {"grammar": "start: /a/"}}, {"grammar"}),
        ({"agentspec": {"suffix": "x"}}, {"suffix"}),
    ],
)
def test_needs(more, found):
    assert needs(**more) == found


def test_images_are_seen_in_the_body():
    body = {"messages": msgspec.Raw(msgspec.json.encode([{"role": "user", "content": [IMAGE]}]))}
    request = decode_request(b'{"model":"m","messages":[{"role":"user","content":"x"}]}')
    assert needs_of(request, SpecRequest(), body) == {"images"}
    assert needs_of(request, SpecRequest(), body, embeddings=True) == {"embeddings"}


def test_abilities_by_kind_and_settings():
    engine = abilities(BackendSettings(kind="engine"))
    assert engine.lacks(frozenset({"tools", "grammar"})) == set()
    assert engine.lacks(frozenset({"images"})) == {"images"} and engine.constrained
    vllm = abilities(BackendSettings(kind="vllm", lacks=["images"], context_tokens=7))
    assert vllm.lacks(frozenset({"images", "grammar", "tools"})) == {"images", "grammar"}
    assert vllm.context_tokens == 7 and not vllm.constrained
    paid = abilities(BackendSettings(kind="litellm"))
    assert paid.lacks(frozenset({"suffix", "schema"})) == {"suffix"}
