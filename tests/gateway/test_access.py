"""Keys at the gateway: whom they let in, to what, and that changes are seen soon."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from fastapi import APIRouter

from agentspec.gateway.access import KNOWN_S, LOOK_S, STALE_S, Access, KeysAway, may_listen
from agentspec.gateway.app import create_app
from agentspec.settings import ServerSettings, SettingsError
from agentspec.store.keys import NewKey
from agentspec.store.keys_snapshot import MARKER, SqlKeys
from agentspec.wire.access import Guard
from agentspec.wire.errors import AuthenticationFailed
from tests.gateway.keyed import Keyed, empty_ledger, key_store, keyed
from tests.gateway.serving import ListJournal, running

HOUR_MS = 3_600_000


@pytest.fixture
def here(tmp_path, up) -> Keyed:
    return keyed(tmp_path, up.url)


@pytest.fixture
def keys(here):
    store = key_store(here.url)
    yield store
    store.close()


def auth(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


async def test_no_key_is_asked_for_until_there_is_one(here, keys):
    async with here.gateway() as gateway:
        assert (await gateway.chat("good")).status_code == 200
        assert gateway.journal.row.key_id == ""
        key, secret = keys.create(NewKey("first"))
        here.ahead.by_s += STALE_S + 0.1
        assert (await gateway.chat("good")).status_code == 401
        gateway.http.headers.update(auth(secret))
        assert (await gateway.chat("good")).status_code == 200
        assert gateway.journal.closed[-1].key_id == key.id
        keys.revoke(key.id)
        here.ahead.by_s += STALE_S + 0.1
        assert (await gateway.chat("good")).status_code == 401
        del gateway.http.headers["authorization"]
        assert (await gateway.chat("good")).status_code == 401  # the door stays shut


async def test_a_revoked_key_ends_while_requests_keep_coming(here, keys):
    """No request has to wait for the look; the one after it sees the change."""
    key, secret = keys.create(NewKey("k"))
    async with here.gateway(secret) as gateway:
        assert (await gateway.chat("good")).status_code == 200
        keys.revoke(key.id)
        here.ahead.by_s += LOOK_S
        for _ in range(1000):
            if (await gateway.chat("good")).status_code == 401:
                break
        assert [(await gateway.chat("good")).status_code for _ in range(5)] == [401] * 5


async def test_a_new_key_is_good_at_once(here, keys):
    _, first = keys.create(NewKey("a"))
    async with here.gateway(first) as gateway:
        assert (await gateway.chat("good")).status_code == 200
        for name in ("b", "c", "d"):
            _, other = keys.create(NewKey(name))
            answer = await gateway.http.get("/v1/models", headers=auth(other))
            assert answer.status_code == 200


async def test_wrong_keys_do_not_keep_the_database_busy(here, keys):
    keys.create(NewKey("a"))
    looks = 0

    class Counted(SqlKeys):
        def newer(self, known):
            nonlocal looks
            looks += 1
            return super().newer(known)

    access = Access(Counted(here.url), Guard(None), here.ahead.clock(), loopback=True)
    wrong = [access.identify(auth(f"as-wrong-{i}")) for i in range(200)]
    found = await asyncio.gather(*wrong, return_exceptions=True)
    assert {type(error) for error in found} == {AuthenticationFailed}
    assert looks <= 3
    await access.aclose()


async def test_wrong_expired_and_replaced_keys_in_both_shapes(here, keys):
    _, expiring = keys.create(NewKey("e", expires_ms=here.ahead.clock().now_ms() + HOUR_MS))
    replaced_key, replaced = keys.create(NewKey("r"))
    renewed = keys.rotate(replaced_key.id, HOUR_MS)
    message = {"model": "good", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}

    async def told(gateway, secret: str) -> tuple[int, str, str]:
        headers = auth(secret) if secret else {}
        openai = await gateway.http.post("/v1/chat/completions", json=message, headers=headers)
        theirs = await gateway.http.post("/v1/messages", json=message, headers=headers)
        assert openai.status_code == theirs.status_code
        if openai.status_code == 200:
            return 200, "", ""
        error = openai.json()["error"]
        assert error["type"] == "authentication_error"
        body = theirs.json()
        assert body["type"] == "error" and body["error"]["type"] == "authentication_error"
        if secret:
            assert secret not in openai.text + theirs.text
        return openai.status_code, error["code"], body["error"]["message"]

    async with here.gateway() as gateway:
        assert (await told(gateway, ""))[:2] == (401, "invalid_api_key")
        assert (await told(gateway, "as-" + "x" * 43))[:2] == (401, "invalid_api_key")
        for good in (expiring, replaced, renewed):
            assert (await told(gateway, good))[0] == 200
        here.ahead.by_s += 3601
        assert (await told(gateway, expiring))[:2] == (401, "expired_api_key")
        assert (await told(gateway, replaced))[:2] == (401, "replaced_api_key")
        assert (await told(gateway, renewed))[0] == 200


@pytest.mark.parametrize("allowed", ["good", "claude-good"])
async def test_models_are_allowed_by_any_of_their_names(here, keys, allowed, up):
    _, secret = keys.create(NewKey("k", models=[allowed]))
    message = {"max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
    async with here.gateway(secret) as gateway:
        assert (await gateway.chat("good")).status_code == 200
        seen = len(up.seen)
        listed = (await gateway.http.get("/v1/models")).json()["data"]
        assert {card["id"] for card in listed} == {"good", "claude-good"}
        for name in ("tools", "nope"):
            answer = await gateway.chat(name)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (404, "model_not_found")
            assert (await gateway.http.get(f"/v1/models/{name}")).status_code == 404
            for path in ("/v1/messages", "/v1/messages/count_tokens"):
                theirs = await gateway.http.post(path, json=message | {"model": name})
                assert theirs.status_code == 404
                assert theirs.json()["error"]["type"] == "not_found_error"
        assert len(up.seen) == seen
        assert (await gateway.chat("claude-good")).status_code == 200
        refused = [row for row in gateway.journal.closed if row.model == "tools"]
        assert {row.http_status for row in refused} == {404}


async def test_the_scope_reaches_the_engine(here, keys, up):
    keys.create_project("team")
    made = [
        keys.create(NewKey("a", project="team")),
        keys.create(NewKey("b", project="team")),
        keys.create(NewKey("c", project="team", cache_scope="project")),
        keys.create(NewKey("d", project="team", cache_scope="project")),
    ]
    async with here.gateway() as gateway:
        for _, secret in made:
            body = {"model": "good", "messages": [{"role": "user", "content": "hi"}]}
            body["agentspec"] = {"cache_scope": "project:team"}  # nobody chooses it himself
            answer = await gateway.http.post(
                "/v1/chat/completions", json=body, headers=auth(secret)
            )
            assert answer.status_code == 200
    scopes = [request["agentspec"]["cache_scope"] for request in up.seen]
    assert scopes == [made[0][0].id, made[1][0].id, "project:team", "project:team"]


async def test_only_an_operator_sees_the_ledger(here, keys, monkeypatch):
    pages = APIRouter()

    @pages.get("/dashboard")
    def page() -> str:
        return "rows of everybody"

    monkeypatch.setenv("SETTINGS_KEY", "of-the-settings")
    _, tenant = keys.create(NewKey("t"))
    _, operator = keys.create(NewKey("o", operator=True))
    settings = here.settings(server={"api_key_env": "SETTINGS_KEY"})
    app = create_app(settings, journal=ListJournal(), mounts=[pages])
    async with running(app) as url, httpx.AsyncClient(base_url=url, trust_env=False) as http:
        for secret, status in ((tenant, 403), (operator, 200), ("of-the-settings", 200)):
            answer = await http.get("/dashboard", headers=auth(secret))
            assert answer.status_code == status
        assert (await http.get("/dashboard")).status_code == 401
        for secret in (tenant, operator, "of-the-settings"):
            assert (await http.get("/v1/models", headers=auth(secret))).status_code == 200


class _Broken:
    """A source that fails while it is told to."""

    def __init__(self, source):
        self._source = source
        self.broken = False

    def newer(self, known):
        if self.broken:
            raise OSError("the database is away")
        return self._source.newer(known)

    def close(self) -> None:
        self._source.close()


async def test_while_the_database_is_away(here, keys):
    """Known keys go on for a while, unknown ones are no wrong ones."""
    key, secret = keys.create(NewKey("k"))
    source = _Broken(SqlKeys(here.url))
    access = Access(source, Guard(None), here.ahead.clock(), loopback=True)
    with pytest.raises(AuthenticationFailed):
        await access.identify(auth("as-wrong"))
    source.broken = True
    here.ahead.by_s += KNOWN_S / 2
    assert (await access.identify(auth(secret))).key_id == key.id
    with pytest.raises(KeysAway):
        await access.identify(auth("as-wrong"))
    here.ahead.by_s += KNOWN_S / 2 + 1
    with pytest.raises(KeysAway):
        await access.identify(auth(secret))
    source.broken = False
    here.ahead.by_s += LOOK_S + 0.1
    assert (await access.identify(auth(secret))).key_id == key.id
    await access.aclose()
    source = _Broken(SqlKeys(here.url))
    source.broken = True
    access = Access(source, Guard(None), here.ahead.clock(), loopback=True)
    with pytest.raises(KeysAway):  # whether keys exist isn't known: not open
        await access.identify({})
    await access.aclose()


@pytest.mark.parametrize("loopback", [True, False])
@pytest.mark.parametrize("instead", ["nothing", "an empty file", "an empty ledger"])
async def test_a_database_that_loses_its_keys_opens_no_door(here, keys, loopback, instead):
    key, secret = keys.create(NewKey("k"))
    access = Access(SqlKeys(here.url), Guard(None), here.ahead.clock(), loopback=loopback)
    assert (await access.identify(auth(secret))).key_id == key.id
    keys.close()
    file, aside = here.folder / "agentspec.db", here.folder / "aside"
    aside.mkdir()
    for part in here.folder.glob("agentspec.db*"):
        part.rename(aside / part.name)
    if instead != "nothing":
        file.write_bytes(b"" if instead == "an empty file" else empty_ledger())
    for _ in range(2):
        here.ahead.by_s += KNOWN_S / 3
        assert (await access.identify(auth(secret))).key_id == key.id
        with pytest.raises(AuthenticationFailed):
            await access.identify({})
    here.ahead.by_s += KNOWN_S / 3 + 1
    for headers in ({}, auth(secret)):
        with pytest.raises(KeysAway):
            await access.identify(headers)
    for part in here.folder.glob("agentspec.db*"):
        part.unlink()
    for part in aside.iterdir():
        part.rename(here.folder / part.name)
    here.ahead.by_s += LOOK_S + 0.1
    assert (await access.identify(auth(secret))).key_id == key.id
    await access.aclose()


@pytest.mark.parametrize("instead", ["nothing", "an empty file", "an empty ledger"])
async def test_a_gateway_started_after_the_keys_were_lost_opens_no_door(here, keys, instead):
    """Nothing in memory tells of them then: the data folder does."""
    _, secret = keys.create(NewKey("k"))
    async with here.gateway(secret) as gateway:
        assert (await gateway.chat("good")).status_code == 200
    keys.close()
    for part in here.folder.glob("agentspec.db*"):
        part.unlink()
    if instead != "nothing":
        content = b"" if instead == "an empty file" else empty_ledger()
        (here.folder / "agentspec.db").write_bytes(content)
    async with here.gateway() as gateway:
        for headers in ({}, auth(secret)):
            answer = await gateway.chat("good", headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "keys_unavailable")
        (here.folder / "data" / MARKER).unlink()  # the word of whoever may write there
        here.ahead.by_s += LOOK_S + 0.1
        assert (await gateway.chat("good")).status_code == 200


def test_beyond_loopback_a_key_in_sql_is_enough(here, keys):
    settings = here.settings(server={"host": "0.0.0.0"})
    with pytest.raises(SettingsError, match=r"server\.api_key_env"):
        may_listen(settings)
    keys.create(NewKey("k"))
    may_listen(settings)
    settings.server = ServerSettings(host="0.0.0.0", api_key_env="NOT_SET_ANYWHERE")
    with pytest.raises(SettingsError, match="NOT_SET_ANYWHERE"):
        may_listen(settings)


async def test_metrics_ask_for_the_key_that_the_dashboard_asks_for(here, keys):
    """They tell models, tokens and money of everybody."""
    async with here.gateway() as gateway:
        assert (await gateway.http.get("/metrics")).status_code == 200
        _, agent = keys.create(NewKey("agent"))
        _, operator = keys.create(NewKey("me", operator=True))
        here.ahead.by_s += STALE_S + 0.1
        asked = [({}, 401), (auth("wrong"), 401), (auth(agent), 403), (auth(operator), 200)]
        for headers, status in asked:
            answer = await gateway.http.get("/metrics", headers=headers)
            assert answer.status_code == status
            assert ("agentspec_" in answer.text) == (status == 200)
        for path in ("/", "/health"):
            assert (await gateway.http.get(path)).status_code == 200


NAMES = {
    "127.0.0.1:8000": 200,
    "localhost": 200,
    "[::1]:8000": 200,
    "evil.example:8000": 403,
    "localhost.evil.example": 403,
    "[evil": 403,
}


@pytest.mark.parametrize("path", ["/metrics", "/pages"])
async def test_a_name_that_is_led_here_reads_nothing_without_a_key(here, keys, path):
    """DNS rebinding: the page's own name means 127.0.0.1, so the browser lets it read."""
    pages = APIRouter()
    pages.add_api_route("/pages", lambda: "all that there is")
    app = create_app(
        here.settings(), journal=ListJournal(), mounts=[pages], clock=here.ahead.clock()
    )
    async with (
        running(app) as url,
        httpx.AsyncClient(base_url=url, timeout=20, trust_env=False) as http,
    ):
        for host, status in NAMES.items():
            answer = await http.get(path, headers={"host": host})
            assert answer.status_code == status, host
        assert answer.json()["error"]["code"] == "foreign_host"
        _, operator = keys.create(NewKey("me", operator=True))
        here.ahead.by_s += STALE_S + 0.1
        named = auth(operator) | {"host": "gateway.example:8000"}
        assert (await http.get(path, headers=named)).status_code == 200
