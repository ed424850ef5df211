"""Tool names between protocols: chat completions know one flat list of short names.

Responses has namespaces and free-form ("custom") tools, Messages names of up to 128 characters.
Each becomes one function name that chat completions allow, and is found again by it.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass
from itertools import count

MAX_CHARS = 64
SEPARATOR = "__"
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class ToolName:
    """A tool as its client knows it. custom: its input is free text, not JSON; builtin: it is known
    by its type (``responses_builtin.py``)."""

    name: str
    namespace: str | None = None
    custom: bool = False
    builtin: bool = False


def flat(name: str, namespace: str | None = None) -> str:
    """The name of a function in chat completions, at most ``MAX_CHARS`` of ``[A-Za-z0-9_-]``.

    Two tools may have the same one: see ``ToolNames``, which tells them apart.
    """
    whole = f"{namespace}{SEPARATOR}{name}" if namespace else name
    plain = _FOREIGN.sub("_", whole)
    if plain == whole and 0 < len(whole) <= MAX_CHARS:
        return whole
    return f"{plain[: MAX_CHARS - 9]}_{_digest(whole)}"


class ToolNames:
    """The tools of one request and their flat names, of which each names one tool.

    Where two tools would get the same one (a function ``clock__now`` beside ``now`` of the
    namespace ``clock``), the tool that is called so by its client keeps it, and the others get a
    suffix, which depends on the tool alone.
    """

    def __init__(self) -> None:
        self._tools: dict[_Key, ToolName] = {}
        self._flat: dict[_Key, str] = {}
        self._known: dict[str, ToolName] = {}

    def add(self, tool: ToolName) -> bool:
        """Whether the tool is new: one of the same name and namespace counts once."""
        key = (tool.namespace, tool.name)
        if key in self._tools:
            return False
        self._tools[key] = tool
        self._flat = {}
        return True

    @property
    def known(self) -> dict[str, ToolName]:
        """The tools by their flat names."""
        self._settle()
        return self._known

    def flat(self, name: str, namespace: str | None = None) -> str:
        """A tool's flat name, also where the tool isn't offered (any more)."""
        self._settle()
        key = (namespace or None, name)
        found = self._flat.get(key)
        if found is None:
            found = flat(name, namespace)
            if found in self._known:
                found = _suffixed(found, key, self._known)
        return found

    def find(self, name: str) -> ToolName:
        """The tool that a call names; a name nobody offered stays as it is."""
        return self.known.get(name) or ToolName(name)

    def _settle(self) -> None:
        if self._flat or not self._tools:
            return
        wanted = {key: flat(tool.name, tool.namespace) for key, tool in self._tools.items()}
        counts = Counter(wanted.values())
        self._known = {}
        clashing = []
        for key, name in wanted.items():
            if counts[name] == 1 or key == (None, name):
                self._flat[key] = name
                self._known[name] = self._tools[key]
            else:
                clashing.append(key)
        for key in clashing:
            name = self._flat[key] = _suffixed(wanted[key], key, self._known)
            self._known[name] = self._tools[key]


_Key = tuple[str | None, str]


def _suffixed(name: str, key: _Key, taken: Container[str]) -> str:
    namespace, own = key
    for attempt in count():
        whole = f"{attempt}\0{namespace or ''}\0{own}"
        made = f"{name[: MAX_CHARS - 9]}_{_digest(whole)}"
        if made not in taken:
            return made
    raise AssertionError("there are more digests than tools")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
