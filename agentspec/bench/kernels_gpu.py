"""``bench kernels --device cuda``: each Triton kernel over its byte floor, beside torch's own way.

The byte floor of a call is what it must read and write once, over the bandwidth that a plain copy
of a GiB reaches on the same device: a kernel that is bound by memory is at 1.0 when it is perfect.
Sizes are those of Qwen3-8B, and of Qwen3-30B-A3B for experts. Both ways compute the same; how far
they are apart stands in ``apart`` (of the largest value of torch's result).

Legend: T rows, H heads, J K/V heads, D head size, V vocabulary.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import report
from .kernels_gpu_cases import CASES, Call, Sizes
from .workloads import BenchError

COLUMNS = ["op", "rows", "context", "us", "floor_us", "over_floor", "torch_us", "over_torch"]
COLUMNS += ["apart", "n"]
_COPY_BYTES = 2**30

Timer = Callable[[Callable[[], object], int], list[float]]
"""A call and how often -> microseconds of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """rows: of a call (for attention: sequences times rows of each); contexts: of attention."""

    count: int
    rows: Seq[int]
    contexts: Seq[int]
    ops: Seq[str]


def run(plan: Plan, sizes: Sizes | None = None) -> dict[str, Any]:
    """The whole bench. Raises ``BenchError`` where there is no GPU, or an op isn't known."""
    device = required()
    unknown = sorted(set(plan.ops) - set(CASES))
    if unknown:
        raise BenchError(f"no kernel '{unknown[0]}'; there are {', '.join(sorted(CASES))}")
    bandwidth = copied_bytes_per_us(device, _events, plan.count)
    rows = list(measured(plan, sizes or Sizes(), device, bandwidth, _events))
    found = torch.cuda.get_device_properties(device)
    return report.build(rows, gpu=found.name, bytes_per_us=bandwidth)


def required() -> torch.device:
    """The GPU. Raises ``BenchError`` that says what is missing."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    build = "was built without CUDA" if torch.version.cuda is None else "finds no GPU"
    raise BenchError(f"--device cuda: torch {torch.__version__} {build}; nothing was measured")


def measured(
    plan: Plan, sizes: Sizes, device: torch.device, bandwidth: float, timer: Timer
) -> Iterator[dict[str, Any]]:
    """A row for each op, rows and context. bandwidth: bytes a microsecond."""
    for op in plan.ops:
        make = CASES[op]
        for context in plan.contexts if make.attends else (0,):
            for rows in plan.rows:
                call = make.call(sizes, rows, context, device)
                yield {"op": op, "rows": rows, "context": context} | _row(
                    call, bandwidth, timer, plan.count
                )


def _row(call: Call, bandwidth: float, timer: Timer, count: int) -> dict[str, Any]:
    us = statistics.median(timer(call.ours, count))
    floor_us = call.bytes / bandwidth
    row: dict[str, Any] = {"us": us, "floor_us": floor_us, "over_floor": us / floor_us, "n": count}
    if call.torch is None:
        return row | {"torch_us": None, "over_torch": None, "apart": None}
    torch_us = statistics.median(timer(call.torch, count))
    return row | {
        "torch_us": torch_us,
        "over_torch": us / torch_us,
        "apart": apart(call.ours(), call.torch()),
    }


def apart(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, as a part of the largest value."""
    difference = (ours.double() - theirs.double()).abs().max()
    return float(difference / theirs.double().abs().max().clamp_min(1e-30))


def copied_bytes_per_us(
    device: torch.device, timer: Timer, count: int, size: int = _COPY_BYTES
) -> float:
    """What a copy reads and writes."""
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / statistics.median(timer(lambda: target.copy_(source), count))


def _events(call: Callable[[], object], count: int) -> list[float]:
    """By the GPU's own events; the second-level cache is filled with other data before each."""
    flush = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    times = []
    for number in range(count + 3):
        flush.zero_()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        if number >= 3:
            times.append(begin.elapsed_time(end) * 1000)
    return times
