from tests.store.ledger import (  # noqa: F401 (fixtures)
    empty_url,
    engine,
    new_postgres,
    postgres_server,
    url,
)
