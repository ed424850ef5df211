"""Decides where a request runs. Where there is one backend, at once; else by a policy.

leave out    what lacks something that the request needs, is not allowed, or is too small
put last     what cools down or is away: it is tried when all others have failed
one a fleet  of equal engines, the session's own (``fleet.py``)
predict      each of the rest (``estimate.py``), and let the policy rank them
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agentspec.backends.capabilities import Abilities
from agentspec.wire.errors import PermissionDenied

from .circuit import Circuits
from .decision import Candidate, Decision, Situation
from .estimate import Estimator, Work
from .fleet import member_for
from .outcome import Outcome
from .policy import Fixed, Option, Policy, Ranking
from .sessions import Sessions
from .taskclass import TaskClass
from .watch import Watch


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds whatever the policy says.

    abilities, fleets: of each backend (a fleet: only where it has one). sold: the vendors'.
    allow_keys, allow_kinds: the only backends for a key, for a kind of work.
    """

    abilities: Mapping[str, Abilities] = field(default_factory=dict)
    fleets: Mapping[str, str] = field(default_factory=dict)
    sold: frozenset[str] = frozenset()
    allow_keys: Mapping[str, frozenset[str]] = field(default_factory=dict)
    allow_kinds: Mapping[str, frozenset[str]] = field(default_factory=dict)


class Router:
    """Of one process. clock_s: seconds of the clock that outcomes' ``at_s`` are told in.

    in_flight: calls of this process that run, by backend (``Attempts`` counts them). predicts: it
    looks at predictions at all, so that there is a use in outcomes.
    """

    def __init__(
        self,
        policy: Policy,
        estimator: Estimator,
        sessions: Sessions,
        circuits: Circuits,
        *,
        clock_s: Callable[[], float],
        rules: Rules | None = None,
        watch: Watch | None = None,
        in_flight: Mapping[str, int] | None = None,
        shadow: Policy | None = None,
    ):
        self._policy = policy
        self._shadow = shadow
        self._estimator = estimator
        self._sessions = sessions
        self._circuits = circuits
        self._clock_s = clock_s
        self._rules = rules or Rules()
        self._watch = watch or Watch({}, 1.0)
        self._in_flight = in_flight or {}
        self.predicts = not isinstance(policy, Fixed) or shadow is not None

    def decide(self, situation: Situation) -> Decision:
        """Raises ``PermissionDenied`` where no backend of the model is allowed."""
        allowed, forbidden = self._allowed(situation)
        if len(allowed) == 1:
            return self._only(allowed[0], forbidden)
        able, unable = self._able(situation, allowed)
        fit, others = self._ready(situation, able or allowed)
        left_out = (*forbidden, *(unable if able else ()))
        if len(fit) <= 1 or not self.predicts:
            return self._in_order(fit, others, left_out)
        task = situation.task or TaskClass(situation.workload)
        loads = {name: self._watch.load(name, self._in_flight.get(name, 0)) for name in fit}
        chosen, spare = self._one_a_fleet(situation, fit, loads)
        options = self._options(situation, task, chosen, loads)
        turns = self._sessions.turns_to_come()
        ranking = self._policy.rank(options, turns)
        first = ranking.order[0]
        return Decision(
            policy=self._policy.name,
            order=(
                *(options[i].backend for i in ranking.order),
                *spare,
                *(c.backend for c in others),
            ),
            candidates=(
                *(_weighed(options[i], ranking, i, loads) for i in range(len(options))),
                *(Candidate(n, True, "its equal has this session") for n in spare),
                *others,
                *left_out,
            ),
            reason=_because(ranking, options[first]),
            propensity=ranking.chances[first],
            task=_told(task, situation),
            load=loads[options[first].backend],
            shadow=self._shadowed(options, turns),
        )

    def note(self, outcome: Outcome) -> None:
        """A request has ended; or, at the start, had ended before."""
        session = self._sessions.get(outcome.session) if outcome.session else None
        seen_tok = 0
        if session is not None:
            seen_tok = self._sessions.seen(session, outcome.backend, outcome.at_s)
        self._estimator.learn(outcome, seen_tok)
        self._sessions.note(outcome)

    # -- who may be asked

    def _allowed(self, situation: Situation) -> tuple[list[str], tuple[Candidate, ...]]:
        rules, found = self._rules, list(situation.backends)
        out: list[Candidate] = []
        for table, who, what in (
            (rules.allow_keys, situation.key_id, "API key"),
            (rules.allow_kinds, situation.workload, "kind of task"),
        ):
            allowed = table.get(who)
            if allowed is not None:
                out += [
                    Candidate(n, False, f"not allowed for this {what}")
                    for n in found
                    if n not in allowed
                ]
                found = [name for name in found if name in allowed]
        if not found:
            raise PermissionDenied(
                f"No backend of the model '{situation.model}' may be used for this request "
                f"({out[-1].reason}).",
                param="model",
                code="no_backend_allowed",
            )
        return found, tuple(out)

    def _able(
        self, situation: Situation, names: list[str]
    ) -> tuple[list[str], tuple[Candidate, ...]]:
        """Those that can do what is needed. Where none can, the first one's own error is best."""
        able, unable = [], []
        for name in names:
            abilities = self._rules.abilities.get(name, _ANY)
            lacking = abilities.lacks(situation.needs)
            if lacking:
                words = ", ".join(sorted(lacking))
                unable.append(Candidate(name, False, f"cannot do what is asked for ({words})"))
            else:
                able.append(name)
        return able, tuple(unable)

    def window(self, name: str, model: str) -> int | None:
        """A backend's window: of the settings, else as it tells it."""
        abilities = self._rules.abilities.get(name, _ANY)
        return abilities.context_tokens or self._watch.window(name, model)

    def _ready(
        self, situation: Situation, names: list[str]
    ) -> tuple[list[str], tuple[Candidate, ...]]:
        """Those to be asked now, and those to be asked only when they have failed."""
        fit, others = [], []
        session = self._sessions.get(situation.session_id)
        in_tok = situation.guess_tok * (session.scale if session is not None else 1.0)
        for name in names:
            window = self.window(name, situation.names.get(name, situation.model))
            if not self._circuits.ready(name):
                others.append(Candidate(name, False, self._circuits.why(name)))
            elif not self._watch.healthy(name):
                others.append(Candidate(name, False, "it is away"))
            elif window is not None and session is not None and in_tok > window:
                others.append(Candidate(name, False, f"its window is too small ({window} tokens)"))
            else:
                fit.append(name)
        return fit, tuple(others)

    def _one_a_fleet(
        self, situation: Situation, fit: list[str], loads: Mapping[str, float]
    ) -> tuple[list[str], list[str]]:
        """The engines to weigh, and their equals, which follow."""
        groups: dict[str, list[str]] = {}
        for name in fit:
            groups.setdefault(self._rules.fleets.get(name, f"={name}"), []).append(name)
        home = self._sessions.home(situation.session_id, self._clock_s())
        chosen: list[str] = []
        for members in groups.values():
            if len(members) == 1:
                chosen += members
                continue
            first = member_for(situation.session_id, members, loads)
            if home in members and loads[home] <= loads[first]:
                first = home
            chosen.append(first)
        return chosen, [name for name in fit if name not in chosen]

    # -- what they are worth

    def _options(
        self,
        situation: Situation,
        task: TaskClass,
        names: list[str],
        loads: Mapping[str, float],
    ) -> list[Option]:
        now_s = self._clock_s()
        session = self._sessions.get(situation.session_id)
        in_tok = max(situation.guess_tok * (session.scale if session else 1.0), 1.0)
        most = math.inf if situation.most_out_tok is None else float(situation.most_out_tok)
        home = self._sessions.home(situation.session_id, now_s)
        options = []
        for name in names:
            model = situation.names.get(name, situation.model)
            seen = self._sessions.seen(session, name, now_s) if session is not None else 0
            work = Work(task, in_tok, 0.0, loads[name], most, model)
            now, later = self._estimator.outlook(name, work, seen)
            options.append(Option(name, now, later, name == home, name in self._rules.sold))
        return options

    def _shadowed(self, options: list[Option], turns: float) -> dict[str, object] | None:
        if self._shadow is None:
            return None
        ranking = self._shadow.rank(options, turns)
        first = ranking.order[0]
        return {
            "policy": self._shadow.name,
            "chosen": options[first].backend,
            "propensity": round(ranking.chances[first], 6),
        }

    # -- without predictions

    def _only(self, name: str, forbidden: tuple[Candidate, ...]) -> Decision:
        """Nothing to choose. A circuit is no matter: there is nobody else to ask."""
        candidates = (Candidate(name, True, "available"), *forbidden)
        return Decision(self._policy.name, (name,), candidates, "the only backend")

    def _in_order(
        self, fit: list[str], others: tuple[Candidate, ...], left_out: tuple[Candidate, ...]
    ) -> Decision:
        candidates = (*(Candidate(n, True, "available") for n in fit), *others, *left_out)
        order = (*fit, *(c.backend for c in others))
        if not fit:
            reason = "first in the configured order; none is available now"
        elif others or left_out:
            reason = "first in the configured order of those available"
        else:
            reason = "first in the configured order"
        return Decision(self._policy.name, order, candidates, reason)


_ANY = Abilities()


def _weighed(option: Option, ranking: Ranking, index: int, loads: Mapping[str, float]) -> Candidate:
    now = option.now
    predicted: dict[str, float | None] = {
        "ttft_ms": round(now.ttft_s * 1000, 1),
        "tpot_ms": round(now.token_s * 1000, 3),
        "out_tok": round(now.out_tok, 1),
        "cached_tok": round(now.cached_tok),
        "cost_nusd": None if now.cost_nusd is None else round(now.cost_nusd),
        "met": round(now.met, 4),
        "accepted_length": round(now.accepted_length, 3),
        "doubt": round(now.doubt, 3),
        "load": loads[option.backend],
    }
    score = ranking.scores[index]
    return Candidate(
        option.backend,
        True,
        "the session's text is there" if option.home else "available",
        round(score, 8) if math.isfinite(score) else None,
        round(ranking.chances[index], 6),
        predicted,
    )


def _because(ranking: Ranking, first: Option) -> str:
    return f"{ranking.reason}{', where the text of the session is' if first.home else ''}"


def _told(task: TaskClass, situation: Situation) -> dict[str, object]:
    return {
        "kind": task.kind,
        "client": task.client,
        "schema": task.schema,
        "guess_tok": situation.guess_tok,
    }
