"""``agentspec draft cache``: the target's features of every answer, written once."""

from __future__ import annotations

from typing import Any

from . import feature_cache
from .config import DraftToml
from .curve import Progress
from .data import read_samples
from .identity import file_sha256
from .target import Target

_MB = 1 << 20


def cache(toml: DraftToml) -> dict[str, Any]:
    """Write what isn't there yet. Returns counts. Raises ``TrainError`` or ``Mismatch``."""
    target = Target.open(toml)
    samples = read_samples(toml, target)
    tokens = sum(len(sample.ids) for sample in samples)

    progress = Progress()

    def told(done: int, of: int) -> None:
        progress(f"features: {done}/{of} samples", end=done == of)

    size = feature_cache.write(
        toml.features,
        target,
        samples,
        answers_sha256=file_sha256(toml.answers),
        shard_bytes=toml.cache.shard_mb * _MB,
        batch_tokens=toml.cache.batch_tokens,
        told=told,
    )
    return {"samples": len(samples), "tokens": tokens, "bytes": size, "layers": target.layers}
