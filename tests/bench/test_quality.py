"""What ``bench quality`` reads, scores and hands to llama.cpp."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from agentspec.bench import perplexity, quality
from agentspec.bench.corpus import KINDS, Texts
from agentspec.bench.formats import Format, Scorer
from agentspec.bench.processes import ProcessFailed
from agentspec.bench.quality import Sums
from agentspec.bench.workloads import PROMPTS, BenchError
from agentspec.engine.batch import Forward, Span
from agentspec.engine.build import showing
from agentspec.engine.runner import Runner
from agentspec.engine.tokenizer import Tokenizer
from agentspec.settings import EngineSettings


def test_names_of_formats():
    assert Format.of("int8:avx2+ntk2.5") == Format("int8:avx2+ntk2.5", "int8", "avx2", "ntk", 2.5)
    assert Format.of("fp32+linear2").way == "linear" and Format.of("bf16").factor == 1.0
    for name in ("int4", "bf16:avx2", "int8+yarn2"):
        with pytest.raises(BenchError, match="no format"):
            Format.of(name)


class Reading:
    """A runner with a window of 8 that tells which tokens a row has before it."""

    page_tokens, context_tokens, vocab_size = 4, 8, 1

    def __init__(self) -> None:
        self.held: list[int] = []

    def forward(self, spans: list[Span]) -> Forward:
        (span,) = spans
        assert span.start <= len(self.held) and span.start + len(span.tokens) <= 8
        self.held = [*self.held[: span.start], *span.tokens]
        oldest = [float(self.held[0]) for _ in span.logit_rows]
        return Forward(torch.tensor(oldest)[:, None])


def test_a_long_text_loses_its_older_half():
    scorer, tokens = Scorer(Reading()), list(range(20))
    for _ in range(2):
        scorer.begin()
        pieces = [scorer.rows(tokens, i, i + 2)[:, 0].tolist() for i in range(0, 18, 2)]
        assert [p[0] for p in pieces] == [0, 0, 0, 0, 4, 4, 8, 8, 12]


def decoded(row: np.ndarray, vocab: int) -> np.ndarray:
    """Log probabilities of one row as llama.cpp reads them."""
    scale, smallest = struct.unpack("<ff", row[:4].tobytes())
    return scale * row[4 : 4 + vocab] + smallest


def test_reference_logits_as_llama_reads_them():
    vocab, file = 7, io.BytesIO()
    logits = np.random.default_rng(0).normal(0, 3, (4, vocab)).astype(np.float32)
    logits[0, 0] = -400
    perplexity.write_head(file, [(1, 2, 3), (4, 5, 6)], vocab)
    perplexity.write_rows(file, logits)
    data = file.getvalue()
    assert data[:8] == b"_logits_" and struct.unpack("<Iii", data[8:20]) == (3, vocab, 2)
    assert list(struct.unpack("<6i", data[20:44])) == [1, 2, 3, 4, 5, 6]
    rows = np.frombuffer(data[44:], np.uint16).reshape(4, 2 * 4 + 4)
    truth = torch.from_numpy(logits).double().log_softmax(-1).numpy()
    for row, wanted in zip(rows, truth, strict=True):
        near = wanted > wanted.max() - 15.9
        assert np.abs(decoded(row, vocab) - wanted)[near].max() < 3e-4
        assert (decoded(row, vocab)[~near] <= wanted.max() - 15.9).all()


def test_llamas_figures():
    text = """
    Mean PPL(Q)                   :   8.124000 ±   0.5
    Mean PPL(base)                :   8.000000 ±   0.5
    Mean    KLD:   0.004500 ±   0.000100
    Same top p: 97.250 ± 0.100 %"""
    assert perplexity.read(text) == perplexity.Judged(8.124, 8.0, 0.0045, 97.25)
    with pytest.raises(ProcessFailed, match="out of memory"):
        perplexity.read("out of memory")


def test_a_row_is_paired_with_the_reference():
    base = [Sums(10, 20.0, 10, 0.0), Sums(30, 30.0, 30, 0.0)]
    mine = [Sums(10, 21.0, 9, 0.1), Sums(30, 33.0, 28, 0.3)]
    row = quality.row("int8", "code", "all", mine, base)
    assert (row["tokens"], row["windows"], row["top1"]) == (40, 2, 37 / 40)
    assert (row["nll"], row["loss"]) == (pytest.approx(54 / 40), pytest.approx(0.1))
    assert row["kl"] == pytest.approx(0.01) and row["ci95"] == pytest.approx(0, abs=1e-12)


def test_parts_of_a_window():
    named = quality.parts(1024, [0, 512, 900])
    assert named["second half"] == range(512, 1023) and named["all"] == range(1023)
    assert [*named][2:] == ["0-512", "512-900", "900-1023"]
    assert [*quality.parts(64, [])] == ["all", "second half"]


@pytest.fixture(scope="module")
def texts(model_path: Path) -> Texts:
    tokenizer = Tokenizer.load(model_path)
    return Texts(tokenizer, showing(EngineSettings(), model_path, tokenizer))


@pytest.mark.model
def test_windows_are_whole_and_of_every_kind(texts: Texts):
    windows = texts.windows(4_000, 700, [])
    assert [w.kind for w in windows] == [kind for kind in KINDS for _ in range(2)]
    assert {len(w.tokens) for w in windows} == {700}
    assert len({w.tokens for w in windows}) == len(windows)


@pytest.mark.model
def test_tools_are_shown_as_an_engine_would_show_them(texts: Texts):
    def tool(name: str) -> dict:
        text = {"type": "string", "description": "what it is, at length. " * 40}
        parameters = {"type": "object", "properties": {"a": text, "b": text}}
        function = {"name": name, "description": "does. " * 200, "parameters": parameters}
        return {"type": "function", "function": function}

    tools = [tool(f"tool_{i}") for i in range(20)]
    shown = texts._render({"messages": [{"role": "user", "content": "go"}], "tools": tools})
    assert 100 < len(shown) < 8192 // 4  # in full they are more than the context


@pytest.mark.model
def test_files_are_cut_into_windows(texts: Texts, model_path: Path, tmp_path: Path):
    path = tmp_path / "human.jsonl"
    rows = [{"prompt": f"def f{i}():\n", "canonical_solution": "    return 1"} for i in range(99)]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    (tmp_path / "notes.txt").write_text("one two three " * 99)
    windows = texts.windows(200, 50, [path, tmp_path / "notes.txt"])
    assert [w.kind for w in windows] == ["human"] * 2 + ["notes"] * 2
    joined = [token for w in windows[:2] for token in w.tokens]
    assert Tokenizer.load(model_path).decode(joined).startswith("def f0():\n    return 1\ndef f1")
    with pytest.raises(BenchError, match="a window needs 900"):
        texts.windows(900, 900, [path.with_name("notes.txt")])


@pytest.mark.model
def test_the_whole_bench(model_path: Path, tmp_path: Path):
    """fp32's nll is that of one dense pass; int8 is near it."""
    path = tmp_path / "text.txt"
    path.write_text((PROMPTS / "files" / "inventory.py.txt").read_text())
    plan = quality.Plan(
        formats=["fp32", "int8"],
        tokens=150,
        window=150,
        buckets=[],
        files=[path],
        weights=str(model_path),
        threads=1,
        peers=tmp_path,
    )
    rows = {(r["format"], r["kind"], r["scored"]): r for r in quality.run(plan)["results"]}
    ids = Tokenizer.load(model_path).encode(path.read_text())[:150]
    settings = EngineSettings(dtype="fp32", threads=1, context_tokens=160, kv_tokens=160)
    span = Span(ids, 0, list(range(10)), list(range(149)))
    logits = Runner.load(settings, model_path).forward([span]).logits
    truth = torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:])).item()
    reference = rows["fp32", "text", "all"]
    assert reference["nll"] == pytest.approx(truth, abs=1e-4)
    assert (reference["loss"], reference["top1"], reference["tokens"]) == (0, 1, 149)
    ours = rows["int8", "text", "all"]
    assert abs(ours["loss"]) < 0.1 and 0.9 < ours["top1"] <= 1 and 0 < ours["kl"] < 0.05
    assert rows["int8", "all", "second half"]["tokens"] == 74


def test_a_missing_peer_is_named(tmp_path: Path):
    plan = SimpleNamespace(formats=["fp32", "llamacpp"], peers=tmp_path)
    with pytest.raises(BenchError, match="llama-perplexity is missing"):
        quality.run(plan)  # pyright: ignore[reportArgumentType]
