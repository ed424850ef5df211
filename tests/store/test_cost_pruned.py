"""The cost report where rows are gone, or hold what no row should."""

from __future__ import annotations

import json
from fractions import Fraction

from sqlalchemy import Engine, delete, update
from sqlalchemy import insert as insert_

from agentspec.store.cost import Price
from agentspec.store.cost_json import as_json
from agentspec.store.cost_report import report
from agentspec.store.cost_text import lines
from agentspec.store.prices import add_version
from agentspec.store.rollup_schema import rollup_floor
from agentspec.store.schema import request
from tests.store.ledger import insert
from tests.store.test_cost_report import DAY, HOUR_MS, rows, settings


def test_after_pruning_the_report_says_what_only_rows_could_tell(engine: Engine, url: str):
    """Totals stay; each session's share is of the whole; what cannot be known is not told."""
    paid = rows(30, 2, backend="paid")
    for row in paid:
        row.cost_fresh_nusd, row.cost_cached_nusd, row.cost_out_nusd, row.cost_nusd = 1, 2, 4, 7
    mine = rows(60, 1)
    insert(url, [*mine, *paid])
    tiers = [Price(10**9, 0, None, 10**9), Price(10**10, 0, None, 10**10, above_tok=200_000)]
    with engine.begin() as connection:
        add_version(connection, "a", 0, {"big": tiers, "flat": tiers[:1]})

    def now() -> dict:
        with engine.connect() as connection:
            found = report(connection, settings(), DAY, at=["big", "flat"], by="session_id")
        told = json.loads(json.dumps(as_json(found)))
        return told | {"text": "\n".join(lines(found))}

    before = now()
    assert before["pruned"] is None and "pruned" not in before["text"]
    middle = DAY.since_ms + 12 * HOUR_MS
    with engine.begin() as connection:
        connection.execute(delete(request).where(request.c.ts_ms < middle))
        connection.execute(insert_(rollup_floor).values(what="request", since_ms=middle))
    after = now()
    gone = sum(r.ts_ms < middle for r in [*mine, *paid])
    assert 0 < gone == after["pruned"]["requests"] and after["pruned"]["before_ms"] == middle
    assert after["pruned"]["unread"] == [] and f"{gone} requests before" in after["text"]
    assert after["total_nusd"] == before["total_nusd"] and after["billed"] == before["billed"]
    old, new = before["pools"][0], after["pools"][0]
    for name in ("total_nusd", "busy", "usage", "per_million", "utilisation"):
        assert new[name] == old[name], name
    assert old["elsewhere"][0]["total_nusd"] is not None is new["elsewhere"][0]["total_nusd"]
    assert old["elsewhere"][1]["cost"] == new["elsewhere"][1]["cost"]
    *groups, rest = new["groups"]
    assert rest["group"] == "(pruned)" and rest["requests"] == sum(r.ts_ms < middle for r in mine)
    assert sum(g["busy"]["total_nusd"] for g in new["groups"]) == new["busy"]["total_nusd"]
    used = sum(r.busy_decode_us for r in mine)
    for group in groups:
        own = [r for r in mine if r.session_id == group["group"] and r.ts_ms >= middle]
        exact = Fraction(new["busy"]["decode_nusd"] * sum(r.busy_decode_us for r in own), used)
        assert abs(group["busy"]["decode_nusd"] - exact) < 1


def test_absurd_rows_of_old_do_not_stop_the_report(engine: Engine, url: str):
    """Rows that an earlier agentspec wrote as they came."""
    mine = rows(3, 1, backend="paid")
    for record, nusd in zip(mine, (None, 1, 1), strict=True):  # so rows are read, not their sums
        record.cost_nusd = nusd
    insert(url, mine)
    with engine.begin() as connection:
        connection.execute(update(request).values(out_tok=2**63 - 1))
        known = request.c.cost_nusd.is_not(None)
        connection.execute(update(request).where(known).values(cost_nusd=2**63 - 1))
    with engine.connect() as connection:
        (spend,) = report(connection, settings(), DAY, by="session_id").spends
    assert (spend.out_tok, spend.total_nusd) == (3 * 2**48, 2 * 2**48)
