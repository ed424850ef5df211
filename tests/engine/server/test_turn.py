"""A chat request -> sequences: defaults, limits, refusals that name their field."""

from __future__ import annotations

import math

import msgspec
import pytest

from agentspec.engine.sampling import SamplingParams
from agentspec.engine.turn import Turn
from agentspec.wire.chat import ChatRequest, decode_request, encode
from agentspec.wire.errors import ContextLengthExceeded, InvalidRequest, ModelNotFound
from tests.engine.server.fakes import CONTEXT_TOKENS, MODEL, ByteTokenizer, NoCompiler, planner

HI = [{"role": "user", "content": "hi"}]
HI_TOKENS = len("<user>hi\n")
TOOL = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}


def plan(compiler: NoCompiler | None = None, arrival_s: float = 100.0, **fields) -> Turn:
    body = encode({"model": MODEL, "messages": HI} | fields)
    return planner(compiler).plan(decode_request(body), arrival_s)


def test_absent_fields_take_openais_defaults():
    (sequence,) = plan().sequences
    assert sequence.sampling == SamplingParams()
    assert bytes(sequence.prompt) == b"<user>hi\n"
    assert sequence.max_tokens == CONTEXT_TOKENS - HI_TOKENS
    assert sequence.sources == ("suffix", "ngram")
    assert sequence.stop_ids == {256}
    assert (sequence.stop, sequence.logprobs, sequence.constraint) == ((), None, None)
    assert (sequence.cache_scope, sequence.session, sequence.deadline_s) == ("", None, None)


def test_given_fields_arrive():
    (sequence,) = plan(
        temperature=0,
        top_p=0.5,
        top_k=-1,
        min_p=0.1,
        presence_penalty=-2,
        frequency_penalty=2,
        repetition_penalty=1.1,
        logit_bias={"65": -100, "256": 3.5, "50256": 2},
        seed=-7,
        stop=["é", "\n\n"],
        max_tokens=5,
        logprobs=True,
        top_logprobs=20,
        unheard_of={"x": [1]},
        agentspec={
            "session": "s",
            "cache_scope": "tenant",
            "speculation": ["ngram"],
            "deadline_ms": 1500,
            "priority": 3,
            "arm": "control",
        },
    ).sequences
    assert sequence.sampling == SamplingParams(
        temperature=0.0,
        top_p=0.5,
        top_k=0,
        min_p=0.1,
        presence_penalty=-2.0,
        frequency_penalty=2.0,
        repetition_penalty=1.1,
        logit_bias={65: -100.0, 256: 3.5},
        seed=-7,
    )
    assert sequence.stop == ("é".encode(), b"\n\n")
    assert (sequence.max_tokens, sequence.logprobs) == (5, 20)
    assert (sequence.session, sequence.cache_scope, sequence.priority) == ("s", "tenant", 3)
    assert sequence.sources == ("ngram",)
    assert sequence.deadline_s == 101.5


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 2.01}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 1.1}, "min_p"),
        ({"presence_penalty": 2.5}, "presence_penalty"),
        ({"frequency_penalty": -2.5}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"logit_bias": {"65": 101}}, "logit_bias.65"),
        ({"logit_bias": {"257": 101}}, "logit_bias.257"),
        ({"logit_bias": {"-1": 1}}, "logit_bias.-1"),
        ({"logit_bias": {"x": 1}}, "logit_bias.x"),
        ({"logit_bias": {"²": 1}}, "logit_bias.²"),
        ({"logit_bias": {"0" * 5000: 1}}, "logit_bias." + "0" * 5000),
        ({"seed": 1 << 63}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"n": 0}, "n"),
        ({"n": 17}, "n"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", ""]}, "stop"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": -5}, "max_completion_tokens"),
        ({"agentspec": {"speculation": ["eagle9"]}}, "agentspec.speculation"),
        ({"agentspec": {"speculation": "on"}}, "agentspec.speculation"),
        ({"agentspec": {"deadline_ms": 0}}, "agentspec.deadline_ms"),
        ({"agentspec": {"v": 2}}, "agentspec.v"),
        ({"messages": []}, "messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
            "messages[0].content[0]",
        ),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": "maybe"}, "tool_choice"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
    ],
)
def test_a_bad_field_is_refused_by_its_name(fields, param):
    with pytest.raises(InvalidRequest) as refused:
        plan(**fields)
    assert refused.value.param == param


def test_only_the_served_model_exists():
    with pytest.raises(ModelNotFound) as refused:
        plan(model="gpt-4")
    assert refused.value.param == "model"


def test_an_unknown_draft_source_is_told_which_there_are():
    with pytest.raises(InvalidRequest, match="'suffix', 'ngram'"):
        plan(agentspec={"speculation": ["suffix", "magic"]})


@pytest.mark.parametrize(
    ("wanted", "sources"),
    [
        ("off", ()),
        ("auto", ("suffix", "ngram")),
        ([], ()),
        (["ngram", "suffix"], ("suffix", "ngram")),
        (["forced"], ()),
    ],
)
def test_speculation_chooses_sources_in_the_engines_order(wanted, sources):
    assert plan(agentspec={"speculation": wanted}).sequences[0].sources == sources


def test_the_longest_prompt_leaves_room_for_one_token():
    room = CONTEXT_TOKENS - HI_TOKENS + len("hi")
    longest = [{"role": "user", "content": "x" * (room - 1)}]
    turn = plan(messages=longest)
    assert (turn.prompt_tokens, turn.sequences[0].max_tokens) == (CONTEXT_TOKENS - 1, 1)
    with pytest.raises(ContextLengthExceeded, match=f"maximum context length is {CONTEXT_TOKENS}"):
        plan(messages=[{"role": "user", "content": "x" * room}])


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(
    ("wanted", "limit", "clamped"),
    [
        (7, 7, None),
        (CONTEXT_TOKENS - HI_TOKENS, CONTEXT_TOKENS - HI_TOKENS, None),
        (128_000, CONTEXT_TOKENS - HI_TOKENS, CONTEXT_TOKENS - HI_TOKENS),
    ],
)
def test_a_limit_that_does_not_fit_is_clamped_and_said(field, wanted, limit, clamped):
    turn = plan(**{field: wanted})
    assert turn.sequences[0].max_tokens == limit
    assert turn.max_tokens_clamped == clamped


def test_choices_share_the_prompt_and_differ_in_noise():
    turn = plan(n=3, seed=11)
    assert turn.prompt_tokens == HI_TOKENS
    assert [s.id for s in turn.sequences] == [f"{turn.id}-{i}" for i in range(3)]
    assert len({tuple(s.prompt) for s in turn.sequences}) == 1
    seeds = [s.sampling.seed for s in turn.sequences]
    assert seeds[0] == 11, "choice 0 is the answer that n=1 would give"
    assert len(set(seeds)) == 3
    assert [s.sampling.seed for s in plan(n=2).sequences] == [None, None]


def test_a_demanded_form_is_compiled_and_free_text_is_not():
    compiler = NoCompiler()
    assert plan(compiler).sequences[0].constraint is None
    turn = plan(compiler, tools=[TOOL], tool_choice="required", n=2)
    assert [spec.calls for spec in compiler.specs] == ["must"]
    first, second = turn.sequences
    assert first.constraint is second.constraint is not None


def test_tokenize_counts_as_a_turn_would():
    from agentspec.wire.service import TokenizeRequest

    messages = decode_request(encode({"model": MODEL, "messages": HI})).messages
    counted = planner().tokenize(TokenizeRequest(messages=messages))
    assert counted.tokens == plan().sequences[0].prompt
    assert (counted.count, counted.max_model_len) == (HI_TOKENS, CONTEXT_TOKENS)
    assert planner().tokenize(TokenizeRequest(prompt="é")).tokens == list("é".encode())
    with pytest.raises(InvalidRequest) as refused:
        planner().tokenize(TokenizeRequest())
    assert refused.value.param == "prompt"


def test_the_arrival_counts_for_the_deadline_not_the_planning():
    turn = plan(arrival_s=5.0, agentspec={"deadline_ms": 250})
    assert math.isclose(turn.sequences[0].deadline_s or 0, 5.25)


def test_a_prompt_of_megabytes_is_refused_without_being_tokenized(monkeypatch):
    def encode(*args, **kwargs):
        raise AssertionError("tokenized")

    monkeypatch.setattr(ByteTokenizer, "render", encode)
    long = [{"role": "user", "content": "x" * (CONTEXT_TOKENS * 2)}] * 2
    with pytest.raises(ContextLengthExceeded, match="at least"):
        plan(messages=long)


def nested(levels: int) -> dict:
    value: dict = {}
    for _ in range(levels):
        value = {"x-note": value}
    return value


@pytest.mark.parametrize("place", ["tools", "response_format"])
def test_a_schema_too_deep_for_those_who_walk_it_is_named(place):
    """Also where its depth is that of a keyword which nobody knows."""
    function = {"name": "deep", "parameters": {"type": "object", "x-note": nested(900)}}
    param = "tools[1].function.parameters"
    fields = {"tools": [{"function": {"name": "flat"}}, {"function": function}]}
    if place == "response_format":
        schema = {"name": "a", "schema": function["parameters"]}
        fields = {"response_format": {"type": "json_schema", "json_schema": schema}}
        param = "response_format.json_schema.schema"
    asked = msgspec.convert(
        {"model": MODEL, "messages": [{"role": "user", "content": "x"}]} | fields, ChatRequest
    )

    class Walks(NoCompiler):
        def compile(self, spec):
            raise RecursionError

    with pytest.raises(InvalidRequest) as caught:
        planner(Walks()).plan(asked, 0.0)
    assert caught.value.param == param
