"""The ``agentspec`` object on the answers of clients that sent one themselves."""

from __future__ import annotations

from typing import Any

from msgspec import UnsetType

from agentspec.wire.chat import ChatRequest
from agentspec.wire.extension import SpecReport


def report_field(request: ChatRequest, report: SpecReport | UnsetType | None) -> dict[str, Any]:
    """``{"agentspec": report}``, or nothing."""
    if request.agentspec is None or not isinstance(report, SpecReport):
        return {}
    return {"agentspec": report}
