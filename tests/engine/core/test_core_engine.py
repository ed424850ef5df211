"""Whatever the drafts, batch, chunks, prefix hits and preemptions: the text is the reference's."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.engine.cost import CostCurve
from agentspec.engine.draft import names
from agentspec.engine.request import GenerationRequest
from agentspec.engine.sampling import Entropy, SamplingParams, target_probs
from tests.engine.core.reference import Reference
from tests.engine.core.toy import EOS, FLAT, JSON_LIKE, TOOL_LIKE, VOCAB, Dfa
from tests.engine.core.world import MODEL, PROMPT, World, check_told, make

torch.set_num_threads(1)
STEEP = CostCurve((1, 8, 1024), (1.0, 1.5, 400.0))

PROMPTS = st.builds(
    lambda shared, own: PROMPT[:shared] + own,
    st.sampled_from([0, 5, 8, 12]),
    st.lists(st.integers(1, VOCAB - 1), min_size=1, max_size=12),
)
REQUESTS = st.builds(
    GenerationRequest,
    id=st.just(""),
    prompt=PROMPTS,
    max_tokens=st.integers(1, 24),
    sampling=st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 0.7, 1.5]),
        top_p=st.sampled_from([1.0, 0.8]),
        repetition_penalty=st.sampled_from([1.0, 1.3]),
        seed=st.integers(0, 3),
    ),
    stop=st.sampled_from([(), (b"ab",), (b"ca", b"}{"), (b"\xa9",)]),
    stop_ids=st.sampled_from([frozenset(), frozenset({EOS})]),
    constraint=st.sampled_from([None, None, JSON_LIKE, TOOL_LIKE]),
    sources=st.sampled_from(
        [(), ("oracle",), ("echo",), ("dense",), ("echo", "oracle"), *((name,) for name in names())]
    ),
    session=st.sampled_from([None, "session"]),
    cache_scope=st.sampled_from(["", "", "other"]),
    priority=st.sampled_from([0, 0, 1]),
    logprobs=st.sampled_from([None, None, 0, 2]),
)
EVENTS = st.lists(st.sampled_from(["add", "add", "step", "step", "step", "abort"]), max_size=30)
OPTIONS = st.fixed_dictionaries(
    {
        "step_tokens": st.sampled_from([1, 3, 8, 64]),
        "max_sequences": st.integers(1, 4),
        "max_draft_tokens": st.integers(0, 6),
        "curve": st.sampled_from([FLAT, STEEP]),
        "page_tokens": st.sampled_from([1, 3, 4]),
    }
)


def with_stop_ids(request: GenerationRequest) -> GenerationRequest:
    """The end of a constrained text is a token that the grammar does not hold."""
    if request.constraint is not None:
        request.stop_ids = frozenset({EOS})
    return request


def smallest_pool(requests: list[GenerationRequest], page_tokens: int) -> int:
    """Pages that the longest request needs when it is alone."""
    return max(-(-(len(r.prompt) + r.max_tokens) // page_tokens) for r in requests)


@settings(max_examples=150)
@given(
    requests=st.lists(REQUESTS.map(with_stop_ids), min_size=1, max_size=6),
    events=EVENTS,
    spare_pages=st.integers(0, 8),
    options=OPTIONS,
)
def test_any_schedule_gives_the_reference_text(requests, events, spare_pages, options):
    pages = smallest_pool(requests, options["page_tokens"]) + spare_pages
    world = World(pages=pages, **options)
    for number, request in enumerate(requests):
        request.id = f"r{number}"
    waiting, added, aborted = list(requests), [], set()
    for event in events:
        if event == "add" and waiting:
            world.add(waiting[0])
            added.append(waiting.pop(0))
        elif event == "step":
            world.step()
        elif event == "abort" and added:
            world.abort(added[-1].id)
            aborted.add(added[-1].id)
    told = world.run(*waiting)
    assert set(told) == {request.id for request in requests}
    for request in requests:
        truth = Reference(MODEL, request).decode()
        if told[request.id].finish_reason == "abort":
            assert request.id in aborted
            assert told[request.id].tokens <= len(truth.output)
        else:
            check_told(told[request.id], truth)


def test_drafts_save_passes_and_are_counted():
    plain = World().run(make())["r"].report
    drafted = World().run(make(sources=("oracle",)))["r"].report
    assert plain.hist == [15] and plain.totals() == (0, 0)
    assert drafted.steps < 15
    assert drafted.totals()[1] == sum(j * n for j, n in enumerate(drafted.hist))
    assert sum((j + 1) * n for j, n in enumerate(drafted.hist)) == 16  # the first pass drafts too


def test_prefix_is_served_within_its_scope_only():
    world = World(page_tokens=4)
    world.run(make("a", cache_scope="x"))
    told = world.run(make("b", cache_scope="x"), make("c", cache_scope="y"))
    # 12 prompt tokens are 3 pages, but the last token is always computed.
    assert (told["b"].cached_tokens, told["c"].cached_tokens) == (8, 0)
    assert world.engine.stats().prefix_hit_tokens == 8


def test_generated_pages_are_found_by_the_next_turn():
    world = World(page_tokens=4)
    world.run(make("a", max_tokens=13))
    output = Reference(MODEL, make(max_tokens=13)).decode().output
    told = world.run(make("b", prompt=PROMPT + output + [1]))
    assert told["b"].cached_tokens == 24


def test_step_tokens_bound_every_pass():
    world = World(step_tokens=6, max_draft_tokens=4)
    world.run(*(make(f"r{i}", prompt=PROMPT * 2, sources=("oracle",)) for i in range(4)))
    assert max(world.runner.rows) <= 6


def test_a_long_prompt_does_not_hold_up_decoding():
    world = World(step_tokens=4)
    world.add(make("short", prompt=[1], max_tokens=8))
    world.step()
    world.add(make("long", prompt=PROMPT * 4))
    for _ in range(7):
        world.step()
    assert world.ended == ["short"]
    assert "long" not in world.told


def test_forced_spans_of_one_do_not_starve_another():
    world = World(step_tokens=2, max_sequences=2)
    options = {"constraint": JSON_LIKE, "stop_ids": frozenset({EOS}), "max_tokens": 40}
    world.add(make("a", prompt=[1], **options), make("b", prompt=[1], **options))
    gaps = []
    while not world.ended:
        world.step()
        gaps.append(abs(world.told["a"].tokens - world.told["b"].tokens))
    assert len(gaps) > 6 and max(gaps) <= 8


def test_no_more_sequences_run_than_a_pass_has_rows():
    world = World(step_tokens=2, max_sequences=4)
    world.add(*(make(f"r{i}", prompt=[i + 1]) for i in range(4)))
    world.step()
    assert (world.engine.stats().running, world.engine.stats().waiting) == (2, 2)


def test_drafts_leave_rows_to_prompts():
    world = World(step_tokens=6, max_draft_tokens=6)
    world.add(make("drafts", prompt=[1], max_tokens=60, sources=("oracle",)))
    world.step()
    world.add(make("long", prompt=PROMPT, max_tokens=1))
    for _ in range(6):
        world.step()
    assert world.ended == ["long"]


def test_what_a_draft_computed_is_not_computed_again():
    world = World()
    report = world.run(make(sources=("oracle",)))["r"].report
    drafted, accepted = report.totals()
    # Every token but the last is a row once; so is every draft that was rejected.
    assert sum(world.runner.rows) == len(PROMPT) + 15 + drafted - accepted
    assert world.drafters[0].accepted == accepted


def test_probabilities_of_forced_tokens_are_told_after_a_prefix_hit_too():
    world = World(page_tokens=1)
    options = {"constraint": JSON_LIKE, "stop_ids": frozenset({EOS})}
    world.run(make("a", **options))
    told = world.run(make("b", logprobs=2, **options))["b"]
    assert told.cached_tokens == len(PROMPT) - 1
    check_told(told, Reference(MODEL, make(logprobs=2, **options)).decode())


def test_preemption_takes_the_lowest_and_newest():
    world = World(pages=10, page_tokens=4, max_sequences=3)
    world.run(
        make("low", prompt=[1] * 9, max_tokens=20),
        make("high", prompt=[2] * 9, max_tokens=20, priority=1),
        make("new", prompt=[3] * 9, max_tokens=20),
    )
    assert world.engine.stats().preemptions > 0
    assert world.ended == ["high", "low", "new"]


def test_waiting_is_by_priority_then_arrival():
    world = World(max_sequences=1)
    world.run(make("a"), make("b"), make("c", priority=2), make("d", priority=2))
    assert world.ended == ["c", "d", "a", "b"]


def test_time_of_a_request_that_waits_is_queue_time():
    told = World(max_sequences=1).run(make("a"), make("b"))
    assert told["b"].report.queue_us > told["a"].report.queue_us
    assert told["b"].report.busy_us.prefill > 0 and told["b"].report.busy_us.draft == 0


def test_grammar_and_draft_time_are_measured_where_they_occur():
    told = World().run(
        make("json", constraint=JSON_LIKE, stop_ids=frozenset({EOS})),
        make("draft", sources=("oracle",)),
    )
    json, draft = told["json"].report, told["draft"].report
    assert json.busy_us.grammar > 0 and json.busy_us.draft == 0
    assert draft.busy_us.draft > 0 and draft.busy_us.grammar == 0
    assert json.grammar_cold is False and draft.grammar_cold is None


def test_unseeded_sampling_differs_but_is_legal():
    request = make(
        sampling=SamplingParams(temperature=1.0),
        constraint=JSON_LIKE,
        sources=("dense",),
        stop_ids=frozenset({EOS}),
    )
    texts = Counter(World().run(request)["r"].text for _ in range(8))
    assert len(texts) > 1
    assert all(text[0] == "{" and text[-1] == "}" and text.count("{") == 1 for text in texts)


@pytest.mark.parametrize("constraint", [None, JSON_LIKE])
@pytest.mark.parametrize("curve", [FLAT, STEEP])
def test_rejection_sampling_keeps_the_distribution(constraint, curve, monkeypatch):
    """Dense drafts, cut by the cost curve: the first two free tokens are distributed as plain ones.

    The keys of the randomness are fixed, so this test has one outcome.
    """
    keys = iter(range(10**6))
    monkeypatch.setattr(Entropy, "of", lambda seed: Entropy(next(keys), seeded=False))
    runs, params = 800, SamplingParams(temperature=1.2)
    options = {"sampling": params, "constraint": constraint, "sources": ("dense",), "logprobs": 0}
    if constraint:  # beyond reach of the close-out guard
        options |= {"stop_ids": frozenset({EOS}), "max_tokens": 12}
    else:
        options |= {"max_tokens": 4}
    world = World(curve=curve, max_sequences=16, max_waiting=runs)
    tokens: dict[str, list[int]] = {f"r{i}": [] for i in range(runs)}
    world.add(*(make(id, prompt=[3], **options) for id in tokens))
    while world.engine.has_work():
        for output in world.engine.step():
            tokens[output.id] += [info.token for info in output.infos]
    skip = 3 if constraint else 0  # the forced start
    seen = Counter(tuple(ids[skip : skip + 2]) for ids in tokens.values())
    start = [3, *next(iter(tokens.values()))[:skip]]
    pairs = exact_pairs(start, constraint, params)
    assert chi_square_excess(seen, pairs, runs) < 4.0
    assert chi_square_excess(of_first(seen), of_first(pairs), runs) < 4.0


def of_first(pairs: dict) -> Counter:
    """Counts or probabilities of pairs, summed over the second token."""
    total: Counter = Counter()
    for (first, _), value in pairs.items():
        total[first] += value
    return total


def exact_pairs(start: list[int], dfa: Dfa | None, params: SamplingParams) -> dict:
    """P(the two tokens after ``start``), by enumeration."""

    def next_probs(tokens: list[int], state: str) -> list[float]:
        allowed = None
        if dfa:
            allowed = torch.tensor([token in dfa.options(state) for token in range(VOCAB)])
        return target_probs(MODEL.logits(tokens), params, allowed).tolist()

    state = "value" if dfa else ""
    pairs = {}
    for first, p in enumerate(next_probs(start, state)):
        if p > 0:
            after = dfa.options(state)[first] if dfa else ""
            for second, q in enumerate(next_probs([*start, first], after)):
                pairs[first, second] = p * q
    return pairs


def chi_square_excess(seen: Counter, probs: dict, runs: int) -> float:
    """Chi-square over cells of at least 5 expected (the rest is one cell), in deviations of it."""
    assert all(probs[cell] > 0 for cell in seen)
    cells = [(seen[cell], runs * p) for cell, p in probs.items() if runs * p >= 5]
    rest = (runs - sum(c[0] for c in cells), runs - sum(c[1] for c in cells))
    if rest[1] > 5:
        cells.append(rest)
    chi_square = sum((count - expected) ** 2 / expected for count, expected in cells)
    freedom = len(cells) - 1
    return (chi_square - freedom) / (2 * freedom) ** 0.5
