"""Features on disk: safetensors shards and a manifest that says whose they are.

Legend: T tokens of all samples of a shard, N tapped features, E hidden size.

``manifest.json``: version, target (``TargetId``), layers, answers_sha256, samples [{id, shard,
start, tokens, prompt_tokens}]. ``NNNNN.safetensors``: ids [T] int32, features [T, N] and last
[T, E] bf16. A shard is written whole, then named in the manifest; so an interrupted run goes on
where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from .errors import Mismatch, TrainError
from .samples import Sample, read_json, write_json
from .spec import TargetId
from .target import Featured, Target

VERSION = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a sample lies. shard -1: nowhere, its features are computed when they are asked for."""

    id: str
    shard: int
    start: int
    tokens: int
    prompt_tokens: int


def write(
    folder: Path,
    target: Target,
    samples: Sequence[Sample],
    *,
    answers_sha256: str,
    shard_bytes: int,
    batch_tokens: int,
    told: Callable[[int, int], Any],
) -> int:
    """Features of every sample that isn't there yet, or is there with other ids than it has now.
    told: (samples done, of how many).

    Returns the bytes of all shards. Raises ``Mismatch`` where the folder is another target's,
    ``TrainError`` where a shard can't be written or read.
    """
    path = folder / "manifest.json"
    manifest, shard = _new(target, answers_sha256), 0
    if path.exists():
        kept = FeatureCache(folder, target.id, target.layers)
        shard = 1 + max((entry.shard for entry in kept.entries), default=-1)
        stale = kept.stale(samples, answers_sha256)
        manifest["samples"] = [asdict(entry) for entry in kept.entries if entry.id not in stale]
    done = {entry["id"] for entry in manifest["samples"]}
    todo = [sample for sample in samples if sample.id not in done]
    total = len(done) + len(todo)
    width = len(target.layers) * target.checkpoint.config.hidden + target.checkpoint.config.hidden
    for group in _groups(todo, shard_bytes // (2 * width + 4)):
        found: list[Featured] = []
        for one in target.features([sample.ids for sample in group], batch_tokens):
            found.append(one)
            told(len(done) + len(found), total)
        manifest["samples"] += [asdict(e) for e in _write_shard(folder, shard, group, found)]
        write_json(path, manifest)
        done |= {sample.id for sample in group}
        shard += 1
    if not todo:
        write_json(path, manifest)
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def _new(target: Target, answers_sha256: str) -> dict[str, Any]:
    return {
        "version": VERSION,
        "target": target.id.to_dict(),
        "layers": list(target.layers),
        "answers_sha256": answers_sha256,
        "samples": [],
    }


def _check(manifest: dict[str, Any], target: TargetId, layers: Sequence[int], path: Path) -> None:
    if manifest.get("version") != VERSION:
        raise TrainError(f"{path}: version {manifest.get('version')} is not {VERSION}")
    target.require(manifest["target"], str(path))
    if tuple(manifest["layers"]) != tuple(layers):
        raise Mismatch(f"{path} holds layers {manifest['layers']}, not {list(layers)}")


def _groups(samples: Sequence[Sample], most_tokens: int) -> list[list[Sample]]:
    groups: list[list[Sample]] = []
    room = 0
    for sample in samples:
        if not groups or room < len(sample.ids):
            groups.append([])
            room = most_tokens
        groups[-1].append(sample)
        room -= len(sample.ids)
    return groups


def _write_shard(
    folder: Path, shard: int, group: Sequence[Sample], found: Sequence[Featured]
) -> list[Entry]:
    """features and last of each sample, one after the other, as one file."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        "ids": torch.tensor([i for sample in group for i in sample.ids], dtype=torch.int32),
        "features": torch.cat([one.features for one in found]),
        "last": torch.cat([one.last for one in found]),
    }
    draft = folder / f"{shard:05}.part"
    try:
        save_file(tensors, draft)
    except SafetensorError as error:
        draft.unlink(missing_ok=True)
        raise TrainError(f"{draft} cannot be written: {error}") from None
    draft.replace(folder / f"{shard:05}.safetensors")
    entries, start = [], 0
    for sample in group:
        entries.append(Entry(sample.id, shard, start, len(sample.ids), sample.prompt_tokens))
        start += len(sample.ids)
    return entries


class FeatureCache:
    """A written folder, read at random. Raises ``TrainError`` or ``Mismatch`` when opened."""

    def __init__(self, folder: Path, target: TargetId, layers: Sequence[int]):
        path = folder / "manifest.json"
        self.manifest = read_json(path)
        _check(self.manifest, target, layers, path)
        self.entries = [Entry(**entry) for entry in self.manifest["samples"]]
        self._folder = folder
        self._files: dict[int, Any] = {}

    def stale(self, samples: Sequence[Sample], answers_sha256: str) -> set[str]:
        """Ids of samples that lie here with other tokens than they have now, or whose shard is
        gone. Tokens are looked at where the answers' file is another than the manifest's."""
        now = {sample.id: sample for sample in samples}
        same_file = self.manifest["answers_sha256"] == answers_sha256
        found: set[str] = set()
        for entry in self.entries:
            sample = now.get(entry.id)
            if sample is None:
                continue
            sizes = (len(sample.ids), sample.prompt_tokens)
            if (
                sizes != (entry.tokens, entry.prompt_tokens)
                or not self._path(entry).exists()
                or not (same_file or self._slice(entry, "ids").tolist() == sample.ids)
            ):
                found.add(entry.id)
        return found

    def read(self, entry: Entry) -> tuple[Tensor, Featured]:
        """ids [T] int64 and the features of one sample. Raises ``TrainError``."""
        ids, features, last = (self._slice(entry, n) for n in ("ids", "features", "last"))
        return ids.long(), Featured(features, last)

    def _path(self, entry: Entry) -> Path:
        return self._folder / f"{entry.shard:05}.safetensors"

    def _slice(self, entry: Entry, name: str) -> Tensor:
        """Rows [T] or [T, N] of one sample, as stored."""
        if entry.shard not in self._files:
            path = self._path(entry)
            try:
                self._files[entry.shard] = safe_open(path, framework="pt")
            except (OSError, SafetensorError) as error:
                raise TrainError(
                    f"{path} cannot be read: {error}; remove it, and 'agentspec draft cache' "
                    "writes its samples anew"
                ) from None
        rows = slice(entry.start, entry.start + entry.tokens)
        return self._files[entry.shard].get_slice(name)[rows]
