"""What clients are told of limits: headers on every answer, and refusals, in their vendor's words.

OpenAI's headers are ``x-ratelimit-*`` with durations like "6m0s", Anthropic's
``anthropic-ratelimit-*`` with times. Clients wait as ``retry-after`` says; Codex reads "try again
in 1.3s" out of the message. Both vendors' SDKs obey ``x-should-retry`` and send an error 402 only
once, but a 429 again and again: so a budget that is used up, which no waiting of seconds brings
back, is 402.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from agentspec.store.budgets import BUDGETS, CONCURRENCY, RPM, TPM, USD_TOTAL
from agentspec.wire.errors import AgentspecError, BudgetExhausted, RateLimited

from .limits_account import Account

MESSAGES = "messages"
_WORDS = {
    RPM: "requests per min (RPM)",
    TPM: "tokens per min (TPM)",
    CONCURRENCY: "concurrent requests",
}
_SLOT_S = 1.0


def headers(surface: str, accounts: Sequence[Account], now_ms: int) -> dict[str, str]:
    """What is left of requests and tokens a minute; of several limits of a kind, the tightest."""
    told: dict[str, str] = {}
    for kind, noun in ((RPM, "requests"), (TPM, "tokens")):
        found = [account for account in accounts if account.limit.kind == kind]
        if not found:
            continue
        tight = min(found, key=_left)
        seconds = _until_reset_s(tight, now_ms)
        if surface == MESSAGES:
            ends = datetime.fromtimestamp(math.ceil(now_ms / 1000 + seconds), UTC)
            values = {"reset": ends.strftime("%Y-%m-%dT%H:%M:%SZ")}
            name = f"anthropic-ratelimit-{noun}-{{}}"
        else:
            values = {"reset": duration(seconds)}
            name = f"x-ratelimit-{{}}-{noun}"
        values |= {"limit": str(tight.limit.amount), "remaining": str(_left(tight))}
        told |= {name.format(word): value for word, value in values.items()}
    return told


def refusal(account: Account, amount: int, now_ms: int) -> AgentspecError:
    """Why a request that needs ``amount`` of an account is not let in."""
    if account.limit.kind in BUDGETS:
        return _exhausted(account, now_ms)
    kind, limit = account.limit.kind, account.limit.amount
    seconds = _SLOT_S if kind == CONCURRENCY else _until_reset_s(account, now_ms)
    whose = account.limit.owner.partition(":")[0]
    told = f"Rate limit reached for this {whose} on {_WORDS[kind]}: Limit {limit}"
    if amount > limit:
        told = f"Request too large for this {whose} on {_WORDS[kind]}: Limit {limit}"
        error = RateLimited(f"{told}, Requested {amount}. Reduce 'max_tokens' or the input.")
        error.headers = {"x-should-retry": "false"}
    else:
        used = max(0, limit - _left(account))
        error = RateLimited(
            f"{told}, Used {used}, Requested {amount}. Please try again in {seconds:.3g}s."
        )
        error.headers = {"retry-after": str(max(1, math.ceil(seconds)))}
    error.type = "tokens" if kind == TPM else "requests"
    return error


def duration(seconds: float) -> str:
    """As OpenAI writes it: 20ms, 1s, 6m0s, 1h2m3s."""
    ms = max(0, math.ceil(round(seconds * 1000, 6)))  # but not for what a float adds
    if ms < 1000:
        return f"{ms}ms"
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _exhausted(account: Account, now_ms: int) -> BudgetExhausted:
    whose, _, _ = account.limit.owner.partition(":")
    if account.limit.kind == USD_TOTAL or account.period.end_ms is None:
        when = "It does not come back by itself."
    else:
        ends = datetime.fromtimestamp(account.period.end_ms / 1000, UTC)
        when = f"It begins anew at {ends:%Y-%m-%dT%H:%M:%SZ}."
    word = {"day": "daily", "month": "monthly", "total": "total"}
    error = BudgetExhausted(
        f"You exceeded your current quota: what is left of the "
        f"{word[account.limit.kind.removeprefix('usd_')]} budget of this {whose} "
        f"does not cover this request. {when}"
    )
    error.headers = {"x-should-retry": "false"}
    return error


def _left(account: Account) -> int:
    return max(0, min(account.limit.amount, account.remaining + max(0, account.free)))


def _until_reset_s(account: Account, now_ms: int) -> float:
    ends_ms = account.period.end_ms
    return 0.0 if ends_ms is None else max(0, ends_ms - now_ms) / 1000
