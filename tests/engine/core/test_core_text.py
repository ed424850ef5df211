"""Text buffer and emission: characters whole, stop strings cut, probabilities beside their text."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentspec.engine.emission import Emission
from agentspec.engine.request import TokenInfo
from agentspec.engine.textbuffer import TextBuffer
from tests.engine.core.reference import cut_at_stop

PIECES = st.lists(
    st.one_of(
        st.text("aé€𝄞", min_size=1, max_size=2).map(str.encode),
        st.sampled_from([b"a", b"b", b"\xc3", b"\xa9", b"\xf0\x9d", b"\xff", b""]),
    ),
    max_size=12,
)
STOPS = st.lists(
    st.sampled_from([b"ab", b"aab", b"ba", b"\xc3\xa9a", b"\xa9", b"bbbb"]), max_size=3
).map(tuple)


@given(PIECES, STOPS, st.randoms(use_true_random=False))
@example([b"abc"], (b"b", b"abc"), None)
def test_borders_of_tokens_do_not_matter(pieces, stop, random):
    data = b"".join(pieces)
    whole = cut_at_stop(data, stop)
    expected = (data if whole is None else whole).decode("utf-8", errors="replace")
    buffer, text = TextBuffer(stop), ""
    for piece in pieces:
        text += buffer.feed(piece)
        assert expected.startswith(text)
    assert text + buffer.flush() == expected
    assert buffer.stopped == (whole is not None)
    if whole is not None:
        assert buffer.stopped_by in stop and data.startswith(whole + buffer.stopped_by)


def test_no_text_is_held_longer_than_it_must_be():
    buffer = TextBuffer((b"stop",))
    assert [buffer.feed(p) for p in (b"a st", b"o", b"ne s", b"t")] == ["a ", "", "stone ", ""]
    assert buffer.flush() == "st"


def test_a_character_waits_for_its_last_byte():
    buffer = TextBuffer()
    assert [buffer.feed(bytes([byte])) for byte in "é𝄞".encode()] == ["", "é", "", "", "", "𝄞"]


def test_invalid_bytes_become_replacement_characters():
    buffer = TextBuffer()
    assert buffer.feed(b"a\xffb") == "a\ufffdb"
    assert buffer.feed(b"\xe2\x82") == "" and buffer.flush() == "\ufffd"


def test_stop_strings_do_not_apply_to_constrained_output():
    buffer = TextBuffer((b"ab",))
    assert buffer.feed(b"a") == ""
    assert buffer.feed(b"b{ab", literal=True) == "ab{ab"
    assert buffer.feed(b"b") == "b" and not buffer.stopped
    assert buffer.feed(b"xab") == "x" and buffer.stopped
    assert buffer.feed(b"more") == "" and buffer.flush() == ""


def info(token: int) -> TokenInfo:
    return TokenInfo(token, -1.0)


def test_text_waits_for_its_probabilities():
    emission = Emission((), wants_infos=True)
    emission.push(5, b"a", literal=False)
    emission.push(6, b"b", literal=False)
    assert emission.take() == ("", []) and emission.waiting_from == 5
    emission.inform(5, info(1))
    assert emission.take() == ("a", [info(1)])
    emission.push(7, b"\xc3", literal=False)
    emission.finish()
    emission.inform(6, info(2))
    emission.inform(7, info(9))
    assert emission.take() == ("b\ufffd", [info(2), info(9)]) and emission.waiting_from is None


def test_infos_out_of_order_are_a_bug():
    emission = Emission((), wants_infos=True)
    emission.push(5, b"a", literal=False)
    with pytest.raises(AssertionError):
        emission.inform(6, info(1))


def test_an_abandoned_sequence_gives_its_text_without_probabilities():
    emission = Emission((b"zz",), wants_infos=True)
    emission.push(5, b"az", literal=False)
    emission.finish()
    emission.abandon()
    assert emission.take() == ("az", [])
