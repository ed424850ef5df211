"""One process or several: the sums of a step over all of them.

Every process holds the whole draft and takes its share of a step's samples; divisors are of the
whole step, so gradients only have to be added up. Started by ``torchrun``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Ranks:
    """rank of size processes."""

    rank: int = 0
    size: int = 1

    @classmethod
    def start(cls, device: str) -> Ranks:
        """Join the group that the environment of ``torchrun`` describes; alone without one."""
        if not dist.is_available() or not dist.is_torchelastic_launched():
            return cls()
        if not dist.is_initialized():
            dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
        if device == "cuda":
            torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, items: list) -> list:
        """This process's items: every ``size``-th."""
        return items[self.rank :: self.size]

    def add(self, tensors: Iterable[Tensor]) -> None:
        """Sum each over all processes, in place, in one flat message."""
        if self.size == 1:
            return
        held = list(tensors)
        flat = torch.cat([tensor.flatten() for tensor in held])
        dist.all_reduce(flat)
        for tensor, part in zip(held, flat.split([t.numel() for t in held]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def any(self, mine: bool) -> bool:
        """Whether it is so in some process: what all of them have to decide alike."""
        if self.size == 1:
            return mine
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        flag = torch.tensor([float(mine)], device=device)
        dist.all_reduce(flag)
        return bool(flag.item())

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()
