"""The schema's versions: bring a database to this code's, or say why it does not fit.

The scripts are the distribution's ``migrations`` folder, found wherever the package is installed.
alembic is imported inside the functions: only ``db upgrade|check`` and a first start need it.
"""

from __future__ import annotations

import re

from sqlalchemy import Connection, Engine, inspect, text

from agentspec.resources import data_dir

from . import energy_schema, keys_schema, price_schema  # noqa: F401 (their tables: see metadata)
from .database import connect, connect_reader, missing_file
from .errors import Damaged, SchemaMismatch
from .health import problems
from .rebuild import rebuild_if_asked
from .schema import REVISION, metadata

PARTITION = re.compile(r"(request|request_payload)_(p\d{6,8}|default)")
_ADVISORY_LOCK = 0x61676E74  # any constant: concurrent upgrades of one PostgreSQL wait for it


def upgrade(url: str, revision: str = "head") -> None:
    """Bring the database to ``revision``, creating it if need be, in one transaction.

    Concurrent upgrades wait for each other. Raises ``SchemaMismatch`` when the database is newer
    than this code.
    """
    _run(url, "upgrade", revision)


def upgrade_empty(url: str) -> None:
    """``upgrade``, but only where there is no ledger yet."""
    if missing_file(url) is None:
        engine = connect_reader(url)
        try:
            with engine.connect() as connection:
                if current(connection) is not None:
                    return
        finally:
            engine.dispose()
    upgrade(url)


def downgrade(url: str, revision: str) -> None:
    """Take the database back to ``revision`` ("base": nothing left). Deletes the rows that go."""
    _run(url, "downgrade", revision)


def check(url: str) -> str:
    """The revision, when the database's tables are those of ``schema.py`` and sound.

    Raises ``SchemaMismatch`` listing what differs, ``Damaged`` listing what is broken
    (``health.problems``). Changes nothing.
    """
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext

    require_file(url)
    engine = connect_reader(url)
    if engine.dialect.name == "postgresql":
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    try:
        require_current(engine)
        with engine.connect() as connection:
            options = {"compare_type": True, "include_name": _is_ours}
            context = MigrationContext.configure(connection, opts=options)
            differences = compare_metadata(context, metadata)
            found = [] if differences else problems(connection)
    finally:
        engine.dispose()
    if differences:
        listed = "\n".join(f"  {difference}" for difference in differences)
        raise SchemaMismatch(f"the database differs from revision {REVISION}:\n{listed}")
    if found:
        listed = "\n".join(f"  {problem}" for problem in found)
        raise Damaged(f"the ledger is damaged:\n{listed}")
    return REVISION


def _is_ours(name: str | None, kind: str, _parents: object) -> bool:
    """PostgreSQL lists a table's partitions beside it."""
    return kind != "table" or name is None or not PARTITION.fullmatch(name)


def require_file(url: str) -> None:
    """Raises ``SchemaMismatch`` where SQLite's file is not there."""
    missing = missing_file(url)
    if missing is not None:
        raise SchemaMismatch(f"there is no ledger at {missing}: run `agentspec db upgrade`")


def require_current(engine: Engine) -> None:
    """Raises ``SchemaMismatch`` unless the database is at this code's revision."""
    with engine.connect() as connection:
        found = current(connection)
    if found == REVISION:
        return
    if found is None:
        raise SchemaMismatch("the database has no ledger yet: run `agentspec db upgrade`")
    if found > REVISION:
        raise _newer(found)
    raise SchemaMismatch(
        f"the database is at revision {found}, older than this agentspec ({REVISION}): "
        "run `agentspec db upgrade`"
    )


def current(connection: Connection) -> str | None:
    """The database's revision; None where no migration ever ran. Raises ``SchemaMismatch`` where
    several are noted."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = sorted(connection.execute(text("SELECT version_num FROM alembic_version")).scalars())
    if len(found) > 1:
        raise SchemaMismatch(f"the database is at several revisions at once: {', '.join(found)}")
    return found[0] if found else None


def _newer(found: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"the database is at revision {found}, newer than this agentspec ({REVISION}): "
        "install the agentspec that made it, or a later one"
    )


def _run(url: str, direction: str, revision: str) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(data_dir("migrations")).replace("%", "%%"))
    engine = connect(url)
    try:
        with engine.begin() as connection:
            if engine.dialect.name == "postgresql":
                connection.execute(
                    text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK}
                )
            found = current(connection)
            if found is not None and found > REVISION:
                raise _newer(found)
            config.attributes["connection"] = connection
            getattr(command, direction)(config, revision)
            if current(connection) == REVISION:
                rebuild_if_asked(connection)
    finally:
        engine.dispose()
