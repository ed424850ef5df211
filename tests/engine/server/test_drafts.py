"""Drafts of an engine that runs: loaded, used, refused and dropped over HTTP and by the command."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import torch

from agentspec.cli import main
from agentspec.engine.build import build_service
from agentspec.engine.drafts import head_rows
from agentspec.engine.train.identity import weights_id
from agentspec.settings import SettingsError
from agentspec.settings_drafts import DraftSettings
from tests.engine.draft import blockworld
from tests.engine.model import tiny, tiny_vocabulary
from tests.engine.server.running import Server, serving
from tests.engine.server.test_whole_stack import MODEL, settings

pytestmark = pytest.mark.asyncio(loop_scope="module")
VOCAB = tiny_vocabulary.SIZE + 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    shape = tiny.Shape(vocab=VOCAB, context=1024)
    tiny_vocabulary.write_folder(path)
    return tiny.write_folder(path, shape, tiny.random_weights(shape), eos_token_id=2)


@pytest.fixture(scope="module")
def draft(tmp_path_factory) -> Path:
    raw = blockworld.draft_config(vocab_size=VOCAB, target_layer_ids=[0, 1])
    path = tmp_path_factory.mktemp("draft")
    return blockworld.write_draft(path, raw, blockworld.draft_tensors(raw))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(folder, tmp_path_factory):
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.mktemp("cache")
        patch.setattr("agentspec.engine.cost.user_cache_dir", lambda: cache)
        service = build_service(settings(folder, control_share=0.0))
    async with serving(service, MODEL) as running:
        yield running


async def call(server: Server, method: str, path: str = "", body: Any = None) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as http,
        http.request(method, f"{server.url}/drafts{path}", json=body) as answer,
    ):
        return answer.status, await answer.json()


async def test_a_draft_is_loaded_used_and_dropped(server: Server, draft: Path):
    fields: dict[str, Any] = {"temperature": 0, "max_tokens": 40}
    plain = await server.text(**fields)
    assert await call(server, "GET") == (200, {"object": "list", "data": []})
    status, card = await call(server, "POST", body={"path": str(draft)})
    assert (status, card["name"], card["taps"]) == (200, "dspark", [0, 1])
    assert await call(server, "GET") == (200, {"object": "list", "data": [card]})
    asked = {"speculation": ["dspark"], "session": None}
    answer = await server.ask(agentspec=asked, **fields)
    assert answer["choices"][0]["message"]["content"] == plain
    running = asyncio.create_task(server.text(**fields))
    await asyncio.sleep(0)
    assert await call(server, "DELETE", "/dspark") == (200, card)
    assert await running == plain, "who runs meanwhile goes on without it"
    assert await call(server, "GET") == (200, {"object": "list", "data": []})
    with pytest.raises(AssertionError, match="no draft source 'dspark'"):
        await server.ask(agentspec=asked, **fields)


async def test_names_and_refusals(server: Server, draft: Path, tmp_path: Path):
    for name in ("one", "two"):
        assert (await call(server, "POST", body={"path": str(draft), "name": name}))[0] == 200
    refusals = {
        "already": {"path": str(draft), "name": "two"},
        "suffix": {"path": str(draft), "name": "suffix"},
        "config.json": {"path": str(tmp_path)},
        "name": {"path": str(draft), "name": "no name"},
        "wurst": {"path": str(draft), "wurst": 1},
        "head_rows": {"path": str(draft), "head_rows": -1},
        "bits": {"path": str(draft), "bits": 5},
    }
    for named, body in refusals.items():
        status, answer = await call(server, "POST", body=body)
        assert status == 400 and named in answer["error"]["message"] + str(answer["error"]["param"])
    raw = blockworld.draft_config(vocab_size=VOCAB, target_layer_ids=[0, 2])
    wrong = blockworld.write_draft(tmp_path, raw, blockworld.draft_tensors(raw))
    status, answer = await call(server, "POST", body={"path": str(wrong)})
    assert status == 400 and "target_layer_ids" in answer["error"]["message"]
    status, answer = await call(server, "DELETE", "/three")
    assert status == 400 and "one, two" in answer["error"]["message"]
    for name in ("one", "two"):
        assert (await call(server, "DELETE", f"/{name}"))[0] == 200


async def test_a_whole_model_is_a_draft_too(server: Server, folder: Path, tmp_path: Path):
    fields: dict[str, Any] = {"temperature": 0, "max_tokens": 40}
    plain = await server.ask(agentspec={"speculation": "off"}, **fields)
    config = json.loads((folder / "config.json").read_text())
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config["architectures"] = ["LlamaForCausalLM"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    status, card = await call(server, "POST", body={"path": str(tmp_path)})
    assert (status, card["name"], card["taps"]) == (200, "draft_model", [])
    answer = await server.ask(agentspec={"speculation": ["draft_model"]}, **fields)
    assert answer["choices"] == plain["choices"]
    count = answer["agentspec"]["sources"]["draft_model"]
    assert count["accepted"] == count["drafted"] > 10, "the model itself is its best draft"
    assert (await call(server, "DELETE", "/draft_model"))[0] == 200


async def test_a_web_page_cannot_load_one(server: Server, draft: Path):
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{server.url}/drafts", data=f'{{"path": "{draft}"}}') as answer,
    ):
        assert answer.status == 400
        assert "content-type" in (await answer.json())["error"]["message"]


async def test_the_command(server: Server, draft: Path, capsys):
    def run(*words: str) -> int:
        return main(["engine", "draft", *words, "--url", server.url])

    assert await asyncio.to_thread(run, "load", str(draft), "--name", "mine") == 0
    assert await asyncio.to_thread(run, "list") == 0
    assert await asyncio.to_thread(run, "drop", "mine") == 0
    shown = capsys.readouterr().out.splitlines()
    line = f"mine\t{draft}\ttaps [0, 1]"
    assert shown == [line, line, f"dropped {line}"]
    assert await asyncio.to_thread(run, "drop", "mine") != 0
    assert "no draft 'mine' is loaded" in capsys.readouterr().err


async def test_drafts_of_the_settings(folder, draft, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.mktemp("cache")
        patch.setattr("agentspec.engine.cost.user_cache_dir", lambda: cache)
        named = DraftSettings(path=str(draft), name="second", head_rows=32)
        service = build_service(settings(folder, drafts=[str(draft), named]))
        assert [card.name for card in service.drafts()] == ["dspark", "second"]
        with pytest.raises(SettingsError, match=r"engine\.drafts: .*no/such"):
            build_service(settings(folder, drafts=[str(draft / "no/such")]))


async def test_the_packages_own_draft_is_the_default_where_it_was_made_for_the_target(
    folder, draft, tmp_path, monkeypatch
):
    """Told by weights and arithmetic; an empty list means none."""
    monkeypatch.setattr("agentspec.engine.cost.user_cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr("agentspec.engine.shipped.FOLDER", tmp_path)
    shutil.copytree(draft, tmp_path / "dspark")
    path = tmp_path / "dspark" / "config.json"
    plain = json.loads(path.read_text())

    def names(made_for: dict[str, str], **changed: Any) -> list[str]:
        about = {"method": "dspark", "target": made_for}
        path.write_text(json.dumps(plain | {"agentspec": about}))
        service = build_service(settings(folder, drafts=None, **changed))
        return [card.name for card in service.drafts()]

    right = {"weights_id": weights_id(folder), "format": "torch-float64"}
    assert names(right) == ["dspark"]
    assert names(right | {"weights_id": "another's"}) == []
    assert names(right | {"format": "int8"}) == []
    assert names({}) == []
    path.write_text(json.dumps(plain | {"agentspec": {"method": "dspark", "target": right}}))
    assert build_service(settings(folder, drafts=[])).drafts() == []


async def test_a_model_with_another_tokenizer_is_refused(server: Server, tmp_path: Path):
    shape = tiny.Shape(vocab=VOCAB, context=1024)
    tiny_vocabulary.write_folder(tmp_path)
    kind = ["LlamaForCausalLM"]
    tiny.write_folder(tmp_path, shape, tiny.random_weights(shape), architectures=kind)
    file = tmp_path / "tokenizer.json"
    written = json.loads(file.read_text())
    vocab = written["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    file.write_text(json.dumps(written))
    status, answer = await call(server, "POST", body={"path": str(tmp_path)})
    assert status == 400 and "another tokenizer" in answer["error"]["message"]


async def test_half_of_a_large_vocabulary_is_drafted_unless_another_share_is_asked_for():
    assert head_rows(None, 49152) == 24576
    assert head_rows(None, 32000) is None
    assert head_rows(0, 49152) is None
    assert head_rows(1000, 49152) == 1008, "the kernels' lanes"
