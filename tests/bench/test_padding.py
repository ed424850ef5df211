"""Prompts brought to a length: real turns before the question, or the oldest text left out."""

from __future__ import annotations

import pytest

from agentspec.bench import filler, padding
from agentspec.bench.workloads import WORKLOADS, load


def words(body: dict) -> int:
    """A tokenizer that anyone can check: white space."""
    return sum(len(str(m.get("content") or "").split()) for m in body["messages"])


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_prompt_grows_to_the_length(workload: str):
    for prompt in load(workload, 3):
        messages = prompt.body["messages"]
        body = padding.fitted(prompt.body, workload, words, 2_000, seed=1)
        assert 1_990 <= words(body) <= 2_000
        assert body["messages"][-1] == messages[-1]
        assert body | {"messages": messages} == prompt.body
        roles = [m["role"] for m in body["messages"]]
        assert roles.count("system") == [m["role"] for m in messages].count("system")
        assert "system" not in roles[1:]


def test_the_text_before_is_of_the_prompts_own_kind():
    chat = padding.fitted(load("chat", 1)[0].body, "chat", words, 3_000)
    manual = {text[:200] for _, text in filler.manual(0)}
    assert chat["messages"][1]["content"][:200] in manual
    calls = padding.fitted(load("tool", 1)[0].body, "tool", words, 3_000)
    results = [m["content"] for m in calls["messages"] if m["role"] == "tool"]
    sources = {text[:200] for _, text in filler.sources(0)}
    assert results and all(text[:200] in sources for text in results)


def test_a_long_prompt_loses_its_oldest_text():
    rows = [{"role": "system", "content": "be brief"}]
    rows += [{"role": "user", "content": f"{i} " * 50} for i in range(9)]
    body = padding.fitted({"messages": rows}, "chat", words, 120)
    assert body["messages"] == [rows[0], *rows[-2:]]
    body = padding.fitted({"messages": rows}, "chat", words, 22)
    assert body["messages"] == [rows[0], {"role": "user", "content": " " + "8 " * 20}]


def test_the_seed_draws_the_order():
    assert [d.title for d in filler.sources(1)] != [d.title for d in filler.sources(2)]
    assert list(filler.manual(1)) == list(filler.manual(1))
