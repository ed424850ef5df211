"""``draft.toml``: one file for every stage. No torch.

An unknown or bad key is a ``SettingsError`` that names it; paths are relative to the file.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from agentspec.settings import SettingsError

Positive = Annotated[int, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, lt=1)]
Method = Literal["dspark", "dflash", "jetspec", "eagle3", "mtp"]


class _Section(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    pass


class TargetConfig(_Section, frozen=True):
    """weights: GGUF file or safetensors folder; None: the embedded model. name: written into the
    draft. format: as ``engine.dtype``: features are those of the arithmetic that serves.
    context_tokens: longer samples are cut."""

    weights: str | None = None
    name: str | None = None
    format: Literal["auto", "int8", "bf16", "fp32", "fp64"] = "auto"
    context_tokens: Annotated[int, Meta(ge=64)] = 4096
    tool_format: str = "auto"


class RegenerateConfig(_Section, frozen=True):
    """prompts: JSON lines, a chat request each. endpoint: base URL (with /v1) of an
    OpenAI-compatible server that runs the target; None: in process. key_env: the variable with its
    key. model: its name there. answers: of each prompt. concurrency: requests at a time.

    min_tokens: shorter answers are left out of training.
    """

    prompts: str | None = None
    endpoint: str | None = None
    key_env: str | None = None
    model: str | None = None
    temperature: NotNegative = 0.7
    top_p: Annotated[float, Meta(gt=0, le=1)] = 0.8
    top_k: Annotated[int, Meta(ge=0)] = 20
    max_tokens: Positive = 512
    answers: Positive = 1
    seed: int = 42
    concurrency: Positive = 8
    min_tokens: Positive = 14


class CacheConfig(_Section, frozen=True):
    """online: nothing is written, features are computed while training. shard_mb: a file's size.
    batch_tokens: of one pass. layers: tapped outputs; None: five spread ones."""

    online: bool = False
    shard_mb: Positive = 512
    batch_tokens: Annotated[int, Meta(ge=16)] = 1024
    layers: list[int] | None = None


class Sizes(_Section, frozen=True):
    """None of a value: the method's own (``methods.py``). init_layers: target layers whose weights
    the draft's begin with; None: random. target_layers: those of ``cache.layers`` that it is given.
    """

    layers: Positive | None = None
    block_size: Annotated[int, Meta(gt=0, le=64)] | None = None
    markov_rank: Annotated[int, Meta(ge=0, le=1024)] | None = None
    markov_head_type: Literal["vanilla", "gated", "rnn"] = "vanilla"
    confidence_head: bool | None = None
    init_layers: list[int] | None = None
    target_layers: list[int] | None = None


class DraftConfig(Sizes, frozen=True):
    """method: what is trained where no ``--method`` is given. Sizes here are that method's; those
    of others stand in ``[methods.NAME]``; what follows is all methods'.

    mask_token_id None: a special token that no sample uses. vocabulary: the draft proposes so many
    tokens only, the commonest of the answers, a multiple of 16; None: all.
    """

    method: Method = "dspark"
    mask_token_id: int | None = None
    vocabulary: Annotated[int, Meta(gt=0, multiple_of=16)] | None = None


class LossConfig(_Section, frozen=True):
    """Coefficients; None: the method's own. ``[loss]`` is all methods', ``[losses.NAME]`` one's.

    decay: weights exp(-k / decay), or for eagle3 and mtp
    decay^k. mean: over all supervised tokens of a step ("token"), or of each sequence's own."""

    ce: NotNegative | None = None
    l1: NotNegative | None = None
    soft: NotNegative | None = None
    confidence: NotNegative | None = None
    decay: Annotated[float, Meta(gt=0)] | None = None
    mean: Literal["token", "sequence"] | None = None


class TrainConfig(_Section, frozen=True):
    """epochs: over all samples; max_steps: ends sooner, and the learning rate falls to 0 by then.

    batch: sequences a step, over all processes. anchors: of a sequence at most. pack_tokens: of the
    samples in one forward pass. chunk: rows of logits at once. held_out: share of the samples that
    calibrate and eval use. dtype: of products; "auto": the faster of bf16 and fp32 here. threads 0:
    all. checkpoint_s, log_s: seconds between checkpoints, and between points of the curve.
    """

    epochs: Positive = 10
    max_steps: Positive | None = None
    batch: Positive = 16
    anchors: Positive = 64
    learning_rate: NotNegative = 6e-4
    warmup: Share = 0.04
    clip: NotNegative = 1.0
    weight_decay: NotNegative = 0.0
    seed: int = 42
    pack_tokens: Annotated[int, Meta(ge=64)] = 2048
    chunk: Positive = 128
    held_out: Share = 0.05
    dtype: Literal["auto", "bf16", "fp32", "fp64"] = "auto"
    device: str = "cpu"
    threads: Annotated[int, Meta(ge=0)] = 0
    checkpoint_s: NotNegative = 300.0
    log_s: NotNegative = 5.0


class ExportConfig(_Section, frozen=True):
    """int8: matrices in 8 bits with a scale a row. embeddings: the target's tables beside it."""

    int8: bool = False
    embeddings: bool = False


class _File(_Section, frozen=True):
    folder: str = "draft"
    target: TargetConfig = TargetConfig()
    regenerate: RegenerateConfig = RegenerateConfig()
    cache: CacheConfig = CacheConfig()
    draft: DraftConfig = DraftConfig()
    methods: dict[Method, Sizes] = {}
    loss: LossConfig = LossConfig()
    losses: dict[Method, LossConfig] = {}
    train: TrainConfig = TrainConfig()
    export: ExportConfig = ExportConfig()


@dataclass(frozen=True, slots=True)
class DraftToml:
    """The whole file. base: its folder; folder: where the stages write."""

    base: Path
    folder: Path
    target: TargetConfig
    regenerate: RegenerateConfig
    cache: CacheConfig
    draft: DraftConfig
    loss: LossConfig
    train: TrainConfig
    export: ExportConfig

    @property
    def answers(self) -> Path:
        return self.folder / "answers.jsonl"

    @property
    def features(self) -> Path:
        return self.folder / "features"

    @property
    def run(self) -> Path:
        """Checkpoints and curve of the method; ``run / "export"`` is the draft."""
        return self.folder / self.draft.method


def load(path: str | Path, method: str | None = None) -> DraftToml:
    """Read the file. method: overrides ``draft.method``. Raises ``SettingsError``, ``OSError``."""
    path = Path(path)
    try:
        file = msgspec.convert(tomllib.loads(path.read_text()), _File)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise SettingsError(f"{path}: {error}") from None
    return DraftToml(
        base=path.parent,
        folder=path.parent / file.folder,
        target=file.target,
        regenerate=file.regenerate,
        cache=file.cache,
        draft=_draft(file, method or file.draft.method),
        loss=_loss(file, method or file.draft.method),
        train=file.train,
        export=file.export,
    )


def _draft(file: _File, method: str) -> DraftConfig:
    """The sizes that the file gives ``method``."""
    known = msgspec.to_builtins(file.draft)
    if method != file.draft.method:
        known = {name: known[name] for name in ("mask_token_id", "vocabulary")}
    own = file.methods.get(method)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return msgspec.convert(known | _given(own) | {"method": method}, DraftConfig)


def _given(section: _Section | None) -> dict[str, Any]:
    """The entries that differ from the section's defaults."""
    if section is None:
        return {}
    default = msgspec.to_builtins(type(section)())
    given = msgspec.to_builtins(section)
    return {name: value for name, value in given.items() if value != default[name]}


def _loss(file: _File, method: str) -> LossConfig:
    own = file.losses.get(method)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return msgspec.convert(msgspec.to_builtins(file.loss) | _given(own), LossConfig)
