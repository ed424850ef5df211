"""Published figures, and how each is judged by a comparison's document (``agentspec compare``).

Sources are as read in November 2026. What was published is rounded as it was published. "The two
articles" are those that this project started from; their figures stand in issue 9, their texts are
not at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import judges
from .judges import Found

REPRODUCED, NOT = "reproduced", "not reproduced"
CANNOT, NOT_YET = "can't be tested here", "not yet measured"
Document = dict[str, Any]
_PAPER = "DSpark paper (arXiv 2607.05147)"
_ARTICLES = "the two articles"
_RULE = "agentspec compare --temperature 1 --sampling free --schedule k7"


@dataclass(frozen=True, slots=True)
class Claim:
    """One published figure.

    test: what would reproduce it here, or why nothing can. judge: what a document says; None where
    it says nothing. settled: (verdict, why) where arithmetic alone, or what can't be had, decides.
    """

    name: str
    figure: str
    source: str
    test: str
    judge: Callable[[Document], Found | None] | None = None
    settled: tuple[str, str] | None = None


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "DSpark over EAGLE-3",
        "accepted length +26.7 to +30.9 % (Qwen3-4B, 8B, 14B)",
        f"{_PAPER}, table 1",
        f"`{_RULE}`, drafts of equal budget; reproduced where our interval reaches the range",
        judges.over("dspark", "eagle3", 1.267, 1.309),
    ),
    Claim(
        "DSpark over DFlash",
        "accepted length +16.3 to +18.4 % (the same models)",
        f"{_PAPER}, table 1",
        "the same run",
        judges.over("dspark", "dflash", 1.163, 1.184),
    ),
    Claim(
        "Both for every model",
        "the two rows above, of table 1's four models",
        f"{_PAPER}, table 1, averaged over its nine sets",
        "arithmetic on the published table",
        settled=(NOT, judges.published_means()),
    ),
    Claim(
        "Decay by position: DFlash",
        "acceptance, all before given, falls: code .87 to .78, chat .72 to .63",
        f"{_PAPER}, figure on Qwen3-4B",
        "`dflash` under `k7`: the last place below the first, code and chat",
        judges.falls("dflash"),
    ),
    Claim(
        "Decay by position: EAGLE-3",
        "rises on chat: .53 to .74",
        f"{_PAPER}, the same figure",
        "`eagle3` under `k7`: the last place above the first, chat",
        judges.rises("eagle3", "chat"),
    ),
    Claim(
        "Depth",
        "two DSpark layers are above five DFlash layers",
        f"{_PAPER}, section 4.3",
        "`--drafts dspark-2=...,dflash-5=...`, drafts of equal budget",
        judges.over("dspark-2", "dflash-5", 1.0, None),
    ),
    Claim(
        "Threshold sweep",
        "share of verified drafts that stand, threshold 0 to about .8: code 67.6 to 92.0 %, chat "
        "45.7 to 95.7 %",
        f"{_PAPER}, section 4",
        "`dspark` under `k7`: reproduced where the share at .8 is above .9",
        judges.sweeps("dspark"),
    ),
    Claim(
        "Calibration",
        "error at places 1, 3, 5, 7: 5.7, 8.2, 5.8, 3.3 % before, 2.0, 1.7, 0.8, 0.4 % after",
        f"{_PAPER}, section 3.2.1 (Qwen3-4B, Alpaca)",
        "`agentspec draft calibrate` prints both; of a document the error as served: reproduced "
        "where every place is below 2 %",
        judges.calibrated("dspark"),
    ),
    Claim(
        "Suffix drafts on edits",
        "SWE-bench 1.8 to 4.5 times from end to end; up to 5.3 times on agentic SQL",
        "SuffixDecoding (arXiv 2411.04975) and its authors' blog",
        "`suffix` on `edit-replay` (decode only, without reading the prompt): reproduced at 1.8",
        judges.speeds("suffix", "edit-replay", 1.8, None),
    ),
    Claim(
        "N-gram drafts on edits",
        "accepted length 2.96 over all steps (4.59 where it fires)",
        "vllm-project/vllm PR 24344 (edit_5k)",
        "`ngram` on `edit-replay`: reproduced at 2.96 or more",
        judges.accepts("ngram", "edit-replay", 2.96, None),
    ),
    Claim(
        "Acceptance on boilerplate and API code",
        "85 to 92 % of drafted tokens",
        _ARTICLES,
        "share accepted of `dspark` under `k7`, workload `tool`",
        judges.share("dspark", "tool", 0.85, 0.92),
    ),
    Claim(
        "Acceptance on application code",
        "78 to 85 %",
        _ARTICLES,
        "the same, workload `code`",
        judges.share("dspark", "code", 0.78, 0.85),
    ),
    Claim(
        "Acceptance on novel text",
        "65 to 78 %",
        _ARTICLES,
        "the same, workload `chat`",
        judges.share("dspark", "chat", 0.65, 0.78),
    ),
    Claim(
        "Windows",
        "to 12 tokens when confident, 3 to 5 when not",
        _ARTICLES,
        "widths of `all` under `adaptive`: rounds of 10 to 12 on edits, a median of 3 to 5 on chat",
        judges.windows("all"),
    ),
    Claim(
        "383 against 90 tokens a second",
        "4 times (383 / 90 is 4.26), named for Llama 3.1 70B",
        f"{_ARTICLES}; SGLang's blog of 2026-07-06 has 383.7 for DeepSeek-V4-Pro",
        "eight B300 and that model",
        settled=(
            CANNOT,
            "no such machine. What SGLang published under that figure is another model "
            "(DeepSeek-V4-Pro, 8xB300, one stream, accepted length about 5), and no plain figure "
            "of 90 beside it is known here",
        ),
    ),
    Claim(
        "EAGLE-3 capped",
        "near 2 to 3 times",
        _ARTICLES,
        "best speed-up of `eagle3` over all workloads: reproduced where it is 2 to 3",
        judges.capped("eagle3", 2.0, 3.0),
    ),
    Claim(
        "DFlash over 6 times",
        "6.17 times (Qwen3-8B, its own backend)",
        "DFlash (arXiv 2602.06036)",
        "`--target` a Qwen3-8B on a GPU; of the embedded model a document tells its best speed-up",
        judges.reaches("dflash", 6.0),
    ),
    Claim(
        "JetSpec 9.64 times",
        "MATH-500, T = 0, tree of 256 (Qwen3-8B)",
        "JetSpec (arXiv 2606.18394)",
        "that model, its draft, MATH-500 and a GPU",
        settled=(
            CANNOT,
            "a tree of 256 pays only where a pass of 256 rows costs about as much as one of 1, "
            "as on a large GPU; on a CPU each row is work",
        ),
    ),
    Claim(
        "Acceptance under 0.5 costs latency",
        "speculation is slower than none below half accepted",
        _ARTICLES,
        "rows under `k7` with less than half accepted: reproduced where all are below 1.0",
        judges.costs_below_half(),
    ),
    Claim(
        "Slower when saturated",
        "1.4 to 1.8 times",
        _ARTICLES,
        "`agentspec bench load --modes off,k5,adaptive` (one engine under rising load), not a "
        "comparison of one stream",
    ),
    Claim(
        "$0.96 per million output tokens",
        "90 tokens a second on 8 GPUs at $2.50 an hour",
        _ARTICLES,
        "arithmetic (docs/cost.md)",
        settled=(NOT, judges.dollars(90, 0.96)),
    ),
    Claim(
        "$0.257 per million output tokens",
        "383 tokens a second on the same",
        _ARTICLES,
        "arithmetic (docs/cost.md)",
        settled=(NOT, judges.dollars(383, 0.257)),
    ),
)
