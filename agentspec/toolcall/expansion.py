"""How much of a schema judges one and the same value, with every reference written out.

References that combine ("anyOf" of twice the same, thirty levels deep) are small on paper and take
a checker billions of steps; one that comes back to itself without a step into the value never ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .refs import resolve

MAX_EXPANSION = 20_000
_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLES = ("not", "if", "then", "else")
_MAPS = ("dependentSchemas", "dependencies")


def too_expansive(root: Any) -> str | None:
    """Why ``root`` cannot be used, or None."""
    sizes: dict[int, int] = {}
    for node in _everywhere(root):
        size = _size(node, root, sizes, frozenset())
        if size > MAX_EXPANSION:
            return f"with its references it has more than {MAX_EXPANSION} subschemas for one value"
    return None


def _size(node: Any, root: Any, sizes: dict[int, int], open_: frozenset[int]) -> int:
    if not isinstance(node, dict):
        return 1
    known = sizes.get(id(node))
    if known is not None:
        return known
    if id(node) in open_:
        return 0  # a loop: what it means is another question (``productive``)
    total = 1
    for sub in _in_place(node, root):
        total += _size(sub, root, sizes, open_ | {id(node)})
        if total > MAX_EXPANSION:
            break
    sizes[id(node)] = total
    return total


def _in_place(node: dict[str, Any], root: Any) -> Iterator[Any]:
    for key in _LISTS:
        if isinstance(node.get(key), list):
            yield from node[key]
    for key in _SINGLES:
        if key in node:
            yield node[key]
    for key in _MAPS:
        if isinstance(node.get(key), dict):
            yield from node[key].values()
    if isinstance(node.get("$ref"), str):
        yield resolve(root, node["$ref"])


def _everywhere(root: Any) -> Iterator[Any]:
    """Every object in the document: it may be a schema."""
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            yield node
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
