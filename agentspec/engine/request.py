"""What goes into the engine and what comes out: plain values, no tensors.

Read next: ``core.py`` (who consumes them) and ``sequence.py`` (the running state).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentspec.wire.extension import SpecReport

from .sampling import SamplingParams

if TYPE_CHECKING:
    from .constrain import CompiledConstraint


@dataclass(slots=True, kw_only=True)
class GenerationRequest:
    """One sequence to generate.

    id: unique; several sequences of one HTTP request (n > 1) have ids of their own.
    prompt: token ids; at least one. max_tokens: output limit, already clamped to the context.
    stop: byte strings that end the answer (not part of it); they apply to free text only, never
        inside constrained output. stop_ids: tokens that end it (EOS).
    constraint: compiled grammar or None for free text.
    marks: special tokens that are marks of the answer's form -> the character that stands for each
        in the text (see ``toolcall.marks``).
    sources: draft sources that may be used; () is plain decoding.
    logprobs: how many alternatives a token; 0: the token's own only; None: none are wanted.
    """

    id: str
    prompt: list[int]
    max_tokens: int
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop: tuple[bytes, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    constraint: CompiledConstraint | None = None
    marks: Mapping[int, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    cache_scope: str = ""
    session: str | None = None
    priority: int = 0
    deadline_s: float | None = None
    """Absolute ``time.monotonic()`` second after which the sequence is given up."""
    logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """Log-probability of one emitted token under the model's own (raw, unmasked) distribution."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True, kw_only=True)
class Output:
    """Progress of one sequence in one step.

    text: new text, whole UTF-8 characters only, stop strings held back and cut.
    tokens: how many tokens were committed in this step.
    finish_reason: "stop", "length", "abort", "deadline" or "error"; None while running.
    closed_out: the close-out guard ended it, so what it closed was cut (a call must not be run).
    stopped_by: the stop string that ended it, on the last output.
    cached_tokens, output_tokens: prompt tokens served by the prefix cache; output tokens so far.
    report: filled on the last output.
    """

    id: str
    text: str = ""
    tokens: int = 0
    infos: list[TokenInfo] = field(default_factory=list)
    finish_reason: str | None = None
    error: str | None = None
    closed_out: bool = False
    stopped_by: str | None = None
    report: SpecReport | None = None
    cached_tokens: int = 0
    output_tokens: int = 0
