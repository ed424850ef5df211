"""Keys and projects in SQL: what is kept of a secret, who it lets in, how it ends."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine, MetaData, select, update

from agentspec.cli import main
from agentspec.store.budgets import Limit
from agentspec.store.database import connect
from agentspec.store.keys import KeyRefused, KeyStore, NewKey, key_owner, project_owner
from agentspec.store.keys_report import overview
from agentspec.store.keys_schema import api_key
from agentspec.store.keys_snapshot import NOTHING, Snapshot, SqlKeys
from agentspec.store.migrate import upgrade
from tests.store.ledger import EPOCH_MS

HOUR_MS = 3_600_000


class Clock:
    now_ms = EPOCH_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(engine: Engine, clock: Clock) -> KeyStore:
    return KeyStore(engine, clock)


@pytest.fixture
def newer(url: str) -> Iterator[Callable[[Snapshot | None], Snapshot]]:
    source = SqlKeys(url)
    yield source.newer
    source.close()


def everything(engine: Engine) -> str:
    """Every value of every table, as text."""
    metadata = MetaData()
    metadata.reflect(engine)
    with engine.connect() as connection:
        return "\n".join(
            str(tuple(row))
            for table in metadata.sorted_tables
            for row in connection.execute(select(table))
        )


FORGED = "a\nkey-000000000000  active    b"


@pytest.mark.parametrize("name", [FORGED, "a\x1b[2J", "a\0", "a\u2028b", "a\u202eb", "\t", "\x7f"])
def test_names_that_could_forge_a_line_are_refused(keys, name):
    made, _ = keys.create(NewKey("k"))
    asked = [
        lambda: keys.create(NewKey(name)),
        lambda: keys.create(NewKey("m", models=[name])),
        lambda: keys.create_project(name),
        lambda: keys.change(made.id, models=[name]),
        lambda: keys.get(name.strip("\0")),
    ]
    for one in asked:
        with pytest.raises(KeyRefused) as refused:
            one()
        assert str(refused.value).isprintable()
    keys.create(NewKey("Jürgens Läptop – 電腦"))


def test_names_from_before_are_shown_in_their_line(engine, keys):
    key, _ = keys.create(NewKey("k"))
    with engine.begin() as connection:
        connection.execute(update(api_key).values(name=FORGED))
    (found,) = overview(engine, EPOCH_MS).keys
    assert found.line().isprintable() and "a\\nkey-" in found.line()
    assert found.text().splitlines()[0] == f"{key.id}  a\\nkey-000000000000  active    b"


def test_a_secret_is_long_shown_once_and_kept_as_its_hash(engine, keys):
    found = [keys.create(NewKey(f"k{n}")) for n in range(20)]
    secrets = [secret for _, secret in found]
    assert len(set(secrets)) == 20
    for key, secret in found:
        assert secret.startswith("as-") and len(secret) == 3 + 43  # 32 bytes in base64
        assert secret not in repr(key)
    kept = everything(engine)
    for secret in secrets:
        assert secret not in kept and secret.removeprefix("as-") not in kept
        assert hashlib.sha256(secret.encode()).hexdigest() in kept


def test_the_snapshot_finds_a_key_by_its_secret(newer, keys):
    keys.create_project("team")
    key, secret = keys.create(NewKey("laptop", project="team", models=["a", "b"]))
    keys.set_limits(key_owner(key.id), {"rpm": 10, "usd_day": 5})
    keys.set_limits(project_owner("team"), {"tpm": 7})
    snapshot = newer(None)
    held = snapshot.by_hash[hashlib.sha256(secret.encode()).hexdigest()]
    assert (held.key.id, held.key.models, held.until_ms) == (key.id, ("a", "b"), None)
    owner = key_owner(key.id)
    assert held.limits == (
        Limit(owner, "rpm", 10),
        Limit(owner, "usd_day", 5),
        Limit("project:team", "tpm", 7),
    )


def test_a_snapshot_is_read_again_only_after_a_change(newer, keys):
    assert not newer(None).any
    key, _ = keys.create(NewKey("one"))
    changes = [
        lambda: keys.create(NewKey("two")),
        lambda: keys.set_limits(key_owner(key.id), {"rpm": 1}),
        lambda: keys.rotate(key.id, 0),
        lambda: keys.create_project("p"),
        lambda: keys.revoke(key.id),
    ]
    known = newer(None)
    for change in changes:
        assert newer(known) is known
        change()
        later = newer(known)
        assert later is not known and later.epoch > known.epoch
        known = later


def test_a_database_that_is_not_there_has_no_keys(empty_url, tmp_path):
    engine = connect(empty_url)
    engine.connect().close()  # a file without any table
    engine.dispose()
    for url in (empty_url, f"sqlite:///{tmp_path}/none/agentspec.db"):
        source = SqlKeys(url)
        assert source.newer(None) is NOTHING and not NOTHING.any
        source.close()


def test_states(keys, clock):
    key, _ = keys.create(NewKey("k", expires_ms=clock.now_ms + HOUR_MS))
    assert key.state(clock.now_ms + HOUR_MS - 1) == "active"
    assert key.state(clock.now_ms + HOUR_MS) == "expired"
    ended = keys.revoke("k")
    assert ended.state(clock.now_ms) == "revoked" and ended.revoked_ms == clock.now_ms
    clock.now_ms += 5
    assert keys.revoke(key.id).revoked_ms == ended.revoked_ms


def test_a_new_secret_and_the_grace_of_the_old_one(newer, keys, clock):
    key, first = keys.create(NewKey("k"))
    keys.set_limits(key_owner(key.id), {"rpm": 3})
    second = keys.rotate("k", HOUR_MS)
    third = keys.rotate("k", HOUR_MS)
    found = newer(None).by_hash
    ids = [found.get(hashlib.sha256(s.encode()).hexdigest()) for s in (first, second, third)]
    assert ids[0] is None
    assert ids[1] is not None and ids[1].until_ms == clock.now_ms + HOUR_MS
    assert ids[2] is not None and ids[2].until_ms is None
    assert ids[2].key.id == key.id and ids[2].limits == (Limit(key_owner(key.id), "rpm", 3),)
    keys.rotate("k", 0)
    assert len(newer(None).by_hash) == 1


def test_the_scope_is_the_keys_own_or_its_projects(keys):
    keys.create_project("team")
    own = [keys.create(NewKey(n, project="team"))[0].scope for n in "ab"]
    shared = [keys.create(NewKey(n, project="team", cache_scope="project"))[0].scope for n in "cd"]
    assert len(set(own)) == 2 and set(shared) == {"project:team"}


@pytest.mark.parametrize(
    ("new", "param"),
    [
        (NewKey(" "), "name"),
        (NewKey("k", project="none"), "project"),
        (NewKey("k", cache_scope="all"), "cache_scope"),
        (NewKey("k", cache_scope="project"), "cache_scope"),
        (NewKey("k", expires_ms=EPOCH_MS), "expires"),
    ],
)
def test_what_cannot_be_made_is_refused(newer, keys, new, param):
    with pytest.raises(KeyRefused) as caught:
        keys.create(new)
    assert caught.value.param == param
    assert not newer(None).any


def test_other_refusals(keys):
    keys.create_project("p")
    with pytest.raises(KeyRefused, match="already"):
        keys.create_project("p")
    key, _ = keys.create(NewKey("same"))
    keys.create(NewKey("same"))
    with pytest.raises(KeyRefused, match="2 keys"):
        keys.revoke("same")
    with pytest.raises(KeyRefused, match="no key"):
        keys.get("nobody")
    for amounts in ({"rps": 1}, {"rpm": -1}, {"usd_day": 2**63}):
        with pytest.raises(KeyRefused, match=next(iter(amounts))):
            keys.set_limits(key_owner(key.id), amounts)
    keys.revoke(key.id)
    with pytest.raises(KeyRefused, match="revoked"):
        keys.rotate(key.id, 0)


def test_none_takes_a_limit_away(keys):
    key, _ = keys.create(NewKey("k"))
    keys.set_limits(key_owner(key.id), {"rpm": 3, "tpm": 9})
    keys.set_limits(key_owner(key.id), {"rpm": None, "tpm": 4})
    assert keys.get("k").limits == (Limit(key_owner(key.id), "tpm", 4),)


def test_the_first_key_makes_the_ledger_where_there_is_none(empty_url, tmp_path, capsys):
    """Keys come before the first start, on PostgreSQL too; a question makes nothing."""
    config = tmp_path / "agentspec.toml"
    config.write_text(f'data_dir = "{tmp_path}"\n[store]\nurl = "{empty_url}"\n')
    assert main(["keys", "list", "--config", str(config)]) == 2
    assert "agentspec db upgrade" in capsys.readouterr().err
    assert main(["keys", "create", "first", "--config", str(config)]) == 0
    assert main(["keys", "list", "--config", str(config)]) == 0
    assert "first" in capsys.readouterr().out


def test_making_a_key_upgrades_no_ledger_that_is_there(empty_url, tmp_path, capsys):
    upgrade(empty_url, "0009")
    config = tmp_path / "agentspec.toml"
    config.write_text(f'data_dir = "{tmp_path}"\n[store]\nurl = "{empty_url}"\n')
    assert main(["keys", "create", "first", "--config", str(config)]) == 2
    assert "revision 0009, older than this" in capsys.readouterr().err
