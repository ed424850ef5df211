"""One suite that every registered drafter passes (its law: ``test_law.py``, ``test_seeded.py``)."""

from __future__ import annotations

import pytest

from agentspec.engine.draft import UnknownDrafter, create, names
from agentspec.engine.draft.base import EMPTY, FORCED, DraftView, Proposal
from agentspec.engine.sampling import SamplingParams
from tests.engine.draft.toyworld import numbers

pytestmark = pytest.mark.parametrize("name", names())

TEXT = [5, 6, 7, 8, 5, 6, 7, 9, 5, 6, 7, 8, 1, 2, 5, 6, 7]


def _view(
    sequence_id: int, tokens: list[int], scope: str = "a", session: str | None = "s"
) -> DraftView:
    return DraftView(sequence_id, scope, session, list(tokens), len(tokens), SamplingParams())


def _serve(drafter, view: DraftView, came: list[int], limit: int = 4) -> list[Proposal]:
    """Drive ``drafter`` along a known continuation; what it proposed on the way."""
    proposals, at = [], 0
    while at < len(came):
        proposal = drafter.propose([view], [limit])[0]
        proposals.append(proposal)
        accepted = 0
        rest = came[at:]
        while (
            accepted < min(len(proposal), len(rest)) and proposal.tokens[accepted] == rest[accepted]
        ):
            accepted += 1
        new = rest[: accepted + 1]
        view.tokens.extend(new)
        drafter.commit(view, proposal, accepted, len(new))
        at += len(new)
    return proposals


def _ramble(seed: int, length: int) -> list[int]:
    return [int(4 * x) for x in numbers(length, "ramble", seed)]


def test_proposes_what_followed_before(name: str):
    drafter, view = create(name), _view(1, TEXT)
    drafter.open(view)
    assert drafter.propose([view], [2])[0].tokens[0] in (8, 9)
    assert sum(map(len, _serve(drafter, view, TEXT))) > 0


def test_proposals_keep_the_contract(name: str):
    drafter, view = create(name), _view(1, _ramble(0, 60))
    drafter.open(view)
    for limit in (0, 1, 2, 5):
        proposal = drafter.propose([view], [limit])[0]
        assert len(proposal) <= limit
    for proposal in _serve(drafter, view, _ramble(1, 60)):
        assert all(source == name for source in proposal.sources)
        assert all(0.0 < c <= 1.0 for c in proposal.confidence)
        assert proposal.draft_probs is None or proposal.draft_probs.shape[0] == len(proposal)


def test_asking_again_gives_the_same(name: str):
    """Proposals may be thrown away: asking leaves no trace."""
    asked, silent = create(name), create(name)
    views = [_view(1, _ramble(2, 50)), _view(1, _ramble(2, 50))]
    for drafter, view in zip((asked, silent), views, strict=True):
        drafter.open(view)
    for token in _ramble(3, 30):
        first = asked.propose([views[0]], [4])
        assert asked.propose([views[0]], [4]) == first
        for drafter, view in zip((asked, silent), views, strict=True):
            view.tokens.append(token)
            drafter.commit(view, EMPTY, 0, 1)
    assert asked.propose([views[0]], [4]) == silent.propose([views[1]], [4])


def test_the_order_of_sequences_does_not_matter(name: str):
    drafter = create(name)
    views = [_view(i, _ramble(i, 40)) for i in range(4)]
    for view in views:
        drafter.open(view)
    limits = [4, 3, 2, 1]
    forward = drafter.propose(views, limits)
    backward = drafter.propose(views[::-1], limits[::-1])
    alone = [drafter.propose([v], [n])[0] for v, n in zip(views, limits, strict=True)]
    assert forward == backward[::-1] == alone


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_a_sequence_may_end_at_any_time(name: str, steps: int):
    """Abort or preemption: others go on as if it had never been; it may come back."""
    drafter, lonely = create(name), create(name)
    views = [_view(1, _ramble(5, 40), scope="mine"), _view(1, _ramble(5, 40), scope="mine")]
    gone = _view(2, _ramble(6, 40), scope="theirs")
    for each, view in zip((drafter, lonely), views, strict=True):
        each.open(view)
    drafter.open(gone)
    for token in _ramble(7, steps):
        drafter.propose([gone], [4])
        gone.tokens.append(token)
        drafter.commit(gone, EMPTY, 0, 1)
    drafter.propose([gone], [4])
    drafter.close(gone)
    assert drafter.propose([views[0]], [4]) == lonely.propose([views[1]], [4])
    drafter.open(gone)
    _serve(drafter, gone, _ramble(8, 10))
    drafter.close(gone)


@pytest.mark.parametrize("other", [("b", "s"), ("b", None), ("", "s")])
def test_nothing_crosses_a_scope(name: str, other: tuple[str, str | None]):
    """A text that the other tenant would love to see completed, under the same session name."""
    drafter, fresh = create(name), create(name)
    secret = [40, 41, 42, 43, 44, 45]
    earlier = _view(1, secret, scope="a", session="s")
    drafter.open(earlier)
    drafter.close(earlier)
    spy = _view(2, [40, 41, 42], scope=other[0], session=other[1])
    for each in (drafter, fresh):
        each.open(spy)
    assert drafter.propose([spy], [4]) == fresh.propose([spy], [4]) == [EMPTY]


def test_forced_tokens_may_stand_in_a_proposal(name: str):
    """What was verified may hold the grammar's tokens; more may be committed than was drafted."""
    drafter, view = create(name), _view(1, TEXT)
    drafter.open(view)
    drafted = drafter.propose([view], [2])[0].tokens[0]
    mixed = Proposal((30, 31, drafted), (FORCED, FORCED, name), (1.0, 1.0, 0.5))
    view.tokens.extend([30, 31, 99, 98, 97])
    drafter.commit(view, mixed, 2, 5)
    _serve(drafter, view, TEXT)
    drafter.close(view)


def test_only_known_names_are_created(name: str):
    with pytest.raises(UnknownDrafter, match=name):
        create(name + "?")
