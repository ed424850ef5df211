"""What can go wrong between a request and its row."""

from __future__ import annotations

from agentspec.wire.errors import AgentspecError


class StoreError(AgentspecError):
    """The ledger or its database could not do what was asked."""

    type = "server_error"
    code = "store_error"


class JournalError(StoreError):
    """A record was not journalled. ``errno`` is the system's reason (0: it could not be encoded).

    The request itself is not harmed by it; its row is missing unless the caller tries again.
    """

    code = "journal_error"

    def __init__(self, message: str, *, errno: int = 0):
        super().__init__(message)
        self.errno = errno


class SchemaMismatch(StoreError):
    """The database's schema is not the one this code was written for; the message says the way."""

    code = "schema_mismatch"


class Damaged(StoreError):
    """The schema is right, and what lies in it is not; the message lists what."""

    code = "ledger_damaged"
