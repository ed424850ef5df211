"""What tells targets apart: sums of weights, vocabulary and chat template. No torch.

Nothing here depends on where a file lies or when it was written, so a draft may travel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

_EDGE_BYTES = 1 << 20


class Vocabulary(Protocol):
    """What is asked of ``tokenizer.Tokenizer``."""

    @property
    def token_bytes(self) -> Sequence[bytes]: ...
    @property
    def special_ids(self) -> frozenset[int]: ...
    @property
    def template_source(self) -> str | None: ...


def weights_id(path: Path) -> str:
    """Hex sha256 of a GGUF file or a folder's weight files: size, first and last MiB of each.

    Whole files of hundreds of gigabytes would take too long to read.
    """
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    total = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        with file.open("rb") as stream:
            head = stream.read(_EDGE_BYTES)
            stream.seek(max(size - _EDGE_BYTES, 0))
            total.update(size.to_bytes(8, "little") + head + stream.read())
    return total.hexdigest()


def tokenizer_sha256(tokenizer: Vocabulary) -> str:
    """Of every id's bytes and which ids are special."""
    total = hashlib.sha256()
    for index, text in enumerate(tokenizer.token_bytes):
        total.update(len(text).to_bytes(4, "little") + text)
        total.update(b"\1" if index in tokenizer.special_ids else b"\0")
    return total.hexdigest()


def chat_template_sha256(tokenizer: Vocabulary) -> str:
    return hashlib.sha256((tokenizer.template_source or "").encode()).hexdigest()


def file_sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def key(*parts: object) -> int:
    """A 63-bit seed that depends on nothing but ``parts``: the same in every process."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def share(seed: int, names: Iterable[str]) -> dict[str, float]:
    """A number in [0, 1) for each name, by which a part of them can be drawn."""
    return {name: key(seed, name) / 2**63 for name in names}
