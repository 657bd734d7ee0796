"""A tracker on a real store, with a clock that the test moves."""

import ipaddress
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.store.harness import Clock, Store, digits, info_hash, peer_id, running
from tracker.bittorrent import Address, Announce, AnnounceReply, Event, InfoHash, PeerId, Scrape, ScrapeFile
from tracker.core.announce import Tracker
from tracker.core.clients import ClientRules
from tracker.core.rate_limits import Limits
from tracker.refusals import Refusal
from tracker.runtime.store import swarm_rules
from tracker.settings.model import LiveSettings, Settings
from tracker.store.access.client_lists import AllowListCache
from tracker.store.access.rate_limits import RateLimitStore
from tracker.store.schema.keys import Keys
from tracker.store.swarms.codec import PeerUpdate
from tracker.workers.admission import share_once

SECRET = b"s" * 32


@dataclass
class TrackerHarness:
    """A tracker on a store, both with one clock."""

    decisions: Tracker
    store: Store
    joined: list[tuple[InfoHash, Address]]
    clients_seen: list[tuple[PeerId, str]]
    """The peer ids reported as client software, with the label of a refusal, or empty for a join."""
    refused_torrents: list[InfoHash]
    limits: Limits
    rate_limits: RateLimitStore

    async def share_limits(self) -> None:
        """Shares the hits with the store, as a process does once a second."""
        await share_once(self.limits, self.rate_limits, self.store.clock.now)

    async def announce(
        self, peer: int = 1, event: str = "", passkey: str | None = None, address: str = "", **changes: Any
    ) -> AnnounceReply:
        values: dict[str, Any] = {"info_hash": info_hash(1), "peer_id": peer_id(peer), "port": 6881, "bytes_left": 1000}
        announce = Announce(**digits({**values, "event": Event(event), **changes}))
        return await self.decisions.announce(announce, passkey, at(address or f"11.0.0.{peer}"))

    async def refused(self, *arguments: Any, **changes: Any) -> Refusal:
        with pytest.raises(Refusal) as caught:
            await self.announce(*arguments, **changes)
        return caught.value

    async def scrape(self, *numbers: int, passkey: str | None = None) -> dict[InfoHash, ScrapeFile]:
        scrape = Scrape(tuple(info_hash(number) for number in numbers))
        return (await self.decisions.scrape(scrape, passkey, at("11.0.0.1"))).files

    async def counted(self) -> tuple[dict[str, int], dict[str, int]]:
        """(requests, announces and scrapes; refusals by label)."""
        await self.store.counters.flush()
        read = await self.store.counters.totals()
        failures: Any = await self.store.redis.hgetall(self.store.keys.failures())
        figures = {name: read[name] for name in ("requests", "announces", "scrapes") if read[name]}
        return figures, {label.decode(): int(number) for label, number in failures.items()}

    async def peer(self, number: int = 1) -> dict[str, Any]:
        return await self.store.peer(PeerUpdate(info_hash(1), peer_id(number), *(None,) * 12))  # type: ignore[arg-type]


MakeTracker = Callable[..., Awaitable[TrackerHarness]]
"""Called with settings by section, as in ``make_tracker(announce={"peers_max": 5})``."""


@asynccontextmanager
async def open_tracker(
    url: str, prefix: str, settings: Settings, secret: bytes = SECRET, clock: Clock | None = None
) -> AsyncIterator[TrackerHarness]:
    rules = swarm_rules(settings)
    limits = Limits(settings.limits, accounts=settings.users.private)
    joined: list[tuple[InfoHash, Address]] = []
    clients_seen: list[tuple[PeerId, str]] = []
    refused_torrents: list[InfoHash] = []
    times = itertools.count()

    def on_join(info_hash: InfoHash, peer_id: PeerId, address: Address) -> None:
        joined.append((info_hash, address))
        clients_seen.append((peer_id, ""))

    def on_refused(info_hash: InfoHash, peer_id: PeerId, label: str, passkey: str, _: Address) -> None:
        refused_torrents.append(info_hash)
        clients_seen.append((peer_id, label))

    async with running(Store(url, Keys(prefix), rules, clock or Clock())) as store:
        await store.redis.set(store.keys.secret(), secret)
        tracker = Tracker(
            store.swarms,
            store.counters,
            ClientRules(AllowListCache(store.allow_list, store.clock), store.deny_list_cache),
            LiveSettings(settings),
            clock=store.clock,
            limits=limits,
            on_join=on_join,
            on_refused=on_refused,
            timer=lambda: float(next(times)),
        )
        yield TrackerHarness(tracker, store, joined, clients_seen, refused_torrents, limits, store.rate_limits)


def at(text: str) -> Address:
    return Address(ipaddress.ip_address(text).packed)
