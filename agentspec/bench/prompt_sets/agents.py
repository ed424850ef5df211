"""Tool-call prompts of a coding agent: one tool set, in many wordings and orders, over real names.

The tools are our own; file and function names are those of the standard library, so that paths and
identifiers are as varied as those of a repository.
"""

from __future__ import annotations

import random
from typing import Any

from .sources import Function

_TEXT: dict[str, Any] = {"type": "string"}
_COUNT: dict[str, Any] = {"type": "integer"}
_FLAG: dict[str, Any] = {"type": "boolean"}

# name: (description, properties, how many of them are required)
_TOOLS: dict[str, tuple[str, dict[str, Any], int]] = {
    "read_file": ("Read a file.", {"path": _TEXT, "offset": _COUNT, "limit": _COUNT}, 1),
    "view": ("Show a part of a file.", {"file_path": _TEXT, "start": _COUNT, "end": _COUNT}, 1),
    "write_file": ("Write a whole file.", {"path": _TEXT, "content": _TEXT}, 2),
    "edit_file": (
        "Replace a text in a file.",
        {"path": _TEXT, "old_text": _TEXT, "new_text": _TEXT, "replace_all": _FLAG},
        3,
    ),
    "bash": ("Run a shell command.", {"command": _TEXT, "timeout": _COUNT}, 1),
    "grep": (
        "Search files for a regular expression.",
        {"pattern": _TEXT, "path": _TEXT, "glob": _TEXT, "ignore_case": _FLAG},
        1,
    ),
    "glob": ("Find files by name.", {"pattern": _TEXT, "path": _TEXT}, 1),
    "list_directory": ("List a folder.", {"path": _TEXT, "recursive": _FLAG}, 1),
    "run_tests": ("Run tests.", {"target": _TEXT, "verbose": _FLAG, "max_failures": _COUNT}, 1),
    "git_commit": ("Commit staged changes.", {"message": _TEXT, "amend": _FLAG}, 1),
    "git_diff": ("Show changes.", {"revision": _TEXT, "path": _TEXT}, 0),
    "create_issue": (
        "Open an issue.",
        {
            "title": _TEXT,
            "body": _TEXT,
            "labels": {"type": "array", "items": _TEXT},
            "priority": {"type": "string", "enum": ["low", "medium", "high"]},
        },
        2,
    ),
    "fetch_url": ("Fetch a web page.", {"url": _TEXT, "format": {"enum": ["text", "html"]}}, 1),
    "ask_user": ("Ask the user a question.", {"question": _TEXT}, 1),
}
_WISHES: dict[str, tuple[str, ...]] = {
    "read_file": (
        "Open {path}.",
        "Show me the file {path} from line {n}, {m} lines.",
        "Read {path} and look for {name}.",
    ),
    "view": (
        "Show lines {n} to {k} of {path}.",
        "View {path}.",
        "What is in {path} after line {n}?",
    ),
    "write_file": (
        "Create {path} with a function {name} that only returns None.",
        "Write the text 'see {name}' to {folder}/NOTES.txt.",
        "Make a new file {folder}/{name}.md that says: {about}.",
    ),
    "edit_file": (
        "In {path} replace {name} by new_{name}.",
        "Rename {name} to {name}_all everywhere in {path}.",
        "In {path} change the timeout from {n} to {m}.",
    ),
    "bash": (
        "Run python -m pytest {path} and stop it after {n} seconds.",
        "Count the lines of {path}.",
        "Install the package {module} with pip.",
        "Remove the folder {folder}/__pycache__.",
    ),
    "grep": (
        "Where is {name} used?",
        "Search {folder} for {name}, ignoring case.",
        "Find all lines with 'def {name}' in Python files.",
    ),
    "glob": ("Find all files called {name}*.py.", "List every Python file below {folder}."),
    "list_directory": ("What is in {folder}?", "List {folder} with all its folders."),
    "run_tests": ("Run the tests of {name}.", "Run {path} and stop after {n} failures, verbosely."),
    "git_commit": ("Commit this as: {about}.", "Commit with the message 'Fix {name} in {module}'."),
    "git_diff": ("What changed in {path}?", "Show the diff of {path} against main."),
    "create_issue": (
        "Open an issue: {name} fails in {module}. It should do this: {about}. High priority.",
        "File a low priority ticket to document {name}, labelled docs.",
    ),
    "fetch_url": (
        "Get https://docs.example.org/{module}/{name}.html as text.",
        "Look up {name} on https://example.com/search.",
    ),
    "ask_user": (
        "Ask me whether {name} may be removed.",
        "You need to know which {module} to use.",
    ),
}
_SYSTEMS = (
    None,
    "You are a coding agent. Use the tools.",
    "You are a careful assistant for programmers. Call a tool.",
    "You work in a repository. Answer with tool calls.",
)


def _tool(name: str) -> dict[str, Any]:
    about, properties, required = _TOOLS[name]
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties)[:required],
        "additionalProperties": False,
    }
    return {
        "type": "function",
        "function": {"name": name, "description": about, "parameters": schema},
    }


def call(found: Function, draw: random.Random) -> dict[str, Any]:
    """A chat request that must be answered by a call, among two to seven tools."""
    wanted = draw.choice(list(_TOOLS))
    others = draw.sample([name for name in _TOOLS if name != wanted], draw.randint(1, 6))
    tools = [_tool(name) for name in [wanted, *others]]
    draw.shuffle(tools)
    folder, _, module = found.module.rpartition("/")
    asked = draw.choice(_WISHES[wanted]).format(
        path=f"{draw.choice(['src', 'lib', 'app', 'tests', 'pkg'])}/{found.module}.py",
        folder=folder or draw.choice(["src", "docs", "tools", "scripts"]),
        module=module,
        name=found.name,
        about=found.about,
        n=draw.randint(1, 400),
        m=draw.randint(2, 200),
        k=draw.randint(401, 900),
    )
    system = draw.choice(_SYSTEMS)
    messages = [] if system is None else [{"role": "system", "content": system}]
    messages.append({"role": "user", "content": asked})
    return {"messages": messages, "tools": tools, "tool_choice": "required"}
