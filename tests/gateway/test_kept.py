"""Kept answers over HTTP: found, fetched, deleted; in SQL by every worker; in memory by one."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import openai
import pytest

from agentspec.gateway.kept import KeptInSql
from agentspec.settings import (
    BackendSettings,
    ModelSettings,
    ServerSettings,
    Settings,
    StoreSettings,
)
from agentspec.store import migrate
from agentspec.store.answers import AnswerStore
from agentspec.store.database import connect
from agentspec.wire.errors import InternalError
from tests.gateway.sse import named_events


async def ask(gateway, model: str = "good", **more: Any):
    return await gateway.http.post("/v1/responses", json={"model": model, "input": "hi"} | more)


@contextlib.asynccontextmanager
async def two_workers(start, up, tmp_path, kind: str):
    """Two gateways of one installation."""
    settings = Settings(
        data_dir=str(tmp_path),
        server=ServerSettings(workers=2),
        store=StoreSettings(responses=kind),  # pyright: ignore[reportArgumentType]
        backends={"up": BackendSettings(kind="openai", url=up.url, constrained=True)},
        models={name: ModelSettings(backends=["up"]) for name in ("good", "agent")},
    )
    migrate.upgrade(settings.database_url)
    async with start(settings=settings) as one, start(settings=settings) as other:
        yield one, other


async def test_in_sql_any_worker_finds_it(start, up, tmp_path):
    async with two_workers(start, up, tmp_path, "sql") as (one, other):
        first = (await ask(one, "agent")).json()
        await ask(other, input="more", previous_response_id=first["id"])
        said = up.seen[-1]["messages"]
        assert [m["role"] for m in said] == ["user", "assistant", "user"]
        assert said[1]["reasoning_content"] == "Let me see." and len(said[1]["tool_calls"]) == 2
        call = first["output"][2]
        await ask(other, input=[{"type": "item_reference", "id": call["id"]}])
        assert up.seen[-1]["messages"][0]["tool_calls"][0]["id"] == call["call_id"]
        assert (await other.http.get(f"/v1/responses/{first['id']}")).json() == first
        assert (await other.http.delete(f"/v1/responses/{first['id']}")).status_code == 200
        assert (await one.http.get(f"/v1/responses/{first['id']}")).status_code == 404
        gone = await ask(one, input=[{"type": "item_reference", "id": call["id"]}])
        assert gone.status_code == 400


async def test_a_database_that_hangs_cannot_be_reached(tmp_path):
    """What can't be kept is let go; what can't be looked up is an error."""
    answers = threading.Event()

    class Hangs(AnswerStore):
        def put(self, scope, entries):
            answers.wait()

        def get(self, scope, names):
            answers.wait()
            return {}

        def drop(self, scope, names):
            answers.wait()

    engine = connect(f"sqlite:///{tmp_path / 'agentspec.db'}")
    kept = KeptInSql(Hangs(engine, lambda: 0), wait_s=0.05)
    try:
        await kept.put("s", {"a": b"1"})
        for asked in (kept.get("s", ["a"]), kept.drop("s", ["a"])):
            with pytest.raises(InternalError, match="cannot be reached"):
                await asked
    finally:
        answers.set()
        kept.close()


async def test_in_memory_another_worker_says_why(start, up, tmp_path):
    async with two_workers(start, up, tmp_path, "memory") as (one, other):
        first = (await ask(one)).json()
        assert (await ask(one, previous_response_id=first["id"])).status_code == 200
        refused = await ask(other, previous_response_id=first["id"])
        assert refused.status_code == 400
        error = refused.json()["error"]
        assert error["code"] == "previous_response_not_found"
        assert "2 workers" in error["message"] and 'store.responses = "sql"' in error["message"]


async def test_a_database_that_fails_costs_no_answer(start, up, tmp_path):
    async with two_workers(start, up, tmp_path, "sql") as (one, _):
        migrate.downgrade(f"sqlite:///{tmp_path}/agentspec.db", "0001")
        assert (await ask(one)).status_code == 200
        refused = await ask(one, previous_response_id="resp_x")
        assert refused.status_code == 500 and refused.json()["error"]["code"] == "store_error"


@pytest.mark.parametrize("stream", [False, True])
async def test_additional_tools_hold_for_the_next_turn(gateway, up, stream):
    tool = {"type": "function", "name": "late", "parameters": {"type": "object"}}
    item = {"type": "additional_tools", "role": "developer", "tools": [tool]}
    said = {"role": "user", "content": "hi"}
    names = []
    previous: dict[str, Any] = {}
    for given in ([item, said], "more", "still more"):
        answer = await ask(gateway, input=given, stream=stream, **previous)
        names.append([t["function"]["name"] for t in up.seen[-1]["tools"]])
        id_ = answer.text.split('"id":"', 1)[1].split('"', 1)[0]
        previous = {"previous_response_id": id_}
    assert names == [["late"]] * 3


async def test_get_and_delete_by_the_sdk(gateway):
    client = openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="k", max_retries=0)
    async with client:
        made = await client.responses.create(model="agent", input="hi")
        found = await client.responses.retrieve(made.id)
        assert found.to_dict() == made.to_dict()
        await client.responses.delete(made.id)
        with pytest.raises(openai.NotFoundError) as caught:
            await client.responses.retrieve(made.id)
        assert caught.value.param == "id" and caught.value.type == "invalid_request_error"
        unkept = await client.responses.create(model="good", input="hi", store=False)
        with pytest.raises(openai.NotFoundError):
            await client.responses.delete(unkept.id)


async def test_a_streamed_answer_is_kept_as_its_last_event_says_it(gateway):
    events = named_events((await ask(gateway, "agent", stream=True)).text)
    last = events[-1]["response"]
    assert (await gateway.http.get(f"/v1/responses/{last['id']}")).json() == last


@pytest.mark.parametrize("kind", ["memory", "sql"])
async def test_an_id_of_another_kind_is_not_found(start, up, tmp_path, kind):
    async with two_workers(start, up, tmp_path, kind) as (one, _):
        first = (await ask(one, "agent")).json()
        for item in first["output"]:
            refused = await ask(one, previous_response_id=item["id"])
            assert refused.status_code == 400
            assert refused.json()["error"]["code"] == "previous_response_not_found"
            assert (await one.http.get(f"/v1/responses/{item['id']}")).status_code == 404
        refused = await ask(one, input=[{"type": "item_reference", "id": first["id"]}])
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "item_not_found"
        assert [row.status for row in one.journal.closed] == ["ok"] + ["error"] * 5
