"""A whole tracker in this process that is used, and what Prometheus gets to read of it meanwhile."""

import asyncio
import gc
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from tests import geoip_databases
from tests.servers import start_valkey
from tracker.admin.desk import Desk
from tracker.admin.server import serve_admin
from tracker.background import open_background
from tracker.foundation import laid
from tracker.joins import open_joins
from tracker.loops import running
from tracker.readiness import Readiness
from tracker.service import reaper_on
from tracker.settings import AdminSettings, HttpSettings, RedisSettings, Settings
from tracker.settings_background import GeoIPSettings
from tracker.store.job import SWEEP
from tracker.stores import Stores, open_connection, stores_on
from tracker.telemetry import Telemetry
from tracker.web import open_web

SECONDS = 30.0
PROMTOOL = shutil.which("promtool") or ""
needs_promtool = pytest.mark.skipif(not PROMTOOL, reason="no promtool here (Debian package prometheus)")
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""Values by name and labels."""


@dataclass(frozen=True)
class Scrapes:
    """Each is the text of an answer: before anybody came, after that, later, and when the store was gone."""

    fresh: str
    used: str
    openmetrics: str
    later: str
    away: str


@dataclass(frozen=True)
class Running:
    """A tracker that serves peers and its admin port, both on loopback."""

    peers: str
    admin: str
    token: str
    stores: Stores

    async def metrics(self, accept: str = "text/plain") -> str:
        headers = {"Authorization": f"Bearer {self.token}", "Accept": accept}
        async with aiohttp.ClientSession(headers=headers) as session:
            async with session.get(f"{self.admin}/metrics") as answer:
                assert answer.status == 200, await answer.text()
                return await answer.text()

    async def ask(self, path: str, **query: str) -> None:
        """A request of a peer behind the proxy that we are."""
        address = query.pop("address", "192.0.2.7")
        text = "&".join(f"{name}={value}" for name, value in query.items())
        headers = {"X-Forwarded-For": address}
        async with aiohttp.ClientSession(headers=headers) as session:
            async with session.get(f"{self.peers}{path}?{text}", allow_redirects=False) as answer:
                assert answer.status == 200

    async def announce(self, peer: int, **query: str) -> None:
        defaults = {"info_hash": "%01" * 20, "peer_id": f"-TR4000-{peer:012}", "port": "6881", "left": "0"}
        await self.ask("/announce", **{**defaults, **query})

    async def until(self, **least: float) -> str:
        """The text of the first scrape in which the samples of each of these names add up to so much."""
        async with asyncio.timeout(SECONDS):
            while True:
                text = await self.metrics()
                sums = Counter[str]()
                for (name, _), value in samples_of(text).items():
                    sums[name] += value  # type: ignore[assignment]  # a Counter of floats adds up as well
                if all(sums[name] >= value for name, value in least.items()):
                    return text
                await asyncio.sleep(0.05)


def samples_of(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@asynccontextmanager
async def tracking(settings: Settings) -> AsyncIterator[Running]:
    """As the service puts it together, without its signals."""
    assert settings.redis.url is not None
    telemetry, url = Telemetry(), settings.redis.url.get_secret_value()
    async with (
        open_connection(url, settings.redis, 5.0, telemetry.round_trip) as (connection, version),
        laid(settings, connection, telemetry) as base,
    ):
        reaper, secret = await reaper_on(settings, base)
        problems = Readiness(connection, lambda: False, reaper).problems
        stores = stores_on(connection, base.scripts, base.keys, settings, base.counters)
        async with (
            open_joins(settings, base, secret) as joins,
            open_background(settings, base, reaper, joins.joined),
            running(reaper.run),
            open_web(settings, base, joins, secret, problems=problems) as peers,
        ):
            desk = Desk(stores, settings, joins.places, telemetry.snapshot, problems, time.time, version)
            _, token = await stores.tokens.create("prometheus", "read")
            async with serve_admin(desk, settings.admin) as admin:
                yield Running(f"http://{peers[0]}", f"http://{admin[0]}", token, stores)


async def _used(running: Running) -> None:
    """Something of everything happens once."""
    await running.announce(1, event="started")
    await running.announce(1, event="completed")
    await running.announce(2, event="started", left="5", address="2001:db8:1::2")
    await running.announce(3, event="started", address="11.0.0.1")
    await running.announce(3, event="stopped", address="11.0.0.1")
    await running.announce(4, port="nonsense")
    await running.ask("/scrape", info_hash="%01" * 20)
    await running.stores.jobs.enqueue(SWEEP)


async def scrapes(directory: Path) -> Scrapes:
    database = geoip_databases.make_city(directory / "cities.mmdb")
    server = start_valkey(directory, "--appendonly", "no", "--maxmemory", "1gb")
    try:
        settings = Settings(
            # Patient: with the defaults a machine that is busy elsewhere loses the store for a moment.
            redis=RedisSettings(url=SecretStr(server.url), connect_timeout_seconds=20, timeout_seconds=20),
            http=HttpSettings(listen=("127.0.0.1:0",), trusted_proxies=("127.0.0.1/32",)),
            admin=AdminSettings(listen=("127.0.0.1:0",)),
            geoip=GeoIPSettings(database=database),
        )
        async with tracking(settings) as running:
            fresh = await running.metrics()
            await _used(running)
            used = await running.until(
                tracker_requests_total=7,
                tracker_announces_total=5,
                tracker_announce_seconds_count=5,
                tracker_announce_batch_size_sum=5,
                tracker_joins_total=3,
                tracker_new_unique_users_total=3,
                tracker_sweep_end_timestamp_seconds=1,
                tracker_job_changes_total=3,
                tracker_ready=1,
            )
            openmetrics = await running.metrics(OPENMETRICS)
            await running.announce(5, event="started")
            later = await running.metrics()
            server.kill()
            await running.announce(6)  # is told that the store is away
            away = await running.metrics()
            server.start()  # so that what is counted can be written at the end
        return Scrapes(fresh, used, openmetrics, later, away)
    finally:
        server.kill()


@contextmanager
def collector_as_before() -> Iterator[None]:
    """A tracker spares its process the collector; this one has others to serve."""
    thresholds = gc.get_threshold()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


@cache
def scraped() -> Scrapes:
    """Done once for all tests that look at it."""
    with collector_as_before(), tempfile.TemporaryDirectory(prefix="sk-") as name:
        return asyncio.run(scrapes(Path(name)))
