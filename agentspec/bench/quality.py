"""``bench quality``: what a number format costs, in nats a token, against the reference format.

All formats read the same tokens in step. Of every token: its negative log likelihood (nll),
whether the best token is the reference's (top1), and KL(reference || format) over the vocabulary.
Intervals are of the mean over windows, paired with the reference.

Legend: R rows of logits, V vocabulary.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, BinaryIO

from . import perplexity, report
from .corpus import Texts, Window
from .formats import Format, Scorer
from .workloads import BenchError

if TYPE_CHECKING:
    from torch import Tensor

COLUMNS = [
    *("format", "kind", "scored", "nll", "loss", "ci95", "top1", "kl", "tokens", "windows"),
]
LLAMA = "llamacpp"
SECOND_HALF = "second half"
_CHUNK = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """formats[0] is the reference. buckets: positions at which a row of its own begins."""

    formats: list[str]
    tokens: int
    window: int
    buckets: list[int]
    files: list[Path]
    weights: str | None
    threads: int
    peers: Path


@dataclass(slots=True)
class Sums:
    """Over the tokens of one window (and part) in one format."""

    tokens: int = 0
    nll: float = 0.0
    same: int = 0
    kl: float = 0.0


@dataclass(slots=True)
class Book:
    """Sums by (format, kind, part of the window), one entry a window."""

    sums: dict[tuple[str, str, str], list[Sums]] = field(default_factory=dict)

    def open(self, format: str, kind: str, part: str) -> Sums:
        self.sums.setdefault((format, kind, part), []).append(Sums())
        return self.sums[format, kind, part][-1]


def parts(window: int, buckets: Seq[int]) -> dict[str, range]:
    """What is told apart of a window: all of it, its second half, and buckets of positions."""
    named = {"all": range(window - 1), SECOND_HALF: perplexity.scored(window)}
    for first, end in itertools.pairwise([*buckets, window - 1]):
        named[f"{first}-{end}"] = range(first, min(end, window - 1))
    return named


def run(plan: Plan) -> dict[str, Any]:
    """The whole bench. Raises ``BenchError`` and what loading a model raises."""
    from agentspec.engine.model.fetch import resolve

    ours = [Format.of(name) for name in plan.formats if name != LLAMA]
    program = plan.peers / "bin" / "llama-perplexity" if LLAMA in plan.formats else None
    if program is not None and not program.exists():
        raise BenchError(f"{program} is missing: run scripts/peers.sh")
    weights = resolve(plan.weights)
    windows = _windows(plan, weights)
    scorers = {format.name: format.open(weights, plan.window, plan.threads) for format in ours}
    book, theirs = Book(), []
    for kind in dict.fromkeys(window.kind for window in windows):
        chosen = [w for w in windows if w.kind == kind]
        with TemporaryDirectory(prefix="agentspec-bench-") as folder:
            base = Path(folder) / "base"
            with base.open("wb") as file:
                _score(book, chosen, scorers, plan, file if program else None)
            if program is not None:
                judged = perplexity.judge(program, weights, base, plan.window, plan.threads)
                theirs.append(_llama_row(kind, judged, len(chosen), plan.window))
        report.progress(f"{kind}: {len(chosen)} windows")
    rows = [*_rows(book, ours[0].name), *theirs, *_together(theirs)]
    return report.build(rows, window=plan.window, threads=plan.threads, weights=weights.name)


def _windows(plan: Plan, weights: Path) -> list[Window]:
    from agentspec.engine.build import showing
    from agentspec.engine.tokenizer import Tokenizer
    from agentspec.settings import EngineSettings

    tokenizer = Tokenizer.load(weights)
    texts = Texts(tokenizer, showing(EngineSettings(), weights, tokenizer))
    return texts.windows(plan.tokens, plan.window, plan.files)


def _score(
    book: Book, windows: Seq[Window], scorers: dict[str, Scorer], plan: Plan, base: BinaryIO | None
) -> None:
    """All formats over all windows of a kind; base: where the reference's rows are kept."""
    reference, named = next(iter(scorers)), parts(plan.window, plan.buckets)
    for window in windows:
        assert len(window.tokens) == plan.window
        keys = [(format, part) for format in scorers for part in named]
        sums = {key: book.open(key[0], window.kind, key[1]) for key in keys}
        for scorer in scorers.values():
            scorer.begin()
        for start in range(0, plan.window - 1, _CHUNK):
            stop = min(start + _CHUNK, plan.window - 1)
            targets = window.tokens[start + 1 : stop + 1]
            logits = {name: s.rows(window.tokens, start, stop) for name, s in scorers.items()}
            theirs = logits[reference].log_softmax(-1)
            if base is not None:
                _keep(base, [w.tokens for w in windows], logits[reference], start)
            for name, ours in logits.items():
                figures = _figures(ours.log_softmax(-1), theirs, targets)
                for part, places in named.items():
                    _add(sums[name, part], figures, start, places)


def _figures(ours: Tensor, theirs: Tensor, targets: Seq[int]) -> Tensor:
    """[3, R] float64 of log probabilities [R, V]: nll of the targets, top-1 agreement, KL."""
    import torch

    nll = -ours.gather(1, torch.tensor(targets)[:, None])[:, 0].double()
    same = (ours.argmax(1) == theirs.argmax(1)).double()
    kl = (theirs.exp() * (theirs - ours)).sum(1, dtype=torch.float64)
    return torch.stack((nll, same, kl))


def _add(sums: Sums, figures: Tensor, start: int, places: range) -> None:
    """figures [3, R] of positions from ``start`` on; those in ``places`` count."""
    first = max(places.start - start, 0)
    chosen = figures[:, first : max(places.stop - start, first)]
    nll, same, kl = chosen.sum(1).tolist()
    sums.tokens += chosen.shape[1]
    sums.nll, sums.same, sums.kl = sums.nll + nll, sums.same + int(same), sums.kl + kl


def _keep(base: BinaryIO, whole: Seq[Seq[int]], logits: Tensor, start: int) -> None:
    """The reference's logits [R, V] of positions from ``start`` on, those that are scored."""
    if base.tell() == 0:
        perplexity.write_head(base, whole, logits.shape[1])
    places = perplexity.scored(len(whole[0]))
    first = max(places.start - start, 0)
    perplexity.write_rows(base, logits[first : max(places.stop - start, first)].numpy())


def _rows(book: Book, reference: str) -> Iterator[dict[str, Any]]:
    """One a format, kind and part; then all kinds together."""
    formats = dict.fromkeys(format for format, _, _ in book.sums)
    named = dict.fromkeys(part for _, _, part in book.sums)
    kinds = list(dict.fromkeys(kind for _, kind, _ in book.sums))
    for part in named:
        for kind in [*kinds, "all"]:
            of = kinds if kind == "all" else [kind]
            base = [s for k in of for s in book.sums[reference, k, part]]
            for format in formats:
                mine = [s for k in of for s in book.sums[format, k, part]]
                if sum(s.tokens for s in mine):
                    yield row(format, kind, part, mine, base)


def row(format: str, kind: str, part: str, mine: Seq[Sums], base: Seq[Sums]) -> dict[str, Any]:
    """One result. loss: nll above the reference's; ci95: half the width of its interval."""
    tokens = sum(s.tokens for s in mine)
    nll = sum(s.nll for s in mine) / tokens
    pairs = zip(mine, base, strict=True)
    losses = [(a.nll - b.nll) / a.tokens for a, b in pairs if a.tokens]
    spread = statistics.stdev(losses) if len(losses) > 1 else math.nan
    return {
        "format": format,
        "kind": kind,
        "scored": part,
        "nll": nll,
        "loss": nll - sum(s.nll for s in base) / tokens,
        "ci95": 1.96 * spread / math.sqrt(len(losses)) if len(losses) > 1 else None,
        "top1": sum(s.same for s in mine) / tokens,
        "kl": sum(s.kl for s in mine) / tokens,
        "tokens": tokens,
        "windows": len(losses),
    }


def _llama_row(kind: str, judged: perplexity.Judged, windows: int, window: int) -> dict[str, Any]:
    """llama.cpp's own figures as a row."""
    return {
        "format": LLAMA,
        "kind": kind,
        "scored": SECOND_HALF,
        "nll": math.log(judged.ppl),
        "loss": math.log(judged.ppl) - math.log(judged.base_ppl),
        "ci95": None,
        "top1": judged.top1_percent / 100,
        "kl": judged.kl,
        "tokens": windows * len(perplexity.scored(window)),
        "windows": windows,
    }


def _together(rows: Seq[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows of several kinds as one of all; nothing of none."""
    if rows:
        tokens = sum(one["tokens"] for one in rows)
        means = {
            name: sum(one[name] * one["tokens"] for one in rows) / tokens
            for name in ("nll", "loss", "top1", "kl")
        }
        windows = sum(one["windows"] for one in rows)
        yield {**rows[0], "kind": "all", **means, "tokens": tokens, "windows": windows}
