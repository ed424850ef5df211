"""The whole plan: memory, speculation by concurrency, what the scheduler makes of it, advice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from . import flags
from .anchors import anchors
from .drafts import Draft
from .memory import Fit, fit, splits
from .presets import Preset
from .roofline import ROUND_S, Machine, draft_seconds, pass_seconds, step_seconds
from .speculation import PAYS, Level, level, price_per_million, rate_of

LEVELS = (1, 4, 16, 64, 256)
RATIO = (8.0, 12.0)
SLOWER = 0.98
MOST_GPUS = 16
"""Of one tensor-parallel group, where more are looked for."""
_CURVE_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


@dataclass(frozen=True, slots=True)
class Simulation:
    """What the scheduler of this project is run on. seconds_at: of a pass of so many rows, K/V left
    out; request_s: what each request's K/V adds; draft_s: of the longest round by its sequences,
    by_token: shorter ones take their share. widths: the roofline's best one by concurrency."""

    rows: tuple[int, ...]
    seconds_at: tuple[float, ...]
    request_s: float
    draft_s: tuple[tuple[int, float], ...]
    rates: tuple[float, ...]
    most: int
    widths: dict[int, int]
    by_token: bool


Simulator = Callable[[Simulation], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Ask:
    """rates: acceptance of each token, lowest and highest; assumed: nobody measured it. price:
    dollars of a GPU's hour."""

    preset: Preset
    draft: Draft | None
    draft_path: str | None
    machine: Machine
    context: int
    concurrency: int | None
    rates: tuple[float, float]
    rates_source: str
    assumed: bool
    price: float | None


def rates_of(preset: Preset) -> tuple[float, float]:
    """The preset's accepted lengths as acceptance of each token, in blocks of its own draft."""
    low, high = preset.accepted
    most = preset.draft.most
    return rate_of(low, most), rate_of(high, most)


def plan(ask: Ask, simulator: Simulator | None = None) -> dict[str, Any]:
    """The document. simulator: where the engine is installed."""
    model = ask.preset.model
    with_draft, without = (
        fit(ask.machine, model, draft, ask.context, ask.concurrency or 64)
        for draft in (ask.draft, None)
    )
    levels = _levels(ask, with_draft)
    simulated = None
    if simulator and ask.draft and levels:
        simulated = simulator(simulation(ask, levels))
    verdict, reasons = judged(ask, with_draft, without, levels)
    reasons += _scheduled(simulated or [])
    return {
        "model": model.name,
        "draft": ask.draft.shape.name if ask.draft else None,
        "gpus": f"{ask.machine.count} x {ask.machine.gpu.name}",
        "context_tokens": ask.context,
        "verdict": verdict,
        "reasons": reasons,
        "params": _params(ask),
        "memory": {"with_draft": asdict(with_draft), "without_draft": asdict(without)},
        "acceptance": {"low": ask.rates[0], "high": ask.rates[1], "source": ask.rates_source},
        "levels": [_row(ask, one) for one in levels],
        "simulated": simulated,
        "flags": _flags(ask, levels) if without.fits else {},
        "basis": basis(ask),
        "anchors": [asdict(one) | {"error": one.error} for one in anchors()],
    }


def _params(ask: Ask) -> dict[str, Any]:
    model, draft = ask.preset.model, ask.draft
    found: dict[str, Any] = {
        "total": model.total_params,
        "active": model.active_params,
        "weight_bytes": model.total_bytes,
        "kv_bytes_a_token": model.kv_token_bytes(),
        "kv_window_bytes_a_request": model.kv_window_bytes(ask.context),
        "experts": model.experts,
        "experts_a_token": model.active,
        "source": model.source,
    }
    if draft:
        found["draft_weight_bytes"] = draft.weight_bytes
        found["draft_kv_bytes_a_token"] = draft.shape.kv_token_bytes()
        found["draft_ratio"] = draft_ratio(ask)
    return found


def draft_ratio(ask: Ask) -> float:
    """The target's active parameters over those that the draft multiplies a token with."""
    assert ask.draft
    return ask.preset.model.active_params / ask.draft.shape.active_params


def _levels(ask: Ask, room: Fit) -> list[Level]:
    """Of the usual concurrencies, the one asked for, and the most that fit, those that fit."""
    if ask.draft is None or not room.fits:
        return []
    wanted = sorted({*LEVELS, ask.concurrency or LEVELS[0], min(room.requests, LEVELS[-1])})
    return [
        level(ask.machine, ask.preset.model, ask.draft, count, ask.context, ask.rates)
        for count in wanted
        if count <= room.requests
    ]


def _row(ask: Ask, one: Level) -> dict[str, Any]:
    found: dict[str, Any] = {
        "concurrency": one.concurrency,
        "plain_ms": 1e3 * one.plain_s,
        "plain_tok_s": one.plain_tok_s,
        "width": one.low.width,
        "speedup_low": one.low.speedup,
        "speedup_high": one.high.speedup,
        "draft_share": one.low.draft_share,
        "break_even_acceptance": one.break_even,
        "answer": one.answer,
    }
    if ask.preset.model.experts:
        found["experts_plain"] = one.experts_plain
        found["experts_verified"] = one.experts_verified
    if ask.price is not None:
        low, high = (one.plain_tok_s * gain.speedup for gain in (one.low, one.high))
        machine, price = ask.machine, ask.price
        found["usd_per_million_plain"] = price_per_million(machine, price, one.plain_tok_s)
        found["usd_per_million_low"] = price_per_million(machine, price, high)
        found["usd_per_million_high"] = price_per_million(machine, price, low)
    return found


def judged(ask: Ask, room: Fit, plain: Fit, levels: Sequence[Level]) -> tuple[str, list[str]]:
    """One sentence, and why."""
    what = f"{ask.machine.count} x {ask.machine.gpu.name}"
    if not plain.fits:
        return f"does not fit on {what}", [_short(ask, plain), _enough(ask)]
    if ask.draft is None:
        return f"fits on {what}; no draft asked for", [_held(ask, plain)]
    if not room.fits:
        reasons = [_short(ask, room), f"Without the draft it fits: {_held(ask, plain)}"]
        return f"fits on {what}, but not with this draft", reasons
    reasons = [_held(ask, room), _lost(room, plain), *_speculation(ask, levels)]
    wanted = [one for one in levels if one.concurrency == ask.concurrency] or levels
    answers = {one.answer for one in wanted}
    if ask.concurrency and ask.concurrency > room.requests:
        reasons.append(f"{ask.concurrency} requests at once do not fit.")
    if answers == {"pays"}:
        if_so = ", if acceptance is as assumed" if ask.assumed else ""
        return f"fits on {what}; speculation pays{if_so}", reasons
    if answers == {"does not pay"}:
        return f"fits on {what}; speculation does not pay", reasons
    return f"fits on {what}; whether speculation pays depends", reasons


def _scheduled(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Where this project's own scheduler would lose against plain decoding."""
    slower = [row for row in rows if row.get("adaptive_over_off", 1.0) < SLOWER]
    if not slower:
        return []
    where = ", ".join(f"{r['adaptive_over_off']:.2f} at {r['concurrency']}" for r in slower)
    return [
        f"Simulated at the lower acceptance, this project's own scheduler is slower than plain "
        f"decoding here ({where}): turn speculation off at such loads until `agentspec protocol` "
        "has measured that it pays."
    ]


def _short(ask: Ask, room: Fit) -> str:
    need = room.weights + room.draft + room.graphs + room.activations
    return (
        f"Weights, draft, graphs and work space take {need / 1e9:.1f} GB of each GPU's "
        f"{ask.machine.gpu.memory_gb:g} GB; a request of {ask.context:,} tokens needs "
        f"{room.kv_request / 1e9:.2f} GB more."
    )


def _enough(ask: Ask) -> str:
    """The fewest of such GPUs on which it fits without a draft, of those that share its heads."""
    machine, model = ask.machine, ask.preset.model
    for count in range(machine.count + 1, MOST_GPUS + 1):
        many = replace(machine, count=count)
        if splits(model, count) and fit(many, model, None, ask.context, ask.concurrency or 64).fits:
            return f"Without a draft it takes {count} x {machine.gpu.name} at least."
    return f"No {MOST_GPUS} x {machine.gpu.name} in one tensor-parallel group hold it either."


def _held(ask: Ask, room: Fit) -> str:
    return (
        f"{room.kv_room / 1e9:.1f} GB of each GPU are left for K/V: {room.requests:,} requests of "
        f"{ask.context:,} tokens."
    )


def _lost(room: Fit, plain: Fit) -> str:
    lost = plain.requests - room.requests
    return (
        f"The draft costs {lost:,} of {plain.requests:,} concurrent requests "
        f"({lost / plain.requests:.0%}): {room.draft / 1e9:.2f} GB of weights on each GPU, "
        f"{(room.kv_token - plain.kv_token) / 1024:.1f} KiB of K/V a token, wider graphs."
    )


def _speculation(ask: Ask, levels: Sequence[Level]) -> list[str]:
    model, draft = ask.preset.model, ask.draft
    assert draft
    found = []
    ratio = draft_ratio(ask)
    if draft.kind == "model":
        kind = "inside" if RATIO[0] <= ratio <= RATIO[1] else "outside"
        found.append(f"Draft and model are 1:{ratio:.1f}, {kind} of the usual 1:8 to 1:12.")
    if model.experts and levels:
        one = levels[0]
        found.append(
            f"A mixture of experts: one token touches {model.active} of {model.experts} experts in "
            f"each layer, {1 + one.low.width} verified tokens {one.experts_verified:.1f} "
            "if routed independently. Verifying is not free as in a dense model at small batches."
        )
    for one in levels:
        edge = (
            "no acceptance is enough"
            if one.break_even is None
            else f"break-even at {one.break_even:.2f} acceptance a token"
        )
        found.append(
            f"{one.concurrency} at once: {one.low.speedup:.2f} to {one.high.speedup:.2f} times "
            f"plain, best width {one.low.width} to {one.high.width} ({edge}): {one.answer}."
        )
    return found


def simulation(ask: Ask, levels: Sequence[Level]) -> Simulation:
    """Costs for the simulator. The base is taken without K/V, which is booked by request."""
    model, machine, draft = ask.preset.model, ask.machine, ask.draft
    assert draft
    base = tuple(step_seconds(machine, model, rows, 1, 0) for rows in _CURVE_ROWS)
    apart = 64
    behind = pass_seconds(machine, model, apart, 1, ask.context)
    request_s = max(0.0, (behind - pass_seconds(machine, model, apart, 1, 0)) / apart)
    counts = (1, 4, 16, 64, 256)
    drafts = tuple(
        (count, ROUND_S + draft_seconds(machine, draft, count, draft.most, ask.context))
        for count in counts
    )
    rates = (ask.rates[0],) * draft.most
    by_token = draft.kind != "dspark"
    widths = {one.concurrency: one.low.width for one in levels}
    return Simulation(_CURVE_ROWS, base, request_s, drafts, rates, draft.most, widths, by_token)


def _flags(ask: Ask, levels: Sequence[Level]) -> dict[str, str]:
    """With the draft where some concurrency may gain by it."""
    useful = any(one.high.speedup >= PAYS for one in levels)
    draft = ask.draft if useful else None
    path, count = ask.preset.path, ask.machine.count
    return {
        "sglang": flags.sglang(path, count, draft, ask.draft_path),
        "vllm": flags.vllm(path, count, draft, ask.draft_path),
        "agentspec": flags.ours(path, ask.preset.model, draft, ask.draft_path),
    }


def basis(ask: Ask) -> list[str]:
    """What the figures rest on, and what they leave out."""
    gpu = ask.machine.gpu
    found = [
        f"Model: {ask.preset.model.source}. Parameters counted from its dimensions.",
        f"GPU: {gpu.name}, {gpu.memory_gb:g} GB, {gpu.bandwidth_tb_s:g} TB/s ({gpu.source}).",
        f"Acceptance: {ask.rates_source}.",
        "Times: a roofline of bytes and operations with assumed efficiencies (plan/roofline.py); "
        "nothing was run on this GPU by this project. See the anchors for its errors.",
        "Speedup, low: the lower acceptance, experts routed independently, 5 ms of an engine's "
        "overhead in each round (two published rounds took 4 and 6 ms more than the roofline); "
        "high: the higher acceptance, neighbouring tokens share experts, no overhead.",
        "One tensor-parallel group; K/V that can't be split by heads "
        "is held by every GPU (data-parallel attention would hold more requests).",
        "Memory: 90 % of each GPU; graphs and work space are assumptions (plan/memory.py).",
        "Prices: decoding alone, every slot busy; prefill and idle time come on top.",
    ]
    if ask.preset.model.ratios:
        found.append(
            "Compressed attention: entries of fp8 as SGLang packs them, its indexer's and "
            "compressors' weights left out (about 0.2 % of the model)."
        )
    return found
