"""The runner's paged, chunked and batched forward pass against one dense pass in float64."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.engine.batch import Span
from agentspec.engine.runner import Runner
from agentspec.settings import EngineSettings
from tests.engine.model.tiny import Shape, dense, random_weights, write_folder

SHAPE = Shape()
PAGE = 4
TOLERANCE = 1e-10


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("tiny"), SHAPE, random_weights(SHAPE))


def load(folder: Path, dtype: str = "fp64", **options) -> Runner:
    settings = EngineSettings(
        dtype=dtype,  # pyright: ignore[reportArgumentType]
        threads=1,
        page_tokens=PAGE,
        kv_tokens=PAGE * 64,
        context_tokens=SHAPE.context,
    )
    return Runner.load(settings, folder, **options)


@pytest.fixture(scope="module")
def runner(folder: Path) -> Runner:
    return load(folder)


def text(length: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(SHAPE.vocab) for _ in range(length)]


def close(found: torch.Tensor, truth: torch.Tensor, tolerance: float = TOLERANCE) -> None:
    torch.testing.assert_close(found.double(), truth, rtol=tolerance, atol=tolerance)


def test_what_a_runner_says_about_itself(runner: Runner) -> None:
    assert (runner.vocab_size, runner.page_tokens, runner.num_pages) == (SHAPE.vocab, PAGE, 64)
    assert runner.context_tokens == SHAPE.context
    assert runner.exact is False
    assert runner.device.type == "cpu"


@pytest.mark.parametrize("length", (1, PAGE - 1, PAGE, PAGE + 1, 23))
def test_one_prompt_equals_the_dense_pass(runner: Runner, length: int) -> None:
    tokens = text(length)
    logits, _ = dense(SHAPE, random_weights(SHAPE), tokens)
    found = runner.forward([Span(tokens, 0, list(range(60)), list(range(length)))])
    assert found.logits.dtype == torch.float64
    assert found.features is None
    close(found.logits, logits)


@settings(max_examples=25)
@given(st.lists(st.integers(1, 19), min_size=1, max_size=3), st.integers(0, 10**6))
def test_any_chunking_batching_and_paging_equals_the_dense_pass(
    runner: Runner, lengths: list[int], seed: int
) -> None:
    """Sequences advance by random chunks, several at once, in random pages."""
    rng = random.Random(seed)
    texts = [text(length, i) for i, length in enumerate(lengths)]
    pool = rng.sample(range(runner.num_pages), runner.num_pages)
    tables = [pool[i :: len(texts)] for i in range(len(texts))]
    truth = [dense(SHAPE, random_weights(SHAPE), tokens)[0] for tokens in texts]
    done = [0] * len(texts)
    while any(d < len(t) for d, t in zip(done, texts, strict=True)):
        spans, expected = [], []
        for i in rng.sample(range(len(texts)), len(texts)):
            rows = min(rng.randint(0, 7), len(texts[i]) - done[i])
            if rows == 0:
                continue
            wanted = sorted(rng.sample(range(rows), rng.randint(0, rows)))
            chunk = texts[i][done[i] : done[i] + rows]
            spans.append(Span(chunk, done[i], tables[i], wanted))
            expected.extend(truth[i][done[i] + row] for row in wanted)
            done[i] += rows
        if spans:
            found = runner.forward(spans).logits
            assert found.shape == (len(expected), SHAPE.vocab)
            if expected:
                close(found, torch.stack(expected))


def test_a_rejected_draft_leaves_no_trace(runner: Runner) -> None:
    """Rows that are written and then written over don't reach later logits."""
    tokens, pages = text(12), list(range(3, 10))
    truth, _ = dense(SHAPE, random_weights(SHAPE), tokens)
    runner.forward([Span(tokens[:6] + [1, 2, 3, 4, 5], 0, pages)])
    found = runner.forward([Span(tokens[6:], 6, pages, [5])])
    close(found.logits, truth[11:])


def test_taps_are_the_outputs_of_the_listed_layers(folder: Path) -> None:
    runner = load(folder, taps=(2, 0))
    tokens = text(9)
    _, outputs = dense(SHAPE, random_weights(SHAPE), tokens)
    found = runner.forward([Span(tokens, 0, list(range(9)), [8])])
    assert found.features is not None
    close(found.features, torch.cat((outputs[2], outputs[0]), -1))
    assert found.logits.shape == (1, SHAPE.vocab)


@pytest.mark.parametrize(("dtype", "tolerance"), (("fp32", 1e-4), ("bf16", 0.25)))
def test_narrow_dtypes_give_float32_logits_near_the_truth(
    folder: Path, dtype: str, tolerance: float
) -> None:
    tokens = text(21)
    truth, _ = dense(SHAPE, random_weights(SHAPE), tokens)
    runner = load(folder, dtype)
    found = runner.forward([Span(tokens, 0, list(range(9)), list(range(21)))]).logits
    assert found.dtype == torch.float32
    assert (found.double() - truth).abs().mean() < tolerance * truth.std()


def test_an_untied_head_is_used(tmp_path: Path) -> None:
    shape = Shape(tied=False)
    weights = random_weights(shape)
    runner = load(write_folder(tmp_path / "untied", shape, weights))
    truth, _ = dense(shape, weights, [3, 1, 4])
    close(runner.forward([Span([3, 1, 4], 0, [0], [0, 1, 2])]).logits, truth)


def test_logits_of_the_step_can_be_changed_in_place(runner: Runner) -> None:
    logits = runner.forward([Span([1], 0, [0], [0])]).logits
    assert torch.equal(logits.clone().add_(1), logits.add_(1))


def test_the_context_is_what_settings_model_and_pool_allow(folder: Path) -> None:
    small = EngineSettings(dtype="fp32", threads=1, kv_tokens=40, page_tokens=PAGE)
    assert Runner.load(small, folder).context_tokens == 40
    large = EngineSettings(dtype="fp32", threads=1, kv_tokens=400, page_tokens=PAGE)
    assert Runner.load(large, folder).context_tokens == SHAPE.context


@pytest.mark.parametrize("path", [(0, 1), (0, 2, 4), (3, 6, 7)])
def test_a_tree_of_drafts_equals_the_dense_pass_of_each_path(runner: Runner, path) -> None:
    tree, prompt, drafted, pages = (-1, 0, 0, -1, 2, 2, 3, 6), text(9), text(8, 1), [5, 3, 8, 1, 0]
    runner.forward([Span(prompt[:7], 0, pages)])
    found = runner.forward([Span([*prompt[7:], *drafted], 7, pages, list(range(10)), tree)]).logits
    spelled = [*prompt, *(drafted[node] for node in path)]
    truth, _ = dense(SHAPE, random_weights(SHAPE), [*spelled, 7])
    close(found[[0, 1, *(2 + node for node in path)]], truth[7:-1])
    runner.compact(pages, [(9 + node, 9 + i) for i, node in enumerate(path) if node != i])
    close(runner.forward([Span([7], len(spelled), pages, [0])]).logits[0], truth[-1])
