"""What the same requests would have cost at a price of a commercial model.

The tokens are those that were counted here. Another model has another tokenizer and writes other
answers, so its bill for the same work would differ: ``tokenizer_differs`` says where that is so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, and_, select

from .book import names
from .cost import UNKNOWN, Cost, Price, cost
from .prices import Dated, PriceError, dated
from .schema import request
from .usage import pruned, usage
from .window import Window


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """A bill of requests at one price version. saved: that bill less the cost it is compared with;
    negative where the vendor would have been cheaper; None where the bill is unknown."""

    model: str
    version_id: int
    source: str
    valid_from_ms: int
    cost: Cost
    tokenizer_differs: bool
    compared_nusd: int

    @property
    def saved_nusd(self) -> int | None:
        total = self.cost.total_nusd
        return None if total is None else total - self.compared_nusd


def chosen(connection: Connection, wanted: str, ts_ms: int) -> list[Dated]:
    """The prices (one a tier of prompt length) of ``MODEL`` that hold at a time, or those of
    ``MODEL@VERSION``. Raises ``PriceError`` where there are none."""
    model, _, version = wanted.rpartition("@") if "@" in wanted else (wanted, "", "")
    if version and not version.isdigit():
        raise PriceError(f"'{wanted}' should end in the number of a version, like '{model}@1'")
    found = dated(connection, models=names(model))
    if version:
        found = [one for one in found if one.version_id == int(version)]
    else:
        found = [one for one in found if one.valid_from_ms <= ts_ms]
    for name in names(model):
        held = [one for one in found if one.model == name]
        if held:
            return [one for one in held if one.version_id == held[-1].version_id]
    raise PriceError(f"no price of '{wanted}' is known; 'agentspec prices show' lists them")


def counterfactual(
    connection: Connection,
    window: Window,
    backend: str,
    tiers: Sequence[Dated],
    compared_nusd: int,
) -> Counterfactual:
    """The bill of a backend's requests of a window at a price (from ``chosen``). Each kind of each
    tier is rounded once, over the sum of its tokens."""
    first = tiers[0]
    parts = []
    limits = [tier.price.above_tok or -1 for tier in tiers]
    for tier, above, below in zip(tiers, limits, [*limits[1:], None], strict=True):
        tokens = request.c.in_tok
        fits = None  # all of them, which the rollups can tell
        if len(tiers) > 1:
            fits = and_(tokens > above, *(() if below is None else (tokens <= below,)))
        parts.append(_priced(connection, window, backend, tier.price, fits))
    return Counterfactual(
        model=first.model,
        version_id=first.version_id,
        source=first.source,
        valid_from_ms=first.valid_from_ms,
        cost=Cost(
            *(
                None if None in kinds else sum(kinds)
                for kinds in zip(
                    *((c.fresh_nusd, c.cached_nusd, c.out_nusd) for c in parts), strict=True
                )
            )
        ),
        tokenizer_differs=_differs(connection, window, backend, first.model),
        compared_nusd=compared_nusd,
    )


def _priced(
    connection: Connection,
    window: Window,
    backend: str,
    price: Price,
    fits: ColumnElement[bool] | None,
) -> Cost:
    if fits is not None and pruned(connection, window) is not None:
        return UNKNOWN  # only rows know their length
    (sums,) = usage(connection, window, backend, more=fits)
    return cost(
        price,
        in_tok=sums.in_tok,
        cached_tok=sums.cached_tok,
        out_tok=sums.out_tok,
        reason_tok=sums.reason_tok,
    )


def _differs(connection: Connection, window: Window, backend: str, model: str) -> bool:
    """Whether any request was counted by the tokenizer of a model of another name."""
    query = (
        select(request.c.upstream_model)
        .where(window.rows(), request.c.backend == backend)
        .where(request.c.in_tok + request.c.out_tok > 0)
        .distinct()
    )
    short = names(model)[-1].lower()
    return any(names(name)[-1].lower() != short for name in connection.execute(query).scalars())
