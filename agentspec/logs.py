"""Logs of every process: lines for people, or JSON for machines. Leaf module: imports no room."""

from __future__ import annotations

import json
import logging
import time

from .tracing import current

FORMATS = ("text", "json")
REQUESTS = "agentspec.requests"
"""The logger that has a line for each finished request."""
JSON_LINE = b'{"ts": "'
"""How each line of ``JsonLines`` begins."""
_TALKATIVE = ("alembic", "uvicorn.error")


class JsonLines(logging.Formatter):
    """One JSON object a line: ts (UTC), level, logger, message; trace_id and span_id inside a
    request; error (a traceback); and what the caller gave as ``extra={"fields": {...}}``."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "ts": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
        }
        trace = current.get()
        if trace is not None:
            line |= {"trace_id": trace.trace_id, "span_id": trace.span_id}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line | getattr(record, "fields", {}), default=str)


def configure(level: str, form: str) -> None:
    """Set up the root logger of this process, on stderr.

    level: "debug" to "error"; form: one of ``FORMATS``. As text at "info" there is no line for each
    request.
    """
    handler = logging.StreamHandler()
    text = logging.Formatter("%(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if form == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if level == "info":
        quiet = _TALKATIVE if form == "json" else (*_TALKATIVE, REQUESTS)
        for name in quiet:
            logging.getLogger(name).setLevel(logging.WARNING)
