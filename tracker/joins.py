"""What follows when a peer joins or is refused, put together: unique users by place and client programs are counted, while
nobody waits for it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tracker.bittorrent import Address, InfoHash, PeerId
from tracker.foundation import Foundation, outbox_most
from tracker.geoip import GeoIP
from tracker.loops import running
from tracker.settings import Settings
from tracker.store.software import Software
from tracker.store.uniques import UniqueRules, Uniques
from tracker.wire.peer_id import client_name
from tracker.workers.software import Census
from tracker.workers.tally import Tally


@dataclass(frozen=True, slots=True)
class Joins:
    """Hears of joins, and never makes anybody wait."""

    tally: Tally
    places: GeoIP
    counted: bool
    """Whether unique users are counted at all."""
    census: Census
    programs: bool
    """Whether client programs are counted at all."""

    def joined(self, info_hash: InfoHash, address: Address) -> None:
        """A peer was seen in a swarm for the first time."""
        if self.counted:
            self.tally.offer(info_hash, address)

    def heard(self, peer_id: PeerId, label: str) -> None:
        """A peer joined a swarm, or was refused with a failure of this label."""
        if self.programs:
            self.census.note(peer_id, label)


@asynccontextmanager
async def open_joins(settings: Settings, base: Foundation, secret: bytes) -> AsyncIterator[Joins]:
    """With the GeoIP database open. Leaving the block, when nobody announces any more, counts what waits."""
    places = GeoIP(settings.geoip.database)
    base.changes.follow(lambda changed: places.use(changed.geoip.database))
    tally, counted = _tally(settings, base, places, secret), settings.uniques.enabled
    census, programs = _census(base), settings.clients.count_software
    base.telemetry.gauge("joins_waiting", lambda: tally.waiting)
    base.telemetry.gauge("geoip_misses", lambda: places.misses)
    base.telemetry.gauge("software_waiting", lambda: census.waiting)
    try:
        async with running(*([tally.run] if counted else []), *([census.run] if programs else [])):
            yield Joins(tally, places, counted, census, programs)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(tally.flush(), name="tally flushes")
                tasks.create_task(census.flush(), name="census flushes")
    finally:
        places.close()


def _tally(settings: Settings, base: Foundation, places: GeoIP, secret: bytes) -> Tally:
    rules = UniqueRules(
        mode=settings.uniques.mode,
        secret=secret,
        outbox_most=outbox_most(settings),
        export_torrents=settings.stathat.per_torrent,
    )
    return Tally(
        Uniques(base.connection, base.scripts, base.keys, rules),
        base.connection,
        settings.uniques,
        lookup=places.lookup,
        refresh=places.refresh,
        count=base.counters.count,
        clock=time.time,
    )


def _census(base: Foundation) -> Census:
    return Census(
        Software(base.connection, base.scripts, base.keys),
        name=client_name,
        count=base.counters.count,
        clock=time.time,
    )
