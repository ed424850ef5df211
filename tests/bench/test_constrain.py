"""What ``bench constrain`` makes of its measurements."""

from __future__ import annotations

from agentspec.bench.constrain import Pairs, call_rows, first_token_rows
from agentspec.bench.workloads import Run


def made(text: str, tok_s: float, looped: bool = False) -> Run:
    return Run(
        case="c",
        workload="tool",
        out_tokens=9,
        tok_s=tok_s,
        prefill_tok_s=1.0,
        accepted_length=1.0,
        looped=looped,
        text=text,
    )


def test_what_is_added_is_told_round_by_round():
    times = {"none": [10.0, 20.0, 90.0], "warm": [11.0, 22.0, 93.0]}
    none, warm = first_token_rows("first-token", "auto", times)
    assert none["added_p50_ms"] is None and none["p50_ms"] == 20.0
    assert warm["added_p50_ms"] == 2.0 and warm["n"] == 3


def test_only_equal_texts_that_do_not_loop_are_compared():
    held = [made("a", 30), made("b", 99), made("c", 99, looped=True)]
    free = [made("a", 10), made("x", 1), made("c", 1)]
    none, warm = call_rows("plain", Pairs(held, free))
    assert (none["tok_s"], warm["tok_s"], warm["over_free"]) == (10, 30, 3.0)
    assert warm["same_text"] == 2 and warm["n"] == 1
