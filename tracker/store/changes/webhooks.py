"""The state of webhooks: up to which change each URL has everything, and how its deliveries went. One tracker at a time
delivers to a URL: it holds a lease, which ends when that tracker dies."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from tracker.store.changes.changes import FIRST, Changes
from tracker.store.client.pipe import flattened
from tracker.store.schema.record import Field, fields_of
from tracker.store.sharding.shards import Part, Shard

LEASE_SECONDS = 30
KEPT_SECONDS = 30 * 86400
"""How long the state of a URL is kept that no tracker has in its settings."""


@dataclass(frozen=True, slots=True)
class WebhookState:
    position: Annotated[str, Field("ID of the last change delivered.")] = FIRST
    gap: bool = False  # whether the next batch has to tell that changes were lost
    delivered: Annotated[int, Field("Changes delivered.")] = 0
    delivered_at: Annotated[int, Field("The last delivery; null: none yet.")] = 0
    gaps: Annotated[int, Field("How often changes were deleted before they were delivered.")] = 0
    failures: Annotated[int, Field("Failed deliveries since the last success.")] = 0
    error: Annotated[str, Field("Why the last delivery failed; empty if it did not.")] = ""
    retry_at: int = 0  # epoch s


def webhook_id(url: str) -> str:
    """The name of a URL in keys, which does not show it."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]


def receiver_of(url: str) -> str:
    """What people see of a URL: its path and query may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


class Webhooks(Part):
    """``clock`` returns epoch seconds; ``feed``: the changes that are delivered. Every method raises StoreUnavailable
    when the store does not reply, else redis.exceptions.RedisError."""

    def __init__(self, shard: Shard, clock: Callable[[], float], feed: Changes) -> None:
        super().__init__(shard, clock)
        self._feed = feed

    async def hold(self, id: str, token: str, changed: Mapping[str, str | int] | None = None) -> WebhookState | None:
        """Takes or extends the lease. With ``changed`` only extends it, and writes these fields of the state.

        None: another tracker has it, or had it meanwhile.
        """
        state = self._keys.webhook(id)
        if not await self._connection.command("HEXISTS", state, "position"):  # it starts at the newest change
            newest = await self._feed.newest(1)
            await self._connection.command("HSETNX", state, "position", newest[0].id if newest else FIRST)
        times = (int(self._clock()), LEASE_SECONDS, KEPT_SECONDS)
        row = await self._scripts.hold_webhook([id, token, *times, *flattened(changed or {})])
        return None if row is None else _state(row)

    async def release(self, id: str, token: str) -> None:
        """Ends the lease, so that another tracker goes on at once."""
        await self._scripts.hold_lease(["webhook", id, token, int(self._clock()), 0])

    async def all(self, urls: Sequence[str]) -> list[tuple[str, WebhookState]]:
        """(receiver_of, state) of each URL."""
        rows = [await self._connection.command("HGETALL", self._keys.webhook(webhook_id(url))) for url in urls]
        return list(zip(map(receiver_of, urls), map(_state, rows), strict=True))


def _state(flat: Sequence[bytes]) -> WebhookState:
    row = dict(zip(flat[::2], flat[1::2], strict=True))
    values = {name: each.read(row.get(name.encode())) for name, each in fields_of(WebhookState, plain=True).items()}
    return WebhookState(**values | {"position": values["position"] or FIRST})
