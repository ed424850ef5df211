"""EAGLE-3 and MTP drafts: parity with a slow version, layouts, refusals, rows in their place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from agentspec.engine.batch import Span
from agentspec.engine.draft.base import DraftView, Observed
from agentspec.engine.draft.errors import DraftMismatch, UnsupportedDraft
from agentspec.engine.draft.load_steps import load_steps
from agentspec.engine.draft.step_config import is_step_draft, step_config
from agentspec.engine.draft.steps import StepDrafter
from agentspec.engine.draft.target import TargetFacts
from agentspec.engine.exact_runner import ExactRunner, Unavailable
from agentspec.engine.model.errors import WeightsError
from agentspec.engine.model.weights import open_checkpoint
from agentspec.engine.runner import Runner
from agentspec.engine.sampling import SamplingParams
from agentspec.engine.train.export import Draft, read_draft, write_deepspec, write_speculators
from agentspec.engine.train.nets import build_net
from agentspec.engine.train.spec import DraftSpec, TargetId
from agentspec.settings import EngineSettings
from tests.engine.draft import blockworld as world
from tests.engine.draft import stepworld
from tests.engine.draft.stepworld import SlowSteps

LENGTH, COUNT = 37, 5
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "eagle3": ("eagle3", {}),
    "eagle3 qwen3": ("eagle3", {"kind": "qwen3"}),
    "eagle3 normed": ("eagle3", {"norm_before_residual": True, "norm_output": True}),
    "eagle3 own vocabulary": ("eagle3", {"draft_vocab_size": 48}),
    "mtp": ("mtp", {}),
    "mtp qwen3": ("mtp", {"kind": "qwen3"}),
}


def settings(dtype: str) -> EngineSettings:
    return EngineSettings(dtype=dtype, kv_tokens=512, context_tokens=256, threads=1, page_tokens=16)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return world.write_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module", params=["torch", "int8"])
def runner(request, target):
    if request.param == "torch":
        return Runner.load(settings("fp32"), target)
    try:
        return ExactRunner.load(settings("int8"), target)
    except Unavailable as error:
        pytest.skip(str(error))


def weights(method: str, raw: dict[str, Any]) -> dict[str, torch.Tensor]:
    found = stepworld.tensors(method, raw["model_type"])
    if "draft_vocab_size" in raw:
        found |= stepworld.own_vocabulary(raw["draft_vocab_size"])
    return found


def load(path, runner, **options) -> StepDrafter:
    facts = TargetFacts(config=runner.model.config, format="fp32")
    return load_steps(path, runner, facts, **{"min_survival": 0.0, **options})


def text(length: int = LENGTH, seed: int = 5) -> list[int]:
    return np.random.default_rng(seed).integers(0, world.VOCAB, length).tolist()


def slow_version(target, raw, found) -> SlowSteps:
    checkpoint = open_checkpoint(target)
    names = ("model.embed_tokens.weight", "lm_head.weight", "model.norm.weight")
    return SlowSteps(raw, found, *(checkpoint.read(name) for name in names))


def features_of(runner, taps, ids, pages) -> torch.Tensor:
    runner.set_taps(taps)
    features = runner.forward([Span(list(ids), 0, pages, [len(ids) - 1])]).features
    assert features is not None
    return features.float().clone()


def view_of(ids, pages, runner, **params) -> DraftView:
    sampling = SamplingParams(**({"temperature": 0.0} | params))
    view = DraftView(1, "scope", None, list(ids), len(ids), sampling)
    view.pages, view.page_epochs = pages, [1] * runner.num_pages
    return view


def opened(drafter: StepDrafter, view: DraftView) -> None:
    """Opened as a sequence that has no pages yet, as the engine does it."""
    pages, view.pages = view.pages, []
    drafter.open(view)
    view.pages = pages


@pytest.mark.parametrize("unknown", [0, 3])
@pytest.mark.parametrize("name", KINDS)
def test_tokens_and_probabilities_are_the_slow_versions(name, unknown, runner, target, tmp_path):
    """unknown: committed tokens that have no features yet beside the last one."""
    method, changes = KINDS[name]
    raw = stepworld.config(method, **changes)
    found = weights(method, raw)
    drafter = load(world.write_draft(tmp_path, raw, found), runner)
    ids, pages = text(), [4, 1, 3, 9]
    known = LENGTH - 1 - unknown
    features = features_of(runner, drafter.taps, ids, pages)[:known]
    slow = slow_version(target, raw, found)
    tokens, logits = slow.greedy(features, ids, COUNT)
    view = view_of(ids, pages, runner, temperature=1.0)
    opened(drafter, view)
    for first, last in ((0, 20), (20, known)):
        drafter.observe([Observed(view, first, features[first:last])])
    exact = isinstance(runner, ExactRunner)
    dense = drafter.propose([view], [1])[0].draft_probs
    assert dense is not None
    truth = logits[0].softmax(0)
    assert float((dense[0] - truth).abs().sum()) < (0.2 if exact else 1e-4)
    view.sampling = SamplingParams(temperature=0.0)
    greedy = drafter.propose([view], [COUNT])[0]
    assert len(greedy) == COUNT and drafter.propose([view], [COUNT])[0] == greedy
    if not exact:
        probs = logits.softmax(1).max(1).values.tolist()
        assert greedy.tokens == tuple(tokens)
        assert greedy.confidence == pytest.approx(probs, abs=1e-4)


@pytest.mark.parametrize("method", ["eagle3", "mtp"])
def test_company_changes_nothing(method, runner, tmp_path):
    raw = stepworld.config(method)
    drafter = load(world.write_draft(tmp_path, raw, weights(method, raw)), runner)
    views, tables = [], [[4, 1, 3], [0, 2, 5], [6, 7, 8]]
    for number, pages in enumerate(tables):
        ids = text(20 + 7 * number, seed=number)
        view = view_of(ids, pages, runner, temperature=0.8)
        view.sequence_id = number
        features = features_of(runner, drafter.taps, ids, pages)
        opened(drafter, view)
        drafter.observe([Observed(view, 0, features[:-1])])
        views.append(view)
    together = drafter.propose(views, [5, 3, 4])
    for view, limit, proposal in zip(views, [5, 3, 4], together, strict=True):
        alone = drafter.propose([view], [limit])[0]
        assert alone.tokens == proposal.tokens and len(alone) == limit
        torch.testing.assert_close(alone.draft_probs, proposal.draft_probs)
        if isinstance(runner, ExactRunner):
            assert torch.equal(alone.draft_probs, proposal.draft_probs)


@pytest.mark.parametrize("shift", [0, 1])
def test_a_row_out_of_its_place_drafts_something_else(shift, runner, target, tmp_path):
    """An anchor one position off, and taps one layer off, are not what the slow version says."""
    raw = stepworld.config("eagle3")
    found = weights("eagle3", raw)
    drafter = load(world.write_draft(tmp_path, raw, found), runner)
    ids, pages = text(), [4, 1, 3, 9]
    taps = drafter.taps if shift else tuple(tap + 1 for tap in drafter.taps)
    right = features_of(runner, drafter.taps, ids, pages)[:-1]
    wrong = features_of(runner, taps, ids, pages)[:-1]
    tokens, logits = slow_version(target, raw, found).greedy(right, ids, COUNT)
    view = view_of(ids, pages, runner)
    opened(drafter, view)
    drafter.observe([Observed(view, shift * 16, wrong[: len(wrong) - shift * 16])])
    proposals = drafter.propose([view], [COUNT])[0]
    probs = logits.softmax(1).max(1).values.tolist()
    same = proposals.tokens == tuple(tokens)
    assert not (same and proposals.confidence == pytest.approx(probs, abs=0.01))


def layouts() -> dict[str, tuple[dict[str, Any], dict[str, torch.Tensor]]]:
    """The same draft in every layout."""
    found = stepworld.tensors("eagle3") | stepworld.own_vocabulary(48)
    deepspec = stepworld.config("eagle3", draft_vocab_size=48)
    shape = world.shape(layers=1)
    speculators = {
        "speculators_model_type": "eagle3",
        "architectures": ["Eagle3DraftModel"],
        "speculators_config": {"proposal_methods": [{"speculative_tokens": 5}]},
        "transformer_layer_config": shape,
        "draft_vocab_size": 48,
        "norm_before_residual": False,
        "eagle_aux_hidden_state_layer_ids": [1, 3],
        "target_hidden_size": world.HIDDEN,
    }
    specforge = shape | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": 48,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 2]},
    }
    renamed = {name.replace("layers.0.", "midlayer."): t for name, t in found.items()}
    return {
        "deepspec": (deepspec, found),
        "speculators": (speculators, {f"model.{name}": t for name, t in found.items()}),
        "specforge": (specforge, renamed),
    }


def test_every_layout_gives_the_same_draft(runner, tmp_path):
    ids, pages = text(), [4, 1, 3, 9]
    proposals = []
    for name, (raw, found) in layouts().items():
        drafter = load(world.write_draft(tmp_path / name, raw, found), runner)
        assert drafter.taps == (0, 2) and drafter.name == "eagle3"
        features = features_of(runner, drafter.taps, ids, pages)[:-1]
        view = view_of(ids, pages, runner)
        opened(drafter, view)
        drafter.observe([Observed(view, 0, features)])
        proposals.append(drafter.propose([view], [COUNT])[0])
    for proposal in proposals[1:]:
        assert proposal.tokens == proposals[0].tokens
        assert proposal.confidence == pytest.approx(proposals[0].confidence, abs=1e-5)
    ids = torch.arange(48) + layouts()["deepspec"][1]["d2t"]
    assert set(proposals[0].tokens) <= set(ids.tolist())


def test_int8_on_disk_is_nearly_the_same_draft(runner, tmp_path):
    raw, found = stepworld.config("mtp"), stepworld.tensors("mtp")
    ids, pages, confidences = text(), [4, 1, 3, 9], []
    for number, form in enumerate((found, world.int8(found))):
        drafter = load(world.write_draft(tmp_path / str(number), raw, form), runner)
        view = view_of(ids, pages, runner)
        opened(drafter, view)
        drafter.observe([Observed(view, 0, features_of(runner, drafter.taps, ids, pages)[:-1])])
        confidences.append(drafter.propose([view], [1])[0].confidence)
    assert confidences[1] == pytest.approx(confidences[0], abs=0.1)


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a layer that is not there": ({"target_layer_ids": [0, 3]}, DraftMismatch, "target_layer_ids"),
    "layers out of order": ({"target_layer_ids": [2, 0]}, DraftMismatch, "target_layer_ids"),
    "another width": ({"hidden_size": 96}, DraftMismatch, "hidden_size"),
    "another vocabulary": ({"vocab_size": 112}, DraftMismatch, "vocab_size"),
    "two layers": ({"num_hidden_layers": 2}, UnsupportedDraft, "num_hidden_layers"),
    "another family": ({"model_type": "gemma3"}, UnsupportedDraft, "gemma3"),
    "a norm before fc": ({"norm_before_fc": True}, UnsupportedDraft, "norm_before_fc"),
    "norms of each layer": ({"fc_norm": True}, UnsupportedDraft, "fc_norm"),
    "layers that are no numbers": (
        {"target_layer_ids": ["0"]},
        UnsupportedDraft,
        "target_layer_ids",
    ),
    "a length that is a word": ({"ttt_length": "seven"}, UnsupportedDraft, "ttt_length"),
    "an object that is none": ({"eagle_config": 3}, UnsupportedDraft, "eagle_config"),
    "a head without a map": ({"draft_vocab_size": 48}, WeightsError, "d2t"),
    "another target": (
        {"agentspec": {"method": "eagle3", "target": {"vocab_size": 5}}},
        DraftMismatch,
        "target.vocab_size",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit_is_refused_by_name(what, runner, tmp_path):
    changes, error, named = REFUSED[what]
    raw = stepworld.config("eagle3") | changes
    folder = world.write_draft(tmp_path, raw, stepworld.tensors("eagle3"))
    with pytest.raises(error, match=named):
        load(folder, runner)


def test_a_missing_tensor_is_named(runner, tmp_path):
    found = stepworld.tensors("eagle3")
    del found["layers.0.hidden_norm.weight"]
    with pytest.raises(WeightsError, match="hidden_norm"):
        load(world.write_draft(tmp_path, stepworld.config("eagle3"), found), runner)


def test_speculators_must_say_where_the_norm_stands():
    raw = dict(layouts()["speculators"][0])
    del raw["norm_before_residual"]
    with pytest.raises(UnsupportedDraft, match="norm_before_residual"):
        step_config(raw)


def test_which_configurations_are_meant():
    for raw, _ in layouts().values():
        assert is_step_draft(raw)
    assert is_step_draft(stepworld.config("mtp")) and not is_step_draft(world.draft_config())


def test_eagles_default_taps_are_what_enters_three_layers():
    raw = dict(layouts()["specforge"][0])
    del raw["eagle_config"]
    assert step_config(raw).taps is None


@pytest.mark.parametrize(
    ("method", "layout"),
    [
        ("eagle3", "deepspec"),
        ("eagle3", "int8"),
        ("eagle3", "speculators"),
        ("mtp", "deepspec"),
        ("mtp", "int8"),
    ],
)
def test_what_the_trainer_exports_is_what_is_served(method, layout, runner, target, tmp_path):
    """Its network's weights, written and loaded, draft what the slow version of them drafts."""
    spec = DraftSpec(
        method=method,
        target=runner.model.config,
        layers=1,
        block_size=COUNT,
        mask_token_id=0,
        target_layer_ids=tuple(stepworld.EAGLE_TAPS if method == "eagle3" else stepworld.MTP_TAPS),
    )
    torch.manual_seed(6)
    net = build_net(spec)
    for parameter in net.parameters():
        if parameter.ndim == 2:
            parameter.data *= 6.0
    target_id = TargetId(
        name="t",
        weights_id="w",
        format="fp32",
        vocab_size=world.VOCAB,
        tokenizer_sha256="t",
        chat_template_sha256="c",
    )
    made = Draft.of(net, target_id, 0)
    if layout == "speculators":
        write_speculators(tmp_path, made)
    else:
        write_deepspec(tmp_path, made, int8=layout == "int8")
    drafter = load(tmp_path, runner)
    assert drafter.taps == spec.target_layer_ids and drafter.config.steps == COUNT
    ids, pages = text(), [4, 1, 3, 9]
    features = features_of(runner, drafter.taps, ids, pages)[:-1]
    view = view_of(ids, pages, runner, temperature=1.0)
    opened(drafter, view)
    drafter.observe([Observed(view, 0, features)])
    dense = drafter.propose([view], [1])[0].draft_probs
    raw = {"agentspec": {"method": method}}
    _, logits = slow_version(target, raw, read_draft(tmp_path).tensors).greedy(features, ids, 1)
    loose = isinstance(runner, ExactRunner)
    assert float((dense[0] - logits[0].softmax(0)).abs().sum()) < (0.2 if loose else 1e-4)
