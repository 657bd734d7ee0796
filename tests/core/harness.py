"""A tracker's decisions under test, over a real store, with a clock that the test moves."""

import ipaddress
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.store.harness import Clock, Store, digits, info_hash, peer_id, running
from tracker.announce import Tracker
from tracker.bittorrent import Address, Announce, AnnounceReply, Event, InfoHash, PeerId, Scrape, ScrapeFile
from tracker.errors import ClientError
from tracker.limits import Limits
from tracker.rules import swarm_rules
from tracker.settings import Settings
from tracker.store.clients import AllowList
from tracker.store.keys import Keys
from tracker.store.offences import Offences
from tracker.store.swarms import PeerUpdate

SECRET = b"s" * 32


@dataclass
class Desk:
    """A tracker on a store, both with one clock."""

    tracker: Tracker
    store: Store
    joined: list[tuple[InfoHash, Address]]
    heard: list[tuple[PeerId, str]]
    """What was told of client programs."""
    limits: Limits
    offences: Offences

    async def share_limits(self) -> None:
        """What a process does once a second."""
        self.limits.learn(await self.offences.charge(self.limits.take()))

    async def announce(
        self, peer: int = 1, event: str = "", passkey: str | None = None, address: str = "", **changes: Any
    ) -> AnnounceReply:
        values: dict[str, Any] = {
            "info_hash": info_hash(1),
            "peer_id": peer_id(peer),
            "port": 6881,
            "bytes_left": 1000,
        }
        announce = Announce(**digits({**values, "event": Event(event), **changes}))
        return await self.tracker.announce(announce, passkey, at(address or f"11.0.0.{peer}"))

    async def refused(self, *arguments: Any, **changes: Any) -> ClientError:
        with pytest.raises(ClientError) as caught:
            await self.announce(*arguments, **changes)
        return caught.value

    async def scrape(self, *numbers: int, passkey: str | None = None) -> dict[InfoHash, ScrapeFile]:
        scrape = Scrape(tuple(info_hash(number) for number in numbers))
        return (await self.tracker.scrape(scrape, passkey, at("11.0.0.1"))).files

    async def counted(self) -> tuple[dict[str, int], dict[str, int]]:
        """Requests, announces and scrapes; refusals by reason."""
        await self.store.counters.flush()
        read = await self.store.counters.totals()
        failures: Any = await self.store.redis.hgetall(self.store.keys.failures())
        figures = {name: read[name] for name in ("requests", "announces", "scrapes") if read[name]}
        return figures, {label.decode(): int(number) for label, number in failures.items()}

    async def peer(self, number: int = 1) -> dict[str, Any]:
        return await self.store.peer(PeerUpdate(info_hash(1), peer_id(number), *(None,) * 11))  # type: ignore[arg-type]


MakeDesk = Callable[..., Awaitable[Desk]]
"""Called with settings by section, as in ``make_desk(announce={"peers_max": 5})``."""


@asynccontextmanager
async def open_desk(
    url: str, prefix: str, settings: Settings, secret: bytes = SECRET, clock: Clock | None = None
) -> AsyncIterator[Desk]:
    rules = swarm_rules(
        settings.announce, settings.torrents, settings.users, settings.reaper, settings.limits
    )
    limits = Limits(settings.limits, private=settings.users.private)
    joined: list[tuple[InfoHash, Address]] = []
    heard: list[tuple[PeerId, str]] = []
    times = itertools.count()
    async with running(Store(url, Keys(prefix), rules, clock or Clock())) as store:
        tracker = Tracker(
            store.swarms,
            store.counters,
            AllowList(store.clients, store.clock),
            lambda info_hash, address: joined.append((info_hash, address)),
            announce=settings.announce,
            torrents=settings.torrents,
            users=settings.users,
            clients=settings.clients,
            reaper=settings.reaper,
            secret=secret,
            clock=store.clock,
            limits=limits,
            software=lambda peer_id, label: heard.append((peer_id, label)),
            timer=lambda: float(next(times)),
        )
        offences = Offences(store.connection, store.scripts, store.keys, store.clock, limits.most)
        yield Desk(tracker, store, joined, heard, limits, offences)


def at(text: str) -> Address:
    return Address(ipaddress.ip_address(text).packed)
