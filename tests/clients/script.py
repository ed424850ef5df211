"""What the stand-in backend answers: a coding task in four steps, with whatever tools are offered.

Read the file, edit it, run a command, finish. It looks at nothing but the request: how many rounds
of calls lie behind, and which tools the client has. A client without tools (aider) gets its edit as
text. It is a script, no model; the names of tools and parameters are matched by what they mean.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema

OLD, NEW = "return a - b", "return a + b"
FINAL = "TASK-DONE: add() adds now."
TASK = "Read calc.py, fix the bug in add so that it adds, run 'sh check.sh', and tell me when done."
FILES = {
    "calc.py": f"def add(a, b):\n    {OLD}\n",
    "check.sh": f"grep -q '{NEW}' calc.py && touch ran.txt\n",
}

_READ = ("read", "Read", "read_file", "read_files", "view_file", "view")
_EDIT = ("edit", "Edit", "edit_file", "editor", "replace", "replace_in_file", "str_replace")
_SHELL = ("bash", "Bash", "exec_command", "shell", "run_shell_command", "run_commands", "run")
_SHELL += ("report", "run_terminal_command", "execute_command", "RunTerminalCommand", "terminal")


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    calls: tuple[Call, ...] = ()


def answer(request: dict[str, Any], work: Path, *, text_edits: bool) -> Answer:
    """The next step of the task in the folder ``work``."""
    messages = request["messages"]
    if text_edits:
        return Answer(_as_text(messages))
    tools = {t["function"]["name"]: t["function"].get("parameters") or {} for t in _tools(request)}
    if not tools:
        return Answer("Fix the bug in add")  # a title, a summary
    if set(tools) == {"report"}:
        return Answer("", (_call(tools, ("report",), "", work),))  # the check of ``connect``
    rounds = sum(1 for m in messages if m["role"] == "assistant" and m.get("tool_calls"))
    return _step(rounds, tools, work)


def torn_call(request: dict[str, Any], work: Path) -> Call:
    """A shell call whose arguments break off; a client that mends and runs it leaves torn.txt."""
    tools = {t["function"]["name"]: t["function"].get("parameters") or {} for t in _tools(request)}
    call = _call(tools, _SHELL, f"touch {work}/torn.txt; cat ", work)
    end = call.arguments.index("; cat ") + len("; cat ")
    return Call(call.name, call.arguments[:end])


def _tools(request: dict[str, Any]) -> list[dict[str, Any]]:
    return [tool for tool in request.get("tools") or [] if tool.get("type") == "function"]


def _step(rounds: int, tools: dict[str, Any], work: Path) -> Answer:
    if rounds == 0:
        if _has(tools, _READ):
            return Answer("I read it first.", (_call(tools, _READ, "", work),))
        return Answer("I read it first.", (_call(tools, _SHELL, f"cat {work}/calc.py", work),))
    if rounds == 1:
        if _has(tools, _EDIT):
            return Answer("Now the edit.", (_call(tools, _EDIT, "", work),))
        command = f"sed -i 's/{OLD}/{NEW}/' {work}/calc.py"
        return Answer("Now the edit.", (_call(tools, _SHELL, command, work),))
    if rounds == 2:
        command = f"cd {work} && sh check.sh"
        return Answer("I check it.", (_call(tools, _SHELL, command, work),))
    if rounds == 3 and set(tools) == {"bash"}:
        # mini-swe-agent ends with this command, not with a text.
        done = f"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && echo '{FINAL}'"
        return Answer("I am done.", (_call(tools, _SHELL, done, work),))
    return Answer(FINAL)


def _has(tools: dict[str, Any], names: tuple[str, ...]) -> bool:
    return any(name in tools for name in names)


def _call(tools: dict[str, Any], names: tuple[str, ...], command: str, work: Path) -> Call:
    name = next((name for name in names if name in tools), None)
    assert name, f"none of {names} among {sorted(tools)}"
    schema = tools[name]
    arguments = _fill(schema, "", command, work)
    jsonschema.validate(arguments, schema)
    return Call(name, json.dumps(arguments))


def _fill(schema: dict[str, Any], name: str, command: str, work: Path) -> Any:
    """A value for a parameter, by its type and what its name means."""
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return _fill(schema[key][0], name, command, work)
    kind = schema.get("type")
    if "enum" in schema:
        wanted = ("str_replace", "replace", "edit")
        return next((word for word in wanted if word in schema["enum"]), schema["enum"][0])
    if kind == "object" or "properties" in schema:
        named = schema.get("properties", {})
        wanted = [k for k in named if k in schema.get("required", ()) or _matters(k, command)]
        return {key: _fill(named[key], key, command, work) for key in wanted}
    if kind == "array":
        return [_fill(schema.get("items", {}), name, command, work)]
    if kind == "boolean":
        return False
    if kind in ("integer", "number"):
        return max(1, schema.get("minimum", 1))
    return _text(name.lower(), command, work)


def _matters(name: str, command: str) -> bool:
    """Parameters that are optional in some client's schema and needed all the same."""
    return not command and bool(re.match(r"(old|new)_?(str|text|string)", name.lower()))


def _text(name: str, command: str, work: Path) -> str:
    if re.search(r"old|search", name):
        return OLD
    if re.search(r"new|replace", name):
        return NEW
    if re.search(r"command|cmd|script", name):
        return command
    if re.search(r"path|file", name):
        return str(work / "calc.py")
    return "Fix add"


def _as_text(messages: list[dict[str, Any]]) -> str:
    """An edit in the form that the system prompt asks for."""
    system = json.dumps([m["content"] for m in messages if m["role"] == "system"])
    if "SEARCH/REPLACE" in system:
        block = f"<<<<<<< SEARCH\n    {OLD}\n=======\n    {NEW}\n>>>>>>> REPLACE"
        return f"{FINAL}\n\ncalc.py\n```python\n{block}\n```\n"
    fixed = FILES["calc.py"].replace(OLD, NEW)
    return f"{FINAL}\n\ncalc.py\n```\n{fixed}```\n"
