"""A draft model: what it drafts stands where it agrees; its pages and chunks show in no text."""

from __future__ import annotations

import pytest

from agentspec.engine.draft.draft_model import (
    DraftModelDrafter,
    TokenizerMismatch,
    require_same_tokenizer,
)
from agentspec.engine.sampling import SamplingParams
from tests.engine.core.reference import Reference
from tests.engine.core.toy import (
    EOS,
    JSON_LIKE,
    TOOL_LIKE,
    VOCAB,
    ToyModel,
    ToyRunner,
)
from tests.engine.core.world import MODEL, PROMPT, World, check_told, make

OTHER = ToyModel(seed=9)
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0.0),
    "seeded": SamplingParams(temperature=0.9, seed=11),
    "penalised": SamplingParams(temperature=0.7, seed=5, frequency_penalty=0.4, logit_bias={2: 1}),
}


class Watched(DraftModelDrafter):
    """Checks its pages after everything that happens."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.seen = self._texts
        self.accepted = self.asked = 0

    def propose(self, views, limits):
        self.asked += len(views)
        proposals = super().propose(views, limits)
        self.check()
        assert self.ask_again is False or super().propose(views, limits) == proposals
        return proposals

    ask_again = False

    def commit(self, view, proposal, accepted, committed):
        super().commit(view, proposal, accepted, committed)
        self.accepted += accepted
        self.check()

    def check(self) -> None:
        self._pool.check_integrity(text.table for text in self._texts.values())


def drafter(model: ToyModel = MODEL, pages: int = 64, **options) -> Watched:
    runner = ToyRunner(model, num_pages=pages, page_tokens=4)
    return Watched(runner, **{"min_survival": 0.0, **options})


@pytest.mark.parametrize("model", [MODEL, OTHER], ids=["itself", "another"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("constraint", [None, JSON_LIKE, TOOL_LIKE], ids=["free", "json", "tool"])
@pytest.mark.parametrize("count", [1, 8])
def test_text_is_the_references_whoever_drafts(model, sampling, constraint, count):
    mine = drafter(model)
    mine.ask_again = sampling == "greedy"
    world = World(mine)
    requests = [
        make(
            f"r{i}",
            [*PROMPT, i % 7 + 1],
            sampling=SAMPLINGS[sampling],
            constraint=constraint,
            sources=("draft_model",),
            stop_ids=frozenset({EOS}),
            max_tokens=12 + i,
        )
        for i in range(count)
    ]
    told = world.run(*requests)
    for request in requests:
        check_told(told[request.id], Reference(MODEL, request).decode())
    assert mine.asked > 0


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_target_as_its_own_draft_is_always_right(sampling):
    mine = drafter()
    world = World(mine, max_draft_tokens=5)
    told = world.run(make(sampling=SAMPLINGS[sampling], sources=("draft_model",), max_tokens=25))[
        "r"
    ]
    count = told.report.sources["draft_model"]
    assert count.accepted == count.drafted > 0
    assert told.report.hist == [1, 0, 0, 0, 0, 4], "five drafted tokens and their bonus each time"


def test_unseeded_drafts_are_dense_and_of_the_targets_own_law():
    mine = drafter()
    world = World(mine, max_draft_tokens=5)
    told = world.run(
        make(
            sampling=SamplingParams(temperature=1.0, top_p=0.9),
            sources=("draft_model",),
            max_tokens=30,
        )
    )["r"]
    count = told.report.sources["draft_model"]
    assert count.accepted == count.drafted > 0


@pytest.mark.parametrize("chunk_tokens", [1, 3, 512])
def test_a_long_text_is_read_in_chunks(chunk_tokens: int):
    mine = drafter(chunk_tokens=chunk_tokens)
    rows = mine._runner.rows
    world = World(mine, max_draft_tokens=5)
    request = make(prompt=PROMPT * 2, sources=("draft_model",), max_tokens=40)
    check_told(world.run(request)["r"], Reference(MODEL, request).decode())
    assert max(rows) <= max(chunk_tokens, 1)
    assert mine.accepted > 0 or chunk_tokens == 1


def test_a_second_turn_finds_the_pages_of_the_first():
    mine = drafter()
    world = World(mine)
    first = make("first", sources=("draft_model",), max_tokens=20)
    world.run(first)
    answer = Reference(MODEL, first).decode().output
    before = sum(mine._runner.rows)
    world.run(make("second", [*PROMPT, *answer, 3], sources=("draft_model",), max_tokens=2))
    assert sum(mine._runner.rows) - before < 12
    before = sum(mine._runner.rows)
    other = make("other", [*PROMPT, *answer, 3], sources=("draft_model",), max_tokens=2)
    other.cache_scope = "another tenant"
    world.run(other)
    assert sum(mine._runner.rows) - before > len(PROMPT) + len(answer)


def test_without_pages_nothing_is_drafted_and_nothing_breaks():
    mine = drafter(pages=6)
    world = World(mine)
    requests = [make(f"r{i}", [*PROMPT, i + 1], sources=("draft_model",)) for i in range(4)]
    told = world.run(*requests)
    for request in requests:
        check_told(told[request.id], Reference(MODEL, request).decode())
    assert mine._pool.used == 0


class Ids:
    """As much of a tokenizer as is compared."""

    def __init__(self, token_bytes, special_ids=(0,), eos_ids=(0,)):
        self.token_bytes = list(token_bytes)
        self.special_ids, self.eos_ids = frozenset(special_ids), frozenset(eos_ids)


def test_another_tokenizer_is_refused_by_name():
    target = Ids([b"", b"a", b"b"])
    require_same_tokenizer("tiny", Ids([b"", b"a", b"b", b"", b""]), target)
    require_same_tokenizer("tiny", target, Ids([b"", b"a", b"b", b""]))
    for other, what in [
        (Ids([b"", b"a", b"c"]), "token 2"),
        (Ids([b"", b"a", b"b", b"d"]), "token 3"),
        (Ids([b"", b"a", b"b"], eos_ids=(1,)), "eos_ids"),
        (Ids([b"", b"a", b"b"], special_ids=(0, 2)), "special_ids"),
    ]:
        with pytest.raises(TokenizerMismatch, match=f"'tiny'.*{what}"):
            require_same_tokenizer("tiny", other, target)


def test_padding_of_the_vocabulary_is_never_drafted():
    class Padded(ToyRunner):
        vocab_size = VOCAB + 4

        def forward(self, spans, /):
            forward = super().forward(spans)
            forward.logits = forward.logits.new_ones(len(forward.logits), VOCAB + 4) * 50
            return forward

    mine = Watched(Padded(MODEL, num_pages=64, page_tokens=4), vocab_size=VOCAB)
    world = World(mine)
    request = make(sources=("draft_model",))
    check_told(world.run(request)["r"], Reference(MODEL, request).decode())
