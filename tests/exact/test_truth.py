"""What the identity suite leans on: plain decoding is right, and a leak would be seen."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import pytest

from agentspec.engine.batch import Forward, Span
from agentspec.engine.core import Runner
from tests.exact.conftest import ISAS
from tests.exact.identity import design, run
from tests.exact.naive import decode
from tests.exact.world import Case, World

pytestmark = pytest.mark.model
# None of them has a stop string, penalties or text that the limit cuts inside open JSON.
PLAIN = [0, 9, 20, 39, 45]


@pytest.fixture(scope="module")
def world(make_world) -> World:
    return make_world(ISAS[0], 24)


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("prompt", PLAIN)
def test_plain_decoding_is_the_loop_that_anyone_would_write(world: World, prompt, temperature):
    case = Case(prompt, temperature)
    answer = world.alone(case)
    tokens = decode(world, world.request(case))
    assert not answer.closed_out
    assert answer.tokens == len(tokens)
    stop_ids = world.request(case).stop_ids
    text = b"".join(world.tokenizer.token_bytes[t] for t in tokens if t not in stop_ids)
    assert answer.text == text.decode("utf-8", "replace")


class Leaky:
    """A runner in which a token sees a little of whether it has neighbours."""

    def __init__(self, inner: Runner):
        self._inner = inner
        self.vocab_size, self.page_tokens = inner.vocab_size, inner.page_tokens
        self.num_pages, self.context_tokens = inner.num_pages, inner.context_tokens
        self.exact = inner.exact

    def forward(self, spans: Seq[Span]) -> Forward:
        forward = self._inner.forward(spans)
        if len(spans) > 1 and len(forward.logits):
            forward.logits[:, ::2] += 0.3
        return forward

    def compact(self, pages: Seq[int], moves: Seq[tuple[int, int]]) -> None:
        self._inner.compact(pages, moves)


def test_a_leak_between_neighbours_is_seen(world: World):
    leaky = World(Leaky(world.runner), world.weights, 24)
    together = [(prompt, row) for prompt, row in design([0, 1]) if row["batch"] == 3]
    assert run(leaky, together[:3]).differing
    assert not run(world, together[:3]).differing


@pytest.mark.exact
@pytest.mark.skipif(not {"avx512vnni", "avx2"} <= set(ISAS), reason="needs both")
def test_fused_instruction_sets_agree(make_world):
    """The portable path rounds products before it adds them, so it agrees with itself only."""
    wide, narrow = make_world("avx512vnni", 24), make_world("avx2", 24)
    cases = [Case(prompt, temperature) for prompt in PLAIN for temperature in (0, 1)]
    assert [wide.alone(case) for case in cases] == [narrow.alone(case) for case in cases]
