"""Finds peers in the DHT for announces of thin swarms, and checks them before they are handed out.

Any node may tell a lookup any address, so a peer must answer a handshake for the torrent, or be named by nodes of two
networks where peers are not probed.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass

from tracker.bittorrent import Address, Endpoint, InfoHash
from tracker.dht.lookup import LookupResult
from tracker.dht.node_id import network_of
from tracker.settings.dht import DhtSettings
from tracker.store.dht.torrents import DhtTorrents
from tracker.workers.prober import Prober, Status

MAX_GIVEN = 20
"""Peers given of each family."""
MAX_PROBED = 40
"""Of each lookup."""
_PROBED_AT_ONCE = 10
MIN_NETWORKS = 2
"""Networks (IPv4: /16, IPv6: /32) whose nodes named a peer that is not probed."""

FindPeers = Callable[[int, InfoHash], Awaitable[LookupResult | None]]
"""(family, torrent) -> the result of a lookup; ``None``: no lookup was possible."""


@dataclass(eq=False)
class PeerCollector:
    """``clock`` returns epoch seconds; ``rng`` chooses among peers named by equally many networks."""

    torrents: DhtTorrents
    prober: Prober
    settings: Callable[[], DhtSettings]
    _: KW_ONLY
    clock: Callable[[], float]
    rng: random.Random

    @property
    def enabled(self) -> bool:
        """Whether peers can be found: they are handed out, and either probed or need no probe."""
        settings = self.settings()
        return settings.give_peers and (self.prober.is_enabled() or not settings.verify_peers)

    async def collect(self, info_hash: InfoHash, families: Collection[int], find: FindPeers) -> None:
        """Looks a torrent up, and stores peers for its announces. Nothing where its swarm has enough peers, or it takes
        no part. Raises StoreUnavailable and RedisError."""
        settings = self.settings()
        all_torrents = settings.torrents == "all"
        own: set[Endpoint] = set()
        for family in (4, 6):
            swarm = await self.torrents.swarm(info_hash, family, all_torrents=all_torrents)
            if swarm is None:
                return
            own.update(swarm.seeds, swarm.leechers)
        if len(own) >= settings.give_below:
            return
        for family in families:
            result = await find(family, info_hash)
            if result is None:
                continue
            found_at = int(self.clock())
            wanted = self.candidates(result.peers, own)
            if settings.verify_peers:
                peers = await self._confirmed(wanted, info_hash, all_torrents=all_torrents)
            else:
                peers = [each for each in wanted if len(result.peers[each]) >= MIN_NETWORKS]
            if peers:
                await self.torrents.give(
                    info_hash, peers[:MAX_GIVEN], int(self.clock()), found_at, all_torrents=all_torrents
                )

    def candidates(self, found: Mapping[Endpoint, frozenset[bytes]], own: Collection[Endpoint]) -> list[Endpoint]:
        """Peers outside the swarm that may be contacted, one of a network (IPv4 address, IPv6 /64). Those that nodes of
        most networks named come first."""
        by_network: dict[bytes, Endpoint] = {}
        shuffled = self.rng.sample(sorted(found), len(found))
        for endpoint in sorted(shuffled, key=lambda each: -len(found[each])):
            if endpoint not in own and self.prober.allows(endpoint):
                by_network.setdefault(network_of(Address(endpoint[:-2]), 32, 64), endpoint)
        return list(by_network.values())

    async def _confirmed(self, wanted: list[Endpoint], info_hash: InfoHash, *, all_torrents: bool) -> list[Endpoint]:
        """Those that answer a handshake for the torrent, while it takes part. Few at once, as the prober has other
        users."""
        confirmed: list[Endpoint] = []
        for first in range(0, min(len(wanted), MAX_PROBED), _PROBED_AT_ONCE):
            if await self.torrents.no_longer_part([info_hash], all_torrents=all_torrents):
                return []
            batch = wanted[first : first + _PROBED_AT_ONCE]
            outcomes = await asyncio.gather(*(self.prober.check(each, info_hash) for each in batch))
            confirmed += [
                each for each, outcome in zip(batch, outcomes, strict=True) if outcome.status is Status.CONFIRMED
            ]
            if len(confirmed) >= MAX_GIVEN:
                break
        return confirmed
