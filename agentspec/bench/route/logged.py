"""``agentspec route replay`` without a trace: policies judged on the installation's own ledger.

The rows are gone through in their order. Before each, the policy is asked what it would choose,
knowing what it would have known; then it learns what came of the choice that was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from agentspec.backends.load import Load
from agentspec.gateway.choosing import outcome_of
from agentspec.routing.circuit import Circuits
from agentspec.routing.decision import Decision, Situation
from agentspec.routing.learned import Pacer
from agentspec.routing.make import router_of, target_of
from agentspec.routing.offpolicy import Judged, Logged, judge
from agentspec.routing.outcome import Outcome
from agentspec.routing.router import Router
from agentspec.routing.watch import Seen, Watch
from agentspec.settings import Settings
from agentspec.store.record import RequestRecord

STATIC = "static:"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A policy on a log: its loss, its money, the share on target, each estimated three ways."""

    policy: str
    loss: Judged
    usd: Judged
    slo: Judged


def verdicts(
    rows: Sequence[RequestRecord], settings: Settings, names: Iterable[str], seed: int = 0
) -> Iterator[Verdict]:
    """Raises ``ValueError`` where no row holds a choice."""
    for name in names:
        yield Verdict(
            name,
            *(judge(list(_asked(rows, settings, name, seed, what)), seed) for what in _WHAT),
        )


_WHAT = ("loss", "usd", "slo")


def _asked(
    rows: Sequence[RequestRecord], settings: Settings, name: str, seed: int, what: str
) -> Iterator[Logged]:
    asking = _Asking(settings, name, seed)
    target, miss_usd = target_of(settings.routing), settings.routing.miss_usd
    for record in rows:
        outcome = outcome_of(record)
        loss = outcome.loss_usd(target, miss_usd)
        candidates = _choices(record.decision)
        if loss is not None and len(candidates) > 1 and record.model in settings.models:
            decision = asking.decide(record, outcome, candidates)
            value = {
                "loss": loss,
                "usd": (outcome.cost_nusd or 0) / 1e9,
                "slo": float(outcome.met(target)),
            }[what]
            yield _logged(
                record, candidates, decision, asking.wanted(decision), value, what, miss_usd
            )
        asking.router.note(outcome)


def _choices(decision: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The backends that the log's policy weighed, by name."""
    found = decision.get("candidates")
    listed = found if isinstance(found, list) else []
    return {c["backend"]: c for c in listed if c.get("eligible") and c.get("chance") is not None}


class _Asking:
    """A router that is asked about rows; its clock is the row's, its view of loads the log's."""

    def __init__(self, settings: Settings, name: str, seed: int):
        self._now_s = 0.0
        self._static = name.removeprefix(STATIC) if name.startswith(STATIC) else ""
        policy: Any = "cheapest" if self._static else name
        routing = msgspec.structs.replace(settings.routing, policy=policy, shadow=None)
        asked = msgspec.structs.replace(settings, routing=routing)
        self._watch = Watch({}, 1.0)
        self._models = settings.models
        self.router: Router = router_of(
            asked,
            Circuits(lambda: self._now_s),
            self._watch,
            clock_s=lambda: self._now_s,
            seed=Random(seed).getrandbits(32),
            pacer=Pacer(settings.routing.budget_usd_per_h),
        )

    def decide(
        self, record: RequestRecord, outcome: Outcome, candidates: Mapping[str, Mapping[str, Any]]
    ) -> Decision:
        self._now_s = outcome.at_s
        for name, candidate in candidates.items():
            load = (candidate.get("predicted") or {}).get("load") or 0.0
            self._watch.seen[name] = Seen(load=Load(running=float(load)))
        model = self._models[record.model]
        common = model.upstream_name or record.model
        situation = Situation(
            record.model,
            record.session_id,
            record.workload,
            tuple(candidates),
            key_id=record.key_id,
            task=outcome.task,
            guess_tok=outcome.guess_tok,
            names={name: model.upstream_names.get(name, common) for name in candidates},
        )
        return self.router.decide(situation)

    def wanted(self, decision: Decision) -> dict[str, float]:
        if self._static:
            return {c.backend: float(c.backend == self._static) for c in decision.candidates}
        return {c.backend: c.chance or 0.0 for c in decision.candidates}


def _logged(
    record: RequestRecord,
    candidates: Mapping[str, Mapping[str, Any]],
    decision: Decision,
    wanted: dict[str, float],
    value: float,
    what: str,
    miss_usd: float,
) -> Logged:
    predicted = {c.backend: 0.0 for c in decision.candidates}
    for c in decision.candidates:
        found = c.predicted or {}
        met, usd = found.get("met") or 0.0, (found.get("cost_nusd") or 0.0) / 1e9
        predicted[c.backend] = {"loss": usd + miss_usd * (1 - met), "usd": usd, "slo": met}[what]
    first = record.decision.get("attempts")
    tried = first[0]["backend"] if isinstance(first, list) and first else record.backend
    chance = record.decision.get("propensity")
    predicted.setdefault(tried, 0.0)
    return Logged(
        session=record.session_id,
        chosen=tried,
        chance=float(chance) if isinstance(chance, int | float) else 1.0,
        loss=value,
        wanted=wanted,
        predicted=predicted,
        seen=frozenset(n for n, c in candidates.items() if c["chance"] > 0),
    )
