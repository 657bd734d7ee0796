"""The right to run the node of a name: one tracker of a store has it."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog
from redis.exceptions import RedisError

from tracker.errors import StoreUnavailable
from tracker.store.dht.nodes import LEASE_SECONDS, DhtNodes

RENEW_SECONDS = LEASE_SECONDS / 3
RETRY_SECONDS = LEASE_SECONDS / 6

log = structlog.get_logger("tracker.dht")


class NameLease:
    """``clock`` returns epoch seconds."""

    def __init__(
        self,
        store: DhtNodes,
        name: str,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.held = False
        self._store = store
        self._name = name
        self._clock = clock
        self._sleep = sleep
        self._token = secrets.token_hex(8)

    async def acquire(self) -> None:
        """Returns as soon as this tracker has it. Waits for another tracker that has it, and for the store."""
        warned = False
        while (taken := await self._take()) is not True:
            if taken is False and not warned:
                log.warning(
                    "another tracker runs the DHT node of this name, or ended without notice within the last "
                    "minute; waiting (TRACKER_DHT__NAME)",
                    name=self._name,
                )
                warned = True
            await self._sleep(RETRY_SECONDS)

    async def until_lost(self) -> None:
        """Renews it; returns when another tracker has it. Goes on while the store is unavailable."""
        while await self._take() is not False:
            await self._sleep(RENEW_SECONDS)
        log.error("another tracker took the name of this DHT node; the node is silent", name=self._name)

    async def release(self) -> None:
        """A lease that cannot be released ends by itself."""
        if self.held:
            with suppress(StoreUnavailable, RedisError):
                await self._store.release(self._name, self._token, int(self._clock()))

    async def _take(self) -> bool | None:
        """Takes or renews it. False: another tracker has it; ``None``: the store is unavailable."""
        try:
            self.held = await self._store.lease(self._name, self._token, int(self._clock()))
        except (StoreUnavailable, RedisError):
            return None
        return self.held
