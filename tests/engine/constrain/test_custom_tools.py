"""Free-form tools: a Lark grammar, turned into a pattern, is what the engine generates."""

from __future__ import annotations

import json

import pytest

from agentspec.wire.lark import to_pattern
from tests.engine.constrain.conftest import Small, tools_spec

GRAMMAR = """
start: "*** Begin" LF change+ "*** End"
change: "*** Delete: " name LF | "*** Add: " name LF ("+" /(.*)/ LF)+
name: /[a-z.\\/]+/
%import common.LF
"""
PARAMETERS = {
    "type": "object",
    "properties": {"input": {"type": "string", "pattern": f"^(?:{to_pattern(GRAMMAR)})$"}},
    "required": ["input"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("text", "legal"),
    [
        ("*** Begin\n*** Delete: a/b.py\n*** End", True),
        ('*** Begin\n*** Add: a\n+say "x\\n" é\n+\n*** Delete: b\n*** End', True),
        ("*** Begin\n*** End", False),
        ("*** Begin\n*** Delete: A\n*** End", False),
        ("*** Begin\n*** Add: a\n-x\n*** End", False),
        ("*** Begin\n*** Delete: a\n", False),
    ],
)
def test_only_texts_of_the_grammar_can_be_written(small: Small, factories, text, legal):
    spec = tools_spec({"patch": PARAMETERS}, max_calls=1)
    session = factories().compile(spec).session()
    body = json.dumps({"input": text}, ensure_ascii=False)
    call = spec.format.render_calls([("patch", body)])
    taken = True
    for token in small.encode(call):
        taken = session.allows(token)
        if not taken:
            break
        session.accept([token])
    assert taken is legal
