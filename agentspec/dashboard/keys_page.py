"""Who used what: the requests of each key in a range of time."""

from __future__ import annotations

from agentspec.store.board import Look
from agentspec.store.grouping import grouped
from agentspec.store.keys_report import KeysOverview

from .blocks import asked, label, money, number
from .sheet import Block
from .view import View

_SUMS = ("requests", "unpriced", "in_tok", "cached_tok", "out_tok", "cost_nusd")


def usage_block(look: Look, view: View, known: KeysOverview) -> Block:
    """Sums by key, the dearest first; requests without a key, and keys of old, included."""
    names = {key.record.id: (key.record.name, key.record.project or "") for key in known.keys}
    found = look.ask(grouped, look.slice, _SUMS, by=("key_id",))
    ranked = sorted(found.items(), key=lambda item: (-item[1]["cost_nusd"], item[0]))
    rows = [
        (names.get(id, ("", ""))[0] or id, id, names.get(id, ("", ""))[1], *one.values())
        for (id,), one in ranked
    ]
    block = Block(
        "usage",
        "Used by key",
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
        links=[view.rows(key=row[1]) if row[1] else "" for row in rows],
        empty="" if rows else f"No request in the {view.chosen.title}.",
    )
    return asked(look, block)
