"""References inside one schema document. Nothing is ever fetched."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote


def pointer(root: Any, fragment: str) -> Any:
    """What a JSON pointer (``/a/0/b``, percent-encoded) names in ``root``, or None."""
    node = root
    for step in unquote(fragment).split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and step in node:
            node = node[step]
        elif isinstance(node, list) and step.isdigit() and int(step) < len(node):
            node = node[int(step)]
        else:
            return None
    return node


def resolve(root: Any, ref: str) -> Any:
    """The schema that a ``$ref`` names inside ``root``, or None when it is not in there.

    Understands pointers, anchors, and the ids of embedded schemas.
    """
    base, _, fragment = ref.partition("#")
    if base:
        root = _embedded(root, base)
        if root is None:
            return None
    if not fragment or fragment.startswith("/"):
        target = pointer(root, fragment)
    else:
        target = _find(root, ("$anchor", "$dynamicAnchor"), fragment)
        target = target if target is not None else _find(root, ("$id", "id"), f"#{fragment}")
    return target if isinstance(target, dict | bool) else None


def is_plain(ref: str) -> bool:
    """Whether a ref is a pointer from the document's root (then no base URI matters)."""
    return ref == "#" or ref.startswith("#/")


def _embedded(root: Any, base: str) -> Any:
    """The schema whose id ends in ``base``'s last part: ids are relative to one another."""
    tail = base.rstrip("/").rsplit("/", 1)[-1]
    return _find(root, ("$id", "id"), base, tail)


def _find(node: Any, keys: tuple[str, ...], *values: str) -> Any:
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            for key in keys:
                held = node.get(key)
                if isinstance(held, str) and any(
                    held == value or held.rstrip("#").endswith(f"/{value}") for value in values
                ):
                    return node
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
    return None
