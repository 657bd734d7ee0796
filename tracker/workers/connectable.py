"""Checks which peers accept connections, and saves the results. Nothing else depends on them.

A job per minute walks on through the swarms. It connects to endpoints without a result of the last day, one of each
address (IPv6: /64) and three a day, some at a time, so that other probes wait for a few seconds at most.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tracker.bittorrent import Endpoint
from tracker.store.store import Store
from tracker.store.torrents.torrents import Peer
from tracker.workers.prober import Prober, Status, network_of

EVERY_SECONDS = 60
MAX_CHECKS_A_RUN = 40
"""57,600 endpoints a day."""
MAX_READS_A_RUN = 200
"""Pages of torrents or peers that a run reads: about half a second of the store's time."""
CONCURRENCY = 4
_PAGE = 100
_CONNECTABLE = {Status.CONFIRMED: True, Status.UNREACHABLE: False, Status.UNKNOWN: None}


@dataclass(eq=False)
class ConnectableWorker:
    """Continues its walk through the swarms with each run. A new process starts again."""

    store: Store
    prober: Prober
    _walk: AsyncIterator[list[Peer]] | None = None

    async def handle(self, _: object = None) -> None:
        """Handles jobs of the queue ``check_connectable``. May be cancelled, and run in several trackers at once.
        Raises StoreUnavailable and redis.exceptions.RedisError."""
        if not self.prober.is_enabled():
            return
        try:
            due = await self._due()
        except BaseException:
            self._walk = None  # it cannot continue after an error
            raise
        waiting = iter(due.items())

        async def work() -> None:
            for endpoint, user_id in waiting:
                status = await self.prober.connect(endpoint)
                if status in _CONNECTABLE:
                    await self.store.connect_checks.note(endpoint, user_id, _CONNECTABLE[status])

        await asyncio.gather(*(work() for _ in range(CONCURRENCY)))

    async def _due(self) -> dict[Endpoint, str]:
        """Endpoints to check, one of each address, with the user of the peer or an empty text."""
        due: dict[bytes, tuple[Endpoint, str]] = {}
        self._walk = self._walk or self._swarms()
        for _ in range(MAX_READS_A_RUN):
            peers = await anext(self._walk, None)
            if peers is None:  # the end of the round
                self._walk = None
                break
            users = {
                endpoint: peer.fields.get("user_id", "")
                for peer in peers
                for endpoint in peer.endpoints
                if self.prober.is_target(endpoint) and self.prober.has_checks_left(endpoint)
            }
            known = await self.store.connect_checks.of(list(users))
            for endpoint, user_id in users.items():
                if endpoint not in known:
                    due.setdefault(network_of(endpoint), (endpoint, user_id))
            if len(due) >= MAX_CHECKS_A_RUN:
                break
        return dict(list(due.values())[:MAX_CHECKS_A_RUN])

    async def _swarms(self) -> AsyncIterator[list[Peer]]:
        """The peers of all swarms, some at a time, and none after each page of torrents."""
        cursor, more = 0, True
        while more:
            cursor, torrents = await self.store.torrents.page(cursor, _PAGE)
            yield []
            for torrent in torrents:
                after, begun = 0, torrent.seeders + torrent.leechers == 0
                while after or not begun:
                    after, peers = await self.store.torrents.peers(torrent, after, _PAGE)
                    begun = True
                    yield peers
            more = cursor != 0
