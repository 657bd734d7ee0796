"""Announces do not wait for an export: what it does in one turn of the event loop, and in one command of the store."""

import asyncio
import time
from typing import Any

import pytest
from aiohttp import ClientTimeout

from tests.admin.api.api_client import ApiClient, swarms_of
from tests.admin.conftest import Admin
from tests.store.harness import Store, info_hash, update
from tests.test_cost import Counted, counting

SWARM, SMALL = 500, 150
MOST_IN_A_TURN = 150_000
"""Instructions. 60,000 take about a millisecond (tests/test_cost.py), and an announce may wait 5 ms."""
MANY, BATCH = 100_000, 50
SLOW_MICROSECONDS, TRIES, MAX_CPU_SECONDS = 5000, 3, 10


async def fill(store: Store, swarm: int, small: int) -> None:
    """One swarm with many peers, and torrents with one peer each."""
    for first in range(0, swarm + small, BATCH):
        numbers = range(first, min(first + BATCH, swarm + small))
        await store.announce_together(*(update(n, "s", torrent=max(1, n - swarm + 2), peers_wanted=0) for n in numbers))


async def export(asking: ApiClient, path: str) -> int:
    """The number of rows."""
    how: Any = {"params": {"limit": "1000000"}, "timeout": ClientTimeout(total=None)}
    async with asking.session.get(f"/api/v1{path}", **how) as response:
        assert response.status == 200
        return sum([chunk.count(b"\n") async for chunk in response.content.iter_any()]) - 1


class Turns:
    """The instructions of the tracker's code in the longest turn of the event loop."""

    def __init__(self, found: Counted) -> None:
        self.most = self._before = 0
        self._found = found
        self._handle: asyncio.Handle = asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self.most = max(self.most, self._found.instructions - self._before)
        self._before = self._found.instructions
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def stop(self) -> None:
        self._handle.cancel()


@pytest.mark.parametrize("path", ["/peers", "/user-torrents", "/torrents/json-lines", "/users/json-lines"])
async def test_an_export_takes_little_of_a_turn_of_the_event_loop(
    admin: Admin, full: ApiClient, redis_url: str, path: str
) -> None:
    rows: list[dict[str, Any]] = [{"user_id": str(number)} for number in range(1, SWARM + 1)]
    if path == "/peers":
        async with swarms_of(admin, redis_url) as store:
            await fill(store, SWARM, SMALL)
    else:
        hashes: list[Any] = [(info_hash(number), {}) for number in range(1, SWARM + 1)]
        (first, *_) = await admin.store.torrents.add_many(hashes)
        await admin.store.user_import.save(rows)
        assert isinstance(first, tuple)
        await admin.store.user_history.save([{**row, "torrent_id": first[0], "uploaded": 1} for row in rows])
    with counting() as found:
        turns = Turns(found)
        assert await export(full, path) == (SWARM + SMALL if path == "/peers" else SWARM)
        turns.stop()
    assert 0 < turns.most <= MOST_IN_A_TURN, turns.most


@pytest.mark.long
@pytest.mark.serial
@pytest.mark.timeout(600)
async def test_100000_peers_are_read_fast_and_no_command_is_slow(admin: Admin, full: ApiClient, redis_url: str) -> None:
    """In CPU time of this process, which also reads the reply, and of the store."""
    async with swarms_of(admin, redis_url) as store:
        await fill(store, MANY // 2, MANY // 2)
        await store.redis.config_set("slowlog-log-slower-than", SLOW_MICROSECONDS)
        slow: list[Any] = []
        for _ in range(TRIES):
            await store.redis.slowlog_reset()
            before = time.process_time() + await store_seconds(store)
            assert await export(full, "/peers") == MANY
            seconds = time.process_time() + await store_seconds(store) - before
            slow = [entry["command"][:80] for entry in await store.redis.slowlog_get(10)]
            if not slow:
                break
    assert not slow and seconds < MAX_CPU_SECONDS, seconds


async def store_seconds(store: Store) -> float:
    found = await store.redis.info("cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])
