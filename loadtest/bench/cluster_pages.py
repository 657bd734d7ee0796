"""Pages and reads of the API with 64 shards on a cluster of three, and with one store: the time of each."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import aiohttp

from loadtest import trackers
from loadtest.bench.batches import send, torrent_row, user_row
from loadtest.bench.cluster_sides import Stores, one_store, sharded
from loadtest.bench.lists import DASHBOARD, TORRENTS, USERS
from loadtest.bench.sections import Section

SHARDS = 64
GOAL_MILLISECONDS = 5.0
DEEP = "from the middle"
"""Pages of a ranking that begin so deep are read and shown, but have no goal: each shard's part has to be read."""
MORE = {
    "overview": "/",
    "metrics": "/metrics",
    "statistics": "/api/v1/statistics",
    "a torrent": "/api/v1/torrents/{torrent}",
    "peers of a torrent": "/api/v1/torrents/{torrent}/peers",
    "a user": "/api/v1/users/1",
    "dashboard, a torrent": "/torrents/{torrent}",
    "dashboard, a user": "/users/1",
    "dashboard, hit-and-runs": "/users/owing",
}


def measure_pages(directory: Path, *, rows: int, rounds: int) -> Section:
    """The fastest of some rounds counts, as other programs disturb the machine."""
    section = Section(f"Pages and reads of the API, {rows:,} users and {rows:,} torrents")
    with ExitStack() as stack:
        times = [
            asyncio.run(_read_all(*_start(stack, stores, directory), rows, rounds))
            for stores in (stack.enter_context(one_store(directory)), stack.enter_context(sharded(SHARDS)))
        ]
    one, several = times
    worst = ("", 0.0)
    for name in one:
        more = several[name] - one[name]
        section.find(f"{name}: one store", one[name], "ms")
        section.find(f"{name}: {SHARDS} shards", several[name], "ms")
        if DEEP not in name and more > worst[1]:
            worst = (name, more)
    section.find(f"the most that {SHARDS} shards take longer ({worst[0]})", worst[1], "ms", GOAL_MILLISECONDS)
    return section


def _start(stack: ExitStack, stores: Stores, directory: Path) -> tuple[trackers.RunningTracker, str]:
    """A tracker, and a token for its API."""
    (place := directory / stores.name.replace(" ", "-")).mkdir()
    settings = {
        **stores.settings,
        "TRACKER_USERS__PRIVATE": "required",
        "TRACKER_TORRENTS__MODE": "registered",
    }
    tracker = trackers.start(place, **settings)
    stack.callback(tracker.end)
    made = trackers.run(place, "token", "create", "bench", "--json", **settings)
    made.check_returncode()
    return tracker, json.loads(made.stdout)["token"]


async def _read_all(tracker: trackers.RunningTracker, token: str, rows: int, rounds: int) -> dict[str, float]:
    """Milliseconds by name."""
    headers = {"Authorization": f"Bearer {token}"}
    found = {}
    async with aiohttp.ClientSession(tracker.admin_url, headers=headers) as session:
        await send(session, "users", user_row, rows, "added")
        await send(session, "torrents", torrent_row, rows, "added")
        for name, path in _paths(rows):
            found[name] = min([await _read(session, path) for _ in range(rounds)])
    return found


async def _read(session: aiohttp.ClientSession, path: str) -> float:
    began = time.perf_counter()
    async with session.get(path) as response:
        await response.read()
        assert response.status == 200, (path, response.status)
    return 1000 * (time.perf_counter() - began)


def _paths(rows: int) -> Iterator[tuple[str, str]]:
    for what, lists in (("users", USERS), ("torrents", TORRENTS)):
        for name, query in lists.items():
            yield f"{what} {name}", f"/api/v1/{what}?{query.format(middle=rows // 2)}"
    for name, path in DASHBOARD.items():
        deep = f", {DEEP}" if "{page}" in path else ""
        yield f"dashboard, {name}{deep}", path.format(page=rows // 200)
    for name, path in MORE.items():
        yield name, path.format(torrent=torrent_row(1)["info_hash"])
