"""What became of a request, as routing learns from it; made of a ledger row by who has one."""

from __future__ import annotations

from dataclasses import dataclass

from .taskclass import TaskClass


@dataclass(frozen=True, slots=True)
class Target:
    """The latency that is aimed at. Seconds."""

    ttft_s: float
    token_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """status: "ok", "error" or "cancelled". blame: an error is the backend's, not the request's.

    backend: that of the answer, or of the last attempt; model: its name there; failed: the backends
    that failed before it.
    at_s: when the request was taken in, seconds of any clock that all outcomes share.
    load: requests at the backend when it was asked (None: not known). guess_tok: the prompt's size
    as it was guessed from its bytes. ttft_s, token_s (after the first): None where nobody measured,
    such as for an answer in one piece.
    *_nusd: nano-USD, None: unknown. calls, calls_valid: tool calls, and those that were right.
    """

    backend: str
    task: TaskClass
    model: str = ""
    session: str = ""
    at_s: float = 0.0
    status: str = "ok"
    blame: bool = True
    failed: tuple[str, ...] = ()
    in_tok: int = 0
    cached_tok: int = 0
    out_tok: int = 0
    steps: int = 0
    accepted: int = 0
    ttft_s: float | None = None
    token_s: float | None = None
    e2e_s: float | None = None
    load: float | None = None
    guess_tok: int = 0
    fresh_nusd: int | None = None
    cached_nusd: int | None = None
    out_nusd: int | None = None
    calls: int = 0
    calls_valid: int = 0
    cut: bool = False

    @property
    def cost_nusd(self) -> int | None:
        parts = (self.fresh_nusd, self.cached_nusd, self.out_nusd)
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None

    def met(self, target: Target) -> bool:
        """Whether it was answered within the target. What wasn't measured counts as met."""
        return (
            self.status == "ok"
            and (self.ttft_s is None or self.ttft_s <= target.ttft_s)
            and (self.token_s is None or self.token_s <= target.token_s)
            and self.calls_valid >= self.calls
        )

    def loss_usd(self, target: Target, miss_usd: float) -> float | None:
        """Money, and what a missed target counts; None for what tells nothing of the backend."""
        if self.status == "cancelled" or (self.status == "error" and not self.blame):
            return None
        return (self.cost_nusd or 0) / 1e9 + (0.0 if self.met(target) else miss_usd)
