"""A world small enough to know every probability: target, grammar, drafters, and exact enumeration.

Nothing here uses the arithmetic under test: probabilities are sums of Python floats.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cache

import torch

from agentspec.engine.constrain import ConstraintViolated
from agentspec.engine.draft.base import EMPTY, FORCED, DraftView, Proposal
from agentspec.engine.draft.forced import constrain_draft
from agentspec.engine.sampling import Entropy, SamplingParams
from agentspec.engine.verify import verify

Prefix = tuple[int, ...]


@cache
def numbers(count: int, *key: object) -> tuple[float, ...]:
    """``count`` numbers in [0, 1) that ``key`` decides."""
    generator = random.Random(repr(key))
    return tuple(generator.random() for _ in range(count))


def normalised(weights: list[float]) -> list[float]:
    total = math.fsum(weights)
    return [weight / total for weight in weights]


class Dice(Entropy):
    """Randomness that takes each branch in turn and knows how probable the branch is.

    horizon: from this position on nobody looks, so one branch stands for all.
    """

    __slots__ = ("_horizon", "_script", "alternatives", "taken", "weight")

    def __init__(self, script: list[int], horizon: int):
        super().__init__(0, False)
        fields = {"_script": script, "taken": [], "alternatives": [], "weight": 1.0}
        for name, value in {**fields, "_horizon": horizon}.items():  # the base class is frozen
            object.__setattr__(self, name, value)

    def pick(self, probs: list[float], position: int = -1) -> int:
        branches = [i for i, p in enumerate(probs) if p > 0.0]
        if position >= self._horizon:
            return branches[0]
        at = len(self.taken)
        chosen = self._script[at] if at < len(self._script) else branches[0]
        if at >= len(self._script):
            self.alternatives.extend([*self.taken, other] for other in branches[1:])
        self.taken.append(chosen)
        object.__setattr__(self, "weight", self.weight * probs[chosen])
        return chosen

    def coin(self, position: int, probability: float, attempt: int = 0) -> bool:
        return bool(self.pick([1.0 - probability, probability], position))

    def draft(self, position: int, probs: torch.Tensor) -> int:
        return self.pick(probs.tolist())

    def choose(self, position: int, probs: torch.Tensor) -> int:
        return self.pick(probs.tolist(), position)


def law(run: Callable[[Dice], Hashable], horizon: int = 1000) -> dict:
    """The exact distribution of what ``run`` returns, over all randomness it asks its dice for."""
    total: dict = defaultdict(float)
    scripts: list[list[int]] = [[]]
    while scripts:
        dice = Dice(scripts.pop(), horizon)
        total[run(dice)] += dice.weight
        scripts.extend(dice.alternatives)
    return dict(total)


def distance(a: dict, b: dict) -> float:
    """Total variation."""
    return 0.5 * math.fsum(abs(a.get(k, 0.0) - b.get(k, 0.0)) for k in a.keys() | b.keys())


@dataclass
class Grammar:
    """legal: what may follow a prefix of output. spans: prefix -> canonical forced tokens."""

    legal: Callable[[Prefix], frozenset[int]]
    spans: dict[Prefix, Prefix] = field(default_factory=dict)

    def forced(self, prefix: Prefix) -> Prefix:
        """The rest of the span that ``prefix`` stands in, or at the start of."""
        for start, span in self.spans.items():
            done = len(prefix) - len(start)
            if 0 <= done < len(span) and prefix == start + span[:done]:
                return span[done:]
        return ()

    def allowed(self, prefix: Prefix) -> frozenset[int]:
        forced = self.forced(prefix)
        return self.legal(prefix) | frozenset(forced[:1])


class ToyConstraint:
    """A live session of a ``Grammar``; hostile where the contract leaves things open."""

    def __init__(self, grammar: Grammar, prefix: Prefix = ()):
        self.grammar, self.prefix = grammar, prefix
        self.masks_built = 0

    def masks(self, draft, rows: torch.Tensor) -> int:
        self.masks_built += 1
        rows.fill_(-1)  # beyond the legal prefix anything may stand: here, everything is allowed
        prefix, legal = self.prefix, 0
        for i in range(len(draft) + 1):
            rows[i] = sum(1 << token for token in self.grammar.allowed(prefix))
            if i == len(draft) or draft[i] not in self.grammar.allowed(prefix):
                break
            prefix, legal = (*prefix, draft[i]), legal + 1
        return legal

    def needs_mask(self) -> bool:
        return True

    def allows(self, token: int) -> bool:
        return token in self.grammar.allowed(self.prefix)

    def forced(self, limit: int) -> list[int]:
        return list(self.grammar.forced(self.prefix)[:limit])

    def accept(self, tokens) -> None:
        for token in tokens:
            if not self.allows(token):
                raise ConstraintViolated(f"{token} after {self.prefix}")
            self.prefix = (*self.prefix, token)

    def rollback(self, count: int) -> None:
        assert 0 <= count <= len(self.prefix)
        self.prefix = self.prefix[: len(self.prefix) - count]

    def clone(self) -> ToyConstraint:
        return ToyConstraint(self.grammar, self.prefix)

    in_grammar = may_stop = must_stop = False

    def closing(self, limit: int) -> list[int] | None:
        return None


@dataclass
class World:
    """A target over ``vocab`` tokens, ``temperature`` and perhaps a grammar."""

    vocab: int = 3
    temperature: float = 1.0
    prompt: Prefix = (0, 1, 2, 0, 1)
    grammar: Grammar | None = None
    seed: int = 0
    sampling: SamplingParams | None = None

    def params(self, **change) -> SamplingParams:
        return self.sampling or SamplingParams(temperature=self.temperature, **change)

    def scores(self, output: Prefix) -> list[float]:
        return [4.0 * x - 2.0 for x in numbers(self.vocab, "target", self.seed, output)]

    def probs(self, output: Prefix) -> list[float]:
        """What plain decoding samples the next token from: the definition of right."""
        if self.grammar is not None and self.grammar.forced(output):
            forced = self.grammar.forced(output)[0]
            return [float(token == forced) for token in range(self.vocab)]
        legal = range(self.vocab) if self.grammar is None else self.grammar.allowed(output)
        scores = self.scores(output)
        if self.temperature == 0.0:
            best = max(legal, key=lambda token: (scores[token], -token))
            return [float(token == best) for token in range(self.vocab)]
        return normalised(
            [
                math.exp(score / self.temperature) if token in legal else 0.0
                for token, score in enumerate(scores)
            ]
        )

    def plain(self, depth: int) -> dict[Prefix, float]:
        """The law of the first ``depth`` tokens."""
        out = {(): 1.0}
        for _ in range(depth):
            out = {
                (*prefix, token): weight * p
                for prefix, weight in out.items()
                for token, p in enumerate(self.probs(prefix))
                if p > 0.0
            }
        return out

    def view(self, output: Prefix = (), **change) -> DraftView:
        constraint = None if self.grammar is None else ToyConstraint(self.grammar, output)
        tokens = [*self.prompt, *output]
        view = DraftView(1, "scope", "session", tokens, len(self.prompt), self.params())
        view.constraint = constraint
        for name, value in change.items():
            setattr(view, name, value)
        return view

    def logits(
        self, output: Prefix, drafted: Prefix, parents: tuple[int, ...] | None = None
    ) -> torch.Tensor:
        """[K + 1, V] float64: rows after ``output`` and the path to each of ``drafted``."""
        paths = [output]
        for k, token in enumerate(drafted):
            paths.append((*paths[k if parents is None else parents[k] + 1], token))
        return torch.tensor([self.scores(path) for path in paths], dtype=torch.float64)


class Silent:
    """A drafter without a draft: plain decoding."""

    name = "none"
    taps: tuple[int, ...] = ()

    def open(self, view):
        pass

    def propose(self, views, limits):
        return [EMPTY for _ in views]

    def commit(self, view, proposal, accepted, committed):
        pass

    def close(self, view):
        pass


class Dense(Silent):
    """Samples each token from a distribution of its own; ``dice`` decides. Knows no grammar.

    Its confidence in token k depends on the tokens before k, as the contract asks.
    """

    name = "dense"

    def __init__(self, vocab: int, dice: Dice, length: int = 2):
        self.vocab, self.dice, self.length = vocab, dice, length

    def propose(self, views, limits):
        return [self._one(view, limit) for view, limit in zip(views, limits, strict=True)]

    def _one(self, view: DraftView, limit: int) -> Proposal:
        tokens, rows, confidence = [], [], []
        for _ in range(min(limit, self.length)):
            key = (*view.tokens, *tokens)
            probs = normalised([0.05 + x for x in numbers(self.vocab, "draft", key)])
            tokens.append(self.dice.pick(probs))
            rows.append(probs)
            confidence.append(numbers(1, "confidence", key)[0])
        return Proposal(
            tuple(tokens),
            (self.name,) * len(tokens),
            tuple(confidence),
            torch.tensor(rows, dtype=torch.float64).reshape(len(tokens), self.vocab),
        )


class OneHot(Silent):
    """Tokens that the text decides, legal or not."""

    name = "onehot"

    def __init__(self, vocab: int, length: int = 2):
        self.vocab, self.length = vocab, length

    def propose(self, views, limits):
        return [
            Proposal(tokens, (self.name,) * len(tokens), (0.5,) * len(tokens))
            for view, limit in zip(views, limits, strict=True)
            for tokens in [self._tokens(view, min(limit, self.length))]
        ]

    def _tokens(self, view: DraftView, count: int) -> Prefix:
        return tuple(int(x * self.vocab) for x in numbers(count, "one-hot", *view.tokens))


class Tree(Silent):
    """Two tokens after the text and one or two after each of them, drawn without replacement, or
    (one-hot) as the text decides. Confidences look at no token."""

    name = "tree"
    SHAPE = ((-1, 0.5), (-1, 0.4), (0, 0.7), (1, 0.6), (0, 0.3))
    """(parent, confidence) of each token, by falling survival."""

    def __init__(self, vocab: int, dice: Dice | None = None):
        self.vocab, self.dice = vocab, dice

    def propose(self, views, limits):
        return [self._one(view, limit) for view, limit in zip(views, limits, strict=True)]

    def _one(self, view: DraftView, limit: int) -> Proposal:
        tokens: list[int] = []
        paths: list[Prefix] = []
        rows: list[list[float]] = []
        shape = self.SHAPE[:limit]
        for parent, _ in shape:
            path = () if parent < 0 else paths[parent]
            taken = {t for t, (p, _) in zip(tokens, shape, strict=False) if p == parent}
            weights = [0.05 + x for x in numbers(self.vocab, "tree", *view.tokens, *path)]
            rows.append(normalised([0.0 if t in taken else w for t, w in enumerate(weights)]))
            best = max(range(self.vocab), key=rows[-1].__getitem__)
            tokens.append(best if self.dice is None else self.dice.pick(rows[-1]))
            paths.append((*path, tokens[-1]))
        probs = torch.tensor(rows, dtype=torch.float64).reshape(len(rows), self.vocab)
        return Proposal(
            tuple(tokens),
            (self.name,) * len(tokens),
            tuple(confidence for _, confidence in shape),
            None if self.dice is None else probs,
            tuple(parent for parent, _ in shape),
        )


Cut = Callable[[DraftView, Proposal], int]


def whole(view: DraftView, proposal: Proposal) -> int:
    return len(proposal)


Make = Callable[[Dice], object]
"""A new drafter that throws these dice."""


def step(world: World, view: DraftView, drafter, entropy: Entropy, cut: Cut, limit: int) -> Prefix:
    """One step as the engine does it: draft, filter, cut, verify, commit. The committed tokens."""
    output = tuple(view.tokens[len(world.prompt) :])
    view.entropy = entropy
    proposal = drafter.propose([view], [limit])[0]
    proposal = constrain_draft(view, proposal, limit)
    proposal = proposal.cut(cut(view, proposal))
    state = None if view.constraint is None else view.constraint.prefix
    rows: list[int | None] = list(range(len(proposal) + 1))
    for k, source in enumerate(proposal.sources):
        if source == FORCED:
            rows[k if proposal.parents is None else proposal.parents[k] + 1] = None
    logits = world.logits(output, proposal.tokens, proposal.parents)
    verdict = verify(view, proposal, logits, rows, entropy)
    assert state == (None if view.constraint is None else view.constraint.prefix)
    path = verdict.path if proposal.parents is not None else range(verdict.accepted)
    assert len(path) == verdict.accepted
    new = (*(proposal.tokens[i] for i in path), verdict.next_token)
    view.tokens.extend(new)
    if view.constraint is not None:
        view.constraint.accept(new)
    drafter.commit(view, proposal, verdict.accepted, len(new))
    return new


def decode(
    world: World, drafter, entropy: Entropy, depth: int, cut: Cut = whole, limit: int = 3
) -> Prefix:
    """The first ``depth`` tokens of one speculative generation."""
    view = world.view()
    drafter.open(view)
    while (missing := depth - len(view.tokens) + len(world.prompt)) > 0:
        step(world, view, drafter, entropy, cut, min(limit, missing))
    drafter.close(view)
    return tuple(view.tokens[len(world.prompt) :][:depth])


def emitted(world: World, make: Make, depth: int, cut: Cut = whole, limit: int = 3) -> dict:
    """The law of ``decode`` for drafters whose state is the text."""
    horizon = len(world.prompt) + depth

    @cache
    def rest(output: Prefix) -> dict[Prefix, float]:
        """The law of the first ``depth`` tokens, given the first ones."""
        if len(output) >= depth:
            return {output[:depth]: 1.0}

        def run(dice: Dice) -> Prefix:
            view = world.view(output)
            drafter = make(dice)
            drafter.open(view)
            return step(world, view, drafter, dice, cut, min(limit, depth - len(output)))

        total: dict = defaultdict(float)
        for new, weight in law(run, horizon).items():
            for text, share in rest((output + new)[:depth]).items():
                total[text] += weight * share
        return dict(total)

    return rest(())
