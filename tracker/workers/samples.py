"""Samples for charts of the past (docs/counters.md) every 5 s: numbers of peers, torrents and users; refused announces.

Of each reason of refusals the first MAX_KEPT of an interval are taken, so a flood costs no more than a look at a list.
Peers by family and protocol are counted by the sweep, so their samples change once per round of it. The samples are
distributions like any other, so they take bounded memory. One tracker of a store writes them.

Expired slices of counters and distributions are removed: fine ones often, coarse ones rarely. The clock selects the
precisions, so it does not matter which tracker does it.
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial

from tracker.bittorrent import InfoHash, PeerId
from tracker.errors import StoreUnavailable
from tracker.store.jobs.lease import Lease
from tracker.store.sharding.shards import noting_unavailable_shards
from tracker.store.stats.client_software import shown
from tracker.store.stats.counters import Counters
from tracker.store.stats.refusal_samples import MAX_KEPT, RefusedAnnounce
from tracker.store.stats.slices import PRECISIONS, SAMPLE_SECONDS, SAMPLED, SAMPLED_PARTS
from tracker.store.store import Store
from tracker.store.swarms.reaping import read_peer_counts
from tracker.system.logger import Logger
from tracker.wire.peer_id import client_name
from tracker.workers.loop import Sleep, forever

LEASE_SECONDS = 15


async def sample_sizes(store: Store, sleep: Sleep = asyncio.sleep) -> None:
    lease = Lease(store.scripts, "samples", "sizes", LEASE_SECONDS, store.clock)
    step, failure = partial(sample_once, store), "cannot sample the numbers of peers and torrents"
    await forever(step, SAMPLE_SECONDS, failure, connection=store.connection, lease=lease, sleep=sleep)


async def sample_once(store: Store) -> bool:
    """Adds one sample. False while a shard is unavailable, because the numbers are without its torrents then. Raises
    StoreUnavailable and RedisError."""
    with noting_unavailable_shards() as unavailable:
        totals, torrents, users, peers = await asyncio.gather(
            store.counters.totals(), store.torrents.count(), store.users.count(), read_peer_counts(store.shards)
        )
    if unavailable:
        return False
    sizes = (totals["seeders"], totals["leechers"], torrents, users)
    for name, size in zip(SAMPLED, sizes, strict=True):
        store.counters.observe(name, size)
    if peers is not None:
        for name in SAMPLED_PARTS:
            store.counters.observe(name, getattr(peers, name.replace(".", "_")))
    return True


SEND_SECONDS = 5.0
MAX_REASONS = 100
"""Above the number of fixed refusal texts."""

_Taken = tuple[float, InfoHash, PeerId, str]
"""(time, info hash, peer id, passkey; empty without one)"""


@dataclass(eq=False)
class RefusalSampler:
    store: Store
    sleep: Sleep = asyncio.sleep
    _taken: dict[str, list[_Taken]] = field(default_factory=dict)

    def add(self, reason: str, info_hash: InfoHash, peer_id: PeerId, passkey: str = "") -> None:
        """Takes a refused announce, unless enough of this reason wait."""
        if reason not in self._taken and len(self._taken) >= MAX_REASONS:
            return
        taken = self._taken.setdefault(reason, [])
        if len(taken) < MAX_KEPT:
            taken.append((self.store.clock(), info_hash, peer_id, passkey))

    async def run(self) -> None:
        failure = "samples of refused announces were not written"
        await forever(self.send, SEND_SECONDS, failure, sleep=self.sleep)

    async def send(self) -> None:
        """Sends what was taken. What the store may not have got is kept, and may be written twice; what it refuses is
        dropped."""
        if not self._taken:
            return
        sent, self._taken = self._taken, {}
        try:
            passkeys = {each[-1]: None for taken in sent.values() for each in taken if each[-1]}
            users = await self.store.refusal_samples.user_ids(list(passkeys)) if passkeys else {}
            rows = {
                reason: [
                    RefusedAnnounce(int(at), info_hash, shown(client_name(peer_id))[0], users.get(passkey, ""))
                    for at, info_hash, peer_id, passkey in taken
                ]
                for reason, taken in sent.items()
            }
            await self.store.refusal_samples.add(rows)
        except StoreUnavailable:
            self._taken = sent | self._taken
            raise


CLEAN_SECONDS = 60
PAGE = 20
"""Counters in one script call."""
_VISITS_PER_SLICE = 5
"""More than one, so that a missed run does not matter."""

log = Logger("tracker.cleaner")


def due_precisions(now: float) -> list[int]:
    """The precisions to clean in this minute: each once a minute, or five times per slice."""
    minute = int(now // CLEAN_SECONDS)
    return [p for p in PRECISIONS if minute % max(1, p // (CLEAN_SECONDS * _VISITS_PER_SLICE)) == 0]


async def clean_counters(counters: Counters, now: float, page_size: int = PAGE) -> int:
    """Removes expired slices; returns their number. Call this once a minute. It may be cancelled between pages, and run
    in several trackers at once. Raises StoreUnavailable and redis.exceptions.RedisError."""
    removed = entries = 0
    for precision in due_precisions(now):
        async for slices, names, wrong in counters.clean(precision, page_size):
            removed += slices
            entries += names
            if wrong:
                log.error("counters with a wrong key type in the store", keys=wrong)
            await asyncio.sleep(0)
    if removed:
        log.debug("removed old slices", slices=removed, counters=entries)
    return removed
