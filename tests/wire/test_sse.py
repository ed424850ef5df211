"""SSE parsing against the specification's rules, whatever the cuts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.wire import sse
from agentspec.wire.errors import UpstreamFailed

values = st.lists(
    st.dictionaries(st.text(max_size=5), st.text(max_size=20) | st.integers(), max_size=3),
    max_size=6,
)


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    borders = sorted({0, len(raw), *(place % (len(raw) + 1) for place in places)})
    return [raw[a:b] for a, b in zip(borders, borders[1:], strict=False)]


@given(values, st.lists(st.integers(min_value=0), max_size=12), st.sampled_from(["\n", "\r\n"]))
def test_events_survive_every_way_of_cutting(events, places, newline):
    raw = b"".join(sse.event(value) + sse.KEEPALIVE for value in events) + sse.DONE
    raw = raw.replace(b"\n", newline.encode())
    parser = sse.EventParser()
    seen = [data for piece in cut(raw, places) for data in parser.feed(piece)]
    assert [json.loads(data) for data in seen[:-1]] == events
    assert seen[-1] == b"[DONE]"
    assert parser.idle


def test_data_lines_of_one_event_are_joined_and_other_fields_dropped():
    raw = b'event: x\nid: 7\ndata: {"a":\ndata:1}\nretry: 3\n\n'
    assert list(sse.EventParser().feed(raw)) == [b'{"a":\n1}']


def test_an_unfinished_event_is_not_idle():
    parser = sse.EventParser()
    assert list(parser.feed(b"data: {}\n")) == []
    assert not parser.idle


@pytest.mark.parametrize("newline", [b"", b"\n"])
def test_an_endless_event_is_refused(newline):
    parser = sse.EventParser()
    line = b"data: " + b"x" * (1024 * 1024) + newline
    with pytest.raises(UpstreamFailed):
        for _ in range(9):
            list(parser.feed(line))


def test_carriage_returns_alone_end_lines_and_a_byte_order_mark_is_none_of_them():
    raw = sse.BOM + b"data: 1\r\rdata: 2\r\n\r\ndata: 3\n\ndata: [DONE]\r\r"
    for cuts in (range(len(raw) + 1), [0, len(raw)]):
        parser = sse.EventParser()
        pieces = [raw[a:b] for a, b in zip(cuts, list(cuts)[1:], strict=False)]
        assert [d for p in pieces for d in parser.feed(p)] == [b"1", b"2", b"3", b"[DONE]"]
