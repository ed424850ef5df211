"""Opening what a stage works on: samples, cached or online features, the split."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from .config import DraftToml
from .dataset import Online, Source, Split
from .errors import TrainError
from .feature_cache import FeatureCache
from .identity import file_sha256
from .samples import AnswerFile, Sample
from .target import Target


@dataclass(frozen=True, slots=True)
class Data:
    """source: samples with features. answers_sha256: of the file that they came from."""

    source: Source
    split: Split
    answers_sha256: str
    specials_used: frozenset[int]
    vocab_size: int

    @classmethod
    def open(cls, toml: DraftToml, target: Target) -> Data:
        """Raises ``TrainError``, or ``Mismatch`` where the features are another target's."""
        samples = read_samples(toml, target)
        digest = file_sha256(toml.answers)
        if toml.cache.online:
            source: Source = Online(target, samples, toml.cache.batch_tokens)
        else:
            source = FeatureCache(toml.features, target.id, target.layers)
            have = {entry.id for entry in source.entries}
            if len(have) < len(samples) or any(sample.id not in have for sample in samples):
                raise TrainError(
                    f"{toml.features} lacks samples of {toml.answers}: run 'agentspec draft cache'"
                )
            if source.stale(samples, digest):
                raise TrainError(
                    f"{toml.features} holds features of other answers than {toml.answers}: run "
                    "'agentspec draft cache'"
                )
        specials = target.tokenizer.special_ids
        used = {i for sample in samples for i in sample.ids if i in specials}
        split = Split.of(source, toml.train.held_out, toml.train.seed)
        vocab = target.checkpoint.config.vocab
        return cls(source, split, digest, frozenset(used), vocab)

    def commonest(self, count: int, ends: Iterable[int]) -> Tensor:
        """[count] int64, ascending: the commonest tokens of the answers that are trained on, and
        ``ends``. Those that no answer holds follow by their number: a BPE merged them early."""
        vocab = self.vocab_size
        counts = torch.zeros(vocab, dtype=torch.int64)
        for i in self.split.train:
            entry = self.source.entries[i]
            answer = self.source.read(entry)[0][entry.prompt_tokens :]
            counts += torch.bincount(answer, minlength=vocab)
        counts[list(ends)] = counts.max() + 1
        return torch.sort(counts, descending=True, stable=True).indices[:count].sort().values

    def mask_token(self, target: Target) -> int:
        """The highest special id that no sample holds and no answer ends with."""
        free = target.tokenizer.special_ids - self.specials_used - target.tokenizer.eos_ids
        if not free:
            raise TrainError("draft.mask_token_id must be given: every special token is in use")
        return max(free)


def read_samples(toml: DraftToml, target: Target) -> list[Sample]:
    """All answers that are long enough, in the file's order. Raises ``TrainError``."""
    most = min(toml.target.context_tokens, target.checkpoint.config.context_tokens)
    file = AnswerFile(toml.answers)
    samples = list(file.read(min_tokens=toml.regenerate.min_tokens, most_tokens=most))
    if not samples:
        least = toml.regenerate.min_tokens
        raise TrainError(f"{toml.answers} holds no answer of {least} tokens or more")
    return samples
