"""API keys and projects: made, listed, limited, replaced and revoked.

A secret has 256 random bits, so plain SHA-256 keeps it: slow or salted hashes protect words that
can be guessed, and a keyed hash would add a second secret that every gateway has to share. Only the
hash is stored; the secret is returned once, by ``create`` and ``rotate``.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, Row, delete, insert, select, update

from agentspec.wire.access import digest

from .budgets import BUDGETS, KINDS, MOST, Limit
from .database import insert_new, upsert
from .errors import StoreError
from .keys_schema import api_key, key_epoch, key_limit, project
from .leases import catch_up

PREFIX = "as-"
SECRET_BYTES = 32
SCOPES = ("key", "project")


class KeyRefused(StoreError):
    """A key or project that is not there, or cannot be as was asked."""

    type = "invalid_request_error"
    code = "invalid_key"


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A key, without its secret. limits: its own, not its project's."""

    id: str
    name: str
    project: str | None
    created_ms: int
    expires_ms: int | None
    revoked_ms: int | None
    models: tuple[str, ...] | None
    cache_scope: str
    operator: bool
    limits: tuple[Limit, ...] = ()

    @property
    def scope(self) -> str:
        """The tenant: what is cached for one scope is never seen from another."""
        return project_owner(self.project) if self._shares and self.project else self.id

    @property
    def _shares(self) -> bool:
        return self.cache_scope == "project"

    def state(self, now_ms: int) -> str:
        if self.revoked_ms is not None:
            return "revoked"
        return "expired" if self.expires_ms is not None and self.expires_ms <= now_ms else "active"


@dataclass(frozen=True, slots=True)
class ProjectRecord:
    """limits: what all its keys may use together."""

    name: str
    created_ms: int
    limits: tuple[Limit, ...] = ()


@dataclass(frozen=True, slots=True)
class NewKey:
    """What ``create`` needs. models: None for all; cache_scope: "key" or "project"."""

    name: str
    project: str | None = None
    models: Sequence[str] | None = None
    cache_scope: str = "key"
    expires_ms: int | None = None
    operator: bool = False


def printable(name: str) -> str:
    """A name for a line of text, with what would not be seen in it escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def key_owner(key_id: str) -> str:
    return f"key:{key_id}"


def project_owner(name: str | None) -> str:
    return f"project:{name}"


def hash_of(secret: str) -> str:
    """SHA-256, hex: what is stored of a secret."""
    return digest(secret).hex()


class KeyStore:
    """Keys and projects in SQL. Every method blocks; raises ``SQLAlchemyError`` where the database
    fails, ``KeyRefused`` for what cannot be done. now_ms: Unix milliseconds."""

    def __init__(self, engine: Engine, now_ms: Callable[[], int]):
        self.engine = engine
        self._now_ms = now_ms

    def create(
        self, new: NewKey, limits: Mapping[str, int | None] | None = None
    ) -> tuple[KeyRecord, str]:
        """(the key, its secret, which cannot be had again). limits: as of ``set_limits``; either
        all is made or nothing."""
        limits = limits or {}
        _require_name("key", new.name)
        _require_models(new.models or ())
        _require_amounts(limits)
        _require_scope(new.cache_scope, new.project)
        if new.expires_ms is not None and new.expires_ms <= self._now_ms():
            raise KeyRefused("the key would be expired from the start", param="expires")
        secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        row = {
            "id": f"key-{secrets.token_hex(6)}",
            "hash": hash_of(secret),
            "name": new.name,
            "project": new.project,
            "created_ms": self._now_ms(),
            "expires_ms": new.expires_ms,
            "models": None if new.models is None else json.dumps(list(new.models)),
            "cache_scope": new.cache_scope,
            "operator": new.operator,
        }
        with self.engine.begin() as connection:
            if new.project is not None:
                _require_project(connection, new.project)
            connection.execute(insert(api_key), row)
            self._set_limits(connection, key_owner(row["id"]), limits)
            self._bump(connection)
            made = key_record(_require_key(connection, row["id"]), limits_of(connection))
        return made, secret

    def rotate(self, id: str, grace_ms: int) -> str:
        """A new secret for a key; the old one is good for ``grace_ms`` more, one before it ends."""
        secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        with self.engine.begin() as connection:
            row = _require_key(connection, id)
            if row.revoked_ms is not None:
                raise KeyRefused(f"key {row.id} is revoked", param="key")
            old = {"old_hash": row.hash, "old_until_ms": self._now_ms() + grace_ms}
            if grace_ms <= 0:
                old = {"old_hash": None, "old_until_ms": None}
            change = update(api_key).where(api_key.c.id == row.id)
            connection.execute(change.values(hash=hash_of(secret), **old))
            self._bump(connection)
        return secret

    def revoke(self, id: str) -> KeyRecord:
        """End a key for good. Ending it twice changes nothing."""
        with self.engine.begin() as connection:
            row = _require_key(connection, id)
            change = update(api_key).where(api_key.c.id == row.id, api_key.c.revoked_ms.is_(None))
            connection.execute(change.values(revoked_ms=self._now_ms()))
            self._bump(connection)
        return self.get(row.id)

    def change(
        self,
        id: str,
        *,
        models: Sequence[str] | None = None,
        cache_scope: str | None = None,
        operator: bool | None = None,
    ) -> KeyRecord:
        """Change what is given; no models at all means every one."""
        values: dict[str, Any] = {}
        _require_models(models or ())
        if models is not None:
            values["models"] = json.dumps(list(models)) if models else None
        if operator is not None:
            values["operator"] = operator
        with self.engine.begin() as connection:
            row = _require_key(connection, id)
            if cache_scope is not None:
                _require_scope(cache_scope, row.project)
                values["cache_scope"] = cache_scope
            if values:
                connection.execute(update(api_key).where(api_key.c.id == row.id).values(**values))
                self._bump(connection)
        return self.get(row.id)

    def set_limits(self, owner: str, amounts: Mapping[str, int | None]) -> None:
        """Set limits by kind; None takes one away. owner: as ``key_owner``, ``project_owner``."""
        _require_amounts(amounts)
        with self.engine.begin() as connection:
            self._set_limits(connection, owner, amounts)
            self._bump(connection)

    def _set_limits(
        self, connection: Connection, owner: str, amounts: Mapping[str, int | None]
    ) -> None:
        had = {limit.kind for limit in limits_of(connection).get(owner, ())}
        for kind, amount in amounts.items():
            if amount is None:
                where = (key_limit.c.owner == owner, key_limit.c.kind == kind)
                connection.execute(delete(key_limit).where(*where))
            else:
                row = {"owner": owner, "kind": kind, "amount": amount}
                connection.execute(upsert(self.engine, key_limit), row)
                if kind in BUDGETS and kind not in had:
                    catch_up(connection, owner, kind, self._now_ms())

    def create_project(self, name: str, limits: Mapping[str, int | None] | None = None) -> None:
        """limits: as of ``set_limits``; either all is made or nothing."""
        limits = limits or {}
        _require_name("project", name)
        _require_amounts(limits)
        with self.engine.begin() as connection:
            if _has_project(connection, name):
                raise KeyRefused(f"there is a project '{name}' already", param="project")
            connection.execute(insert(project), {"name": name, "created_ms": self._now_ms()})
            self._set_limits(connection, project_owner(name), limits)
            self._bump(connection)

    def get(self, id: str) -> KeyRecord:
        """By id, or by a name that only one key has."""
        with self.engine.connect() as connection:
            return key_record(_require_key(connection, id), limits_of(connection))

    def require_project(self, name: str) -> None:
        """Raises ``KeyRefused`` where there is none of that name."""
        with self.engine.connect() as connection:
            _require_project(connection, name)

    def _bump(self, connection: Connection) -> None:
        first = {"name": "keys", "value": 0}
        connection.execute(insert_new(self.engine, key_epoch), first)
        connection.execute(update(key_epoch).values(value=key_epoch.c.value + 1))

    def close(self) -> None:
        self.engine.dispose()


def limits_of(connection: Connection) -> dict[str, tuple[Limit, ...]]:
    """Every limit, by its owner, in the order of ``KINDS``."""
    found: dict[str, list[Limit]] = {}
    for row in connection.execute(select(key_limit)):
        found.setdefault(row.owner, []).append(Limit(row.owner, row.kind, row.amount))
    return {k: tuple(sorted(v, key=lambda x: KINDS.index(x.kind))) for k, v in found.items()}


def key_record(row: Row[Any], limits: Mapping[str, tuple[Limit, ...]]) -> KeyRecord:
    return KeyRecord(
        id=row.id,
        name=row.name,
        project=row.project,
        created_ms=row.created_ms,
        expires_ms=row.expires_ms,
        revoked_ms=row.revoked_ms,
        models=None if row.models is None else tuple(json.loads(row.models)),
        cache_scope=row.cache_scope,
        operator=row.operator,
        limits=limits.get(key_owner(row.id), ()),
    )


def _require_name(what: str, name: str) -> None:
    """Lists show it in a line of its own, which it must not end or overwrite."""
    if not name.strip():
        raise KeyRefused(f"a {what} needs a name", param="name")
    if not name.isprintable():
        raise KeyRefused(
            f"the name of a {what} holds a character that prints nothing: {name!a}", param="name"
        )


def _require_models(names: Sequence[str]) -> None:
    for name in names:
        if not name.isprintable():
            raise KeyRefused(
                f"a model's name holds a character that prints nothing: {name!a}", param="models"
            )


def _require_amounts(amounts: Mapping[str, int | None]) -> None:
    for kind, amount in amounts.items():
        if kind not in KINDS:
            raise KeyRefused(f"there is no limit '{kind}': {', '.join(KINDS)}", param=kind)
        if amount is not None and not 0 <= amount <= MOST:
            raise KeyRefused(f"{kind} must be between 0 and {MOST}", param=kind)


def _require_scope(cache_scope: str, project: str | None) -> None:
    if cache_scope not in SCOPES:
        raise KeyRefused("cache_scope must be 'key' or 'project'", param="cache_scope")
    if cache_scope == "project" and project is None:
        raise KeyRefused(
            "a key without a project has no project's scope to share", param="cache_scope"
        )


def _require_key(connection: Connection, id: str) -> Row[Any]:
    row = connection.execute(select(api_key).where(api_key.c.id == id)).one_or_none()
    if row is not None:
        return row
    named = connection.execute(select(api_key).where(api_key.c.name == id)).all()
    if len(named) == 1:
        return named[0]
    if named:
        raise KeyRefused(
            f"{len(named)} keys are named '{printable(id)}': give the id of one", param="key"
        )
    raise KeyRefused(f"there is no key '{printable(id)}'", param="key")


def _has_project(connection: Connection, name: str) -> bool:
    query = select(project.c.name).where(project.c.name == name)
    return connection.execute(query).first() is not None


def _require_project(connection: Connection, name: str) -> None:
    if not _has_project(connection, name):
        raise KeyRefused(
            f"there is no project '{printable(name)}': "
            "make it with `agentspec keys project create`",
            param="project",
        )
