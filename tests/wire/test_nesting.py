"""The bound on nesting, against the depth of the decoded value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.wire.errors import InvalidRequest
from agentspec.wire.nesting import MAX_NESTING, check_nesting, depth_of


def chain(levels: int, in_lists: bool = False) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value] if in_lists else {"a": value}
    return value


def refused(body: Any) -> bool:
    try:
        check_nesting(json.dumps(body).encode())
    except InvalidRequest:
        return True
    return False


@pytest.mark.parametrize("in_lists", [False, True])
def test_the_bound_is_exact(in_lists):
    for levels in (1, MAX_NESTING - 1, MAX_NESTING, MAX_NESTING + 1, 900):
        body = chain(levels, in_lists)
        assert depth_of(body) == levels
        assert refused(body) is (levels > MAX_NESTING)


WORDS = st.text(st.sampled_from('[]{}"\\,: aé'), max_size=12)


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(WORDS, lambda v: st.lists(v, max_size=3) | st.dictionaries(WORDS, v, max_size=3)),
    st.integers(MAX_NESTING - 6, MAX_NESTING + 3),
    WORDS,
)
def test_brackets_in_strings_count_for_nothing(value, around, word):
    body: Any = value
    for _ in range(around):
        body = {word: [*word], "deeper": body}
    assert refused(body) is (depth_of(body) > MAX_NESTING)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": "m", "metadata": chain(300)}, "metadata"),
        ({"tool_choice": {"]": chain(300)}}, "tool_choice"),
        ({"tools": ['{"', {"name": "\\"}, {"x": [1], "parameters": chain(300)}]},
         "tools[2].parameters"),
        ({"messages": [{"content": [{"input": chain(300)}]}]}, "messages[0].content"),
        (chain(300, in_lists=True), "[0][0][0]"),
    ],
)  # fmt: skip
def test_the_field_is_named(body, param):
    with pytest.raises(InvalidRequest) as caught:
        check_nesting(json.dumps(body).encode())
    assert caught.value.param == param and f"'{param}'" in caught.value.message
