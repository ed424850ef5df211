"""Schemas in the manner of coding agents' tools, written for these tests."""

from __future__ import annotations

from typing import Any

_TEXT = {"type": "string"}
_LINE = {"type": "integer", "minimum": 0, "maximum": 9007199254740991}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


AGENT_TOOLS: dict[str, dict[str, Any]] = {
    "read_file": {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "file"},
            "limit": {"type": "integer"},
        },
        "required": ["path"],
    },
    "write_file": _object(["path", "content"], path=_TEXT, content=_TEXT),
    "edit": _object(
        ["path", "edits"],
        path=_TEXT,
        edits={
            "type": "array",
            "items": _object(["old", "new"], old=_TEXT, new=_TEXT, all={"type": "boolean"}),
            "minItems": 1,
        },
    ),
    "shell": _object(
        ["command"],
        command=_TEXT,
        timeout_ms={"type": "number", "exclusiveMinimum": 0, "maximum": 600000},
        background={"type": "boolean", "default": False},
    ),
    "grep": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **_object(
            ["pattern"],
            pattern=_TEXT,
            glob=_TEXT,
            output_mode={"type": "string", "enum": ["content", "files", "count"]},
            context=_LINE,
        ),
    },
    "glob": _object(["pattern"], pattern=_TEXT, path={"type": ["string", "null"]}),
    "list_agents": {"type": "object", "properties": {}},
    "todo_write": _object(
        ["todos"],
        todos={
            "type": "array",
            "items": _object(
                ["content", "status"],
                content={"type": "string", "minLength": 1},
                status={"type": "string", "enum": ["pending", "in_progress", "completed"]},
            ),
        },
    ),
    "fetch": _object(["url"], url={"type": "string", "format": "uri"}, prompt=_TEXT),
    "spawn": _object(
        ["task"],
        task={"type": "string", "minLength": 1},
        model={"anyOf": [{"enum": ["small", "large"]}, {"type": "null"}]},
    ),
    "ask": _object(
        ["questions"],
        questions={
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": _object(
                ["question"], question=_TEXT, options={"type": "array", "items": _TEXT}
            ),
        },
    ),
    "plan": {
        "type": "object",
        "properties": {
            "step": {"$ref": "#/$defs/Step"},
            "next": {"anyOf": [{"$ref": "#/$defs/Step"}, {"type": "null"}], "default": None},
        },
        "required": ["step"],
        "$defs": {
            "Step": {
                "title": "Step",
                "type": "object",
                "properties": {
                    "text": {"title": "Text", "type": "string"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/Step"}},
                },
                "required": ["text"],
            }
        },
    },
    "schedule": _object(
        ["cron"],
        cron={"type": "string", "pattern": r"^[0-9*/]+( [0-9*/]+){4}$"},
        id={"type": "string", "format": "uuid"},
    ),
    "set_env": {
        "type": "object",
        "properties": {"vars": {"type": "object", "additionalProperties": {"type": "string"}}},
        "required": ["vars"],
    },
    "patch": {
        "type": "object",
        "properties": {
            "ops": {
                "type": "array",
                "items": {
                    "oneOf": [
                        _object(["op", "path"], op={"const": "delete"}, path=_TEXT),
                        _object(
                            ["op", "path", "text"], op={"const": "add"}, path=_TEXT, text=_TEXT
                        ),
                    ]
                },
            }
        },
        "required": ["ops"],
    },
    "tags": _object(
        [], tags={"type": "array", "items": _TEXT, "uniqueItems": True}, level={"multipleOf": 5}
    ),
}
