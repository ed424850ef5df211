"""The page of published figures: as committed, settled by arithmetic, judged by documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentspec.bench.compare import judges
from agentspec.bench.compare.claims import CANNOT, CLAIMS, NOT, NOT_YET, REPRODUCED
from agentspec.bench.compare.claims_page import judged, page
from agentspec.bench.compare.published import means
from tests.house.source import ROOT

PAGE = ROOT / "docs/claims.md"


def test_the_page_is_the_table():
    measured = PAGE.with_suffix(".json")
    document = json.loads(measured.read_text()) if measured.exists() else None
    assert PAGE.read_text() == page(document)


def test_without_a_measurement_nothing_is_reproduced():
    verdicts = {one.claim.name: one.verdict for one in judged(None)}
    assert len(verdicts) == len(CLAIMS)
    assert set(verdicts.values()) == {NOT_YET, NOT, CANNOT}
    assert all(v == NOT_YET for c in CLAIMS if not c.settled for v in [verdicts[c.name]])


def test_dollars_by_hand():
    """8 * $2.50 = $20 an hour; a million tokens at 100 a second take 10,000 / 3600 hours."""
    assert "cost $55.56" in judges.dollars(100, 1.0)
    told = {one.claim.name: one.ours for one in judged(None)}
    assert "$61.73" in told["$0.96 per million output tokens"]
    assert "$14.51" in told["$0.257 per million output tokens"]


def test_the_paper_s_means_by_hand():
    """Qwen3-4B, summed by hand: 32.50, 36.58 and 42.54 over nine sets."""
    assert means()["Qwen3-4B"] == pytest.approx((32.50 / 9, 36.58 / 9, 42.54 / 9))
    ratios = {model: dspark / eagle3 for model, (eagle3, _, dspark) in means().items()}
    assert {m: round(r, 3) for m, r in ratios.items()} == {
        **{"Qwen3-4B": 1.309, "Qwen3-8B": 1.267, "Qwen3-14B": 1.3, "Gemma4-12B": 1.066}
    }


def row(method: str, workload: str, **more: Any) -> dict[str, Any]:
    found = {"method": method, "workload": workload, "schedule": "k7", "temperature": 0.0, "n": 8}
    found |= {"masked": False, "acceptance": 0.9, "speedup": 2.0, "speedup_ci95": [1.9, 2.1]}
    found |= {"by_position": [{"position": 1, "rounds": 90, "given_before": 0.9}], "widths": {}}
    return found | {"threshold_sweep": [], "calibration_error": {}} | more


def pair(a: str, b: str, value: float, low: float, high: float) -> dict[str, Any]:
    return {"workload": "code", "temperature": 1.0, "schedule": "k7", "a": a, "b": b, "n": 8} | {
        "accepted_length_ratio": value,
        "accepted_length_ci95": [low, high],
    }


def holds(judge: judges.Judge, *rows: dict[str, Any], pairs: Any = ()) -> bool | None:
    found = judge({"results": rows, "pairs": pairs})
    return None if found is None else found.holds


def test_a_ratio_is_judged_either_way_round():
    judge = judges.over("dspark", "eagle3", 1.267, 1.309)
    assert holds(judge, pairs=[pair("dspark", "eagle3", 1.25, 1.2, 1.28)]) is True
    assert holds(judge, pairs=[pair("eagle3", "dspark", 0.8, 0.78, 0.82)]) is True
    assert holds(judge, pairs=[pair("dspark", "eagle3", 1.1, 1.0, 1.2)]) is False
    assert holds(judge, pairs=[pair("dspark", "eagle3", 1.5, 1.4, 1.6)]) is False
    assert holds(judge, pairs=[pair("dspark", "dflash", 1.28, 1.2, 1.3)]) is None


def test_few_prompts_judge_nothing():
    few = pair("dspark", "eagle3", 1.28, 1.2, 1.3) | {"n": 7}
    assert holds(judges.over("dspark", "eagle3", 1.267, 1.309), pairs=[few]) is None
    assert holds(judges.share("dspark", "tool", 0.8, 1.0), row("dspark", "tool", n=7)) is None
    slow = row("x", "chat", acceptance=0.3, speedup=0.8, n=7)
    assert holds(judges.costs_below_half(), slow) is None


def positions(first: float, last: float, rounds: int = 50) -> list[dict[str, Any]]:
    rates = enumerate((first, last), 1)
    return [{"position": k, "rounds": rounds, "given_before": r} for k, r in rates]


def test_decay_needs_enough_rounds():
    judge = judges.falls("dflash")
    assert holds(judge, row("dflash", "code", by_position=positions(0.9, 0.7))) is True
    assert holds(judge, row("dflash", "code", by_position=positions(0.7, 0.9))) is False
    assert holds(judge, row("dflash", "code", by_position=positions(0.9, 0.7, 10))) is None
    assert holds(judges.rises("e", "chat"), row("e", "chat", by_position=positions(0.5, 0.7)))


def test_shares_are_of_fixed_schedules_and_masked_drafts():
    judge = judges.share("dspark", "tool", 0.85, 0.92)
    assert holds(judge, row("dspark", "tool")) is True
    assert holds(judge, row("dspark", "tool", acceptance=0.97)) is False
    assert holds(judge, row("dspark", "tool", schedule="adaptive")) is None
    masked = row("dspark", "tool", masked=True, acceptance=0.5)
    assert holds(judge, row("dspark", "tool"), masked) is False


def test_other_judges():
    assert holds(judges.capped("eagle3", 2.0, 3.0), row("eagle3", "chat")) is True
    assert holds(judges.capped("eagle3", 2.0, 3.0), row("eagle3", "chat", speedup=0.5)) is False
    assert holds(judges.reaches("dflash", 6.0), row("dflash", "chat")) is False
    slow = row("x", "chat", acceptance=0.3, speedup=0.8)
    assert holds(judges.costs_below_half(), row("x", "chat"), slow) is True
    fast = row("x", "code", acceptance=0.3, speedup=1.2)
    assert holds(judges.costs_below_half(), slow, fast) is False
    assert holds(judges.calibrated("d"), row("d", "chat", calibration_error={"1": 0.01})) is True
    swept = [{"threshold": 0.0, "share": 0.5}, {"threshold": 0.8, "share": 0.95}]
    assert holds(judges.sweeps("d"), row("d", "chat", threshold_sweep=swept)) is True
    edits = row("all", "edit", schedule="adaptive", widths={"0": 3, "11": 2})
    chat = row("all", "chat", schedule="adaptive", widths={"0": 9, "4": 2})
    assert holds(judges.windows("all"), edits, chat) is True
    assert holds(judges.windows("all"), chat) is None


def test_a_document_changes_a_verdict():
    document = {"results": [row("dspark", "tool")], "pairs": [], "commit": "c", "command": "x"}
    document["machine"] = {"cpu": "cpu", "cores": 2, "load_1m": 0.1}
    verdicts = {one.claim.name: one.verdict for one in judged(document)}
    assert verdicts["Acceptance on boilerplate and API code"] == REPRODUCED
    assert verdicts["Acceptance on novel text"] == NOT_YET
    assert "Measured by `x`" in page(document)


def test_the_command_writes_the_page(tmp_path: Path):
    from agentspec import cli

    out = tmp_path / "claims.md"
    assert cli.main(["compare", "--claims", str(out)]) == 0
    assert out.read_text() == page(None)
