"""Runs a tracker in this process with announces, and scrapes its metrics as Prometheus does."""

import asyncio
import gc
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from loadtest import geoip_databases
from loadtest.servers import start_valkey
from tests.waiting import eventually
from tracker.admin.context import AdminContext
from tracker.admin.server import serve_admin
from tracker.app.background import build_prober, open_background
from tracker.app.dht import DhtTelemetry, build_nodes
from tracker.app.service import reaper_on
from tracker.app.web import find_problems, open_joins, open_web
from tracker.bittorrent import Endpoint
from tracker.runtime.context import open_context
from tracker.runtime.store import Patience, open_connection
from tracker.runtime.telemetry import Telemetry
from tracker.settings.background import DhtSettings, GeoIPSettings
from tracker.settings.model import RedisSettings, Settings
from tracker.settings.public import HttpSettings
from tracker.settings.site import AdminSettings
from tracker.store.dht.nodes import SavedNode
from tracker.store.dht.torrents import Participation
from tracker.store.jobs.records import SWEEP
from tracker.store.store import Store
from tracker.store.work.records import Claim, NewItem, Project
from tracker.system.event_loop import running
from tracker.wire.krpc import Answer, NodeId, Ping, Query, encode_answer, encode_query, parse_message

SECONDS = 30.0
PROMTOOL = shutil.which("promtool") or ""
needs_promtool = pytest.mark.skipif(not PROMTOOL, reason="no promtool here (Debian package prometheus)")
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""Values by name and labels."""


@dataclass(frozen=True)
class Scrapes:
    """Expositions: before the first announce, after it, later, and without the store."""

    fresh: str
    used: str
    openmetrics: str
    later: str
    unavailable: str


@dataclass(frozen=True)
class Running:
    """A tracker that serves peers and its admin port, both on loopback."""

    peers: str
    admin: str
    token: str
    store: Store

    async def metrics(self, accept: str = "text/plain") -> str:
        headers = {"Authorization": f"Bearer {self.token}", "Accept": accept}
        async with aiohttp.ClientSession(headers=headers) as session:
            async with session.get(f"{self.admin}/metrics") as response:
                assert response.status == 200, await response.text()
                return await response.text()

    async def ask(self, path: str, **query: str) -> None:
        """A request of a peer; this test is its proxy."""
        address = query.pop("address", "192.0.2.7")
        text = "&".join(f"{name}={value}" for name, value in query.items())
        headers = {"X-Forwarded-For": address}
        async with aiohttp.ClientSession(headers=headers) as session:
            async with session.get(f"{self.peers}{path}?{text}", allow_redirects=False) as response:
                assert response.status == 200

    async def announce(self, peer: int, **query: str) -> None:
        defaults = {"info_hash": "%01" * 20, "peer_id": f"-TR4000-{peer:012}", "port": "6881", "left": "0"}
        await self.ask("/announce", **{**defaults, **query})

    async def until(self, **least: float) -> str:
        """The first exposition in which the samples of each name add up to the given sum."""
        texts: list[str] = []

        async def add_up() -> bool:
            texts.append(await self.metrics())
            sums = Counter[str]()
            for (name, _), value in samples_of(texts[-1]).items():
                sums[name] += value  # type: ignore[assignment]  # a Counter also sums floats
            return all(sums[name] >= value for name, value in least.items())

        await eventually(add_up)
        return texts[-1]


def samples_of(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@asynccontextmanager
async def tracking(settings: Settings) -> AsyncIterator[Running]:
    """Assembled like the service, without signal handlers."""
    assert settings.redis.url is not None
    telemetry, url = Telemetry(), settings.redis.url.get_secret_value()
    async with (
        open_connection(url, settings.redis, 5.0, telemetry.round_trip) as (connection, version),
        open_context(settings, connection, telemetry) as context,
    ):
        some_dht(telemetry)
        reaper = await reaper_on(context, Patience(60))
        problems = partial(find_problems, context.store.shards, reaper)
        store = context.store
        async with (
            open_joins(context) as joins,
            open_background(context, reaper, joins.unique_users.add, build_prober(context)),
            running(reaper.run),
            open_web(context, joins, problems=problems) as peers,
        ):
            admin_context = AdminContext(
                store, context.live, joins.places, telemetry.snapshot, problems, time.time, version
            )
            _, token = await store.tokens.create("prometheus", "read")
            async with serve_admin(admin_context, settings.admin) as admin:
                yield Running(f"http://{peers[0]}", f"http://{admin[0]}", token, store)


def some_dht(telemetry: Telemetry) -> None:
    """A node of the DHT that got a query and a datagram that is none. Of two that it asked, one answers."""
    nodes = build_nodes(DhtSettings(private_addresses=True), [4], SavedNode(), 0)
    report = DhtTelemetry(telemetry, nodes, lambda: Participation(2, 2, 1), timer=lambda: 20)
    report.add_health()
    source, silent = Endpoint(b"\x7f\0\0\1\x1a\xe1"), Endpoint(b"\x7f\0\0\2\x1a\xe1")
    nodes[4].receive(encode_query(Query(b"tt", NodeId(b"a" * 20), Ping())), source, 0)
    nodes[4].receive(b"no message", source, 0)
    nodes[4].take_datagrams()
    nodes[4].contact([source, silent], 0)
    for target, data in nodes[4].take_datagrams():
        query = parse_message(data)
        if isinstance(query, Query) and target == source:
            nodes[4].receive(encode_answer(Answer(query.transaction, NodeId(b"a" * 20))), source, 1)
    nodes[4].tick(20)
    telemetry.count("dht.lookups.answered")
    report.flush()


async def _used(running: Running) -> None:
    """Cause every kind of event once."""
    await running.announce(1, event="started")
    await running.announce(1, event="completed")
    await running.announce(2, event="started", left="5", address="2001:db8:1::2")
    await running.announce(3, event="started", address="11.0.0.1")
    await running.announce(3, event="stopped", address="11.0.0.1")
    await running.announce(4, port="nonsense")
    await running.ask("/scrape", info_hash="%01" * 20)
    await running.store.jobs.enqueue(SWEEP)
    work = running.store.work
    await work.projects.create(Project("proj"))
    await work.sizes.save([7, 2**60, 0, 1])
    await work.items.add("proj", [NewItem("a"), NewItem("b")])
    claim = await work.claims.claim("proj", "alice")
    assert isinstance(claim, Claim)
    await work.claims.done("proj", "alice", claim.item, reported={"data": 5})
    await work.leaderboard.update("proj")


async def scrapes(directory: Path) -> Scrapes:
    database = geoip_databases.make_city(directory / "cities.mmdb")
    server = start_valkey(directory, "--appendonly", "no", "--maxmemory", "1gb")
    try:
        settings = Settings(
            # Long timeouts: on a busy machine the defaults lose the store for a moment.
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
                tracker_store_round_trips_total=11,
                tracker_new_unique_users_total=3,
                tracker_sweep_end_timestamp_seconds=1,
                tracker_job_changes_total=3,
                tracker_ready=1,
            )
            openmetrics = await running.metrics(OPENMETRICS)
            await running.announce(5, event="started")
            later = await running.metrics()
            server.kill()
            await running.announce(6)  # refused: the store is unavailable
            unavailable = await running.metrics()
            server.start()  # so that the counters can be flushed at the end
        return Scrapes(fresh, used, openmetrics, later, unavailable)
    finally:
        server.kill()


@contextmanager
def collector_as_before() -> Iterator[None]:
    """A tracker freezes the garbage collector of its process; this process runs other tests too."""
    thresholds = gc.get_threshold()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


@cache
def scraped() -> Scrapes:
    """Runs once for all tests of this module."""
    with collector_as_before(), tempfile.TemporaryDirectory(prefix="sk-") as name:
        return asyncio.run(scrapes(Path(name)))
