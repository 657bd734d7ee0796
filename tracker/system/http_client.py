"""HTTP clients: they keep no cookies, use no proxy, and read no more than they are allowed to."""

import ssl
from collections.abc import Mapping

from aiohttp import ClientResponse, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

from tracker import __version__


def open_session(
    timeout: ClientTimeout,
    headers: Mapping[str, str] | None = None,
    *,
    keep_alive: bool = True,
    limit_per_host: int = 0,
    tls: ssl.SSLContext | None = None,
) -> ClientSession:
    """The caller closes it. Without ``keep_alive`` each request has a connection of its own: a server may close a kept
    one at the moment that it is used again."""
    return ClientSession(
        connector=TCPConnector(force_close=not keep_alive, limit_per_host=limit_per_host, ssl=tls or True),
        timeout=timeout,
        cookie_jar=DummyCookieJar(),
        # Compressed replies could expand to any size.
        headers={"User-Agent": f"swarmkeeper/{__version__}", "Accept-Encoding": "identity", **(headers or {})},
        auto_decompress=False,
    )


async def read_body(response: ClientResponse, max_bytes: int, too_long: Exception) -> bytes:
    """Raises ``too_long`` for a body of more than ``max_bytes``."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > max_bytes:
            raise too_long
    return bytes(body)
