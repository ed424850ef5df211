"""How far the roofline is from what others measured.

The constants of ``roofline.py`` were set with the lab's and the blog's figures in view; SGLang's
page was not looked at for them (``fitted`` tells them apart).
"""

from __future__ import annotations

from dataclasses import dataclass

from . import presets
from .drafts import block
from .hardware import GPUS
from .roofline import ROUND_S, Machine, step_seconds
from .speculation import gain, rate_of


@dataclass(frozen=True, slots=True)
class Anchor:
    what: str
    published: float
    computed: float
    source: str
    fitted: bool = True

    @property
    def error(self) -> float:
        return self.computed / self.published - 1.0


_LAB = "public teaching lab on vLLM, one H100, Qwen3-8B in bf16, one stream, 5 runs"
_PAGE = "SGLang's page on speculative decoding, MT-Bench, without speculation"
_BLOG = (
    "vLLM blog of 2026-08-14, figure 2 (read off the graphic): V4-Flash, TP4, B300 (here with "
    "B200's figures)"
)
_VERIFY_MS = ((1, 5.2), (16, 6.1), (64, 8.2), (256, 12.5))


def anchors() -> list[Anchor]:
    one = Machine(GPUS["H100"], 1)
    model, draft = presets.QWEN3_8B, block(presets.QWEN3_8B, 5, 7)
    plain_s = step_seconds(one, model, 1, 1, 1024)
    rate = rate_of(3.5, 7)
    low = gain(one, model, draft, 1, 1024, rate, round_s=ROUND_S)
    high = gain(one, model, draft, 1, 1024, rate)
    llama_s = step_seconds(one, presets.LLAMA_8B, 1, 1, 1024)
    found = [
        Anchor("Qwen3-8B on one H100, plain, tok/s", 136.3, 1.0 / plain_s, _LAB),
        Anchor("the same with DSpark at 3.5 accepted, speedup, low", 1.70, low.speedup, _LAB),
        Anchor("the same, high", 1.70, high.speedup, _LAB),
        Anchor("Llama-3.1-8B on one H100, plain, tok/s", 158.34, 1.0 / llama_s, _PAGE, False),
    ]
    four = Machine(GPUS["B200"], 4)
    for tokens, published in _VERIFY_MS:
        computed = 1e3 * step_seconds(four, presets.V4_FLASH, tokens, 1, 8192)
        what = f"DeepSeek-V4-Flash on four B300, pass over {tokens} sequences, ms"
        found.append(Anchor(what, published, computed, _BLOG))
    return found
