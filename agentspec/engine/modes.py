"""How speculation is scheduled: adaptive, or by a rival's rule, for comparison.

A rival's rule fixes K, the drafted tokens that every sequence verifies, by nothing but the load:

blind     adaptive, but not knowing of the grammar: its forced tokens are drafts like others.
off       none.
kN        N always (the usual static setting).
table     by the sequences that decode together, tuned ahead for one rate of acceptance (vLLM's
          "dynamic speculative decoding", vllm-project/vllm PR 32374).
switch60  N = 5 while less than 60 % of the places are taken, else none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .cost import CostCurve

ADAPTIVE, BLIND = "adaptive", "blind"
SWITCH_SHARE = 0.6
SWITCH_TOKENS = 5
TABLE_ACCEPTANCE = 0.6
_FIXED = re.compile(r"k([1-9][0-9]?)")


class UnknownMode(ValueError):
    """There is no such mode of speculation; the message names those there are."""


@dataclass(slots=True)
class Mode:
    """One rule. name: as in the settings. places: how many sequences may run together."""

    name: str
    places: int
    curve: CostCurve
    _table: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name not in (ADAPTIVE, BLIND, "off", "table", "switch60") and self._fixed is None:
            raise UnknownMode(
                f"unknown mode '{self.name}' (adaptive, blind, off, k1 to k99, table, switch60)"
            )

    @property
    def _fixed(self) -> int | None:
        match = _FIXED.fullmatch(self.name)
        return None if match is None else int(match[1])

    @property
    def adaptive(self) -> bool:
        return self.name in (ADAPTIVE, BLIND)

    @property
    def blind(self) -> bool:
        return self.name == BLIND

    def width(self, decoding: int, most: int) -> int:
        """Drafted tokens for each of ``decoding`` sequences, at most ``most``; not of adaptive."""
        if self.name == "off":
            return 0
        if self.name == "switch60":
            return min(SWITCH_TOKENS, most) if decoding < SWITCH_SHARE * self.places else 0
        if self.name == "table":
            if decoding not in self._table:
                self._table[decoding] = best_width(self.curve, decoding, TABLE_ACCEPTANCE, most)
            return self._table[decoding]
        fixed = self._fixed
        assert fixed is not None
        return min(fixed, most)


def best_width(curve: CostCurve, sequences: int, acceptance: float, most: int) -> int:
    """The K of most tokens a second where every token is accepted at one rate, contexts aside."""

    def speed(width: int) -> float:
        tokens = sum(acceptance**k for k in range(width + 1))
        return tokens / (curve.seconds(sequences * (1 + width)) + curve.span_s * sequences)

    return max(range(most + 1), key=lambda width: (speed(width), -width))
