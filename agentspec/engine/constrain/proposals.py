"""Whole answers that may meet a spec, spelled canonically: tried before any search for one."""

from __future__ import annotations

import json
from collections.abc import Iterator

from agentspec.toolcall.choice import OutputSpec

from .instances import instances


def example_texts(spec: OutputSpec) -> Iterator[bytes]:
    """Texts from the grammar's start: an answer's value, or one call."""
    if spec.answer is not None:
        yield from (_spelled(value) for value in instances(spec.answer.schema, most=12))
        return
    fmt = spec.format
    opening = "" if spec.calls == "may" else fmt.open
    for function in spec.functions:
        for value in instances(function.parameters, most=6):
            text = _spelled(value).decode()
            render = getattr(fmt, "render_arguments", None)
            arguments = text if render is None else render(text)
            call = fmt.head(function.name) + arguments + fmt.tail
            yield (opening + fmt.list_open + call + fmt.list_close + fmt.close).encode()


def _spelled(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
