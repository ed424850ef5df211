"""One pooled HTTP client of one backend: its timeouts, its credential, its errors as ours.

Redirects are not followed and proxies from the environment are ignored, so that a request goes
where the settings say and nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from urllib.parse import urlsplit

import aiohttp

from agentspec.settings import BackendSettings, secret
from agentspec.tracing import current
from agentspec.wire.errors import (
    UpstreamDisconnected,
    UpstreamFailed,
    UpstreamTimeout,
    UpstreamUnreachable,
)

from .verdict import error_from_answer

MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
# Below the 5 s after which uvicorn (vLLM, SGLang, our engine) drops an idle connection: a request
# must not meet a connection that is just being closed.
KEEPALIVE_S = 3.0
PROBE_TIMEOUT_S = 3.0
SETTLE_S = 0.05


def api_base(url: str) -> str:
    """The URL under which ``/chat/completions`` lies; a bare origin gets ``/v1``."""
    url = url.rstrip("/")
    return url if urlsplit(url).path else f"{url}/v1"


class HttpClient:
    """The connections to one backend. The session is made on first use, inside the loop.

    Raises ``SettingsError`` when ``api_key_env`` names a variable that is not set.
    """

    def __init__(self, name: str, settings: BackendSettings, *, key_header: str = "Authorization"):
        assert settings.url, "with_defaults() gives every HTTP backend a URL"
        self.name = name
        self.base = api_base(settings.url)
        self.origin = "{0.scheme}://{0.netloc}".format(urlsplit(self.base))
        self._settings = settings
        key = secret(settings.api_key_env)
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if key:
            bearer = key_header == "Authorization"
            self._headers[key_header] = f"Bearer {key}" if bearer else key
        self._session: aiohttp.ClientSession | None = None

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=self._settings.connect_timeout_s
                ),
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        return self._session

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @contextlib.asynccontextmanager
    async def post(
        self,
        path: str,
        body: bytes,
        *,
        base: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """POST and yield the 200 answer. Left early, the connection is closed, not kept.

        base: the URL before ``path``, where it isn't the API's. headers: of this request alone.
        """
        response = await self._send((base or self.base) + path, body, headers)
        try:
            if response.status != 200:
                text = await self._begins(response, MAX_ERROR_BYTES)
                raise error_from_answer(self.name, response.status, response.headers, text)
            yield response
        finally:
            # A fully read response has already given its connection back to the pool.
            response.close()

    async def _send(
        self, url: str, body: bytes, headers: dict[str, str] | None
    ) -> aiohttp.ClientResponse:
        session = self._open_session()
        trace = current.get()
        if trace is not None and trace.upstream:
            headers = {**trace.upstream, **(headers or {})}
        try:
            async with asyncio.timeout(self._settings.first_byte_timeout_s):
                return await session.post(url, data=body, headers=headers, allow_redirects=False)
        except aiohttp.ConnectionTimeoutError:
            raise UpstreamUnreachable(
                f"No connection to backend '{self.name}' within "
                f"{self._settings.connect_timeout_s:g} s."
            ) from None
        except TimeoutError:
            raise UpstreamTimeout(
                f"Backend '{self.name}' sent nothing within "
                f"{self._settings.first_byte_timeout_s:g} s."
            ) from None
        except aiohttp.ClientConnectorError:
            raise UpstreamUnreachable(f"Backend '{self.name}' cannot be reached.") from None
        except aiohttp.ClientError:
            raise UpstreamDisconnected.of(self.name) from None

    async def pieces(self, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
        """The body as it comes. Raises ``UpstreamFailed`` where it breaks off.

        The first piece may take as long as the first-byte timeout, later ones the idle timeout.
        """
        patience_s = self._settings.first_byte_timeout_s
        while True:
            try:
                async with asyncio.timeout(patience_s):
                    piece = await response.content.readany()
            except TimeoutError:
                raise UpstreamTimeout(
                    f"Backend '{self.name}' sent nothing for {patience_s:g} s."
                ) from None
            except aiohttp.ClientError:
                raise UpstreamDisconnected.of(self.name) from None
            if not piece:
                return
            yield piece
            patience_s = self._settings.idle_timeout_s

    async def settle(self, response: aiohttp.ClientResponse) -> None:
        """Read the body's end after the last event, so that the connection can be used again.

        A server that keeps it open loses the connection instead of holding up the answer.
        """
        with contextlib.suppress(TimeoutError, aiohttp.ClientError):
            async with asyncio.timeout(SETTLE_S):
                while await response.content.readany():
                    continue

    async def read(self, response: aiohttp.ClientResponse) -> bytes:
        """The whole body. Raises ``UpstreamFailed`` where it breaks off or is too large."""
        return await self._read(response, MAX_ANSWER_BYTES)

    async def _read(self, response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
        body = bytearray()
        async for piece in self.pieces(response):
            body += piece
            if len(body) > limit_bytes:
                raise UpstreamFailed(f"Backend '{self.name}' sent an answer that is too large.")
        return bytes(body)

    async def _begins(self, response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
        """The body, of one that is larger its beginning: a long error is still that error."""
        body = bytearray()
        async with contextlib.aclosing(self.pieces(response)) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) >= limit_bytes:
                    break
        return bytes(body[:limit_bytes])

    async def get(self, url: str) -> bytes:
        """A short GET (a probe). Raises ``UpstreamFailed`` unless it answers 200."""
        session = self._open_session()
        try:
            async with (
                asyncio.timeout(PROBE_TIMEOUT_S),
                session.get(url, allow_redirects=False) as response,
            ):
                if response.status != 200:
                    status = response.status
                    raise UpstreamFailed(f"Backend '{self.name}' answered {status}.", status=status)
                return await self._read(response, MAX_ANSWER_BYTES)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UpstreamUnreachable(
                f"Backend '{self.name}' cannot be reached ({type(error).__name__})."
            ) from None
