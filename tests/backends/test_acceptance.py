"""What servers tell about their speculation: each spelling, its source, and what is not believed.

The shapes in ``shapes/`` say how they came about; the figures expected of them are worked out from
the histograms and step lists in them, not from the fields that are read.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from agentspec.backends.acceptance import Told, report_of
from agentspec.backends.base import Turn
from agentspec.backends.foreign import decode, to_chunk, to_response
from agentspec.wire.chat import decode_request

SHAPES = Path(__file__).parent / "shapes"
REQUEST = decode_request(b'{"model":"mine","messages":[{"role":"user","content":"x"}]}')
TURN = Turn(id="1", request=REQUEST, body={}, upstream_model="theirs", created_s=9)

SGLANG = {"spec_verify_ct": 5, "spec_draft_token_num": 20, "spec_accept_token_num": 9}
VLLM = {"num_spec_steps": 3, "num_draft_tokens": 9, "num_accepted_draft_tokens": 4}
NAMED = {"sources": {"suffix": {"drafted": 3, "accepted": 1}}, "steps": 2}


def shape(name: str) -> dict:
    return json.loads((SHAPES / name).read_text())


def chunk(body: dict):
    return to_chunk(decode(json.dumps(body).encode()), TURN)


def test_vllm():
    body = shape("vllm_usage_chunk.json")
    steps = body["metrics"]["speculative_decoding"]["per_step_accepted"]
    report, usage = chunk(body).agentspec, chunk(body).usage
    assert report.steps == len(steps) and report.totals() == (3 * len(steps), sum(steps))
    assert report.hist == [steps.count(j) for j in range(4)]
    assert list(report.sources) == ["vllm"] and report.queue_us == 12_500
    assert (usage.prompt_tokens_details.cached_tokens, usage.completion_tokens) == (96, 20)


def test_sglang():
    body = shape("sglang_usage_chunk.json")
    report, usage = chunk(body).agentspec, chunk(body).usage
    assert report.totals() == (20, 12) and list(report.sources) == ["sglang"]
    length = body["sglext"]["spec_tokens_details"]["spec_accept_length"]
    assert usage.completion_tokens / report.steps == pytest.approx(length)
    assert sum(report.hist) == report.steps and usage.prompt_tokens_details.cached_tokens == 96


def test_llamacpp():
    answer = to_response(decode((SHAPES / "llamacpp_answer.json").read_bytes()), TURN)
    report = answer.agentspec
    assert list(report.sources) == ["llamacpp"] and report.totals() == (12, 8)
    # 20 tokens: the prompt's own, 8 drafted ones, and one of each step.
    assert 1 + 8 + report.steps == 20
    assert answer.usage.prompt_tokens_details.cached_tokens == 33 - 13


def test_newer_llamacpp_tells_its_cache_itself():
    body = shape("llamacpp_answer.json")
    body["timings"]["cache_n"] = 21
    answer = to_response(decode(json.dumps(body).encode()), TURN)
    assert answer.usage.prompt_tokens_details.cached_tokens == 21


def test_older_names_and_our_own():
    report = report_of(Told(sglext={"spec_tokens_details": SGLANG}, out_tok=14))
    assert report and (report.steps, report.totals(), report.hist) == (5, (20, 9), [])
    own = report_of(Told(agentspec=NAMED, metrics={"speculative_decoding": VLLM}))
    assert own and own.sources["suffix"].drafted == 3 and own.steps == 2


@pytest.mark.parametrize("hist", [[9], [1, 0, 1], [2, 1], [3, -1, 1], [1, "x", 2]])
def test_a_histogram_that_does_not_add_up_is_left_out(hist):
    found = {"speculative_decoding": VLLM | {"acceptance_histogram": hist}}
    report = report_of(Told(metrics=found, out_tok=7))
    assert report and report.steps == 3 and report.hist == []


def test_a_histogram_that_adds_up_is_kept():
    found = {"speculative_decoding": VLLM | {"acceptance_histogram": [1, 0, 2]}}
    report = report_of(Told(metrics=found, out_tok=7))
    assert report and report.hist == [1, 0, 2]


@pytest.mark.parametrize(
    "told",
    [
        Told(),
        Told(metrics={}),
        Told(metrics={"speculative_decoding": None}),
        Told(metrics={"speculative_decoding": VLLM | {"num_accepted_draft_tokens": 10}}),
        Told(metrics={"speculative_decoding": VLLM | {"num_draft_tokens": -1}}),
        Told(metrics={"speculative_decoding": VLLM}, out_tok=2),  # fewer tokens than steps
        Told(sglext={"spec_tokens_details": [SGLANG, SGLANG]}),
        Told(sglext={"spec_tokens_details": SGLANG}, out_tok=4),
        Told(timings={"predicted_n": 20}),
        Told(timings={"predicted_n": 5, "draft_n": 12, "draft_n_accepted": 8}),
        Told(agentspec={"v": 99}),
        Told(agentspec={"steps": "three"}),
    ],
    ids=str,
)
def test_nothing_or_nonsense_is_no_report(told):
    assert report_of(told) is None


def test_parts_of_usage_are_at_most_their_whole():
    body = copy.deepcopy(shape("vllm_usage_chunk.json"))
    body["usage"]["prompt_tokens_details"]["cached_tokens"] = 500
    body["usage"]["completion_tokens_details"] = {"reasoning_tokens": 99}
    body["usage"]["total_tokens"] = 1
    usage = chunk(body).usage
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens == 120
    assert usage.completion_tokens_details.reasoning_tokens == usage.completion_tokens == 20
    assert usage.total_tokens == 140
