"""How measured runs become rows, and how each peer's own figures are read."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentspec.bench import cli, engines, llamacpp, report, transformers_peer
from agentspec.bench.processes import ProcessFailed
from agentspec.bench.workloads import BenchError, Case, Run

CASE = Case("c", "code", (1, 2, 3, 4), 64)


def run(tok_s: float | None, looped: bool = False, accepted: float = 1.0) -> Run:
    return Run(
        case="c",
        workload="code",
        out_tokens=9,
        tok_s=tok_s,
        prefill_tok_s=100.0,
        accepted_length=accepted,
        looped=looped,
    )


def plan(*arguments: str) -> engines.Plan:
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers())
    return engines.Plan.of(parser.parse_args(["bench", "engine", *arguments]))


def test_defaults_are_lists():
    one = plan()
    assert one.workloads == ["tool", "edit", "code", "chat", "edit-replay"]
    assert one.modes == ["plain", "speculative"]
    assert one.engines == ["agentspec", "llamacpp", "transformers"]
    assert (one.contexts, one.concurrency) == ([0], [1])
    more = plan("--concurrency", "1,16", "--contexts", "512,2048", "--n", "6")
    assert (more.contexts, more.concurrency, more.most) == ([512, 2048], [1, 16], 16)
    assert more.kv_tokens >= 16 * (2048 + more.max_tokens)


def test_loops_enter_no_median():
    row = engines.row("e", "plain", "plain", "code", [run(10), run(30), run(999, looped=True)])
    assert (row["tok_s"], row["n"], row["looped"]) == (20, 2, 1)
    assert row["spread"] == {"median": 20, "min": 10, "max": 30}


def test_nothing_but_loops_is_no_figure():
    row = engines.row("e", "plain", "plain", "code", [run(999, looped=True), run(None)])
    assert (row["tok_s"], row["accepted_length"], row["n"]) == (None, None, 0)


class Scripted:
    """An engine whose second variant is the faster one."""

    name = "scripted"

    def able(self, workload: str, concurrency: int) -> bool:
        return concurrency < 8

    def variants(self, mode: str) -> tuple[str, ...]:
        return ("plain",) if mode == "plain" else ("slow", "fast")

    def runs(self, cases, variant: str, concurrency: int) -> Iterator[Run]:
        rate = {"plain": 10.0, "slow": 5.0, "fast": 20.0}[variant]
        yield from (run(rate * concurrency) for _ in cases)


def test_a_peer_is_its_best_variant(capsys):
    wanted = plan("--workloads", "code", "--concurrency", "1,2,8")
    rows = list(engines._measure(Scripted(), wanted, [CASE, CASE]))
    assert len(rows) == 6
    found = {(r["mode"], r["concurrency"]): r for r in engines._compact(rows)}
    assert {key: r["tok_s"] for key, r in found.items()} == {
        ("plain", 1): 10,
        ("plain", 2): 20,
        ("speculative", 1): 20,
        ("speculative", 2): 40,
    }
    assert found["speculative", 1]["variant"] == "fast"
    assert "scripted fast code own x2: 40.0 tok/s" in capsys.readouterr().err


class Broken(Scripted):
    name = "broken"

    def runs(self, cases, variant: str, concurrency: int) -> Iterator[Run]:
        yield from super().runs(cases, variant, concurrency)
        if variant == "fast":
            raise ProcessFailed("no answer")


def test_a_peer_that_breaks_down_costs_its_own_rows_only():
    wanted = plan("--workloads", "code")
    rows, failed = engines._all([Broken(), Scripted()], wanted, [CASE])
    assert [row["variant"] for row in rows] == ["plain", "slow", "plain", "slow", "fast"]
    assert failed == {"broken": "no answer"}


def test_llama_servers_timings():
    answer = {
        "timings": {
            "predicted_n": 60,
            "predicted_per_second": 90.5,
            "prompt_per_second": 300.0,
            "draft_n": 50,
            "draft_n_accepted": 40,
        },
        "tokens": list(range(60)),
        "content": "text",
    }
    got = llamacpp._read(CASE, answer)
    assert (got.tok_s, got.prefill_tok_s, got.accepted_length) == (90.5, 300.0, 3.0)
    assert not got.looped


def test_contexts_are_rows_of_their_own():
    cases = [replace(CASE, context=length) for length in (512, 2048)]
    wanted = plan("--workloads", "code", "--contexts", "512,2048", "--modes", "plain")
    rows = list(engines._measure(Scripted(), wanted, cases))
    assert [(r["context"], len(r["runs"])) for r in rows] == [(512, 1), (2048, 1)]
    assert len(engines._compact(rows)) == 2


def test_total_is_over_the_wall():
    runs = [run(10), run(10)]
    runs[0].started_s, runs[0].ended_s = 100.0, 102.0
    runs[1].started_s, runs[1].ended_s = 101.0, 104.0
    assert engines.row("e", "plain", "plain", "code", runs)["total_tok_s"] == 18 / 4


def test_a_replaying_llama_is_asked_line_by_line(tmp_path: Path):
    """A stand-in for llama-replay: 2 s for the prompt, 1 s and 3 steps for the answer."""
    peer = tmp_path / "llama-replay"
    peer.write_text(
        f"#!{sys.executable}\nimport sys\n"
        "for line in sys.stdin:\n"
        "    n, m, *ids = map(int, line.split())\n"
        "    assert ids == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] and (n, m) == (4, 6)\n"
        "    print(2000000, 1000000, 3, m, flush=True)\n"
    )
    peer.chmod(0o755)
    llama = llamacpp.LlamaCpp(tmp_path / "llama-server", tmp_path / "m.gguf", 1)
    case = replace(CASE, workload="edit-replay", script=(5, 6, 7, 8, 9, 10))
    (got,) = llama.runs([case], "ngram-mod", 1)
    assert (got.tok_s, got.prefill_tok_s, got.accepted_length) == (6.0, 2.0, 2.0)
    assert llama.able("edit-replay", 1) and not llama.able("edit-replay", 4)
    assert llama.able("edit", 4)


def test_transformers_clock():
    """5 passes, 3 tokens in the first (with the prompt) and 8 after it, in 4 seconds."""
    answer = {"tokens": list(range(11)), "first": 3, "times_s": [2, 3, 4, 5, 6], "text": ""}
    got = transformers_peer._read(CASE, answer)
    assert (got.tok_s, got.prefill_tok_s, got.accepted_length) == (2.0, 2.0, 2.0)


def test_a_missing_peer_is_named(tmp_path: Path):
    with pytest.raises(BenchError, match="peers.sh"):
        engines.peers(plan("--peers", str(tmp_path)), tmp_path)
    with pytest.raises(BenchError, match="no engine 'vllm'"):
        engines.peers(plan("--engines", "vllm"), tmp_path)


def test_documents_say_where_they_come_from(tmp_path: Path):
    report.write(tmp_path / "f.json", report.build([{"a": 1}], versions={"peer": "9"}, more=2))
    document = json.loads((tmp_path / "f.json").read_text())
    assert document["results"] == [{"a": 1}] and document["more"] == 2
    assert document["machine"]["cores"] >= 1 and document["machine"]["cpu"]
    assert document["versions"]["peer"] == "9" and document["versions"]["agentspec"]
    assert {"commit", "command"} <= set(document)


def test_table():
    text = report.table([{"a": 1.234, "b": None}, {"a": "long word", "b": 2}], ["a", "b"])
    assert text == "a          b\n1.23       -\nlong word  2\n"


def test_a_worker_that_dies_says_why(tmp_path: Path):
    """The peers' interpreter without transformers: its own words are in the error."""
    peer = transformers_peer.Transformers(Path(sys.executable), tmp_path / "no.gguf", 1)
    with pytest.raises(ProcessFailed, match="No module named 'transformers'"):
        list(peer.runs([CASE], "plain", 1))


def test_a_peer_does_not_see_our_python_path(tmp_path: Path, monkeypatch):
    # A checkout on the path holds kernels/, a name that transformers asks for.
    (tmp_path / "transformers.py").write_text("raise ImportError('the path of this process')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    peer = transformers_peer.Transformers(Path(sys.executable), tmp_path / "no.gguf", 1)
    with pytest.raises(ProcessFailed) as told:
        list(peer.runs([CASE], "plain", 1))
    assert "the path of this process" not in str(told.value)
