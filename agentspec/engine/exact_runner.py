"""The runner on our own CPU kernels: a token's bits don't depend on its neighbours (law 1).

Legend: T packed tokens, R rows whose logits are wanted, V vocabulary, N tapped features, P pages.

Read next: ``model/int8_llama.py`` (what runs), ``runner.py`` (the same on stock torch).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from agentspec_kernels._cpu.build import Unavailable, load
from agentspec_kernels._cpu.program import LONGEST_PATH, PAGE, Pool, Rows

from agentspec.resources import user_cache_dir
from agentspec.settings import EngineSettings

from .batch import Forward, Span
from .model.config import Stretch
from .model.errors import UnsupportedModel
from .model.int8_llama import Int8Llama
from .model.threads import default_threads
from .model.weights import open_checkpoint

__all__ = ["ExactRunner", "Unavailable"]


class ExactRunner:
    """One model, its page pool, and the one call that computes; same face as ``Runner``.

    kind: names the library, so what was measured on it; threads: how many run a pass, those of
    ``pool``.
    exact: True: integer sums are exact, every float reduction has one fixed order a row, and
    attention merges chunks at fixed positions; so batch, chunking, pages and drafts change no bit.
    """

    exact = True

    def __init__(
        self,
        model: Int8Llama,
        pool: Pool,
        *,
        num_pages: int,
        context_tokens: int,
        kind: str = "int8",
        threads: int = 1,
    ):
        self.model = model
        self.kind = kind
        self.threads = threads
        self.device = torch.device("cpu")
        self.vocab_size = model.config.vocab
        self.page_tokens = PAGE
        self.num_pages = num_pages
        self.context_tokens = min(
            context_tokens, model.config.context_tokens, num_pages * self.page_tokens
        )
        self.pool = pool

    @classmethod
    def load(
        cls,
        settings: EngineSettings,
        path: Path,
        *,
        taps: Sequence[int] = (),
        isa: str | None = None,
    ) -> ExactRunner:
        """The runner of a GGUF file or safetensors folder.

        isa: None picks the widest instruction set. Raises ``Unavailable`` where the library can't
        be built, ``UnsupportedModel`` or ``WeightsError`` where the model can't run on it.
        """
        stretch = Stretch(settings.rope_scale, settings.rope_scaling)
        checkpoint = open_checkpoint(path, stretch)
        if checkpoint.config.architecture != "llama":
            raise UnsupportedModel(
                f"the int8 kernels run llama, not '{checkpoint.config.architecture}'"
            )
        if settings.page_tokens != PAGE:
            raise UnsupportedModel(f"the int8 kernels need engine.page_tokens = {PAGE}")
        library = load(user_cache_dir() / "kernels", isa)
        kind = Path(library._name).stem
        threads = settings.threads or default_threads()
        # Torch only samples here, and its idle threads spin: passes then took twice as long.
        torch.set_num_threads(1)
        num_pages = max(1, settings.kv_tokens // PAGE)
        context = min(settings.context_tokens, checkpoint.config.context_tokens)
        model = Int8Llama(checkpoint, num_pages=num_pages, positions=context, taps=taps)
        return cls(
            model,
            Pool.create(library, threads),
            num_pages=num_pages,
            context_tokens=settings.context_tokens,
            kind=kind,
            threads=threads,
        )

    def set_taps(self, taps: Sequence[int]) -> None:
        """See ``taps.Tappable``."""
        self.model.set_taps(taps)

    def forward(self, spans: Sequence[Span], *, op: str = "all") -> Forward:
        """One pass over all spans; writes their K/V, returns logits [R, V] float32 of wanted rows.

        The tensors are overwritten by the next pass. Spans must not share a page that either of
        them writes. R may be 0. op: for measuring, only a part of the pass (``Program.PARTS``).
        """
        logits, features = self.model.forward(self.pool, _rows(spans), op)
        return Forward(
            torch.from_numpy(logits), None if features is None else torch.from_numpy(features)
        )

    def compact(self, pages: Sequence[int], moves: Sequence[tuple[int, int]]) -> None:
        """Move K/V within a sequence: for each (source, to) slot ``to`` becomes what source is."""
        self.model.move(pages, moves)


def _rows(spans: Sequence[Span]) -> Rows:
    """Packed ids, wanted rows, spans and page tables as the kernels take them.

    A span with a tree becomes two: what comes before the tree's first row, and the rest.
    """
    ids: list[int] = []
    gather: list[int] = []
    pages: list[int] = []
    parents: list[int] = []
    table: list[tuple[int, int, int, int]] = []
    trees: dict[int, int] = {}
    for span in spans:
        first, count = len(ids), len(span.tokens)
        assert all(0 <= row < count for row in span.logit_rows)
        assert len(span.pages) * PAGE >= span.start + count
        plain = count if span.parents is None else count - len(span.parents) - 1
        if plain:
            table.append((first, plain, span.start, len(pages)))
        if span.parents is not None:
            trees[len(table)] = len(parents)
            table.append((first + plain, count - plain, span.start + plain, len(pages)))
            assert max(span.positions()) - span.start - plain < LONGEST_PATH
            parents.extend((-1, *(parent + 1 for parent in span.parents)))
        gather.extend(first + row for row in span.logit_rows)
        ids.extend(span.tokens)
        pages.extend(span.pages)
    arrays = (np.array(values, np.int32) for values in (ids, gather, pages, parents))
    packed, wanted, tables, above = arrays
    return Rows(packed, wanted, table, tables, above, trees)
