"""Number formats to be judged: a name, and what scores tokens in that format.

A name is a dtype of the settings, then ``:ISA`` for one instruction set of the exact kernels, then
``+ntk2`` or ``+linear2`` for a window stretched by 2: ``fp32``, ``int8:avx2``, ``int8+ntk2``.

Legend: R rows of logits, V vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .workloads import BenchError

if TYPE_CHECKING:
    from torch import Tensor

_NAME = re.compile(r"(int8|bf16|fp32|fp64)(?::(\w+))?(?:\+(ntk|linear)([\d.]+))?")
_CHUNK = 128


@dataclass(frozen=True, slots=True)
class Format:
    """See the module's docstring. factor 1.0: the window is not stretched."""

    name: str
    dtype: str
    isa: str | None
    way: str
    factor: float

    @classmethod
    def of(cls, name: str) -> Format:
        """Raises ``BenchError`` for a name that it can't be."""
        found = _NAME.fullmatch(name)
        if found is None or (found[2] and found[1] != "int8"):
            raise BenchError(f"no format '{name}'; fp32, bf16, int8, int8:avx2, int8+ntk2 are some")
        return cls(name, found[1], found[2], found[3] or "ntk", float(found[4] or 1.0))

    def open(self, weights: Path, window: int, threads: int) -> Scorer:
        """Load the weights so. Raises what loading a model raises."""
        import msgspec

        from agentspec.engine.exact_runner import ExactRunner
        from agentspec.engine.runner import Runner
        from agentspec.settings import EngineSettings

        fields: dict[str, Any] = {
            "dtype": self.dtype,
            "threads": threads,
            "context_tokens": window,
            "kv_tokens": window + 16,
            "rope_scale": self.factor,
            "rope_scaling": self.way,
        }
        settings = msgspec.convert(fields, EngineSettings)
        if self.dtype == "int8":
            return Scorer(ExactRunner.load(settings, weights, isa=self.isa))
        return Scorer(Runner.load(settings, weights))


class Scorer:
    """Logits of a text, from its beginning on; the runner's pages are all its own.

    A text longer than the runner's window loses the older half of what it holds whenever it is full
    (what a server does that cuts old text off).
    """

    def __init__(self, runner: Any):
        self._runner = runner
        self._window = runner.context_tokens
        self._pages = list(range(-(-self._window // runner.page_tokens)))
        self._base = 0

    def begin(self) -> None:
        """Another text."""
        self._base = 0

    def rows(self, tokens: Seq[int], start: int, stop: int) -> Tensor:
        """Logits [R, V] float32 of positions start..stop-1, a copy; the text is read in order."""
        if stop - self._base > self._window:
            assert stop - start <= self._window // 2
            self._base = start - self._window // 2
            for first in range(self._base, start, _CHUNK):
                self._pass(tokens, first, min(first + _CHUNK, start), wanted=False)
        return self._pass(tokens, start, stop, wanted=True)

    def _pass(self, tokens: Seq[int], start: int, stop: int, *, wanted: bool) -> Tensor:
        from agentspec.engine.batch import Span

        rows = list(range(stop - start)) if wanted else []
        span = Span(list(tokens[start:stop]), start - self._base, self._pages, rows)
        return self._runner.forward([span]).logits.float().clone()
