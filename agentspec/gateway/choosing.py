"""Routing in the gateway: what it is told of requests and prices, and what it learns at the start.

A gateway whose models have one backend each gives it no work: nothing is watched, read or learned.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from agentspec.backends.base import Backend, Turn
from agentspec.backends.capabilities import needs_of
from agentspec.routing.attempts import Attempts
from agentspec.routing.circuit import Circuits
from agentspec.routing.decision import Decision, Situation
from agentspec.routing.estimate import Tariff
from agentspec.routing.learned import Pacer
from agentspec.routing.make import router_of, watch_of
from agentspec.routing.outcome import Outcome
from agentspec.routing.taskclass import TaskClass, class_of
from agentspec.settings import ModelSettings, Settings
from agentspec.store.cost import Price, from_settings
from agentspec.store.errors import StoreError
from agentspec.store.history import read_history
from agentspec.store.pricer import Pricer
from agentspec.store.record import OpenRecord, RequestRecord

from .clock import Clock
from .limits_estimate import BYTES_PER_TOKEN

log = logging.getLogger(__name__)
_AT_ONCE = 200
"""Rows learned from before others get their turn on the loop: about 50 ms."""


class Choosing:
    """Decides for every request, and learns from every row."""

    def __init__(
        self, settings: Settings, backends: Mapping[str, Backend], pricer: Pricer, clock: Clock
    ):
        self._settings = settings
        self._pricer = pricer
        self._clock = clock
        self._listed = {n: from_settings(b.price) for n, b in settings.backends.items()}
        self._of_model = {n: from_settings(m.price) for n, m in settings.models.items()}
        self._models = {n for n, m in settings.models.items() if len(m.backends) > 1}
        self._task: asyncio.Task[None] | None = None
        circuits = Circuits(clock.tick_s, clock.wall_s)
        self.watch = watch_of(settings, backends)
        self.attempts = Attempts(backends, circuits, windows=self._window)
        self._pacer = Pacer(settings.routing.budget_usd_per_h)
        self.router = router_of(
            settings,
            circuits,
            self.watch,
            clock_s=clock.wall_s,
            seed=int.from_bytes(clock.entropy(8), "big"),
            pacer=self._pacer,
            tariff=self._tariff,
            in_flight=self.attempts.in_flight,
        )

    def _window(self, name: str) -> int | None:
        return self.router.window(name, "")

    def decide(
        self, turn: Turn, model: ModelSettings, workload: str, opened: OpenRecord
    ) -> Decision:
        """Raises ``PermissionDenied`` where no backend is allowed."""
        name, choice = turn.request.model, tuple(model.backends)
        situation = Situation(name, opened.session_id, workload, choice, opened.key_id)
        if name not in self._models:
            return self.router.decide(situation)
        embeddings = opened.surface == "embeddings"
        situation = replace(
            situation,
            task=class_of(turn.request, workload, opened.client),
            needs=needs_of(turn.request, turn.extension, turn.body, embeddings=embeddings),
            guess_tok=_guess_tok(turn),
            most_out_tok=turn.request.token_limit,
            names={b: model.upstream_names.get(b, turn.upstream_model) for b in choice},
        )
        decision = self.router.decide(situation)
        self.watch.begun(decision.order[0])
        return decision

    def settle(self, record: RequestRecord) -> None:
        """Learn from a row, unless there is nothing to be decided by it."""
        if self.router.predicts and record.model in self._models and record.backend:
            outcome = outcome_of(record)
            self.router.note(outcome)
            self._pacer.spent((outcome.cost_nusd or 0) / 1e9, outcome.at_s)

    def _tariff(self, backend: str, model: str, in_tok: float) -> Tariff | None:
        """Prices of the settings, else of the price table for what a vendor sells."""
        price = self._listed.get(backend)
        if price is None and backend in self._settings.vendors:
            found = self._pricer.book.at(model, self._clock.now_ms(), int(in_tok))
            price = found[1] if found is not None else None
        return None if price is None else _per_token(price)

    # -- running

    def start(self) -> None:
        """Begin to watch and to learn, on the running loop."""
        if not self._models:
            return
        self.watch.start()
        if self._settings.routing.learn_rows and self.router.predicts:
            self._task = asyncio.create_task(self._learn())

    async def aclose(self) -> None:
        await self.watch.aclose()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _learn(self) -> None:
        """Read the newest rows in a thread, and take them in bit by bit."""
        try:
            rows = await asyncio.to_thread(self._read)
        except StoreError as error:
            log.warning("routing begins without history: %s", error)
            return
        for number, record in enumerate(rows):
            self.router.note(outcome_of(record))
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
        log.info("routing has learned from %d requests", len(rows))

    def _read(self) -> list[RequestRecord]:
        rows = self._settings.routing.learn_rows
        return read_history(self._settings.database_url, rows, tuple(sorted(self._models)))


def _guess_tok(turn: Turn) -> int:
    fields = ("messages", "input", "prompt", "tools")
    size = sum(len(bytes(turn.body[name])) for name in fields if name in turn.body)
    return size // BYTES_PER_TOKEN


def _per_token(price: Price) -> Tariff | None:
    """None where a part has no price: what the rows cost then says more."""
    fresh, cached, out = price.in_nusd_per_m, price.cached_nusd_per_m, price.out_nusd_per_m
    if fresh is None or out is None:
        return None
    return Tariff(fresh / 1e6, (fresh if cached is None else cached) / 1e6, out / 1e6)


def outcome_of(record: RequestRecord) -> Outcome:
    """A row as routing learns from it. A refusal (4xx, but 429) is the request's own fault."""
    decision = record.decision
    task = decision.get("task")
    told = task if isinstance(task, dict) else {}
    load, status = decision.get("load"), record.http_status or 0
    return Outcome(
        backend=record.backend,
        task=TaskClass(record.workload, record.client, str(told.get("schema", ""))),
        model=record.upstream_model,
        session=record.session_id,
        at_s=record.ts_ms / 1000,
        status="ok" if record.status == "ok" else _ended(record.status),
        blame=not (400 <= status < 500 and status != 429),
        failed=_failed(decision.get("attempts")),
        in_tok=record.in_tok,
        cached_tok=min(record.cached_tok, record.in_tok),
        out_tok=record.out_tok,
        steps=record.spec_steps,
        accepted=record.spec_accepted,
        ttft_s=_seconds(record.ttft_ms),
        token_s=_seconds(record.tpot_ms),
        e2e_s=_seconds(record.e2e_ms),
        load=float(load) if isinstance(load, int | float) else None,
        guess_tok=int(told.get("guess_tok", 0)),
        fresh_nusd=record.cost_fresh_nusd,
        cached_nusd=record.cost_cached_nusd,
        out_nusd=record.cost_out_nusd,
        calls=record.tool_calls + record.tool_calls_dropped,
        calls_valid=record.tool_calls_valid,
        cut=record.finish_reason == "length",
    )


def _ended(status: str) -> str:
    """ "lost" tells nothing of the backend, as a client that left does not."""
    return "error" if status == "error" else "cancelled"


def _failed(attempts: object) -> tuple[str, ...]:
    """Backends whose attempts failed before the last one; a prompt too long is no failure."""
    if not isinstance(attempts, Iterable):
        return ()
    before = [a for a in attempts if isinstance(a, dict)][:-1]
    return tuple(
        a["backend"] for a in before if a.get("error") not in (None, "context_length_exceeded")
    )


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000
