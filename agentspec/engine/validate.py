"""Field rules of a chat request: wire values in, engine values out, each refusal naming its field.

Absent fields take OpenAI's defaults (temperature 1.0, top_p 1.0, n 1). What no rule speaks of is
accepted and ignored, since coding agents send fields of many dialects.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

from agentspec.wire.chat import ChatRequest
from agentspec.wire.errors import InvalidRequest, ModelNotFound
from agentspec.wire.extension import VERSION, SpecRequest

from .draft.base import FORCED
from .sampling import SamplingParams

MAX_CHOICES = 16
MAX_STOPS = 16
MAX_TOP_LOGPROBS = 20
_SEED_BITS = 63


def refuse(param: str, reason: str) -> InvalidRequest:
    """The refusal of one field's value."""
    return InvalidRequest(
        f"Invalid value for '{param}': {reason}.", param=param, code="invalid_value"
    )


def check_model(name: str | None, served: str) -> None:
    """Raise ``ModelNotFound`` unless ``name`` is the served model's (None: not asked for)."""
    if name is not None and name != served:
        raise ModelNotFound(
            f"The model '{name}' does not exist here. This engine serves '{served}'.",
            param="model",
        )


def sampling_params(request: ChatRequest, vocab_size: int) -> SamplingParams:
    """The sampling of choice 0. Raises ``InvalidRequest``."""
    seed = request.seed
    if seed is not None and not -(1 << _SEED_BITS) <= seed < 1 << _SEED_BITS:
        raise refuse("seed", "expected a 64-bit integer")
    return SamplingParams(
        temperature=_between("temperature", request.temperature, 0.0, 2.0, 1.0),
        top_p=_between("top_p", request.top_p, 0.0, 1.0, 1.0, open_low=True),
        top_k=_top_k(request.top_k, vocab_size),
        min_p=_between("min_p", request.min_p, 0.0, 1.0, 0.0),
        presence_penalty=_between("presence_penalty", request.presence_penalty, -2.0, 2.0, 0.0),
        frequency_penalty=_between("frequency_penalty", request.frequency_penalty, -2.0, 2.0, 0.0),
        repetition_penalty=_between(
            "repetition_penalty", request.repetition_penalty, 0.0, 10.0, 1.0, open_low=True
        ),
        logit_bias=_logit_bias(request.logit_bias or {}, vocab_size),
        seed=seed,
    )


def _between(
    param: str,
    value: float | None,
    low: float,
    high: float,
    default: float,
    *,
    open_low: bool = False,
) -> float:
    if value is None:
        return default
    if not (low < value <= high if open_low else low <= value <= high):
        above = f"above {low:g}" if open_low else f"at least {low:g}"
        raise refuse(param, f"expected a number {above} and at most {high:g}, got {value:g}")
    return float(value)


def _top_k(value: int | None, vocab_size: int) -> int:
    if value is None or value == -1:
        return 0
    if value < 0:
        raise refuse("top_k", f"expected 0 or more (or -1 for off), got {value}")
    return min(value, vocab_size)


def _logit_bias(bias: dict[str, float], vocab_size: int) -> dict[int, float]:
    """Ids beyond the vocabulary name no token here (clients know another tokenizer): no effect."""
    out: dict[int, float] = {}
    for key, value in bias.items():
        param = f"logit_bias.{key}"
        digits = key.isascii() and key.isdigit() and len(key) <= 9
        if not digits:
            raise refuse(param, "expected a token id")
        amount = _between(param, value, -100.0, 100.0, 0.0)
        if int(key) < vocab_size:
            out[int(key)] = amount
    return out


def choice_count(request: ChatRequest) -> int:
    """How many answers are wanted (``n``). Raises ``InvalidRequest``."""
    n = 1 if request.n is None else request.n
    if not 1 <= n <= MAX_CHOICES:
        raise refuse("n", f"expected 1 to {MAX_CHOICES}, got {n}")
    return n


def stop_strings(request: ChatRequest) -> tuple[bytes, ...]:
    """The stop strings as UTF-8. Raises ``InvalidRequest`` for empty or too many ones."""
    stop = request.stop
    if stop is None:
        return ()
    if isinstance(stop, str):
        stop = [stop]
    if len(stop) > MAX_STOPS:
        raise refuse("stop", f"expected at most {MAX_STOPS} strings, got {len(stop)}")
    if not all(stop):
        raise refuse("stop", "a stop string must not be empty")
    return tuple(text.encode() for text in stop)


def logprob_count(request: ChatRequest) -> int | None:
    """Alternatives wanted a token (0: the token's own only), or None. Raises ``InvalidRequest``."""
    top = request.top_logprobs
    if not request.logprobs:
        if top:
            raise refuse("top_logprobs", "it needs 'logprobs': true")
        return None
    if top is not None and not 0 <= top <= MAX_TOP_LOGPROBS:
        raise refuse("top_logprobs", f"expected 0 to {MAX_TOP_LOGPROBS}, got {top}")
    return top or 0


def check_token_limits(request: ChatRequest) -> None:
    """Raise ``InvalidRequest`` where ``max_tokens`` or ``max_completion_tokens`` is below 1."""
    for param in ("max_tokens", "max_completion_tokens"):
        value = getattr(request, param)
        if value is not None and value < 1:
            raise refuse(param, f"expected at least 1, got {value}")


def draft_sources(asked: SpecRequest, available: Seq[str]) -> tuple[str, ...]:
    """The draft sources that may be used, in the engine's order. Raises ``InvalidRequest``.

    "forced" may be listed, though it is no choice: it is a part of the constraint.
    """
    param = "agentspec.speculation"
    wanted = asked.speculation
    if wanted == "off":
        return ()
    if wanted == "auto":
        return tuple(available)
    if isinstance(wanted, str):
        raise refuse(param, f"expected 'off', 'auto' or a list of sources, got '{wanted}'")
    for name in wanted:
        if name not in available and name != FORCED:
            known = ", ".join(f"'{source}'" for source in available) or "none"
            raise refuse(param, f"no draft source '{name}' here (available: {known})")
    return tuple(name for name in available if name in wanted)


def check_extension(asked: SpecRequest) -> None:
    """Raise ``InvalidRequest`` where the ``agentspec`` object cannot be understood."""
    if asked.v != VERSION:
        raise refuse("agentspec.v", f"this engine speaks version {VERSION}, got {asked.v}")
    if asked.deadline_ms is not None and asked.deadline_ms < 1:
        raise refuse("agentspec.deadline_ms", f"expected at least 1, got {asked.deadline_ms}")
