"""An OpenAI-compatible endpoint: what it is, how speculation is switched, one measured request."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from agentspec.backends.foreign import ForeignAnswer, decode, to_report
from agentspec.backends.http import api_base
from agentspec.backends.load import figures
from agentspec.bench.workloads import BenchError
from agentspec.wire.errors import AgentspecError
from agentspec.wire.sse import EventParser

KINDS = ("agentspec", "vllm", "sglang", "llamacpp", "openai")
_KNOWN = {"agentspec": "agentspec", "vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp"}
_KV_SHARE = ("vllm:kv_cache_usage_perc", "sglang:token_usage")
SILENCE_S = 600.0


@dataclass(slots=True)
class Answer:
    """One request from outside; seconds from its own start. out_tokens: None where it wasn't told.

    called: it held tool calls, which come whole when they are finished: the times of its pieces
    say nothing of its tokens. ended: it had a finish_reason. ttft_s: of text; 0: none came.
    sources: drafted and accepted tokens by who drafted them, as the server names it; None: it told
    nothing. steps: passes that they were verified in, 0: not told.
    """

    prompt: int
    ttft_s: float = 0.0
    e2e_s: float = 0.0
    out_tokens: int | None = None
    sources: dict[str, tuple[int, int]] | None = None
    steps: int = 0
    called: bool = False
    ended: bool = False
    error: str | None = None

    @property
    def timed(self) -> bool:
        """Whether its pieces came as they were written."""
        return self.error is None and self.ttft_s > 0.0 and not self.called

    @property
    def tpot_s(self) -> float | None:
        """Seconds a token after the first; None where there was no other, or no telling."""
        if not self.timed or self.out_tokens is None or self.out_tokens < 2:
            return None
        return (self.e2e_s - self.ttft_s) / (self.out_tokens - 1)


@dataclass(slots=True)
class Endpoint:
    """url: with its ``/v1``. metrics_url: of its Prometheus page. key: for its API. clock: in
    seconds."""

    url: str
    model: str
    kind: str
    metrics_url: str
    key: str | None = None
    session: aiohttp.ClientSession = field(kw_only=True)
    clock: Callable[[], float] = time.perf_counter

    @property
    def switches(self) -> bool:
        """Whether a request can go without speculation."""
        return self.kind == "agentspec"

    @property
    def _headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"} if self.key else {}

    def body(
        self, messages: dict[str, Any], max_tokens: int, *, speculate: bool, fresh: str
    ) -> dict[str, Any]:
        """fresh: a word of this request alone: nothing of an earlier one may lie in its cache."""
        body = messages | {
            "model": self.model,
            "temperature": 0,
            "max_tokens": max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.kind == "agentspec":
            how = "auto" if speculate else "off"
            body["agentspec"] = {"speculation": how, "cache_scope": fresh}
        elif self.kind == "llamacpp":
            body["cache_prompt"] = False
        else:
            note = {"role": "system", "content": f"Request {fresh}."}
            body["messages"] = [note, *body["messages"]]
        if self.kind == "sglang":
            body["return_spec_tokens_details"] = True
        return body

    async def ask(self, body: dict[str, Any], prompt: int) -> Answer:
        """Never raises for what the server does wrong: that stands in ``error``."""
        answer = Answer(prompt)
        start_s = self.clock()
        try:
            async with aclosing(self._events(body)) as events:
                async for event in events:
                    now_s = self.clock() - start_s
                    answer.e2e_s = now_s
                    if not answer.ttft_s and _says(event):
                        answer.ttft_s = now_s
                    _count(answer, event)
        except (aiohttp.ClientError, TimeoutError, AgentspecError) as error:
            answer.error = str(error) or type(error).__name__
        if answer.error is None and not answer.ended:
            answer.error = "the answer broke off before it was finished"
        return answer

    async def _events(self, body: dict[str, Any]) -> AsyncGenerator[ForeignAnswer]:
        url, parser = f"{self.url}/chat/completions", EventParser()
        async with self.session.post(url, json=body, headers=self._headers) as response:
            if response.status != 200:
                told = (await response.text())[:300]
                raise aiohttp.ClientPayloadError(f"status {response.status}: {told}")
            async for piece in response.content.iter_any():
                for data in parser.feed(piece):
                    if data == b"[DONE]":
                        return
                    event = decode(data)
                    failure = event.failure()
                    if failure is not None:
                        raise aiohttp.ClientPayloadError(f"error in the stream: {failure}")
                    yield event

    async def kv_used(self) -> float | None:
        """Share of the K/V memory that running requests hold; None where it isn't told."""
        try:
            async with self.session.get(self.metrics_url, headers=self._headers) as response:
                page = await response.text() if response.status == 200 else ""
        except (aiohttp.ClientError, TimeoutError):
            return None
        return kv_share(page)


def kv_share(page: str) -> float | None:
    """Out of a Prometheus page of vLLM, SGLang, or our engine (pages in use over all)."""
    try:
        found = figures(page, _KV_SHARE)
    except ValueError:
        return None
    for name in _KV_SHARE:
        if name in found:
            return found[name]
    states = {}
    for line in page.splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith("agentspec_engine_pages{"):
            states[name.partition('"')[2].partition('"')[0]] = float(value)
    total = sum(states.values())
    return states.get("used", 0.0) / total if total else None


def _says(event: ForeignAnswer) -> bool:
    """Whether it brings anything of the answer: text, reasoning, or a call."""
    for choice in event.choices or ():
        told = choice.delta or choice.message
        if choice.text or (told and (told.text() or told.thought() or told.calls())):
            return True
    return False


def _count(answer: Answer, event: ForeignAnswer) -> None:
    for choice in event.choices or ():
        told = choice.delta or choice.message
        answer.called = answer.called or bool(told and told.calls())
        answer.ended = answer.ended or bool(choice.finish_reason)
    usage = event.counts() or {}
    tokens = usage.get("completion_tokens")
    if isinstance(tokens, int) and tokens > 0:
        answer.out_tokens = tokens
    report = to_report(event)
    if report is not None:
        counts = report.sources.items()
        answer.sources = {name: (count.drafted, count.accepted) for name, count in counts}
        answer.steps = report.steps
        return
    details = usage.get("completion_tokens_details")
    if answer.sources is None and isinstance(details, dict):
        taken = details.get("accepted_prediction_tokens") or 0
        lost = details.get("rejected_prediction_tokens") or 0
        if isinstance(taken, int) and isinstance(lost, int) and taken + lost > 0:
            answer.sources = {"usage": (taken + lost, taken)}


async def probe(
    session: aiohttp.ClientSession,
    url: str,
    model: str | None,
    metrics_url: str | None,
    key: str | None,
) -> Endpoint:
    """Ask what it is. Raises ``BenchError`` where it can't be reached or serves no model."""
    base = api_base(url)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        async with session.get(f"{base}/models", headers=headers) as response:
            found = json.loads(await response.text()) if response.status == 200 else {}
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise BenchError(f"{base}/models cannot be read: {error or type(error).__name__}") from None
    cards = found.get("data") if isinstance(found, dict) else None
    cards = [card for card in cards or () if isinstance(card, dict) and card.get("id")]
    if not cards:
        raise BenchError(f"{base}/models (status {response.status}) lists no model")
    card = next((card for card in cards if card["id"] == model), cards[0])
    if model is not None and card["id"] != model:
        names = ", ".join(str(card["id"]) for card in cards[:8])
        raise BenchError(f"--model: {base} has no '{model}'; it has {names}")
    owner = str(card.get("owned_by", ""))
    kind = _KNOWN.get(owner, "openai")
    page = metrics_url or base.removesuffix("/v1") + "/metrics"
    return Endpoint(base, str(card["id"]), kind, page, key, session=session)
