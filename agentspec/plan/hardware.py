"""GPUs by what their makers publish: memory, bandwidth, dense tensor throughput, links."""

from __future__ import annotations

from dataclasses import dataclass

from agentspec.settings import SettingsError


class PlanError(SettingsError):
    """The plan was asked for what it doesn't know; the message says what there is."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """memory_gb, bandwidth_tb_s, link_gb_s (one direction, between any two): powers of ten.

    bf16_tflops, fp8_tflops: dense, without 2:4 sparsity; None: the chip has no such units.
    """

    name: str
    memory_gb: float
    bandwidth_tb_s: float
    bf16_tflops: float
    fp8_tflops: float | None
    link_gb_s: float
    source: str

    def flops(self, narrow: bool) -> float:
        """Peak operations a second; narrow: the weights are multiplied as 8 bits or less."""
        found = self.fp8_tflops if narrow and self.fp8_tflops else self.bf16_tflops
        return found * 1e12


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("A100", 80, 2.039, 312, None, 300, "NVIDIA A100 80GB SXM datasheet"),
        Gpu(
            "H100",
            80,
            3.35,
            989.4,
            1978.9,
            450,
            "NVIDIA H100 SXM datasheet, half of 'with sparsity'",
        ),
        Gpu(
            "H200",
            141,
            4.8,
            989.4,
            1978.9,
            450,
            "NVIDIA H200 SXM datasheet, half of 'with sparsity'",
        ),
        Gpu("B200", 180, 8.0, 2250, 4500, 900, "NVIDIA HGX B200 at 1000 W (up to 8 TB/s), dense"),
    )
}


def gpu(name: str) -> Gpu:
    """Raises ``PlanError``."""
    found = GPUS.get(name.upper())
    if found is None:
        raise PlanError(f"--gpu: no GPU '{name}'; there are {', '.join(GPUS)}")
    return found
