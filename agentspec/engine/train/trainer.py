"""``agentspec draft train``: the run from its checkpoint to its exported draft.

Read next: ``stepper.py`` (one step), ``objective.py`` and ``losses.py`` (what is minimised).
"""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import torch
from torch import nn

from . import record
from .batches import Columns
from .checkpoint import State, restore, save
from .config import DraftToml
from .curve import Curve, Progress, Span, accepted_length, points
from .data import Data
from .dataset import Schedule
from .distributed import Ranks
from .errors import TrainError
from .export import Draft, write_deepspec
from .methods import loss_of, spec_of
from .nets import DraftNet, build_net
from .optim import optimizer
from .samples import read_json, write_json
from .spec import DraftSpec
from .stepper import DTYPES, Frozen, Stepper, Sums, there
from .target import Target

CHECKPOINT, CURVE, RECORD, EXPORT = "checkpoint.pt", "curve.jsonl", "record.json", "export"


@dataclass(slots=True)
class Run:
    """One run that can be stepped; ``train`` drives it."""

    toml: DraftToml
    target: Target
    data: Data
    spec: DraftSpec
    stepper: Stepper
    state: State
    ranks: Ranks

    @classmethod
    def open(cls, toml: DraftToml, target: Target, ranks: Ranks, *, restart: bool = False) -> Run:
        """From the checkpoint, or from the start. Raises ``TrainError`` or ``Mismatch``."""
        config = toml.train
        if config.threads:
            torch.set_num_threads(config.threads)
        data = Data.open(toml, target)
        mask = toml.draft.mask_token_id
        mask = data.mask_token(target) if mask is None else mask
        spec = spec_of(toml.draft, target.checkpoint.config, target.layers, mask)
        schedule = Schedule(
            data.split.train, config.batch, config.epochs, config.seed, config.max_steps
        )
        plan = _plan(toml, target, data, spec)
        net = begin(toml, target, spec)
        if spec.draft_vocab is not None:
            net.propose_only(data.commonest(spec.draft_vocab, target.tokenizer.eos_ids).to(net.d2t))
        made, path = optimizer(net, config), toml.run / CHECKPOINT
        state = None if restart else restore(path, plan, net, made)
        if state is None:
            dtype = fastest_dtype(config.device) if config.dtype == "auto" else config.dtype
            state = State(plan, dtype)
        frozen = Frozen.of(
            target.tables.embedding, target.tables.head, net.token_ids,
            dtype=state.dtype, device=config.device, chunk=config.chunk,
        )  # fmt: skip
        loss = loss_of(spec.method, toml.loss)
        stepper = Stepper(
            net, made, data.source, schedule, frozen, loss, config, state.dtype, ranks,
            Columns.of(target.layers, spec),
        )  # fmt: skip
        return cls(toml, target, data, spec, stepper, state, ranks)

    @property
    def finished(self) -> bool:
        return self.state.step >= self.stepper.schedule.steps

    def step(self) -> Sums:
        """The next step. Raises ``FloatingPointError``."""
        began = time.perf_counter()
        sums = self.stepper.step(self.state.step)
        state = self.state
        state.step += 1
        state.rows += sums.work.rows
        state.context += sums.work.context
        state.flops += sums.flops
        state.seconds += time.perf_counter() - began
        return sums

    def save(self) -> None:
        if self.ranks.first:
            save(self.toml.run / CHECKPOINT, self.state, self.stepper.net, self.stepper.optimizer)

    def export(self) -> dict[str, Any]:
        """Write the draft as it is now, its record and curve. Returns the record."""
        folder = self.toml.run / EXPORT
        draft = Draft.of(self.stepper.net, self.target.id, self.state.rows)
        options = self.toml.export
        tables = self.target.tables if options.embeddings else None
        size = write_deepspec(folder, draft, int8=options.int8, tables=tables)
        made = _record(self, size)
        write_json(folder / RECORD, made)
        curve = self.toml.run / CURVE
        if curve.exists():
            shutil.copyfile(curve, folder / CURVE)
        return made


def train(
    toml: DraftToml, *, restart: bool = False, stop_after_s: float | None = None
) -> dict[str, Any]:
    """Train to the end of the schedule, or for so many seconds, and export.

    Returns the record. Raises ``TrainError``, ``Mismatch``, ``FloatingPointError``.
    """
    ranks = Ranks.start(toml.train.device)
    run = Run.open(toml, Target.open(toml), ranks, restart=restart)
    curve = Curve(toml.run / CURVE, run.state.step) if ranks.first else None
    began = saved = told = time.monotonic()
    span, progress = Span(), Progress()

    def late() -> bool:
        return stop_after_s is not None and time.monotonic() - began >= stop_after_s

    while not run.finished and not ranks.any(late()):
        span.add(run.step())
        now = time.monotonic()
        if curve is not None and (now - told >= toml.train.log_s or run.finished):
            point = _point(run, span)
            curve.add(point)
            progress(_line(run, point), end=run.finished)
            span, told = Span(), now
        if now - saved >= toml.train.checkpoint_s:
            run.save()
            saved = now
    run.save()
    made = run.export() if ranks.first else {}
    ranks.wait()
    return made


def begin(toml: DraftToml, target: Target, spec: DraftSpec) -> DraftNet:
    """The net before its first step: keyed by the seed, or with layers of the target's."""
    torch.manual_seed(toml.train.seed)
    net = build_net(spec)
    if toml.draft.init_layers is not None:
        _copy_layers(net, target, toml.draft.init_layers)
    net.to(there(toml.train.device))
    return net.double() if toml.train.dtype == "fp64" else net


def _copy_layers(net: DraftNet, target: Target, chosen: list[int]) -> None:
    """Fill draft layer i with target layer ``chosen[i]``; tensors of other shapes stay as drawn."""
    missing = [number for number in chosen if not 0 <= number < target.checkpoint.config.layers]
    if missing:
        raise TrainError(f"draft.init_layers: the target has no layers {missing}")
    layers = net.get_submodule("layers")
    assert isinstance(layers, nn.ModuleList)
    for layer, number in zip(layers, chosen, strict=False):
        for name, weight in layer.named_parameters():
            source = f"model.layers.{number}.{name}"
            if source in target.checkpoint.names:
                found = target.checkpoint.read(source).float()
                if found.shape == weight.shape:
                    weight.data.copy_(found)


def fastest_dtype(device: str) -> str:
    """The faster of bf16 and fp32 for a product of training's shape, measured now."""
    if device != "cpu":
        return "bf16"
    best: dict[str, float] = {}
    for name in ("fp32", "bf16"):
        a, b = torch.ones(128, 512, dtype=DTYPES[name]), torch.ones(512, 4096, dtype=DTYPES[name])
        times = []
        for _ in range(5):
            began = time.perf_counter()
            torch.matmul(a, b)
            times.append(time.perf_counter() - began)
        best[name] = min(times)
    return min(best, key=best.__getitem__)


def _plan(toml: DraftToml, target: Target, data: Data, spec: DraftSpec) -> dict[str, Any]:
    """What must not change between the parts of a run."""
    schedule = ("epochs", "max_steps", "batch", "anchors", "learning_rate", "warmup", "clip")
    schedule += ("weight_decay", "seed", "pack_tokens", "held_out")
    config = toml.train
    return {
        "target": target.id.to_dict(),
        "answers_sha256": data.answers_sha256,
        "draft": spec.to_config(),
        "init_layers": toml.draft.init_layers,
        "loss": asdict(loss_of(spec.method, toml.loss)),
        "train": {name: getattr(config, name) for name in schedule},
    }


def _point(run: Run, span: Span) -> dict[str, Any]:
    state, schedule = run.state, run.stepper.schedule
    return {
        "step": state.step,
        "steps": schedule.steps,
        "epoch": schedule.epoch(state.step - 1),
        "learning_rate": run.stepper.optimizer.param_groups[0]["lr"],
        "rows": state.rows,
        "context_tokens": state.context,
        "flops": state.flops,
        "seconds": round(state.seconds, 2),
        **span.point(),
    }


def _line(run: Run, point: dict[str, Any]) -> str:
    state = run.state
    left_s = state.seconds / state.step * (point["steps"] - state.step)
    return (
        f"{run.spec.method} step {state.step}/{point['steps']}  loss {point['loss']:.3f}  "
        f"accepted {accepted_length(point['hit']):.2f}  "
        f"{state.rows / max(state.seconds, 1e-9):,.0f} rows/s  {left_s / 60:.1f} min left"
    )


def _prompt_sums(toml: DraftToml) -> dict[str, Any]:
    """Which prompt files the answers came from, as far as it is known."""
    about = toml.answers.with_suffix(".json")
    known = read_json(about) if about.exists() else {}
    return {"prompts_sha256": known.get("prompts_sha256", [])}


def _record(run: Run, size: int) -> dict[str, Any]:
    state, curve = run.state, points(run.toml.run / CURVE)
    return record.build(
        method=run.spec.method,
        finished=run.finished,
        draft=run.spec.to_config(),
        target=run.target.id.to_dict(),
        data={
            "answers_sha256": run.data.answers_sha256,
            **_prompt_sums(run.toml),
            "samples": len(run.data.source.entries),
            "trained_on": len(run.data.split.train),
            "held_out": len(run.data.split.held),
            "seed": run.toml.train.seed,
        },
        settings={
            "draft": msgspec.to_builtins(run.toml.draft),
            "loss": asdict(run.stepper.loss),
            "train": msgspec.to_builtins(run.toml.train) | {"dtype": state.dtype},
            "regenerate": msgspec.to_builtins(run.toml.regenerate),
        },
        budget={
            "steps": state.step,
            "trained_tokens": state.rows,
            "context_tokens": state.context,
            "flops": state.flops,
            "seconds": round(state.seconds, 1),
            "processes": run.ranks.size,
        },
        parameters=sum(p.numel() for p in run.stepper.net.parameters()),
        weights_bytes=size,
        last=curve[-1] if curve else None,
    )
