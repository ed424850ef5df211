"""Who used what: the requests of each key in a range of time."""

from __future__ import annotations

from agentspec.store.board import Look
from agentspec.store.grouping import grouped
from agentspec.store.keys_report import KeysOverview

from .blocks import label, money, number, where_told
from .sheet import Block
from .view import View

_SUMS = ("requests", "unpriced", "in_tok", "cached_tok", "out_tok", "cost_nusd")
_TITLE = "Used by key"


def usage_block(look: Look, view: View, known: KeysOverview) -> Block:
    """Sums by key, the dearest first; requests without a key, and keys of old, included."""
    return where_told(look, "usage", _TITLE, lambda: _usage(look, view, known))


def _usage(look: Look, view: View, known: KeysOverview) -> Block:
    names = {key.record.id: (key.record.name, key.record.project or "") for key in known.keys}
    found = look.ask(grouped, look.slice, _SUMS, by=("key_id",))
    ranked = sorted(found.items(), key=lambda item: (-item[1]["cost_nusd"], item[0]))
    rows = []
    for (id,), one in ranked:
        name, project = names.get(id, (id, ""))
        cost = one["cost_nusd"] if one["unpriced"] < one["requests"] else None
        sums = [one[name] for name in _SUMS[:-1]]
        rows.append((name or id, id, project, *sums, cost))
    return Block(
        "usage",
        _TITLE,
        f"Requests of the {view.chosen.title}; '(none)': no key was asked for.",
        [
            label("Name", "name"),
            label("Key", "key_id"),
            label("Project", "project"),
            number("Requests", "requests"),
            number("Of unknown cost", "unpriced"),
            number("In", "in_tok"),
            number("Cached", "cached_tok"),
            number("Out", "out_tok"),
            money("Known cost", "cost_nusd"),
        ],
        rows,
        links=[view.rows(key=row[1]) for row in rows],
        empty="" if rows else f"No such request in the {view.chosen.title}.",
    )
