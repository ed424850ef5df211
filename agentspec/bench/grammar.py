"""Constrained decoding on real schemas: this project's path beside three grammar engines.

Every schema comes with instances that are valid and such that are not. A schema is right where an
engine takes it, accepts every valid instance and no other. "Accepts" means for agentspec what a
client meets: the schema passes the request's rules and compiles for serving, the mask of the
checked language admits the text, and the check of the finished value passes. The peers have their
masks. Each engine sits in a process of its own (xgrammar in the peers' environment) that is ended
where a schema takes it longer than the limit; that counts as refused.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import report
from .stats import percentile

WORKER = Path(__file__).with_name("grammar_worker.py")
COLUMNS = [
    *("engine", "schemas", "right", "refused", "timeouts", "invalid_accepted", "valid_rejected"),
    *("compile_p50_us", "compile_p99_us", "mask_p50_us", "mask_p99_us"),
    *("apply_p50_us", "apply_p99_us"),
]
_START_S = 120.0
_TEXTS_S = 20.0


@dataclass(frozen=True, slots=True)
class Case:
    """One schema. tests: (JSON text of an instance, whether it is valid)."""

    id: str
    schema: Any
    tests: list[tuple[str, bool]]


@dataclass(slots=True)
class Outcome:
    """What one engine made of one case. verdicts: accepted or not, for each test."""

    case: Case
    refused: str | None = None
    timeout: bool = False
    verdicts: list[bool] = field(default_factory=list)
    compile_us: float | None = None
    mask_us: list[float] = field(default_factory=list)
    apply_us: list[float] = field(default_factory=list)

    def wrong(self, valid: bool) -> int:
        """Instances of that kind which were judged wrongly."""
        pairs = zip(self.case.tests, self.verdicts, strict=False)
        return sum(truth == valid and got != truth for (_, truth), got in pairs)

    @property
    def right(self) -> bool:
        return self.refused is None and not self.wrong(True) and not self.wrong(False)


def load(folder: Path, count: int | None) -> list[Case]:
    """Cases of all ``*.jsonl[.gz]`` files with ``{id, schema, tests: [{valid, data}]}`` lines."""
    cases = []
    for path in sorted([*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz")]):
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt") as lines:
            cases += [_case(json.loads(line)) for line in lines]
    if not count or count >= len(cases):
        return cases
    step = len(cases) / count
    return [cases[int(i * step)] for i in range(count)]


def _case(held: dict[str, Any]) -> Case:
    tests = [(json.dumps(t["data"], ensure_ascii=False), t["valid"]) for t in held["tests"]]
    return Case(held["id"], held["schema"], tests)


def write_vocabulary(folder: Path, tokenizer: Any) -> None:
    """What ``grammar_worker.py`` reads. tokenizer: the engine's ``Tokenizer``."""
    held = {
        "tokenizer": tokenizer.hf.to_str(),
        "pieces": [base64.b64encode(piece).decode() for piece in tokenizer.token_bytes],
        "eos": sorted(tokenizer.eos_ids),
        "special": sorted(tokenizer.special_ids),
        "size": tokenizer.vocab_size,
    }
    (folder / "vocabulary.json").write_text(json.dumps(held))


class Worker:
    """A process of ``grammar_worker.py``; it starts what was too slow anew (a fork, so at once)."""

    def __init__(self, python: str, engine: str, folder: Path, limit_s: float):
        self._command = [python, "-P", str(WORKER), engine, str(folder)]
        self._limit_s = limit_s
        self._process: subprocess.Popen[bytes] | None = None

    def judge(self, case: Case) -> Outcome:
        """Ask for one case. Raises ``ChildProcessError`` where the engine cannot start."""
        if self._process is None:
            self._start()
        outcome = Outcome(case)
        self._send({"schema": case.schema, "texts": [text for text, _ in case.tests]})
        told = self._read(self._limit_s)
        if told is None:
            outcome.refused, outcome.timeout = f"longer than {self._limit_s} s", True
        elif "refused" in told:
            outcome.refused = told["refused"]
        else:
            outcome.compile_us = told["compiled"]
            made = self._read(_TEXTS_S)
            if made is None:
                outcome.refused, outcome.timeout = "its masks take too long", True
            else:
                outcome.verdicts = made["accepted"]
                outcome.mask_us, outcome.apply_us = made["mask_us"], made["apply_us"]
        return outcome

    def close(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
            self._process = None

    def _start(self) -> None:
        pipe = subprocess.PIPE
        with tempfile.TemporaryFile() as said:
            self._process = subprocess.Popen(
                self._command,
                stdin=pipe,
                stdout=pipe,
                stderr=said,
                bufsize=0,
                start_new_session=True,
            )
            if self._line(_START_S) is None:
                self.close()
                said.seek(0)
                why = said.read().decode(errors="replace").strip()[-500:]
                raise ChildProcessError(f"the engine did not start: {why or 'it is too slow'}")

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    def _read(self, limit_s: float) -> dict[str, Any] | None:
        """What it tells of the case; None where it died of it, or was too slow and is anew."""
        told = self._line(limit_s)
        if told is None:
            assert self._process is not None
            self._process.send_signal(signal.SIGUSR1)
            while (late := self._line(_START_S)) is not None and "ready" not in late:
                pass  # it was done just now
            if late is None:
                self.close()
        return None if told is None or "ready" in told else told

    def _line(self, limit_s: float) -> dict[str, Any] | None:
        """The next line; None where none came in time."""
        assert self._process is not None and self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], limit_s)
        line = self._process.stdout.readline() if ready else b""
        return json.loads(line) if line else None


def judged(worker: Worker, cases: Seq[Case], name: str) -> Iterator[Outcome]:
    """Every case's outcome, with progress on standard error."""
    try:
        for i, case in enumerate(cases):
            yield worker.judge(case)
            if (i + 1) % 100 == 0 or i + 1 == len(cases):
                report.progress(f"{name}: {i + 1} of {len(cases)} schemas")
    finally:
        worker.close()


def summary(name: str, outcomes: Seq[Outcome]) -> dict[str, Any]:
    """One row of the results."""
    row: dict[str, Any] = {
        "engine": name,
        "schemas": len(outcomes),
        "right": sum(o.right for o in outcomes),
        "refused": sum(o.refused is not None for o in outcomes),
        "timeouts": sum(o.timeout for o in outcomes),
        "invalid_accepted": sum(o.wrong(False) for o in outcomes),
        "valid_rejected": sum(o.wrong(True) for o in outcomes),
    }
    times = {
        "compile": [o.compile_us for o in outcomes if o.compile_us is not None],
        "mask": [us for o in outcomes for us in o.mask_us],
        "apply": [us for o in outcomes for us in o.apply_us],
    }
    for what, values in times.items():
        for share in (50, 99):
            row[f"{what}_p{share}_us"] = percentile(values, share) if values else None
    return row


def _slowest(outcomes: Seq[Outcome]) -> list[dict[str, Any]]:
    """The cases with the slowest single masks."""
    most = sorted((o for o in outcomes if o.mask_us), key=lambda o: -max(o.mask_us))[:5]
    return [{"id": o.case.id, "mask_us": max(o.mask_us)} for o in most]


def failures(name: str, outcomes: Seq[Outcome]) -> dict[str, Any]:
    """Which cases are not right, and why, for who wants to mend them."""
    wrong = [o for o in outcomes if not o.right]
    return {
        "engine": name,
        "slowest_masks": _slowest(outcomes),
        "reasons": Counter((o.refused or "judged wrongly")[:80] for o in wrong).most_common(20),
        "cases": [
            {
                "id": o.case.id,
                "refused": o.refused,
                "invalid_accepted": o.wrong(False),
                "valid_rejected": o.wrong(True),
            }
            for o in wrong
        ],
    }


def run(
    data: Path, engines: Seq[str], count: int | None, limit_s: float, peers: Path
) -> dict[str, Any]:
    """The whole bench. ``peers``: what scripts/peers.sh made; without it xgrammar is left out."""
    from agentspec.engine.model.fetch import fetch
    from agentspec.engine.tokenizer import Tokenizer

    cases = load(data, count)
    rows, details = [], []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_vocabulary(folder, Tokenizer.load(fetch()))
        for name in engines:
            python = peers / "venv/bin/python" if name == "xgrammar" else Path(sys.executable)
            if not python.exists():
                report.progress(f"{name}: left out, no {python} (scripts/peers.sh makes it)")
                continue
            worker = Worker(str(python), name, folder, limit_s)
            try:
                outcomes = list(judged(worker, cases, name))
            except ChildProcessError as error:
                if name == "agentspec" or not rows:
                    raise
                report.progress(f"{name}: left out, {error}")
                continue
            rows.append(summary(name, outcomes))
            details.append(failures(name, outcomes))
    return report.build(rows, failures=details)
