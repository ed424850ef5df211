"""All methods on the same prompts, each beside plain decoding of that prompt in the same minutes.

For every prompt, temperature and sample, all variants run one after the other in an order drawn
anew. Where the text may not depend on the draft (greedy, or with a seed), it is compared with that
of plain decoding.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Protocol

from .drive import Answer
from .methods import NONE, UNFORCED, Method, Variant

BASELINE = Variant(Method(NONE), "off", True)


@dataclass(frozen=True, slots=True)
class Item:
    """A prompt. grammar: it is answered under one. fixed: its answer is prescribed."""

    id: str
    workload: str
    grammar: bool
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Sampling:
    """seed: None draws freely (rejection sampling)."""

    temperature: float
    seed: int | None = None

    @property
    def decided(self) -> bool:
        """The text is the same whatever the draft."""
        return self.temperature == 0 or self.seed is not None


@dataclass(slots=True)
class Shot:
    """One prompt once, by every variant. other_text: variants whose text should have been that of
    plain decoding, and was not."""

    item: Item
    sampling: Sampling
    answers: dict[Variant, Answer] = field(default_factory=dict)
    other_text: list[Variant] = field(default_factory=list)

    @property
    def looped(self) -> bool:
        """Some answer ran into repetition: it counts for no method."""
        return any(answer.looped for answer in self.answers.values())


class Asker(Protocol):
    """Answers one item. text: what is to be written, with no grammar; None: the model is asked."""

    def ask(
        self, item: Item, variant: Variant, sampling: Sampling, text: str | None = None
    ) -> Answer: ...


@dataclass(frozen=True, slots=True)
class Design:
    """What is run. samples: of each prompt at temperatures above 0. variants: of a prompt under a
    grammar; elsewhere those that would differ by the grammar alone run once."""

    variants: Seq[Variant]
    temperatures: Seq[float] = (0.0,)
    samples: int = 1
    seeded: bool = True
    seed: int = 0

    def variants_of(self, item: Item) -> list[Variant]:
        if item.grammar:
            return list(self.variants)
        return [v for v in self.variants if v.masked and (v.method.sources or v == BASELINE)]

    def samplings(self, item: Item) -> Iterator[Sampling]:
        """Each item has seeds of its own."""
        draw = random.Random(f"{self.seed}/{item.id}")
        for temperature in self.temperatures:
            for _ in range(1 if temperature == 0 else self.samples):
                seed = draw.getrandbits(31)
                yield Sampling(temperature, seed if temperature and self.seeded else None)


def shots(
    asker: Asker, items: Seq[Item], design: Design, progress: Callable[[str], None]
) -> Iterator[Shot]:
    """Every prompt of every design point; the first one of a workload is run before, uncounted."""
    draw = random.Random(design.seed)
    warm: set[str] = set()
    for number, item in enumerate(items, 1):
        if item.workload not in warm:
            warm.add(item.workload)
            _shot(asker, item, Sampling(0.0), design.variants_of(item), draw)
        for sampling in design.samplings(item):
            shot = _shot(asker, item, sampling, design.variants_of(item), draw)
            progress(_told(shot, number, len(items)))
            yield shot


def _shot(
    asker: Asker, item: Item, sampling: Sampling, variants: Seq[Variant], draw: random.Random
) -> Shot:
    shot = Shot(item, sampling)
    free = [v for v in variants if v.method.name == UNFORCED]
    for variant in draw.sample(rest := [v for v in variants if v not in free], len(rest)):
        shot.answers[variant] = asker.ask(item, variant, sampling)
    plain = shot.answers[BASELINE].text
    if sampling.decided or item.fixed:
        shot.other_text = [v for v, answer in shot.answers.items() if answer.text != plain]
    for variant in free:
        answer = asker.ask(item, variant, sampling, text=plain)
        # Its last tokens may be cut elsewhere; such a text tells nothing of the same work.
        if answer.text == plain:
            shot.answers[variant] = answer
    shot.answers = {v: shot.answers[v] for v in variants if v in shot.answers}
    return shot


def _told(shot: Shot, number: int, of: int) -> str:
    plain = shot.answers[BASELINE]
    fastest = max(shot.answers, key=lambda v: _pace(shot.answers[v]))
    ratio = _pace(shot.answers[fastest]) / _pace(plain) if _pace(plain) else 0.0
    end = ", looped" if shot.looped else ""
    wrong = f", OTHER TEXT by {len(shot.other_text)}" if shot.other_text else ""
    return (
        f"{number}/{of} {shot.item.id} T={shot.sampling.temperature:g}: plain {_pace(plain):.1f} "
        f"tok/s, best {fastest.method.name} {ratio:.2f}x{end}{wrong}"
    )


def _pace(answer: Answer) -> float:
    return answer.tokens / answer.seconds if answer.seconds else 0.0
