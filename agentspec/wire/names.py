"""Tool names between protocols: chat completions know one flat list of short names.

Responses has namespaces and free-form ("custom") tools, Messages names of up to 128 characters.
Each becomes one function name that chat completions allow, and is found again by it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

MAX_CHARS = 64
SEPARATOR = "__"
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class ToolName:
    """A tool as its client knows it. custom: its input is free text, not JSON."""

    name: str
    namespace: str | None = None
    custom: bool = False


def flat(name: str, namespace: str | None = None) -> str:
    """The name of a function in chat completions, at most ``MAX_CHARS`` of ``[A-Za-z0-9_-]``.

    The same for the same tool, also where the tool itself isn't offered any more.
    """
    whole = f"{namespace}{SEPARATOR}{name}" if namespace else name
    plain = _FOREIGN.sub("_", whole)
    if plain == whole and 0 < len(whole) <= MAX_CHARS:
        return whole
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{plain[: MAX_CHARS - 9]}_{digest}"


@dataclass(slots=True)
class ToolNames:
    """The tools of one request, by their flat names."""

    known: dict[str, ToolName] = field(default_factory=dict)

    def add(self, tool: ToolName) -> str | None:
        """The tool's flat name; None where a tool of that name was added before."""
        name = flat(tool.name, tool.namespace)
        if name in self.known:
            return None
        self.known[name] = tool
        return name

    def find(self, name: str) -> ToolName:
        """The tool that a call names; a name nobody offered stays as it is."""
        return self.known.get(name) or ToolName(name)
