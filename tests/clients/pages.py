"""Writes docs/clients/ and ``connect``'s measured sizes out of ``build/clients.json``.

``python -m tests.clients.pages``, at the end of ``make test-clients``. Nothing on these pages is
typed by hand; an agent that was not run has no page.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

from agentspec.connect.advice import cannot
from agentspec.connect.base import Target
from agentspec.connect.command import fragments
from agentspec.connect.measured import FILE as MEASURED
from agentspec.connect.registry import CLIENTS
from agentspec.settings import DEFAULT_CONTEXT_TOKENS, DEFAULT_MODEL

from .results import FILE
from .test_faults import FAULTS

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs" / "clients"
SURFACES = {"chat": "chat completions", "responses": "Responses", "messages": "Messages"}
HEAD = "*Written by `make test-clients` from what it ran; not by hand.*\n"
EMBEDDED = Target(
    url="http://127.0.0.1:8000",
    model=DEFAULT_MODEL,
    context_tokens=DEFAULT_CONTEXT_TOKENS,
    home=Path("/home/you"),
    config=Path("/home/you/.config"),
)

Entry = dict[str, Any]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell or ' ' for cell in line)} |\n" for line in lines)


def share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"


def real_words(entry: Entry) -> str:
    real = entry.get("real")
    if real is None:
        return ""
    how = "ended by itself" if real["ended"] else "stopped by the time limit"
    return f"{how}, {real['turns']} turn(s)"


def limit_words(prompt: Entry) -> str:
    if "answer_tokens" not in prompt:
        return ""
    if prompt["answer_tokens"] is None:
        return " It sets an answer no limit of tokens."
    return f" It asks for at most {prompt['answer_tokens']:,} tokens an answer (context: 65,536)."


def overview(agents: dict[str, Entry]) -> str:
    head = ["client", "version", "protocol", "task done (script)", "turns", "prefix shared"]
    head += ["first request, tokens in full", "shortened", "on the engine", "cache hits"]
    head += ["accepted length"]
    rows = []
    for name, entry in sorted(agents.items()):
        done, prompt = entry.get("scripted"), entry.get("prompt", {})
        if done is None:
            continue
        real = entry.get("real", {})
        length = real.get("accepted_length")
        rows.append(
            [
                f"[{CLIENTS[name].title}]({name}.md)",
                done["version"],
                ", ".join(SURFACES[s] for s in done["surfaces"]),
                "yes" if done["finished"] else "no",
                str(done["turns"]),
                share(done["cached_share"]),
                f"{prompt.get('full_tokens', 0):,}",
                f"{prompt.get('short_tokens', 0):,}",
                real_words(entry),
                share(real.get("cached_share")),
                "" if length is None else f"{length:.2f}",
            ]
        )
    return table(head, rows)


def filled(template: str, **values: str) -> str:
    return Template((HERE / template).read_text()).substitute(head=HEAD, **values)


def readme(document: dict[str, Any]) -> str:
    network = "nothing but loopback could be reached"
    if not document["loopback_only"]:
        network = "other hosts could be reached: no network namespace could be made"
    machine = f"{document['machine']['cpu']}, {document['machine']['cores']} cores"
    rows = overview(document["agents"])
    return filled("overview.md.in", table=rows, machine=machine, network=network)


def page(name: str, entry: Entry) -> str:
    client, done, prompt = CLIENTS[name], entry["scripted"], entry.get("prompt")
    made = client.configure(EMBEDDED)
    notes = "".join(f"- {line}\n" for line in cannot(client, EMBEDDED, images=False))
    parts = [
        f"# {client.title}\n\n{HEAD}",
        f"`agentspec connect {name}` for the embedded model:\n",
        f"```text\n{fragments(made).rstrip()}\n\n{made.command}\n```\n",
    ]
    if notes:
        parts.append(f"It says:\n\n{notes}")
    surfaces = ", ".join(SURFACES[surface] for surface in done["surfaces"])
    parts.append(
        f"Version {done['version']}, over {surfaces}. Scripted task: "
        f"{'done' if done['finished'] else 'not done'} in {done['turns']} requests of "
        f"{done['sessions']} session(s); {share(done['cached_share'])} of the prompts was the "
        "beginning of an earlier one.\n"
    )
    if prompt:
        parts.append(
            f"Its first request holds {prompt['tools']} tools and takes {prompt['full_tokens']:,} "
            f"tokens of the embedded model in full, {prompt['short_tokens']:,} shortened."
            f"{limit_words(prompt)}\n"
        )
    if "real" in entry:
        calls = f"{entry['real']['tool_calls_valid']} of {entry['real']['tool_calls']}"
        parts.append(f"On the engine: {real_words(entry)}; {calls} calls met their schema.\n")
    return "\n".join(parts)


def faults(agents: dict[str, Entry]) -> str:
    runs = [run for entry in agents.values() for run in entry.get("faults", {}).values()]
    parts = []
    for fault in FAULTS:
        rows = []
        for name in sorted(agents):
            found = agents[name].get("faults", {}).get(fault)
            if found is not None:
                said = found["said"].replace("|", "\\|")
                wait = f"{found['longest_wait_s']:.1f} s"
                row = [CLIENTS[name].title, found["outcome"], str(found["requests"]), wait, said]
                rows.append(row)
        if rows:
            head = ["client", "outcome", "requests", "longest wait", "what it said"]
            parts.append(f"## {fault}\n\n{table(head, rows)}")
    torn = sum(run["torn_call_ran"] for run in runs)
    text = "\n".join(parts).rstrip()
    return filled("faults.md.in", runs=str(len(runs)), torn=str(torn or "none"), tables=text)


def measured(agents: dict[str, Entry]) -> str:
    found = {
        name: {
            "version": entry["scripted"]["version"],
            "full_tokens": entry["prompt"]["full_tokens"],
            "short_tokens": entry["prompt"]["short_tokens"],
            "turns": entry["scripted"]["turns"],
        }
        for name, entry in sorted(agents.items())
        if "prompt" in entry and "scripted" in entry
    }
    return json.dumps(found, indent=1) + "\n"


def main() -> None:
    document = json.loads(FILE.read_text())
    agents = document["agents"]
    DOCS.mkdir(exist_ok=True)
    MEASURED.write_text(measured(agents))
    (DOCS / "README.md").write_text(readme(document))
    (DOCS / "faults.md").write_text(faults(agents))
    for name, entry in agents.items():
        if "scripted" in entry:
            (DOCS / f"{name}.md").write_text(page(name, entry))


if __name__ == "__main__":
    main()
