"""What OpenAI's servers ran in an earlier turn, and what a computer showed: calls and results to a
model elsewhere. The items' shapes are those of openai-python 3.57."""

from __future__ import annotations

from typing import Any

import msgspec

from .chat import encode
from .responses import Part

SERVED = frozenset(
    ("computer_call", "computer_call_output", "code_interpreter_call", "file_search_call")
)
COMPUTERS = frozenset(("computer", "computer_use", "computer_use_preview"))
"""Tools that no model here can be offered, although their client runs them."""


class ServedItem(msgspec.Struct):
    """One such item. A computer's results are items of their own, the others hold theirs."""

    type: str
    id: str | None = None
    call_id: str | None = None
    action: Any = None
    actions: Any = None
    code: str | None = None
    outputs: Any = None
    queries: Any = None
    results: Any = None
    output: Any = None

    @property
    def key(self) -> str:
        return self.call_id or self.id or ""

    def called(self) -> tuple[str, str] | None:
        """(tool, arguments as JSON text) of a call that has a result or will have one."""
        if self.type == "computer_call":
            acts = {"actions": self.actions} if self.actions else self.action
            return "computer", encode(acts if isinstance(acts, dict) else {}).decode()
        if self.type == "code_interpreter_call":
            return "code_interpreter", encode({"code": self.code or ""}).decode()
        if self.type == "file_search_call" and isinstance(self.results, list):
            return "file_search", encode({"queries": self.queries or []}).decode()
        return None

    def told(self) -> str:
        """The text of the result that the item holds."""
        found = self.outputs if self.type == "code_interpreter_call" else self.results
        parts = found if isinstance(found, list) else []
        return "\n".join(map(_told, parts))

    def screen(self) -> Part | None:
        """The picture that a computer's result is; None: it shows none."""
        given = self.output if isinstance(self.output, dict) else {}
        url, file_id = given.get("image_url"), given.get("file_id")
        if not url and not isinstance(file_id, str):
            return None
        return Part("input_image", image_url=url, file_id=file_id)


def _told(part: Any) -> str:
    if isinstance(part, dict) and isinstance(part.get("logs"), str):
        return part["logs"]
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        name = part.get("filename")
        return f"{name}\n{part['text']}" if isinstance(name, str) and name else part["text"]
    return encode(part).decode()
