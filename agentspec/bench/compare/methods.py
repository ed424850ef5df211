"""The methods of a comparison by name, and the variants of each that are run."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from agentspec.bench.workloads import BenchError
from agentspec.engine.draft import names as model_free
from agentspec.engine.draft.base import FORCED

NONE, UNFORCED, ALL = "none", "unforced", "all"
PLAIN = (NONE, FORCED, UNFORCED)
"""Methods without a draft. In plain decoding as well the grammar's forced spans cost no pass (law
2 of the engine), so ``forced`` is ``none`` by its other name: one checks the other, and
``unforced`` (the same text written without a grammar) tells what the spans are worth."""
ADAPTIVE, BLIND = "adaptive", "blind"


@dataclass(frozen=True, slots=True)
class Method:
    """name: as in the table. sources: draft sources by preference; () is plain decoding."""

    name: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Variant:
    """A method under one schedule. masked: the drafts, and the schedule, know the grammar."""

    method: Method
    schedule: str
    masked: bool

    @property
    def mode(self) -> str:
        """The engine's mode of speculation (``engine/modes.py``)."""
        return BLIND if self.schedule == ADAPTIVE and not self.masked else self.schedule


def parse_drafts(words: Seq[str]) -> dict[str, str]:
    """NAME=PATH each. Raises ``BenchError``."""
    found = {}
    for word in words:
        name, equals, path = word.partition("=")
        if not equals or not name or not path:
            raise BenchError(f"--drafts: '{word}' is not NAME=PATH")
        if name in found or name in (*PLAIN, ALL, *model_free()):
            raise BenchError(f"--drafts: the name '{name}' is taken")
        found[name] = path
    return found


def parse_methods(words: Seq[str], drafts: Seq[str]) -> list[Method]:
    """Names, or several sources with "+" between them; ``none`` is always the first. () means all.

    ``all`` is the suffix source with the draft ``dspark``, or else the first one. Raises
    ``BenchError`` for a source that is not there.
    """
    words = words or [NONE, FORCED, UNFORCED, *model_free(), *drafts, ALL]
    return [_method(word, drafts) for word in dict.fromkeys((NONE, *words))]


def _method(word: str, drafts: Seq[str]) -> Method:
    if word in PLAIN:
        return Method(word)
    if word == ALL:
        best = ["dspark"] if "dspark" in drafts else list(drafts[:1])
        return Method(ALL, ("suffix", *best))
    sources = tuple(word.split("+"))
    known = (*model_free(), *drafts)
    for source in sources:
        if source not in known:
            raise BenchError(
                f"no method '{source}': there are {', '.join((*PLAIN, ALL, *known))}; a trained "
                "draft is given by --drafts NAME=PATH"
            )
    return Method(word, sources)


def variants(
    methods: Seq[Method], schedules: Seq[str], maskings: Seq[bool], copies: Seq[str]
) -> list[Variant]:
    """What is run on a prompt with a grammar. copies: drafts that can draft blindly.

    Plain decoding is there once, masked and without a schedule. A fixed schedule knows of no
    grammar, so under it only drafts that mask themselves differ when blind.
    """
    found = []
    for method in methods:
        if not method.sources:
            found.append(Variant(method, "off", True))
            continue
        for schedule in schedules:
            for masked in maskings:
                own = any(source in copies for source in method.sources)
                if masked or own or schedule == ADAPTIVE:
                    found.append(Variant(method, schedule, masked))
    return found
