"""Two trackers on a cluster: they share the background work of the shards instead of doing it twice."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from pydantic import SecretStr

from loadtest.cluster import Cluster, cluster
from tests.fake_time import FakeTime
from tests.store.harness import START
from tracker.runtime.store import build_store, open_connection
from tracker.settings.model import RedisSettings, Settings
from tracker.store.store import Store
from tracker.workers.reaper import Reaper
from tracker.workers.shard_reapers import LeaseKeeper
from tracker.workers.users import UserCopiesWorker

SHARDS = 16
TIMEOUT = 8.0


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with cluster(options=("--appendonly", "no", "--notify-keyspace-events", "Kx")) as nodes:
        yield nodes


class Tracker:
    """The background work of one tracker."""

    def __init__(self, store: Store, name: str, time: FakeTime) -> None:
        self.leases = LeaseKeeper(store, name, lambda: START + time.now, time)
        self._reapers = [Reaper(store, shard, lambda: 300.0, time.timer) for shard in store.shards]
        self._users = UserCopiesWorker(store, lambda: self.leases.held, time)

    async def work(self) -> None:
        """A round of all: for the shards that are its own."""
        await self.leases.round()
        await self._users.round()
        for number in self.leases.held:
            await self._reapers[number].send_heartbeat()
            await self._reapers[number].sweep_once(hurry=True)


@asynccontextmanager
async def tracker(nodes: Cluster, prefix: str, name: str, time: FakeTime) -> AsyncIterator[Tracker]:
    redis = RedisSettings(url=SecretStr(nodes.url), prefix=prefix, shards=SHARDS)
    async with open_connection(nodes.url, redis, TIMEOUT) as (connection, _):
        yield Tracker(build_store(connection, Settings(redis=redis)), name, time)


def commands(nodes: Cluster) -> int:
    """Calls so far on all nodes."""
    total = 0
    for node in nodes.nodes:
        with node.client() as client:
            total += int(client.info("stats")["total_commands_processed"])
    return total


async def test_the_work_of_two_trackers_is_that_of_one(nodes: Cluster, prefix: str) -> None:
    time = FakeTime()
    async with AsyncExitStack() as stack:
        one, other = [await stack.enter_async_context(tracker(nodes, prefix, name, time)) for name in ("one", "other")]

        async def work(*several: Tracker) -> int:
            """Commands of all trackers in a minute."""
            before = commands(nodes)
            end = time.now + 60
            while time.now < end:
                for each in several:
                    await each.work()
                time.now += 5
            return commands(nodes) - before

        await one.leases.round()
        alone = await work(one)
        assert len(one.leases.held) == SHARDS
        await work(one, other)  # the second one takes its share
        assert len(one.leases.held) == len(other.leases.held) == SHARDS / 2
        assert sorted(one.leases.held + other.leases.held) == list(range(SHARDS))
        assert alone > 12 * 6 * SHARDS
        assert await work(one, other) < 1.15 * alone
