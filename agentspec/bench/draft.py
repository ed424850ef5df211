"""``bench draft``: what a round of drafting costs beside a pass of the target.

A round is what one step adds for one sequence: the features of a few committed tokens become
context K/V, and a block is drafted. Random drafts of the target's own geometry cost what trained
ones cost. All are measured in turns, round after round, so that weights come from memory as they do
in serving; what a pass costs more because a draft's weights were read before it, or because layers
are tapped, are lines of their own.
Legend: A tapped layers, E hidden size, r Markov rank, V vocabulary.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file

from agentspec.engine.batch import Span
from agentspec.engine.draft.base import DraftView, Observed
from agentspec.engine.draft.block import BlockDrafter, BlockOptions
from agentspec.engine.draft.load import load_block
from agentspec.engine.draft.target import TargetFacts
from agentspec.engine.exact_runner import ExactRunner
from agentspec.engine.model.config import ModelConfig
from agentspec.engine.model.fetch import resolve
from agentspec.engine.sampling import SamplingParams
from agentspec.settings import EngineSettings

from . import report

COLUMNS = [
    "what",
    "layers",
    "head_rows",
    "bits",
    "tokens",
    "context",
    "min_ms",
    "median_ms",
    "ratio",
    "n",
]
_COMMITTED = 3
"""Tokens that a step commits: what ``observe`` is told."""
_PASS = "target pass of 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """layers, head_rows (0: the whole vocabulary): of the random drafts, each with each; or draft:
    a folder. block: its rows. rank: of the Markov head. bits: a weight. tokens: asked for."""

    count: int
    context: int
    layers: list[int]
    head_rows: list[int]
    block: int
    rank: int
    threads: int
    bits: Sequence[int] = (8,)
    tokens: Sequence[int] = (3, 7)
    draft: Path | None = None


class _Variant(NamedTuple):
    layers: int
    head_rows: int
    bits: int


@dataclass(slots=True)
class _Case:
    """before: what is done each time, unmeasured."""

    what: str
    work: Callable[[], object]
    variant: _Variant | None = None
    tokens: int | None = None
    before: Callable[[], object] | None = None
    ms: list[float] = field(default_factory=list)

    def measure(self) -> None:
        if self.before is not None:
            self.before()
        started_ns = time.perf_counter_ns()
        self.work()
        self.ms.append((time.perf_counter_ns() - started_ns) / 1e6)


def run(plan: Plan) -> dict[str, Any]:
    """The whole bench. Raises what ``ExactRunner.load`` raises, and what loading a draft raises."""
    tokens = -(-(plan.context + 64) // 64) * 64
    settings = EngineSettings(threads=plan.threads, kv_tokens=tokens, context_tokens=tokens)
    runner = ExactRunner.load(settings, resolve(None))
    ids = np.random.default_rng(0).integers(1000, 40000, plan.context + 1).tolist()
    cases: list[_Case] = []
    with tempfile.TemporaryDirectory(prefix="agentspec-bench-") as scratch:
        for variant in _variants(plan):
            folder = plan.draft or write_random(
                Path(scratch), runner.model.config, plan, variant.layers
            )
            cases += _draft_cases(plan, runner, folder, ids, variant)
        cases += _target_cases(plan, runner)
        for case in cases:
            case.measure()
            case.ms.clear()
        for number in range(plan.count):
            for case in cases:
                case.measure()
            if (number + 1) % 20 == 0:
                report.progress(f"draft: round {number + 1} of {plan.count}")
    return report.build(_rows(plan, cases), kernels=runner.kind, threads=plan.threads)


def _variants(plan: Plan) -> list[_Variant]:
    layers = [0] if plan.draft is not None else plan.layers
    return [_Variant(*one) for one in product(layers, plan.head_rows, plan.bits)]


def _target_cases(plan: Plan, runner: ExactRunner) -> list[_Case]:
    """Passes of one row, of a block's rows, and of one row with three layers tapped."""
    forward = _forward(plan, runner)

    def tap(layers: Sequence[int]) -> None:
        runner.set_taps(layers)
        forward(1)

    layers = taps_of(runner.model.config)
    return [
        _Case(_PASS, partial(forward, 1), before=partial(forward, 1)),
        _Case(f"target pass of {plan.block + 1}", partial(forward, plan.block + 1)),
        _Case("target pass of 1, tapped", partial(forward, 1), before=partial(tap, layers)),
        _Case(f"{_PASS}, again", partial(forward, 1), before=partial(tap, ())),
    ]


def _forward(plan: Plan, runner: ExactRunner) -> Callable[[int], None]:
    """A pass over so many rows behind the context."""
    pages = list(range(runner.num_pages))

    def forward(rows: int) -> None:
        runner.forward([Span([1000] * rows, plan.context, pages, list(range(rows)))])

    return forward


def _draft_cases(
    plan: Plan, runner: ExactRunner, folder: Path, ids: list[int], variant: _Variant
) -> list[_Case]:
    drafter = load_block(
        folder,
        runner,
        TargetFacts(config=runner.model.config, format="int8"),
        options=BlockOptions(head_rows=variant.head_rows or None, bits=variant.bits),
    )
    view = _opened(drafter, runner, ids)
    hidden = runner.model.config.hidden * len(drafter.taps)
    few = torch.randn(_COMMITTED, hidden)

    def observe() -> None:
        drafter.observe([Observed(view, plan.context - _COMMITTED, few)])

    def propose(tokens: int) -> None:
        assert len(drafter.propose([view], [tokens])[0])

    def whole(tokens: int) -> None:
        observe()
        propose(tokens)

    made, plain = variant._replace(layers=drafter.config.shape.layers), _forward(plan, runner)
    cases: list[_Case] = []
    for tokens in plan.tokens:
        cases += [
            _Case("propose", partial(propose, tokens), made, tokens, partial(plain, 1)),
            _Case("round", partial(whole, tokens), made, tokens, partial(plain, 1)),
            _Case("target pass behind it", partial(plain, 1), made, tokens),
        ]
    return cases


def _opened(drafter: BlockDrafter, runner: ExactRunner, ids: list[int]) -> DraftView:
    """A sequence whose whole context the draft has seen, in features of noise."""
    sampling = SamplingParams(temperature=0.0)
    view = DraftView(0, "", None, ids, len(ids), sampling, page_epochs=[1] * runner.num_pages)
    drafter.open(view)
    view.pages = list(range(runner.num_pages))
    width = runner.model.config.hidden * len(drafter.taps)
    drafter.observe([Observed(view, 0, torch.randn(len(ids) - 1, width))])
    return view


def _rows(plan: Plan, cases: list[_Case]) -> list[dict[str, Any]]:
    """One row a case; ratio: to the target's pass of one row behind another pass, by minima."""
    base = min(next(case for case in cases if case.what == _PASS).ms)
    return [
        {
            "what": case.what,
            **(case.variant._asdict() if case.variant else dict.fromkeys(_Variant._fields)),
            "tokens": case.tokens,
            "context": plan.context,
            "min_ms": min(case.ms),
            "median_ms": statistics.median(case.ms),
            "ratio": min(case.ms) / base,
            "n": len(case.ms),
        }
        for case in cases
    ]


def taps_of(target: ModelConfig) -> list[int]:
    """Three layers, spread, the last one left out."""
    last = target.layers - 1
    return [last // 6, last // 2, last - 2]


def write_random(path: Path, target: ModelConfig, plan: Plan, layers: int) -> Path:
    """A DSpark of random weights in the target's geometry, as a folder."""
    generator = torch.Generator().manual_seed(0)
    hidden, kv = target.hidden, target.kv_heads * target.head_dim
    query, taps = target.heads * target.head_dim, taps_of(target)

    def random(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=generator) / math.sqrt(size[-1])

    tensors = {
        "fc.weight": random(hidden, len(taps) * hidden),
        "hidden_norm.weight": torch.ones(hidden),
        "norm.weight": torch.ones(hidden),
        "markov_head.markov_w1.weight": random(target.vocab, plan.rank),
        "markov_head.markov_w2.weight": random(target.vocab, plan.rank),
        "confidence_head.proj.weight": random(1, hidden + plan.rank),
    }
    for index in range(layers):
        sizes = {
            "self_attn.q_proj": (query, hidden),
            "self_attn.k_proj": (kv, hidden),
            "self_attn.v_proj": (kv, hidden),
            "self_attn.o_proj": (hidden, query),
            "mlp.gate_proj": (target.ffn, hidden),
            "mlp.up_proj": (target.ffn, hidden),
            "mlp.down_proj": (hidden, target.ffn),
        }
        tensors |= {f"layers.{index}.{k}.weight": random(*size) for k, size in sizes.items()}
        for norm in ("input", "post_attention"):
            tensors[f"layers.{index}.{norm}_layernorm.weight"] = torch.ones(hidden)
    save_file(tensors, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(_config(target, plan, layers, taps)))
    return path


def _config(target: ModelConfig, plan: Plan, layers: int, taps: list[int]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaDSparkModel"],
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": target.hidden,
        "intermediate_size": target.ffn,
        "num_attention_heads": target.heads,
        "num_key_value_heads": target.kv_heads,
        "head_dim": target.head_dim,
        "vocab_size": target.vocab,
        "max_position_embeddings": target.context_tokens,
        "rope_theta": target.rope_theta,
        "rms_norm_eps": target.norm_eps,
        "block_size": plan.block,
        "mask_token_id": 0,
        "target_layer_ids": taps,
        "markov_rank": plan.rank,
        "enable_confidence_head": True,
    }
