"""What a step is to be good at: the value of a token, and whose tokens count more.

auto, throughput
             work a second: a drafted token is worth the decode work that it saves, no more. With
             few sequences that is the latency of each; with many only sure drafts remain.
latency      tokens a second of those that decode now, prompts in the same pass included: while a
             long prompt makes the step slow, drafts are cheap beside it. The prompt pays for it.
slo          as auto; and whoever is behind the wanted milliseconds a token counts more, whoever is
             well ahead counts less, and prompts are read in pieces that keep the step within it.

Interactive requests (``priority`` 0 or more) count double of batch ones (negative).
Weights look at committed tokens and clocks only, so that cutting by them cannot bias sampling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from agentspec.settings import EngineSettings

Goal = Literal["auto", "latency", "throughput", "slo"]
BATCH_WEIGHT = 0.5
BEHIND_WEIGHT = 2.0
AHEAD_WEIGHT = 0.5
AHEAD_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Policy:
    """tpot_s: seconds a token that every interactive request should see at most (slo only)."""

    goal: Goal = "auto"
    tpot_s: float | None = None

    @classmethod
    def of(cls, settings: EngineSettings) -> Policy:
        goal, tpot_ms = settings.scheduling.policy, settings.scheduling.tpot_ms
        return cls(goal, None if tpot_ms is None else tpot_ms / 1000)

    @property
    def counts_prompts(self) -> bool:
        """Whether the prompts in a pass count in what a token of it costs."""
        return self.goal == "latency"

    @property
    def heeds_paces(self) -> bool:
        """Whether a sequence's pace counts in what its tokens weigh."""
        return self.goal == "slo"

    def weight(self, priority: int, token_s: float | None) -> float:
        """Of a sequence's tokens; token_s: the seconds a token that it has seen so far."""
        weight = 1.0 if priority >= 0 else BATCH_WEIGHT
        if self.goal != "slo" or self.tpot_s is None or token_s is None or priority < 0:
            return weight
        if token_s > self.tpot_s:
            return weight * BEHIND_WEIGHT
        return weight * AHEAD_WEIGHT if token_s < AHEAD_SHARE * self.tpot_s else weight
