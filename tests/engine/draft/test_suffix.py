"""The ``suffix`` drafter's own promises: branch choice, earlier turns, bounds, calibration."""

from __future__ import annotations

from agentspec.engine.draft.base import EMPTY, FORCED, DraftView, Proposal
from agentspec.engine.draft.calibration import Calibration, Evidence
from agentspec.engine.draft.memory import SessionStore
from agentspec.engine.draft.suffix import SuffixDrafter
from agentspec.engine.sampling import SamplingParams
from tests.engine.draft.toyworld import numbers


def _view(id: int, tokens: list[int], session: str | None = "s", scope: str = "a") -> DraftView:
    return DraftView(id, scope, session, list(tokens), len(tokens), SamplingParams())


def _opened(tokens: list[int], **options) -> tuple[SuffixDrafter, DraftView]:
    drafter, view = SuffixDrafter(**options), _view(1, tokens)
    drafter.open(view)
    return drafter, view


def _say(drafter: SuffixDrafter, view: DraftView, tokens: list[int]) -> None:
    view.tokens.extend(tokens)
    drafter.commit(view, EMPTY, 0, len(tokens))


def _turn(drafter: SuffixDrafter, view: DraftView, said: list[int] = ()) -> None:
    drafter.open(view)
    _say(drafter, view, list(said))
    drafter.close(view)


def test_the_longest_match_decides():
    drafter, view = _opened([1, 2, 3, 50, 9, 2, 3, 60, 9, 2, 3, 60, 7, 1, 2, 3], min_survival=0)
    assert drafter.propose([view], [1])[0].tokens == (50,)


def test_among_equal_contexts_the_most_frequent_then_the_latest():
    drafter, view = _opened([5, 7, 5, 7, 5, 8, 6, 5], min_survival=0)
    assert drafter.propose([view], [1])[0].tokens == (7,)
    drafter, view = _opened([5, 7, 5, 8, 6, 5], min_survival=0)
    assert drafter.propose([view], [1])[0].tokens == (8,)


def test_a_draft_ends_with_the_text():
    drafter, view = _opened([1, 2, 3, 4, 1, 2], min_survival=0)
    assert drafter.propose([view], [9])[0].tokens == (3, 4, 1, 2)


def test_output_is_looked_up_as_well_as_the_prompt():
    drafter, view = _opened([1, 2])
    _say(drafter, view, [30, 31, 32, 33, 30, 31])
    assert drafter.propose([view], [2])[0].tokens == (32, 33)


def test_earlier_turns_of_the_session_are_remembered():
    drafter = SuffixDrafter()
    _turn(drafter, _view(1, [1, 2, 3]), said=[40, 41, 42, 43])
    later = _view(2, [8, 9, 40, 41])
    drafter.open(later)
    assert drafter.propose([later], [2])[0].tokens == (42, 43)
    stranger = _view(3, [8, 9, 40, 41], session="t")
    drafter.open(stranger)
    assert drafter.propose([stranger], [2]) == [EMPTY]
    nameless = _view(4, [8, 9, 40, 41], session=None)
    drafter.open(nameless)
    assert drafter.propose([nameless], [2]) == [EMPTY]


def test_nothing_is_drafted_across_two_turns():
    drafter = SuffixDrafter(min_survival=0)
    _turn(drafter, _view(1, [1, 2, 40, 41]))
    _turn(drafter, _view(2, [70, 71, 72]))
    later = _view(3, [9, 40, 41])
    drafter.open(later)
    assert drafter.propose([later], [3]) == [EMPTY]


def test_a_turns_end_is_no_continuation():
    """Twice a turn ended after these tokens, once it went on: that is what is drafted."""
    drafter = SuffixDrafter(min_survival=0)
    for turn, text in enumerate(([1, 40, 41, 50], [7, 40, 41], [8, 40, 41], [3])):
        _turn(drafter, _view(turn, text))
    later = _view(9, [9, 40, 41])
    drafter.open(later)
    assert drafter.propose([later], [1])[0].tokens == (50,)


def test_a_turn_that_repeats_the_conversation_is_indexed_once():
    store = SessionStore()
    drafter = SuffixDrafter(store=store)
    text = list(range(100))
    for turn in range(5):
        view = _view(turn, text)
        _turn(drafter, view, said=[500 + turn, 600 + turn])
        text = [*view.tokens, 700 + turn]
    size = store.get("a", "s").automaton.size
    assert size <= len(text) + 5, "each part once, and a separator a turn"
    drafter.open(resumed := _view(9, [*text, 8, 50, 51]))
    assert drafter.propose([resumed], [2])[0].tokens == (52, 53)


def test_answers_of_one_request_share_their_prompt():
    store = SessionStore()
    drafter = SuffixDrafter(store=store)
    views = [_view(i, list(range(100))) for i in range(4)]
    for view in views:
        drafter.open(view)
    for i, view in enumerate(views):
        _say(drafter, view, [200 + i])
        drafter.close(view)
    assert store.get("a", "s").automaton.size < 120


def test_a_preempted_sequence_resumes():
    drafter, view = _opened([1, 2, 3, 4])
    _say(drafter, view, [5, 6, 1, 2])
    before = drafter.propose([view], [3])
    drafter.close(view)
    drafter.open(view)
    assert [p.tokens for p in drafter.propose([view], [3])] == [p.tokens for p in before]


def test_the_store_is_bounded():
    store = SessionStore(max_tokens=100, max_session_tokens=40)
    drafter = SuffixDrafter(store=store)
    for i in range(20):
        _turn(drafter, _view(i, list(range(i * 30, i * 30 + 30)), session=f"s{i}"))
    kept = [i for i in range(20) if store.get("a", f"s{i}") is not None]
    assert kept == [17, 18, 19]
    for i in range(20):
        _turn(drafter, _view(i, list(range(i * 30, i * 30 + 30)), session="one"))
        assert store.get("a", "one").automaton.size <= 40


def test_the_least_recently_used_session_goes_first():
    store = SessionStore(max_tokens=70)
    drafter = SuffixDrafter(store=store)
    for session in ("old", "used"):
        _turn(drafter, _view(1, [len(session)] * 30, session=session))
    drafter.open(reader := _view(2, [1, 2], session="old"))
    _turn(drafter, _view(3, [9] * 30, session="new"))
    assert store.get("a", "used") is None
    assert store.get("a", "old") is not None
    drafter.close(reader)


def test_only_the_end_of_a_long_prompt_is_indexed():
    drafter, view = _opened([*range(50), 3, 4], max_tokens=10)
    assert drafter.propose([view], [2]) == [EMPTY]
    drafter, view = _opened([*range(50), 45, 46], max_tokens=10)
    assert drafter.propose([view], [2])[0].tokens == (47, 48)


def test_confidence_becomes_the_rate_of_acceptance():
    calibration = Calibration()
    sure, doubtful = Evidence(20, 3, 3), Evidence(2, 1, 4)
    for draw in numbers(2000, "rates"):
        calibration.record(sure, draw < 0.95)
        calibration.record(doubtful, draw < 0.15)
    assert abs(calibration.confidence(sure) - 0.95) < 0.05
    assert abs(calibration.confidence(doubtful) - 0.15) < 0.05


def test_more_evidence_gives_more_confidence_at_the_start():
    calibration = Calibration()
    by_length = [calibration.confidence(Evidence(n, 1, 1)) for n in (1, 2, 4, 8, 16, 32)]
    assert by_length == sorted(by_length) and len(set(by_length)) == 6
    assert calibration.confidence(Evidence(8, 5, 5)) > calibration.confidence(Evidence(8, 3, 5))
    assert calibration.confidence(Evidence(8, 3, 5)) > calibration.confidence(Evidence(8, 1, 5))


def test_old_outcomes_fade():
    calibration, kind = Calibration(), Evidence(8, 1, 1)
    for _ in range(5000):
        calibration.record(kind, True)
    for _ in range(2000):
        calibration.record(kind, False)
    assert calibration.confidence(kind) < 0.1


def test_a_drafter_that_is_always_wrong_falls_silent():
    drafter, view = _opened([1, 2, 3] * 300 + [1, 2])
    assert drafter.propose([view], [4])[0].tokens[0] == 3
    for step in range(200):
        proposal = drafter.propose([view], [4])[0]
        new = [1000 + step, 1, 2]
        view.tokens.extend(new)
        drafter.commit(view, proposal, 0, len(new))
    assert drafter.propose([view], [4]) == [EMPTY]


def test_only_tested_tokens_teach():
    """Forced tokens in a draft's place say nothing about the drafter; its own do."""
    text = [1, 2, 3, 4, 5, 1, 2]
    drafter, view = _opened(text, min_survival=0)
    assert drafter.propose([view], [3])[0].tokens == (3, 4, 5)
    verified = Proposal((3, 4, 5), (FORCED, FORCED, "suffix"), (1.0, 1.0, 0.5))
    view.tokens.extend([3, 4, 9])
    drafter.commit(view, verified, 2, 3)

    again, fresh = _view(2, text, session="again"), _opened(text, min_survival=0)
    drafter.open(again)
    taught = drafter.propose([again], [3])[0].confidence
    before = fresh[0].propose([fresh[1]], [3])[0].confidence
    assert taught[:2] == before[:2]
    assert taught[2] < before[2]


def test_tokens_after_a_rejection_teach_nothing():
    text = [1, 2, 3, 4, 5, 6, 7, 1, 2]
    drafter, view = _opened(text, min_survival=0)
    proposal = drafter.propose([view], [3])[0]
    view.tokens.extend([9, 4, 5])
    drafter.commit(view, proposal, 0, 3)
    again, fresh = _view(2, text, session="again"), _opened(text, min_survival=0)
    drafter.open(again)
    taught = drafter.propose([again], [4])[0].confidence
    before = fresh[0].propose([fresh[1]], [4])[0].confidence
    assert taught[0] < before[0]
    assert taught[2:] == before[2:]
