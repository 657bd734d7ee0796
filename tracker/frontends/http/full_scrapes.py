"""The encoded answer to a full scrape, cached for a minute."""

import asyncio

from tracker.bittorrent import ScrapeReply
from tracker.wire.http_reply import encode_scrape_parts

_CACHE_SECONDS = 60.0


class FullScrapes:
    """Caches one encoded answer, which may have a hundred megabytes."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._cached: tuple[ScrapeReply, bytes] | None = None

    async def encode(self, reply: ScrapeReply) -> bytes:
        """Encodes a reply once, one reply at a time; the event loop runs between its parts."""
        async with self._lock:
            if self._cached is None or self._cached[0] is not reply:
                self._cached = None
                parts = []
                for part in encode_scrape_parts(reply):
                    parts.append(part)
                    await asyncio.sleep(0)
                self._cached = cached = reply, b"".join(parts)
                asyncio.get_running_loop().call_later(_CACHE_SECONDS, self._forget, cached)
            return self._cached[1]

    def _forget(self, cached: tuple[ScrapeReply, bytes]) -> None:
        if self._cached is cached:
            self._cached = None
