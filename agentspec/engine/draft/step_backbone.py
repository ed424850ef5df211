"""What computes the rows of EAGLE-3 and MTP drafts; two ways of it, one contract.

Row i of a sequence pairs what stands for the target at position i (features, or the draft's own
output) with the token at i + 1, at rotary position i; its K/V is slot i % 16 of page
``pages[i // 16]`` in a plane beside the target's. Scratch pages as in ``backbone.py``.
Legend: T rows of features, N tapped features, R rows, W wanted rows, E hidden size, U rows of draft
logits.

Read next: ``step_int8.py`` (fast), ``step_torch.py`` (plain), ``steps.py`` (who asks).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from .draft_file import DraftFile
    from .step_config import StepConfig


@dataclass(frozen=True, slots=True)
class StepChunk:
    """Rows start, start + 1, ... features: [T, N]; tokens: T ids, those behind each; pages: the
    sequence's table."""

    pages: Sequence[int]
    start: int
    features: Tensor
    tokens: Sequence[int]


@dataclass(frozen=True, slots=True)
class StepRow:
    """One row. carried: [E], of the target or of the step before. It sees slots 0 .. slot of
    ``pages`` (``backbone.block_table``), where its own K/V goes, too. wanted: with its logits."""

    pages: Sequence[int]
    slot: int
    position: int
    token: int
    carried: Tensor
    wanted: bool


class StepBackbone(Protocol):
    """num_pages: of the pool; scratch pages are numbered from there on."""

    num_pages: int

    def extend(self, chunks: Sequence[StepChunk]) -> Tensor:
        """Compute and keep the K/V of true rows; what stands for the target in each chunk's last
        row, new [len(chunks), E] float32."""
        ...

    def run(self, rows: Sequence[StepRow]) -> tuple[Tensor, Tensor]:
        """One row of each of some sequences -> what each carries to its next step, new [R, E], and
        logits [W, U] in order, overwritten by the next call; float32."""
        ...


def prefix_of(file: DraftFile) -> str:
    """What the layer's tensors begin with."""
    midlayer = any(name.startswith("midlayer.") for name in file.names)
    return "midlayer." if midlayer else "layers.0."


def sizes(config: StepConfig, prefix: str, taps: int) -> dict[str, tuple[int, ...]]:
    """Every tensor that such a draft must have, and its shape. taps: how many layers are tapped."""
    shape, eagle = config.shape, config.method == "eagle3"
    hidden, ffn, dim = shape.hidden, shape.ffn, shape.head_dim
    query, kv = shape.heads * dim, shape.kv_heads * dim
    inputs = 2 * hidden if eagle else hidden
    found: dict[str, tuple[int, ...]] = {
        "norm.weight": (hidden,),
        prefix + "self_attn.q_proj.weight": (query, inputs),
        prefix + "self_attn.k_proj.weight": (kv, inputs),
        prefix + "self_attn.v_proj.weight": (kv, inputs),
        prefix + "self_attn.o_proj.weight": (hidden, query),
        prefix + "mlp.gate_proj.weight": (ffn, hidden),
        prefix + "mlp.up_proj.weight": (ffn, hidden),
        prefix + "mlp.down_proj.weight": (hidden, ffn),
        prefix + "input_layernorm.weight": (hidden,),
        prefix + "post_attention_layernorm.weight": (hidden,),
    }
    if config.qk_norm:
        found |= {prefix + f"self_attn.{name}_norm.weight": (dim,) for name in "qk"}
    if eagle:
        found["fc.weight"] = (hidden, taps * hidden)
        found[prefix + "hidden_norm.weight"] = (hidden,)
    else:
        found["eh_proj.weight"] = (hidden, 2 * hidden)
        found["enorm.weight"] = found["hnorm.weight"] = (hidden,)
    return found
