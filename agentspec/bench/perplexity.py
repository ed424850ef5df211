"""llama.cpp's own quality: ``llama-perplexity`` compared with reference logits that we give it.

It scores the second half of each window (so every token has context), on tokens and log
probabilities out of a file that another run of it would have written. We write that file from our
fp32 logits: so its figures and ours are of the same tokens under the same protocol. Layout as read
by ``kl_divergence`` in tools/perplexity/perplexity.cpp (llama.cpp of llama-cpp-python 0.3.36):
``_logits_``, n_ctx u32, n_vocab i32, n_chunk i32, tokens i32; then for each scored row two floats
(scale, smallest log probability), and for each token of the vocabulary a u16, padded to even.

Legend: R rows, V vocabulary.
"""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from .processes import ProcessFailed

_WIDTH = 16.0
"""Log probabilities further below the best one are written as the smallest."""
_FIGURES = {
    "ppl": r"Mean PPL\(Q\)\s*:\s*([\d.]+)",
    "base_ppl": r"Mean PPL\(base\)\s*:\s*([\d.]+)",
    "kl": r"Mean\s+KLD:\s*(-?[\d.]+)",
    "top1_percent": r"Same top p:\s*([\d.]+)",
}


@dataclass(frozen=True, slots=True)
class Judged:
    """ppl: perplexity of llama.cpp; base_ppl: of the reference, as it read it back."""

    ppl: float
    base_ppl: float
    kl: float
    top1_percent: float


def scored(window: int) -> range:
    """The positions of a window whose rows are scored: each predicts the token after it."""
    return range(window // 2, window - 1)


def write_head(file: BinaryIO, windows: Seq[Seq[int]], vocab: int) -> None:
    """windows: all of one length. The rows of each follow, by ``write_rows``."""
    length = len(windows[0])
    assert all(len(window) == length for window in windows)
    file.write(b"_logits_" + struct.pack("<Iii", length, vocab, len(windows)))
    file.write(np.array(windows, np.int32).tobytes())


def write_rows(file: BinaryIO, logits: npt.NDArray[np.float32]) -> None:
    """logits [R, V] of scored rows, in order."""
    rows, vocab = logits.shape
    top = logits.max(1, keepdims=True)
    low = np.maximum(logits.min(1, keepdims=True), top - _WIDTH)
    log_sum = np.log(np.exp(logits - top).sum(1, keepdims=True, dtype=np.float64))
    scale = (top - low) / 65535.0
    heads = np.concatenate((scale, low - top - log_sum), 1).astype(np.float32)
    out = np.zeros((rows, 4 + 2 * ((vocab + 1) // 2)), np.uint16)
    out[:, :4] = heads.view(np.uint16)
    codes = np.rint((logits - low) / np.maximum(scale, 1e-30))
    out[:, 4 : 4 + vocab] = np.clip(codes, 0, 65535).astype(np.uint16)
    file.write(out.tobytes())


def judge(program: Path, weights: Path, base: Path, window: int, threads: int) -> Judged:
    """Run ``llama-perplexity`` on a file so written. Raises ``ProcessFailed``."""
    command = [
        *(str(program), "--model", str(weights), "--kl-divergence"),
        *("--kl-divergence-base", str(base), "--threads", str(threads)),
        *("--ctx-size", str(window), "--batch-size", str(window), "--ubatch-size", str(window)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600)
    return read(done.stdout + done.stderr)


def read(text: str) -> Judged:
    """Its figures out of what it wrote. Raises ``ProcessFailed`` where one is missing."""
    found = {name: re.search(pattern, text) for name, pattern in _FIGURES.items()}
    values = {name: float(match[1]) for name, match in found.items() if match}
    if len(values) < len(_FIGURES):
        raise ProcessFailed(f"llama-perplexity gave no figures: {text[-500:].strip()}")
    return Judged(**values)
