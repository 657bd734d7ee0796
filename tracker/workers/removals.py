"""Removes the peers of users, clients and torrents that are refused, within seconds. The store lists what is to be
removed, so another tracker goes on after a crash; two that remove the same peers do no harm."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from tracker.store.access.client_lists import STALE_SECONDS
from tracker.store.sharding.shards import Shard
from tracker.store.swarms.reaping import Reaping, Removals
from tracker.system.logger import Logger
from tracker.workers.loop import forever, until_next

EVERY_SECONDS = 1.0

log = Logger("tracker.removals")


@dataclass(eq=False)
class RemovalWorker:
    """``denied`` returns the prefixes of denied clients, ``held`` the numbers of the shards that are this tracker's."""

    removals: Removals
    reapings: Mapping[Shard, Reaping]
    denied: Callable[[], Awaitable[Sequence[bytes]]]
    held: Callable[[], Sequence[int]]
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep

    async def run(self) -> None:
        await forever(self.remove_once, EVERY_SECONDS, "peers are not removed", sleep=until_next)

    async def remove_once(self) -> int:
        """Removes all peers that are to be removed now; returns their number."""
        pending = await self.removals.pending(self.held())
        if any(entry.startswith("client:") for entries in pending.values() for entry in entries):
            await self.sleep(STALE_SECONDS)  # until then a process may admit a client that it knows as allowed
        denied = await self.denied() if pending else ()
        removed = sum(
            await asyncio.gather(
                *(self.reapings[shard].remove(entries, denied, self.sleep) for shard, entries in pending.items())
            )
        )
        if removed:
            log.info("removed peers of refused users, clients or torrents", peers=removed)
        return removed
