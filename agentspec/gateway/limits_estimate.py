"""What a request may come to, before it runs; and what it came to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from agentspec.settings import BackendSettings, ModelSettings
from agentspec.store.budgets import BUDGETS, CONCURRENCY, RPM
from agentspec.store.cost import Price, cost, from_settings
from agentspec.store.pricer import Pricer, failed_calls
from agentspec.store.record import RequestRecord
from agentspec.wire.chat import ChatRequest

BYTES_PER_TOKEN = 4  # the usual rule of thumb
TOKENS_PER_IMAGE = 1600
ASSUMED_OUT_TOK = 4096
"""Reserved for an answer whose request sets no limit. A context smaller than that is the bound."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """in_tok, out_tok: at most so many tokens, as far as can be told without a tokenizer. nusd:
    what those cost; None where no price is known."""

    in_tok: int
    out_tok: int
    nusd: int | None

    def amount(self, kind: str) -> int:
        """What to reserve of a limit of that kind: never nothing, so that a limit that is used up,
        or can't be checked, stops also what may turn out to be free."""
        if kind in (RPM, CONCURRENCY):
            return 1
        return max(1, (self.nusd or 0) if kind in BUDGETS else self.in_tok + self.out_tok)

    def used(self, kind: str, record: RequestRecord) -> int:
        """What the finished request has used of a limit of that kind.

        A cost that isn't known, and tokens that nobody told of a request that may have run, are
        what was reserved.
        """
        if kind == CONCURRENCY:
            return 0
        if kind in BUDGETS:
            return (self.nusd or 0) if record.cost_nusd is None else record.cost_nusd
        if record.token_source == "none" and record.cost_nusd is None:
            return self.in_tok + self.out_tok
        failed = [one.get("tokens") or {} for one in failed_calls(record)]
        more = sum(tokens.get("in_tok", 0) + tokens.get("out_tok", 0) for tokens in failed)
        return record.in_tok + record.out_tok + more


class Prices:
    """What a model will cost, as far as that is known before it runs: the settings' price (of the
    dearest of its backends), else the price table's. A self-hosted one is priced by the time that
    it turns out to take."""

    def __init__(
        self,
        models: Mapping[str, ModelSettings],
        pricer: Pricer,
        backends: Mapping[str, BackendSettings] | None = None,
    ):
        self._listed = {name: _dearest(model, backends or {}) for name, model in models.items()}
        self._pricer = pricer

    def of(self, name: str, model: ModelSettings, in_tok: int, now_ms: int) -> Price | None:
        listed = self._listed.get(name)
        if listed is not None:
            return listed
        found = self._pricer.book.at(model.upstream_name or name, now_ms, in_tok)
        return found[1] if found is not None else None


def _dearest(model: ModelSettings, backends: Mapping[str, BackendSettings]) -> Price | None:
    settings = [model.price, *(backends[n].price for n in model.backends if n in backends)]
    found = [price for price in map(from_settings, settings) if price is not None]
    return max(found, key=lambda p: (p.out_nusd_per_m or 0, p.in_nusd_per_m or 0), default=None)


def estimate(
    request: ChatRequest,
    body: Mapping[str, msgspec.Raw],
    model: ModelSettings,
    price: Callable[[int], Price | None],
    *,
    writes: bool,
) -> Estimate:
    """body: the request's JSON fields. price: the model's, for so many input tokens. writes:
    whether its answer is text."""
    in_tok = _in_tok(request, body)
    out_tok = request.token_limit
    if out_tok is None:
        out_tok = min(ASSUMED_OUT_TOK, model.context_tokens or ASSUMED_OUT_TOK)
    out_tok = max(0, out_tok) * max(1, request.n or 1) if writes else 0
    found = price(in_tok)
    nusd = None
    if found is not None:
        nusd = cost(found, in_tok=in_tok, cached_tok=0, out_tok=out_tok).total_nusd
    return Estimate(in_tok, out_tok, nusd)


def _in_tok(request: ChatRequest, body: Mapping[str, msgspec.Raw]) -> int:
    """A quarter of the prompt's bytes; images, which lie in it as text, count by the piece."""
    fields = ("messages", "input", "prompt", "tools")
    raw = [bytes(body[name]) for name in fields if name in body]
    size = sum(map(len, raw))
    images = sum(piece.count(b";base64,") for piece in raw)
    if images:
        text = sum(len(m.text().encode("utf-8", "surrogatepass")) for m in request.messages)
        tools = len(bytes(body["tools"])) if "tools" in body else 0
        return (text + tools) // BYTES_PER_TOKEN + images * TOKENS_PER_IMAGE
    return -(-size // BYTES_PER_TOKEN)
