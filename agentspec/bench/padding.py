"""Prompts brought to a wanted length: earlier turns of their own kind, made of real text.

Legend of the workloads: a chat was about the manual before, code and edits follow files that were
shown, tool calls follow calls that read files. A prompt that is too long loses its oldest text.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

from . import filler

Body = dict[str, Any]
Count = Callable[[Body], int]
"""Prompt tokens of a request body."""
_PIECE_CHARS = 6_000


def fitted(body: Body, workload: str, count: Count, tokens: int, seed: int = 0) -> Body:
    """``body`` with as many more turns as fit in ``tokens``, or with as many old ones fewer.

    Tools and system messages are kept whole, so it may stay longer. ``body`` is not changed.
    """
    if count(body) > tokens:
        return _shortened(body, count, tokens)
    turns: list[Body] = []
    for title, text in _pieces(workload, seed):
        longer = [*turns, *_turns(workload, title, text)]
        if count(_with(body, longer)) <= tokens:
            turns = longer
            continue

        def length(chars: int, title=title, text=text, turns=turns) -> int:
            return count(_with(body, [*turns, *_turns(workload, title, text[:chars])]))

        fits = bisect_right(range(len(text)), tokens, key=length) - 1
        return _with(body, [*turns, *_turns(workload, title, text[:fits])] if fits > 0 else turns)
    return _with(body, turns)


def _pieces(workload: str, seed: int) -> Iterator[filler.Document]:
    documents = filler.manual(seed) if workload == "chat" else filler.sources(seed)
    for title, text in documents:
        yield filler.Document(title, text[:_PIECE_CHARS])


def _turns(workload: str, title: str, text: str) -> list[Body]:
    if workload == "chat":
        return [
            {"role": "user", "content": f"What does the manual say about {title}?"},
            {"role": "assistant", "content": text},
        ]
    read = {"role": "assistant", "content": "I have read it."}
    if workload == "tool":
        call = {"name": "read_file", "arguments": json.dumps({"path": title})}
        return [
            {"role": "user", "content": f"Read {title}."},
            {
                "role": "assistant",
                "tool_calls": [{"id": title, "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": title, "content": text},
            read,
        ]
    return [{"role": "user", "content": f"This is {title}:\n\n```python\n{text}\n```"}, read]


def _with(body: Body, turns: list[Body]) -> Body:
    """``turns`` after the leading system messages."""
    messages = body["messages"]
    first = next((i for i, m in enumerate(messages) if m["role"] != "system"), len(messages))
    return body | {"messages": [*messages[:first], *turns, *messages[first:]]}


def _shortened(body: Body, count: Count, tokens: int) -> Body:
    """Without its oldest turns; where the last one alone is too long, without its beginning."""
    system = [m for m in body["messages"] if m["role"] == "system"]
    others = [m for m in body["messages"] if m["role"] != "system"]
    while len(others) > 1 and count(body | {"messages": [*system, *others]}) > tokens:
        others = others[1:]
    last, text = others[-1], str(others[-1].get("content") or "")

    def length(kept: int) -> int:
        short = last | {"content": text[len(text) - kept :]}
        return count(body | {"messages": [*system, *others[:-1], short]})

    kept = bisect_right(range(1, len(text) + 1), tokens, key=length)
    if kept == len(text) or "tools" in body:
        return body | {"messages": [*system, *others]}
    short = last | {"content": text[len(text) - max(kept, 1) :]}
    return body | {"messages": [*system, *others[:-1], short]}
