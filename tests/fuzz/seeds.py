"""Seed requests of each protocol, with every kind of item that its translator knows."""

from __future__ import annotations

from typing import Any

_LARK = 'start: "a" /b+/ NL?\nNL: "\\n"'
_SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
_PIXEL = "data:image/png;base64,iVBORw0KGgo="

CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Grüße 👋"}]},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "text"},
    ],
    "tools": [{"type": "function", "function": {"name": "read", "parameters": _SCHEMA}}],
    "tool_choice": {"type": "function", "function": {"name": "read"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": _SCHEMA}},
    "stream": True,
    "stream_options": {"include_usage": True},
    "stop": ["\n\n"],
    "temperature": 0.5,
    "logit_bias": {"5": -1.5},
}
RESPONSES: dict[str, Any] = {
    "model": "m",
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": "hi"},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": _PIXEL},
            ],
        },
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "a", "name": "read", "arguments": '{"path": "x"}'},
        {"type": "custom_tool_call", "call_id": "b", "name": "patch", "input": "*** Begin"},
        {"type": "function_call_output", "call_id": "a", "output": "text"},
        {
            "type": "custom_tool_call_output",
            "call_id": "b",
            "output": [{"type": "input_text", "text": "ok"}],
        },
        {"type": "compaction", "encrypted_content": "zzz"},
        {"type": "additional_tools", "tools": [{"type": "function", "name": "late"}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
    ],
    "tools": [
        {"type": "function", "name": "read", "parameters": _SCHEMA, "strict": True},
        {
            "type": "custom",
            "name": "patch",
            "format": {"type": "grammar", "syntax": "lark", "definition": _LARK},
        },
        {"type": "namespace", "name": "clock", "tools": [{"type": "function", "name": "now"}]},
        {"type": "web_search"},
    ],
    "tool_choice": {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "read"}],
    },
    "text": {"format": {"type": "json_schema", "name": "a", "schema": _SCHEMA}, "verbosity": "low"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "include": ["reasoning.encrypted_content"],
    "metadata": {"a": "b"},
    "store": False,
    "max_output_tokens": 9,
}
MESSAGES: dict[str, Any] = {
    "model": "m",
    "max_tokens": 9,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "zzz"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "x"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "and"},
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "is_error": True,
                    "content": [
                        {"type": "text", "text": "no"},
                        {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
                        {"type": "tool_reference", "tool_name": "late"},
                    ],
                },
                {"type": "document", "source": {"type": "text", "data": "doc"}, "title": "t"},
            ],
        },
    ],
    "tools": [
        {"name": "read", "input_schema": _SCHEMA},
        {"name": "late", "input_schema": _SCHEMA, "defer_loading": True},
        {"type": "web_search_20250305", "name": "web_search"},
    ],
    "tool_choice": {"type": "tool", "name": "read", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": _SCHEMA}},
    "stop_sequences": ["x"],
    "metadata": {"user_id": "u"},
    "stream": True,
}
COMPLETIONS: dict[str, Any] = {
    "model": "m",
    "prompt": "def f(",
    "suffix": "return 1",
    "max_tokens": 5,
    "echo": False,
    "logprobs": 2,
    "n": 2,
    "best_of": 2,
    "stop": ["\n"],
    "stream": True,
    "stream_options": {"include_usage": True},
}
