"""Looks up thin public swarms in the DHT, within a budget, and stores what was found in the torrents.

A lookup asks for counts (BEP 33). The torrents with the fewest seeders come first, then those that were not looked up
for longest. The register is read a page at a time in the order of seeders, from the fewest on, and again from there
after an hour. A second lookup, of the same budget, asks for peers where announces may get some.

Any node may tell a lookup any address. Before an announce gets a peer, it must answer a handshake for the torrent, or
be named by nodes of two networks where peers are not probed.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

from tracker.bittorrent import Address, Endpoint, InfoHash, parse_info_hash
from tracker.dht.lookup import LookupResult
from tracker.dht.node import DhtNode
from tracker.dht.node_id import network_of
from tracker.errors import ClientError, Postponed
from tracker.settings.background import DhtSettings
from tracker.store.dht.torrents import DhtTorrents, ThinSwarm
from tracker.system.logger import Logger
from tracker.workers.loop import Sleep, forever, survive
from tracker.workers.prober import Prober, Status

MAX_GIVEN = 20
"""Peers given of each family."""
MAX_PROBED = 40
"""Of each lookup."""
_PROBED_AT_ONCE = 10
MIN_NETWORKS = 2
"""Networks (IPv4: /16, IPv6: /32) whose nodes named a peer that is not probed."""

MAX_DUE = 1000
"""Torrents that wait, the thinnest ones."""
MAX_RUNNING = 6
"""A node runs eight lookups at once. The others are for the table."""
AGAIN_SECONDS = 3600
"""After that the register is read from the torrents with the fewest seeders again, however far the reading came."""
POLL_SECONDS = 0.25
CHECK_SECONDS = 5
"""How often the node looks whether a torrent that it looks up still takes part."""
RETRY_SECONDS = 5.0
"""A job waits so long while no node is known, or too many lookups run."""

log = Logger("tracker.dht")


@dataclass(eq=False)
class LookupWorker:
    """``nodes`` by 4 and 6. ``clock`` returns epoch seconds, ``timer`` the time of the nodes; ``rng`` chooses among
    peers named by equally many networks."""

    torrents: DhtTorrents
    nodes: Mapping[int, DhtNode]
    prober: Prober
    settings: Callable[[], DhtSettings]
    _: KW_ONLY
    count: Callable[[str], None]
    clock: Callable[[], float]
    timer: Callable[[], float]
    rng: random.Random = field(default_factory=random.SystemRandom)
    sleep: Sleep = asyncio.sleep

    def __post_init__(self) -> None:
        self.all_torrents = self.settings().torrents == "all"
        self._to_collect: deque[InfoHash] = deque(maxlen=MAX_DUE)
        self._collecting: asyncio.Task[None] | None = None
        self._rank = 0
        self._began = 0
        """When the reading of the register began, in epoch seconds."""
        self._due: dict[InfoHash, ThinSwarm] = {}
        self._running = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            step = partial(self._begin_one, tasks)
            await forever(step, 0.0, "cannot read torrents to look up in the DHT", sleep=self.sleep)

    async def _begin_one(self, tasks: asyncio.TaskGroup) -> None:
        await self.sleep(60 / self.settings().lookups_per_minute)
        if self._running >= MAX_RUNNING or not any(len(each.table) for each in self.nodes.values()):
            return
        if self._to_collect and (self._collecting is None or self._collecting.done()):
            collecting = self.collect(self._to_collect.popleft())
            failure = "peers of a lookup in the DHT are not stored"
            self._collecting = tasks.create_task(survive(collecting, failure, log))
        elif (info_hash := await self.next_torrent()) is not None:
            failure = "the result of a lookup in the DHT is not stored"
            tasks.create_task(survive(self._find_counts(info_hash), failure, log))

    async def next_torrent(self) -> InfoHash | None:
        """The torrent to look up next; ``None`` where none is due. Raises StoreUnavailable and RedisError."""
        now = int(self.clock())
        if not self._rank or now - self._began >= AGAIN_SECONDS:
            self._rank, self._began = 0, now
        read, found = await self.torrents.thin_page(self._rank, now, all_torrents=self.all_torrents)
        self._rank = self._rank + read if read else 0
        self._due |= {each.info_hash: each for each in found}
        if len(self._due) > MAX_DUE:
            self._due = {each.info_hash: each for each in sorted(self._due.values())[:MAX_DUE]}
        while self._due:
            info_hash = min(self._due.values()).info_hash
            del self._due[info_hash]
            # It may have changed since its page was read, or another tracker may have looked it up.
            if await self.torrents.claim(info_hash, now, all_torrents=self.all_torrents):
                return info_hash
        return None

    async def handle(self, payload: Mapping[str, Any]) -> None:
        """A job that looks up one torrent: ``{"info_hash": <40 hex digits>}``. Raises ClientError where the torrent
        does not take part or no node answers, and Postponed while no node is known."""
        info_hash = parse_info_hash(str(payload.get("info_hash", "")))
        if await self.torrents.no_longer_part([info_hash], all_torrents=self.all_torrents):
            raise ClientError("this torrent does not take part in the DHT")
        if self._running > MAX_RUNNING or not any(len(each.table) for each in self.nodes.values()):
            raise Postponed(RETRY_SECONDS)
        if await self._find_counts(info_hash) is None:
            raise ClientError("no node of the DHT answered")

    async def _find_counts(self, info_hash: InfoHash) -> tuple[int, int] | None:
        """Looks up a torrent and stores the result. Raises StoreUnavailable and RedisError."""
        self._running += 1
        try:
            results = [await self.find(family, info_hash, scrape=True) for family in self.nodes]
            found = counts([each for each in results if each is not None and each.answered])
            self.count("answered" if found else "unanswered")
            kept = await self.torrents.save_result(info_hash, found, int(self.clock()), all_torrents=self.all_torrents)
        finally:
            self._running -= 1
        if kept and found and found[1] and self.gives_peers:
            self._to_collect.append(info_hash)
        return found

    # Peers for announces

    @property
    def gives_peers(self) -> bool:
        """Whether peers can be found: they are handed out, and either probed or need no probe."""
        settings = self.settings()
        return settings.give_peers and (self.prober.is_enabled() or not settings.verify_peers)

    async def collect(self, info_hash: InfoHash) -> None:
        """Looks a torrent up, and stores peers for its announces. Nothing where its swarm has enough peers, or it takes
        no part. Raises StoreUnavailable and RedisError."""
        settings = self.settings()
        own: set[Endpoint] = set()
        for family in (4, 6):
            swarm = await self.torrents.swarm(info_hash, family, all_torrents=self.all_torrents)
            if swarm is None:
                return
            own.update(swarm.seeds, swarm.leechers)
        if len(own) >= settings.give_below:
            return
        for family in self.nodes:
            result = await self.find(family, info_hash)
            if result is None:
                continue
            self.count("answered" if result.answered else "unanswered")
            found_at = int(self.clock())
            peers = self.candidates(result.peers, own)
            if settings.verify_peers:
                peers = await self._confirmed(peers, info_hash)
            else:
                peers = [each for each in peers if len(result.peers[each]) >= MIN_NETWORKS]
            if peers:
                await self.torrents.give(
                    info_hash, peers[:MAX_GIVEN], int(self.clock()), found_at, all_torrents=self.all_torrents
                )

    def candidates(self, found: Mapping[Endpoint, frozenset[bytes]], own: Collection[Endpoint]) -> list[Endpoint]:
        """Peers outside the swarm that may be contacted, one of a network (IPv4 address, IPv6 /64). Those that nodes of
        most networks named come first."""
        by_network: dict[bytes, Endpoint] = {}
        shuffled = self.rng.sample(sorted(found), len(found))
        for endpoint in sorted(shuffled, key=lambda each: -len(found[each])):
            if endpoint not in own and self.prober.is_target(endpoint):
                by_network.setdefault(network_of(Address(endpoint[:-2]), 32, 64), endpoint)
        return list(by_network.values())

    async def _confirmed(self, wanted: list[Endpoint], info_hash: InfoHash) -> list[Endpoint]:
        """Those that answer a handshake for the torrent, while it takes part. Few at once, as the prober has other
        users."""
        confirmed: list[Endpoint] = []
        for first in range(0, min(len(wanted), MAX_PROBED), _PROBED_AT_ONCE):
            if await self.torrents.no_longer_part([info_hash], all_torrents=self.all_torrents):
                return []
            batch = wanted[first : first + _PROBED_AT_ONCE]
            found = await asyncio.gather(*(self.prober.check(each, info_hash) for each in batch))
            confirmed += [each for each, status in zip(batch, found, strict=True) if status is Status.CONFIRMED]
            if len(confirmed) >= MAX_GIVEN:
                break
        return confirmed

    async def find(self, family: int, info_hash: InfoHash, *, scrape: bool = False) -> LookupResult | None:
        """``None`` where no lookup is possible, and where the torrent does not take part, also from the middle of the
        lookup on. Raises StoreUnavailable and RedisError, and asks no further nodes then."""
        node = self.nodes[family]

        async def may_ask() -> bool:
            return not await self.torrents.no_longer_part([info_hash], all_torrents=self.all_torrents)

        if not len(node.table) or not await may_ask():
            return None
        return await find_peers(node, info_hash, self.timer, self.sleep, scrape=scrape, may_ask=may_ask)


async def find_peers(
    node: DhtNode,
    info_hash: InfoHash,
    timer: Callable[[], float],
    sleep: Sleep = asyncio.sleep,
    *,
    scrape: bool = False,
    may_ask: Callable[[], Awaitable[bool]] | None = None,
) -> LookupResult | None:
    """Looks up a torrent and waits for the result, at most as long as a lookup takes. ``None`` while too many run, and
    where ``may_ask``, which is called every few seconds, no longer returns true."""
    lookup = node.find_peers(info_hash, timer(), scrape=scrape)
    if lookup is None:
        return None
    checked = timer()
    try:
        while lookup.outcome is None:
            await sleep(POLL_SECONDS)
            if timer() - checked >= CHECK_SECONDS:
                checked = timer()
                if may_ask is not None and not await may_ask():
                    return None
        return lookup.outcome
    finally:
        node.stop(lookup)


def counts(results: list[LookupResult]) -> tuple[int, int] | None:
    """Seeders and peers. Of two families the larger number, because most peers are in both; ``None`` for no result."""
    if not results:
        return None
    seeders = max(each.seeds for each in results)
    peers = max(max(each.seeds + each.leechers, len(each.peers)) for each in results)
    return round(seeders), round(peers)
