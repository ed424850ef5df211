"""With a seed the text is a function of the prompt and the seed: drafts and cuts change nothing."""

from __future__ import annotations

from collections import Counter

import pytest

from agentspec.engine.draft import create, names
from agentspec.engine.sampling import Entropy, SamplingParams
from tests.engine.draft.toyworld import Dense, Dice, Grammar, OneHot, Silent, World, decode, numbers

LENGTH = 24
WORLDS = {
    "free": World(vocab=4, prompt=(0, 1, 2, 3, 0, 1)),
    "forced": World(vocab=4, grammar=Grammar(lambda prefix: frozenset({0, 1, 3}), {(0,): (1, 2)})),
    "penalties": World(
        vocab=4,
        sampling=SamplingParams(
            presence_penalty=0.5,
            frequency_penalty=0.3,
            repetition_penalty=1.4,
            logit_bias={2: -1.5},
            temperature=0.8,
            top_p=0.9,
        ),
    ),
    "greedy penalties": World(
        vocab=4, sampling=SamplingParams(frequency_penalty=0.9, temperature=0.0)
    ),
}


def _drafters(seed: int):
    yield Dense(4, RandomDice(seed), length=3)
    yield OneHot(4, length=3)
    for name in names():
        yield create(name)


class RandomDice(Dice):
    """Dice that fall by a number of their own: the text must not care."""

    def __init__(self, seed: int):
        super().__init__([], 0)
        object.__setattr__(self, "key", seed)

    def pick(self, probs, position=-1):
        self.taken.append(0)
        draw = numbers(1, "dice", self.key, len(self.taken))[0]
        for token, p in enumerate(probs):
            draw -= p
            if draw < 0:
                return token
        return len(probs) - 1


@pytest.mark.parametrize("name", WORLDS)
def test_seeded_text_does_not_depend_on_drafts(name: str):
    world = WORLDS[name]
    texts = set()
    for seed in range(6):
        entropy = Entropy.of(seed)
        text = decode(world, Silent(), entropy, LENGTH)
        texts.add(text)
        for drafter in _drafters(seed):
            for limit in (1, 3, 7):
                assert decode(world, drafter, entropy, LENGTH, limit=limit) == text
    greedy = world.params().greedy
    assert len(texts) == 1 if greedy else len(texts) > 3


@pytest.mark.parametrize("drafter", ["none", "onehot"])
def test_seeded_tokens_follow_the_target(drafter: str):
    """Frequencies over seeds, within four standard deviations of the known law."""
    world, trials = World(vocab=3), 1500
    make = Silent if drafter == "none" else lambda: OneHot(3)
    seen = Counter(decode(world, make(), Entropy.of(seed), 2) for seed in range(trials))
    for text, p in world.plain(2).items():
        assert abs(seen[text] - trials * p) < 4 * (trials * p * (1 - p)) ** 0.5


def test_answers_of_one_request_have_noise_of_their_own():
    world = World(vocab=4)
    texts = {decode(world, Silent(), Entropy.of(7, stream), 12) for stream in range(5)}
    assert len(texts) == 5
    assert Entropy.of(7, 0) == Entropy.of(7)


def test_without_a_seed_no_two_sequences_share_randomness():
    assert len({Entropy.of(None).key for _ in range(20)}) == 20
    assert not Entropy.of(None).seeded
