"""The exact runner: close to the float model it stands for, and the same bits in any company."""

import json

import numpy as np
import pytest
import torch
from agentspec_kernels._cpu import build
from agentspec_kernels._cpu.program import PAGE
from safetensors.torch import save_file

from agentspec.engine.batch import Span
from agentspec.engine.exact_runner import ExactRunner
from agentspec.engine.model.errors import UnsupportedModel
from agentspec.engine.runner import Runner
from agentspec.engine.runners import open_runner
from agentspec.settings import EXACT_PAGE_TOKENS, EngineSettings

LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, DIM, VOCAB = 2, 96, 160, 6, 2, 32, 64
ISAS = [isa for isa in build.ISA_FLAGS if build.runs_here(isa)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny random Llama as a safetensors folder."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("tiny")
    shapes = {"model.embed_tokens": (VOCAB, HIDDEN), "lm_head": (VOCAB, HIDDEN)}
    for index in range(LAYERS):
        prefix = f"model.layers.{index}."
        shapes |= {
            f"{prefix}self_attn.q_proj": (HEADS * DIM, HIDDEN),
            f"{prefix}self_attn.k_proj": (KV_HEADS * DIM, HIDDEN),
            f"{prefix}self_attn.v_proj": (KV_HEADS * DIM, HIDDEN),
            f"{prefix}self_attn.o_proj": (HIDDEN, HEADS * DIM),
            f"{prefix}mlp.gate_proj": (FFN, HIDDEN),
            f"{prefix}mlp.up_proj": (FFN, HIDDEN),
            f"{prefix}mlp.down_proj": (HIDDEN, FFN),
        }
    tensors = {f"{name}.weight": torch.randn(shape) * 0.15 for name, shape in shapes.items()}
    norms = [
        f"model.layers.{i}.{n}_layernorm.weight"
        for i in range(LAYERS)
        for n in ("input", "post_attention")
    ]
    tensors |= {name: 1 + 0.1 * torch.randn(HIDDEN) for name in [*norms, "model.norm.weight"]}
    save_file(tensors, path / "model.safetensors")
    config = {
        "model_type": "llama",
        "num_hidden_layers": LAYERS,
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": DIM,
        "vocab_size": VOCAB,
        "max_position_embeddings": 2048,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
    }
    (path / "config.json").write_text(json.dumps(config))
    return path


SETTINGS = EngineSettings(kv_tokens=4096, context_tokens=2048, threads=2)


@pytest.fixture(scope="module", params=ISAS)
def runner(request, folder):
    return ExactRunner.load(SETTINGS, folder, isa=request.param, taps=(0, 1))


def tokens(count: int, seed: int = 1) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCAB, count).tolist()


def in_chunks(runner, ids, sizes, pages):
    """Logits of the last token when ``ids`` are computed in pieces of the given sizes."""
    start, logits = 0, torch.zeros(1, VOCAB)
    for size in sizes:
        piece = ids[start : start + size]
        logits = runner.forward([Span(piece, start, pages, [len(piece) - 1])]).logits.clone()
        start += size
    assert start == len(ids)
    return logits[0]


def test_logits_and_features_are_close_to_the_float_model(folder, runner):
    plain = Runner.load(
        EngineSettings(dtype="fp32", kv_tokens=4096, context_tokens=2048, threads=1),
        folder,
        taps=(0, 1),
    )
    ids, pages = tokens(300), list(range(20))
    spans = [Span(ids, 0, pages, [0, 17, 299])]
    expected, ours = plain.forward(spans), runner.forward(spans)
    cosine = torch.nn.functional.cosine_similarity
    assert cosine(ours.logits, expected.logits).min() > 0.99
    assert ours.features is not None and expected.features is not None
    assert cosine(ours.features, expected.features).min() > 0.97


@pytest.mark.parametrize("length", [1, 16, 17, 255, 257, 530])
def test_chunks_change_no_bit(runner, length):
    ids, pages = tokens(length), list(range(40))
    whole = in_chunks(runner, ids, [length], pages)
    ways = [[1] * length] if length < 60 else []
    for size in (7, 16, 33):
        ways.append([size] * (length // size) + ([length % size] if length % size else []))
    for sizes in ways:
        assert torch.equal(in_chunks(runner, ids, sizes, pages[::-1]), whole)


@pytest.mark.parametrize("drafts", [1, 3, 8, 16])
def test_verified_rows_equal_plain_decoding_and_ignore_their_company(runner, drafts):
    ids, pages = tokens(300 + drafts), list(range(30))
    plain = []
    runner.forward([Span(ids[:300], 0, pages)])
    for at in range(300, 300 + drafts):
        plain.append(runner.forward([Span([ids[at]], at, pages, [0])]).logits[0].clone())
    other, other_pages = tokens(400, seed=9), list(range(40, 70))
    runner.forward([Span(other[:90], 0, other_pages)])
    together = runner.forward(
        [
            Span(other[90:217], 90, other_pages, [5, 126]),
            Span(ids[300:], 300, pages, list(range(drafts))),
            Span(other[:3], 0, list(range(80, 82)), [2]),
        ]
    ).logits[2 : 2 + drafts]
    assert torch.equal(together, torch.stack(plain))


TREE = (-1, 0, 0, -1, 2, 2, 3, 6)
"""Paths 0 1, 0 2 4, 0 2 5 and 3 6 7."""


@pytest.mark.parametrize("start", [0, 37, 250])
@pytest.mark.parametrize("path", [(0, 1), (0, 2, 4), (0, 2, 5), (3, 6, 7)])
def test_a_trees_rows_and_what_follows_equal_a_chains(runner, start, path):
    """Logits, features and, after the path's K/V was moved, those of the tokens behind it."""
    ids, pages, after = tokens(start + 5), list(range(30)), tokens(3, seed=4)
    drafted = tokens(len(TREE), seed=3)
    spelled = [drafted[node] for node in path]
    if start:
        runner.forward([Span(ids[:start], 0, pages)])
    rows = list(range(5 + len(path)))
    chain = runner.forward([Span([*ids[start:], *spelled], start, pages, rows)])
    expected, features = chain.logits[4:].clone(), chain.features[4:].clone()
    follow = Span(after, len(ids) + len(path), pages, [0, 1, 2])
    behind = runner.forward([follow]).logits.clone()

    if start:
        runner.forward([Span(ids[:start], 0, pages)])
    other, other_pages = tokens(40, seed=9), list(range(40, 50))
    span = Span([*ids[start:], *drafted], start, pages, list(range(4, 5 + len(TREE))), TREE)
    found = runner.forward([Span(other, 0, other_pages, [3]), span])
    where = [0, *(1 + node for node in path)]
    assert torch.equal(found.logits[1:][where], expected)
    assert torch.equal(found.features[len(other) + 4 :][where], features)
    moves = [(len(ids) + node, len(ids) + i) for i, node in enumerate(path) if node != i]
    runner.compact(pages, moves)
    assert torch.equal(runner.forward([follow]).logits, behind)


def test_a_rejected_draft_leaves_no_trace(runner):
    ids, pages = tokens(50), list(range(10))
    clean = in_chunks(runner, ids, [50], pages)
    runner.forward([Span(ids[:40], 0, pages)])
    runner.forward([Span([1, 2, 3, 4, 5, 6, 7], 40, pages, list(range(7)))])
    assert torch.equal(runner.forward([Span(ids[40:], 40, pages, [9])]).logits[0], clean)


def test_a_pass_without_wanted_rows_and_a_pass_larger_than_the_first_buffers(runner):
    pages = list(range(100))
    assert runner.forward([Span(tokens(5), 0, pages)]).logits.shape == (0, VOCAB)
    rows = list(range(700))
    assert runner.forward([Span(tokens(700), 0, pages, rows)]).logits.shape == (700, VOCAB)


def test_what_the_kernels_cannot_run_is_refused(folder):
    with pytest.raises(UnsupportedModel, match="page_tokens"):
        ExactRunner.load(EngineSettings(page_tokens=32), folder)


def test_the_settings_know_the_kernels_page():
    assert EXACT_PAGE_TOKENS == PAGE


def test_other_pages_lose_the_exact_kernels_with_a_warning(folder, caplog):
    open_runner(EngineSettings(page_tokens=32, kv_tokens=4096, context_tokens=2048), folder)
    assert "need engine.page_tokens = 16" in caplog.text and "not exact" in caplog.text
