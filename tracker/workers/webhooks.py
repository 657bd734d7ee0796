"""Webhooks: post the change feed to the operator's URLs, in signed batches.

Each URL has a task and a position of its own in the store, so a slow receiver delays no other and a restart goes on
where the last tracker stopped. A batch is delivered at least once: it is sent again until the receiver answers with a
status 2xx, and the ids of its changes tell repetitions. Announces only write the feed; they never wait for a delivery.

Here is also what records in the feed which peers have announced.
"""

import asyncio
import hashlib
import hmac
import json
import random
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import aiohttp
from redis.exceptions import RedisError

from tracker.errors import StoreUnavailable
from tracker.store.changes.changes import ChangePage
from tracker.store.changes.webhooks import LEASE_SECONDS, WebhookState, receiver_of, webhook_id
from tracker.store.jobs.lease import Lease
from tracker.store.store import Store
from tracker.system.http_client import open_session
from tracker.system.logger import Logger
from tracker.workers.loop import Sleep, forever

MAX_CHANGES = 500
"""Changes of one batch: about 200 kB of JSON."""
POLL_SECONDS = 1.0
"""How often the feed is read while it has nothing new."""
OTHER_HOLDER_SECONDS = 5.0
"""How often a tracker asks for the lease of a URL to which another one delivers."""
TIMEOUT_SECONDS = 10.0
"""How long one delivery may take: less than the lease."""
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 300.0
TIMESTAMP, SIGNATURE = "X-Tracker-Timestamp", "X-Tracker-Signature"

assert TIMEOUT_SECONDS < LEASE_SECONDS

log = Logger("tracker.webhooks")


def sign(secret: str, timestamp: int, url: str, body: bytes) -> str:
    """The signature of a body: HMAC-SHA256 over the timestamp in decimal digits, the URL and the body, with a full stop
    between them. So the receiver of one URL cannot post its batches to another."""
    signed = f"{timestamp}.{url}.".encode() + body
    return "sha256=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def encode_batch(page: ChangePage, *, gap: bool) -> bytes:
    """The body of a delivery."""
    changes = [change.as_json() for change in page.changes]
    return json.dumps({"gap": gap, "next": page.next, "changes": changes}, separators=(",", ":")).encode()


@dataclass(eq=False, repr=False)
class WebhookWorker:
    """Delivers the feed to all URLs. ``receivers``: the secret of each URL. ``chance`` gives a random number in
    [0, 1)."""

    store: Store
    receivers: Mapping[str, str]
    chance: Callable[[], float] = random.random
    _token: str = field(default_factory=lambda: secrets.token_hex(16))
    _waiting_since: dict[str, float] = field(default_factory=dict)

    @property
    def lag_seconds(self) -> float:
        """The age of the oldest change that this tracker still has to deliver; 0: none."""
        return max([0.0, *(self.store.clock() - at for at in self._waiting_since.values())])

    async def run(self) -> None:
        """Runs until cancelled. Ends at once without URLs."""
        if not self.receivers:
            return
        timeout, headers = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS), {"Content-Type": "application/json"}
        async with open_session(timeout, headers, keep_alive=False) as session:
            async with asyncio.TaskGroup() as tasks:
                for url in self.receivers:
                    tasks.create_task(self._deliver_all(session, url))

    async def _deliver_all(self, session: aiohttp.ClientSession, url: str) -> None:
        deliver = partial(self.deliver_once, session, url)
        failure, pause = "cannot read the change feed", OTHER_HOLDER_SECONDS
        try:
            await forever(deliver, None, failure, error_seconds=pause, connection=self.store.connection)
        finally:
            with suppress(StoreUnavailable, RedisError, asyncio.CancelledError):
                await self.store.webhooks.release(webhook_id(url), self._token)

    async def deliver_once(self, session: aiohttp.ClientSession, url: str) -> float:
        """Delivers at most one batch to ``url``. Returns the seconds until the next call. Raises StoreUnavailable
        and redis.exceptions.RedisError."""
        state = await self.store.webhooks.hold(webhook_id(url), self._token)
        if state is None:
            self._waiting_since.pop(webhook_id(url), None)
            return OTHER_HOLDER_SECONDS
        wait = state.retry_at - self.store.clock()
        if 0 < wait <= MAX_PAUSE_SECONDS + 1:  # not after the clock was set back
            return min(wait, POLL_SECONDS)
        page = await self.store.changes.after(state.position, MAX_CHANGES)
        if not page.changes:
            self._waiting_since.pop(webhook_id(url), None)
            if page.gap:
                await self.store.webhooks.hold(webhook_id(url), self._token, {"position": page.next, "gap": 1})
            return POLL_SECONDS
        self._waiting_since[webhook_id(url)] = page.changes[0].at
        return await self._deliver(session, url, state, page)

    async def _deliver(self, session: aiohttp.ClientSession, url: str, state: WebhookState, page: ChangePage) -> float:
        gap = page.gap or state.gap
        error = await self._post(session, url, encode_batch(page, gap=gap))
        if error:
            return await self._note_failure(url, state, error)
        self.store.counters.count("webhooks.delivered")
        self.store.counters.count("webhooks.changes", by=len(page.changes))
        self._waiting_since.pop(webhook_id(url), None)
        await self.store.webhooks.hold(
            webhook_id(url),
            self._token,
            {
                "position": page.next,
                "gap": 0,
                "delivered": state.delivered + len(page.changes),
                "delivered_at": int(self.store.clock()),
                "gaps": state.gaps + gap,
                "failures": 0,
                "error": "",
                "retry_at": 0,
            },
        )
        if gap:
            log.warning("webhook receiver missed changes that the feed no longer has", receiver=receiver_of(url))
        if state.failures:
            log.info("webhook receiver available again", receiver=receiver_of(url))
        return 0.0 if len(page.changes) == MAX_CHANGES else POLL_SECONDS

    async def _note_failure(self, url: str, state: WebhookState, error: str) -> float:
        self.store.counters.count("webhooks.failed")
        if error != state.error:
            log.warning("webhook delivery failed, retrying", receiver=receiver_of(url), reason=error)
        longest = min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(state.failures, 16))
        retry_at = int(self.store.clock() + longest * (1 + self.chance()) / 2) + 1
        failed: dict[str, Any] = {"failures": state.failures + 1, "error": error, "retry_at": retry_at}
        await self.store.webhooks.hold(webhook_id(url), self._token, failed)
        return POLL_SECONDS

    async def _post(self, session: aiohttp.ClientSession, url: str, body: bytes) -> str:
        """Empty when the receiver took the batch, else why not: a fixed text, as the reply may contain anything."""
        timestamp = int(self.store.clock())
        headers = {TIMESTAMP: str(timestamp), SIGNATURE: sign(self.receivers[url], timestamp, url, body)}
        try:
            async with session.post(url, data=body, headers=headers, allow_redirects=False) as response:
                return "" if 200 <= response.status < 300 else f"status {response.status}"
        except (aiohttp.ClientError, OSError, ValueError) as error:  # TimeoutError is an OSError
            return f"no reply ({type(error).__name__})"


UPDATES_LEASE_SECONDS = 15
_STEP_SECONDS = 1.0
_OFF_SECONDS = 60
"""Between two looks for peers that were noted before the setting was switched off."""


@dataclass(eq=False)
class FeedUpdates:
    """``seconds`` returns the setting, 0: off; ``timer`` returns monotonic seconds. One tracker does it."""

    store: Store
    seconds: Callable[[], int]
    timer: Callable[[], float] = time.monotonic
    sleep: Sleep = asyncio.sleep

    def __post_init__(self) -> None:
        self._recorded_at = self.timer()
        self._lease = Lease(self.store.scripts, "feed", "updates", UPDATES_LEASE_SECONDS, self.store.clock)

    async def run(self) -> None:
        await forever(self.step, _STEP_SECONDS, "updates are not recorded", lease=self._lease, sleep=self.sleep)

    async def step(self) -> None:
        now = self.timer()
        if now >= self._recorded_at + (self.seconds() or _OFF_SECONDS):
            self._recorded_at = now
            await self.store.changes.record_updates()
