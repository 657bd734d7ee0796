"""Counts what joins and refusals show: unique users by place, client software, samples. No announce waits for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tracker.bittorrent import Address, InfoHash, PeerId
from tracker.geoip import GeoIP
from tracker.runtime.context import RuntimeContext
from tracker.settings.model import Settings
from tracker.store.store import Store
from tracker.system.event_loop import running
from tracker.workers.join_counts import ClientSoftwareCounter, UniqueUserCounter
from tracker.workers.samples import RefusalSampler


class JoinEvents:
    """Callbacks for joins and refusals. They put each event on a queue and return at once."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.places = GeoIP(settings.geoip_file)
        self.counts_users, self.counts_software = settings.uniques.enabled, settings.clients.count_software
        self.unique_users = UniqueUserCounter(
            store, settings.uniques, lookup=self.places.place_to_count, refresh=self.places.refresh
        )
        self.client_software = ClientSoftwareCounter(store)
        self.refusals = RefusalSampler(store)
        self._count = store.counters.count

    def on_join(self, info_hash: InfoHash, peer_id: PeerId, address: Address) -> None:
        if self.counts_users:
            self.unique_users.add(info_hash, address)
        if self.counts_software:
            self.client_software.add(peer_id, "", address)

    def on_late_join(self, info_hash: InfoHash, peer_id: PeerId, address: Address) -> None:
        """A peer joined, but the store's reply was lost. Also counts the join, because the announce did not."""
        self._count("joins", "joins.v4" if len(address) == 4 else "joins.v6")
        self.on_join(info_hash, peer_id, address)

    def on_refused(self, info_hash: InfoHash, peer_id: PeerId, label: str, passkey: str, address: Address) -> None:
        """An announce was refused with the failure ``label``; ``passkey``: empty without one."""
        self.refusals.add(label, info_hash, peer_id, passkey)
        if self.counts_software:
            self.client_software.add(peer_id, label, address)


@asynccontextmanager
async def open_joins(context: RuntimeContext) -> AsyncIterator[JoinEvents]:
    """Opens the GeoIP database and runs the counters. On exit, after the last announce, counts what is still queued."""
    joins = JoinEvents(context.store, context.live.current)
    context.telemetry.gauge("joins_waiting", lambda: joins.unique_users.waiting)
    context.telemetry.gauge("geoip_misses", lambda: joins.places.misses)
    context.telemetry.gauge("software_waiting", lambda: joins.client_software.waiting)
    users = [joins.unique_users.run] if joins.counts_users else []
    software = [joins.client_software.run] if joins.counts_software else []
    try:
        async with running(joins.refusals.run, *users, *software):
            try:
                yield joins
            finally:  # also if the block fails or is cancelled: announces were answered
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(joins.unique_users.flush(), name="unique users flush")
                    tasks.create_task(joins.client_software.flush(), name="client software flush")
    finally:
        joins.places.close()
