"""Alembic's entry: runs the migrations on ``agentspec.store.migrate``'s connection."""

from alembic import context

from agentspec.store.schema import metadata


def run() -> None:
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=metadata,
        render_as_batch=True,
        compare_type=True,
        # The caller holds the transaction, on SQLite too, where DDL is transactional after BEGIN.
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


run()
