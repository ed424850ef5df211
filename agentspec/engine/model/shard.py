"""Which part of every weight a rank holds, and how ranks put their parts together.

Legend: T packed tokens, N outputs of a product, R ranks.

Two ways. Summed: the products before a sum over the hidden or feed-forward size are split by
inputs and the ranks' sums are added: one all-reduce each, but the addends of a sum are grouped by
rank. Exact: every product is split by outputs and its input is gathered first, so that no sum is
split: twice the traffic, and the bits of one rank wherever a product's bits don't depend on how
many outputs it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from .errors import UnsupportedModel

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class RanksDisagree(RuntimeError):
    """Ranks that were to have the same bits don't: the engine must not go on."""


class Slice(NamedTuple):
    """Entries start .. stop - 1 of dimension ``dim``, of ``whole``, of a checkpoint's tensor."""

    dim: int
    start: int
    stop: int
    whole: int


@dataclass(frozen=True, slots=True)
class Shard:
    """Rank ``rank`` of ``ranks``. exact: no sum is split. checked: ``agreed`` compares, every time.

    group: None: torch's default group.
    """

    rank: int = 0
    ranks: int = 1
    exact: bool = False
    checked: bool = False
    group: ProcessGroup | None = None

    def part(self, what: str, count: int) -> tuple[int, int]:
        """This rank's share of ``count`` things, from and to. Raises ``UnsupportedModel``."""
        if count % self.ranks:
            raise UnsupportedModel(f"{count} {what} can't be split over {self.ranks} ranks evenly")
        size = count // self.ranks
        return self.rank * size, (self.rank + 1) * size

    def shared(self, what: str, count: int) -> tuple[int, int]:
        """The same; of fewer things than ranks several ranks have one. Raises as ``part``."""
        if count >= self.ranks or self.ranks % count:
            return self.part(what, count)
        one = self.rank * count // self.ranks
        return one, one + 1

    def gathered(self, x: Tensor) -> Tensor:
        """[T, N / R] of each rank -> [T, N], in order of ranks, the same on all of them."""
        if self.ranks == 1:
            return x
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in self._all()]
        torch.distributed.all_gather(parts, x.contiguous(), group=self.group)
        return torch.cat(parts, -1)

    def summed(self, x: Tensor) -> Tensor:
        """The sum of every rank's [T, N], the same on all of them; changes ``x``."""
        if self.ranks > 1:
            torch.distributed.all_reduce(x, group=self.group)
        return x

    def agreed(self, x: Tensor) -> Tensor:
        """``x``, which every rank is to have alike. Raises ``RanksDisagree`` on all where not."""
        if self.checked and self.ranks > 1:
            own = x.contiguous().view(torch.uint8).long().flatten()
            places = torch.arange(1, own.numel() + 1, device=x.device)
            mine = (own * places).sum().view(1)
            sums = [torch.empty_like(mine) for _ in self._all()]
            torch.distributed.all_gather(sums, mine, group=self.group)
            if any(int(other) != int(mine) for other in sums):
                raise RanksDisagree(f"ranks computed different rows of {list(x.shape)}")
        return x

    def _all(self) -> range:
        return range(self.ranks)


WHOLE = Shard()
