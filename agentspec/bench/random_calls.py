"""Calls of real tools by blind chance: any path through the mask must end in a valid call.

The harder test than a model: every token is drawn evenly from those that are legal, byte pieces and
all, the answer is cut anywhere, and the close-out guard shuts it. What comes out is read by the
format's parser and held against the tool's own schema.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from agentspec.toolcall.check import ArgumentsChecker
from agentspec.toolcall.choice import Function, OutputSpec
from agentspec.toolcall.format import load_format
from agentspec.toolcall.parser import CallDropped, CallEnd, Parser
from agentspec.wire.chat import FunctionDef, Tool
from agentspec.wire.errors import InvalidRequest

from . import report

COLUMNS = ["file", "tools", "calls", "valid", "refused", "torn", "redecoded"]
_CLOSING_TOKENS = 4096


def schemas(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, parameters) of each different tool in lines of ``{tool_name, schema}`` or of tasks."""
    opener = gzip.open if path.suffix == ".gz" else open
    seen: set[str] = set()
    with opener(path, "rt") as lines:
        for line in lines:
            held = json.loads(line)
            tools = [t["function"] for t in held["tools"]] if "tools" in held else [held]
            for tool in tools:
                name = (tool.get("name") or tool.get("tool_name") or "tool").replace(".", "_")
                schema = tool.get("parameters") or tool.get("schema")
                key = json.dumps([name, schema])
                if isinstance(schema, dict) and key not in seen:
                    seen.add(key)
                    yield name, schema


def walk(session: Any, token_bytes: Any, row: Any, pick: random.Random, steps: int) -> Any:
    """(text or None where it is torn, tokens decoded again). ``row``: [1, W] int32."""
    out: list[int] = []
    again = 0
    for _ in range(steps):
        if session.must_stop:
            break
        session.masks((), row)
        bits = np.unpackbits(row.numpy()[0].view(np.uint8), bitorder="little")
        token = int(pick.choice(np.flatnonzero(bits)))
        if not token_bytes[token]:
            break
        session.accept((token,))
        if session.viable():
            out.append(token)
        else:
            session.rollback(1)
            session.ban(token)
            again += 1
    closing = session.closing(_CLOSING_TOKENS)
    if closing is None:
        return None, again
    text = b"".join(token_bytes[token] for token in [*out, *closing])
    return text.decode("utf-8", "replace"), again


def run(paths: list[Path], walks: int, seed: int, most: int | None) -> dict[str, Any]:
    """The whole bench: ``walks`` calls of every tool of every file."""
    from agentspec.engine.build import constraints
    from agentspec.engine.model.fetch import fetch
    from agentspec.engine.tokenizer import Tokenizer
    from agentspec.settings import load

    settings = load(None).engine
    tokenizer = Tokenizer.load(fetch())
    factory = constraints(tokenizer, settings)
    rows = [_file(path, tokenizer, factory, walks, seed, most) for path in paths]
    return report.build(rows)


def _file(
    path: Path, tokenizer: Any, factory: Any, walks: int, seed: int, most: int | None
) -> dict[str, Any]:
    import torch

    row = {"file": path.name, **dict.fromkeys(COLUMNS[1:], 0)}
    mask = torch.zeros(1, (tokenizer.vocab_size + 31) // 32, dtype=torch.int32)
    fmt = load_format("smollm2")
    for count, (name, schema) in enumerate(schemas(path)):
        if count == most:
            break
        row["tools"] += 1
        function = Function(name, {**schema, "type": "object"}, "tools")
        spec = OutputSpec(format=fmt, calls="must", functions=(function,))
        try:
            compiled = factory.compile(spec)
        except InvalidRequest:
            row["refused"] += 1
            continue
        for i in range(walks):
            pick = random.Random(f"{seed}/{name}/{i}")
            text, again = walk(
                compiled.session(), tokenizer.token_bytes, mask, pick, pick.choice((0, 8, 40, 120))
            )
            row["calls"] += 1
            row["redecoded"] += again
            row["torn"] += text is None
            row["valid"] += text is not None and _valid(text, fmt, name, schema)
        if row["tools"] % 100 == 0:
            report.progress(f"{path.name}: {row['tools']} tools, {row['valid']} valid calls")
    return row


def _valid(text: str, fmt: Any, name: str, schema: dict[str, Any]) -> bool:
    checker = ArgumentsChecker([Tool(FunctionDef(name, None, schema))])
    parser = Parser(fmt)
    events = [*parser.feed(text), *parser.finish()]
    calls = [event for event in events if isinstance(event, CallEnd)]
    dropped = any(isinstance(event, CallDropped) for event in events)
    right = all(checker.check(call.name, call.arguments_text) is None for call in calls)
    return bool(calls) and not dropped and right
