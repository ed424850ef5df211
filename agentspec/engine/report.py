"""What a finished request tells about itself: OpenAI's ``usage`` and our ``agentspec`` report.

A request with ``n`` choices is one report: its choices' counts summed, its prompt counted once.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from itertools import zip_longest

from agentspec.wire.chat import CompletionTokensDetails, PromptTokensDetails, Usage
from agentspec.wire.extension import BusyTime, SourceCount, SpecReport


def merged(reports: Seq[SpecReport]) -> SpecReport:
    """One report over all sequences of a request: counts and busy time add up.

    ``queue_us`` is the longest wait; ``exact`` holds when it holds for every sequence.
    """
    sources: dict[str, SourceCount] = {}
    for report in reports:
        for name, count in report.sources.items():
            old = sources.get(name, SourceCount())
            sources[name] = SourceCount(old.drafted + count.drafted, old.accepted + count.accepted)
    return SpecReport(
        sources=sources,
        steps=sum(report.steps for report in reports),
        hist=[sum(row) for row in zip_longest(*(r.hist for r in reports), fillvalue=0)],
        busy_us=BusyTime(
            prefill=sum(report.busy_us.prefill for report in reports),
            decode=sum(report.busy_us.decode for report in reports),
            draft=sum(report.busy_us.draft for report in reports),
            grammar=sum(report.busy_us.grammar for report in reports),
        ),
        queue_us=max((report.queue_us for report in reports), default=0),
        exact=bool(reports) and all(report.exact for report in reports),
        grammar_cold=reports[0].grammar_cold if reports else None,
        redecoded=sum(report.redecoded for report in reports),
        window=_window({report.window for report in reports}),
    )


def _window(windows: set[str | None]) -> str | None:
    return windows.pop() if len(windows) == 1 else "mixed" if windows else None


def usage(
    *, prompt_tokens: int, cached_tokens: int, output_tokens: int, report: SpecReport | None = None
) -> Usage:
    """OpenAI's token counts. Prediction tokens are drafted ones, never grammar-forced ones.

    report: None while the request runs; the counts then hold no prediction tokens.
    """
    usage = Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=output_tokens,
        total_tokens=prompt_tokens + output_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=cached_tokens),
    )
    if report is not None:
        drafted, accepted = report.totals()
        usage.completion_tokens_details = CompletionTokensDetails(
            accepted_prediction_tokens=accepted,
            rejected_prediction_tokens=drafted - accepted,
        )
    return usage
