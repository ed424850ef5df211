"""Prompts files, exports of traffic, and answers that come from a server over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from agentspec.engine.train.config import DraftToml, load
from agentspec.engine.train.errors import TrainError
from agentspec.engine.train.prompts import read_prompts, read_traffic
from agentspec.engine.train.regenerate import regenerate
from agentspec.engine.train.target import Target
from agentspec.settings import SettingsError

Write = Callable[..., DraftToml]
CALL = {"id": "c", "type": "function", "function": {"name": "sing", "arguments": '{"a": 1}'}}
TOOL = {"type": "function", "function": {"name": "sing", "parameters": {"type": "object"}}}


def lines(path: Path, *values: object) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def test_prompts_keep_what_decides_the_question(tmp_path: Path):
    ask = {"messages": [{"role": "user", "content": "x"}], "tools": [TOOL], "model": "m"}
    file = lines(tmp_path / "p", ask | {"temperature": 1}, ask, {**ask, "id": "mine"})
    found = read_prompts(file)
    assert len(found) == 2 and found[1].id == "mine"
    assert found[0].body == {"messages": ask["messages"], "tools": [TOOL]}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("[1]", "line 1: not a JSON object"),
        ("{", "line 1: "),
        ('{"messages": []}', "line 1: 'messages'"),
        ("", "holds no prompt"),
    ],
)
def test_bad_prompts_are_refused_by_line(tmp_path: Path, line: str, told: str):
    (tmp_path / "p").write_text(line + "\n")
    with pytest.raises(TrainError, match=told):
        read_prompts(tmp_path / "p")


def test_one_id_for_two_prompts_is_refused(tmp_path: Path):
    two = [{"id": "a", "messages": [{"role": "user", "content": c}]} for c in "xy"]
    with pytest.raises(TrainError, match="line 2: the id 'a'"):
        read_prompts(lines(tmp_path / "p", *two))


def test_traffic_gives_its_requests_and_no_answer(tmp_path: Path):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}], "n": 3})
    file = lines(
        tmp_path / "t",
        {"request_id": "1", "kind": "request", "text": body},
        {"request_id": "1", "kind": "response", "text": "{}"},
        {"request_id": "2", "kind": "request", "text": json.dumps({"prompt": "no chat"})},
    )
    (found,) = read_traffic(file)
    assert found.body == {"messages": [{"role": "user", "content": "x"}]}
    with pytest.raises(TrainError, match="line 1: 'text' is no JSON"):
        read_traffic(lines(tmp_path / "t", {"kind": "request", "text": "{"}))


@pytest.fixture
def server() -> Iterator[tuple[str, list[dict]]]:
    """A chat endpoint: what it answers depends on the question; what it was asked is kept."""
    asked: list[dict] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body | {"authorization": self.headers.get("Authorization")})
            text = body["messages"][-1]["content"]
            message, reason = {"role": "assistant", "content": "the thing in the ring"}, "stop"
            if text == "sing":
                message, reason = {"role": "assistant", "content": None, "tool_calls": [CALL]}, "x"
            if text == "12 things":
                reason = "length"
            status = 400 if text == "the king" else 200
            payload = json.dumps({"choices": [{"message": message, "finish_reason": reason}]})
            self.send_response(status)
            self.end_headers()
            self.wfile.write(payload.encode())

        def log_message(self, *args: object) -> None:
            pass

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}/v1", asked
    made.shutdown()
    thread.join()
    made.server_close()


def test_a_server_s_answers_become_the_targets_tokens(write: Write, server):
    url, asked = server
    toml = write(endpoint=url)
    toml.answers.unlink()
    told = regenerate(toml)
    assert told["answered"] == 6 and told["left out"] == {"HTTP 400": 1}
    tokenizer = Target.open(toml).tokenizer
    found = {s["id"]: s for s in map(json.loads, toml.answers.read_text().splitlines())}
    texts = {id: tokenizer.decode(s["ids"][s["prompt_tokens"] :]) for id, s in found.items()}
    assert texts["p0"] == "the thing in the ring<|im_end|>"
    assert texts["p3"] == "the thing in the ring", "cut off, so no end was said"
    assert '{"name": "sing", "arguments": {"a": 1}}' in texts["p4"]
    assert texts["p4"].endswith("<|im_end|>")
    prompt = tokenizer.decode(found["p0"]["ids"][: found["p0"]["prompt_tokens"]])
    assert prompt == "<|im_start|>user\nthe ring<|im_end|>\n<|im_start|>assistant\n"
    assert all(body["temperature"] == 0 and body["max_tokens"] == 24 for body in asked)
    assert len({body["seed"] for body in asked}) == 7
    # The one that was refused is asked again, the others are not.
    assert regenerate(toml)["there before"] == 6


def test_nobody_listens(write: Write, free_port: Callable[[], int]):
    toml = write(endpoint=f"http://127.0.0.1:{free_port()}/v1")
    toml.answers.unlink()
    with pytest.raises(TrainError, match="cannot be reached"):
        regenerate(toml)


def test_several_answers_a_prompt_have_ids_and_seeds_of_their_own(write: Write, server):
    toml = write(endpoint=server[0], answers=2)
    toml.answers.unlink()
    regenerate(toml)
    ids = [json.loads(line)["id"] for line in toml.answers.read_text().splitlines()]
    assert {"p0#0", "p0#1"} <= set(ids) and len(set(ids)) == len(ids) == 12


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[train]\nbatch = 0", "batch"),
        ("[train]\nbatches = 1", "batches"),
        ("[draft]\nmethod = 'medusa'", "method"),
        ("[methods.eagle9]\nlayers = 1", "methods"),
        ("[regenerate]\ntemperature = 'hot'", "temperature"),
        ("[train", "draft.toml"),
    ],
)
def test_bad_settings_are_refused_by_name(tmp_path: Path, text: str, named: str):
    (tmp_path / "draft.toml").write_text(text)
    with pytest.raises(SettingsError, match=named):
        load(tmp_path / "draft.toml")


def test_sizes_are_those_of_their_method(tmp_path: Path):
    (tmp_path / "draft.toml").write_text(
        "[draft]\nmethod = 'dspark'\nmarkov_rank = 9\nmask_token_id = 3\n"
        "[methods.eagle3]\nblock_size = 5\n[methods.dspark]\nlayers = 4\n"
    )
    dspark, eagle = (load(tmp_path / "draft.toml", method).draft for method in (None, "eagle3"))
    assert (dspark.markov_rank, dspark.layers, dspark.block_size) == (9, 4, None)
    assert (eagle.method, eagle.block_size, eagle.markov_rank) == ("eagle3", 5, None)
    assert eagle.mask_token_id == 3


def test_a_loss_of_one_method_goes_before_that_of_all(tmp_path: Path):
    (tmp_path / "draft.toml").write_text(
        "[draft]\nvocabulary = 64\n[loss]\ndecay = 3.0\nce = 0.5\n[losses.dspark]\nce = 1.0\n"
    )
    dspark, eagle = (load(tmp_path / "draft.toml", method) for method in (None, "eagle3"))
    assert (dspark.loss.ce, dspark.loss.decay) == (1.0, 3.0)
    assert (eagle.loss.ce, eagle.loss.decay) == (0.5, 3.0)
    assert eagle.draft.vocabulary == 64
