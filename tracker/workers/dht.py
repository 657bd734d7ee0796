"""Keeps a node of the DHT connected, saves what it knows and its status (for the dashboard, the API and the command
line), and forgets torrents that take part no longer.

The node itself runs by its sockets (tracker/frontends/dht/).

Samples of nodes (BEP 51) where public torrents are among them are drawn here too. All reading of the store is here, so
packets cause none: some pages of the register for a new set, and a look at the shown torrents every few seconds.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

from redis.exceptions import RedisError

from tracker.bittorrent import Address, Endpoint, InfoHash, info_hash_of
from tracker.dht.node import DhtNode
from tracker.dht.node_id import is_usable
from tracker.dht.responder import MAX_SAMPLES
from tracker.errors import StoreUnavailable
from tracker.settings.background import DhtSettings
from tracker.store.client.scripts import Scripts
from tracker.store.dht.nodes import LENGTHS, MAX_NODES, AnnouncedHash, NodeStatus, SavedNode
from tracker.store.dht.torrents import DhtTorrents, Participation
from tracker.store.jobs.lease import Lease
from tracker.store.store import Store
from tracker.system.logger import Logger
from tracker.wire.endpoint import format_address
from tracker.wire.krpc import split_nodes
from tracker.workers.loop import Sleep, follow, forever, survive

SAVE_SECONDS = 300
FIRST_SAVE_SECONDS = 15
"""How often the node looks whether there is something to save for the first time."""
CONNECT_SECONDS = 60
FEW_NODES = 8
"""With fewer good ones, the bootstrap nodes are asked again."""
CHECK_SECONDS = 300
"""How often all announced torrents are compared with the register, whatever was published."""
LEASE_SECONDS = 6
"""Short, so that after a crash the node answers again within ten seconds."""
SHOWN_SECONDS = 5
"""A torrent made private may be shown for 10 seconds, the time of the reading included."""
STATUS_SECONDS = 5
HASHES_SECONDS = 30
COUNT_SECONDS = 300
"""How often the torrents that take part are counted."""
MAX_OWN_PEERS = 20
_PAUSE_SECONDS = 0.5

log = Logger("tracker.dht")


def restore(saved: SavedNode, nodes: Mapping[int, DhtNode], now: float) -> None:
    """Pings the nodes that were saved. ``nodes`` by 4 and 6; ``now`` is the nodes' time."""
    for family, node in nodes.items():
        node.ping(split_nodes(saved.nodes.get(family), LENGTHS[family]), now)


async def own_peers(
    torrents: DhtTorrents, family: int, *, all_torrents: bool, private_addresses: bool
) -> list[Endpoint]:
    """Some clients of public swarms, to begin with: most of them are nodes too. None without the store."""
    found = await survive(torrents.some_peers(family, MAX_OWN_PEERS, all_torrents=all_torrents))
    return [each for each in found or () if is_usable(each, private_addresses=private_addresses)]


async def keep_connected(
    node: DhtNode,
    bootstrap: Callable[[], Awaitable[Sequence[Endpoint]]],
    *,
    timer: Callable[[], float],
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Runs until cancelled. ``bootstrap`` returns the endpoints to ask while few nodes are good; it resolves names.
    Nodes that stopped answering count as missing: none of them is dropped while no node answers."""

    async def connect() -> None:
        if len(node.table.good_nodes(timer(), FEW_NODES)) < FEW_NODES:
            node.contact(await bootstrap(), timer())

    await forever(connect, CONNECT_SECONDS, sleep=sleep)


async def follow_changes(store: Store, changed: Callable[[InfoHash | None], None]) -> None:
    """Runs until cancelled. Calls ``changed`` with a torrent that has changed, which a message on ``t:torrents`` names,
    or with ``None`` where any of them may have."""

    async def handle(payload: bytes | None) -> None:
        changed(info_hash_of(payload.lower()) if payload else None)  # a site may publish what it likes

    await follow(store.connection, store.keys.channel("torrents"), handle)


class NameLease(Lease):
    """The right to run the node of a name."""

    def __init__(self, scripts: Scripts, name: str, clock: Callable[[], float], sleep: Sleep = asyncio.sleep) -> None:
        super().__init__(scripts, "dht", name, LEASE_SECONDS, clock)
        self._name = name
        self._sleep = sleep

    async def acquire(self) -> None:
        """Returns as soon as this tracker has it. Waits for another tracker that has it, and for the store."""
        warned = False
        while not (taken := await survive(self.hold())):
            if taken is not None and not warned:
                log.warning(
                    "another tracker runs the DHT node of this name, or ended without notice a few seconds "
                    "ago; waiting (TRACKER_DHT__NAME)",
                    name=self._name,
                )
                warned = True
            await self._sleep(LEASE_SECONDS / 6)

    async def until_lost(self) -> None:
        """Renews it; returns when another tracker has it. Goes on while the store is unavailable."""
        while await survive(self.hold()) != 0:
            await self._sleep(LEASE_SECONDS / 3)
        log.error("another tracker took the name of this DHT node; the node is silent", name=self._name)


@dataclass(eq=False)
class Forgetter:
    """Makes nodes forget announced and shown torrents that take part no longer, and draws the samples that they show.
    ``nodes`` by 4 and 6; ``timer`` returns their time."""

    torrents: DhtTorrents
    nodes: Mapping[int, DhtNode]
    _: KW_ONLY
    all_torrents: bool
    timer: Callable[[], float] = time.monotonic
    rng: random.Random = field(default_factory=random.SystemRandom)
    sleep: Sleep = asyncio.sleep

    def __post_init__(self) -> None:
        self._changed: set[InfoHash] = set()
        self._every = False
        self._wake = asyncio.Event()
        self._shown = [(each.samples, each.announced) for each in self.nodes.values() if each.samples is not None]

    def changed(self, info_hash: InfoHash | None) -> None:
        """For every change that is published, also while a site adds thousands of torrents."""
        if info_hash is None:
            self._every = True
        elif any(info_hash in node.announced for node in self.nodes.values()) or any(
            info_hash in samples.hashes() for samples, _ in self._shown
        ):
            self._changed.add(info_hash)
        else:
            return
        self._wake.set()

    async def run(self, *, draws: bool) -> None:
        """Runs until cancelled. ``draws``: whether this draws the samples."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(forever(self._check_later, 0.0, sleep=self.sleep))
            tasks.create_task(forever(self._next_round, _PAUSE_SECONDS, sleep=self.sleep))
            if draws:
                tasks.create_task(forever(self.draw, SHOWN_SECONDS, sleep=self.sleep))

    async def _next_round(self) -> None:
        await self._wake.wait()
        self._wake.clear()
        try:
            await self.round()
        except (StoreUnavailable, RedisError):
            self.changed(None)  # again soon: meanwhile it is unknown what is private

    async def round(self) -> None:
        """Looks at the torrents that may have changed. Raises StoreUnavailable and RedisError."""
        looked_at, self._changed = self._changed, set()
        if self._every:
            self._every = False
            looked_at = {each for samples, _ in self._shown for each in samples.hashes()}
            looked_at = looked_at.union(*(node.announced.hashes() for node in self.nodes.values()))
        for info_hash in await self.torrents.no_longer_part(list(looked_at), all_torrents=self.all_torrents):
            for node in self.nodes.values():
                node.responder.forget(info_hash)

    async def _check_later(self) -> None:
        await self.sleep(CHECK_SECONDS)
        self.changed(None)

    async def draw(self) -> None:
        """Draws the sets that are due, and removes what takes part no longer: a shown torrent is public, or a node
        announced it and all torrents take part. Without the store nothing is shown, as what is private is unknown
        meanwhile."""
        due = [each for each in self._shown if each[0].is_due(self.timer())]
        try:
            public, total = await self.torrents.some_public(MAX_SAMPLES) if due else ([], 0)
            for samples, announced in due:
                # Unless all torrents take part, what was announced is public, and so is counted already.
                hashes = list(announced.hashes()) if self.all_torrents else []
                others = await self.torrents.no_longer_part(hashes, all_torrents=False)
                samples.draw(others, self.timer(), self.rng, others=public, others_total=total)
            for samples, announced in self._shown:
                gone = set(await self.torrents.no_longer_part(samples.hashes(), all_torrents=False))
                if self.all_torrents:
                    unknown = list(gone.intersection(announced.hashes()))
                    gone -= set(unknown)
                    gone.update(await self.torrents.no_longer_part(unknown, all_torrents=True))
                for each in gone:
                    samples.forget(each)
        except (StoreUnavailable, RedisError):
            for samples, _ in self._shown:
                samples.clear()


@dataclass(eq=False)
class StatusWorker:
    """Saves which nodes are known, and the status. ``nodes`` by 4 and 6. ``clock`` returns epoch seconds, ``timer`` the
    time of the nodes. ``may_save`` is false while another tracker runs the nodes of this name."""

    settings: DhtSettings
    nodes: Mapping[int, DhtNode]
    store: Store
    _: KW_ONLY
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
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._save_nodes())
            tasks.create_task(forever(self._count_torrents, COUNT_SECONDS, sleep=self.sleep))
            tasks.create_task(forever(self.save, STATUS_SECONDS, sleep=self.sleep))
            tasks.create_task(forever(self.save_hashes, HASHES_SECONDS, sleep=self.sleep))

    async def save(self) -> None:
        if self.may_save():
            await survive(self.store.dht_nodes.save_status(self.status()))

    async def _save_nodes(self) -> None:
        """Saves soon after the first node has answered, then regularly."""
        waited = 0
        while waited < SAVE_SECONDS and not any(len(node.table) for node in self.nodes.values()):
            await self.sleep(FIRST_SAVE_SECONDS)
            waited += FIRST_SAVE_SECONDS
        await forever(self.save_nodes, SAVE_SECONDS, sleep=self.sleep)

    async def save_nodes(self) -> None:
        """Logs where the store cannot be written."""
        if not self.may_save():
            return
        now = self.timer()
        good = {
            family: b"".join(map(b"".join, node.table.good_nodes(now, MAX_NODES)))
            for family, node in self.nodes.items()
        }
        saving = self.store.dht_nodes.save_tables(self.settings.node_name, good)
        await survive(saving, "the nodes of the DHT are not saved", log)

    async def save_hashes(self) -> None:
        if self.may_save():
            await survive(self.store.dht_nodes.save_hashes(self.settings.node_name, self._hashes()))

    def _hashes(self) -> list[AnnouncedHash]:
        """The torrents announced in both families."""
        now = self.timer()
        began = self.clock() - now
        tables = [node.announced for node in self.nodes.values()]
        found = {
            info_hash: [peer for table in tables for peer in table.peers(info_hash, now)]
            for info_hash in dict.fromkeys(each for table in tables for each in table.hashes())
        }
        return [
            AnnouncedHash(
                info_hash,
                sum(peer.seed for peer in peers),
                len(peers),
                int(began + max(peer.announced_at for peer in peers)),
            )
            for info_hash, peers in found.items()
            if peers
        ]

    def status(self) -> NodeStatus:
        now, epoch = self.timer(), self.clock()
        nodes = self.nodes.values()
        answers = [at for node in nodes if (at := node.table.last_answer) is not None]
        counts = [node.counts for node in nodes]
        return NodeStatus(
            name=self.settings.node_name,
            mode=self.settings.torrents,
            started=self._started,
            saved=int(epoch),
            last_answer=int(epoch - (now - max(answers))) if answers else None,
            ids={family: node.id for family, node in self.nodes.items()},
            externals={
                family: format_address(Address(address))
                for family, node in self.nodes.items()
                if (address := node.external.address) is not None
            },
            buckets={
                family: {bucket: size for bucket, size in enumerate(node.table.entries.sizes()) if size}
                for family, node in self.nodes.items()
            },
            hashes=sum(len(node.announced) for node in nodes),
            peers=sum(node.announced.peer_count for node in nodes),
            packets_in=sum(each.packets_in for each in counts),
            packets_out=sum(each.packets_out for each in counts),
            bytes_in=sum(each.bytes_in for each in counts),
            bytes_out=sum(each.bytes_out for each in counts),
            dropped=sum((each.dropped for each in counts), Counter()),
            lookups=self.lookups,
            participation=self.participation,
        )

    async def _count_torrents(self) -> None:
        all_torrents = self.settings.torrents == "all"
        counted = await survive(self.store.dht_torrents.participation(all_torrents=all_torrents))
        self.participation = counted or self.participation
