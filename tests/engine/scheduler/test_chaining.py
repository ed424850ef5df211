"""Sources in a row: a one-hot head, and behind it what another source drew."""

from __future__ import annotations

import pytest

from agentspec.engine.chaining import joined
from agentspec.engine.draft.base import DraftView, Proposal
from agentspec.settings_scheduling import SchedulingSettings
from tests.engine.core.toy import OracleDrafter
from tests.engine.core.world import MODEL, World, make
from tests.engine.draft.test_law import GRAMMARS, distance, emitted
from tests.engine.draft.toyworld import Dense
from tests.engine.draft.toyworld import World as LawWorld
from tests.engine.scheduler.test_forms import JAGGED, form_a, form_b


class Chained(Dense):
    """A certain token 1, then what the dense drafter drew."""

    def _one(self, view, limit):
        head = Proposal((1,), ("head",), (0.6,))
        return joined(head, super()._one(view, limit - 1)) if limit > 1 else head


@pytest.mark.parametrize("grammar", ["free", "masked", "forced inside"])
@pytest.mark.parametrize("form", ["whole", "A", "B"])
def test_a_chain_keeps_the_law(grammar: str, form: str):
    world = LawWorld(vocab=3, grammar=GRAMMARS[grammar](3))
    cut = {
        "whole": lambda view, proposal: len(proposal),
        "A": form_a(JAGGED),
        "B": form_b(JAGGED, [0.6, 0.5, 0.4]),
    }[form]
    got = emitted(world, lambda dice: Chained(3, dice), 3, cut)
    assert distance(got, world.plain(3)) < 1e-9


class Short(OracleDrafter):
    """Drafts two tokens at most, always right."""

    def one(self, view: DraftView, limit: int) -> Proposal:
        return super().one(view, min(limit, 2))


class Behind(OracleDrafter):
    """Never drafts first; behind another's draft it is always right."""

    def one(self, view: DraftView, limit: int) -> Proposal:
        return Proposal()

    def propose_behind(self, views, heads, limits) -> list[Proposal]:
        found = []
        for view, head, limit in zip(views, heads, limits, strict=True):
            tokens = [*view.tokens, *head.tokens]
            for _ in range(limit):
                tokens.append(int(self._model.logits(tokens).argmax()))
            found.append(self.one_hot(tokens[len(view.tokens) + len(head) :]))
        return found


def _world(**options) -> World:
    short = Short(MODEL, wrong=10**9, name="short")
    behind = Behind(MODEL, name="behind")
    return World(short, behind, scheduling=SchedulingSettings(mode="adaptive"), **options)


def test_two_sources_draft_for_one_step():
    told = _world().run(make(sources=("short", "behind"), max_tokens=40))["r"]
    assert told.text == World().run(make(max_tokens=40))["r"].text
    counts = {name: (c.drafted, c.accepted) for name, c in told.report.sources.items()}
    assert counts["short"][1] > 0 and counts["behind"][1] > 0
    assert max(j for j, times in enumerate(told.report.hist) if times) > 2, "longer than one alone"


def test_a_source_is_asked_behind_only_where_it_may_be_used():
    alone = _world().run(make(sources=("short",), max_tokens=20))["r"]
    assert "behind" not in alone.report.sources
    full = _world(max_draft_tokens=1).run(make(sources=("short", "behind"), max_tokens=20))["r"]
    assert "behind" not in full.report.sources
