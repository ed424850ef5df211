"""The harness on the toy engine: two methods, few prompts, everything it must notice."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from agentspec.bench.compare import figures, plots
from agentspec.bench.compare.drive import Answer, Driver
from agentspec.bench.compare.harness import BASELINE, Design, Item, Sampling, Shot, shots
from agentspec.bench.compare.methods import Variant, parse_methods, variants
from agentspec.bench.compare.page import page
from agentspec.bench.compare.rounds import WATCH, Watch
from agentspec.bench.compare.run import document
from agentspec.engine.draft import create
from agentspec.engine.request import GenerationRequest
from agentspec.engine.sampling import SamplingParams
from tests.engine.core.toy import OracleDrafter, ToyModel, ToyRunner, make_engine

SUFFIX, ORACLE = parse_methods(["suffix", "oracle"], ["oracle"])[1:]
METHODS = [BASELINE.method, SUFFIX, ORACLE]
ITEMS = [Item(f"item-{i}", "code", grammar=False) for i in range(4)]


class Toy:
    """Asks a toy engine; ``spoils`` changes an answer on the way."""

    def __init__(self):
        model, watch = ToyModel(), Watch()
        runner = ToyRunner(model, num_pages=64)
        self.engine = make_engine(runner, [create("suffix"), OracleDrafter(model), watch])
        self.driver = Driver(self.engine, watch, lambda text: "aaaaaa" in text)
        self.asked: list[tuple[str, str, float]] = []

    def spoil(self, item: Item, variant: Variant, answer: Answer) -> Answer:
        return answer

    def ask(
        self, item: Item, variant: Variant, sampling: Sampling, text: str | None = None
    ) -> Answer:
        self.asked.append((item.id, variant.method.name, sampling.temperature))
        name = f"{len(self.asked)}"
        sources = variant.method.sources
        request = GenerationRequest(
            id=name,
            prompt=random.Random(item.id).choices(range(1, 9), k=12),
            max_tokens=24,
            sampling=SamplingParams(temperature=sampling.temperature, seed=sampling.seed),
            sources=(*sources, WATCH) if sources else (),
            cache_scope=name,
        )
        return self.spoil(item, variant, self.driver.answer(request, variant.mode))


def design(**more) -> Design:
    return Design(variants(METHODS, ["k3"], (True, False), ()), **more)


def silent(text: str) -> None:
    """No progress in tests."""


def test_every_method_answers_every_prompt_beside_plain_decoding():
    toy = Toy()
    taken = list(shots(toy, ITEMS, design(temperatures=(0.0, 1.0), samples=2), silent))
    assert len(taken) == len(ITEMS) * 3
    assert all(len(shot.answers) == 3 and BASELINE in shot.answers for shot in taken)
    assert not any(shot.other_text for shot in taken)
    assert {shot.sampling.decided for shot in taken} == {True}
    assert len({s.sampling.seed for s in taken if s.sampling.temperature}) == len(ITEMS) * 2
    # One uncounted round first, then all methods of a prompt before the next prompt.
    assert len(toy.asked) == 3 * (len(taken) + 1)
    counted = [toy.asked[i : i + 3] for i in range(3, len(toy.asked), 3)]
    assert all(len({(item, t) for item, _, t in three}) == 1 for three in counted)
    assert len({tuple(m for _, m, _ in three) for three in counted}) > 1, "the order is drawn"


def test_rounds_agree_with_the_engine_s_own_counts():
    taken = list(shots(Toy(), ITEMS, design(), silent))
    for one in taken:
        for variant, answer in one.answers.items():
            assert sum(r.accepted for r in answer.rounds) == answer.accepted
            assert sum(r.width for r in answer.rounds) == answer.drafted
            assert all(r.width <= 3 for r in answer.rounds)
            assert bool(answer.rounds) <= bool(variant.method.sources)
    oracle = next(v for v in taken[0].answers if v.method == ORACLE)
    assert all(one.answers[oracle].accepted > 0 for one in taken)


def test_rows_are_the_sums():
    taken = list(shots(Toy(), ITEMS, design(), silent))
    (cell,) = figures.cells(taken)
    rows = {row["method"]: row for row in figures.rows(cell)}
    assert list(rows) == ["none", "suffix", "oracle"]
    oracle = [s.answers[v] for s in taken if not s.looped for v in s.answers if v.method == ORACLE]
    steps, accepted = sum(a.steps for a in oracle), sum(a.accepted for a in oracle)
    assert rows["oracle"]["accepted_length"] == pytest.approx(1 + accepted / steps, abs=1e-4)
    assert rows["oracle"]["n"] + rows["oracle"]["looped"] == len(ITEMS)
    assert (rows["none"]["accepted_length"], rows["none"]["speedup"]) == (1.0, 1.0)
    assert rows["none"]["ci95"] == [1.0, 1.0]
    assert not any(row["masked"] for row in rows.values()), "there is no grammar"
    low, high = rows["oracle"]["ci95"]
    assert low <= rows["oracle"]["accepted_length"] <= high


def test_another_text_is_found():
    class Wrong(Toy):
        def spoil(self, item: Item, variant: Variant, answer: Answer) -> Answer:
            wrong = item.id == "item-2" and variant.method == ORACLE
            return replace(answer, text=answer.text + "b") if wrong else answer

    taken = list(shots(Wrong(), ITEMS, design(temperatures=(0.0, 1.0)), silent))
    told = document(taken, seed=0)
    assert [(o["case"], o["method"]) for o in told["other_text"]] == [("item-2", "oracle")] * 2
    assert told["checked"] == 2 * 2 * len(ITEMS)
    assert "2 answers differ" in page(told | {"target": "toy"})


def test_free_sampling_is_not_compared():
    taken = list(shots(Toy(), ITEMS, design(temperatures=(1.0,), seeded=False), silent))
    assert document(taken, seed=0)["checked"] == 0
    assert all(row["seeded"] is False for row in document(taken, seed=0)["results"])


def test_a_loop_counts_for_no_method():
    class Looping(Toy):
        def spoil(self, item: Item, variant: Variant, answer: Answer) -> Answer:
            looped = item.id == "item-1" and variant.method == SUFFIX
            return replace(answer, looped=looped)

    told = document(list(shots(Looping(), ITEMS, design(), silent)), seed=0)
    assert {(row["n"], row["looped"]) for row in told["results"]} == {(len(ITEMS) - 1, 1)}
    assert sum(answer["looped"] for answer in told["answers"]) == 1, "it is recorded"


def shot(item: Item, seconds: dict[str, float]) -> Shot:
    """Ten tokens by each method in so many seconds."""
    answers = {
        v: Answer(text="", out_tokens=10, tokens=10, seconds=seconds[v.method.name], steps=5)
        for v in design().variants_of(item)
    }
    return Shot(item, Sampling(0.0), answers)


def test_speedups_and_quotients_by_hand():
    """Plain: 2 + 4 seconds; oracle 1 + 2: twice as fast; suffix 2 + 2: 1.5 times."""
    taken = [
        shot(ITEMS[0], {"none": 2.0, "suffix": 2.0, "oracle": 1.0}),
        shot(ITEMS[1], {"none": 4.0, "suffix": 2.0, "oracle": 2.0}),
    ]
    told = document(taken, seed=0)
    rows = {row["method"]: row for row in told["results"]}
    assert (rows["oracle"]["speedup"], rows["oracle"]["speedup_ci95"]) == (2.0, [2.0, 2.0])
    assert (rows["suffix"]["speedup"], rows["suffix"]["speedup_ci95"]) == (1.5, [1.0, 2.0])
    assert rows["oracle"]["tok_s"] == pytest.approx(20 / 3, abs=1e-4)
    assert rows["none"]["tok_s"] == pytest.approx(10 / 3, abs=1e-4)
    pairs = {(p["a"], p["b"]): p for p in told["pairs"]}
    assert pairs["oracle", "suffix"]["speed_ratio"] == pytest.approx(4 / 3, abs=1e-4)
    assert rows["oracle"]["resolves_5_percent"] and not rows["suffix"]["resolves_5_percent"]


def test_masked_and_blind_rows_under_a_grammar():
    item = Item("t", "tool", grammar=True)
    found = variants(METHODS, ["adaptive", "k3"], (True, False), ["oracle"])
    names = [(v.method.name, v.schedule, v.masked, v.mode) for v in Design(found).variants_of(item)]
    assert ("suffix", "adaptive", False, "blind") in names
    assert ("oracle", "k3", False, "k3") in names
    assert ("suffix", "k3", False, "k3") not in names, "nothing would differ"
    assert len(names) == len(set(names)) == 1 + 3 + 4
    free = Design(found).variants_of(replace(item, grammar=False))
    assert all(v.masked for v in free) and len(free) == 5


def test_the_page_and_the_plots_hold_every_method(tmp_path):
    told = document(list(shots(Toy(), ITEMS, design(), silent)), seed=0) | {"target": "toy"}
    text = page(told)
    assert "## code, T = 0, k3" in text and "| oracle | suffix |" in text
    assert f"commit {told['commit']}" in text and "agentspec 0" in text
    written = plots.write(tmp_path, told)
    assert {path.name for path in written} >= {"speedup-T0-k3.svg", "position-code-T0-k3.svg"}
    assert all("oracle" in path.read_text() for path in written)
