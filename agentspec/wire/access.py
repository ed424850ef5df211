"""Who may use this endpoint: anybody on loopback without a key, else whoever holds the key."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
from collections.abc import Mapping

from agentspec.settings import EngineSettings, ServerSettings, SettingsError, secret

from .errors import AuthenticationFailed


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a socket bound to ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Checks a request's credential. Without a key everybody passes, under the empty key id.

    The key itself isn't kept: only its hash, compared in constant time.
    """

    def __init__(self, key: str | None):
        self._digest = digest(key) if key else None
        self._key_id = f"key-{self._digest.hex()[:12]}" if self._digest else ""

    @property
    def open(self) -> bool:
        return self._digest is None

    def check(self, headers: Mapping[str, str]) -> str:
        """The id of the key that was presented ("" on an open endpoint).

        headers: names in lower case. Raises ``AuthenticationFailed``.
        """
        if self._digest is None:
            return ""
        keys = presented(headers)
        if not keys:
            raise no_key()
        if not any(hmac.compare_digest(digest(key), self._digest) for key in keys):
            raise wrong_key()
        return self._key_id


def guard_for(listener: ServerSettings | EngineSettings) -> Guard:
    """The guard that the settings of a process that listens ask for.

    Raises ``SettingsError`` when the key's variable is not set, and when others than this machine
    could reach an endpoint that asks for no key.
    """
    key = secret(listener.api_key_env)
    if key is None and not is_loopback(listener.host):
        section = "engine" if isinstance(listener, EngineSettings) else "server"
        raise SettingsError(
            f"{section}.host is {listener.host}, which other machines can reach: name the variable "
            f"that holds a key in {section}.api_key_env, or bind to 127.0.0.1"
        )
    return Guard(key)


def no_key() -> AuthenticationFailed:
    return AuthenticationFailed(
        "You didn't provide an API key. Send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'."
    )


def wrong_key() -> AuthenticationFailed:
    """Says nothing of the key: an error is logged, shown and passed on."""
    return AuthenticationFailed("Incorrect API key provided.")


def digest(key: str) -> bytes:
    """SHA-256: all that is kept of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def presented(headers: Mapping[str, str]) -> list[str]:
    """The credentials of a request: a bearer token or the password of Basic (any user; what
    browsers send), and ``x-api-key``.

    A client that was told one may send another beside it that is meant for its vendor: a request
    passes with any good one.
    """
    found = [_authorization(headers.get("authorization", "")), headers.get("x-api-key", "")]
    return list(dict.fromkeys(key for key in found if key))


def _authorization(header: str) -> str:
    scheme, _, value = header.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            decoded = base64.b64decode(value.strip(), validate=True)
        except binascii.Error:
            return ""
        return decoded.partition(b":")[2].decode("utf-8", "surrogateescape")
    return ""
