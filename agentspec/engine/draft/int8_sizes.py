"""Which sizes of a draft the int8 kernels can run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentspec_kernels.linear_q import GROUP, ROWS

from .errors import UnsupportedDraft

if TYPE_CHECKING:
    from agentspec.engine.model.config import ModelConfig

_MOST = {"hidden_size": 16384, "intermediate_size": 16384, "head_dim": 256}
"""What the library's static buffers hold (kMaxHead, and a row in floats)."""


def check_sizes(shape: ModelConfig, head_rows: int) -> None:
    """Raise ``UnsupportedDraft`` where a size does not fit the kernels."""
    sizes = {
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "head_dim": shape.head_dim,
    }
    for name, size in sizes.items():
        if size % GROUP:
            raise UnsupportedDraft(f"{name} {size} is not a multiple of {GROUP} (int8 kernels)")
        if size > _MOST[name]:
            raise UnsupportedDraft(f"{name} {size} is above {_MOST[name]} (int8 kernels)")
    if head_rows % ROWS:
        raise UnsupportedDraft(f"a draft vocabulary that is not a multiple of {ROWS}")
