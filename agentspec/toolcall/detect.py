"""Which format a model writes its tool calls in: by a setting, its chat template, or its name."""

from __future__ import annotations

from dataclasses import replace

from .format import ToolFormat, format_names, load_format

AUTO = "auto"
UNKNOWN = "unknown"


class NoSuchFormat(ValueError):
    """A format was asked for by a name that none has; the message lists those there are."""


def format_for(setting: str, *models: str, template: str | None = None) -> ToolFormat:
    """The format that serves a model.

    setting: a format's name, or "auto". models: the model's names, the likeliest first; template:
    its chat template's source.
    Raises ``NoSuchFormat``. A model that nothing recognises gets a format called "unknown", with
    which a request that could lead to calls is refused.
    """
    known = format_names()
    if setting != AUTO:
        if setting not in known:
            listed = ", ".join([AUTO, *known])
            raise NoSuchFormat(f"no format is named '{setting}'; there is: {listed}")
        return load_format(setting)
    found = next((f for model in models if (f := recognised(model, template))), None)
    return found or replace(load_format("hermes"), name=UNKNOWN)


def recognised(model: str, template: str | None = None) -> ToolFormat | None:
    """The one format that a model is known by: its template's word counts before its name's."""
    formats = [load_format(name) for name in format_names()]
    by_template = [f for f in formats if template and f.recognition.knows_template(template)]
    by_name = [f for f in formats if f.recognition.knows_name(model)]
    if len(by_template) == 1:
        return by_template[0]
    if len(by_template) > 1:
        by_name = [f for f in by_name if f in by_template]
    return by_name[0] if len(by_name) == 1 else None
