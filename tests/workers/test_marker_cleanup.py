"""Markers of unique users are deleted only after joins were refused because the store is full."""

from collections.abc import AsyncIterator, Callable

import pytest
from structlog.testing import capture_logs

from loadtest.servers import Server
from tests.store.harness import START, Store, info_hash, running
from tests.store.jobs.harness import Metrics
from tracker.store.schema.keys import Keys
from tracker.store.stats.memory_usage import read_usage
from tracker.store.stats.metric_names import PlaceNames
from tracker.store.stats.unique_users import UniqueUserEvent
from tracker.store.swarms.rules import SwarmRules
from tracker.workers.join_counts import MarkerCleaner


@pytest.fixture
async def full(start_server: Callable[..., Server]) -> AsyncIterator[Store]:
    """A store filled with markers."""
    server = start_server("--appendonly", "no")
    async with running(Store(server.url, Keys("t:"), SwarmRules())) as store:
        await store.torrents.add(info_hash(1))
        for first in range(0, 2560, 64):
            batch = [
                UniqueUserEvent(info_hash(1), f"10.0.{n // 250}.{n % 250}", PlaceNames("France"))
                for n in range(first, first + 64)
            ]
            await store.unique_users.count(batch, START)
        used = (await read_usage(store.connection)).used
        await store.redis.config_set("maxmemory", int(used / 1.02))
        yield store


async def refuse(store: Store, joins: int) -> None:
    store.counters.count("failures.store full", by=joins)
    await store.counters.flush()


async def test_markers_are_deleted_when_joins_were_refused_since_the_last_check(full: Store) -> None:
    metrics = Metrics().follow(full)
    await refuse(full, 2)
    worker = MarkerCleaner(full)
    with capture_logs() as lines:
        assert await worker.check() == 0  # refusals before this tracker started
        assert await worker.check() == 0
        await refuse(full, 1)
        deleted = await worker.check()
    assert deleted > 0 and metrics.counts["unique_forgotten"] == deleted
    assert (await read_usage(full.connection)).share < 1
    (line,) = lines
    assert line["markers"] == deleted and "may be too high" in line["event"]
    assert await worker.check() == 0
