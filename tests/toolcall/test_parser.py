"""The parser beyond the samples: random cuts, when events come, linear work."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from agentspec.toolcall.format import load_format
from agentspec.toolcall.parser import CallDropped, CallEnd, CallStart, Parser, TextDelta

FORMAT = load_format("smollm2")
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
_CALLS = st.lists(
    st.tuples(
        st.text("abc_.-", min_size=1, max_size=5), st.dictionaries(st.text(max_size=4), _JSON)
    ),
    max_size=3,
)
_PROSE = st.text('<tool_cal>[{"}] \n\\é', max_size=20)


def read(pieces: list[str]) -> tuple[str, list]:
    parser, events = Parser(FORMAT), []
    for piece in pieces:
        events += parser.feed(piece)
    events += parser.finish()
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    return text, [event for event in events if not isinstance(event, TextDelta)]


@given(
    prose=_PROSE,
    calls=_CALLS,
    cuts=st.lists(st.integers(0, 400), max_size=6),
    torn=st.integers(0, 99),
)
def test_cuts_change_nothing_and_torn_calls_never_end(prose, calls, cuts, torn):
    rendered = [(name, json.dumps(arguments)) for name, arguments in calls]
    whole = prose + FORMAT.render_calls(rendered) if calls else prose
    text = whole[: len(whole) * (100 - torn) // 100] if torn < 50 else whole
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b] for a, b in zip(edges, edges[1:], strict=False)]
    assert read(pieces) == read([text]) == read(list(text))
    ends = [(e.name, e.arguments_text) for e in read([text])[1] if isinstance(e, CallEnd)]
    if FORMAT.open not in prose and "<" not in prose:
        assert ends == rendered[: len(ends)]
        assert len(ends) == len(rendered) or text != whole


@given(st.text('<>/tool_call[]{}":, \\na1', max_size=60))
def test_any_text_is_read_without_error(text):
    assert read([text]) == read(list(text))


def test_events_come_as_soon_as_they_are_sure():
    parser = Parser(FORMAT)
    assert parser.feed("see <") == [TextDelta("see ")]
    assert parser.feed("b> <tool") == [TextDelta("<b> ")]
    assert parser.feed("_call>[") == []
    assert parser.feed('{"name": "f"') == []
    assert parser.feed(",") == [CallStart(0, "f")]
    assert parser.feed(' "arguments": {"a": 1}') == []
    two = parser.feed('}, {"name": "g", "arguments": {}}, {"name": "h", "argu')
    assert two == [
        CallEnd(0, "f", '{"a": 1}'),
        CallStart(1, "g"),
        CallEnd(1, "g", "{}"),
        CallStart(2, "h"),
    ]
    assert parser.finish() == [CallDropped(2, "h", "torn")]


def test_arguments_keep_the_models_own_spelling():
    spelled = '{ "a" :1.50,"b":"\\u00e9" }'
    _, found = read(['<tool_call>[{"name":"f","arguments":' + spelled + "}]</tool_call>"])
    assert CallEnd(0, "f", spelled) in found


def test_deep_nesting_is_dropped_not_raised():
    deep = '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"
    _, found = read(['<tool_call>[{"name": "f", "arguments": ' + deep + "}]</tool_call>"])
    assert found[-1] == CallDropped(0, "f", "arguments are not a JSON object")


def test_numbers_that_no_float_holds_are_dropped_where_arguments_are_rewritten():
    text = "<tool_call>f<arg_key>n</arg_key><arg_value>-1e999</arg_value></tool_call>"
    parser = Parser(load_format("glm47"), {"f": {"properties": {"n": {"type": "number"}}}})
    events = parser.feed(text) + parser.finish()
    assert events == [CallStart(0, "f"), CallDropped(0, "f", "a number is too large")]


def test_constants_that_are_not_json_are_dropped():
    _, found = read(['<tool_call>[{"name": "f", "arguments": {"a": NaN}}]</tool_call>'])
    assert isinstance(found[-1], CallDropped)
