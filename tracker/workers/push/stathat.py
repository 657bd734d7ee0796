"""A receiver: StatHat's EZ API. Batches of samples are posted to ``/ez`` as JSON. The EZ key is in the body only, never
in a URL. No text of the reply is logged, because it may repeat the key."""

import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp

from tracker.settings.background import StatHatSettings
from tracker.store.schema.lenient_numbers import json_object
from tracker.system.http_client import open_session, read_body
from tracker.workers.push.sender import ACCEPTED, Outcome, Result, Sample, Send, shorten

TIMEOUT_SECONDS = 10.0
"""How long one reply may take. Nothing waits for it, and a batch without a reply is sent again."""
_MAX_REPLY_BYTES = 16_384
_FORBIDDEN = re.compile(r"[~\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_BAD_BATCH = (400, 413, 422)
_BAD_ADDRESS = (404, 405, 410)
_BUSY = (408, 425, 429, 502, 503, 504)
_KINDS = {"count": "count", "gauge": "value"}
_HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}
_KEY_REJECTED = "EZ key rejected: check TRACKER_STATHAT__EZKEY"


class StatHat:
    """Enabled by an EZ key."""

    name = "StatHat"

    def __init__(self, settings: StatHatSettings, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.timeout_seconds = timeout_seconds
        self._settings = settings

    @property
    def enabled(self) -> bool:
        return bool(self._settings.ezkey and self._settings.ezkey.get_secret_value())

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Send]:
        timeout = aiohttp.ClientTimeout(total=self.timeout_seconds)
        async with open_session(timeout, _HEADERS, keep_alive=False) as session:

            async def send(samples: Sequence[Sample]) -> Result:
                return await self._post(session, samples)

            yield send

    async def _post(self, session: aiohttp.ClientSession, samples: Sequence[Sample]) -> Result:
        url = f"{self._settings.url}/ez"
        try:
            async with session.post(url, data=self._body(samples), allow_redirects=False) as response:
                body = await read_body(response, _MAX_REPLY_BYTES, ValueError("too long"))
                return parse_reply(response.status, response.headers.get("Retry-After", ""), body)
        except (aiohttp.ClientError, OSError, ValueError) as error:  # TimeoutError is an OSError
            return Result(Outcome.UNAVAILABLE, f"no reply ({type(error).__name__})")

    def _body(self, samples: Sequence[Sample]) -> bytes:
        assert self._settings.ezkey is not None
        data = [
            {"stat": stat_name(self._settings.prefix, each.name), _KINDS[each.kind]: each.number, "t": each.time}
            for each in samples
        ]
        return json.dumps({"data": data, "ezkey": self._settings.ezkey.get_secret_value()}).encode()


def stat_name(prefix: str, name: str) -> str:
    """A name that StatHat accepts: no ``~`` (it splits names), no control character, at most 255 characters."""
    return shorten(_FORBIDDEN.sub(lambda found: f"%{ord(found[0]):02X}", prefix + name))


def parse_reply(status: int, retry_after: str, body: bytes) -> Result:
    """The result; accepted only where both the HTTP status and the JSON in the body report success."""
    reply = json_object(body) or {}
    if 200 <= status < 300:
        inner = reply.get("status")
        if isinstance(inner, str) and inner.lower() == "ok":
            return ACCEPTED
        if not re.fullmatch(r"[1-9][0-9]{2}", str(inner)):
            return Result(Outcome.UNAVAILABLE, "invalid reply")
        status = int(str(inner))
        if 200 <= status < 300:
            return ACCEPTED
    about_key = status in (401, 403) or "key" in str(reply.get("msg")).lower()
    reason = _KEY_REJECTED if about_key else f"status {status}"
    if status in _BAD_BATCH:
        return Result(Outcome.REJECTED, reason)
    if 300 <= status < 400 or status in _BAD_ADDRESS:
        return Result(Outcome.UNAVAILABLE, f"status {status}: check TRACKER_STATHAT__URL")
    if status in _BUSY or about_key:
        seconds = float(retry_after) if re.fullmatch(r"[0-9]{1,6}", retry_after) else 0.0
        return Result(Outcome.UNAVAILABLE, reason, seconds)
    return Result(Outcome.SERVER_ERROR, reason)
