"""A decoder's geometry: how many parameters it has, which of them a pass reads, its K/V a token.

Counted from the dimensions of config.json; norms, biases and routers' biases are left out (below
0.1 %).
"""

from __future__ import annotations

from dataclasses import dataclass

CSA_ENTRY_BYTES = 584
"""One compressed K/V entry of DeepSeek-V4 in fp8: 448 bytes, 64 rotary values in bf16, 8 bytes of
scales (SGLang's pool_configurator and its tests)."""
CSA_INDEX_BYTES = 132
"""One entry of its indexer: 128 bytes fp8 and a scale (same source)."""
CSA_SELECTED = 512
"""Entries that its indexer lets a token attend (``index_topk``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One decoder.

    experts 0: dense. active: experts of a token; shared: experts that every token uses.
    expert_width: of one expert; dense_layers: those without experts. full_layers: those that attend
    everything, None: all; the others attend ``window`` tokens. mla: elements of a token's latent
    K/V and rotary part, 0: K and V of every head. ratios: of compressed attention (DeepSeek-V4) by
    layer. attention_params: of one layer where they don't follow from heads. weight_bytes,
    expert_bytes, kv_bytes: of one element, scales included.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    vocab: int
    tied: bool = False
    experts: int = 0
    active: int = 0
    shared: int = 0
    expert_width: int = 0
    dense_layers: int = 0
    full_layers: int | None = None
    window: int = 0
    mla: int = 0
    ratios: tuple[int, ...] = ()
    attention_params: int | None = None
    weight_bytes: float = 2.0
    expert_bytes: float = 2.0
    kv_bytes: float = 2.0
    source: str = ""

    @property
    def moe_layers(self) -> int:
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def expert_params(self) -> int:
        """Of one expert of one layer: gate, up and down."""
        return 3 * self.hidden * self.expert_width

    @property
    def head_params(self) -> int:
        return self.vocab * self.hidden

    @property
    def core_params(self) -> int:
        """What every pass reads whatever it routes: attention, dense MLPs, shared experts, routers
        and the vocabulary's head."""
        attention = self.attention_params
        if attention is None:
            attention = 2 * self.hidden * (self.heads + self.kv_heads) * self.head_dim
        dense = (self.layers - self.moe_layers) * 3 * self.hidden * self.width
        routed = self.moe_layers * (self.shared * self.expert_params + self.hidden * self.experts)
        return self.layers * attention + dense + routed + self.head_params

    @property
    def total_params(self) -> int:
        """The table of input embeddings counts once more where it isn't the head's."""
        experts = self.moe_layers * self.experts * self.expert_params
        return self.core_params + experts + (0 if self.tied else self.head_params)

    @property
    def active_params(self) -> int:
        """Those that one token is multiplied with."""
        return self.core_params + self.moe_layers * self.active * self.expert_params

    @property
    def total_bytes(self) -> float:
        experts = self.moe_layers * self.experts * self.expert_params
        return (self.total_params - experts) * self.weight_bytes + experts * self.expert_bytes

    def experts_touched(self, tokens: float) -> float:
        """Of one layer, by tokens that are routed evenly and independently."""
        if not self.experts:
            return 0.0
        return self.experts * (1.0 - (1.0 - self.active / self.experts) ** tokens)

    def pass_bytes(self, tokens: float) -> float:
        """Weights that one pass reads. tokens: independent ones (see ``experts_touched``)."""
        touched = self.moe_layers * self.experts_touched(tokens) * self.expert_params
        return self.core_params * self.weight_bytes + touched * self.expert_bytes

    def kv_token_bytes(self) -> float:
        """What one more token of context keeps, over all layers, for as long as it is there."""
        if self.ratios:
            return sum(self._csa_entry(ratio) / ratio for ratio in self.ratios if ratio)
        full = self.layers if self.full_layers is None else self.full_layers
        return full * self._kv_elements * self.kv_bytes

    def kv_window_bytes(self, context: int) -> float:
        """What a request keeps beside that, in layers which attend a window only."""
        if self.ratios:
            return len(self.ratios) * CSA_ENTRY_BYTES * min(context, self.window)
        full = self.layers if self.full_layers is None else self.full_layers
        return (self.layers - full) * self._kv_elements * self.kv_bytes * min(context, self.window)

    def kv_request_bytes(self, context: int) -> float:
        return self.kv_token_bytes() * context + self.kv_window_bytes(context)

    def kv_read_bytes(self, context: int) -> float:
        """What one decoding step of a request reads of its K/V."""
        if not self.ratios:
            return self.kv_request_bytes(context)
        read = self.kv_window_bytes(context)
        for ratio in filter(None, self.ratios):
            entries = context / ratio
            if ratio == self._finest:
                read += entries * CSA_INDEX_BYTES + min(entries, CSA_SELECTED) * CSA_ENTRY_BYTES
            else:
                read += entries * CSA_ENTRY_BYTES
        return read

    def kv_split(self, gpus: int) -> int:
        """Over how many GPUs of one tensor-parallel group a token's K/V is spread; the others hold
        copies. Heads can be split, a latent can't."""
        if self.ratios or self.mla:
            return 1
        return min(gpus, self.kv_heads)

    @property
    def _kv_elements(self) -> int:
        return self.mla or 2 * self.kv_heads * self.head_dim

    def _csa_entry(self, ratio: int) -> int:
        return CSA_ENTRY_BYTES + (CSA_INDEX_BYTES if ratio == self._finest else 0)

    @property
    def _finest(self) -> int:
        return min(filter(None, self.ratios), default=0)
