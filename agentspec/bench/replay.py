"""Replays recorded requests of real clients, of every protocol, against a running endpoint.

A recording is a JSON file ``{client, method, path, body, ...}``. Each POST is sent as it was
recorded, but for the model's name; ``judge.py`` says whether the answer is right in its protocol
and its calls satisfy the client's own schemas. A refusal is right where nothing else can be: a
prompt beyond the context, pictures for a model that reads text, a reference to an answer of another
server, ``thread``, embeddings of a model that has none.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp

from . import judge, judge_items
from .judge import Judge, Wrong

COLUMNS = [
    *("client", "surface", "file", "verdict", "status", "finish_reason", "tool_calls"),
    *("prompt_tokens", "completion_tokens", "seconds", "why"),
]
SUMMARY_COLUMNS = ["client", "surface", "n", "answered", "refused", "wrong", "tool_calls", "why"]
JUDGES: dict[str, tuple[str, Judge]] = {
    "/chat/completions": ("chat", judge.chat),
    "/completions": ("completions", judge.completions),
    "/embeddings": ("embeddings", judge.embeddings),
    "/responses": ("responses", judge_items.responses),
    "/responses/compact": ("compact", judge_items.compaction),
    "/responses/input_tokens": ("input_tokens", judge.count),
    "/messages": ("messages", judge_items.messages),
    "/messages/count_tokens": ("count_tokens", judge.count),
}
# How the field that limits an answer's length is called; the first is set where none was sent.
_LIMITS = {
    "chat": ("max_tokens", "max_completion_tokens"),
    "completions": ("max_tokens",),
    "responses": ("max_output_tokens",),
    "compact": ("max_output_tokens",),
    "messages": ("max_tokens",),
}


@dataclass(slots=True)
class Replayed:
    """Outcome of one recording. verdict: "answered", "refused" (rightly, ``why``) or "wrong"."""

    client: str
    surface: str
    file: str
    verdict: str
    status: int
    finish_reason: str | None = None
    tool_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Recording:
    """path: below the API's base. headers: those that choose a version of the protocol."""

    client: str
    file: str
    path: str
    body: dict[str, Any]
    headers: dict[str, str]


def recordings(folder: Path) -> list[Recording]:
    """Every recorded POST below ``folder`` to a path that has a judge."""
    found = []
    for path in sorted(folder.glob("*/*.json")):
        recorded = json.loads(path.read_text())
        if recorded.get("method") != "POST":
            continue
        below = recorded["path"].partition("?")[0].removeprefix("/v1")
        if below in JUDGES:
            kept = {k: v for k, v in recorded.get("headers", []) if k.startswith("anthropic-")}
            found.append(Recording(path.parent.name, path.name, below, recorded["body"], kept))
    return found


def right_refusal(surface: str, body: dict[str, Any], status: int, raw: bytes) -> str:
    """Why a refusal is right, in a word; "" where it is not."""
    try:
        error = json.loads(raw)["error"]
        message, code = error["message"], error.get("code")
    except (ValueError, KeyError, TypeError):
        return ""
    if status != 400:
        return ""
    if code == "context_length_exceeded" or message.startswith("prompt is too long"):
        return "context_length_exceeded"
    if "thread" in body and (error.get("details") or {}).get("error_code", "").startswith("thread"):
        return "thread_unsupported_request"
    if _shows_pictures(body) and ("image" in message or code == "unsupported_content"):
        return "images"
    if body.get("previous_response_id") and code == "previous_response_not_found":
        return code
    if surface == "embeddings" and code == "unsupported_model":
        return "no embeddings"
    if body.get("suffix") and error.get("param") == "suffix":
        return "no fill-in-the-middle"
    return ""


def _shows_pictures(value: Any) -> bool:
    if isinstance(value, dict):
        kind = value.get("type")
        return kind in ("image", "image_url", "input_image") or _any(value.values())
    return isinstance(value, list) and _any(value)


def _any(values: Iterable[Any]) -> bool:
    return any(_shows_pictures(value) for value in values)


def limited(surface: str, body: dict[str, Any], limit: int | None) -> dict[str, Any]:
    """The body with its answer's length capped. ``body`` isn't changed."""
    names = _LIMITS.get(surface, ())
    if limit is None or not names:
        return body
    name = next((name for name in names if body.get(name) is not None), names[0])
    return body | {name: min(limit, body.get(name) or limit)}


async def replay_one(session: aiohttp.ClientSession, url: str, one: Recording) -> Replayed:
    """Send one recorded body to ``url`` (.../v1) and judge the answer."""
    surface, judged_by = JUDGES[one.path]
    began = time.perf_counter()
    async with session.post(f"{url}{one.path}", json=one.body, headers=one.headers) as response:
        raw = await response.read()
        status = response.status
    result = Replayed(one.client, surface, one.file, "wrong", status)
    result.seconds = round(time.perf_counter() - began, 3)
    if status != 200:
        result.why = right_refusal(surface, one.body, status, raw)
        result.verdict = "refused" if result.why else "wrong"
        result.why = result.why or raw[:160].decode(errors="replace")
        return result
    try:
        judged = judge.judge(judged_by, one.body, raw)
    except Wrong as error:
        result.why = str(error)[:160]
        return result
    result.verdict, result.finish_reason = "answered", judged.finish
    result.tool_calls = len(judged.calls)
    result.prompt_tokens, result.completion_tokens = judged.prompt_tokens, judged.completion_tokens
    return result


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Counts by client and surface. why: reasons of refusals and faults, with their counts."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        key = row["client"], row["surface"]
        total = found.setdefault(
            key,
            dict.fromkeys(SUMMARY_COLUMNS, 0) | {"client": key[0], "surface": key[1], "why": {}},
        )
        total["n"] += 1
        total[row["verdict"]] += 1
        total["tool_calls"] += row["tool_calls"]
        if row["why"]:
            total["why"][row["why"]] = total["why"].get(row["why"], 0) + 1
    for total in found.values():
        total["why"] = ", ".join(f"{why} {n}" for why, n in total["why"].items())
    return list(found.values())


async def _replay(url: str, folder: Path, model: str, max_tokens: int | None) -> list[Replayed]:
    results = []
    timeout = aiohttp.ClientTimeout(total=900)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for one in recordings(folder):
            surface, _ = JUDGES[one.path]
            body = limited(surface, one.body | {"model": model}, max_tokens)
            sent = Recording(one.client, one.file, one.path, body, one.headers)
            results.append(await replay_one(session, url, sent))
    return results


def replay(url: str, folder: Path, model: str, max_tokens: int | None = None) -> list[dict]:
    """Replay every recording below ``folder``; ``max_tokens`` caps each answer's length."""
    return [asdict(result) for result in asyncio.run(_replay(url, folder, model, max_tokens))]
