"""Grammar bombs: built in a process that ends by itself, so that they cost neither memory nor time.

What they take is measured in a process of its own, from its beginning to its end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from agentspec.engine.constrain.cache import Cache
from agentspec.engine.constrain.factory import Compiled
from agentspec.engine.constrain.limit import TooCostly
from agentspec.engine.constrain.trial import Limits, Trial
from agentspec.engine.constrain.weight import heavy

from .conftest import EOS, IM_END, Small, answer_spec, tools_spec

TEXT = {"type": "string"}
MIB = 1 << 20


def closed(count: int, member: Any = TEXT, *, required: bool = True) -> dict[str, Any]:
    names = [f"property_{i}" for i in range(count)]
    return {
        "type": "object",
        "properties": dict.fromkeys(names, member),
        "required": names if required else [],
        "additionalProperties": False,
    }


BOMBS: dict[str, Any] = {
    "intersections": {"allOf": [{"type": "string", "pattern": f"^.*{i}.*$"} for i in range(200)]},
    "multiples": {"anyOf": [{"type": "integer", "multipleOf": 991 - i} for i in range(60)]},
    "optional members": closed(40, closed(400, required=False)),
}
HARMLESS: dict[str, Any] = {
    "5,000 properties": closed(5000),
    "10,000 values": {"enum": [f"value number {i}" for i in range(10_000)]},
    "an exponential automaton": {"type": "string", "pattern": "(a|b)*a(a|b){40}$"},
    "many items": {"type": "array", "items": TEXT, "minItems": 5000, "maxItems": 10_000},
    "no pattern at all": {"type": "string", "default": {"pattern": "[" * 400_000}},
}
_MEASURED = """
import json, resource, sys
from tests.engine.constrain.conftest import Small, answer_spec
from agentspec.wire.errors import InvalidSchema
factory = Small(merges=180).factory()
factory.compile(answer_spec({"type": "string"}))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ended = {}
for name, schema in json.load(sys.stdin).items():
    try:
        factory.compile(answer_spec(schema))
        ended[name] = "built"
    except InvalidSchema as error:
        ended[name] = error.message
print(json.dumps([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, ended]))
"""


def test_bombs_are_refused_and_leave_nothing_in_memory():
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED],
        input=json.dumps(BOMBS),
        capture_output=True,
        text=True,
        check=True,
    )
    grown_kib, ended = json.loads(done.stdout)
    assert all("to compile" in message for message in ended.values()), ended
    assert grown_kib * 1024 < 64 * MIB


@pytest.mark.parametrize("name", HARMLESS)
def test_what_only_looks_heavy_is_built(small: Small, factories, name: str):
    assert small.allowed(factories().compile(answer_spec(HARMLESS[name])).session())


def test_tools_as_clients_send_them_are_not_heavy():
    parameters = {
        "type": "object",
        "properties": {
            "path": {**TEXT, "description": "a path" * 40, "pattern": "^[^\\0]+$"},
            "mode": {"enum": ["a", "b", "c"]},
            "lines": {"type": "array", "items": {"type": "integer", "minimum": 1}, "maxItems": 8},
            "more": {"anyOf": [TEXT, {"type": "null"}]},
        },
        "required": ["path"],
    }
    assert not heavy(tools_spec({f"tool_{i}": parameters for i in range(8)}))
    assert all(heavy(answer_spec(schema)) for schema in BOMBS.values())


@pytest.fixture(scope="module")
def trial(small: Small):
    made = Trial(_arguments(small))
    yield made
    made.close()


def _arguments(small: Small) -> dict[str, Any]:
    return {
        "token_bytes": small.token_bytes,
        "eos_ids": [EOS],
        "special_ids": [EOS, IM_END],
        "hf_tokenizer_json": small.tokenizer.to_str(),
        "vocab_size": small.size,
        "tried": False,
    }


def test_what_is_built_says_its_size_and_a_dead_process_is_started_again(trial: Trial):
    assert trial.check(answer_spec(TEXT), "p") >= 0
    trial.close()
    assert trial.check(answer_spec(closed(2000)), "p") > MIB
    assert trial._process is not None
    trial._process.kill()
    trial._process.wait()
    assert trial.check(answer_spec(TEXT), "p") >= 0


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(cpu_s=0.02), "takes more than 0.02 s to compile"),
        (Limits(bytes=4 * MIB), "takes more than 4 MiB to compile"),
    ],
)
def test_each_limit_is_said(small: Small, limits: Limits, said: str):
    trial = Trial(_arguments(small), limits)
    with pytest.raises(TooCostly, match=said) as caught:
        trial.check(answer_spec(BOMBS["intersections"]), "response_format")
    assert caught.value.param == "response_format" and caught.value.code == "invalid_json_schema"
    trial.close()


def test_a_refused_bomb_is_not_tried_again(small: Small, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    def check(self: Trial, spec: Any, param: str) -> int:
        asked.append(param)
        raise TooCostly("The schema takes too much.", param=param)

    monkeypatch.setattr(Trial, "check", check)
    factory = small.factory()
    for _ in range(3):
        with pytest.raises(TooCostly):
            factory.compile(answer_spec(BOMBS["multiples"]))
    assert asked == ["response_format"]


def _compiled(size_bytes: int) -> Compiled:
    def start() -> Any:
        raise AssertionError

    return Compiled(start, (), 0, proven=True, size_bytes=size_bytes)


def test_the_cache_holds_so_many_and_so_many_bytes():
    cache = Cache(3, most_bytes=100)
    for i, size in enumerate((10, 10, 10, 10)):
        cache.put(bytes([i]), _compiled(size))
    assert [cache.get(bytes([i])) is None for i in range(4)] == [True, False, False, False]
    cache.put(b"big", _compiled(85))
    assert cache.get(b"\x02") is None and cache.get(b"\x03") is not None
    cache.put(b"larger than all", _compiled(1000))
    assert cache.get(b"larger than all") is None
