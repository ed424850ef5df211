"""Policies and the router from the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from agentspec.backends.base import Backend
from agentspec.backends.capabilities import abilities
from agentspec.settings import Settings
from agentspec.settings_routing import RoutingSettings

from .circuit import Circuits
from .estimate import Estimator, Tariff
from .learned import Learned, Pacer
from .outcome import Target
from .policy import Cheapest, Fastest, Fixed, Policy, Slo
from .router import Router, Rules
from .sessions import Sessions
from .watch import Watch


def policy_of(name: str, settings: RoutingSettings, pacer: Pacer, seed: int) -> Policy:
    """A policy by its name in the settings."""
    if name == "learned":
        draw = Random(seed).random
        return Learned(settings.exploration, settings.miss_usd, pacer, draw)
    if name == "slo":
        return Slo(settings.target_share)
    return {"fixed": Fixed, "cheapest": Cheapest, "fastest": Fastest}[name]()


def target_of(settings: RoutingSettings) -> Target:
    return Target(settings.ttft_ms / 1000, settings.tpot_ms / 1000)


def rules_of(settings: Settings) -> Rules:
    """What the settings say of backends and of who may use them."""
    return Rules(
        abilities={name: abilities(b) for name, b in settings.backends.items()},
        fleets={name: b.fleet for name, b in settings.backends.items() if b.fleet},
        sold=settings.vendors,
        allow_keys={k: frozenset(names) for k, names in settings.routing.allow_keys.items()},
        allow_kinds={k: frozenset(names) for k, names in settings.routing.allow_kinds.items()},
    )


def watch_of(settings: Settings, backends: Mapping[str, Backend]) -> Watch:
    """Of all backends that some model has a choice between."""
    chosen = {n for m in settings.models.values() if len(m.backends) > 1 for n in m.backends}
    return Watch({n: b for n, b in backends.items() if n in chosen}, settings.routing.poll_s)


def router_of(
    settings: Settings,
    circuits: Circuits,
    watch: Watch,
    *,
    clock_s: Callable[[], float],
    seed: int,
    pacer: Pacer,
    tariff: Callable[[str, str, float], Tariff | None] = lambda *_: None,
    in_flight: Mapping[str, int] | None = None,
) -> Router:
    """clock_s: of outcomes' ``at_s``. seed: of the draws of policies that explore."""
    wanted, rules = settings.routing, rules_of(settings)
    estimator = Estimator(
        wanted.half_life, target_of(wanted), tariff=tariff, fleets=rules.fleets, sold=rules.sold
    )
    shadow = None
    if wanted.shadow is not None:
        shadow = policy_of(wanted.shadow, wanted, pacer, seed + 1)
    return Router(
        policy_of(wanted.policy, wanted, pacer, seed),
        estimator,
        Sessions(wanted.cache_s),
        circuits,
        clock_s=clock_s,
        rules=rules,
        watch=watch,
        in_flight=in_flight,
        shadow=shadow,
    )
