"""Says what a node of the DHT knows and does: saves it for the dashboard, the API and the command line."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass

from redis.exceptions import RedisError

from tracker.bittorrent import Address, InfoHash
from tracker.dht.announced_peers import SwarmSummary
from tracker.dht.node import DhtNode
from tracker.errors import StoreUnavailable
from tracker.store.dht.nodes import AnnouncedHash, DhtNodes
from tracker.store.dht.status import Mode, NodeStatus, Participation
from tracker.store.dht.torrents import DhtTorrents
from tracker.wire.endpoint import format_address
from tracker.workers.loop import Sleep, forever

STATUS_SECONDS = 5
HASHES_SECONDS = 30
COUNT_SECONDS = 300
"""How often the torrents that take part are counted."""


@dataclass(eq=False)
class StatusWorker:
    """``nodes`` by 4 and 6. ``clock`` returns epoch seconds, ``timer`` the time of the nodes. ``may_save`` is false
    while another tracker runs the nodes of this name."""

    name: str
    nodes: Mapping[int, DhtNode]
    store: DhtNodes
    torrents: DhtTorrents
    _: KW_ONLY
    mode: Mode
    clock: Callable[[], float]
    timer: Callable[[], float]
    may_save: Callable[[], bool] = lambda: True
    sleep: Sleep = asyncio.sleep

    def __post_init__(self) -> None:
        self.lookups: Counter[str] = Counter(answered=0, unanswered=0)
        """Lookups of torrents by outcome."""
        self.participation: Participation | None = None
        self._started = int(self.clock())

    async def run(self) -> None:
        """Saves the status until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(forever(self._count_torrents, COUNT_SECONDS, sleep=self.sleep))
            tasks.create_task(forever(self.save, STATUS_SECONDS, sleep=self.sleep))
            tasks.create_task(forever(self.save_hashes, HASHES_SECONDS, sleep=self.sleep))

    async def save(self) -> None:
        if self.may_save():
            with suppress(StoreUnavailable, RedisError):
                await self.store.save_status(self.status())

    async def save_hashes(self) -> None:
        if self.may_save():
            with suppress(StoreUnavailable, RedisError):
                await self.store.save_hashes(self.name, self._hashes())

    def _hashes(self) -> list[AnnouncedHash]:
        """The torrents announced in both families."""
        began = self.clock() - self.timer()
        rows = defaultdict[InfoHash, list[SwarmSummary]](list)
        for node in self.nodes.values():
            for each in node.announced.summaries():
                rows[each.info_hash].append(each)
        return [
            AnnouncedHash(
                info_hash,
                sum(each.seeders for each in parts),
                sum(each.peers for each in parts),
                int(began + max(each.announced_at for each in parts)),
            )
            for info_hash, parts in rows.items()
        ]

    def status(self) -> NodeStatus:
        now, epoch = self.timer(), self.clock()
        nodes = self.nodes.values()
        answers = [at for node in nodes if (at := node.table.last_answer) is not None]
        counts = [node.counts for node in nodes]
        dropped: Counter[str] = Counter()
        for each in counts:
            dropped += each.dropped
        return NodeStatus(
            name=self.name,
            mode=self.mode,
            started=self._started,
            saved=int(epoch),
            last_answer=int(epoch - (now - max(answers))) if answers else None,
            ids={family: node.id for family, node in self.nodes.items()},
            externals={
                family: format_address(Address(address))
                for family, node in self.nodes.items()
                if (address := node.external_address) is not None
            },
            buckets={
                family: {bucket: size for bucket, size in enumerate(node.table.sizes()) if size}
                for family, node in self.nodes.items()
            },
            hashes=sum(len(node.announced) for node in nodes),
            peers=sum(node.announced.peer_count for node in nodes),
            packets_in=sum(each.packets_in for each in counts),
            packets_out=sum(each.packets_out for each in counts),
            bytes_in=sum(each.bytes_in for each in counts),
            bytes_out=sum(each.bytes_out for each in counts),
            dropped=dropped,
            lookups=self.lookups,
            participation=self.participation,
        )

    async def _count_torrents(self) -> None:
        counted = await count_torrents(self.torrents, all_torrents=self.mode == "all")
        self.participation = counted or self.participation


async def count_torrents(torrents: DhtTorrents, *, all_torrents: bool) -> Participation | None:
    """How many torrents take part; ``None`` where the store cannot be read."""
    try:
        return await torrents.participation(all_torrents=all_torrents)
    except (StoreUnavailable, RedisError):
        return None
