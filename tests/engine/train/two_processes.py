"""One of several training processes over samples in memory; run by ``test_distributed.py``."""

from __future__ import annotations

import sys

import torch
from safetensors.torch import save_file

from agentspec.engine.train.batches import Columns
from agentspec.engine.train.config import LossConfig, TrainConfig
from agentspec.engine.train.dataset import Schedule
from agentspec.engine.train.distributed import Ranks
from agentspec.engine.train.methods import loss_of
from agentspec.engine.train.nets import build_net
from agentspec.engine.train.optim import optimizer
from agentspec.engine.train.stepper import Frozen, Stepper, Sums
from tests.engine.train.worlds import Memory, spec, tables

STEPS = 3


def stepper(method: str, ranks: Ranks) -> Stepper:
    """A tiny draft before its first step, float64; the same in every process."""
    torch.manual_seed(4)
    one = spec(method)
    config = TrainConfig(batch=4, anchors=5, dtype="fp64", pack_tokens=64, learning_rate=1e-2)
    net = build_net(one).double()
    schedule = Schedule(list(range(5)), config.batch, 10, config.seed, STEPS)
    frozen = Frozen.of(*tables(), None, dtype="fp64", device="cpu", chunk=16)
    source = Memory([(2, 9), (3, 14), (1, 7), (4, 12), (2, 6)])
    loss = loss_of(method, LossConfig())
    return Stepper(
        net, optimizer(net, config), source, schedule, frozen, loss, config, "fp64", ranks,
        Columns(last=method == "mtp"),
    )  # fmt: skip


def run(method: str, ranks: Ranks) -> tuple[Stepper, list[Sums]]:
    made = stepper(method, ranks)
    return made, [made.step(number) for number in range(STEPS)]


def main(folder: str) -> None:
    """Train every method; write what the first process has, and every process's sums."""
    torch.set_num_threads(1)
    ranks = Ranks.start("cpu")
    assert ranks.any(ranks.rank == 1) and not ranks.any(False)
    for method in sys.argv[2:]:
        made, sums = run(method, ranks)
        figures = {
            "loss": torch.tensor([s.loss for s in sums]),
            "flops": torch.tensor(sums[-1].flops),
            "rows": torch.tensor([s.rows for s in sums]),
        }
        weights = {f"net.{name}": value for name, value in made.net.state_dict().items()}
        save_file(weights | figures, f"{folder}/{method}-{ranks.rank}.safetensors")
    ranks.wait()


if __name__ == "__main__":
    main(sys.argv[1])
