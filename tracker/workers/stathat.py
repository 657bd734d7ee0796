"""StatHat's EZ API: batches of figures as JSON, posted to ``/ez``.

The EZ key is in the body only, never in a URL; nothing the other side says gets into the log, for it may repeat the key.
"""

import json
import random
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import aiohttp

from tracker.counting import Count
from tracker.settings import StatHatSettings
from tracker.store.connection import Connection
from tracker.store.outbox import Outbox
from tracker.workers.figures import TAKEN, Answer, Figure, Post, Sender, Verdict, short_name

_LONGEST_ANSWER = 16_384
_FORBIDDEN = re.compile(r"[~\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_BAD_BATCH = (400, 413, 422)
_BAD_ADDRESS = (404, 405, 410)
_BUSY = (408, 425, 429, 502, 503, 504)
_HEADERS = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
_KEY_REFUSED = "the EZ key is refused: look at TRACKER_STATHAT__EZKEY"


class StatHat:
    """Sends the outbox to StatHat when ``flush`` is called; does nothing without an EZ key."""

    def __init__(
        self,
        settings: StatHatSettings,
        outbox: Outbox,
        connection: Connection,
        *,
        torrents: Callable[[], Awaitable[int]],
        count: Count,
        clock: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._sender = Sender(
            "StatHat",
            outbox,
            connection,
            timeout=settings.timeout_seconds,
            torrents=torrents,
            count=count,
            clock=clock,
            chance=chance,
        )

    @property
    def wanted(self) -> bool:
        """Is there a key?"""
        return bool(self._settings.ezkey and self._settings.ezkey.get_secret_value())

    async def flush(self, _payload: object = None) -> None:
        """The handler of flush_stathat jobs. StatHat's failures end in a pause, not in an error; raises StoreAway and
        redis.exceptions.RedisError."""
        if not self.wanted:
            return
        async with aiohttp.ClientSession(
            # A line kept open may be closed by the other side just when it is used again.
            connector=aiohttp.TCPConnector(force_close=True),
            timeout=aiohttp.ClientTimeout(total=self._settings.timeout_seconds),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            headers=_HEADERS,
        ) as session:
            post: Post = partial(self._post, session)
            await self._sender.flush(post)

    async def _post(self, session: aiohttp.ClientSession, figures: Sequence[Figure]) -> Answer:
        url = f"{self._settings.url}/ez"
        try:
            async with session.post(url, data=self._body(figures), allow_redirects=False) as response:
                body = await _read(response)
                return judge(response.status, response.headers.get("Retry-After", ""), body)
        except (aiohttp.ClientError, OSError, ValueError) as error:  # OSError: TimeoutError is one
            return Answer(Verdict.FAILED, f"no answer ({type(error).__name__})")

    def _body(self, figures: Sequence[Figure]) -> bytes:
        assert self._settings.ezkey is not None
        data = [
            {
                "stat": stat_name(self._settings.prefix, figure.statistic),
                figure.kind: figure.number,
                "t": figure.at,
            }
            for figure in figures
        ]
        return json.dumps({"data": data, "ezkey": self._settings.ezkey.get_secret_value()}).encode()


def stat_name(prefix: str, statistic: str) -> str:
    """A name that StatHat takes: no ``~`` (it would split the name), no control character, at most 255 characters."""
    return short_name(_FORBIDDEN.sub(lambda found: f"%{ord(found[0]):02X}", prefix + statistic))


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body; raises ValueError when it is too long to be an answer."""
    body = b""
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _LONGEST_ANSWER:
            raise ValueError("too long")
    return body


def judge(status: int, retry_after: str, body: bytes) -> Answer:
    """What an answer means: taken is only what both HTTP and the JSON in it call a success."""
    said = _parse(body)
    if 200 <= status < 300:
        inner = said.get("status")
        if isinstance(inner, str) and inner.lower() == "ok":
            return TAKEN
        if not re.fullmatch(r"[1-9][0-9]{2}", str(inner)):
            return Answer(Verdict.FAILED, "an answer that makes no sense")
        status = int(str(inner))
        if 200 <= status < 300:
            return TAKEN
    about_key = status in (401, 403) or "key" in str(said.get("msg")).lower()
    reason = _KEY_REFUSED if about_key else f"status {status}"
    if status in _BAD_BATCH:
        return Answer(Verdict.REFUSED, reason)
    if 300 <= status < 400 or status in _BAD_ADDRESS:
        return Answer(Verdict.FAILED, f"status {status}: look at TRACKER_STATHAT__URL")
    if status in _BUSY or about_key:
        pause = float(retry_after) if re.fullmatch(r"[0-9]{1,6}", retry_after) else 0.0
        return Answer(Verdict.FAILED, reason, pause)
    return Answer(Verdict.TROUBLE, reason)


def _parse(body: bytes) -> dict[str, Any]:
    """The JSON object in it; an empty one when there is none."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
